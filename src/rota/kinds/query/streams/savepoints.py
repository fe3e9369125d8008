"""Savepoints: rounds that are kept under a name, until somebody removes them, with all that takes to go on from them.

One is a single file, in the form of a round's (`manifests`), with copies of all pieces of its state. It also has what
sources have to remember for offsets to mean the same elsewhere, so that another folder can go on from it.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from rota.core.errors import Refused
from rota.kinds.query.streams.flushing import write_flushed
from rota.kinds.query.streams.manifests import Manifest, copied, pieces_of, read_manifest, read_pieces
from rota.kinds.query.streams.pieces import Damaged, Piece, check_piece
from rota.wire.flushing import flush
from rota.wire.wishes import ENDING, SAVEPOINTS, check_savepoint, has_savepoint, is_name

_REMEMBERED = "remembered"


def aside_name(name: str) -> str:
    """Where a file is written first. Processes in containers share numbers, so that chance alone keeps them apart."""
    return f"_{name}-{secrets.token_hex(8)}"


class Savepoints:
    """Those of one stream."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the stream's."""
        self._stream = folder
        self._folder = folder / SAVEPOINTS

    def make(self) -> None:
        """Have their folder there."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def remove_half_saved(self) -> None:
        """Remove what somebody was writing who was killed, or deposed just now."""
        for path in self._folder.glob("_*"):
            if path.suffix != ENDING:
                path.unlink(missing_ok=True)

    def save(self, kept: Path, name: str, remembered: Mapping[str, bytes]) -> Path:
        """Keep the round in a file under a name. `remembered`: what its sources have to remember."""
        check_savepoint(self._stream, name)
        path = self.file(name)
        try:
            self._copy(kept, path, remembered)
            flush(self._folder)
        except Damaged as damage:
            text = f"the round in {kept.name} cannot be saved: {damage}"
            raise Refused("stream.corrupt", text, "Start the stream again.") from None
        except OSError as error:
            text = f"{path} cannot be written: {error.strerror}"
            raise Refused("stream.folder", text, "See that there is room, and that it may be written.") from None
        return path

    def _copy(self, kept: Path, path: Path, remembered: Mapping[str, bytes]) -> None:
        # With all of its pieces, so that nobody has to know for whom they are kept.
        memories = [
            (Piece(kind="source", node=name), pa.table({_REMEMBERED: [content]}))
            for name, content in remembered.items()
        ]
        aside = self._folder / aside_name(path.stem)
        try:
            write_flushed(aside, copied(read_manifest(kept), pieces_of(kept, "state"), memories)[1])
            aside.rename(path)
        finally:
            aside.unlink(missing_ok=True)

    def file(self, name: str) -> Path:
        """Where a savepoint is, or would be."""
        return self._folder / f"{name}{ENDING}"

    def identity_in(self, path: Path) -> str:
        """What the stream was called that a savepoint of this folder is of; nothing of one that lies elsewhere.

        Two streams must not be called alike that may both be at work.
        """
        return saved_round(path).stream if path.absolute().parent == self._folder.absolute() else ""

    def names(self) -> list[str]:
        """What there is."""
        return sorted(path.stem for path in self._folder.glob(f"*{ENDING}") if is_name(path.stem))

    def find(self, name: str) -> Path:
        """The file of one that is there."""
        if not has_savepoint(self._stream, name):
            known = ", ".join(self.names()) or "none"
            raise Refused("stream.unknown", f"there is no savepoint {name!r}", f"There are: {known}.", path="savepoint")
        return self.file(name)


def saved_round(path: Path) -> Manifest:
    """A round that can be gone on from: its state is what was written."""
    try:
        manifest = read_manifest(path)
        for piece, place in pieces_of(path, "state"):
            check_piece(piece, place)
    except FileNotFoundError:
        raise Refused("stream.unknown", f"there is no file {path}", "See `rota stream show`.") from None
    except Damaged as damage:
        raise _unusable(path, damage) from None
    if not manifest.has_state:
        text = f"round {manifest.round} has no state of its own"
        raise Refused("stream.unknown", text, "Choose a round with state, or a savepoint.")
    return manifest


def remembered_in(path: Path) -> dict[str, bytes]:
    """What the sources of a savepoint had to remember; nothing in the file of a round."""
    try:
        return {piece.node: table.column(_REMEMBERED)[0].as_py() for piece, table in read_pieces(path, "source")}
    except Damaged as damage:
        raise _unusable(path, damage) from None


def _unusable(path: Path, damage: Damaged) -> Refused:
    return Refused("stream.corrupt", f"{path} cannot be restored: {damage}", "Choose another one.")
