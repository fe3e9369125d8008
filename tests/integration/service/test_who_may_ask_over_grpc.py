"""Who may do what over gRPC: every request by every role, for one's own tenant and another's; and workers' streams.

What is expected stands here, by hand; `rota.api.auth` has its own table.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from rota.api.tokens import Gate
from rota.app.clocks import wall_clock
from rota.client.rpc import RpcConnection
from rota.client.watching import Interrupted
from rota.config import Secret
from rota.config.settings import Auth
from rota.core import backlog as bl
from rota.core import commands as cm
from rota.core import history as hs
from rota.core import questions as qs
from rota.core.calendar import ScheduleSpec
from rota.core.door import ClientRequest
from rota.core.errors import Refused, Unavailable
from rota.core.ids import BlobRef
from rota.core.model import Capacity, Graph, Pool, Queue, TaskSpec
from rota.wire import items as wi
from rota.wire import sessions as ss
from rota.wire.channels import SYNC
from rota.wire.frames import CoordinatorFrame, WorkerFrame
from rota.wire.requests import (
    AnyQuestion,
    AwaitRun,
    FindBundle,
    GetService,
    InspectService,
    PutBundle,
    ReadBlob,
    ReadLog,
    ReadLogLines,
    Response,
    SearchLog,
    Watch,
    open_answer,
)
from rota.wire.routes import Route
from rota.wire.standings import GetStream, ListStreams
from rota.wire.streams import open_stream
from tests.integration.far import Service
from tests.unit.client.ways import place_at

PATIENCE_S = 60
OWN, OTHER, ANY = "own", "other", "*"
ROLES = ("reader", "writer", "admin", "worker", "agent")
READS, WRITES, RULES, WORKS, CLAIMS = (
    ("reader", "writer", "admin", "agent"),
    ("writer", "admin"),
    ("admin",),
    ("worker",),
    ("agent",),
)
EVERYBODY = ROLES
GRAPH = Graph(name="g", tasks=(TaskSpec(id="a", kind="command", work=b""),))


def token(role: str, tenant: str) -> str:
    return f"{role}-of-{'any' if tenant == ANY else tenant}"


TOKENS = ",".join(f"{role}@{tenant}:{token(role, tenant)}" for role in ROLES for tenant in (OWN, OTHER, ANY))

# Every request there is, for a tenant and about things that do not exist; and whose it is.
Make = Callable[[str], Any]
REQUESTS: dict[str, tuple[Make, tuple[str, ...]]] = {
    "ReleaseTasks": (lambda t: cm.ReleaseTasks(tenant=t, command_id="c1", run="x"), WRITES),
    "ApproveRun": (lambda t: cm.ApproveRun(tenant=t, command_id="c2", run="x"), WRITES),
    "SteerStream": (lambda t: cm.SteerStream(tenant=t, command_id="c7", stream="x", verb="pause"), WRITES),
    "ListStreams": (lambda t: ListStreams(tenant=t), READS),
    "GetStream": (lambda t: GetStream(tenant=t, stream="x"), READS),
    "PauseScheduler": (lambda t: cm.PauseScheduler(tenant=t, command_id="c3", scope="none"), RULES),
    "RegisterSession": (lambda t: ss.RegisterSession(tenant=t, session="x", limit=-1), CLAIMS),
    "BeatSession": (lambda t: ss.BeatSession(tenant=t, session="x"), CLAIMS),
    "EndSession": (lambda t: ss.EndSession(tenant=t, session="x"), CLAIMS),
    "AwaitWake": (lambda t: ss.AwaitWake(tenant=t, session="x", wait_ms=0), CLAIMS),
    "ClaimWork": (lambda t: ss.ClaimWork(tenant=t, session="x", command_id="c4"), CLAIMS),
    "RenewWork": (lambda t: ss.RenewWork(tenant=t, session="x", fence=1, token="t"), CLAIMS),
    "FinishWork": (
        lambda t: ss.FinishWork(tenant=t, session="x", item="i", fence=1, token="t", ending=ss.Ending.RELEASE),
        CLAIMS,
    ),
    "SubmitWork": (
        lambda t: wi.SubmitWork(tenant=t, command_id="c5", item="i", work=wi.WorkItem(title="")),
        WRITES,
    ),
    "ResolveWork": (lambda t: wi.ResolveWork(tenant=t, command_id="c6", item="x"), WRITES),
    "GetScheduler": (lambda t: bl.GetScheduler(tenant=t), READS),
    "ListBacklog": (lambda t: bl.ListBacklog(tenant=t), READS),
    "GetOverview": (lambda t: qs.GetOverview(tenant=t), READS),
    "GetRun": (lambda t: qs.GetRun(tenant=t, run="x"), READS),
    "ListRuns": (lambda t: qs.ListRuns(tenant=t), READS),
    "ListTasks": (lambda t: qs.ListTasks(tenant=t, run="x"), READS),
    "SumTasks": (lambda t: qs.SumTasks(tenant=t, run="x", names=("a",)), READS),
    "ListWorkers": (lambda t: qs.ListWorkers(tenant=t), READS),
    "ListQueues": (lambda t: qs.ListQueues(tenant=t), READS),
    "ListPools": (lambda t: qs.ListPools(tenant=t), READS),
    "ListTenants": (lambda t: qs.ListTenants(tenant=t), RULES),
    "ExplainTask": (lambda t: qs.ExplainTask(tenant=t, run="x", task="a"), READS),
    "HistoryQuery": (lambda t: hs.HistoryQuery(tenant=t), READS),
    "GetEnded": (lambda t: hs.GetEnded(tenant=t, run="x"), READS),
    "ListAudits": (lambda t: hs.ListAudits(tenant=t), RULES),
    "GetGraph": (lambda t: hs.GetGraph(tenant=t, digest="0" * 64), READS),
    "GetStories": (lambda t: hs.GetStories(tenant=t, run="x", created_at=1), READS),
    "ReadLog": (lambda t: ReadLog(tenant=t, run="x", task="a"), READS),
    "ReadLogLines": (lambda t: ReadLogLines(tenant=t, run="x", task="a"), READS),
    "SearchLog": (lambda t: SearchLog(tenant=t, run="x", task="a"), READS),
    "ReadBlob": (lambda t: ReadBlob(tenant=t, ref=BlobRef(f"{t}/x", 1, "0" * 64)), READS),
    "GetService": (lambda t: GetService(tenant=t), EVERYBODY),
    "InspectService": (lambda t: InspectService(tenant=t), RULES),
    "AwaitRun": (lambda t: AwaitRun(tenant=t, run="x"), READS),
    "AwaitRun, and take it along": (lambda t: AwaitRun(tenant=t, run="x", abandon_ms=1), WRITES),
    "Watch": (lambda t: Watch(t, "x"), READS),
    "GetWorkflow": (lambda t: qs.GetWorkflow(tenant=t, workflow="x"), READS),
    "ListWorkflows": (lambda t: qs.ListWorkflows(tenant=t), READS),
    "ListBackfills": (lambda t: qs.ListBackfills(tenant=t), READS),
    "PreviewClear": (lambda t: qs.PreviewClear(tenant=t, run="x"), READS),
    "FindBundle": (lambda t: FindBundle(tenant=t, sha256="0" * 64, size=1), WRITES),
    "PutBundle": (lambda t: PutBundle(tenant=t, sha256="0" * 64, content=b"x"), WRITES),
    "MarkTasks": (lambda t: cm.MarkTasks(tenant=t, command_id="w1", run="x", tasks=("a",), to=cm.Mark.FAILED), WRITES),
    "RetryTasks": (lambda t: cm.RetryTasks(tenant=t, command_id="w2", run="x"), WRITES),
    "NoteTask": (lambda t: cm.NoteTask(tenant=t, command_id="w3", run="x", task="a", note="n"), WRITES),
    "MoveRun": (lambda t: cm.MoveRun(tenant=t, command_id="w4", run="x"), WRITES),
    "DeployWorkflow": (lambda t: cm.DeployWorkflow(tenant=t, command_id="w5", graph=GRAPH, paused=True), WRITES),
    "PauseWorkflow": (lambda t: cm.PauseWorkflow(tenant=t, command_id="w6", workflow="x"), WRITES),
    "DropWorkflow": (lambda t: cm.DropWorkflow(tenant=t, command_id="w7", workflow="x"), WRITES),
    "StartBackfill": (
        lambda t: cm.StartBackfill(tenant=t, command_id="w8", backfill="b", workflow="x", start_at=1, end_at=2),
        WRITES,
    ),
    "CancelBackfill": (lambda t: cm.CancelBackfill(tenant=t, command_id="w9", backfill="x"), WRITES),
    "SubmitRun": (lambda t: cm.SubmitRun(tenant=t, command_id="c1", run="", graph=GRAPH), WRITES),
    "CancelRun": (lambda t: cm.CancelRun(tenant=t, command_id="c2", run="x"), WRITES),
    "PauseRun": (lambda t: cm.PauseRun(tenant=t, command_id="c3", run="x"), WRITES),
    "ClearTasks": (lambda t: cm.ClearTasks(tenant=t, command_id="c4", run="x", tasks=("a",)), WRITES),
    "GrowRun": (lambda t: cm.GrowRun(tenant=t, command_id="c5", run="x", expands="a", width=1), WRITES),
    "ResolveTask": (lambda t: cm.ResolveTask(tenant=t, command_id="c6", run="x", task="a"), WRITES),
    "LoseOutputs": (lambda t: cm.LoseOutputs(tenant=t, command_id="c7", run="x", tasks=("a",)), WRITES),
    "PutSchedule": (
        lambda t: cm.PutSchedule(
            tenant=t, command_id="c8", schedule="s", graph=GRAPH, spec=ScheduleSpec(every_ms=10**9), paused=True
        ),
        WRITES,
    ),
    "DropSchedule": (lambda t: cm.DropSchedule(tenant=t, command_id="c9", schedule="x"), WRITES),
    "PutQueue": (lambda t: cm.PutQueue(tenant=t, command_id="c10", queue=Queue(tenant=t, name="q")), RULES),
    "PutPool": (lambda t: cm.PutPool(tenant=t, command_id="c11", pool=Pool(tenant=t, name="p", slots=1)), RULES),
    "DropPool": (lambda t: cm.DropPool(tenant=t, command_id="c12", name="x"), RULES),
    "PutTenant": (lambda t: cm.PutTenant(tenant=t, command_id="c13", weight=2), RULES),
    "DrainWorker": (lambda t: cm.DrainWorker(tenant=t, command_id="c14", worker="x"), RULES),
    "EndQuarantine": (lambda t: cm.EndQuarantine(tenant=t, command_id="c15q", worker="x"), RULES),
    "ForgetWorker": (lambda t: cm.ForgetWorker(tenant=t, command_id="c15", worker="x"), RULES),
    "ClaimTask": (lambda t: cm.ClaimTask(tenant=t, command_id="c16", worker="x", incarnation="1"), WORKS),
}
# They are about all tenants, so a token of one tenant is not enough, whatever its role.
OF_ALL_TENANTS = ("ListTenants", "PutTenant", "InspectService")


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A coordinator with a real gate."""
    one = Service(tmp_path_factory.mktemp("far"))
    one.tokens = Gate(Auth(tokens=Secret(TOKENS)), wall_clock)  # pyright: ignore[reportAttributeAccessIssue] - the real one
    try:
        one.thread.call(one.start())
        yield one
    finally:
        one.thread.call(one.stop())
        one.thread.stop()


