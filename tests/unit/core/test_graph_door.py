"""The door: what cannot be run is refused with a code, the path to the field and a hint, and leaves nothing behind."""

import pytest

from rota.core import commands as cm
from rota.core.bounds import GROWTH_TASKS_MAX, PARAMS_BYTES_MAX, TASKS_PER_GRAPH_MAX, WORK_BYTES_MAX
from rota.core.errors import Refused
from rota.core.graph import check_graph, graph_digest
from rota.core.model import Graph, PoolNeed, RetryPolicy, TaskSpec
from tests.unit.core.world import World, graph, image, task

TWO = (task("a"), task("b", "a"))

REFUSED: list[tuple[str, Graph, str, str]] = [
    ("no tasks", graph(), "graph.empty", "graph.tasks"),
    ("no name", graph(*TWO, name=""), "field.value", "graph.name"),
    ("a name with blanks at its ends", graph(*TWO, name=" g"), "field.value", "graph.name"),
    ("a name of 251 characters", graph(*TWO, name="g" * 251), "field.value", "graph.name"),
    ("a name with a line break", graph(*TWO, name="a\nb"), "field.value", "graph.name"),
    ("no kind", graph(*TWO, kind=""), "field.value", "graph.kind"),
    ("fewer than no runs", graph(*TWO, max_active_runs=-1), "field.value", "graph.max_active_runs"),
    ("more runs than anybody has", graph(*TWO, max_active_runs=10**7), "field.value", "graph.max_active_runs"),
    ("fewer than no tasks", graph(*TWO, max_active_tasks=-1), "field.value", "graph.max_active_tasks"),
    ("a negative time limit", graph(*TWO, run_timeout_ms=-1), "field.value", "graph.run_timeout_ms"),
    ("two tasks of one name", graph(task("a"), task("a")), "graph.duplicate_id", "graph.tasks[1]"),
    ("an unknown upstream", graph(task("a", "b")), "graph.unknown_upstream", "graph.tasks[0].upstream"),
    ("an upstream named twice", graph(task("a"), task("b", "a", "a")), "graph.duplicate_id", "graph.tasks[1].upstream"),
    (
        "an input that is not waited for",
        graph(task("a"), task("b", inputs=("a",))),
        "graph.unknown_upstream",
        "graph.tasks[1].inputs",
    ),
    ("a task that waits for itself", graph(task("a", "a")), "graph.cycle", "graph.tasks"),
    ("a circle", graph(task("a", "c"), task("b", "a"), task("c", "b")), "graph.cycle", "graph.tasks"),
    ("a task without a name", graph(task("")), "field.value", "graph.tasks[0].id"),
    (
        "a task that reads like one of a group",
        graph(task("a", width=2), task("a[0]")),
        "field.value",
        "graph.tasks[1].id",
    ),
    ("such a task without a group", graph(task("a[007]")), "field.value", "graph.tasks[0].id"),
    ("a task without a kind", graph(task("a", kind="")), "field.value", "graph.tasks[0].kind"),
    ("a task without a queue", graph(task("a", queue="")), "field.value", "graph.tasks[0].queue"),
    ("a negative width", graph(task("a", width=-1)), "field.value", "graph.tasks"),
    ("more tasks than a graph may have", graph(task("a", width=TASKS_PER_GRAPH_MAX + 1)), "field.value", "graph.tasks"),
    ("an absurd priority", graph(task("a", priority=10**9)), "field.value", "graph.tasks[0].priority"),
    ("a negative timeout", graph(task("a", timeout_ms=-5)), "field.value", "graph.tasks[0].timeout_ms"),
    ("work too large", graph(task("a", work=b"x" * (WORK_BYTES_MAX + 1))), "field.size", "graph.tasks[0].work"),
    ("too many requirements", graph(task("a", requires=(("k", "v"),) * 33)), "field.value", "graph.tasks[0].requires"),
    ("a requirement without a name", graph(task("a", requires=(("", "v"),))), "field.value", "graph.tasks[0].requires"),
    ("too many pools", graph(task("a", pools=(PoolNeed("p"),) * 9)), "field.value", "graph.tasks[0].pools"),
    ("a pool without a name", graph(task("a", pools=(PoolNeed(""),))), "field.value", "graph.tasks[0].pools[0].pool"),
    ("nothing of a pool", graph(task("a", pools=(PoolNeed("p", 0),))), "field.value", "graph.tasks[0].pools[0].amount"),
    (
        "fewer than no retries",
        graph(task("a", retry=RetryPolicy(retries=-2))),
        "field.value",
        "graph.tasks[0].retry.retries",
    ),
    (
        "a thousand retries of a kind",
        graph(task("a", retry=RetryPolicy(memory_retries=1_000))),
        "field.value",
        "graph.tasks[0].retry.memory_retries",
    ),
    (
        "a negative delay",
        graph(task("a", retry=RetryPolicy(delay_ms=-1))),
        "field.value",
        "graph.tasks[0].retry.delay_ms",
    ),
    (
        "a multiplier of nought",
        graph(task("a", retry=RetryPolicy(multiplier=0))),
        "field.value",
        "graph.tasks[0].retry.multiplier",
    ),
    ("a queue nobody defined", graph(task("a", queue="q")), "queue.unknown", "graph.tasks[0]"),
    ("a pool nobody defined", graph(task("a", pools=(PoolNeed("p"),))), "pool.unknown", "graph.tasks[0]"),
    (
        "a minimum in words",
        graph(task("a", requires=(("cpu_count", "two"),))),
        "requirement.value",
        "graph.tasks[0].requires.cpu_count",
    ),
]


