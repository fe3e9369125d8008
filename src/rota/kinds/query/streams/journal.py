"""The journal of a stream: what rounds will read, written down before they do.

Of a round that was known when the one before was published, the chain itself has the plan. All others are here:

    plans/<position>-<incarnation>.jsonl    plans from that position of the chain on, one in a line, after its checksum
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import msgspec

from rota.kinds.query.streams.rounds import Plan
from rota.wire.flushing import flush

_NAME = re.compile(r"[0-9]+-[0-9]+", re.ASCII)

_plan_bytes = msgspec.json.Encoder().encode
_plan_of = msgspec.json.Decoder(Plan).decode


class Journal:
    """The files of plans of one stream. Only the newest is written to."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the stream's."""
        self._folder = folder / "plans"
        self._file: int | None = None

    def make(self) -> None:
        """Have its folder there."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def plans(self) -> list[Plan]:
        """All that were written down, the newest last."""
        found: list[Plan] = []
        for path in self._files():
            for line in path.read_bytes().split(b"\n"):
                # The end of a line that was being written, or damage: what nobody can read, nobody has followed.
                with suppress(msgspec.DecodeError, ValueError):
                    found.append(_plan_in(line))
        return found

    def note(self, plans: Sequence[Plan], *, position: int, incarnation: int) -> None:
        """Write plans down; they are on disk afterwards. A file that is begun has the position in its name."""
        if self._file is None:
            path = self._folder / f"{position:012d}-{incarnation}.jsonl"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            flush(self._folder)
        os.write(self._file, b"".join(b"\n" + _line_of(plan) + b"\n" for plan in plans))
        os.fdatasync(self._file)

    def forget(self, oldest: int) -> None:
        """Remove files with nothing in them about what comes after a position."""
        for path, after in pairwise(self._files()):
            if _begun(after)[0] <= oldest:
                path.unlink(missing_ok=True)

    def forget_all(self) -> None:
        """Remove plans of a life that does not count any more."""
        self.close()
        for path in self._files():
            path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        """In the order in which they were begun."""
        return sorted((path for path in self._folder.glob("*.jsonl") if _NAME.fullmatch(path.stem)), key=_begun)

    def close(self) -> None:
        """Let go of the file: the next plans go to another one, so that this one can be removed some day."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _line_of(plan: Plan) -> bytes:
    content = _plan_bytes(plan)
    return b"%08x %b" % (crc32(content), content)


def _plan_in(line: bytes) -> Plan:
    """The plan in a line; ValueError if that is not what was written."""
    checksum, _, content = line.partition(b" ")
    if checksum != b"%08x" % crc32(content):
        raise ValueError("it is not what was written")
    return _plan_of(content)


def _begun(file: Path) -> tuple[int, ...]:
    """The position at which a file was begun, and by which incarnation."""
    return tuple(int(each) for each in file.stem.split("-"))