def play(far: Service, scene: Coroutine[Any, Any, Any]) -> Any:
    async def in_time() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await scene

    return far.thread.call(in_time())


@asynccontextmanager
async def connected(far: Service, given: str, tenant: str = "") -> AsyncIterator[RpcConnection]:
    connection = await RpcConnection.open(Route(place_at(far.url)), given, tenant)
    try:
        yield connection
    finally:
        await connection.close()


async def verdict(connection: RpcConnection, request: Any) -> str:
    """`in`, or the code with which the gate refused."""
    try:
        if isinstance(request, Watch):
            # Nothing happens to the run, so what comes before the answer to the next request is a refusal.
            answers: list[Response | None] = []
            connection._send(request, answers.append)
            await connection.ask(GetService(tenant=request.tenant))
            for answer in answers:
                assert answer is not None
                open_answer(request, answer)
        else:
            await connection.ask(request)
    except Refused as refused:
        return refused.code if refused.code.startswith("auth.") else "in"
    return "in"


def test_every_request_there_is_stands_in_this_table():
    kinds = {kind.__name__ for kind in (*get_args(ClientRequest), *get_args(AnyQuestion), Watch)}
    assert kinds == {name.partition(",")[0] for name in REQUESTS}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("home", [OWN, ANY])
def test_every_request_is_for_those_it_is_meant_for(far: Service, role: str, home: str):
    async def scene() -> None:
        async with connected(far, token(role, home)) as connection:
            for name, (make, roles) in REQUESTS.items():
                for tenant in (OWN, OTHER):
                    expected = "in" if role in roles else "auth.role"
                    if home == OWN and name != "GetService" and (tenant == OTHER or name in OF_ALL_TENANTS):
                        expected = "auth.tenant"
                    assert await verdict(connection, make(tenant)) == expected, f"{name} for {tenant}"

    play(far, scene())


