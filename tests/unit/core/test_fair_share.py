"""Whose turn it is. Classes are weights, tenants and runs share, idle time is not saved up, nobody waits for ever.

Every world here is saturated: one worker, one slot (or a few), more waiting than it can do. What is counted is grants.
"""

import pytest

from rota.core import commands as cm
from rota.core.bounds import OVERDUE_GRANTS, OVERDUE_MS, TENANT_WEIGHT_MAX
from rota.core.changes import LeaseGranted
from rota.core.commands import Outcome
from rota.core.errors import Refused
from rota.core.invariants import validate
from rota.core.model import CLASS_WEIGHT, Graph, PriorityClass
from tests.unit.core.world import World, graph, task

URGENT, HIGH, NORMAL, LOW = PriorityClass.URGENT, PriorityClass.HIGH, PriorityClass.NORMAL, PriorityClass.LOW


def busy_world(slots: int = 1) -> World:
    world = World()
    world.worker("w", slots=slots)
    return world


def wide(width: int = 2_000, **fields: object) -> Graph:
    return graph(task("x", width=width, **fields))


def serve(world: World, grants: int, took_ms: int | dict[str, int] = 1_000) -> list[LeaseGranted]:
    """Serve so many grants one after another; `took_ms` may depend on the run."""
    served: list[LeaseGranted] = []
    for _ in range(grants):
        (granted,) = world.place()
        served.append(granted)
        world.start(granted)
        world.advance(took_ms if isinstance(took_ms, int) else took_ms[granted.run])
        world.succeed(granted)
    return served


def counted(served: list[LeaseGranted], by: str = "run") -> dict[str, int]:
    counts: dict[str, int] = {}
    for granted in served:
        name = getattr(granted, by)
        counts[name] = counts.get(name, 0) + 1
    return counts


# Classes.


def test_classes_get_their_weights_over_a_long_run():
    """After n grants each class has its share of them, give or take two."""
    world = busy_world()
    for priority in PriorityClass:
        world.submit(wide(), run=priority.value, priority=priority)
    world.follow_up()
    served = serve(world, 600)
    total = sum(CLASS_WEIGHT.values())
    for grants in (150, 300, 600):
        counts = counted(served[:grants])
        for priority, weight in CLASS_WEIGHT.items():
            assert abs(counts.get(priority.value, 0) - grants * weight / total) <= 2, (grants, counts)


def test_a_low_run_moves_while_urgent_ones_wait():
    world = busy_world()
    world.submit(wide(), run="urgent", priority=URGENT)
    world.submit(wide(), run="low", priority=LOW)
    world.follow_up()
    counts = counted(serve(world, 90))
    assert 8 <= counts["low"] <= 12


def test_a_class_that_stands_alone_gets_everything():
    world = busy_world()
    world.submit(wide(), run="low", priority=LOW)
    world.follow_up()
    assert counted(serve(world, 20)) == {"low": 20}


# Tenants and runs.


def test_equal_tenants_alternate():
    world = busy_world()
    for tenant in ("a", "b"):
        world.submit(wide(), run="r", tenant=tenant)
    world.follow_up()
    order = [granted.tenant for granted in serve(world, 40)]
    assert all(order[number] != order[number + 1] for number in range(2, 39))


def test_tenants_get_their_weights_over_a_long_run_also_when_a_weight_is_changed():
    world = busy_world()
    for tenant, weight in (("a", 3), ("b", 1), ("c", 2)):
        world.client(cm.PutTenant, tenant=tenant, weight=weight)
        world.submit(wide(), run="r", tenant=tenant)
    world.follow_up()
    counts = counted(serve(world, 600), by="tenant")
    assert {tenant: round(count / 100) for tenant, count in counts.items()} == {"a": 3, "b": 1, "c": 2}
    world.client(cm.PutTenant, tenant="b", weight=3)
    counts = counted(serve(world, 800), by="tenant")
    assert {tenant: round(count / 100) for tenant, count in counts.items()} == {"a": 3, "b": 3, "c": 2}


def test_a_weight_outside_its_bounds_is_refused():
    world = World()
    for weight in (0, -1, TENANT_WEIGHT_MAX + 1):
        with pytest.raises(Refused, match="weight"):
            world.client(cm.PutTenant, weight=weight)


def test_a_tenant_with_many_runs_gets_no_more_than_one_with_a_single_run():
    world = busy_world()
    for number in range(10):
        world.submit(wide(), run=f"r{number}", tenant="many")
    world.submit(wide(), run="r", tenant="one")
    world.follow_up()
    counts = counted(serve(world, 200), by="tenant")
    assert abs(counts["many"] - counts["one"]) <= 2


