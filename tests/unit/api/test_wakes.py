"""Boxes of wakes: what is kept, what is a gap, who is heard of."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rota.api import wakes
from rota.api.wakes import KEPT_MAX, Boxes, read_place
from rota.control.events import Wake
from rota.core.commands import BeatWorker
from rota.core.errors import Refused
from rota.core.ids import WorkerKey

KEY = ("t", "s")


class Source:
    """Tells whoever listens."""

    def __init__(self) -> None:
        self.wakers: dict[WorkerKey, list[Callable[[Wake | None], None]]] = {}
        self.beats = 0
        self.heard = asyncio.Event()
        self.trouble: Refused | None = None

    def on_wake(self, worker: WorkerKey, waker: Callable[[Wake | None], None]) -> Callable[[], None]:
        self.wakers.setdefault(worker, []).append(waker)
        return lambda: self.wakers[worker].remove(waker)

    async def ask_all(self, requests: Sequence[Any]) -> list[tuple[object, object]]:
        self.beats += len(requests)
        self.heard.set()
        return [(self.trouble or "", None) for _ in requests]

    def wake(self, run: str) -> None:
        for waker in self.wakers.get(KEY, []):
            waker(Wake(*KEY, run, (), 0))

    def lose(self) -> None:
        lost, self.wakers = self.wakers, {}
        for group in lost.values():
            for waker in group:
                waker(None)


ALIVE = BeatWorker(tenant="t", worker="s", incarnation="s")


def runs(told: Any) -> list[str]:
    return [wake.run for _, wake in told]


def test_wakes_are_kept_in_order_and_read_from_any_place() -> None:
    async def scene() -> None:
        source = Source()
        boxes = Boxes(source)
        box = boxes.keep(KEY)
        start = box.here
        for name in "abc":
            source.wake(name)
        with boxes.listen(KEY, ALIVE, 30_000) as ear:
            assert runs(await ear.next(start)) == ["a", "b", "c"]
            assert runs(await ear.next((start[0], 2))) == ["c"]
            later = asyncio.ensure_future(ear.next(box.here))
            await asyncio.sleep(0)
            source.wake("d")
            assert runs(await later) == ["d"]

    asyncio.run(scene())


def test_only_so_many_are_kept_and_what_is_missing_is_said() -> None:
    async def scene() -> None:
        source = Source()
        boxes = Boxes(source)
        box = boxes.keep(KEY)
        start = box.here
        for number in range(KEPT_MAX + 1):
            source.wake(str(number))
        with boxes.listen(KEY, ALIVE, 30_000) as ear:
            assert await ear.next(start) is None
            assert len(await ear.next((start[0], 1)) or ()) == KEPT_MAX
            assert await ear.next((start[0], box.last + 1)) is None

    asyncio.run(scene())


def test_another_reign_is_another_life_and_is_heard_again() -> None:
    async def scene() -> None:
        source = Source()
        boxes = Boxes(source)
        place = boxes.keep(KEY).here
        with boxes.listen(KEY, ALIVE, 30_000) as ear:
            waiting = asyncio.ensure_future(ear.next(place))
            await asyncio.sleep(0)
            source.lose()
            assert await waiting is None
            here = ear.box.here
            source.wake("again")
            assert runs(await ear.next(here)) == ["again"]

    asyncio.run(scene())


def test_whoever_listens_is_heard_of_and_is_told_when_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakes, "BEAT_S", 0.001)

    async def scene() -> None:
        source = Source()
        boxes = Boxes(source)
        with boxes.listen(KEY, ALIVE, 30_000) as ear:
            await source.heard.wait()
            source.trouble = Refused("worker.unknown", "gone")
            with pytest.raises(Refused, match="gone"):
                await ear.next(ear.box.here)

    asyncio.run(scene())


def test_an_error_of_ours_does_not_end_the_beats_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakes, "BEAT_S", 0.001)

    class Faulty(Source):
        """Meets an error the first time."""

        async def ask_all(self, requests: Sequence[Any]) -> list[tuple[object, object]]:
            if not self.beats:
                self.beats = 1
                raise RuntimeError("ours")
            return await super().ask_all(requests)

    async def scene() -> list[str]:
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))
        source = Faulty()
        with Boxes(source).listen(KEY, ALIVE, 30_000):
            await source.heard.wait()
        return told

    assert asyncio.run(scene()) == ["ours"]


def test_a_box_that_nobody_wants_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakes, "LINGER_S", 0.0)

    async def scene() -> None:
        source = Source()
        boxes = Boxes(source)
        with boxes.listen(KEY, ALIVE, 30_000):
            assert len(source.wakers[KEY]) == 1
        while source.wakers[KEY]:
            await asyncio.sleep(0)

    asyncio.run(scene())


@pytest.mark.parametrize("id", ["", ".", "1", "0123abcd", "0123abcg.1", "0123abcd.x", "0123abcd.+1", "0123abcd.１"])
def test_what_cannot_be_a_place_is_refused(id: str) -> None:
    with pytest.raises(Refused, match=r"field\.value"):
        read_place(id)


def test_a_place_is_read_as_it_was_written() -> None:
    assert read_place("0123abcd.17") == ("0123abcd", 17)
