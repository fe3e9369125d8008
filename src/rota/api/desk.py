"""The desk: where every way in brings its requests, and where each is checked against what its caller may ask.

Socket, gRPC, HTTP and the program that embeds a coordinator ask here, and nowhere else.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import structs

from rota.api import agent_scope
from rota.api.abandoning import Abandoned
from rota.api.analysts import Readable, check_query
from rota.api.auth import Principal, Role
from rota.api.bundles import Bundles
from rota.api.items import resolve_work, submit_work
from rota.api.log_lines import LogIndexes
from rota.api.logs import LogChunks, read_log
from rota.api.reviving import preview
from rota.api.sessions import Sessions
from rota.api.streams import Streams
from rota.api.submitting import carry_out
from rota.control.driver import Listener
from rota.control.driver import ignore as tell_nobody
from rota.control.events import Tell, Wake
from rota.core.backlog import ListBacklog
from rota.core.changes import RunEnded
from rota.core.commands import CancelRun, ClientCommand, SteerStream, SubmitRun
from rota.core.errors import Refused, Unavailable
from rota.core.history import GetEnded, GetGraph, GetStories, HistoryQuery, ListAudits
from rota.core.ids import NO_RUN, CommandId, Millis, RunId, RunKey, WorkerKey
from rota.core.model import Graph
from rota.core.questions import GetRun, PreviewClear, Question, RunView
from rota.core.records import Story
from rota.core.states import RUN_TERMINAL
from rota.core.tags import tag_of
from rota.ports import BlobLost, Blobs, StoreReader
from rota.wire.builds import BUILD
from rota.wire.items import ResolveWork, SubmitWork
from rota.wire.names import safe_name
from rota.wire.queries import QUERY
from rota.wire.requests import (
    AwaitRun,
    FindBundle,
    GetService,
    InspectService,
    PutBundle,
    ReadBlob,
    ReadLog,
    ReadLogLines,
    SearchLog,
    ServiceInside,
    ServiceView,
)
from rota.wire.sessions import AwaitWake, BeatSession, ClaimWork, EndSession, FinishWork, RegisterSession, RenewWork
from rota.wire.standings import GetStream, ListStreams

# What became durable of a run, or None when that is not known any more: read the story, and watch anew.
Heard = Callable[[list[Story] | None], None]

BLOB_PIECE_BYTES = 1024 * 1024
_ENDED = tag_of(RunEnded).encode()


class Coordinator(Protocol):
    """Whoever decides: the coordinator's driver."""

    @property
    def store(self) -> StoreReader:
        """Where history and stories are read."""
        ...

    @property
    def clock(self) -> Callable[[], Millis]:
        """What time it is."""
        ...

    async def ask(self, request: Any) -> tuple[object, object]:
        """Carry out a command or answer a question."""
        ...

    async def ask_all(self, requests: Sequence[Any]) -> list[tuple[object, object]]:
        """Several at once, so that they share a commit; what is refused is among the answers."""
        ...

    def watch(self, watcher: Callable[[list[Story] | None], None]) -> Callable[[], None]:
        """Be told what happened, commit by commit; None when that is not known any more."""
        ...

    def check_leads(self) -> None:
        """Raise Unavailable if another should be asked."""
        ...

    def on_wake(self, worker: WorkerKey, waker: Callable[[Wake | None], None]) -> Callable[[], None]:
        """Be told of a pull worker's wakes; the answer ends it."""
        ...


def is_audited(request: ClientCommand) -> bool:
    """Whether it is written down who asked. Not of actions of builds and of queries: those come by the thousand."""
    if not isinstance(request, SubmitRun):
        return True
    return not request.merge and (request.graph is None or request.graph.kind not in (BUILD, QUERY))


def ignore(refused: Refused) -> None:
    """Nobody counts."""


