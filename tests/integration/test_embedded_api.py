"""What clients do: submit, wait, read, watch; sync and async. Embedded, and with everything in other processes.

The surface is the same, so the tests are.
"""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.client.happenings import Happening
from rota.core.model import Graph, TaskSpec
from tests.integration import jobs
from tests.integration.deadlines import until
from tests.integration.service.pair import Pair
from tests.refusals import refused


@pytest.fixture(
    params=[pytest.param("memory", marks=pytest.mark.full), "folder", pytest.param("remote", marks=pytest.mark.full)]
)
def quick(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[rota.Rota]:
    """Tasks in threads, with the data in memory and then in a folder; and a service of real processes."""
    if request.param == "remote":
        with request.getfixturevalue("pair").connect() as one:
            yield one
        return
    folder = tmp_path / "data" if request.param == "folder" else None
    with rota.Rota.embedded(folder, threads=True, slots=4) as one:
        yield one


@rota.workflow
def sums(first: int = 1, second: int = 2):
    jobs.total([jobs.add(first, second), jobs.add(second, second)])


def test_a_graph_is_run_and_its_last_task_is_the_result(quick: rota.Rota):
    run = quick.submit(sums, {"second": 5})
    assert run.result() == 16
    assert run.id.startswith("sums-")
    view = run.status()
    assert (view.state, view.name, view.tasks, view.total) == ("success", "sums", {"success": 3}, 3)
    assert view.ended_at >= view.created_at > 0


def test_a_graph_is_run_in_processes_and_by_commands(in_processes: rota.Rota):
    @rota.workflow
    def mixed(word: str):
        said = rota.command(["/bin/echo", "from a command"], id="said")
        made = jobs.point(4)
        jobs.identity({"word": word, "said": said, "points": (made, [made])})

    result = in_processes.submit(mixed, {"word": "hello"}).result()
    point = jobs.Point(4)
    assert result == {"word": "hello", "said": "from a command", "points": (point, [point])}


@pytest.mark.parametrize("place", ["embedded", "remote"])
def test_the_async_surface_does_the_same(place: str, request: pytest.FixtureRequest):
    pair: Pair | None = request.getfixturevalue("pair") if place == "remote" else None

    async def open_rota() -> rota.AsyncRota:
        if pair is not None:
            return await rota.AsyncRota.connect(pair.url, tenant=pair.tenant())
        return await rota.AsyncRota.embedded(threads=True)

    async def use() -> tuple[Any, list[str], list[str]]:
        async with await open_rota() as one:
            run = await one.submit(sums)
            result = await run.result()
            seen = [event.state async for event in run.events() if event.task is None]
            return result, seen, [view.id for view in await one.runs()]

    result, seen, runs = asyncio.run(use())
    assert (result, seen) == (7, ["queued", "running", "success"])
    assert len(runs) == 1


def test_a_task_alone_is_a_graph_and_its_arguments_are_the_parameters(quick: rota.Rota):
    assert quick.submit(jobs.identity, {"value": [1, "two"]}).result() == [1, "two"]
    with pytest.raises(rota.Refused, match="the parameter 'value' is missing"):
        quick.submit(jobs.identity)


def test_a_bare_graph_and_a_bare_task_can_be_submitted_too(in_processes: rota.Rota):
    spec = TaskSpec(id="hello", kind="command", work=b"")
    assert in_processes.submit(spec).wait(20).state == "failed"
    assert in_processes.submit(Graph(name="named", tasks=(spec,))).wait(20).name == "named"


def test_what_is_no_graph_is_refused_with_what_to_do(quick: rota.Rota):
    with refused("field.type", "@rota.workflow", path="graph"):
        quick.submit(len)  # pyright: ignore[reportArgumentType] - on purpose


def test_the_result_of_a_task_by_name_and_of_a_group(quick: rota.Rota):
    run = quick.submit(sums)
    assert run.result("add_2") == 4
    with pytest.raises(rota.Refused, match=r"task\.unknown: run .* has no task 'subtract'"):
        run.result("subtract")
    wide = Graph(name="wide", tasks=(_wide("each", 3),))
    assert quick.submit(wide).result("each") == [None, None, None]
    assert quick.submit(wide).result() == [None, None, None]
    assert quick.submit(wide).result("each[1]") is None


def _wide(id: str, width: int) -> TaskSpec:
    (spec,) = jobs.nothing.build().tasks
    return TaskSpec(id=id, kind=spec.kind, work=spec.work, width=width)


def test_with_several_last_tasks_one_has_to_be_named(quick: rota.Rota):
    @rota.workflow
    def forked():
        jobs.add(1)
        jobs.add(2)

    run = quick.submit(forked)
    with pytest.raises(rota.Refused, match=r"has 2 last tasks: add, add_2 .* Name the one"):
        run.result()
    assert (run.result("add"), run.result("add_2")) == (1, 2)


def test_a_run_that_fails_says_so_and_its_tasks_say_why(quick: rota.Rota):
    @rota.workflow
    def failing():
        jobs.identity(jobs.fail("no such column"))

    run = quick.submit(failing)
    with pytest.raises(rota.RunFailed, match=r"\bfail$") as caught:
        run.result()
    assert caught.value.run.state == "failed"
    with pytest.raises(rota.Refused, match=r"task 'fail' is failed(.|\n)*ValueError: no such column"):
        run.result("fail")
    failed, never = run.tasks()
    assert (failed.state, failed.failure, never.state) == ("failed", "user", "upstream_failed")
    assert "ValueError: no such column" in failed.error
    assert "perform" not in failed.error, "only the user's frames"
    assert [task.id for task in run.tasks(states=("upstream_failed",))] == ["identity"]


def test_waiting_may_end_before_the_run_does(quick: rota.Rota, tmp_path: Path):
    run = quick.submit(jobs.held, {"folder": str(tmp_path), "name": "slow"})
    with pytest.raises(TimeoutError):
        run.wait(timeout_s=0.01)
    assert run.status().state == "running"
    (tmp_path / "slow.go").touch()
    assert run.wait().state == "success"


def test_the_same_command_id_makes_one_run(quick: rota.Rota):
    first = quick.submit(sums, command_id="nightly")
    again = quick.submit(sums, command_id="nightly")
    assert first.id == again.id
    first.wait()
    assert quick.submit(sums, command_id="nightly").id == first.id, "also when the graph is known by then"
    assert len(quick.runs()) == 1


def test_a_run_id_is_given_once(quick: rota.Rota):
    assert quick.submit(sums, run="mine").id == "mine"
    with pytest.raises(rota.Refused, match=r"run\.exists"):
        quick.submit(sums, run="mine")


def test_runs_are_listed_newest_first_and_by_name_and_state(quick: rota.Rota):
    for name in ("a", "b"):
        quick.submit(sums, run=name).wait()
    quick.submit(jobs.fail, {"text": "x"}, run="c").wait()
    assert [view.id for view in quick.runs()] == ["c", "b", "a"]
    assert [view.id for view in quick.runs(limit=1)] == ["c"]
    assert [view.id for view in quick.runs(name="sums")] == ["b", "a"]
    assert [view.id for view in quick.runs(states=("failed",))] == ["c"]
    with refused("field.value", "'lost'", path="states"):
        quick.runs(states=("lost",))


def test_parameters_that_cannot_be_sent_are_refused(quick: rota.Rota):
    with refused("field.type", path="params"):
        quick.submit(jobs.identity, {"value": object()})
    with refused("field.value", "'soonish'", "urgent, high, normal, low", path="priority"):
        quick.submit(sums, priority="soonish")


def test_an_unknown_run_is_refused_however_one_asks(quick: rota.Rota):
    run = quick.run("nobody")
    for ask in (run.status, run.wait, run.result, run.tasks, run.story, run.cancel, lambda: run.why("x")):
        with pytest.raises(rota.Refused, match=r"run\.unknown"):
            ask()
    for walk in (run.events(), run.logs("x")):
        with pytest.raises(rota.Refused, match=r"run\.unknown"):
            next(walk)


def test_skipping_failing_for_good_and_coroutines(quick: rota.Rota):
    @rota.workflow
    def ends():
        jobs.skip()
        jobs.give_up.override(retries=5)()
        jobs.soon(7)

    run = quick.submit(ends)
    assert run.result("soon") == 7
    assert [(task.state, task.attempt) for task in run.tasks()] == [("skipped", 1), ("failed", 1), ("success", 1)]
    assert quick.submit(jobs.soon, {"value": 3}).result() == 3


def test_tasks_can_be_cleared_and_run_again(quick: rota.Rota, tmp_path: Path):
    @rota.workflow
    def pair():
        jobs.step(str(tmp_path), "b", jobs.step(str(tmp_path), "a"))

    run = quick.submit(pair)
    run.wait()
    run.clear("step_2")
    run.wait()
    assert jobs.effects(tmp_path) == {"a": 1, "b": 2}
    states = [event.state for event in run.events() if event.task is None and event.state]
    assert states == ["queued", "running", "success", "queued", "running", "success"]


def test_the_story_is_told_in_lines_with_names(quick: rota.Rota):
    run = quick.submit(sums)
    run.wait()
    assert run.story()[0].endswith("RunSubmitted")
    assert any("LeaseGranted" in line and "add_2" in line for line in run.story())
    about = run.story("add_2")
    assert about
    assert all("add_2" in line for line in about)
    with pytest.raises(rota.Refused, match=r"task\.unknown"):
        run.story("nobody")


def moves(events: list[Happening]) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    for event in events:
        if event.state:
            found.setdefault(event.task, []).append(event.state)
    return found


FULL = {
    None: ["queued", "running", "success"],
    "add": ["queued", "assigned", "running", "success"],
    "add_2": ["queued", "assigned", "running", "success"],
    "total": ["queued", "assigned", "running", "success"],
}


def test_events_are_complete_and_in_order_whenever_watching_begins(quick: rota.Rota):
    run = quick.submit(sums)
    live = list(run.events())
    assert moves(live) == FULL
    assert [event.at for event in live] == sorted(event.at for event in live)
    assert list(run.events()) == live, "afterwards the same, from the story"
    assert {event.idx for event in live if event.task == "total"} == {2}


def test_events_that_begin_in_the_middle_have_what_was_before(quick: rota.Rota, tmp_path: Path):
    @rota.workflow
    def chain():
        jobs.held(str(tmp_path), "b", jobs.step(str(tmp_path), "a"))

    run = quick.submit(chain)
    until(lambda: "b began" in jobs.effects(tmp_path), "the second task to begin")
    seen: list[Happening] = []
    watcher = threading.Thread(target=lambda: seen.extend(run.events()))
    watcher.start()
    until(lambda: any(event.task == "step" and event.state == "success" for event in seen), "what was before")
    (tmp_path / "b.go").touch()
    watcher.join(20)
    assert moves(seen)["held"][-1] == "success"
    assert seen[-1].what == "RunEnded"


def test_many_watchers_see_the_same(quick: rota.Rota):
    run = quick.submit(sums)
    seen: list[list[Happening]] = [[] for _ in range(5)]
    threads = [threading.Thread(target=lambda to=to: to.extend(run.events())) for to in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert all(each == seen[0] for each in seen)
    assert moves(seen[0]) == FULL


def test_whoever_stops_watching_early_disturbs_nobody(quick: rota.Rota):
    run = quick.submit(sums)
    walk = run.events()
    assert next(walk).what == "RunSubmitted"
    walk.close()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
    assert run.wait().state == "success"


def test_the_worker_and_its_slots_are_shown(quick: rota.Rota):
    (worker,) = until(lambda: [each for each in quick.workers() if each.present], "the worker to register")
    assert (worker.present, worker.capacity.slots, worker.capacity.kinds) == (
        True,
        4,
        ("python", "command", "http", "build", "query"),
    )
