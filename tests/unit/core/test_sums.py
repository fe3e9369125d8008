"""Tasks together, node by node."""

from rota.core.questions import answer
from rota.core.sums import SumTasks, TaskSum, add_up
from tests.unit.core.world import TENANT, World, graph, task


def sums(world: World, *names: str) -> dict[str, TaskSum]:
    found = answer(world.state, SumTasks(tenant=TENANT, run="r", names=names), world.now)
    assert isinstance(found, dict)
    return found


def test_the_tasks_of_a_node_are_counted_and_timed_together():
    world = World()
    world.worker("w", slots=2)
    begin = world.now
    world.submit(graph(task("a", width=3), task("b", "a")))
    first, second = world.turn()
    world.start(first)
    world.advance(1_000)
    world.start(second)
    world.succeed(first)
    world.advance(1_000)
    world.fail(second, error="ValueError: no\n\nTraceback\n  somewhere\nValueError: no\n")
    found = sums(world, "a", "b", "gone")
    assert found["a"].counts == {"success": 1, "failed": 1, "queued": 1}
    assert found["a"].error == "ValueError: no"
    assert (found["a"].started_at - begin, found["a"].ended_at - begin) == (0, 2_000)
    assert found["b"].counts == {"upstream_failed": 1}
    assert (found["b"].eligible_at, found["b"].started_at) == (0, 0)
    assert "gone" not in found


def test_a_node_whose_width_is_not_known_has_no_tasks():
    world = World()
    world.submit(graph(task("u"), task("x", "u", width=0)))
    assert sums(world, "x")["x"] == TaskSum()


def test_nodes_are_added_up_as_one():
    one = TaskSum({"success": 2}, eligible_at=5, started_at=9, ended_at=12, attempt=1)
    other = TaskSum({"success": 1, "failed": 1}, eligible_at=3, ended_at=20, attempt=2, error="no")
    assert add_up([one, other]) == TaskSum({"success": 3, "failed": 1}, 3, 0, 9, 20, 2, "no")
    assert add_up([]) == TaskSum()
