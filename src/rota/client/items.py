"""Work items: making them, seeing them, and what a person does about one or several."""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from msgspec import Struct

from rota.client.given import new_id
from rota.client.line import Line
from rota.client.scheduling import Scheduling
from rota.client.sessions import priority_of
from rota.core import commands as cm
from rota.core.errors import Refused, Unavailable
from rota.core.graph import check_number
from rota.core.history import GetGraph
from rota.core.ids import GraphDigest
from rota.core.model import Graph, TaskSpec
from rota.core.questions import RunView, TaskView
from rota.core.reasons import Reason
from rota.wire.instants import When, instant
from rota.wire.items import (
    ATTEMPTS,
    BULK_MAX,
    WORK,
    ApprovalPolicy,
    BulkOutcome,
    ItemView,
    ResolveWork,
    SubmitWork,
    WorkItem,
    pack_plain,
    view_item,
)

SPECS_KNOWN_MAX = 1_000
BULK_ACTIONS = ("approve", "reject", "cancel", "release", "fail", "retry", "requeue", "pause", "resume")


class ItemRun(Protocol):
    """What an item needs of its run."""

    async def status(self) -> RunView:
        """How it stands."""
        ...

    async def wait(self, timeout_s: float | None = None) -> RunView:
        """Wait until it has ended."""
        ...

    async def result(self, task: str = "", timeout_s: float | None = None) -> Any:
        """What its task returned."""
        ...

    async def tasks(self, *names: str, states: Iterable[str] = ()) -> list[TaskView]:
        """Its tasks."""
        ...

    async def why(self, task: str) -> tuple[Reason, ...]:
        """Why a task waits."""
        ...

    async def story(self, task: str = "") -> list[str]:
        """What happened."""
        ...


class ItemsPage(Struct, frozen=True):
    """Some items, and from where to go on; empty at the end."""

    items: list[ItemView]
    next: str = ""


