"""Why a task waits: every situation has its code, every task that has not ended has at least one."""

from collections.abc import Callable

import pytest

from rota.core import commands as cm
from rota.core.changes import RunFaulted
from rota.core.evolve import evolve
from rota.core.model import PoolNeed, PropertyRule, RetryPolicy
from rota.core.reasons import REASON_CODES, Reasons
from rota.core.states import RUN_TERMINAL, TERMINAL, TaskState
from rota.core.why import explain
from tests.unit.core.world import TENANT, World, graph, short_slices, task, task_name, task_states

SLOW_RETRY = RetryPolicy(retries=1, delay_ms=5_000, jitter=False)


def why(world: World, name: str = "x", run: str = "r") -> Reasons:
    """The reasons of a task by its name."""
    live = world.run(run)
    (idx,) = [idx for idx in range(live.graph.total) if task_name(live.graph, idx) == name]
    return explain(world.state, live, idx, world.now)


def codes(world: World, name: str = "x", run: str = "r") -> list[str]:
    return [reason.code for reason in why(world, name, run)]


# Situations: each makes a world in which task `x` of run `r` waits.


def waits_for_its_cap(world: World) -> None:
    capped = graph(task("x"), max_active_runs=1)
    world.submit(capped, "before")
    world.submit(capped)
    world.follow_up()


def is_of_a_paused_workflow(world: World) -> None:
    world.client(cm.DeployWorkflow, graph=graph(task("x"), name="w"), paused=True)
    world.client(cm.SubmitRun, run="r", workflow="w")
    world.follow_up()


def waits_for_the_past(world: World) -> None:
    world.client(cm.DeployWorkflow, graph=graph(task("x", depends_on_past=True), name="w"))
    world.client(cm.SubmitRun, run="before", workflow="w", logical_at=1_000)
    world.client(cm.SubmitRun, run="r", workflow="w", logical_at=2_000)
    world.follow_up()


def is_about_to_start(world: World) -> None:
    world.submit(graph(task("x"), task("y", "x")))


def waits_for_upstream(world: World) -> None:
    world.submit(graph(task("u"), task("x", "u")))
    world.follow_up()


def waits_for_a_width(world: World) -> None:
    world.submit(graph(task("u"), task("m", "u", width=0), task("x", "m")))
    world.follow_up()


def is_decided_and_not_moved(world: World) -> None:
    with short_slices(2):
        world.submit(graph(task("a"), task("b"), task("c"), task("x")))
        name = next(iter(world.state.starts))
        world.do(cm.StartRuns(tenant=name[0], name=name[1]))


def is_alone_in_the_world(world: World) -> None:
    world.submit(task("x"))
    world.turn()


def fits_nobody(world: World) -> None:
    world.worker(properties=(("cpu_count", "2"),))
    world.submit(task("x", requires=(("cpu_count", "4"),)))
    world.turn()


def waits_behind_others(world: World) -> None:
    world.worker()
    world.submit(task("y"), "first")
    world.turn()
    world.submit(task("x"))
    world.turn()


def has_a_worker_that_is_away(world: World) -> None:
    world.worker()
    world.disconnect()
    world.submit(task("x"))
    world.turn()


def has_a_worker_that_is_silent(world: World) -> None:
    world.worker()
    world.silence()
    world.advance(15_001)
    world.submit(task("x"))
    world.turn()


def has_a_worker_that_drains(world: World) -> None:
    world.worker()
    world.client(cm.DrainWorker, worker="w")
    world.submit(task("x"))
    world.turn()


def waits_to_be_claimed(world: World) -> None:
    world.queue("agents", pull=True)
    world.worker(pull=True)
    world.submit(task("x", queue="agents"))
    world.turn()


def wants_to_be_claimed_and_nobody_claims(world: World) -> None:
    world.queue("agents", pull=True)
    world.worker()
    world.submit(task("x", queue="agents"))
    world.turn()


def has_its_turn_next(world: World) -> None:
    world.worker()
    world.submit(task("x"))
    world.follow_up()


