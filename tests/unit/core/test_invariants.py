"""What must always hold: each derived thing is spoilt by hand in turn, and `validate` says which it was."""

import random
from collections.abc import Callable

import pytest

from rota.core import commands as cm
from rota.core.buckets import Bucket
from rota.core.ids import make_fence
from rota.core.invariants import snapshot_of, validate
from rota.core.limits import Usage
from rota.core.live import Lease
from rota.core.model import PoolNeed, RetryPolicy
from rota.core.records import Task
from rota.core.states import QUEUED, SCHEDULED, SUCCESS, RunState
from rota.core.trigger import TriggerRule
from tests.unit.core.world import TENANT, World, graph, short_slices, task


def lively() -> World:
    """One task at work, one finished, some waiting, one run behind its cap, one worker with room."""
    world = World()
    world.pool("p", slots=5, slots_per_key=3)
    world.worker("w", slots=1, properties=(("cpu_count", "4"),))
    world.submit(graph(task("a"), task("b", "a"), task("c", "b"), name="chain"), "chain")
    first = world.turn()[0]
    world.start(first)
    world.succeed(first)
    world.submit(
        graph(task("x", requires=(("cpu_count", "3"),), pools=(PoolNeed("p", 2, "k"),)), name="one", max_active_runs=1),
        "one",
    )
    world.submit(graph(task("x"), name="one", max_active_runs=1), "two")
    world.turn()
    world.worker("idle", slots=2, queues=("nothing",))
    return world


def lease_of(world: World) -> Lease:
    (lease,) = world.state.leases.values()
    return lease


def a_bucket(world: World) -> Bucket:
    return next(bucket for bucket in world.state.index.buckets.values() if bucket.live)


def chain_task(world: World, idx: int) -> Task:
    return world.run("chain").tasks[idx]


# Each takes a healthy world and spoils one thing.


def a_lease_is_lost(world: World) -> None:
    lease = lease_of(world)
    del world.state.leases[lease.fence]


def a_lease_belongs_to_no_task(world: World) -> None:
    lease = lease_of(world)
    lease.task.state = QUEUED
    lease.task.fence = 0


def a_task_keeps_a_fence_it_has_no_right_to(world: World) -> None:
    chain_task(world, 0).fence = make_fence(1, 1)


def a_worker_forgets_a_lease(world: World) -> None:
    lease = lease_of(world)
    del lease.worker.leases[lease.fence]


def a_fence_comes_from_the_future(world: World) -> None:
    world.state.lease_number = 0


def a_pool_miscounts(world: World) -> None:
    world.state.usage[(TENANT, "p")].taken += 1


def a_pool_miscounts_a_key(world: World) -> None:
    world.state.usage.setdefault((TENANT, "p"), Usage(0)).by_key["k"] = 99


def a_worker_miscounts_its_slots(world: World) -> None:
    world.state.workers[(TENANT, "w")].slots_free += 1


def a_worker_miscounts_its_quantities(world: World) -> None:
    world.state.workers[(TENANT, "w")].free["cpu_count"] += 1


def an_idle_worker_is_not_among_the_idle(world: World) -> None:
    worker = world.state.workers[(TENANT, "idle")]
    assert worker.shape is not None
    worker.shape.unpark(worker)


def a_worker_that_is_away_is_among_the_idle(world: World) -> None:
    world.state.workers[(TENANT, "idle")].present = False


def the_index_miscounts(world: World) -> None:
    world.state.index.queued += 1


def a_bucket_miscounts(world: World) -> None:
    a_bucket(world).live += 1


def a_bucket_miscounts_its_classes(world: World) -> None:
    bucket = a_bucket(world)
    bucket.waiting[next(iter(bucket.waiting))] += 1


def a_bucket_loses_a_task(world: World) -> None:
    bucket = a_bucket(world)
    bucket.flows.pop(next(iter(bucket.flows)))


def a_run_miscounts_what_has_ended(world: World) -> None:
    world.run("chain").ended += 1


def a_run_miscounts_what_moves(world: World) -> None:
    world.run("chain").moving += 1


def a_run_miscounts_its_leases(world: World) -> None:
    world.run("chain").leased += 1


def an_ended_run_has_tasks_that_move(world: World) -> None:
    run = world.run("chain")
    run.row.state = RunState.SUCCESS
    del world.state.active_runs[(TENANT, "chain")]


def a_countdown_is_wrong(world: World) -> None:
    run = world.run("chain")
    assert run.success is not None
    run.success[1] = 0