@pytest.mark.parametrize(("what", "whole", "code", "path"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_submission_is_refused_with_its_code_and_path_and_nothing_is_stored(
    what: str, whole: Graph, code: str, path: str
):
    world = World()
    refused = world.refusal(cm.SubmitRun(tenant="t", command_id="c", run="r", graph=whole))
    assert (refused.code, refused.path) == (code, path), what
    assert image(world.state) == {}
    assert not world.state.graphs


def test_a_circle_is_named_in_order_and_alone():
    tail = task("tail", "c")
    with pytest.raises(Refused) as caught:
        check_graph(graph(task("root"), task("a", "root", "c"), task("b", "a"), task("c", "b"), tail))
    named = caught.value.reason.split(": ")[1].split(", ")
    assert sorted(named) == ["a", "b", "c"]
    start = named.index("a")
    assert [named[(start + step) % 3] for step in range(3)] == ["a", "b", "c"]


def test_a_million_tasks_in_a_group_are_not_too_many():
    check_graph(graph(task("a", width=TASKS_PER_GRAPH_MAX)))


def test_a_graph_with_a_task_more_than_allowed_by_unknown_widths_is_refused():
    with pytest.raises(Refused):
        check_graph(graph(task("a", width=TASKS_PER_GRAPH_MAX), task("b", width=0)))


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"run": ""}, "field.value", "run"),
        ({"run": "x" * 300}, "field.value", "run"),
        ({"params": b"x" * (PARAMS_BYTES_MAX + 1)}, "field.size", "params"),
        ({"command_id": ""}, "field.value", "command_id"),
        ({"tenant": ""}, "field.value", "tenant"),
        ({"graph": None, "digest": "nobody"}, "graph.unknown", "digest"),
    ],
)
def test_the_rest_of_a_submission_is_checked_too(fields: dict[str, object], code: str, path: str):
    world = World()
    whole: dict[str, object] = {"tenant": "t", "command_id": "c", "run": "r", "graph": graph(*TWO), **fields}
    refused = world.refusal(cm.SubmitRun(**whole))
    assert (refused.code, refused.path) == (code, path)
    assert image(world.state) == {}


def test_a_run_id_that_lives_is_refused_for_another_run():
    world = World()
    world.submit(graph(*TWO))
    refused = world.refusal(world.command(cm.SubmitRun, run="r", graph=graph(*TWO)))
    assert (refused.code, refused.path) == ("run.exists", "run")
    assert "'r'" in refused.reason and "queued" in refused.reason


