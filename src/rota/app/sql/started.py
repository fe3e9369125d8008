"""A stream that was started: rounds one after the other, for as long as somebody iterates."""

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Self

from msgspec import structs

from rota.kinds.query.streams.manifests import Manifest
from rota.kinds.query.streams.stream import Round, Stream
from rota.kinds.query.streams.wishes import Wishes, read_wishes, write_wishes


class Running:
    """A stream at work. Iterating makes it work; it stands still in between."""

    def __init__(self, stream: Stream, folder: Path, again: Round | None, *, follow: bool, every_s: float) -> None:
        self._stream = stream
        self._folder = folder
        self._again = again
        self._follow = follow
        self._every_s = every_s
        self._stopping = Event()
        self._is_closed = False

    @property
    def last(self) -> Manifest | None:
        """The newest round."""
        return self._stream.last

    @property
    def skipped(self) -> tuple[tuple[int, str], ...]:
        """Rounds that could not be used when it began, with reasons."""
        return self._stream.skipped

    def __iter__(self) -> Iterator[Round]:
        if self._again is not None:
            again, self._again = self._again, None
            yield again
        began = 0.0
        while not self._stopping.is_set():
            wishes = self._heed()
            if self._stopping.is_set():
                return
            left_s = began + self._every_s - time.monotonic()
            if wishes.paused or (left_s > 0 and not self._stream.is_behind):
                self._stopping.wait(self._every_s if wishes.paused else left_s)
                continue
            began = time.monotonic()
            found = self._stream.next_round()
            if found is not None:
                yield found
            elif self._stream.is_over or not self._follow:
                return

    def _heed(self) -> Wishes:
        """Do what people want of it who are elsewhere."""
        wishes = read_wishes(self._folder)
        if wishes.savepoint and self._stream.last is not None:
            self._stream.savepoint(wishes.savepoint)
            wishes = structs.replace(wishes, savepoint="")
            write_wishes(self._folder, wishes)
        if wishes.stop and not wishes.savepoint:
            self._stopping.set()
            write_wishes(self._folder, structs.replace(wishes, stop=False))
        return wishes

    def pause(self) -> None:
        """Stand still after this round, until it is resumed; by whoever starts the stream, too."""
        write_wishes(self._folder, structs.replace(read_wishes(self._folder), paused=True))

    def resume(self) -> None:
        """Go on."""
        write_wishes(self._folder, structs.replace(read_wishes(self._folder), paused=False))

    def savepoint(self, name: str) -> Path:
        """Keep the last round under a name, until somebody removes its file."""
        return self._stream.savepoint(name)

    def stop(self, *, savepoint: str = "") -> None:
        """End after this round; `savepoint` keeps it under a name."""
        self._stopping.set()
        if savepoint:
            self._stream.savepoint(savepoint)

    def close(self) -> None:
        """Let go of everything."""
        if not self._is_closed:
            self._is_closed = True
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self.close()