def test_runs_of_a_tenant_share_what_it_gets():
    world = busy_world()
    for name in ("a", "b", "c"):
        world.submit(wide(), run=name)
    world.follow_up()
    counts = counted(serve(world, 90))
    assert max(counts.values()) - min(counts.values()) <= 2


def test_runs_share_also_when_their_work_is_of_different_kinds():
    world = busy_world()
    for name in ("a", "b", "c"):
        world.submit(graph(task("x", width=1_000, kind=name)), run=name)
    world.follow_up()
    counts = counted(serve(world, 90))
    assert max(counts.values()) - min(counts.values()) <= 2


def test_a_newcomer_is_lifted_and_does_not_catch_up_on_the_time_it_was_away():
    world = busy_world()
    world.submit(wide(), run="old", tenant="old")
    world.follow_up()
    serve(world, 300)
    world.submit(wide(), run="new", tenant="new")
    world.follow_up()
    counts = counted(serve(world, 40))
    assert abs(counts["old"] - counts["new"]) <= 2


def test_a_tenant_that_was_away_does_not_catch_up_either():
    world = busy_world()
    world.submit(wide(), run="a", tenant="a")
    world.submit(wide(20), run="b", tenant="b")
    world.follow_up()
    serve(world, 40)
    serve(world, 300)
    world.submit(wide(), run="b2", tenant="b")
    world.follow_up()
    counts = counted(serve(world, 40), by="tenant")
    assert abs(counts["a"] - counts["b"]) <= 2


def test_a_new_run_does_not_catch_up_with_its_tenants_older_run():
    world = busy_world()
    world.submit(wide(), run="old")
    world.follow_up()
    serve(world, 200)
    world.submit(wide(), run="new")
    world.follow_up()
    counts = counted(serve(world, 40))
    assert abs(counts["old"] - counts["new"]) <= 2


def test_a_new_run_is_not_held_back_by_a_heavy_run_of_the_same_kind():
    """`heavy` and `new` wait in one bucket, `other` in another; `heavy` has had far more than its share."""
    world = busy_world()
    world.submit(graph(task("x", width=1_000, kind="k")), run="heavy")
    world.follow_up()
    serve(world, 1, took_ms=1_000)
    world.submit(graph(task("x", width=1_000, kind="l")), run="other")
    world.follow_up()
    took = {"heavy": 3_600_000, "other": 1_000, "new": 1_000}
    serve(world, 4, took_ms=took)
    world.submit(graph(task("x", width=1_000, kind="k")), run="new")
    world.follow_up()
    counts = counted(serve(world, 40, took_ms=took))
    assert abs(counts.get("new", 0) - counts.get("other", 0)) <= 2, counts


# Cost.


def test_long_tasks_are_charged_more_than_short_ones():
    """Tenants share time, not grants: three-second tasks get a third of the grants that one-second tasks get."""
    world = busy_world()
    world.submit(graph(task("x", width=5_000, kind="k")), run="short", tenant="short")
    world.submit(graph(task("x", width=5_000, kind="l")), run="long", tenant="long")
    world.follow_up()
    counts = counted(serve(world, 400, took_ms={"short": 1_000, "long": 3_000}))
    assert counts["short"] / counts["long"] == pytest.approx(3, rel=0.15)


def test_the_dominant_resource_is_what_is_charged():
    """Tasks that take all of a worker's memory cost four times those that take a quarter."""
    world = World()
    world.worker("w", slots=100, properties=(("memory_kb", "400"),))
    big = task("x", width=5_000, requires=(("memory_kb", "400"),))
    small = task("x", width=5_000, requires=(("memory_kb", "100"),))
    world.submit(graph(big), run="big", tenant="big")
    world.submit(graph(small), run="small", tenant="small")
    world.follow_up()
    counts: dict[str, int] = {}
    for _ in range(300):
        for granted in world.place():
            counts[granted.run] = counts.get(granted.run, 0) + 1
        world.advance(1_000)
        for lease in list(world.state.leases.values()):
            world.report(
                LeaseGranted("", "", 0, 0, "", "", "", 0, 0, 0),
                Outcome.SUCCESS,
                tenant=lease.run.row.tenant,
                run=lease.run.row.id,
                task=lease.task.idx,
                worker_tenant="t",
                worker="w",
                incarnation="i1",
                fence=lease.fence,
            )
    assert counts["small"] / counts["big"] == pytest.approx(4, rel=0.2)