class Items(Scheduling, ABC):
    """The part of a client that is about work items."""

    def __init__(self, line: Line, patience_s: float | None = None) -> None:
        super().__init__(line, patience_s)
        self._specs: dict[str, TaskSpec] = {}

    @abstractmethod
    def run(self, id: str) -> ItemRun:
        """A run by its id."""

    async def submit_work(
        self,
        title: str,
        payload: Any = None,
        *,
        requires: Iterable[str] = (),
        prefers: Iterable[str] = (),
        priority: str = "medium",
        workspace: str = "",
        channel: str = "",
        owner: str = "",
        depends_on: Iterable[str] = (),
        approval: str = "none",
        max_attempts: int = ATTEMPTS,
        deadline: When | None = None,
        key: str = "",
        parent: str = "",
        labels: dict[str, str] | None = None,
    ) -> "Item":
        """Make a work item for agent sessions to claim. It is durable when this returns.

        `requires` and `prefers` are capabilities; `owner` is `pool:AGENT` or `session:ID`; `approval="manual"` has it
        wait for a person; `depends_on` are items that have to succeed first. The same `key` again makes no second one.
        """
        work = WorkItem(
            title=title,
            payload=pack_plain(payload, "payload"),
            requires=tuple(requires),
            prefers=tuple(prefers),
            priority=priority_of(priority),
            workspace=workspace,
            channel=channel,
            owner=owner,
            depends_on=tuple(depends_on),
            approval=_approval(approval),
            max_attempts=max_attempts,
            deadline_at=0 if deadline is None else instant(deadline, "UTC", "deadline"),
            parent=parent,
            labels=tuple((labels or {}).items()),
        )
        item = new_id(WORK, key)
        command_id = key or f"submit-{item}-{secrets.token_hex(4)}"
        made = await self.ask(SubmitWork(tenant=self.line.tenant, command_id=command_id, item=item, work=work))
        return Item(self, made)

    def item(self, id: str) -> "Item":
        """An item by its id, live or ended."""
        return Item(self, id)

    async def items(
        self, *, workspace: str = "", states: Iterable[str] = (), limit: int = 100, history: bool = True
    ) -> list[ItemView]:
        """Items, the newest first: those that live, then those in history."""
        found: list[ItemView] = []
        place = ""
        wanted = tuple(states)
        while len(found) < limit:
            page = await self.items_page(
                workspace=workspace, states=wanted, limit=min(limit, 100), after=place, history=history
            )
            found += page.items
            place = page.next
            if not place:
                break
        return found[:limit]

    async def items_page(
        self,
        *,
        workspace: str = "",
        states: Iterable[str] = (),
        limit: int = 100,
        after: str = "",
        history: bool = True,
    ) -> ItemsPage:
        """Some items, after where an earlier page ended. With `states` it may be a short page that is not the last."""
        labels = (("workspace", workspace),) if workspace else ()
        wanted = tuple(states)
        page = await self.runs_page(name=WORK, labels=labels, limit=limit, after=after, history=history)
        views = await asyncio.gather(*(self.view_work(view) for view in page.runs if view.kind == "agent"))
        return ItemsPage([view for view in views if not wanted or view.state in wanted], page.next)

    async def view_work(self, view: RunView) -> ItemView:
        """An item as it is shown, from its run."""
        tasks = await self.run(view.id).tasks()
        return view_item(view, tasks[0] if tasks else None, await self._spec(view.graph))

    async def _spec(self, digest: str) -> TaskSpec:
        """What a graph says of its only task. Graphs do not change, so each is asked for once."""
        found = self._specs.get(digest)
        if found is None:
            graph: Graph = await self.ask(GetGraph(tenant=self.line.tenant, digest=GraphDigest(digest)))
            if len(self._specs) >= SPECS_KNOWN_MAX:
                self._specs.clear()
            found = self._specs[digest] = graph.tasks[0]
        return found

    async def bulk(self, action: str, items: Iterable[str], *, reason: str = "", key: str = "") -> list[BulkOutcome]:
        """Do the same about several items, at most 50; the answer says for each how it went."""
        if action not in BULK_ACTIONS:
            hint = f"Use one of {', '.join(BULK_ACTIONS)}."
            raise Refused("field.value", f"{action!r} cannot be done about several items", hint, path="action")
        names = list(dict.fromkeys(items))
        check_number(len(names), 1, BULK_MAX, "items")
        # By their place among them: the same key with other items is then noticed.
        keys = [f"{key[:200]}+{number}" if key else "" for number in range(len(names))]
        each = (self._one_of_several(action, name, reason, own) for name, own in zip(names, keys, strict=True))
        outcomes = list(await asyncio.gather(*each))
        if any(outcome.code == "command.id_reused" for outcome in outcomes):
            text = f"key {key!r} was used for other items, or for something else"
            raise Refused("command.id_reused", text, "Choose a new one for each call.", path="key")
        return outcomes

    async def _one_of_several(self, action: str, name: str, reason: str, own: str) -> BulkOutcome:
        item = self.item(name)
        actions: dict[str, Callable[[], Awaitable[None]]] = {
            "approve": lambda: item.approve(reason, key=own),
            "reject": lambda: item.reject(reason, key=own),
            "cancel": lambda: item.cancel(reason or "cancelled on request", key=own),
            "release": lambda: item.release(reason, key=own),
            "fail": lambda: item.fail(reason, key=own),
            "retry": lambda: item.retry(key=own),
            "requeue": lambda: item.requeue(key=own),
            "pause": lambda: item.pause(key=own),
            "resume": lambda: item.resume(key=own),
        }
        try:
            await actions[action]()
        except (Refused, Unavailable) as trouble:
            return BulkOutcome(item=name, done=False, code=trouble.code, error=str(trouble))
        return BulkOutcome(item=name, done=True)


