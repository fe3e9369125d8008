"""Limits hold and never leak: weighted slots, keys, rates, and what a graph allows itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import commands as cm
from rota.core.changes import LeaseGranted
from rota.core.errors import Refused
from rota.core.model import Pool, PoolNeed, TaskSpec
from rota.core.states import RunState
from tests.effort import examples
from tests.unit.core.world import TENANT, World, graph, task, usage_from_leases


def needing(*needs: PoolNeed, width: int = 10, id: str = "x", **fields: object) -> TaskSpec:
    return task(id, width=width, pools=needs, **fields)


def codes(world: World, run: str = "r") -> list[str]:
    """Why pools hold the run's first task."""
    live = world.run(run)
    bucket = world.state.bucket(live.graph.signature(0))
    return [item.code for item in world.state.pool_reasons(bucket, world.now)]


def world_with(slots: int = 0, slots_per_key: int = 0, starts_per_minute: int = 0, burst: int = 1) -> World:
    world = World()
    world.pool(slots=slots, slots_per_key=slots_per_key, starts_per_minute=starts_per_minute, burst=burst)
    world.worker("w", slots=100)
    return world


def test_a_pool_lets_in_as_many_as_it_has_slots_and_the_next_when_one_leaves():
    world = world_with(slots=3)
    world.submit(needing(PoolNeed("p")))
    granted = world.turn()
    assert len(granted) == 3
    assert codes(world) == ["pool.full"]
    world.succeed(granted[0])
    assert len(world.turn()) == 1


def test_a_heavy_task_takes_several_slots():
    world = world_with(slots=5)
    world.submit(needing(PoolNeed("p", 2)))
    assert len(world.turn()) == 2
    world.submit(needing(PoolNeed("p", 1), id="light"), run="light")
    assert len(world.turn()) == 1


def test_a_key_has_slots_of_its_own():
    world = world_with(slots=3, slots_per_key=1)
    world.submit(needing(PoolNeed("p", 1, "red")), run="red")
    world.submit(needing(PoolNeed("p", 1, "blue"), id="y"), run="blue")
    world.submit(needing(PoolNeed("p"), id="z"), run="plain")
    by_run = sorted(granted.run for granted in world.turn())
    assert by_run == ["blue", "plain", "red"]


def test_a_rate_lets_in_a_burst_and_then_one_by_one():
    world = world_with(starts_per_minute=6, burst=3)
    world.advance(60_000)
    world.submit(needing(PoolNeed("p"), width=20))
    assert len(world.turn()) == 3
    assert codes(world) == ["pool.rate"]
    world.advance(9_999)
    assert world.turn() == []
    world.advance(1)
    assert len(world.turn()) == 1
    world.advance(60_000)
    assert len(world.turn()) == 3


def test_a_rate_starts_empty_after_a_restart_so_that_no_election_lets_more_through():
    world = world_with(starts_per_minute=60, burst=10)
    world.advance(60_000)
    world.submit(needing(PoolNeed("p"), width=30))
    assert len(world.turn()) == 10
    after = world.restarted()
    after.hear("w")
    assert after.turn() == []
    after.advance(1_000)
    assert len(after.turn()) == 1


def test_a_task_may_need_several_pools_and_waits_for_the_last_of_them():
    world = world_with(slots=2)
    world.pool("q", slots=1)
    world.submit(needing(PoolNeed("p"), PoolNeed("q")))
    (granted,) = world.turn()
    assert world.state.usage[(TENANT, "p")].taken == 1
    world.pool("q", slots=5)
    assert len(world.turn()) == 1
    world.succeed(granted)
    assert len(world.turn()) == 1


def test_a_task_that_names_a_pool_twice_cannot_get_past_it():
    """Either it is refused, or both needs are counted together."""
    world = world_with(slots=3)
    command = world.command(cm.SubmitRun, run="r", graph=graph(needing(PoolNeed("p", 2), PoolNeed("p", 2))))
    try:
        world.do(command)
    except Refused as refused:
        assert refused.path.startswith("graph.tasks[0]")
    world.turn()
    assert world.state.usage[(TENANT, "p")].taken <= 3


def test_making_a_pool_smaller_stops_nobody_and_lets_nobody_in():
    world = world_with(slots=4)
    world.submit(needing(PoolNeed("p")))
    granted = world.turn()
    world.pool("p", slots=2)
    assert len(world.state.leases) == 4
    for one in granted[:2]:
        world.succeed(one)
        assert world.turn() == []
    world.succeed(granted[2])
    assert len(world.turn()) == 1


