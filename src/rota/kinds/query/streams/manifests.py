"""Manifests: what a round was, and the file that it is kept in.

    ROTAROUND1 · length of the manifest · its SHA-256 · the manifest as JSON · pieces, one after the other

A file is valid if its manifest is; a piece is what it was if its SHA-256 is. Nothing of a file is believed before that.
Pieces that tasks of the round wrote are in files of their own, which the manifest names (`pieces`).
"""

import struct
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import chain, takewhile
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa
from msgspec import Struct

from rota.kinds.query.streams.pieces import (
    Damaged,
    Piece,
    PieceKind,
    Place,
    called,
    chunks_of,
    packed_pieces,
    read_piece,
)
from rota.kinds.query.streams.rounds import Offset, Plan
from rota.kinds.query.streams.watermarks import Clock
from rota.wire.wishes import BEGINNING

VERSION = 1

_LENGTH = struct.Struct(">Q")
_PREFIX_BYTES = len(BEGINNING) + _LENGTH.size + 32
# More is no manifest, whatever its first bytes say.
_MANIFEST_BYTES_MAX = 64 << 20


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
    # The identity of the stream whose chain it is in.
    stream: str = ""
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
    # Where the stream was restored on its way here: after which round, and at which position of the chain.
    branches: tuple[tuple[int, int], ...] = ()
    # Whether no more rows can come.
    is_final: bool = False

    @property
    def has_state(self) -> bool:
        """Whether one can go on from here; otherwise it takes an older round, and reading again."""
        return self.kind == "round" and any(piece.kind == "state" for piece in self.pieces)

    def is_same(self, other: "Manifest") -> bool:
        """Whether it is the other round, or a copy of it, and not one of that number from before a restore."""
        return (self.round, self.offsets) == (other.round, other.offsets)

    def shared_with(self, other: "Manifest") -> int:
        """The last round that both come from; 0 if there is none. Later ones of equal numbers are not the same."""
        if self.stream and self.stream != other.stream:
            return 0
        both = self.branches, other.branches
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*both, strict=False)))
        apart = [branches[same][0] for branches in both if len(branches) > same]
        return min(self.round, other.round, *apart)

    def branched(self, position: int) -> tuple[tuple[int, int], ...]:
        """The branches of what goes on from here at another position."""
        return (*(each for each in self.branches if each[0] < self.round), (self.round, position))


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Manifest).decode


def packed(
    manifest: Manifest, tables: Sequence[tuple[Piece, pa.Table]], elsewhere: Sequence[Piece] = ()
) -> tuple[Manifest, list[bytes | pa.Buffer]]:
    """A manifest with its pieces, of which some are `elsewhere`, and the bytes of its file one after the other."""
    pieces, contents = packed_pieces(tables)
    whole = msgspec.structs.replace(manifest, pieces=(*pieces, *elsewhere))
    return whole, [*_head(whole), *contents]


def copied(
    manifest: Manifest, pieces: Sequence[tuple[Piece, Place]], tables: Sequence[tuple[Piece, pa.Table]] = ()
) -> tuple[Manifest, Iterator[bytes | pa.Buffer]]:
    """A manifest with pieces that are wherever they are, as a file that has all of them. Bytes may end as Damaged.

    `tables` are pieces that come after those.
    """
    found: list[Piece] = []
    offset = 0
    for piece, place in pieces:
        found.append(msgspec.structs.replace(piece, offset=offset, file=""))
        offset += place.bytes
    more, contents = packed_pieces(tables)
    found += (msgspec.structs.replace(piece, offset=piece.offset + offset) for piece in more)
    whole = msgspec.structs.replace(manifest, pieces=tuple(found))
    parts = (chunks_of(place, called(piece)) for piece, place in pieces)
    return whole, chain(_head(whole), chain.from_iterable(parts), contents)


def _head(manifest: Manifest) -> list[bytes]:
    head = _encode(manifest)
    return [BEGINNING, _LENGTH.pack(len(head)), sha256(head).digest(), head]


def read_manifest(path: Path) -> Manifest:
    """The manifest of a file, or Damaged."""
    return _read(path)[0]


def _read(path: Path) -> tuple[Manifest, int]:
    """A manifest, and where its pieces begin."""
    try:
        with path.open("rb") as file:
            prefix = file.read(_PREFIX_BYTES)
            if len(prefix) < _PREFIX_BYTES or not prefix.startswith(BEGINNING):
                raise Damaged("it does not begin like a round")
            (size,) = _LENGTH.unpack_from(prefix, len(BEGINNING))
            if size > _MANIFEST_BYTES_MAX:
                raise Damaged("its manifest has no length that could be")
            head = file.read(size)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Damaged(f"it cannot be read: {error.strerror}") from None
    if len(head) < size or sha256(head).digest() != prefix[-32:]:
        raise Damaged("its manifest is not what was written")
    try:
        manifest = _decode(head)
    except msgspec.DecodeError as error:
        raise Damaged(f"its manifest cannot be read: {error}") from None
    if manifest.version != VERSION:
        raise Damaged(f"it has version {manifest.version} of the format, and {VERSION} is read here")
    return manifest, _PREFIX_BYTES + size


def pieces_of(path: Path, kind: PieceKind) -> list[tuple[Piece, Place]]:
    """The pieces of one kind, and where they are; or Damaged."""
    manifest, begin = _read(path)
    folder = path.parent.parent
    found: list[tuple[Piece, Place]] = []
    for piece in manifest.pieces:
        if piece.kind == kind:
            is_here = not piece.file
            where, offset = (path, begin + piece.offset) if is_here else (folder / piece.file, piece.offset)
            found.append((piece, Place(str(where), offset, piece.bytes, piece.sha256)))
    return found


def read_pieces(path: Path, kind: PieceKind) -> list[tuple[Piece, pa.Table]]:
    """The pieces of one kind, each checked; or Damaged."""
    return [(piece, read_piece(piece, place)) for piece, place in pieces_of(path, kind)]
