"""Reading: what is answered about runs, tasks and workers, and in what order."""

import pytest

from rota.core import questions as qs
from rota.core.errors import Refused
from rota.core.states import RunState, TaskState
from tests.unit.core.world import TENANT, World, graph, task


def ask(world: World, question: qs.Question) -> object:
    return qs.answer(world.state, question, world.now)


def run_ids(world: World, **fields: object) -> tuple[list[str], str]:
    page = ask(world, qs.ListRuns(tenant=TENANT, **fields))
    assert isinstance(page, qs.RunsPage)
    return [run.id for run in page.runs], page.next


def task_ids(world: World, **fields: object) -> tuple[list[str], int]:
    page = ask(world, qs.ListTasks(tenant=TENANT, run="r", **fields))
    assert isinstance(page, qs.TasksPage)
    return [each.id for each in page.tasks], page.next


def test_a_run_says_how_many_of_its_tasks_are_where():
    world = World()
    world.worker("w", slots=2)
    world.submit(graph(task("a", width=3), task("b", "a")))
    world.start(world.turn()[0])
    view = ask(world, qs.GetRun(tenant=TENANT, run="r"))
    assert isinstance(view, qs.RunView)
    assert view.state is RunState.RUNNING
    assert (view.total, view.tasks) == (4, {"running": 1, "assigned": 1, "queued": 1, "none": 1})


def test_runs_come_newest_first_and_in_pages():
    world = World()
    for number in range(5):
        world.submit(graph(task("a"), name="odd" if number % 2 else "even"), run=f"r{number}")
    world.submit(task("a"), run="other", tenant="somebody else")
    assert run_ids(world) == (["r4", "r3", "r2", "r1", "r0"], "")
    assert run_ids(world, limit=2) == (["r4", "r3"], "r3")
    assert run_ids(world, limit=2, after="r3") == (["r2", "r1"], "r1")
    assert run_ids(world, limit=2, after="r1") == (["r0"], "")
    assert run_ids(world, name="odd") == (["r3", "r1"], "")
    assert run_ids(world, states=(RunState.FAILED,)) == ([], "")


def test_tasks_are_found_by_name_group_state_and_page():
    world = World()
    world.submit(graph(task("a"), task("m", width=3), task("z", "m")))
    world.follow_up()
    assert task_ids(world) == (["a", "m[0]", "m[1]", "m[2]", "z"], -1)
    assert task_ids(world, limit=2) == (["a", "m[0]"], 2)
    assert task_ids(world, limit=2, first=2) == (["m[1]", "m[2]"], 4)
    assert task_ids(world, names=("m[1]", "z")) == (["m[1]", "z"], -1)
    assert task_ids(world, names=("m",)) == (["m[0]", "m[1]", "m[2]"], -1)
    assert task_ids(world, states=(TaskState.NONE,)) == (["z"], -1)


def test_why_is_asked_of_one_task_of_a_group():
    world = World()
    world.submit(task("m", width=3))
    world.follow_up()
    reasons = ask(world, qs.ExplainTask(tenant=TENANT, run="r", task="m[2]"))
    assert isinstance(reasons, tuple)
    assert reasons[0].code == "worker.none_registered"


def test_workers_of_others_are_not_shown():
    world = World()
    world.worker("mine")
    world.worker("theirs", tenants=("somebody else",))
    shown = ask(world, qs.ListWorkers(tenant=TENANT))
    assert isinstance(shown, tuple)
    assert [worker.id for worker in shown] == ["mine"]


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (qs.GetRun(tenant=TENANT, run="nobody"), "run.unknown"),
        (qs.GetRun(tenant="somebody else", run="r"), "run.unknown"),
        (qs.ListTasks(tenant=TENANT, run="r", names=("nothing",)), "task.unknown"),
        (qs.ListTasks(tenant=TENANT, run="r", limit=0), "field.value"),
        (qs.ListTasks(tenant=TENANT, run="r", first=-1), "field.value"),
        (qs.ListRuns(tenant=TENANT, limit=10**9), "field.value"),
        (qs.ExplainTask(tenant=TENANT, run="r", task="nothing"), "task.unknown"),
    ],
)
def test_what_is_not_there_is_refused(question: qs.Question, code: str):
    world = World()
    world.submit(task("a"))
    with pytest.raises(Refused) as refused:
        ask(world, question)
    assert refused.value.code == code


def test_a_group_that_is_asked_for_by_name_comes_in_pages_that_end():
    world = World()
    world.submit(graph(task("a"), task("each", width=5)))
    world.follow_up()
    found: list[str] = []
    first = 0
    while first >= 0:
        page = qs.answer(
            world.state, qs.ListTasks(tenant=TENANT, run="r", names=("each",), first=first, limit=2), world.now
        )
        assert isinstance(page, qs.TasksPage)
        found += [each.id for each in page.tasks]
        first = page.next
    assert found == [f"each[{number}]" for number in range(5)]