class Desk:
    """Answers for one coordinator."""

    def __init__(
        self,
        coordinator: Coordinator,
        blobs: Blobs,
        refused: Callable[[Refused], None] = ignore,
        listener: Listener = tell_nobody,
        readable: Readable | None = None,
    ) -> None:
        """`refused` hears of callers who asked for what they may not, `listener` of errors of ours.

        `readable` is what analysts may read.
        """
        self.blobs = blobs
        # Where logs are read.
        self.logs: LogChunks = blobs
        self._log_indexes = LogIndexes()
        self.listener = listener
        # What clients and workers should know of it; None while it is being started.
        self.service: ServiceView | None = None
        # Looks into this process; None likewise.
        self.inspect: Callable[[], ServiceInside] | None = None
        # Streams whose folders it knows; there are none until somebody says where.
        self.streams = Streams({}, coordinator, lambda: coordinator.clock())  # noqa: PLW0108 - not read before it is asked
        self._refused = refused
        self._readable = readable or Readable()
        self._coordinator = coordinator
        self._bundles = Bundles(blobs)
        self.sessions = Sessions(coordinator)
        self._watchers = Watchers(coordinator)
        self._abandoned = Abandoned(coordinator.ask)

    async def ask(self, who: Principal, request: ClientCommand | Question) -> Any:
        """Answer a request, if this caller may make it. Raises Refused or Unavailable."""
        self._check(who, request)
        self._coordinator.check_leads()
        if who.is_bound:
            return await self._ask_in_scope(who, request)
        return await self._ask(who, request)

    async def _ask_in_scope(self, who: Principal, request: ClientCommand | Question) -> Any:
        try:
            await agent_scope.check_request(self._coordinator, who, request)
            if isinstance(request, ListBacklog):
                return await agent_scope.list_backlog(self._coordinator, who, request)
            return agent_scope.narrow(who, request, await self._ask(who, request))
        except Refused as refused:
            if refused.code == "auth.scope":
                self._refused(refused)
            raise

    async def _ask(self, who: Principal, request: ClientCommand | Question) -> Any:
        if who.role is Role.ANALYST:
            await self._check_query(request)
        store = self._coordinator.store
        match request:
            case HistoryQuery():
                return await store.history(request)
            case GetEnded():
                return await store.ended(request.tenant, request.run, request.created_at)
            case ListAudits():
                return await store.audits(request)
            case GetGraph():
                return await self._graph(request)
            case GetStories():
                parts = await store.stories(request.tenant, request.run, request.created_at)
                return [part for part in parts if part.number >= request.first]
            case GetService():
                if self.service is None:
                    raise Unavailable("leader.none", "this coordinator is starting.")
                return self.service
            case InspectService():
                if self.inspect is None:
                    raise Unavailable("leader.none", "this coordinator is starting.")
                return self.inspect()
            case (
                RegisterSession()
                | BeatSession()
                | EndSession()
                | AwaitWake()
                | ClaimWork()
                | RenewWork()
                | FinishWork()
            ):
                return await self.sessions.answer(who, request)
            case SubmitWork():
                return await submit_work(self._coordinator, who, request)
            case ResolveWork():
                return await resolve_work(self._coordinator, who, request)
            case AwaitRun():
                if request.abandon_ms <= 0:
                    return await self._await(request)
                key = (request.tenant, RunId(request.run))
                # Who goes away cancels it, so they have to be allowed to.
                cancelling = CancelRun(tenant=request.tenant, command_id=CommandId(""), run=key[1])
                self._check(who, cancelling)
                if who.role is Role.ANALYST:
                    await self._check_query(cancelling)
                with self._abandoned.bound(key, request.abandon_ms, who.name):
                    return await self._await(request)
            case ReadLog():
                return await read_log(self.logs, request)
            case ReadLogLines() | SearchLog():
                return await self._log_indexes.answer(self.logs, request)
            case ReadBlob():
                return await self._read_blob(request)
            case PutBundle():
                return await self._bundles.put(request)
            case FindBundle():
                return await self._bundles.find(request)
            case ListStreams() | GetStream() | SteerStream():
                return await self.streams.answer(who, request)
            case ClientCommand():
                await self._bundles.check(request)
                actor = who.name if is_audited(request) else ""
                return await carry_out(self._coordinator, structs.replace(request, actor=actor))
            case PreviewClear():
                return await preview(self._coordinator, request)
            case _:
                return (await self._coordinator.ask(request))[0]

    def watch(self, who: Principal, tenant: str, run: str, tell: Heard) -> Callable[[], None]:
        """Be told what happens to a run, or to any run of the tenant if none is named; the answer ends it."""
        self._check(who, GetStories(tenant=tenant, run=RunId(run), created_at=0))
        agent_scope.check_unbound(who, "the events of runs")
        self._coordinator.check_leads()
        return self._watchers.add((tenant, RunId(run)), tell)

    def failed(self, what: str, error: Exception) -> Refused:
        """An error of ours: the operator is told what it was, and this is what its caller is told.

        It is a refusal: what met an error once would meet it again, so nobody should repeat it by itself.
        """
        text = f"{type(error).__name__}: {error}"
        self.listener(Tell("request.failed", (("request", what[:200]), ("error", text[:1000]))))
        return Refused("service.failed", "the service met an error of its own", "Its journal says more.")

    def _check(self, who: Principal, request: ClientCommand | Question) -> None:
        try:
            who.may_ask(request)
        except Refused as refused:
            self._refused(refused)
            raise

    async def _check_query(self, request: ClientCommand | Question) -> None:
        """Refuse an analyst what is not about a query."""
        try:
            if isinstance(request, SubmitRun):
                check_query(request, self._readable)
            elif isinstance(request, CancelRun):
                view = (await self._coordinator.ask(GetRun(tenant=request.tenant, run=request.run)))[0]
                if isinstance(view, RunView) and view.kind != QUERY:
                    hint = "Use a token with the role writer."
                    raise Refused("auth.role", "an analyst may cancel runs of queries only", hint, path="run")
        except Refused as refused:
            self._refused(refused)
            raise

    async def _graph(self, request: GetGraph) -> Graph:
        graph = await self._coordinator.store.graph(request.tenant, request.digest)
        if graph is None:
            raise Refused("graph.unknown", f"graph {request.digest[:12]!r} is gone", path="graph")
        return graph

    async def _await(self, request: AwaitRun) -> RunView:
        told = asyncio.Event()
        is_lost = False

        def tell(stories: list[Story] | None) -> None:
            nonlocal is_lost
            is_lost = stories is None
            # As it is written in a story. Other words may contain it: the run is looked at.
            if stories is None or any(_ENDED in story.changes for story in stories):
                told.set()

        end = self._watchers.add((request.tenant, RunId(request.run)), tell)
        try:
            while True:
                view = (await self._coordinator.ask(GetRun(tenant=request.tenant, run=RunId(request.run))))[0]
                assert isinstance(view, RunView), "a run is answered with its view"
                if view.state in RUN_TERMINAL:
                    return view
                await told.wait()
                told.clear()
                if is_lost:
                    raise Unavailable("leader.none", "waiting was interrupted; begin again.", retry_after_ms=100)
        finally:
            end()

    async def _read_blob(self, request: ReadBlob) -> bytes:
        if request.offset < 0:
            raise Refused("field.value", f"there is nothing before the beginning: {request.offset}", path="offset")
        home = safe_name(request.tenant)
        if not request.ref.name.startswith(f"{home}/"):
            raise Refused("blob.lost", f"{request.ref.name!r} is not one of tenant {request.tenant!r}", path="ref")
        try:
            return await self.blobs.read(request.ref.name, request.offset, BLOB_PIECE_BYTES)
        except ValueError as error:
            # No name of ours.
            raise Refused("blob.lost", f"{error}", path="ref") from None
        except BlobLost as lost:
            raise Refused("blob.lost", f"{lost}", path="ref") from None


