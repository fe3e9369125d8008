"""Manifests: what a round was, and the file that it is kept in.

    ROTAROUND1 · length of the manifest · its SHA-256 · the manifest as JSON · pieces, one after the other

A file is valid if its manifest is; a piece is what it was if its SHA-256 is. Nothing of a file is believed before that.
"""

import struct
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa
from msgspec import Struct

from rota.kinds.query.streams.rounds import Offset, Plan
from rota.kinds.query.streams.watermarks import Clock

VERSION = 1

_MAGIC = b"ROTAROUND1\n"
_LENGTH = struct.Struct(">Q")
_PREFIX_BYTES = len(_MAGIC) + _LENGTH.size + 32
# More is no manifest, whatever its first bytes say.
_MANIFEST_BYTES_MAX = 64 << 20


class Piece(Struct, frozen=True, kw_only=True):
    """A table in a round's file: a partition of an operator's state, or rows for a sink."""

    kind: Literal["state", "rows"]
    node: str
    table: str = ""
    partition: int = 0
    rows: int = 0
    offset: int = 0
    bytes: int = 0
    sha256: str = ""


class Transaction(Struct, frozen=True, kw_only=True):
    """What a sink has prepared; it is committed once the round is published."""

    sink: str
    node: str
    rows: int = 0
    # What the sink wants to be told when it commits.
    prepared: dict[str, str] = {}
    # Whether the rows are a piece of this round.
    is_kept_here: bool = False


class Skipped(Struct, frozen=True, array_like=True):
    """A round that could not be used when the stream began, and why."""

    position: int
    reason: str


class Manifest(Struct, frozen=True, kw_only=True):
    """A round that was published, or the claim of an incarnation.

    `position` is its number in the chain, `follows` the position that it goes on from. `round` is the number of what
    was computed: of a claim that of the last round before it. `next` is the plan of the round after it, if there was
    more to read already.
    """

    version: int = VERSION
    kind: Literal["round", "claim"] = "round"
    position: int
    follows: int = 0
    round: int = 0
    incarnation: int = 0
    holder: str = ""
    definition: str = ""
    plan: Plan | None = None
    next: Plan | None = None
    offsets: dict[str, Offset] = {}
    clocks: dict[str, Clock] = {}
    # All that was counted since the stream began, by node and what it is.
    counts: dict[str, int] = {}
    parallelism: int = 1
    pieces: tuple[Piece, ...] = ()
    transactions: tuple[Transaction, ...] = ()
    published_at_ms: int = 0
    took_ms: float = 0
    # Whether no more rows can come.
    is_final: bool = False
    skipped: tuple[Skipped, ...] = ()

    @property
    def has_state(self) -> bool:
        """Whether one can go on from here; otherwise it takes an older round, and reading again."""
        return self.kind == "round" and any(piece.kind == "state" for piece in self.pieces)


class Damaged(Exception):
    """A file of a round is not what was written."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Manifest).decode


def packed(manifest: Manifest, tables: Sequence[tuple[Piece, pa.Table]]) -> tuple[Manifest, list[bytes | pa.Buffer]]:
    """A manifest with its pieces, and the bytes of its file one after the other."""
    pieces: list[Piece] = []
    contents: list[bytes | pa.Buffer] = []
    offset = 0
    for piece, table in tables:
        content = _ipc(table)
        size = content.size
        pieces.append(
            msgspec.structs.replace(
                piece, rows=table.num_rows, offset=offset, bytes=size, sha256=sha256(content).hexdigest()
            )
        )
        contents.append(content)
        offset += size
    whole = msgspec.structs.replace(manifest, pieces=tuple(pieces))
    head = _encode(whole)
    return whole, [_MAGIC, _LENGTH.pack(len(head)), sha256(head).digest(), head, *contents]


def _ipc(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def read_manifest(path: Path) -> Manifest:
    """The manifest of a file, or Damaged."""
    return _read(path)[0]


def _read(path: Path) -> tuple[Manifest, int]:
    """A manifest, and where its pieces begin."""
    with path.open("rb") as file:
        prefix = file.read(_PREFIX_BYTES)
        if len(prefix) < _PREFIX_BYTES or not prefix.startswith(_MAGIC):
            raise Damaged("it does not begin like a round")
        (size,) = _LENGTH.unpack_from(prefix, len(_MAGIC))
        if size > _MANIFEST_BYTES_MAX:
            raise Damaged("its manifest has no length that could be")
        head = file.read(size)
    if len(head) < size or sha256(head).digest() != prefix[-32:]:
        raise Damaged("its manifest is not what was written")
    try:
        manifest = _decode(head)
    except msgspec.DecodeError as error:
        raise Damaged(f"its manifest cannot be read: {error}") from None
    if manifest.version != VERSION:
        raise Damaged(f"it has version {manifest.version} of the format, and {VERSION} is read here")
    return manifest, _PREFIX_BYTES + size


def read_pieces(path: Path, kind: Literal["state", "rows"]) -> list[tuple[Piece, pa.Table]]:
    """The pieces of one kind, each checked; or Damaged."""
    manifest, begin = _read(path)
    found: list[tuple[Piece, pa.Table]] = []
    with path.open("rb") as file:
        for piece in manifest.pieces:
            if piece.kind != kind:
                continue
            file.seek(begin + piece.offset)
            content = file.read(piece.bytes)
            if sha256(content).hexdigest() != piece.sha256:
                raise Damaged(f"{piece.kind} of {piece.node} (partition {piece.partition}) is not what was written")
            found.append((piece, pa.ipc.open_file(pa.py_buffer(content)).read_all()))
    return found