@pytest.mark.parametrize("role", ROLES)
def test_a_token_for_any_tenant_is_bound_by_the_one_it_named_when_it_came(far: Service, role: str):
    async def scene() -> None:
        async with connected(far, token(role, ANY), OWN) as connection:
            for name, (make, roles) in REQUESTS.items():
                expected = "auth.tenant" if name != "GetService" else "in"
                assert await verdict(connection, make(OTHER)) == expected, name
                if name not in OF_ALL_TENANTS:
                    expected = "in" if role in roles else "auth.role"
                    assert await verdict(connection, make(OWN)) == expected, name

    play(far, scene())


def test_nobody_comes_in_without_a_token_with_a_wrong_one_or_for_another_tenant(far: Service):
    async def code(given: str, tenant: str) -> str:
        with pytest.raises(Refused) as caught:
            async with connected(far, given, tenant):
                pass
        return caught.value.code

    async def scene() -> None:
        for tenant in ("", OWN, OTHER):
            assert await code("", tenant) == "auth.missing"
            assert await code("wrong", tenant) == "auth.wrong"
            assert await code(token("admin", OWN)[:-1], tenant) == "auth.wrong"
        for role in ROLES:
            assert await code(token(role, OWN), OTHER) == "auth.tenant"

    play(far, scene())