def a_countdown_of_failures_is_wrong(world: World) -> None:
    run = world.run("chain")
    assert run.failed is not None
    run.failed[2] = 1


def a_task_was_never_planned(world: World) -> None:
    run = world.run("chain")
    row = run.tasks[1]
    if row.state is QUEUED:
        world.state.withdraw(run, row)
    del run.tasks[1]
    run.moving -= 1


def nothing_moves_a_run(world: World) -> None:
    run = world.run("chain")
    row = run.tasks[1]
    world.state.withdraw(run, row)
    row.state = SUCCESS
    run.ended += 1
    run.moving -= 1
    assert run.success is not None
    run.success[2] = 1


def active_runs_are_miscounted(world: World) -> None:
    world.state.active_runs[(TENANT, "chain")] += 1


def a_waiting_run_is_forgotten(world: World) -> None:
    world.state.waiting_runs.clear()


SPOILT: list[tuple[Callable[[World], None], str]] = [
    (a_lease_is_lost, "is assigned without a lease"),
    (a_lease_belongs_to_no_task, "1 leases for 0 leased tasks"),
    (a_task_keeps_a_fence_it_has_no_right_to, "and still has fence"),
    (a_worker_forgets_a_lease, "is not listed by its worker"),
    (a_fence_comes_from_the_future, "has a fence that was not issued yet"),
    (a_pool_miscounts, "its leases add up to"),
    (a_pool_miscounts_a_key, "its leases add up to"),
    (a_worker_miscounts_its_slots, "slots free, should be"),
    (a_worker_miscounts_its_quantities, "free, should be {"),
    (an_idle_worker_is_not_among_the_idle, "is not among the idle"),
    (a_worker_that_is_away_is_among_the_idle, "is among the idle"),
    (the_index_miscounts, "are queued"),
    (a_bucket_miscounts, "says"),
    (a_bucket_miscounts_its_classes, "miscounts its classes"),
    (a_bucket_loses_a_task, "says"),
    (a_run_miscounts_what_has_ended, "ended"),
    (a_run_miscounts_what_moves, "moving"),
    (a_run_miscounts_its_leases, "miscounts its leases"),
    (an_ended_run_has_tasks_that_move, "has ended with 1 tasks moving"),
    (a_countdown_is_wrong, "node b counts"),
    (a_countdown_of_failures_is_wrong, "node c counts"),
    (a_task_was_never_planned, "planning from scratch would also do"),
    (nothing_moves_a_run, "is running and nothing in it moves"),
    (active_runs_are_miscounted, "active runs are"),
    (a_waiting_run_is_forgotten, "waiting runs are"),
]


def test_a_healthy_world_breaks_nothing():
    world = lively()
    assert validate(world.state, world.now) == []
    assert len(world.state.leases) == 1
    assert world.result("two") is RunState.QUEUED


@pytest.mark.parametrize(("spoil", "sentence"), SPOILT, ids=lambda value: getattr(value, "__name__", ""))
def test_whatever_is_spoilt_is_named(spoil, sentence):
    world = lively()
    spoil(world)
    broken = validate(world.state, world.now)
    assert any(sentence in text for text in broken), broken


def the_last_tasks_are_miscounted(world: World) -> None:
    world.run("chain").leaf_bad = 1


def runs_of_a_schedule_are_miscounted(world: World) -> None:
    world.state.scheduled_runs[(TENANT, "s")] = 3


def the_command_of_a_run_is_forgotten(world: World) -> None:
    world.state.by_command.clear()


def the_users_of_a_graph_are_miscounted(world: World) -> None:
    world.run("chain").graph.users = 0


@pytest.mark.parametrize(
    "spoil",
    [
        the_last_tasks_are_miscounted,
        runs_of_a_schedule_are_miscounted,
        the_command_of_a_run_is_forgotten,
        the_users_of_a_graph_are_miscounted,
    ],
    ids=lambda value: value.__name__,
)
def test_what_a_result_a_cap_or_a_repeat_depends_on_is_checked_too(spoil):
    world = lively()
    spoil(world)
    assert validate(world.state, world.now) != []


def test_a_task_that_waits_without_a_reason_is_named(monkeypatch: pytest.MonkeyPatch):
    world = lively()
    assert validate(world.state, world.now) == []
    monkeypatch.setattr("rota.core.invariants.explain", lambda *about: ())
    found = validate(world.state, world.now)
    tasks = tuple(f"{run.key}/{idx} " for run in world.state.runs.values() for idx in range(run.graph.total))
    assert found and all(text.startswith(tasks) for text in found)


