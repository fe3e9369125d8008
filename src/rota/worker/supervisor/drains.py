"""Logs being written: pipes that attempts print into, emptied into files up to a cap."""

import contextlib
import os
from collections.abc import Sequence

PIECE_BYTES = 256 * 1024
TAIL_BYTES = 4_096
_TRIES = 1_000


class Drain:
    """One attempt's output: one pipe, or one for each of stdout and stderr, into one file.

    An attempt is never kept waiting for the disk to have room: what cannot be written is counted and dropped.
    """

    def __init__(self, path: str, pipes: Sequence[int], bytes_max: int) -> None:
        self.pipes = list(pipes)
        self.written = 0
        self.dropped = 0
        # The end of each stream, for errors and results.
        self.tails = [b"" for _ in pipes]
        self._path = path
        self._bytes_max = bytes_max
        self._order = list(pipes)
        self._file = -1
        self._is_broken = False
        for pipe in pipes:
            os.set_blocking(pipe, False)

    def empty(self, pipe: int, pieces: int = 1) -> bool:
        """Take what is in a pipe, up to some pieces; whether the pipe is at its end and was closed."""
        for _ in range(pieces):
            try:
                piece = os.read(pipe, PIECE_BYTES)
            except BlockingIOError:
                return False
            if not piece:
                self.pipes.remove(pipe)
                os.close(pipe)
                return True
            stream = self._order.index(pipe)
            self.tails[stream] = (self.tails[stream] + piece[-TAIL_BYTES:])[-TAIL_BYTES:]
            self._write(piece)
        return False

    def close(self) -> None:
        """Take what is left in the pipes, without waiting for whoever still holds their other ends."""
        for pipe in list(self.pipes):
            # A writer that never stops must not keep us here: a pipe holds at most a megabyte.
            if not self.empty(pipe, pieces=16):
                self.pipes.remove(pipe)
                os.close(pipe)
        if self.dropped:
            self._note(f"\n[rota] {self.dropped:,} more bytes were dropped: {self._why()}\n")
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _why(self) -> str:
        return "they could not be written" if self._is_broken else f"a log holds at most {self._bytes_max:,}"

    def _note(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._open()
            os.write(self._file, text.encode())

    def _write(self, piece: bytes) -> None:
        room = 0 if self._is_broken else self._bytes_max - self.written
        kept = memoryview(piece)[:room]
        try:
            while kept:
                self._open()
                wrote = os.write(self._file, kept)
                self.written += wrote
                kept = kept[wrote:]
        except OSError:
            self._is_broken = True
            self.dropped += len(kept)
        self.dropped += max(0, len(piece) - room)

    def _open(self) -> None:
        if self._file < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            for tries_left in range(_TRIES - 1, -1, -1):
                try:
                    os.makedirs(os.path.dirname(self._path), 0o700, exist_ok=True)  # noqa: PTH103, PTH120 - pathlib costs a start
                    self._file = os.open(self._path, flags, 0o600)
                    return
                except (FileNotFoundError, FileExistsError):
                    # The worker removes folders that are empty, also one that was made, or seen, just now.
                    if not tries_left:
                        raise