def waits_for_a_pool(world: World) -> None:
    world.worker(slots=2)
    world.pool("p", slots=1)
    world.submit(task("y", pools=(PoolNeed("p"),)), "first")
    world.turn()
    world.submit(task("x", pools=(PoolNeed("p"),)))
    world.turn()


def has_outgrown_its_pool(world: World) -> None:
    world.pool(slots=2)
    world.worker()
    world.submit(task("x", pools=(PoolNeed("p", 2),)))
    world.pool(slots=1)
    world.turn()


def waits_for_its_key(world: World) -> None:
    world.worker(slots=2)
    world.pool("p", slots_per_key=1)
    world.submit(task("y", pools=(PoolNeed("p", 1, "k"),)), "first")
    world.turn()
    world.submit(task("x", pools=(PoolNeed("p", 1, "k"),)))
    world.turn()


def waits_for_a_rate(world: World) -> None:
    world.worker()
    world.pool("p", starts_per_minute=1)
    world.submit(task("x", pools=(PoolNeed("p"),)))
    world.turn()


def has_lost_its_pool(world: World) -> None:
    world.worker()
    world.pool("p", slots=1)
    world.submit(task("x", pools=(PoolNeed("p"),)))
    world.follow_up()
    world.client(cm.DropPool, name="p")
    world.turn()


def has_lost_its_queue(world: World) -> None:
    world.queue("q")
    world.worker()
    world.submit(task("x", queue="q"))
    world.follow_up()
    del world.state.queues[(TENANT, "q")]
    world.state.reindex()
    world.turn()


def is_paused(world: World) -> None:
    world.submit(task("x"))
    world.follow_up()
    world.client(cm.PauseRun, run="r")


def is_faulted(world: World) -> None:
    world.submit(task("x"))
    world.follow_up()
    evolve(world.state, RunFaulted(TENANT, "r", world.now, "a bug"))


def is_being_stopped(world: World) -> None:
    world.submit(graph(task("u"), task("x", "u")))
    world.follow_up()
    world.client(cm.CancelRun, run="r")


def was_assigned(world: World) -> None:
    world.worker()
    world.submit(task("x"))
    world.turn()


def is_running(world: World) -> None:
    world.worker()
    world.submit(task("x"))
    world.start(world.turn()[0])


def cools_down(world: World) -> None:
    world.worker()
    world.submit(task("x", retry=SLOW_RETRY))
    world.fail(world.turn()[0])


def was_put_off(world: World) -> None:
    world.worker()
    world.submit(task("x"))
    world.report(world.turn()[0], cm.Outcome.RESCHEDULE, resume_at=world.now + 1_000)


def is_parked(world: World) -> None:
    world.worker()
    world.submit(task("x"))
    for _ in range(5):
        (granted,) = world.turn()
        world.start(granted)
        world.interrupt(granted)


def waits_for_another_run(world: World) -> None:
    world.submit(task("y", requires=(("never", "there"),)), "first")
    world.submit(task("x"), after=("first",))
    world.follow_up()


def waits_for_a_run_that_failed(world: World) -> None:
    world.worker()
    world.submit(task("y"), "first")
    world.submit(task("x"), after=("first",))
    world.fail(*world.turn())


def waits_for_a_person(world: World) -> None:
    world.submit(task("x"), needs_approval=True)


def is_part_of_a_paused_run(world: World) -> None:
    world.submit(task("y"), "whole")
    world.submit(task("x"), parent="whole")
    world.follow_up()
    world.client(cm.PauseRun, run="whole")


def is_of_a_paused_workspace(world: World) -> None:
    world.worker()
    world.client(cm.PauseScheduler, scope="workspace=docs", reason="tidying up")
    world.submit(task("x", requires=(("workspace", "docs"),)))
    world.turn()


def was_claimed_and_lost(world: World) -> None:
    world.worker(pull=True, silence_ms=1_000)
    world.submit(task("x", queue="agents"))
    for _ in range(2):
        world.worker(pull=True, silence_ms=1_000)
        world.client(cm.ClaimTask, worker="w", incarnation="i1")
        world.silence()
        world.advance(1_000)


