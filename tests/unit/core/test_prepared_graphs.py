"""A graph that was prepared before its command is decided comes to the same as one that was not."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import commands as cm
from rota.core.decide import decide
from rota.core.evolve import evolve
from rota.core.graph import LiveGraph
from rota.core.images import all_records
from rota.core.invariants import validate
from rota.core.model import Graph, TaskSpec
from rota.core.prepared_graph import large_graph_of, prepare_graph
from tests.refusals import refused
from tests.unit.core.world import TENANT, World, graph, task

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 12))
    tasks: list[TaskSpec] = []
    for place in range(count):
        ups = draw(st.lists(st.integers(0, place - 1), max_size=3, unique=True)) if place else []
        requires = draw(st.sampled_from([(), (("cpu_count", "2"),)]))
        tasks.append(task(f"t{place}", *(f"t{up}" for up in ups), width=draw(st.integers(1, 3)), requires=requires))
    return graph(*tasks, max_active_tasks=draw(st.integers(0, 2)))


def laid_out(live: LiveGraph) -> dict[str, Any]:
    return {name: getattr(live, name) for name in LiveGraph.__slots__ if name not in ("buckets", "graph")}


def submitted(given: Graph, *, is_prepared: bool) -> World:
    world = World()
    command = cm.SubmitRun(tenant=TENANT, command_id="c", run="r", graph=given)
    world.state.prepared = prepare_graph(TENANT, given) if is_prepared else None
    decision = decide(world.state, command, world.now)
    for change in decision.changes:
        evolve(world.state, change)
        world.changes.append(change)
    return world


@given(graphs())
def test_changes_records_and_layout_are_the_same(given: Graph):
    plain, prepared = submitted(given, is_prepared=False), submitted(given, is_prepared=True)
    assert _encode(prepared.changes) == _encode(plain.changes)
    assert [_encode(each) for each in all_records(prepared.state)] == [
        _encode(each) for each in all_records(plain.state)
    ]
    (one,), (other,) = plain.state.graphs.values(), prepared.state.graphs.values()
    assert laid_out(one) == laid_out(other)
    assert prepared.state.prepared is None, "a live graph belongs to one state, and is used once"
    validate(prepared.state, prepared.now)


def test_what_was_prepared_of_another_graph_or_for_another_tenant_is_not_used():
    given = graph(task("a"))
    for tenant, other in ((TENANT, graph(task("a"))), ("other", given)):
        world = World()
        world.state.prepared = prepare_graph(tenant, other)
        assert world.state.prepared_graph(TENANT, given) is None


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (graph(task("a", "b")), "graph.unknown_upstream"),
        (graph(task("a"), task("a")), "graph.duplicate_id"),
        (graph(task("a", "b"), task("b", "a")), "graph.cycle"),
        (graph(), "graph.empty"),
    ],
)
def test_preparing_refuses_what_deciding_would(given: Graph, code: str):
    with refused(code):
        prepare_graph(TENANT, given)
    with refused(code):
        submitted(given, is_prepared=False)


def test_a_queue_that_does_not_exist_is_refused_of_a_prepared_graph_too():
    with refused("queue.unknown", path="graph.tasks[1]"):
        submitted(graph(task("a"), task("b", queue="none")), is_prepared=True)


def test_a_graph_is_large_by_its_tasks_and_edges():
    dense = graph(*(task(f"t{number}", *(f"t{up}" for up in range(number))) for number in range(60)))
    sparse = graph(*(task(f"t{number}") for number in range(60)))

    def command(of: Graph) -> cm.SubmitRun:
        return cm.SubmitRun(tenant=TENANT, command_id="c", run="r", graph=of)

    assert large_graph_of(command(dense)) is dense
    assert large_graph_of(command(sparse)) is None


def test_a_growth_with_very_many_edges_is_refused():
    world = World()
    world.submit(graph(task("a")))
    world.follow_up()
    names = [f"b{number}" for number in range(500)]
    specs = tuple(task(name, *names[:position]) for position, name in enumerate(names))
    grown = cm.GrowRun(tenant=TENANT, command_id="c", run="r", specs=specs)
    wrong = world.refusal(grown)
    assert (wrong.code, wrong.path) == ("field.value", "specs.upstream")
