"""An agent's session: it registers, is told of work, claims it, and says how it went.

The scheduler never claims for a session. While it is open a session gives a sign of life by itself, whatever else its
program does; a claim's token stays inside its lease.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from rota.core.errors import Refused, Unavailable
from rota.core.ids import Fence, Millis
from rota.core.model import Mood
from rota.wire import sessions as ss
from rota.wire.items import PRIORITY_CLASSES, RESULT_BYTES_MAX, Priority, open_plain, pack_plain

WAKE_WAIT_MS = 30_000
# The reason of a wake that names no item: some may have been missed, so look for yourself.
RESET = "reset"

Ask = Callable[[Any], Awaitable[Any]]


def priority_of(name: str) -> Priority:
    """A priority by its name."""
    try:
        return Priority(name)
    except ValueError:
        known = ", ".join(Priority)
        raise Refused("field.value", f"{name!r} is no priority", f"Use one of {known}.", path="priority") from None


class WorkClaim:
    """An item that a session holds until `expires_at`."""

    def __init__(self, session: "AgentSession", lease: ss.WorkLease) -> None:
        self._session = session
        self._lease = lease
        self.expires_at: Millis = lease.expires_at

    def __repr__(self) -> str:
        # Not the token: what is printed is kept.
        return f"WorkClaim({self.item!r}, fence={self.fence})"

    @property
    def item(self) -> str:
        """Which item it is."""
        return self._lease.item

    @property
    def title(self) -> str:
        """What is to be done."""
        return self._lease.title

    @property
    def payload(self) -> Any:
        """What was sent along."""
        return open_plain(self._lease.payload)

    @property
    def labels(self) -> dict[str, str]:
        """What was said of it."""
        return dict(self._lease.labels)

    @property
    def fence(self) -> Fence:
        """The number of the lease; it only ever grows. Guard what you write elsewhere with it."""
        return self._lease.fence

    @property
    def token(self) -> str:
        """The secret that shows whose lease it is. Nobody but the holder should have it."""
        return self._lease.token

    @property
    def attempt(self) -> int:
        """Which try this is."""
        return self._lease.attempt

    @property
    def deliveries(self) -> int:
        """How often somebody had it before and was lost."""
        return self._lease.deliveries

    @property
    def deadline_at(self) -> Millis:
        """When the item fails if it has not ended; 0: never."""
        return self._lease.deadline_at

    async def renew(self, lease_s: float = 0, *, note: str = "") -> Millis:
        """Keep it for so long from now on, or for as long as it was claimed for; the answer is until when.

        `note` says how far it is, for whoever looks at it.
        """
        lease_ms = round(lease_s * 1000) if lease_s else self._lease.lease_ms
        request = ss.RenewWork(**self._session.named, fence=self.fence, token=self.token, lease_ms=lease_ms, note=note)
        self.expires_at = await self._session.ask(request)
        return self.expires_at

    async def complete(self, result: Any = None) -> None:
        """It is done. A result is plain data, at most 64 KiB of it."""
        await self._finish(ss.Ending.COMPLETE, result=pack_plain(result, "result", RESULT_BYTES_MAX))

    async def fail(self, error: str) -> None:
        """It went wrong; it is tried again if it has attempts left."""
        await self._finish(ss.Ending.FAIL, error=error)

    async def release(self) -> None:
        """Give it back unspent, for others to claim."""
        await self._finish(ss.Ending.RELEASE)

    async def _finish(self, ending: ss.Ending, *, result: bytes = b"", error: str = "") -> None:
        request = ss.FinishWork(
            **self._session.named,
            item=self.item,
            fence=self.fence,
            token=self.token,
            ending=ending,
            result=result,
            error=error,
        )
        await self._session.ask(request)


class AgentSession:
    """One session. Ending it returns at once what it holds; so does silence, after a while."""

    def __init__(self, ask: Ask, request: ss.RegisterSession) -> None:
        self.ask = ask
        self._request = request
        self._mood: Mood | None = None
        self._beating: asyncio.Task[None] | None = None
        # Why it is no session any more, if somebody else has ended it.
        self.lost: Refused | None = None

    @property
    def id(self) -> str:
        """Its id."""
        return self._request.session

    @property
    def named(self) -> dict[str, str]:
        """What every request of it says."""
        request = self._request
        return {"tenant": request.tenant, "session": request.session, "incarnation": request.life}

    async def register(self) -> ss.SessionView:
        """Join, or describe it anew. From then on it gives a sign of life by itself."""
        view: ss.SessionView = await self.ask(self._request)
        self.lost = None
        await self._hush()
        self._beating = asyncio.get_running_loop().create_task(self._beat(view.beat_ms / 1000), name="rota-beat")
        return view

    async def beat(self, mood: str = "") -> tuple[Fence, ...]:
        """Say that it is alive, and perhaps `idle`, `prompting` or `stopping`; the answer is what it holds."""
        if mood:
            if mood not in list(Mood):
                hint = f"Use one of {', '.join(Mood)}."
                raise Refused("field.value", f"a session cannot be {mood!r}", hint, path="mood")
            self._mood = Mood(mood)
        return await self.ask(ss.BeatSession(**self.named, mood=self._mood))

    async def claim(
        self,
        *,
        wait_s: float = 0,
        limit: int = 1,
        lease_s: float = ss.LEASE_MS / 1000,
        priority: str = Priority.LOW,
        channel: str = "",
        item: str = "",
        key: str = "",
    ) -> "list[WorkClaim]":
        """The best work that it may have, at most `limit` of it; nothing if there is none within `wait_s`.

        `priority` is the least urgent that it wants; `item` is the only one. The same `key` again is answered with the
        same leases, under new tokens.
        """
        request = ss.ClaimWork(
            **self.named,
            command_id=key or f"claim-{secrets.token_hex(12)}",
            limit=limit,
            lease_ms=round(lease_s * 1000),
            least=PRIORITY_CLASSES[priority_of(priority)],
            channel=channel,
            item=item,
            wait_ms=round(wait_s * 1000),
        )
        leases: tuple[ss.WorkLease, ...] = await self.ask(request)
        return [WorkClaim(self, lease) for lease in leases]

    async def renew_claim(self, item: str, fence: Fence, token: str, lease_s: float = 0) -> Millis:
        """Keep a claim that another program made for this session."""
        return await self._taken(item, fence, token).renew(lease_s)

    async def complete_claim(self, item: str, fence: Fence, token: str, result: Any = None) -> None:
        """Complete a claim that another program made for this session."""
        await self._taken(item, fence, token).complete(result)

    def _taken(self, item: str, fence: Fence, token: str) -> WorkClaim:
        lease = ss.WorkLease(
            item=item,
            title="",
            payload=b"",
            labels=(),
            fence=fence,
            token=token,
            attempt=0,
            deliveries=0,
            lease_ms=ss.LEASE_MS,
            expires_at=0,
            deadline_at=0,
        )
        return WorkClaim(self, lease)

    async def wakes(self) -> AsyncIterator[ss.WakeView]:
        """What it is told, for as long as it is a session. A wake is advice: claim, and see what there is.

        One without an item (`reset`) says that others may have been missed.
        """
        while True:
            try:
                wake: ss.WakeView | None = await self.ask(ss.AwaitWake(**self.named, wait_ms=WAKE_WAIT_MS))
            except Unavailable as unavailable:
                await asyncio.sleep(unavailable.retry_after_ms / 1000)
                yield ss.WakeView(item="", title="", labels=(), reason=RESET, at=0)
                continue
            if wake is not None:
                yield wake

    async def end(self) -> None:
        """It is done; what it holds is returned at once. It may be called twice."""
        await self._hush()
        await self.ask(ss.EndSession(**self.named))

    async def __aenter__(self) -> Self:
        await self.register()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._hush()
        if self.lost is None:
            await self.end()

    async def _beat(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.beat()
            except Refused as refused:
                self.lost = refused
                return
            except Unavailable:
                # Nobody can be told just now; whoever leads next gives everybody time.
                continue

    async def _hush(self) -> None:
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