TABLE: list[tuple[Callable[[World], None], list[str]]] = [
    (waits_for_its_cap, ["run.queued"]),
    (is_of_a_paused_workflow, ["workflow.paused", "run.queued"]),
    (waits_for_the_past, ["past.waiting"]),
    (is_about_to_start, ["run.queued"]),
    (waits_for_upstream, ["upstream.waiting"]),
    (waits_for_a_width, ["expand.unknown"]),
    (is_decided_and_not_moved, ["cascade.pending"]),
    (is_alone_in_the_world, ["worker.none_registered"]),
    (fits_nobody, ["worker.none_match"]),
    (waits_behind_others, ["worker.busy"]),
    (has_a_worker_that_is_away, ["worker.absent"]),
    (has_a_worker_that_is_silent, ["worker.absent"]),
    (has_a_worker_that_drains, ["worker.busy"]),
    (waits_to_be_claimed, ["worker.pull"]),
    (wants_to_be_claimed_and_nobody_claims, ["worker.none_match"]),
    (has_its_turn_next, ["order.turn"]),
    (waits_for_a_pool, ["pool.full"]),
    (waits_for_its_key, ["pool.full"]),
    (waits_for_a_rate, ["pool.rate"]),
    (has_lost_its_pool, ["pool.gone"]),
    (has_outgrown_its_pool, ["pool.too_small"]),
    (has_lost_its_queue, ["queue.gone"]),
    (is_paused, ["run.paused"]),
    (is_faulted, ["run.faulted"]),
    (is_being_stopped, ["run.cancelling", "cascade.pending"]),
    (was_assigned, ["attempt.assigned"]),
    (is_running, ["attempt.running"]),
    (cools_down, ["retry.cooldown"]),
    (was_put_off, ["reschedule.waiting"]),
    (is_parked, ["attention.parked"]),
    (waits_for_another_run, ["after.waiting"]),
    (waits_for_a_run_that_failed, ["after.failed"]),
    (waits_for_a_person, ["approval.waiting"]),
    (is_part_of_a_paused_run, ["run.paused"]),
    (is_of_a_paused_workspace, ["scheduler.paused"]),
    (was_claimed_and_lost, ["redelivery.waiting"]),
]


@pytest.mark.parametrize(("situation", "expected"), TABLE, ids=lambda value: getattr(value, "__name__", ""))
def test_each_situation_has_its_reason(situation, expected):
    world = World()
    situation(world)
    assert codes(world) == expected
    assert all(reason.text and reason.code in REASON_CODES for reason in why(world))


def test_durations_are_told_as_people_read_them():
    world = World()
    world.worker()
    world.submit(task("x"))
    (granted,) = world.turn()
    world.report(granted, cm.Outcome.RESCHEDULE, resume_at=world.now + 3_597_000)
    (reason,) = why(world)
    assert (reason.code, reason.text.endswith(" 59 min 57 s")) == ("reschedule.waiting", True)


@pytest.mark.parametrize("situation", [situation for situation, _ in TABLE], ids=lambda value: value.__name__)
def test_in_each_situation_every_task_that_has_not_ended_has_a_reason(situation):
    world = World()
    situation(world)
    for run in world.state.runs.values():
        for idx, state in task_states(run).items():
            has_ended = state in TERMINAL or run.row.state in RUN_TERMINAL
            assert bool(explain(world.state, run, idx, world.now)) is not has_ended


def test_every_code_that_explain_can_give_has_a_situation():
    told = {code for _, expected in TABLE for code in expected}
    about_one_worker = {
        "worker.avoided",
        "worker.capacity",
        "worker.draining",
        "worker.incompatible",
        "worker.kind",
        "worker.quarantined",
        "worker.queue",
        "worker.silent",
        "worker.slots",
        "worker.tenant",
    }
    assert told | about_one_worker == set(REASON_CODES)


