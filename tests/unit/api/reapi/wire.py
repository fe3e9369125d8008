"""A coordinator at the other end of a front end's line, as far as a backlog needs one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import msgpack

from rota.client.watching import Watching
from rota.core import changes as ch
from rota.core.commands import CancelRun, SubmitRun
from rota.core.errors import Refused
from rota.core.questions import RunsPage
from rota.core.records import Story


class Wire:
    """A line to a coordinator that knows runs by what was submitted, and says what a test wants it to say."""

    tenant = "t"

    def __init__(self) -> None:
        self.runs: dict[str, SubmitRun] = {}
        self.cancelled: list[CancelRun] = []
        self.watching: Watching | None = None
        self.is_lost = False
        # Before a submission is answered.
        self.hold: Callable[[], Awaitable[None]] | None = None
        # After it was: what becomes of its run.
        self.outcome: tuple[ch.Change, ...] = ()

    async def connect(self) -> "Wire":
        self.is_lost = False
        return self

    def watch(self, run: str) -> Watching:
        assert run == "", "everything is watched at once"
        self.watching = Watching()
        return self.watching

    def lose(self) -> None:
        self.is_lost = True
        assert self.watching is not None
        self.watching.lose()

    async def ask(self, request: Any) -> Any:
        match request:
            case SubmitRun():
                if self.hold is not None:
                    await self.hold()
                self.runs[request.run] = request
                if self.outcome:
                    asyncio.get_running_loop().call_soon(self.say, request.run, *self.outcome)
                return request.run
            case CancelRun():
                self.cancelled.append(request)
                return request.run
            case _:
                pass
        name = type(request).__name__
        if name == "ListRuns":
            return RunsPage(())
        if name == "ListQueues":
            return ()
        raise Refused("run.unknown", f"nothing is known of {request.run}")

    def say(self, run: str, *changes: ch.Change) -> None:
        assert self.watching is not None
        self.watching.tell(Story("t", run, 1, 0, 1, msgpack.encode(list(changes))))

    async def close(self) -> None:
        """Nothing is open."""
