"""Requests and answers as bytes: each comes back as it was, and bytes that are none are refused."""

import msgspec
import pytest

from rota.core import backlog as bl
from rota.core import commands as cm
from rota.core import history as hs
from rota.core import questions as qs
from rota.core.calendar import ScheduleSpec
from rota.core.errors import Refused, Unavailable
from rota.core.ids import BlobRef
from rota.core.model import Capacity, FailureClass, Graph, Mood, Param, Pool, PriorityClass, Queue, TaskSpec, Tenant
from rota.core.overview import GetOverview
from rota.core.reasons import Reason
from rota.core.records import Audit, Growth, Run, Story, Task, Version, Workflow
from rota.core.states import Phase, RunState, TaskState
from rota.wire import sessions as ss
from rota.wire.items import ResolveWork, SubmitWork, WorkItem
from rota.wire.large_requests import number_of
from rota.wire.requests import (
    LENGTH_BYTES,
    AnyQuestion,
    AwaitRun,
    FindBundle,
    Forget,
    GetService,
    InspectService,
    LogLines,
    LogMatches,
    LogPiece,
    PutBundle,
    ReadBlob,
    ReadLog,
    ReadLogLines,
    Request,
    SearchLog,
    ServiceInside,
    ServiceView,
    Watch,
    answered,
    open_answer,
    pack,
    pack_message,
    read_request,
    read_response,
    troubled,
)
from rota.wire.standings import GetStream, ListStreams, Progress, Step, StreamsView, StreamView
from tests.refusals import refused

