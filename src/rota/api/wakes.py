"""What sessions are told, kept for a while: whoever was cut off for a moment, or is busy, misses nothing.

Each session has a box with the newest of its wakes, numbered without gaps. Whoever listens at a box is heard of, all of
them together, so that a thousand sessions that wait cost next to nothing. Nobody is dead because it stopped listening.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol

from rota.control.events import Wake
from rota.core.commands import BeatWorker
from rota.core.errors import Refused, Unavailable
from rota.core.ids import WorkerKey

KEPT_MAX = 64
# How long wakes are kept for a session to which nobody listens.
LINGER_S = 60.0
# How often whoever listens is heard of; three times as often as its silence would end it, if that is more often.
BEAT_S = 10.0
BEATS_PER_SILENCE = 3
# So many are heard of in one turn; others have theirs in between.
BEATS_AT_ONCE = 100
_LIFE_CHARS = 8
_NUMBER_CHARS_MAX = 18

Place = tuple[str, int]


class Source(Protocol):
    """Who tells of wakes, and hears of sessions."""

    def on_wake(self, worker: WorkerKey, waker: Callable[[Wake | None], None]) -> Callable[[], None]:
        """Be told of a session's wakes; the answer ends it."""
        ...

    async def ask_all(self, requests: Sequence[Any]) -> list[tuple[object, object]]:
        """Carry out several commands; what is refused is among the answers."""
        ...


def read_place(id: str) -> Place:
    """The place that the id of an event names. Raises Refused if it can be none of ours."""
    life, dot, number = id.partition(".")
    is_life = len(life) == _LIFE_CHARS and all(char in "0123456789abcdef" for char in life)
    if not (dot and is_life and number.isascii() and number.isdecimal() and len(number) <= _NUMBER_CHARS_MAX):
        hint = "Send the id of the last event as it came, or none."
        raise Refused("field.value", f"{id[:40]!r} is not the id of a wake", hint, path="Last-Event-ID")
    return life, int(number)