def test_making_a_pool_larger_lets_in_who_waited():
    world = world_with(slots=1)
    world.submit(needing(PoolNeed("p")))
    world.turn()
    world.pool("p", slots=3)
    assert len(world.turn()) == 2


@pytest.mark.parametrize(
    ("need", "pool"),
    [
        (PoolNeed("p", 3), {"slots": 2}),
        (PoolNeed("p", 2, "k"), {"slots_per_key": 1}),
        (PoolNeed("p", 2, "k"), {"slots": 5, "slots_per_key": 1}),
    ],
)
def test_a_need_that_a_pool_could_never_meet_is_refused_at_the_door(need: PoolNeed, pool: dict[str, int]):
    world = world_with(**pool)
    refused = world.refusal(world.command(cm.SubmitRun, run="r", graph=graph(needing(need))))
    assert (refused.code, refused.path) == ("pool.too_small", "graph.tasks[0].pools[0].amount")
    assert "larger" in refused.hint
    world.submit(graph(task("y"), name="other"), "other")
    growing = world.command(cm.GrowRun, run="other", specs=(needing(need),))
    assert world.refusal(growing).path == "specs[0].pools[0].amount"


def test_a_need_as_large_as_its_pool_is_met_and_one_without_a_key_knows_no_slots_per_key():
    world = world_with(slots=3, slots_per_key=1)
    world.submit(needing(PoolNeed("p", 3)))
    assert len(world.turn()) == 1


def test_a_pool_that_is_made_smaller_than_a_need_says_impossible_and_lets_go_when_it_grows_again():
    world = world_with(slots=2)
    whole = graph(needing(PoolNeed("p", 2)))
    world.submit(whole)
    world.pool(slots=1)
    assert world.turn() == []
    assert codes(world) == ["pool.too_small"]
    again = world.command(cm.SubmitRun, run="again", graph=whole)
    assert world.refusal(again).code == "pool.too_small", "a graph that is known is compared with its pools as they are"
    world.pool(slots=2)
    assert len(world.turn()) == 1


def test_a_pool_that_is_dropped_leaves_a_reason_and_one_that_comes_back_lets_go():
    world = world_with(slots=2)
    world.submit(needing(PoolNeed("p")))
    granted = world.turn()
    world.client(cm.DropPool, name="p")
    assert codes(world) == ["pool.gone"]
    world.succeed(granted[0])
    assert world.turn() == []
    world.pool("p", slots=2)
    assert len(world.turn()) == 1


def test_the_systems_own_pools_cannot_be_defined_or_dropped():
    world = World()
    world.submit(graph(task("x"), max_active_tasks=1))
    own = next(name for _, name in world.state.pools)
    put = world.refusal(world.command(cm.PutPool, pool=Pool(tenant=TENANT, name=own, slots=9)))
    assert (put.code, put.path) == ("field.value", "pool.name")
    assert world.refusal(world.command(cm.DropPool, name=own)).path == "name"


def test_the_systems_own_pools_cannot_be_named_by_a_task():
    world = World()
    world.submit(graph(task("x"), max_active_tasks=1))
    own = next(name for _, name in world.state.pools)
    world.refusal(world.command(cm.SubmitRun, run="s", graph=graph(needing(PoolNeed(own)), name="other")))


def test_pools_of_two_tenants_with_one_name_are_two_pools():
    world = world_with(slots=1)
    world.pool("p", tenant="other", slots=1)
    world.submit(needing(PoolNeed("p")))
    world.submit(needing(PoolNeed("p")), tenant="other")
    assert len(world.turn()) == 2


# What a graph allows itself.


def test_a_graph_runs_no_more_tasks_at_once_than_it_allows_over_all_its_runs():
    world = World()
    world.worker("w", slots=100)
    capped = graph(task("x", width=5), max_active_tasks=3)
    world.submit(capped, run="one")
    world.submit(capped, run="two")
    granted = world.turn()
    assert len(granted) == 3
    world.succeed(granted[0])
    assert len(world.turn()) == 1