GRAPH = Graph(name="g", tasks=(TaskSpec(id="a", work=b"\x00\xff", upstream=("b",)), TaskSpec(id="b")))
BY = {"tenant": "t", "command_id": "c", "salt": 7}
REQUESTS = [
    cm.SubmitRun(**BY, run="r", graph=GRAPH, params=b"\x80", priority=PriorityClass.HIGH),
    cm.CancelRun(**BY, run="r", reason="why"),
    cm.PauseRun(**BY, run="r", paused=False),
    cm.ClearTasks(**BY, run="r", tasks=("a",), downstream=False),
    cm.MarkTasks(**BY, run="r", tasks=("a",), to=cm.Mark.SKIPPED),
    cm.RetryTasks(**BY, run="r", tasks=("a",)),
    cm.NoteTask(**BY, run="r", task="a", note="look"),
    cm.MoveRun(**BY, run="r", version=2),
    cm.DeployWorkflow(**BY, graph=GRAPH, params=(Param(name="p", default=b"\xc0"),), source="a.py:1", paused=True),
    cm.PauseWorkflow(**BY, workflow="w"),
    cm.DropWorkflow(**BY, workflow="w"),
    cm.StartBackfill(**BY, backfill="b", workflow="w", start_at=1, end_at=2, params=b"\x80"),
    cm.CancelBackfill(**BY, backfill="b"),
    cm.GrowRun(**BY, run="r", specs=(TaskSpec(id="c"),)),
    cm.ResolveTask(**BY, run="r", task="a", exit=cm.Exit.FAIL),
    cm.LoseOutputs(**BY, run="r", tasks=("a",)),
    cm.PutQueue(**BY, queue=Queue(tenant="t", name="q")),
    cm.PutPool(**BY, pool=Pool(tenant="t", name="p", slots=3)),
    cm.DropPool(**BY, name="p"),
    cm.PutSchedule(**BY, schedule="s", graph=GRAPH, spec=ScheduleSpec(cron="0 * * * *")),
    cm.DropSchedule(**BY, schedule="s"),
    cm.DrainWorker(**BY, worker="w"),
    cm.EndQuarantine(**BY, worker="w"),
    cm.ForgetWorker(**BY, worker="w"),
    cm.ClaimTask(**BY, worker="w", incarnation="i"),
    cm.ReleaseTasks(**BY, run="r", tasks=("a",), reason="why"),
    cm.ApproveRun(**BY, run="r", approved=False),
    cm.PauseScheduler(**BY, scope="workspace=w"),
    SubmitWork(tenant="t", command_id="c", item="i", work=WorkItem(title="do", requires=("review",))),
    ResolveWork(tenant="t", command_id="c", item="i", requires=("review",), owner=""),
    ss.RegisterSession(tenant="t", session="s", capabilities=("c",), limit=2),
    ss.BeatSession(tenant="t", session="s", mood=Mood.PROMPTING),
    ss.EndSession(tenant="t", session="s"),
    ss.AwaitWake(tenant="t", session="s", wait_ms=5),
    ss.ClaimWork(tenant="t", session="s", command_id="c", least=PriorityClass.HIGH, channel="x"),
    ss.RenewWork(tenant="t", session="s", fence=7, token="secret"),
    ss.FinishWork(tenant="t", session="s", item="r", fence=7, token="secret", ending=ss.Ending.FAIL, error="oops"),
    bl.GetScheduler(tenant="t"),
    bl.ListBacklog(tenant="t", scope="workspace=w", limit=3),
    qs.GetRun(tenant="t", run="r"),
    qs.ListRuns(tenant="t", states=(RunState.FAILED,), limit=3),
    qs.ListTasks(tenant="t", run="r", names=("a",), states=(TaskState.QUEUED,)),
    qs.ListWorkers(tenant="t"),
    qs.ExplainTask(tenant="t", run="r", task="a"),
    qs.ListQueues(tenant="t"),
    qs.ListPools(tenant="t"),
    hs.HistoryQuery(tenant="t", name="n", states=(RunState.FAILED,), after="x"),
    hs.GetEnded(tenant="t", run="r", created_at=4),
    hs.ListAudits(tenant="t", before=4, limit=2),
    qs.ListTenants(tenant="t"),
    qs.GetWorkflow(tenant="t", workflow="w"),
    qs.ListWorkflows(tenant="t"),
    qs.ListBackfills(tenant="t"),
    qs.PreviewClear(tenant="t", run="r", tasks=("a",), only_failed=True),
    cm.PutTenant(**BY, weight=3),
    hs.GetGraph(tenant="t", digest="d"),
    hs.GetStories(tenant="t", run="r", created_at=4, first=2),
    ReadLog(tenant="t", run="r", task="a", attempt=2, cursor="c"),
    ReadLogLines(tenant="t", run="r", task="a", attempt=2, log="2-7", first=3, count=4),
    SearchLog(tenant="t", run="r", task="a", attempt=2, log="2-7", text="x", first=3, limit=4),
    ReadBlob(tenant="t", ref=BlobRef("t/r", 4, "ff"), offset=2),
    PutBundle(tenant="t", sha256="ff", content=b"PK\xff"),
    FindBundle(tenant="t", sha256="ff", size=3),
    GetService(tenant="t"),
    GetOverview(tenant="t"),
    qs.SumTasks(tenant="t", run="r", names=("a", "b")),
    InspectService(tenant="t"),
    AwaitRun(tenant="t", run="r"),
    cm.SteerStream(**BY, stream="s", verb="restore", which="4"),
    ListStreams(tenant="t", run="r"),
    GetStream(tenant="t", stream="s"),
    Watch("t", "r"),
    Forget(4),
]

