"""The tools of an MCP server. Their docstrings are what a model reads to decide which to call, and when.

Each answers with plain data. A refusal keeps its code, its reason and what to do next.
"""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from rota.api.mcp.holding import OVER, Holding
from rota.client.items import Items
from rota.client.sessions import WorkClaim
from rota.core.bounds import LEASE_MS_MAX
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Millis
from rota.core.reasons import Reason
from rota.wire.items import ATTEMPTS, PRIORITY_CLASSES
from rota.wire.sessions import LEASE_MS, WAIT_MS_MAX

P = ParamSpec("P")
T = TypeVar("T")

BACKLOG = 20
_PRIORITIES = {of_class: priority.value for priority, of_class in PRIORITY_CLASSES.items()}
NO_WORK = "There is nothing that this session may claim. Wait with wait_s, or end your turn; why tells about one item."

ItemId = Annotated[str, Field(description="The id of an item, as claim_work gave it.")]
Minutes = Annotated[float, Field(description="For how long the lease is to last from now on.", gt=0)]


def told(tool: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Trouble as a model reads it: the code, what happened and what to do next."""

    @wraps(tool)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await tool(*args, **kwargs)
        except (Refused, Unavailable) as trouble:
            raise ToolError(str(trouble)) from None

    return call


class Tools:
    """What an agent may do."""

    def __init__(self, client: Items, holding: Holding, workspace: str, clock: Callable[[], Millis]) -> None:
        """`workspace` is where the session is, and so where its own submissions go unless it says otherwise."""
        self._client = client
        self._holding = holding
        self._workspace = workspace
        self._clock = clock

    @property
    def all(self) -> tuple[Callable[..., Awaitable[dict[str, Any]]], ...]:
        """Every tool, in the order in which an agent would use them."""
        return (
            self.claim_work,
            self.report_progress,
            self.renew_work,
            self.complete_work,
            self.fail_work,
            self.release_work,
            self.my_work,
            self.list_backlog,
            self.why,
            self.submit_work,
        )

    @told
    async def claim_work(
        self,
        wait_s: Annotated[
            float, Field(description="How long to wait for work if there is none now.", ge=0, le=WAIT_MS_MAX / 1000)
        ] = 0,
        item: Annotated[str, Field(description="Only this item, by its id; empty for the best there is.")] = "",
        lease_minutes: Minutes = LEASE_MS / 60_000,
        least_priority: Annotated[str, Field(description="low, medium, high or urgent: nothing below it.")] = "low",
        channel: Annotated[str, Field(description="Only work of this channel; empty for any that you may have.")] = "",
    ) -> dict[str, Any]:
        """Claim the best piece of work that you may have, and become the only one who works on it.

        Call this before you begin anything. The answer has the item's id, title and payload: that is your task. If
        `item` is null there is no work for you now. The item is yours until the lease ends; call report_progress or
        renew_work before that, and complete_work, fail_work or release_work when you are done.
        lease.held: you hold as much as you may; finish that first. worker.draining: you are being stopped; take
        nothing new. fence is a number that only grows: put it on what you write elsewhere, so that late writes of a
        former holder can be told apart.
        """
        found = await self._holding.claim(
            wait_s=wait_s,
            lease_s=min(lease_minutes * 60, LEASE_MS_MAX / 1000),
            priority=least_priority,
            channel=channel,
            item=item,
        )
        return {"item": None, "message": NO_WORK} if found is None else self._shown(found)

    @told
    async def report_progress(
        self, item: ItemId, note: Annotated[str, Field(description="One or two sentences for whoever looks.")]
    ) -> dict[str, Any]:
        """Say how far you are with an item you hold. It renews the lease, too.

        Call this every few minutes during long work, and whenever something changes that people should know. The note
        replaces the one before. If this is refused with a lease.* code the item is not yours any more: stop working on
        it and discard what you have.
        """
        claim = self._holding.find(item)
        await self._keeping(claim, lambda: claim.renew(note=note))
        return self._kept(claim)

    @told
    async def renew_work(
        self,
        item: ItemId,
        minutes: Annotated[float, Field(description="From now on; 0: as long as it was claimed for.", ge=0)] = 0,
    ) -> dict[str, Any]:
        """Keep an item that you hold for longer, without saying anything about it.

        It cannot be kept for longer at a time than it was claimed for. If this is refused with a lease.* code the item
        is not yours any more: stop working on it and discard what you have.
        """
        claim = self._holding.find(item)
        await self._keeping(claim, lambda: claim.renew(minutes * 60))
        return self._kept(claim)

    @told
    async def complete_work(
        self,
        item: ItemId,
        result: Annotated[Any, Field(description="What came of it, as JSON; at most 64 KiB.")] = None,
    ) -> dict[str, Any]:
        """Say that an item which you hold is done, with what came of it.

        Call this once, when the work is really done: others may wait for it. The result is kept with the item. If this
        is refused with a lease.* code your work does not count, and somebody else may be doing it: discard it.
        """
        claim = self._holding.find(item)
        await self._keeping(claim, lambda: claim.complete(result), is_last=True)
        return {"item": item, "state": "completed"}

    @told
    async def fail_work(
        self, item: ItemId, error: Annotated[str, Field(description="What went wrong, for whoever tries next.")]
    ) -> dict[str, Any]:
        """Say that an item which you hold went wrong. It costs an attempt; it is tried again if it has some left.

        Call this when the work cannot be done as it is. If only you cannot do it, call release_work instead.
        """
        claim = self._holding.find(item)
        await self._keeping(claim, lambda: claim.fail(error), is_last=True)
        return {"item": item, "state": "failed"}

    @told
    async def release_work(self, item: ItemId) -> dict[str, Any]:
        """Give an item that you hold back, for others to claim. It costs no attempt.

        Call this when you have to stop, or are the wrong one for it.
        """
        claim = self._holding.find(item)
        await self._keeping(claim, claim.release, is_last=True)
        return {"item": item, "state": "released"}

    @told
    async def my_work(self) -> dict[str, Any]:
        """List the items that you hold, and for how long. Call this when you have lost track of what you were doing."""
        return {"session": self._holding.session.id, "items": [self._shown(one) for one in await self._holding.held()]}

    @told
    async def list_backlog(
        self,
        workspace: Annotated[str, Field(description="Only this workspace; empty for all that you may see.")] = "",
        limit: Annotated[int, Field(description="At most so many items.", ge=1, le=100)] = BACKLOG,
    ) -> dict[str, Any]:
        """List the work that waits to be claimed, the most urgent first, with what keeps each item from being claimed.

        Call this to see what there is. Seeing an item does not make it yours, and it may need other capabilities than
        you have: claim_work finds what you may have.
        """
        lines = await self._client.backlog(workspace=workspace, limit=limit)
        return {
            "items": [
                {
                    "item": line.run,
                    "title": dict(line.labels).get("title", ""),
                    "priority": _PRIORITIES[line.priority],
                    "paused": line.paused,
                    "waiting_for": _reasons(line.reasons),
                }
                for line in lines
            ]
        }

    @told
    async def why(self, item: ItemId) -> dict[str, Any]:
        """Say how any item stands, and why nobody works on it if nobody does.

        Call this when work that you wait for does not come to its end. Each reason has a stable code; for example
        worker.none_match says that no session that is registered could ever do it, and attention.parked that a person
        has to decide. run.unknown: there is no item with that id.
        """
        one = self._client.item(item)
        view = await one.status()
        return {
            "item": item,
            "title": view.title,
            "state": view.state,
            "session": view.session,
            "note": view.note,
            "error": view.error,
            "result": view.result,
            "reasons": _reasons(await one.why()),
        }

    @told
    async def submit_work(
        self,
        title: Annotated[str, Field(description="One line that says what is to be done.")],
        payload: Annotated[Any, Field(description="All that is needed to do it, as JSON; at most 64 KiB.")] = None,
        requires: Annotated[list[str], Field(description="Capabilities that whoever does it must have.")] = [],  # noqa: B006 - only read, and a list is what its schema needs
        prefers: Annotated[list[str], Field(description="Capabilities that would be good to have.")] = [],  # noqa: B006 - likewise
        priority: Annotated[str, Field(description="low, medium, high or urgent.")] = "medium",
        workspace: Annotated[str | None, Field(description="Where it belongs; your own unless you name one.")] = None,
        channel: Annotated[str, Field(description="Only for sessions of this channel; empty for any.")] = "",
        depends_on: Annotated[list[str], Field(description="Items that have to succeed first.")] = [],  # noqa: B006 - likewise
        max_attempts: Annotated[int, Field(description="How often it may be tried.", ge=1, le=10)] = ATTEMPTS,
        key: Annotated[str, Field(description="The same key again makes no second item; use one if you retry.")] = "",
    ) -> dict[str, Any]:
        """Make a piece of work for another session, or for later. You do not do it by submitting it.

        Call this to hand over something that you find on the way, or that takes other capabilities than yours.
        auth.role: your token may not submit work; tell a person what should be done instead.
        """
        made = await self._client.submit_work(
            title,
            payload,
            requires=requires,
            prefers=prefers,
            priority=priority,
            workspace=self._workspace if workspace is None else workspace,
            channel=channel,
            depends_on=depends_on,
            max_attempts=max_attempts,
            key=key,
        )
        return {"item": made.id}

    async def _keeping(self, claim: WorkClaim, report: Callable[[], Awaitable[Any]], *, is_last: bool = False) -> None:
        """Report on a claim; one that is over is forgotten."""
        try:
            await report()
        except Refused as refused:
            if refused.code in OVER:
                self._holding.forget(claim.item)
            raise
        if is_last:
            self._holding.forget(claim.item)

    def _shown(self, claim: WorkClaim) -> dict[str, Any]:
        """An item that is held. Not its token."""
        return {
            "item": claim.item,
            "title": claim.title,
            "payload": claim.payload,
            "labels": claim.labels,
            "attempt": claim.attempt,
            "deliveries": claim.deliveries,
            # Larger than what some readers of JSON keep exactly.
            "fence": str(claim.fence),
            **self._kept(claim),
        }

    def _kept(self, claim: WorkClaim) -> dict[str, Any]:
        return {"item": claim.item, "lease_ends_in_s": max(0, (claim.expires_at - self._clock()) // 1000)}


def _reasons(reasons: tuple[Reason, ...]) -> list[dict[str, str]]:
    return [{"code": reason.code, "text": reason.text} for reason in reasons]