@pytest.mark.parametrize("state", TERMINAL, ids=str)
def test_a_task_that_has_ended_waits_for_nothing(state: TaskState):
    world = World()
    world.submit(graph(task("x"), task("y")))
    world.follow_up()
    world.task("x").state = state
    assert why(world) == ()
    assert why(world, "y") != ()


def test_the_outermost_reason_comes_first_and_all_that_hold_are_told():
    world = World()
    world.submit(graph(task("u"), task("x", "u")))
    world.follow_up()
    world.client(cm.PauseRun, run="r")
    evolve(world.state, RunFaulted(TENANT, "r", world.now, "a bug"))
    assert codes(world) == ["run.faulted", "run.paused", "upstream.waiting"]


def test_pools_and_workers_that_both_hold_a_task_are_both_told():
    world = World()
    world.pool("p", starts_per_minute=1)
    world.submit(task("x", pools=(PoolNeed("p"),)))
    world.turn()
    assert codes(world) == ["pool.rate", "worker.none_registered"]


def test_reasons_carry_the_names_and_numbers_they_speak_of():
    world = World()
    is_running(world)
    (reason,) = why(world)
    assert dict(reason.about) == {"worker": "w", "fence": str(world.task("x").fence)}
    world = World()
    waits_for_a_pool(world)
    assert ("pool", "p") in why(world)[0].about
    world = World()
    waits_for_upstream(world)
    assert "u (queued)" in why(world)[0].text


def test_a_long_list_of_upstreams_is_counted_and_only_some_are_named():
    world = World()
    world.submit(graph(task("u", width=40), task("x", "u")))
    world.follow_up()
    (reason,) = why(world)
    assert reason.text.startswith("40 upstream tasks")
    assert reason.text.count("(queued)") == 5


def test_what_no_worker_could_run_names_the_nearest_and_what_it_lacks():
    world = World()
    fits_nobody(world)
    assert "nearest is w" in why(world)[0].text
    assert "cpu_count" in why(world)[0].text


def test_a_reason_goes_when_its_cause_goes():
    world = World()
    waits_behind_others(world)
    assert codes(world) == ["worker.busy"]
    (lease,) = world.state.leases.values()
    world.do(cm.ReturnLease(tenant=TENANT, fence=lease.fence, cause="for this test"))
    assert codes(world) == ["order.turn"]


def test_an_idle_worker_that_is_too_small_does_not_make_an_absent_one_busy():
    world = World()
    world.worker("big", properties=(("cpu_count", "8"),))
    world.worker("small", properties=(("cpu_count", "1"),))
    world.disconnect("big")
    world.submit(task("x", requires=(("cpu_count", "4"),)))
    world.turn()
    assert codes(world) == ["worker.absent"]


def test_a_worker_that_is_too_small_does_not_count_among_the_busy():
    world = World()
    world.worker("big", properties=(("cpu_count", "8"),))
    world.worker("small", properties=(("cpu_count", "1"),))
    world.submit(task("y", requires=(("cpu_count", "8"),)), "first")
    world.turn()
    world.submit(task("x", requires=(("cpu_count", "4"),)))
    world.turn()
    (reason,) = why(world)
    assert dict(reason.about) == {"workers": "1", "worker": "big"}


def test_a_requirement_that_its_queue_cannot_read_any_more_fits_nobody():
    world = World()
    world.queue("q")
    world.worker(properties=(("size", "big"),))
    world.submit(task("x", queue="q", requires=(("size", "big"),)))
    world.follow_up()
    world.queue("q", properties=(("size", PropertyRule.MINIMUM),))
    world.turn()
    assert codes(world) == ["worker.none_match"]


def test_a_worker_of_other_tenants_is_not_named():
    world = World()
    world.worker("theirs", tenants=("another",))
    world.submit(task("x"))
    world.turn()
    (reason,) = why(world)
    assert (reason.code, reason.about, "theirs" in reason.text) == ("worker.none_match", (), False)
    world.worker("ours", kinds=("unheard of",))
    assert dict(why(world)[0].about)["worker"] == "ours"