RUN = qs.RunView(
    tenant="t",
    id="r",
    name="n",
    kind="workflow",
    graph="digest",
    state=RunState.RUNNING,
    priority=PriorityClass.LOW,
    created_at=1,
    started_at=2,
    ended_at=0,
    paused=True,
    reason="",
    fault="",
    schedule="",
    slot_at=0,
    parent="",
    params=b"\xff",
    total=2,
    tasks={"queued": 2},
    story=3,
)
TASK = qs.TaskView(
    run="r",
    idx=1,
    id="a",
    kind="python",
    state=TaskState.FAILED,
    phase=Phase.FAILED,
    attempt=2,
    interruptions=0,
    worker="w",
    fence=1 << 60,
    eligible_at=1,
    assigned_at=2,
    started_at=3,
    ended_at=4,
    due_at=0,
    failure=FailureClass.USER,
    error="oops ✗",
    result=b"\x00\xff",
)
WORKER = qs.WorkerView(
    tenant="t",
    id="w",
    incarnation="i",
    capacity=Capacity(slots=2, kinds=("python",)),
    present=True,
    draining=False,
    quarantined_until=0,
    seen_at=9,
    leases=1,
)
WORKFLOW = qs.WorkflowView(
    workflow=Workflow("t", "w", 2, "d", (Version(2, "d", 5, "me", (Param(name="p"),)),), True, "a.py:1", "doc", 2),
    schedule=ScheduleSpec(cron="@daily", zone="Europe/Berlin"),
    next_at=7,
    last_slot_at=None,
    active_runs=1,
    waiting_runs=2,
    max_active_runs=3,
    tasks=4,
)
BACKFILL = qs.BackfillView(
    id="b", workflow="w", version=2, start_at=1, end_at=9, max_active_runs=4, made=2, active=1, left=3
)
STREAM = StreamView(
    name="s",
    folder="/s/s",
    state="running",
    progress=(Progress(operator="w", watermark_at=1, lag_ms=2), Progress(operator="x")),
    counts={"s.rows": 4},
    steps=(Step(at=3, rows=4, lag_ms=None),),
)
ANSWERS = [
    (qs.GetRun(tenant="t", run="r"), RUN),
    (qs.ListRuns(tenant="t"), qs.RunsPage((RUN,), "r")),
    (qs.ListTasks(tenant="t", run="r"), qs.TasksPage((TASK,), 5)),
    (qs.ListWorkers(tenant="t"), (WORKER,)),
    (qs.ExplainTask(tenant="t", run="r", task="a"), (Reason("pool.full", "text", (("pool", "p"),)),)),
    (qs.ListQueues(tenant="t"), (Queue(tenant="t", name="q"),)),
    (qs.ListPools(tenant="t"), (qs.PoolView(pool=Pool(tenant="t", name="p"), taken=2, by_key={"k": 2}),)),
    (hs.HistoryQuery(tenant="t"), hs.Page((Run("t", "r", "d", "n"),), "next")),
    (hs.GetEnded(tenant="t", run="r"), hs.Ended(Run("t", "r", "d", "n"), (Task("t", "r", 0),), (Growth("t", "r", 0),))),
    (hs.GetEnded(tenant="t", run="r"), None),
    (hs.ListAudits(tenant="t"), hs.AuditsPage((Audit("t", 1, "me", "PutPool", "{}", "c"),), 4)),
    (qs.ListTenants(tenant="t"), (Tenant(tenant="t", weight=2),)),
    (hs.GetGraph(tenant="t", digest="d"), GRAPH),
    (hs.GetStories(tenant="t", run="r", created_at=4), [Story("t", "r", 1, 0, 5, b"told")]),
    (ReadLog(tenant="t", run="r", task="a"), LogPiece(b"\xff", "c")),
    (ReadLogLines(tenant="t", run="r", task="a"), LogLines("2-7", 9, 3, ("a", "error"), (4,))),
    (SearchLog(tenant="t", run="r", task="a"), LogMatches("2-7", (3, 5), 6, is_end=False)),
    (ReadBlob(tenant="t", ref=BlobRef("t/r", 4, "ff")), b"\xff\x00"),
    (PutBundle(tenant="t", sha256="ff", content=b"PK"), BlobRef("t/b", 2, "ff")),
    (FindBundle(tenant="t", sha256="ff", size=2), BlobRef("t/b", 2, "ff")),
    (FindBundle(tenant="t", sha256="ff", size=2), None),
    (qs.GetWorkflow(tenant="t", workflow="w"), WORKFLOW),
    (qs.ListWorkflows(tenant="t"), (WORKFLOW,)),
    (qs.ListBackfills(tenant="t"), (BACKFILL,)),
    (qs.PreviewClear(tenant="t", run="r"), ("a", "b[1]")),
    (cm.DeployWorkflow(**BY, graph=GRAPH), "3"),
    (AwaitRun(tenant="t", run="r"), RUN),
    (GetService(tenant="t"), ServiceView(version="1", blobs="/b", home="h")),
    (
        InspectService(tenant="t"),
        ServiceInside(pid=1, version="1", python="3", role="leader", epoch=2, memory_bytes_max=3, threads={"a": "b"}),
    ),
    (ListStreams(tenant="t"), StreamsView(as_of=4, streams=(STREAM,), folders=("/s",), left_out=1)),
    (GetStream(tenant="t", stream="s"), STREAM),
    (cm.SteerStream(**BY, stream="s", verb="pause"), STREAM),
    (Watch("t", "r"), [Story("t", "r", 1, 0, 5, b"told")]),
    (cm.CancelRun(**BY, run="r"), "r"),
]