def test_tenants_do_not_see_each_others_graphs_runs_and_pools():
    world = World()
    world.submit(graph(*TWO))
    world.pool("p", slots=1)
    assert (
        world.refusal(cm.SubmitRun(tenant="other", command_id="c", run="r", digest=graph_digest(graph(*TWO)))).code
        == "graph.unknown"
    )
    needy = graph(task("a", pools=(PoolNeed("p"),)))
    assert world.refusal(cm.SubmitRun(tenant="other", command_id="c", run="r", graph=needy)).code == "pool.unknown"
    world.submit(graph(*TWO), run="r", tenant="other")


def test_the_same_content_has_the_same_name_and_other_content_another():
    assert graph_digest(graph(*TWO)) == graph_digest(graph(*TWO))
    assert graph_digest(graph(*TWO)) != graph_digest(graph(*TWO, name="h"))
    assert graph_digest(graph(*TWO)) != graph_digest(graph(task("a"), task("b", "a", priority=1)))


# Growth.


def grown(*specs: TaskSpec, **fields: object) -> Refused:
    """The refusal of an addition to a run of a → m (width unknown)."""
    world = World()
    world.worker("w")
    world.submit(graph(task("a"), task("m", "a", width=0)))
    world.turn()
    return world.refusal(world.command(cm.GrowRun, run="r", specs=specs, **fields))


@pytest.mark.parametrize(
    ("specs", "fields", "code", "path"),
    [
        ((), {}, "field.value", "specs"),
        ((task("a"),), {}, "graph.duplicate_id", "specs[0].id"),
        ((task("n"), task("n")), {}, "graph.duplicate_id", "specs[0].id"),
        ((task("n", "nobody"),), {}, "graph.unknown_upstream", "specs[0].upstream"),
        ((task("n", width=GROWTH_TASKS_MAX + 1),), {}, "field.value", "specs"),
        ((task("n", priority=10**9),), {}, "field.value", "specs[0].priority"),
        ((task("n", queue="q"),), {}, "queue.unknown", "specs[0]"),
        ((task("n", requires=(("cpu_count", "two"),)),), {}, "requirement.value", "specs[0].requires.cpu_count"),
        ((), {"expands": "nobody", "width": 1}, "graph.width", "expands"),
        ((), {"expands": "a", "width": 1}, "graph.width", "expands"),
        ((), {"expands": "m", "width": 0}, "field.value", "width"),
        ((), {"expands": "m", "width": GROWTH_TASKS_MAX + 1}, "field.value", "width"),
    ],
)
def test_an_addition_is_refused_with_its_code_and_path(
    specs: tuple[TaskSpec, ...], fields: dict[str, object], code: str, path: str
):
    refused = grown(*specs, **fields)
    assert (refused.code, refused.path) == (code, path)


def test_a_circle_among_added_tasks_is_refused_where_it_was_sent():
    refused = grown(task("n", "o"), task("o", "n"))
    assert refused.code == "graph.cycle"
    assert refused.path.startswith("specs")


@pytest.mark.parametrize("upstream", ["a", "new"])
def test_an_added_task_that_names_an_upstream_twice_is_refused(upstream: str):
    refused = grown(task("new"), task("n", upstream, upstream))
    assert refused.code == "graph.duplicate_id"
    assert refused.path.startswith("specs[1]")


def test_tasks_sent_together_with_an_expansion_are_not_silently_lost():
    refused = grown(task("n"), expands="m", width=2)
    assert refused.path in ("specs", "expands")


def test_growth_cannot_take_a_run_past_the_largest_graph():
    world = World()
    world.submit(graph(task("a", width=TASKS_PER_GRAPH_MAX - 1), task("m", width=0)))
    refused = world.refusal(world.command(cm.GrowRun, run="r", expands="m", width=2))
    assert refused.code == "field.value"


@pytest.mark.parametrize("name", ["a[]", "a[b]", "a[0]x", "[0]a", "a[-1]", "a[0"])
def test_brackets_that_name_no_task_of_a_group_are_part_of_an_id(name: str):
    check_graph(graph(task(name)))