class _Watcher:
    """One who is told, until it wants to hear no more; that may be in the middle of telling."""

    def __init__(self, tell: Heard) -> None:
        self.is_over = False
        self._tell = tell

    def tell(self, stories: list[Story] | None) -> None:
        if not self.is_over:
            self._tell(stories)


class Watchers:
    """Who watches which run. The coordinator has one watcher for all of them, while there are any."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._by_run: dict[RunKey, dict[int, _Watcher]] = {}
        self._number = 0
        self._end: Callable[[], None] | None = None

    def add(self, key: RunKey, tell: Heard) -> Callable[[], None]:
        """One more; the answer ends it."""
        self._number += 1
        number = self._number
        watcher = self._by_run.setdefault(key, {})[number] = _Watcher(tell)
        if self._end is None:
            self._end = self._coordinator.watch(self._heard)

        def end() -> None:
            watcher.is_over = True
            watchers = self._by_run.get(key, {})
            watchers.pop(number, None)
            if not watchers:
                self._by_run.pop(key, None)
            if not self._by_run and self._end is not None:
                self._end()
                self._end = None

        return end

    def _heard(self, stories: list[Story] | None) -> None:
        if stories is None:
            watched, self._by_run, self._end = self._by_run, {}, None
            for watchers in watched.values():
                for watcher in watchers.values():
                    watcher.tell(None)
            return
        wanted: dict[RunKey, list[Story]] = {}
        for story in stories:
            for key in ((story.tenant, story.run), (story.tenant, NO_RUN)):
                if key in self._by_run:
                    wanted.setdefault(key, []).append(story)
        for key, told in wanted.items():
            for watcher in list(self._by_run.get(key, {}).values()):
                watcher.tell(told)