# The ten-minute guarantee.


def grants_until(world: World, run: str, limit: int) -> int:
    """How many grants until the run has one."""
    for number in range(1, limit + 1):
        if serve(world, 1, took_ms=10)[0].run == run:
            return number
    return limit + 1


def test_a_task_older_than_ten_minutes_is_served_within_twenty_grants_though_it_has_no_share():
    world = busy_world()
    world.submit(graph(task("x", width=2, kind="k")), run="spent", tenant="spent", priority=LOW)
    world.follow_up()
    (first,) = world.place()
    world.start(first)
    world.advance(10 * OVERDUE_MS)
    world.submit(wide(), run="crowd", tenant="crowd", priority=LOW)
    world.follow_up()
    world.succeed(first)
    assert grants_until(world, "spent", 60) <= OVERDUE_GRANTS


def test_the_guarantee_holds_across_classes():
    world = busy_world()
    world.submit(graph(task("x", width=2, kind="k")), run="spent", tenant="spent", priority=LOW)
    world.follow_up()
    (first,) = world.place()
    world.start(first)
    world.advance(10 * OVERDUE_MS)
    world.submit(wide(), run="crowd", tenant="crowd", priority=URGENT)
    world.follow_up()
    world.succeed(first)
    assert grants_until(world, "spent", 60) <= OVERDUE_GRANTS


def test_the_guarantee_holds_though_new_kinds_of_work_arrive_all_the_time():
    """Each arrival is the first of its kind, and the worker becomes free at the same moment."""
    world = busy_world()
    world.submit(task("x", kind="k"), run="first")
    (running,) = world.turn()
    world.submit(task("x", kind="old"), run="old")
    world.turn()
    world.start(running)
    world.advance(OVERDUE_MS)
    for number in range(OVERDUE_GRANTS + 5):
        world.succeed(running)
        world.submit(task("x", kind=f"k{number}"), run=f"new{number}", priority=URGENT)
        (running,) = world.turn()
        if running.run == "old":
            break
        world.start(running)
        world.advance(10)
    assert running.run == "old"
    assert number < OVERDUE_GRANTS


def test_a_task_that_waits_is_not_overtaken_for_ever_by_arrivals_of_new_kinds():
    """The same without the guarantee: equal tenants share, whatever they send and whenever it comes."""
    world = busy_world()
    world.submit(wide(1_000), run="steady", tenant="a")
    (running,) = world.turn()
    counts = {"a": 0, "b": 0}
    for number in range(40):
        world.start(running)
        world.advance(1_000)
        world.succeed(running)
        world.submit(task("x", kind=f"k{number}"), run=f"b{number}", tenant="b")
        (running,) = world.turn()
        counts[running.tenant] += 1
    assert abs(counts["a"] - counts["b"]) <= 4, counts


def test_the_oldest_overdue_task_is_served_within_twenty_grants_though_everything_is_overdue():
    world = busy_world()
    world.submit(graph(task("x", width=3, kind="k")), run="oldest", tenant="spent")
    world.follow_up()
    serve(world, 1, took_ms=10 * OVERDUE_MS)
    world.submit(wide(), run="crowd", tenant="crowd")
    world.follow_up()
    serve(world, 1, took_ms=OVERDUE_MS + 1)
    assert grants_until(world, "oldest", 60) <= OVERDUE_GRANTS


def test_a_task_that_came_back_keeps_its_age():
    """It is given back after ten minutes, behind younger tasks of its own kind."""
    world = busy_world()
    world.submit(wide(1), run="old", tenant="spent", priority=LOW)
    world.follow_up()
    (first,) = world.place()
    world.start(first)
    world.advance(10 * OVERDUE_MS)
    world.submit(wide(), run="young", tenant="spent", priority=LOW)
    world.submit(wide(kind="k"), run="crowd", tenant="crowd", priority=LOW)
    world.follow_up()
    world.report(first, Outcome.RELEASED)
    assert grants_until(world, "old", 60) <= OVERDUE_GRANTS


def test_the_guarantee_counts_the_grants_a_task_fits_over_all_workers():
    """Two sorts of worker, and a task that either could run: twenty grants in all, not twenty each."""
    world = World()
    world.worker("a", kinds=("any", "a"))
    world.worker("b", kinds=("any", "b"))
    world.submit(graph(task("x", kind="a"), task("y", kind="b")), run="first", tenant="spent")
    held = world.turn()
    world.submit(graph(task("x", kind="any")), run="old", tenant="spent")
    world.turn()
    for granted in held:
        world.start(granted)
    world.advance(10 * OVERDUE_MS)
    world.submit(graph(task("x", width=500, kind="a"), task("y", width=500, kind="b")), run="crowd", tenant="crowd")
    world.follow_up()
    total = 0
    while total < 80:
        world.succeed(held.pop(0))
        again = world.place()
        total += len(again)
        if any(one.run == "old" for one in again):
            break
        for one in again:
            world.start(one)
        held += again
        world.advance(5)
    assert total <= OVERDUE_GRANTS


