"""Pieces: tables of a stream's state, or rows of a round, as bytes somewhere in a file, known by their SHA-256.

A piece is in the file of its round, or, if a task of the round wrote it, in a file of its own below the stream's
folder. Nothing of it is believed before its SHA-256 was seen to be right.
"""

import os
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa
from msgspec import Struct

from rota.kinds.query.streams.flushing import write_flushed
from rota.wire.flushing import flush

# Where files of pieces are in a stream's folder.
PIECES = "pieces"
_CHUNK_BYTES = 1 << 20


class Damaged(Exception):
    """A file of a round is not what was written."""


# State of an operator, rows for a sink, or what a source has to remember.
PieceKind = Literal["state", "rows", "source"]


class Piece(Struct, frozen=True, kw_only=True):
    """A table: a partition of an operator's state, rows for a sink, or the memory of a source.

    `file` is where it is, seen from the stream's folder; "" if that is the file of its round. `offset` is where it
    begins there: behind the manifest, in the file of a round.
    """

    kind: PieceKind
    node: str
    table: str = ""
    partition: int = 0
    rows: int = 0
    offset: int = 0
    bytes: int = 0
    sha256: str = ""
    file: str = ""


class Place(Struct, frozen=True, array_like=True):
    """Where the bytes of a piece are."""

    path: str
    offset: int
    bytes: int
    sha256: str


def ipc(table: pa.Table) -> pa.Buffer:
    """A table as bytes."""
    sink = pa.BufferOutputStream()
    # Lists may be of categories, of which parts of a table have other ones.
    options = pa.ipc.IpcWriteOptions(unify_dictionaries=True)
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def packed_pieces(tables: Sequence[tuple[Piece, pa.Table]]) -> tuple[list[Piece], list[pa.Buffer]]:
    """Tables as bytes that follow each other, and what is known of each."""
    pieces: list[Piece] = []
    contents: list[pa.Buffer] = []
    offset = 0
    for piece, table in tables:
        content = ipc(table)
        known = {"rows": table.num_rows, "offset": offset, "bytes": content.size}
        pieces.append(msgspec.structs.replace(piece, **known, sha256=sha256(content).hexdigest()))
        contents.append(content)
        offset += content.size
    return pieces, contents


def write_pieces(
    folder: Path, file: str, tables: Sequence[tuple[Piece, pa.Table]], *, is_kept: bool
) -> tuple[Piece, ...]:
    """Write tables into one file below a stream's folder. `is_kept`: it is there after a loss of power, too."""
    if not tables:
        return ()
    pieces, contents = packed_pieces(tables)
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_kept:
        write_flushed(path, contents)
        for each in (path.parent, path.parent.parent):
            flush(each)
    else:
        with path.open("wb") as opened:
            opened.writelines(contents)
    return tuple(msgspec.structs.replace(piece, file=file) for piece in pieces)


def chunks_of(place: Place, called: str) -> Iterator[bytes]:
    """The bytes of a piece, little by little; or Damaged, once all of them have been seen."""
    seen, left = sha256(), place.bytes
    try:
        with open(place.path, "rb") as file:  # noqa: PTH123 - a name among names
            file.seek(place.offset)
            while left and (chunk := file.read(min(left, _CHUNK_BYTES))):
                left -= len(chunk)
                seen.update(chunk)
                yield chunk
    except FileNotFoundError:
        raise Damaged(f"{called} is gone ({os.path.basename(place.path)})") from None  # noqa: PTH119 - likewise
    if left or seen.hexdigest() != place.sha256:
        raise Damaged(f"{called} is not what was written")


def check_piece(piece: Piece, place: Place) -> None:
    """Damaged, unless a piece is what was written. It is never held as a whole."""
    for _ in chunks_of(place, called(piece)):
        pass


def read_piece(piece: Piece, place: Place) -> pa.Table:
    """A piece as a table; or Damaged."""
    content = b"".join(chunks_of(place, called(piece)))
    return pa.ipc.open_file(pa.py_buffer(content)).read_all()


def called(piece: Piece) -> str:
    """What a piece is, for people."""
    return f"{piece.kind} of {piece.node} (partition {piece.partition})"