class Item:
    """One work item, live or ended. Whatever is done about it may carry a `key`, under which it is done once."""

    def __init__(self, client: Items, id: str) -> None:
        self.client = client
        self.id = id

    @property
    def _run(self) -> ItemRun:
        return self.client.run(self.id)

    async def status(self) -> ItemView:
        """How it stands."""
        view = await self._run.status()
        if view.kind != "agent" or view.name != WORK:
            raise Refused("run.unknown", f"{self.id!r} is a run of {view.name!r}, and no work item", path="item")
        return await self.client.view_work(view)

    async def wait(self, timeout_s: float | None = None) -> ItemView:
        """Wait until it has ended. Raises TimeoutError; the item goes on then."""
        await self._run.wait(timeout_s)
        return await self.status()

    async def result(self, timeout_s: float | None = None) -> Any:
        """Wait for it, and give what its session completed it with. Raises RunFailed if it did not succeed."""
        return await self._run.result("", timeout_s)

    async def why(self) -> tuple[Reason, ...]:
        """Why nobody has it; empty if somebody does, or it has ended."""
        return await self._run.why(WORK)

    async def story(self) -> list[str]:
        """What happened, told in lines."""
        return await self._run.story()

    async def approve(self, reason: str = "", *, key: str = "") -> None:
        """Let an item that waits for a person go on."""
        await self._do(cm.ApproveRun, key, approved=True, reason=reason)

    async def reject(self, reason: str = "", *, key: str = "") -> None:
        """End an item that waits for a person."""
        await self._do(cm.ApproveRun, key, approved=False, reason=reason)

    async def cancel(self, reason: str = "cancelled on request", *, key: str = "") -> None:
        """End it, wherever it is."""
        await self._do(cm.CancelRun, key, reason=reason)

    async def pause(self, *, key: str = "") -> None:
        """Let nobody claim it, nor what is part of it. Whoever has it goes on."""
        await self._do(cm.PauseRun, key, paused=True)

    async def resume(self, *, key: str = "") -> None:
        """Let it be claimed again."""
        await self._do(cm.PauseRun, key, paused=False)

    async def release(self, reason: str = "", *, key: str = "") -> None:
        """Take it from whoever has it, at no cost; its lease is void, and others may claim it."""
        await self._do(cm.ReleaseTasks, key, reason=reason)

    async def fail(self, reason: str, *, key: str = "") -> None:
        """Say that it has failed, whatever it is doing. Why has to be said."""
        if not reason.strip():
            raise Refused("field.value", "whoever fails an item says why", "Give a reason.", path="reason")
        await self._do(cm.MarkTasks, key, tasks=(WORK,), to=cm.Mark.FAILED, reason=reason)

    async def retry(self, *, key: str = "") -> None:
        """Try it now if it waits for its next try, and again, with a fresh budget, if it has failed."""
        await self._do(cm.RetryTasks, key)

    async def requeue(self, *, key: str = "", **other: Any) -> None:
        """Let a parked item wait again, at no cost; `requires`, `prefers`, `channel` and `owner` may be changed."""
        await self.resolve("requeue", key=key, **other)

    async def resolve(
        self,
        way_out: str = "requeue",
        *,
        requires: Iterable[str] | None = None,
        prefers: Iterable[str] | None = None,
        channel: str | None = None,
        owner: str | None = None,
        key: str = "",
    ) -> None:
        """Take it out of needs_attention: requeue it, perhaps with other requirements, fail it or cancel it."""
        if way_out not in list(cm.Exit):
            hint = f"Use one of {', '.join(cm.Exit)}."
            raise Refused("field.value", f"{way_out!r} is no way out of needs_attention", hint, path="exit")
        await self.client.ask(
            ResolveWork(
                tenant=self.client.line.tenant,
                command_id=key or self._new_key(),
                item=self.id,
                exit=cm.Exit(way_out),
                requires=None if requires is None else tuple(requires),
                prefers=None if prefers is None else tuple(prefers),
                channel=channel,
                owner=owner,
            )
        )

    def _new_key(self) -> str:
        return f"{self.id[:200]}-{secrets.token_hex(8)}"

    async def _do(self, kind: Callable[..., cm.ClientCommand], key: str, **fields: Any) -> None:
        command = kind(tenant=self.client.line.tenant, command_id=key or self._new_key(), run=self.id, **fields)
        await self.client.ask(command)


def _approval(name: str) -> ApprovalPolicy:
    if name not in list(ApprovalPolicy):
        hint = f"Use one of {', '.join(ApprovalPolicy)}."
        raise Refused("field.value", f"{name!r} is no policy of approval", hint, path="approval")
    return ApprovalPolicy(name)