def test_a_pool_that_holds_leases_and_has_lost_its_count_is_named():
    world = World()
    world.pool("p", slots=2)
    world.worker()
    world.submit(task("x", pools=(PoolNeed("p"),)))
    world.turn()
    del world.state.usage[(TENANT, "p")]
    assert validate(world.state, world.now) != []


def test_a_task_that_is_stuck_between_scheduled_and_queued_is_named():
    world = World()
    world.submit(graph(task("a"), task("b")))
    world.turn()
    row = world.task("a")
    world.state.withdraw(world.run(), row)
    row.state = SCHEDULED
    assert validate(world.state, world.now) != []


def test_groups_are_not_expressed_as_snapshots_and_single_tasks_are():
    world = World()
    plain = world.submit(graph(task("a"), task("b", "a")), "plain")
    wide = world.submit(graph(task("a", width=3), name="wide"), "wide")
    world.turn()
    snapshot = snapshot_of(plain)
    assert snapshot is not None
    assert snapshot.states == {"a": QUEUED}
    assert [each.id for each in snapshot.tasks] == ["a", "b"]
    assert snapshot_of(wide) is None


def test_nothing_follows_from_a_retry_before_it_is_due():
    world = World()
    world.worker()
    retried = task("b", "a", retry=RetryPolicy(retries=1, delay_ms=1_000))
    world.submit(graph(task("a"), retried, task("c", "b", trigger_rule=TriggerRule.NONE_FAILED)))
    (first,) = world.turn()
    world.succeed(first)
    (second,) = world.turn()
    world.client(cm.MarkTasks, run="r", tasks=("a",), to=cm.Mark.SKIPPED)
    world.fail(second)
    assert validate(world.state, world.now) == []


def test_validating_changes_nothing():
    world = lively()
    before = (len(world.state.index.buckets), dict(world.state.armed), world.state.index.queued)
    validate(world.state, world.now)
    assert (len(world.state.index.buckets), dict(world.state.armed), world.state.index.queued) == before


# A life.


def act_at_random(world: World, chance: random.Random, numbers: list[int]) -> None:
    """One thing that a client, a worker or time may do."""
    what = chance.randrange(9)
    runs = [run for run in world.state.runs.values() if run.row.state not in ("success", "failed", "cancelled")]
    leases = list(world.state.leases.values())
    if what <= 1:
        numbers[0] += 1
        width = chance.choice((1, 1, 3))
        whole = graph(
            task("a", width=width, retry=RetryPolicy(retries=1, delay_ms=500)),
            task("b", "a", pools=(PoolNeed("p", 1, chance.choice(("", "k"))),)),
            task("c", "a", requires=(("cpu_count", str(chance.choice((1, 2, 9)))),)),
            task("d", "b", "c", trigger_rule="all_done"),
            name=f"g{width}",
            max_active_runs=chance.choice((0, 2)),
        )
        world.submit(whole, f"r{numbers[0]}")
    elif what == 2 and runs:
        world.client(cm.PauseRun, run=chance.choice(runs).row.id, paused=chance.random() < 0.4)
    elif what == 3 and runs and chance.random() < 0.3:
        world.client(cm.CancelRun, run=chance.choice(runs).row.id)
    elif what == 4:
        world.advance(chance.choice((1, 700, 12_000)))
    elif what == 5:
        world.turn()
    elif leases:
        lease = chance.choice(leases)
        told = {
            "tenant": lease.run.row.tenant,
            "run": lease.run.row.id,
            "task": lease.task.idx,
            "worker_tenant": TENANT,
            "worker": lease.worker.row.id,
            "incarnation": "i1",
            "fence": lease.fence,
        }
        outcome = chance.choice((cm.Outcome.STARTED, cm.Outcome.SUCCESS, cm.Outcome.SUCCESS, cm.Outcome.FAILED))
        world.do(cm.Report(outcome=outcome, **told))
    else:
        world.turn()


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_broken_and_nothing_waits_without_a_reason_in_any_life(seed):
    chance = random.Random(seed)
    world = World()
    world.pool("p", slots=2, slots_per_key=1)
    for name in ("v", "w"):
        world.worker(name, slots=2, properties=(("cpu_count", "2"),))
    numbers = [0]
    with short_slices(chance.choice((2, 1_000))):
        for _ in range(60):
            act_at_random(world, chance, numbers)
            assert validate(world.state, world.now) == []
