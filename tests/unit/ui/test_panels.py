"""What a kind adds to the page of a run: stages of a query, an action of a build, an item of agents."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from rota.client.runs import Client
from rota.core.changes import RunGrew
from rota.core.history import GetGraph, GetStories
from rota.core.ids import BlobRef, Digest
from rota.core.model import Graph, TaskSpec
from rota.core.questions import ListTasks, RunView, TasksPage, TaskView
from rota.core.records import Growth, Story
from rota.core.states import TaskState
from rota.ui.panels import PANELS, Panel, read_panel
from rota.ui.phases import phases_of
from rota.ui.reading import Memory, Reader
from rota.wire.builds import BUILD, BuildResult, BuildWork, encode_build
from rota.wire.queries import (
    KEPT,
    QUERY,
    Answered,
    Fragment,
    Hashed,
    KeptAnswer,
    Part,
    StageOutput,
    encode_fragment,
    encode_kept,
    encode_output,
)
from rota.wire.reapi.remote_execution_pb2 import ActionResult
from rota.wire.work import StoredValue, Value, encode_value, plain
from tests.unit.ui.views import run_view, task_view


class Told:
    """A line that knows one graph and the tasks of one run."""

    tenant = "t"

    def __init__(self, graph: Graph, *tasks: TaskView, stories: Sequence[Story] = ()) -> None:
        self._graph = graph
        self._tasks = tasks
        self._stories = list(stories)

    async def ask(self, request: Any) -> Any:
        match request:
            case GetGraph():
                return self._graph
            case ListTasks():
                return TasksPage(self._tasks[request.first : request.first + request.limit])
            case GetStories():
                return self._stories
            case _:
                raise AssertionError(request)

    def watch(self, run: str) -> Any:
        raise AssertionError("nothing is watched")


def panel(view: RunView, graph: Graph, *tasks: TaskView, stories: Sequence[Story] = ()) -> Panel:
    reader = Reader(Client(Told(graph, *tasks, stories=stories)), Memory())
    found = asyncio.run(read_panel(reader, view))
    assert found is not None
    return found


def fragment(output: Any) -> bytes:
    return encode_fragment(Fragment(engine="x", output=output, schema=b""))


def scanned(rows: int) -> bytes:
    parts = (Part(0, 100 * rows, rows), Part(1, 50, 1))
    return encode_output(StageOutput("root", "folder", parts, rows=rows + 1))


def test_a_query_shows_the_rows_and_bytes_of_each_stage():
    graph = Graph(
        name="query",
        kind=QUERY,
        tasks=(
            TaskSpec(id="scan", width=2, work=fragment(Hashed(2))),
            TaskSpec(id="answer", upstream=("scan",), work=fragment(Answered())),
        ),
    )
    kept = encode_kept(KeptAnswer("grpc://x", "f", Part(0, 64, 7), "ticket"))
    tasks = (
        task_view(idx=0, id="scan[0]", result=scanned(10), started_at=5, ended_at=2_005),
        task_view(idx=1, id="scan[1]", state=TaskState.RUNNING, started_at=9),
        task_view(idx=2, id="answer", result=encode_value(Value(KEPT, kept))),
    )
    found = panel(run_view(kind=QUERY), graph, *tasks)
    scan, answer = found.given.stages
    assert (scan.sort, scan.rows, scan.bytes, scan.counts) == ("hashed", 11, 1_050, {"success": 1, "running": 1})
    assert (scan.share, scan.took) == (100.0, "2.0 s")
    assert (answer.sort, answer.reads, answer.rows, answer.bytes) == ("answered", ("scan",), 7, 64)


def test_an_answer_that_travelled_or_was_stored_has_bytes_and_no_rows():
    graph = Graph(name="query", kind=QUERY, tasks=(TaskSpec(id="answer", width=3, work=fragment(Answered())),))
    tasks = (
        task_view(id="answer[0]", result=encode_value(Value("arrow", b"12345"))),
        task_view(id="answer[1]", result=encode_value(StoredValue("arrow", BlobRef("x", 1_000, "0" * 64)))),
        task_view(id="answer[2]", result=b"\xc1 nothing that can be read"),
    )
    (stage,) = panel(run_view(kind=QUERY), graph, *tasks).given.stages
    assert (stage.bytes, stage.has_rows) == (1_005, False)


def test_a_query_that_went_on_as_stages_shows_them_and_the_plan_that_they_carry():
    asked = Graph(name="query", kind=QUERY, tasks=(TaskSpec(id="answer", work=b"no fragment"),))
    last = encode_fragment(Fragment(engine="x", output=Answered(), schema=b"", texts=(("Logical plan", "Filter"),)))
    stages = (
        TaskSpec(id="answer.scan", width=2, work=fragment(Hashed(2))),
        TaskSpec(id="answer.last", upstream=("answer.scan",), work=last),
    )
    grew = RunGrew("t", "r", Growth("t", "r", 0, stages, feeds="answer"), 5)
    story = Story("t", "r", 1, 0, 5, msgspec.msgpack.encode([grew]))
    given = panel(run_view(kind=QUERY, total=4), asked, stories=(story,)).given
    assert [(stage.name, stage.sort) for stage in given.stages[1:]] == [
        ("answer.scan", "hashed"),
        ("answer.last", "answered"),
    ]
    assert given.plan == (("Logical plan", "Filter"),)


def test_the_plan_of_a_query_of_one_task_is_with_its_first_rows_whatever_else_these_are():
    asked = Graph(name="query", kind=QUERY, tasks=(TaskSpec(id="answer"), TaskSpec(id="preview")))
    for value, plan in (
        ({"rows": [], "plan": [["Physical plan", "Scan"]]}, (("Physical plan", "Scan"),)),
        ({"plan": [1, 2]}, ()),
        (["plan"], ()),
        (None, ()),
    ):
        looked = task_view(id="preview", idx=1, result=encode_value(plain(value)))
        assert panel(run_view(kind=QUERY, total=2), asked, looked).given.plan == plan


def action(**times: int) -> bytes:
    result = ActionResult()
    for name, at in times.items():
        getattr(result.execution_metadata, f"{name}_timestamp").FromMilliseconds(at)
    return encode_build(BuildResult(result=result.SerializeToString(), exit_code=3, worker="w"))


def test_a_build_shows_its_action_and_how_long_each_part_took():
    work = BuildWork(instance="main", action=Digest("ab" * 32, 5), content="grpc://x", target="//a:b", mnemonic="Cc")
    times = action(
        input_fetch_start=1_000,
        input_fetch_completed=1_500,
        execution_start=1_500,
        execution_completed=3_500,
        output_upload_start=3_500,
        output_upload_completed=3_510,
    )
    graph = Graph(name=BUILD, kind=BUILD, tasks=(TaskSpec(id="action", kind=BUILD),))
    found = panel(run_view(kind=BUILD, params=encode_build(work)), graph, task_view(kind=BUILD, result=times))
    assert (found.given.work.target, found.given.result.exit_code) == ("//a:b", 3)
    assert found.given.phases == [("fetch", "500 ms"), ("run", "2.0 s"), ("upload", "10 ms")]


def test_what_cannot_be_read_has_no_phases():
    assert phases_of(task_view(kind=BUILD, result=b"\xc1")) == ()
    assert phases_of(task_view(kind=BUILD, result=encode_build(BuildResult(result=b"\xff\xff")))) == ()
    assert phases_of(task_view(kind="command", result=action(execution_start=1, execution_completed=2))) == ()


def test_an_item_shows_what_it_asks_for_and_who_has_it():
    spec = TaskSpec(id="work", kind="agent", requires=(("capability", "review"), ("workspace", "ws")))
    graph = Graph(name="work", kind="agent", tasks=(spec,))
    view = run_view(kind="agent", name="work", labels=(("title", "Read it"),), params=msgspec.msgpack.encode({"a": 1}))
    found = panel(view, graph, task_view(id="work", state=TaskState.RUNNING, worker="s1", eligible_at=1))
    item = found.given
    assert (item.title, item.session, item.requires, item.workspace) == ("Read it", "s1", ("review",), "ws")


def test_a_kind_without_a_panel_has_none():
    assert "workflow" not in PANELS
    reader = Reader(Client(Told(Graph(name="g", tasks=(TaskSpec(id="a"),)))), Memory())
    assert asyncio.run(read_panel(reader, run_view())) is None
