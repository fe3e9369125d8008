"""Work items and agent sessions for ordinary programs: the same surface without `await`."""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from rota.client.items import Item, Items
from rota.client.scheduling import DRAIN_S, DrainStep
from rota.client.sessions import AgentSession, WorkClaim
from rota.client.threads import LoopThread
from rota.core.backlog import BacklogLine, SchedulerView
from rota.core.ids import Fence, Millis
from rota.core.reasons import Reason
from rota.wire.instants import When
from rota.wire.items import ATTEMPTS, BulkOutcome, ItemView
from rota.wire.sessions import LEASE_MS, SessionLine, SessionView, WakeView


class BlockingItem:
    """One work item, live or ended; see `Item`."""

    def __init__(self, thread: LoopThread, item: Item) -> None:
        self._thread = thread
        self._item = item

    @property
    def id(self) -> str:
        """The item's id."""
        return self._item.id

    def status(self) -> ItemView:
        """How it stands."""
        return self._thread.call(self._item.status())

    def wait(self, timeout_s: float | None = None) -> ItemView:
        """Wait until it has ended. Raises TimeoutError; the item goes on then."""
        return self._thread.call(self._item.wait(timeout_s))

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait for it, and give what its session completed it with. Raises RunFailed if it did not succeed."""
        return self._thread.call(self._item.result(timeout_s))

    def why(self) -> tuple[Reason, ...]:
        """Why nobody has it; empty if somebody does, or it has ended."""
        return self._thread.call(self._item.why())

    def story(self) -> list[str]:
        """What happened, told in lines."""
        return self._thread.call(self._item.story())

    def approve(self, reason: str = "", *, key: str = "") -> None:
        """Let an item that waits for a person go on."""
        self._thread.call(self._item.approve(reason, key=key))

    def reject(self, reason: str = "", *, key: str = "") -> None:
        """End an item that waits for a person."""
        self._thread.call(self._item.reject(reason, key=key))

    def cancel(self, reason: str = "cancelled on request", *, key: str = "") -> None:
        """End it, wherever it is."""
        self._thread.call(self._item.cancel(reason, key=key))

    def pause(self, *, key: str = "") -> None:
        """Let nobody claim it, nor what is part of it. Whoever has it goes on."""
        self._thread.call(self._item.pause(key=key))

    def resume(self, *, key: str = "") -> None:
        """Let it be claimed again."""
        self._thread.call(self._item.resume(key=key))

    def release(self, reason: str = "", *, key: str = "") -> None:
        """Take it from whoever has it, at no cost; its lease is void, and others may claim it."""
        self._thread.call(self._item.release(reason, key=key))

    def fail(self, reason: str, *, key: str = "") -> None:
        """Say that it has failed, whatever it is doing. Why has to be said."""
        self._thread.call(self._item.fail(reason, key=key))

    def retry(self, *, key: str = "") -> None:
        """Try it now if it waits for its next try, and again, with a fresh budget, if it has failed."""
        self._thread.call(self._item.retry(key=key))

    def requeue(self, *, key: str = "", **other: Any) -> None:
        """Let a parked item wait again, at no cost; `requires`, `prefers`, `channel` and `owner` may be changed."""
        self._thread.call(self._item.requeue(key=key, **other))

    def resolve(self, way_out: str = "requeue", *, key: str = "", **other: Any) -> None:
        """Take it out of needs_attention; see `Item.resolve`."""
        self._thread.call(self._item.resolve(way_out, key=key, **other))


class BlockingClaim:
    """An item that a session holds; see `WorkClaim`."""

    def __init__(self, thread: LoopThread, claim: WorkClaim) -> None:
        self._thread = thread
        self._claim = claim

    def __repr__(self) -> str:
        return repr(self._claim)

    @property
    def item(self) -> str:
        """Which item it is."""
        return self._claim.item

    @property
    def title(self) -> str:
        """What is to be done."""
        return self._claim.title

    @property
    def payload(self) -> Any:
        """What was sent along."""
        return self._claim.payload

    @property
    def labels(self) -> dict[str, str]:
        """What was said of it."""
        return self._claim.labels

    @property
    def fence(self) -> Fence:
        """The number of the lease; it only ever grows. Guard what you write elsewhere with it."""
        return self._claim.fence

    @property
    def token(self) -> str:
        """The secret that shows whose lease it is. Nobody but the holder should have it."""
        return self._claim.token

    @property
    def attempt(self) -> int:
        """Which try this is."""
        return self._claim.attempt

    @property
    def deliveries(self) -> int:
        """How often somebody had it before and was lost."""
        return self._claim.deliveries

    @property
    def expires_at(self) -> Millis:
        """Until when it is the session's."""
        return self._claim.expires_at

    @property
    def deadline_at(self) -> Millis:
        """When the item fails if it has not ended; 0: never."""
        return self._claim.deadline_at

    def renew(self, lease_s: float = 0) -> Millis:
        """Keep it for so long from now on, or for as long as it was claimed for; the answer is until when."""
        return self._thread.call(self._claim.renew(lease_s))

    def complete(self, result: Any = None) -> None:
        """It is done. A result is plain data, at most 64 KiB of it."""
        self._thread.call(self._claim.complete(result))

    def fail(self, error: str) -> None:
        """It went wrong; it is tried again if it has attempts left."""
        self._thread.call(self._claim.fail(error))

    def release(self) -> None:
        """Give it back unspent, for others to claim."""
        self._thread.call(self._claim.release())