def test_a_definition_cannot_be_smuggled_into_another_tenant(far: Service):
    async def scene() -> None:
        async with connected(far, token("admin", OWN)) as connection:
            for request in (
                cm.PutQueue(tenant=OWN, command_id="s1", queue=Queue(tenant=OTHER, name="smuggled")),
                cm.PutPool(tenant=OWN, command_id="s2", pool=Pool(tenant=OTHER, name="smuggled", slots=1)),
                ReadBlob(tenant=OWN, ref=BlobRef(f"{OTHER}/x", 1, "0" * 64)),
                ReadBlob(tenant=OWN, ref=BlobRef(f"{OWN}/../{OTHER}/x", 1, "0" * 64)),
            ):
                with pytest.raises(Refused):
                    await connection.ask(request)
        async with connected(far, token("admin", OTHER)) as connection:
            assert "smuggled" not in str(await connection.ask(qs.ListQueues(tenant=OTHER)))
            assert "smuggled" not in str(await connection.ask(qs.ListPools(tenant=OTHER)))

    play(far, scene())


def test_an_actor_that_a_caller_makes_up_is_not_believed(far: Service):
    async def scene() -> None:
        async with connected(far, token("admin", OWN)) as connection:
            pool = Pool(tenant=OWN, name="audited", slots=1)
            await connection.ask(cm.PutPool(tenant=OWN, command_id="a1", actor="somebody else", pool=pool))
            page = await connection.ask(hs.ListAudits(tenant=OWN))
            (actor,) = [audit.actor for audit in page.audits if "audited" in audit.about]
            assert actor.startswith("admin@own#")

    play(far, scene())


def greeting(tenant: str, *tenants: str, worker: str) -> WorkerFrame:
    capacity = Capacity(slots=1, kinds=("python",), tenants=tenants)
    return WorkerFrame(tenant=tenant, worker=worker, incarnation="1", epoch=0, number=0, capacity=capacity)


async def sync(far: Service, given: str, tenant: str, *frames: Any) -> Any:
    """The last answer to a worker's frames, or why the coordinator hung up; a frame may be made of an answer."""
    try:
        stream = await open_stream(place_at(far.url), SYNC, given, tenant)
    except Refused as refused:
        return refused
    heard: asyncio.Queue[Any] = asyncio.Queue()
    waiting: list[bytes] = []
    stream.start(
        lambda: waiting.pop(0) if waiting else None,
        lambda content: heard.put_nowait(msgspec.msgpack.decode(content, type=CoordinatorFrame)),
        heard.put_nowait,
    )
    answer: Any = None
    for frame in frames:
        waiting.append(msgspec.msgpack.encode(frame(answer) if callable(frame) else frame))
        stream.wake()
        answer = await heard.get()
    if not isinstance(answer, Refused | Unavailable):
        stream.close()
    await stream.closed()
    return answer


@pytest.mark.parametrize("role", [role for role in ROLES if role != "worker"])
@pytest.mark.parametrize("home", [OWN, ANY])
def test_a_workers_stream_is_for_workers_only(far: Service, role: str, home: str):
    answer = play(far, sync(far, token(role, home), "", greeting(OWN, worker=f"{role}-{home}")))
    assert isinstance(answer, Refused)
    assert answer.code == "auth.role"