def test_the_limit_of_a_version_that_is_gone_goes_with_it_and_an_older_one_counts_again():
    world = World()
    capped = [graph(task("x", work=bytes([slots])), max_active_tasks=slots) for slots in (3, 1)]
    world.submit(capped[0], "old")
    world.advance(1)
    world.submit(capped[1], "new")
    world.submit(graph(task("x")), "free")
    key = (TENANT, "@graph/g")
    assert world.state.pools[key].slots == 1
    for run, slots in (("new", 3), ("old", 0)):
        world.client(cm.CancelRun, run=run)
        world.follow_up()
        world.advance(10 * 60_000)
        assert (world.state.pools[key].slots if key in world.state.pools else 0) == slots
        assert world.restarted().state.pools == world.state.pools
    assert key not in world.state.usage


@pytest.mark.parametrize("limits", [(1, 2), (2, 1), (3, 1), (1, 3)])
def test_of_two_versions_of_one_instant_the_same_one_counts_after_a_restart(limits: tuple[int, int]):
    world = World()
    for slots in limits:
        world.submit(graph(task("x"), max_active_tasks=slots), f"r{slots}")
    assert world.restarted().state.pools == world.state.pools


def test_runs_of_a_capped_graph_start_in_order_and_the_next_when_one_ends():
    world = World()
    world.worker("w", slots=100)
    capped = graph(task("x"), max_active_runs=2)
    for name in ("c", "a", "b", "d"):
        world.submit(capped, run=name)
    first = world.turn()
    assert [granted.run for granted in first] == ["c", "a"]
    world.succeed(first[1])
    assert [granted.run for granted in world.turn()] == ["b"]
    world.client(cm.CancelRun, run="c")
    assert [granted.run for granted in world.turn()] == ["d"]


def test_a_waiting_run_that_is_cancelled_gives_up_its_place():
    world = World()
    world.worker("w", slots=100)
    capped = graph(task("x"), max_active_runs=1)
    for name in ("a", "b", "c"):
        world.submit(capped, run=name)
    (granted,) = world.turn()
    world.client(cm.CancelRun, run="b")
    assert world.result("b") is RunState.CANCELLED
    world.succeed(granted)
    assert [again.run for again in world.turn()] == ["c"]


# Under any operations.


@examples(60)
@given(data=st.data())
def test_limits_are_never_exceeded_and_never_leak(data: st.DataObject):
    world = World()
    world.worker("w", slots=6)
    world.worker("v", slots=6)
    world.pool("p", slots=3, slots_per_key=2)
    world.pool("q", slots=4)
    held: list[LeaseGranted] = []
    smallest = {"p": 3, "q": 4}
    for number in range(data.draw(st.integers(5, 30))):
        what = data.draw(
            st.sampled_from(["submit", "submit", "end", "end", "end", "pause", "resume", "cancel", "time"])
        )
        live = [run.row.id for run in world.state.runs.values() if run.row.state is RunState.RUNNING]
        held = [granted for granted in held if granted.fence in world.state.leases]
        if what == "submit":
            needs = data.draw(
                st.sampled_from([(PoolNeed("p"),), (PoolNeed("p", 2, "k"),), (PoolNeed("p", 1, "k"), PoolNeed("q", 2))])
            )
            limit = data.draw(st.integers(0, 2))
            world.submit(graph(needing(*needs, width=3), name=f"g{limit}", max_active_tasks=limit), run=f"r{number}")
        elif what == "end" and held:
            granted = data.draw(st.sampled_from(held))
            end = data.draw(st.sampled_from(["success", "failed", "released", "interrupt"]))
            if end == "interrupt":
                world.start(granted)
                world.interrupt(granted)
            else:
                world.report(granted, cm.Outcome(end))
        elif what in ("pause", "resume") and live:
            world.client(cm.PauseRun, run=data.draw(st.sampled_from(live)), paused=what == "pause")
        elif what == "cancel" and live:
            world.client(cm.CancelRun, run=data.draw(st.sampled_from(live)))
        elif what == "time":
            world.advance(data.draw(st.sampled_from([1_000, 15_000, 70_000])))
        held += world.turn()
        summed = usage_from_leases(world.state)
        for key, usage in world.state.usage.items():
            assert (usage.taken, usage.by_key) == summed.get(key, (0, {}))
            limit = smallest.get(key[1]) or int(key[1][-1])
            assert usage.taken <= limit
            if key[1] == "p":
                assert all(taken <= 2 for taken in usage.by_key.values())
    for run in list(world.state.runs.values()):
        world.client(cm.CancelRun, run=run.row.id)
    world.follow_up()
    assert all(usage.taken == 0 and not usage.by_key for usage in world.state.usage.values())
