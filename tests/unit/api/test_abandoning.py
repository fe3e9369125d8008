"""A run that is for whoever waits goes when they do, unless they come back."""

import asyncio

from rota.api.abandoning import REASON, Abandoned
from rota.core.commands import CancelRun
from rota.core.errors import Refused

KEY = ("t", "r")


class Desk:
    """Notes what is cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[CancelRun] = []
        self.came = asyncio.Event()

    async def ask(self, command: CancelRun) -> None:
        self.cancelled.append(command)
        self.came.set()
        raise Refused("run.ended", "it has ended meanwhile")


async def wait(abandoned: Abandoned, patience_ms: int, ends: asyncio.Event) -> None:
    with abandoned.bound(KEY, patience_ms, "somebody"):
        await ends.wait()


def begin(abandoned: Abandoned, patience_ms: int) -> tuple["asyncio.Task[None]", asyncio.Event]:
    ends = asyncio.Event()
    return asyncio.create_task(wait(abandoned, patience_ms, ends)), ends


async def leave(task: "asyncio.Task[None]") -> None:
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_it_is_cancelled_when_the_last_one_is_gone() -> None:
    async def play() -> None:
        desk = Desk()
        abandoned = Abandoned(desk.ask)
        one, _ = begin(abandoned, 1)
        two, _ = begin(abandoned, 1)
        await leave(one)
        assert not abandoned._gone
        await leave(two)
        await asyncio.wait_for(desk.came.wait(), 10)
        (command,) = desk.cancelled
        assert (command.tenant, command.run, command.reason, command.actor) == (*KEY, REASON, "somebody")

    asyncio.run(play())


def test_who_comes_back_in_time_finds_it_running() -> None:
    async def play() -> None:
        desk = Desk()
        abandoned = Abandoned(desk.ask)
        one, _ = begin(abandoned, 60_000)
        await leave(one)
        assert list(abandoned._gone) == [KEY]
        again, ends = begin(abandoned, 60_000)
        await asyncio.sleep(0)
        assert not abandoned._gone
        ends.set()
        await again
        assert not abandoned._gone
        assert desk.cancelled == []

    asyncio.run(play())