def name_of(value: object) -> str:
    return type(value).__name__


@pytest.mark.parametrize("body", REQUESTS, ids=name_of)
def test_every_request_comes_back_as_it_was(body: object):
    request = Request(12, body)  # pyright: ignore[reportArgumentType] - each of the list is one
    message = pack_message(request)
    assert int.from_bytes(message[:LENGTH_BYTES], "big") == len(message) - LENGTH_BYTES
    assert read_request(message[LENGTH_BYTES:]) == request
    assert number_of(message[LENGTH_BYTES:]) == 12


def test_every_request_that_there_is_has_been_tried():
    from rota.core.door import ClientRequest

    kinds = {*ClientRequest.__args__, *AnyQuestion.__args__, Watch, Forget}
    assert {type(body) for body in REQUESTS} == kinds


@pytest.mark.parametrize(("request_", "value"), ANSWERS, ids=name_of)
def test_every_answer_comes_back_as_it_was(request_: object, value: object):
    message = pack_message(answered(3, value))
    response = read_response(message[LENGTH_BYTES:])
    assert response.number == 3
    assert open_answer(request_, response) == value


def test_a_refusal_and_an_unavailability_come_back_as_they_were():
    refused = Refused("run.unknown", "no run 'x'", "Look again.", path="run")
    with pytest.raises(Refused) as caught:
        open_answer(None, read_response(pack_message(troubled(1, refused))[LENGTH_BYTES:]))
    assert str(caught.value) == str(refused)
    away = Unavailable("store.full", "the disk is full.", retry_after_ms=500)
    with pytest.raises(Unavailable) as gone:
        open_answer(None, read_response(pack_message(troubled(1, away))[LENGTH_BYTES:]))
    assert str(gone.value) == str(away)
    assert gone.value.retry_after_ms == 500


def test_a_code_of_a_later_version_is_still_trouble():
    response = troubled(1, Refused("run.unknown", "something new"))
    assert response.trouble is not None
    later = msgspec.structs.replace(response.trouble, code="of.tomorrow")
    with pytest.raises(Refused, match="something new"):
        open_answer(None, msgspec.structs.replace(response, trouble=later))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xc1",
        b"\x00" * 100,
        b"not a message",
        msgspec.msgpack.encode([1, {"type": "Nonsense"}]),
        msgspec.msgpack.encode([1, {"type": "GetRun", "tenant": "t"}]),
        msgspec.msgpack.encode([1, {"type": "GetRun", "tenant": "t", "run": 5}]),
        msgspec.msgpack.encode([1, {"type": "GetRun", "tenant": "t", "run": "r", "more": 1}]),
        msgspec.msgpack.encode(["x", {"type": "GetRun", "tenant": "t", "run": "r"}]),
        msgspec.msgpack.encode({"number": 1}),
        b"\x91" * 100_000,
        b"\x92\x01\xd9\x02\xff\xff",
    ],
    ids=range(12),
)
def test_bytes_that_are_no_request_are_refused(content: bytes):
    with pytest.raises(Refused, match=r"field\.type: "):
        read_request(content)
    assert number_of(content) in (0, 1)


def test_the_number_is_read_from_a_request_that_is_not_understood():
    assert number_of(msgspec.msgpack.encode([9, {"type": "OfTomorrow"}])) == 9
    assert number_of(msgspec.msgpack.encode("x")) == 0


def test_a_name_that_is_not_utf8_is_refused_before_it_is_sent():
    for packed in (pack, pack_message):
        with refused("field.value", repr("\udcff\udcfe"), "UTF-8"):
            packed(Request(1, qs.GetRun(tenant="t", run="\udcff\udcfe")))