class Box:
    """The newest wakes of one session. Its life ends, and another begins, when this coordinator leads no longer."""

    def __init__(self, source: Source, key: WorkerKey) -> None:
        self.life = secrets.token_hex(_LIFE_CHARS // 2)
        self.last = 0
        # How much of it somebody was given. Whoever does not say where it was goes on from here.
        self.given = 0
        self.ears: dict[Ear, None] = {}
        self.closing: asyncio.TimerHandle | None = None
        self._kept: deque[Wake] = deque(maxlen=KEPT_MAX)
        self._more = asyncio.Event()
        self._source = source
        self._key = key
        self._end = source.on_wake(key, self._hear)

    @property
    def here(self) -> Place:
        """After everything that was told so far."""
        return self.life, self.last

    @property
    def unread(self) -> Place:
        """After everything that somebody was given; if more was told than is kept, after what is not kept."""
        return self.life, max(self.given, self.last - len(self._kept))

    def id_of(self, number: int) -> str:
        """What a wake is called."""
        return f"{self.life}.{number}"

    def reaches(self, place: Place) -> bool:
        """Whether everything after a place is still here."""
        return place[0] == self.life and self.last - len(self._kept) <= place[1] <= self.last

    def after(self, number: int) -> list[tuple[int, Wake]]:
        """The wakes after one, which must be within reach."""
        found = list(islice(reversed(self._kept), self.last - number))
        return [(number + 1 + place, wake) for place, wake in enumerate(reversed(found))]

    @property
    def more(self) -> asyncio.Event:
        """Is set when there is something new to see."""
        return self._more

    def stir(self) -> None:
        """Let everybody who listens look again."""
        self._more.set()
        self._more = asyncio.Event()

    def close(self) -> None:
        """Hear no more."""
        self._end()

    def _hear(self, wake: Wake | None) -> None:
        if wake is None:
            # Somebody else leads, or we do again: what was told meanwhile is not known here.
            self.life = secrets.token_hex(_LIFE_CHARS // 2)
            self.last = self.given = 0
            self._kept.clear()
            self._end = self._source.on_wake(self._key, self._hear)
        else:
            self.last += 1
            self._kept.append(wake)
        self.stir()


class Ear:
    """Somebody who listens for a session, and is its sign of life meanwhile."""

    def __init__(self, box: Box, beat: BeatWorker, every_s: float) -> None:
        self.box = box
        self.beat = beat
        self.every_s = every_s
        self.beaten_at = asyncio.get_running_loop().time()
        # Why it may listen no longer.
        self.trouble: Refused | None = None

    async def next(self, place: Place) -> list[tuple[int, Wake]] | None:
        """What was told after a place, as soon as there is anything; None if some of it is not known any more."""
        while True:
            if self.trouble is not None:
                raise self.trouble
            more = self.box.more
            if not self.box.reaches(place):
                return None
            if place[1] < self.box.last:
                return self.box.after(place[1])
            await more.wait()

    async def walk(self, place: Place) -> AsyncIterator[tuple[str, Wake | None]]:
        """Wakes with their ids after a place, for ever; None in their stead where some may be missing."""
        while True:
            told = await self.next(place)
            if told is None:
                place = self.box.here
                yield self.box.id_of(place[1]), None
                continue
            for number, wake in told:
                self.box.given = max(self.box.given, number)
                yield f"{place[0]}.{number}", wake
            place = (place[0], told[-1][0])


class Boxes:
    """The boxes of all sessions that were here lately."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._boxes: dict[WorkerKey, Box] = {}
        self._ears: dict[Ear, None] = {}
        self._beating: asyncio.Task[None] | None = None
        self._sooner = asyncio.Event()

    def keep(self, key: WorkerKey) -> Box:
        """A session's box, kept for a while also if nobody listens."""
        box = self._boxes.get(key)
        if box is None:
            box = self._boxes[key] = Box(self._source, key)
        self._linger(key, box)
        return box

    def drop(self, key: WorkerKey) -> None:
        """The session has ended. Whoever still listens finds that out by itself."""
        box = self._boxes.get(key)
        if box is not None and not box.ears:
            self._close(key, box)

    @contextmanager
    def listen(self, key: WorkerKey, beat: BeatWorker, silence_ms: int) -> Generator[Ear]:
        """Listen for a session; `beat` says meanwhile that it lives."""
        box = self.keep(key)
        ear = Ear(box, beat, min(BEAT_S, silence_ms / 1000 / BEATS_PER_SILENCE))
        if box.closing is not None:
            box.closing.cancel()
        box.ears[ear] = self._ears[ear] = None
        self._begin()
        try:
            yield ear
        finally:
            del box.ears[ear], self._ears[ear]
            if not box.ears and self._boxes.get(key) is box:
                self._linger(key, box)
            if not self._ears and self._beating is not None:
                self._beating.cancel()
                self._beating = None

    def _linger(self, key: WorkerKey, box: Box) -> None:
        if box.closing is not None:
            box.closing.cancel()
        if not box.ears:
            box.closing = asyncio.get_running_loop().call_later(LINGER_S, self._close, key, box)

    def _close(self, key: WorkerKey, box: Box) -> None:
        if box.closing is not None:
            box.closing.cancel()
        box.close()
        self._boxes.pop(key, None)

    # Signs of life.

    def _begin(self) -> None:
        self._sooner.set()
        if self._beating is None:
            self._beating = asyncio.get_running_loop().create_task(self._beat(), name="rota-session-beats")

    async def _beat(self) -> None:
        """Everybody who listens is heard of, as many at once as are due, so that they share a turn."""
        loop = asyncio.get_running_loop()
        while True:
            every_s = min(ear.every_s for ear in self._ears)
            self._sooner.clear()
            try:
                async with asyncio.timeout(every_s):
                    # Whoever joins may have to be heard of more often than the others.
                    while not any(ear.every_s < every_s for ear in self._ears):
                        await self._sooner.wait()
                        self._sooner.clear()
            except TimeoutError:
                pass
            now = loop.time()
            due = [ear for ear in self._ears if now - ear.beaten_at >= ear.every_s - every_s / 2]
            for some in range(0, len(due), BEATS_AT_ONCE):
                await self._beat_all(due[some : some + BEATS_AT_ONCE], now)

    async def _beat_all(self, due: list[Ear], now: float) -> None:
        try:
            answers = await self._source.ask_all([ear.beat for ear in due])
        except Unavailable:
            # Nobody can be told just now; whoever leads next gives everybody time.
            return
        except Exception as error:
            # An error of ours must not end the beats of all, nor be passed over: they are tried again.
            context = {"message": "sessions could not be heard of", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            return
        for ear, (answer, _) in zip(due, answers, strict=True):
            ear.beaten_at = now
            if isinstance(answer, Refused):
                ear.trouble = answer
                ear.box.stir()
