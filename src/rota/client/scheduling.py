"""Work that is claimed, as a whole: pausing and draining it, what waits, who is there to claim it."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable

from msgspec import Struct

from rota.client.listing import Listing
from rota.client.sessions import AgentSession
from rota.client.watching import Interrupted, Watching
from rota.core.backlog import BacklogLine, GetScheduler, ListBacklog, SchedulerView
from rota.core.commands import PauseScheduler
from rota.core.graph import check_number
from rota.core.ids import CommandId
from rota.core.questions import ListWorkers, WorkerView
from rota.wire.sessions import RegisterSession, SessionLine, session_line

DRAIN_S = 60.0
DRAIN_S_MAX = 24 * 3_600


class DrainStep(Struct, frozen=True, kw_only=True):
    """How far draining has come: how many leases are left. `drained`: none; `timed_out`: nobody waits any longer."""

    held: int
    drained: bool
    timed_out: bool


def scope_of(workspace: str) -> str:
    """What is paused: one workspace, or everything."""
    return f"workspace={workspace}" if workspace else ""


class Scheduling(Listing):
    """The part of a client that is about all items, and about sessions."""

    async def scheduler(self) -> SchedulerView:
        """How work that is claimed stands: pauses, and how much of it waits, is held or needs attention."""
        return await self.ask(GetScheduler(tenant=self.line.tenant))

    async def backlog(
        self, *, workspace: str = "", include_paused: bool = True, limit: int = 50
    ) -> tuple[BacklogLine, ...]:
        """What waits to be claimed, in the order in which it would be, and what keeps it from being claimed."""
        return await self.ask(
            ListBacklog(tenant=self.line.tenant, scope=scope_of(workspace), include_paused=include_paused, limit=limit)
        )

    async def pause_scheduler(self, *, workspace: str = "", reason: str = "", key: str = "") -> None:
        """Let nobody claim or be woken, in one workspace or anywhere. Whoever has something goes on."""
        await self._pause(workspace, reason, key, paused=True)

    async def resume_scheduler(self, *, workspace: str = "", key: str = "") -> None:
        """Let claims and wakes go on."""
        await self._pause(workspace, "", key, paused=False)

    async def _pause(self, workspace: str, reason: str, key: str, *, paused: bool) -> None:
        await self.ask(
            PauseScheduler(
                tenant=self.line.tenant,
                command_id=CommandId(key or f"scheduler-{secrets.token_hex(8)}"),
                scope=scope_of(workspace),
                paused=paused,
                reason=reason,
            )
        )

    async def drain(self, *, timeout_s: float = DRAIN_S, workspace: str = "", reason: str = "") -> DrainStep:
        """Pause, and wait until nobody holds anything, or for so long. What was paused stays so."""
        steps = [each async for each in self.drain_steps(timeout_s=timeout_s, workspace=workspace, reason=reason)]
        return steps[-1]

    async def drain_steps(
        self, *, timeout_s: float = DRAIN_S, workspace: str = "", reason: str = "", key: str = ""
    ) -> AsyncIterator[DrainStep]:
        """The same step by step: how many are left, whenever that changes, until none are or the time is over.

        Whoever stops listening leaves everything as it is: paused, with whatever is held going on.
        """
        check_number(round(timeout_s), 0, DRAIN_S_MAX, "timeout_s")
        await self.pause_scheduler(workspace=workspace, reason=reason, key=key)
        until = asyncio.get_running_loop().time() + timeout_s
        watching = self.line.watch("")
        told = -1
        try:
            while True:
                held = await self._held(workspace)
                left = until - asyncio.get_running_loop().time()
                if held != told or not held or left <= 0:
                    told = held
                    yield DrainStep(held=held, drained=not held, timed_out=bool(held) and left <= 0)
                if not held or left <= 0:
                    return
                if not await _next(watching, left):
                    watching.close()
                    watching = self.line.watch("")
        finally:
            watching.close()

    async def _held(self, workspace: str) -> int:
        if not workspace:
            return (await self.scheduler()).held
        return sum(len(line.held) for line in await self.sessions() if line.workspace == workspace)

    async def sessions(self) -> list[SessionLine]:
        """The agent sessions that are registered, in the order in which they came."""
        found: tuple[WorkerView, ...] = await self.ask(ListWorkers(tenant=self.line.tenant))
        lines = [session_line(view) for view in found if view.capacity.pull]
        return sorted(lines, key=lambda line: (line.created_at, line.session))

    def agent_session(
        self,
        session: str = "",
        *,
        agent: str = "",
        workspace: str = "",
        channel: str = "",
        session_type: str = "user",
        capabilities: Iterable[str] = (),
        limit: int = 1,
        silence_ms: int = 0,
        incarnation: str = "",
    ) -> AgentSession:
        """A session that claims work; `async with` registers it and ends it.

        `limit` is how many leases it may hold at once, `silence_ms` after how long without a sign of life it counts
        as dead. Its id is made up unless it has one; the same id again is the same session.
        """
        request = RegisterSession(
            tenant=self.line.tenant,
            session=session or f"session-{secrets.token_hex(8)}",
            incarnation=incarnation or secrets.token_hex(8),
            agent=agent,
            workspace=workspace,
            channel=channel,
            session_type=session_type,
            capabilities=tuple(capabilities),
            limit=limit,
            silence_ms=silence_ms,
        )
        return AgentSession(self.ask, request)


async def _next(watching: Watching, left_s: float) -> bool:
    """Wait until something happened, or for so long; False if that is not told any more."""
    try:
        async with asyncio.timeout(left_s):
            await anext(watching)
    except TimeoutError:
        return True
    except (Interrupted, StopAsyncIteration):
        return False
    return True