@pytest.mark.parametrize(("given", "code"), [("", "auth.missing"), ("wrong", "auth.wrong")])
def test_a_workers_stream_takes_a_token_that_is_known(far: Service, given: str, code: str):
    answer = play(far, sync(far, given, "", greeting(OWN, worker="nobody")))
    assert isinstance(answer, Refused)
    assert answer.code == code


def report(about: str, says: str) -> Callable[[CoordinatorFrame], WorkerFrame]:
    """A frame of a worker of `says` with an outcome for a run of `about`."""

    def make(welcome: CoordinatorFrame) -> WorkerFrame:
        said = cm.Report(
            tenant=about,
            run="x",
            task=0,
            worker_tenant=says,
            worker="reporter",
            incarnation="1",
            fence=1,
            outcome=cm.Outcome.SUCCESS,
        )
        return WorkerFrame(
            tenant=says,
            worker="reporter",
            incarnation="1",
            epoch=welcome.epoch,
            number=1,
            session=welcome.session,
            reports=(said,),
        )

    return make


@pytest.mark.parametrize(
    ("frames", "path"),
    [
        ((greeting(OTHER, worker="w1"),), "tenant"),
        ((greeting(OWN, OTHER, worker="w2"),), "capacity.tenants"),
        ((greeting(OWN, OWN, OTHER, worker="w3"),), "capacity.tenants"),
        ((greeting(OWN, worker="reporter"), report(OTHER, OWN)), "reports"),
        ((greeting(OWN, worker="reporter"), report(OWN, OTHER)), "tenant"),
    ],
    ids=["it is of another", "it serves another", "it serves another too", "it reports for another", "it becomes one"],
)
def test_a_worker_of_one_tenant_has_no_word_in_another(far: Service, frames: tuple[Any, ...], path: str):
    answer = play(far, sync(far, token("worker", OWN), "", *frames))
    assert isinstance(answer, Refused)
    assert (answer.code, answer.path) == ("auth.tenant", path)


def test_a_worker_of_one_tenant_is_known_to_that_tenant_alone(far: Service):
    assert isinstance(play(far, sync(far, token("worker", OWN), "", greeting(OWN, worker="own"))), CoordinatorFrame)
    answer = play(far, sync(far, token("worker", ANY), "", greeting(OTHER, OTHER, worker="of other")))
    assert isinstance(answer, CoordinatorFrame)

    async def names(tenant: str) -> set[str]:
        async with connected(far, token("reader", tenant)) as connection:
            return {worker.id for worker in await connection.ask(qs.ListWorkers(tenant=tenant))}

    assert {"own", "of other"} & play(far, names(OWN)) == {"own"}
    assert {"own", "of other"} & play(far, names(OTHER)) == {"of other"}


def test_a_worker_for_any_tenant_that_named_one_serves_that_one(far: Service):
    refused = play(far, sync(far, token("worker", ANY), OWN, greeting(OTHER, worker="narrowed")))
    assert isinstance(refused, Refused)
    assert refused.code == "auth.tenant"
    assert isinstance(
        play(far, sync(far, token("worker", ANY), OWN, greeting(OWN, worker="narrowed"))), CoordinatorFrame
    )


def test_a_watcher_who_is_refused_loses_nothing_but_that(far: Service):
    async def scene() -> None:
        async with connected(far, token("worker", OWN)) as connection:
            watching = connection.watch("x")
            with pytest.raises(Interrupted):
                await anext(watching)
            await connection.ask(GetService(tenant=OWN))
            assert not connection.is_lost

    play(far, scene())


def test_what_was_begun_for_one_tenant_does_not_go_on_when_the_token_is_anothers(tmp_path: Path):
    accepted = tmp_path / "tokens"
    accepted.write_text(f"reader@{OWN}:the-token\n")
    now = [wall_clock()]
    one = Service(tmp_path)
    one.tokens = Gate(Auth(token_file=str(accepted)), lambda: now[0])  # pyright: ignore[reportAttributeAccessIssue] - the real one

    async def scene() -> None:
        async with connected(one, "the-token") as connection:
            assert connection.tenant == OWN
            watching = connection.watch("x")
            await connection.ask(qs.ListRuns(tenant=OWN))
            accepted.write_text(f"reader@{OTHER}:the-token\n")
            now[0] += 60_000
            with pytest.raises(Unavailable, match=r"leader\.none: .*\btoken\b"):
                await connection.ask(qs.ListRuns(tenant=OWN))
            with pytest.raises(Interrupted):
                await anext(watching)
        async with connected(one, "the-token") as connection:
            assert connection.tenant == OTHER

    try:
        one.thread.call(one.start())
        play(one, scene())
    finally:
        one.thread.call(one.stop())
        one.thread.stop()