# Shares: runs that take turns as one.


def many(world: World, count: int, share: str, prefix: str, **fields: object) -> None:
    for number in range(count):
        world.submit(graph(task("x", **fields), name="one"), run=f"{prefix}{number}", share=share)


def test_a_thousand_runs_of_one_share_get_the_share_of_one_run():
    world = busy_world()
    many(world, 1_000, "build", "b")
    world.submit(wide(), run="other")
    world.follow_up()
    served = serve(world, 100)
    mine = sum(granted.run != "other" for granted in served)
    assert 48 <= mine <= 52


def test_runs_of_one_share_go_by_priority_then_in_the_order_in_which_they_came():
    world = busy_world()
    many(world, 5, "build", "late", priority=0)
    world.submit(graph(task("x", priority=5), name="soon"), run="soon", share="build")
    many(world, 5, "build", "later", priority=0)
    world.follow_up()
    order = [granted.run for granted in serve(world, 11)]
    assert order == ["soon", *(f"late{n}" for n in range(5)), *(f"later{n}" for n in range(5))]


def test_a_share_is_of_a_tenant_and_of_a_class():
    world = busy_world()
    for tenant in ("a", "b"):
        for priority in (NORMAL, HIGH):
            world.submit(wide(1), run=f"{tenant}-{priority}", tenant=tenant, priority=priority, share="s")
    purses = {id(run.purse) for run in world.state.runs.values()}
    assert len(purses) == 4


def test_a_run_that_is_held_leaves_the_turn_to_others_of_its_share():
    world = busy_world()
    many(world, 3, "build", "b")
    world.client(cm.PauseRun, run="b0")
    world.client(cm.CancelRun, run="b1")
    world.follow_up()
    assert [granted.run for granted in serve(world, 1)] == ["b2"]
    world.client(cm.PauseRun, run="b0", paused=False)
    assert [granted.run for granted in serve(world, 1)] == ["b0"]


def test_a_share_is_forgotten_with_its_last_run_and_stands_after_a_restart():
    world = busy_world()
    many(world, 2, "build", "b")
    world.follow_up()
    after = world.restarted()
    assert validate(after.state, after.now) == []
    assert after.run("b0").purse is after.run("b1").purse
    serve(world, 1)
    world.advance(world.state.limits.retain_ended_ms + 1)
    assert len(world.state.books.shares) == 1
    serve(world, 1)
    world.advance(world.state.limits.retain_ended_ms + 1)
    assert world.state.books.shares == {} and world.state.runs == {}


def test_a_run_on_an_account_of_its_own_is_noticed_if_it_has_a_share():
    world = busy_world()
    many(world, 2, "build", "b")
    world.run("b0").purse = world.state.books.purse(NORMAL, "t")
    assert any(
        f"{world.run('b0').key} " in text and "share 'build'" in text for text in validate(world.state, world.now)
    )


def test_the_next_of_ten_thousand_runs_of_a_share_costs_no_more_than_of_ten():
    """Each grant changes what all of them have used: nothing may go through them all for that."""
    world = busy_world()
    many(world, 10_000, "build", "b")
    world.submit(wide(), run="other")
    world.follow_up()
    (bucket,) = (each for each in world.state.index.buckets.values() if len(each.flows) == 2)
    serve(world, 50)
    assert len(bucket.flows) == 2, "the share is one line, however many runs are in it"


# The same again.


def test_the_same_commands_give_the_same_grants():
    def story() -> list[tuple[str, int, str, int]]:
        world = World()
        world.worker("w", slots=2)
        world.worker("v", slots=1)
        for number, priority in enumerate(PriorityClass):
            world.submit(graph(task("x", width=30), name=f"g{number}"), run=f"r{number}", priority=priority)
        found: list[tuple[str, int, str, int]] = []
        for _ in range(20):
            for granted in world.turn():
                found.append((granted.run, granted.task, granted.worker, granted.fence))
                world.start(granted)
                world.advance(100 * len(found) % 700)
                world.succeed(granted)
        return found

    assert story() == story()
