"""A stream that was started: rounds one after the other, for as long as somebody iterates."""

import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Self

from rota.core.errors import Refused, Unavailable
from rota.kinds.query.streams.chain import file_of, rounds_in
from rota.kinds.query.streams.given import text
from rota.kinds.query.streams.manifests import Manifest
from rota.kinds.query.streams.stream import Round, Stream, is_fenced
from rota.kinds.query.streams.telling import Teller, told_failed
from rota.running import context
from rota.wire.standings import Told
from rota.wire.wishes import Verb, Wish, Wishes, ask, has_savepoint, heed, read_wishes


class Running:
    """A stream at work. Iterating makes it work; it stands still in between."""

    def __init__(
        self, stream: Stream, folder: Path, again: Round | None, *, follow: bool, every_s: float, guarantee: str = ""
    ) -> None:
        self._stream = stream
        self._folder = folder
        self._again = again
        self._follow = follow
        self._every_s = every_s
        self._stopping = Event()
        self._is_closed = False
        self._wishes = Wishes()
        kept = {each.position: each.round for each in rounds_in(folder) if each.has_state}
        self._teller = Teller(folder, stream, _about(stream, guarantee), kept)

    @property
    def last(self) -> Manifest | None:
        """The newest round."""
        return self._stream.last

    @property
    def skipped(self) -> tuple[tuple[int, str], ...]:
        """Rounds that could not be used when it began, with reasons."""
        return self._stream.skipped

    def __iter__(self) -> Iterator[Round]:
        ended, trouble = "stopped", ""
        try:
            yield from self._rounds()
            if self._stream.is_over:
                ended = "over"
        except Exception as error:
            ended, trouble = "failed", str(error) or type(error).__name__
            raise
        finally:
            self._teller.ended(ended, trouble)

    def _rounds(self) -> Iterator[Round]:
        wishes = self._heed()
        if self._again is not None:
            again, self._again = self._again, None
            yield again
        began = 0.0
        while not self._stopping.is_set():
            if wishes.paused and not self._follow:
                # A slice of a schedule waits for nobody.
                return
            left_s = began + self._every_s - time.monotonic()
            if wishes.paused or (left_s > 0 and not self._stream.is_behind):
                self._stopping.wait(self._every_s if wishes.paused else left_s)
            else:
                began = time.monotonic()
                found = self._stream.next_round()
                if found is not None:
                    self._teller.published(found.manifest, self._stream.checkpoint_ms)
                    yield found
                elif self._stream.is_over or not self._follow:
                    return
            self._teller.tell_now_and_then()
            wishes = self._heed()

    def _heed(self) -> Wishes:
        """Do what people want of it who are elsewhere. What cannot be done is told, and stops nothing."""
        try:
            wishes = read_wishes(self._folder)
        except ValueError as wrong:
            # What nobody can read was not asked for.
            self._teller.refused(f"{self._folder}: {wrong}; remove that file")
            return self._wishes
        self._wishes = wishes
        for wish in wishes.pending:
            # It is for whoever took over; also if that happened while this one was at it.
            self._stream.check_held()
            is_met = self._try(wish)
            self._stream.check_held()
            heed(self._folder, wish)
            if wish.stop and is_met:
                self._stopping.set()
        return wishes

    def _try(self, wish: Wish) -> bool:
        """Whether it was met."""
        try:
            self._meet(wish)
        except (Refused, Unavailable, OSError, ValueError) as trouble:
            # What is wanted may be any text: the name of no file, a number that is none.
            if is_fenced(trouble):
                raise
            self._teller.refused(f"{wish.words}: {trouble}")
            return False
        return True

    def _meet(self, wish: Wish) -> None:
        if wish.verb == "restore":
            self._stream.restore(file_of(self._folder, wish.which))
            restored = self._stream.last
            if self._again is not None and restored is not None and not restored.is_same(self._again.manifest):
                # What is not a part of it is not given again.
                self._again = None
            self._teller.restored()
        elif not has_savepoint(self._folder, wish.which):
            # It is there if whoever ran the stream before was killed in between.
            self._stream.savepoint(wish.which)

    def pause(self) -> None:
        """Stand still after this round, until it is resumed; by whoever starts the stream, too."""
        self._ask("pause")

    def resume(self) -> None:
        """Go on."""
        self._ask("resume")

    def _ask(self, verb: Verb) -> None:
        ask(self._folder, Wish(id=f"here-{secrets.token_hex(8)}", verb=verb))

    def savepoint(self, name: str) -> Path:
        """Keep the last round under a name, until somebody removes its file."""
        return self._stream.savepoint(text(name, "name"))

    def stop(self, *, savepoint: str = "") -> None:
        """End after this round; `savepoint` keeps it under a name. If that cannot be, the stream goes on."""
        name = text(savepoint, "savepoint")
        if name:
            self._stream.savepoint(name)
        self._stopping.set()

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


def tell_failure(folder: Path, stream: Stream, guarantee: str, error: BaseException) -> None:
    """Tell why a stream that was taken over could not begin: else it would seem to be as others left it."""
    if stream.incarnation and isinstance(error, Exception) and not is_fenced(error):
        told_failed(folder, _about(stream, guarantee), stream.now_ms(), str(error) or type(error).__name__)


def _about(stream: Stream, guarantee: str) -> Told:
    """Who runs it: an attempt of a task, or some program; and what it promises."""
    run = task = ""
    with suppress(LookupError):
        here = context()
        run, task = here.run, here.task
    return Told(
        told_at=0, holder=stream.holder, incarnation=stream.incarnation, guarantee=guarantee, run=run, task=task
    )