class BlockingSession:
    """One agent session; see `AgentSession`. `with` registers it and ends it."""

    def __init__(self, thread: LoopThread, session: AgentSession) -> None:
        self._thread = thread
        self._session = session

    @property
    def id(self) -> str:
        """Its id."""
        return self._session.id

    def register(self) -> SessionView:
        """Join, or describe it anew. From then on it gives a sign of life by itself."""
        return self._thread.call(self._session.register())

    def beat(self, mood: str = "") -> tuple[Fence, ...]:
        """Say that it is alive, and perhaps `idle`, `prompting` or `stopping`; the answer is what it holds."""
        return self._thread.call(self._session.beat(mood))

    def claim(
        self,
        *,
        wait_s: float = 0,
        limit: int = 1,
        lease_s: float = LEASE_MS / 1000,
        priority: str = "low",
        channel: str = "",
        item: str = "",
        key: str = "",
    ) -> list[BlockingClaim]:
        """The best work that it may have, at most `limit` of it; see `AgentSession.claim`."""
        work = self._session.claim(
            wait_s=wait_s, limit=limit, lease_s=lease_s, priority=priority, channel=channel, item=item, key=key
        )
        return [BlockingClaim(self._thread, each) for each in self._thread.call(work)]

    def renew_claim(self, item: str, fence: Fence, token: str, lease_s: float = 0) -> Millis:
        """Keep a claim that another program made for this session."""
        return self._thread.call(self._session.renew_claim(item, fence, token, lease_s))

    def complete_claim(self, item: str, fence: Fence, token: str, result: Any = None) -> None:
        """Complete a claim that another program made for this session."""
        self._thread.call(self._session.complete_claim(item, fence, token, result))

    def wakes(self) -> Iterator[WakeView]:
        """What it is told, for as long as it is a session. A wake is advice: claim, and see what there is."""
        return self._thread.walk(self._session.wakes())

    def end(self) -> None:
        """It is done; what it holds is returned at once. It may be called twice."""
        self._thread.call(self._session.end())

    def __enter__(self) -> Self:
        self.register()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._session.__aexit__(kind, error, trace))


class BlockingItems:
    """The part of a client that is about work items, sessions and the scheduler of both."""

    def __init__(self, thread: LoopThread, client: Items) -> None:
        self._loop = thread
        self._items = client

    def submit_work(
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
    ) -> BlockingItem:
        """Make a work item for agent sessions to claim; see `Items.submit_work`. It is durable when this returns."""
        work = self._items.submit_work(
            title,
            payload,
            requires=requires,
            prefers=prefers,
            priority=priority,
            workspace=workspace,
            channel=channel,
            owner=owner,
            depends_on=depends_on,
            approval=approval,
            max_attempts=max_attempts,
            deadline=deadline,
            key=key,
            parent=parent,
            labels=labels,
        )
        return BlockingItem(self._loop, self._loop.call(work))

    def item(self, id: str) -> BlockingItem:
        """An item by its id, live or ended."""
        return BlockingItem(self._loop, self._items.item(id))

    def items(
        self, *, workspace: str = "", states: Iterable[str] = (), limit: int = 100, history: bool = True
    ) -> list[ItemView]:
        """Items, the newest first: those that live, then those in history."""
        work = self._items.items(workspace=workspace, states=states, limit=limit, history=history)
        return self._loop.call(work)

    def bulk(self, action: str, items: Iterable[str], *, reason: str = "", key: str = "") -> list[BulkOutcome]:
        """Do the same about several items, at most 50; the answer says for each how it went."""
        return self._loop.call(self._items.bulk(action, items, reason=reason, key=key))

    def scheduler(self) -> SchedulerView:
        """How work that is claimed stands: pauses, and how much of it waits, is held or needs attention."""
        return self._loop.call(self._items.scheduler())

    def backlog(self, *, workspace: str = "", include_paused: bool = True, limit: int = 50) -> tuple[BacklogLine, ...]:
        """What waits to be claimed, in the order in which it would be, and what keeps it from being claimed."""
        return self._loop.call(self._items.backlog(workspace=workspace, include_paused=include_paused, limit=limit))

    def pause_scheduler(self, *, workspace: str = "", reason: str = "") -> None:
        """Let nobody claim or be woken, in one workspace or anywhere. Whoever has something goes on."""
        self._loop.call(self._items.pause_scheduler(workspace=workspace, reason=reason))

    def resume_scheduler(self, *, workspace: str = "") -> None:
        """Let claims and wakes go on."""
        self._loop.call(self._items.resume_scheduler(workspace=workspace))

    def drain(self, *, timeout_s: float = DRAIN_S, workspace: str = "", reason: str = "") -> DrainStep:
        """Pause, and wait until nobody holds anything, or for so long. What was paused stays so."""
        return self._loop.call(self._items.drain(timeout_s=timeout_s, workspace=workspace, reason=reason))

    def drain_steps(self, *, timeout_s: float = DRAIN_S, workspace: str = "", reason: str = "") -> Iterator[DrainStep]:
        """The same step by step: how many are left, whenever that changes."""
        return self._loop.walk(self._items.drain_steps(timeout_s=timeout_s, workspace=workspace, reason=reason))

    def sessions(self) -> list[SessionLine]:
        """The agent sessions that are registered, in the order in which they came."""
        return self._loop.call(self._items.sessions())

    def agent_session(self, session: str = "", **about: Any) -> BlockingSession:
        """A session that claims work; `with` registers it and ends it; see `Scheduling.agent_session`."""
        return BlockingSession(self._loop, self._items.agent_session(session, **about))
