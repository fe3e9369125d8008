"""Who may have what: property rules, quantities, allocation, drain, silence, anti-affinity, and why nobody fits.

The last test compares the index with the predicate it must equal: whatever was done before, something is granted
exactly while some waiting task fits some worker and no pool holds it.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import commands as cm
from rota.core.bounds import CAPACITY_NAMES_MAX
from rota.core.changes import LeaseGranted, WorkerQuarantined
from rota.core.demand import Signature, read_demand, score
from rota.core.errors import Refused
from rota.core.evolve import evolve
from rota.core.fits import fits
from rota.core.live import LiveRun, LiveWorker
from rota.core.model import Allocation, FailureClass, PoolNeed, PropertyRule, Queue, TaskSpec
from rota.core.place import place
from rota.core.presence import leaves
from rota.core.records import Task
from rota.core.states import RunState
from tests.effort import examples
from tests.unit.core.world import TENANT, World, graph, task

EXACT = PropertyRule.EXACT
MINIMUM = PropertyRule.MINIMUM
PRIORITY = PropertyRule.PRIORITY
IGNORE = PropertyRule.IGNORE


def with_rules(*properties: tuple[str, PropertyRule], **fields: object) -> World:
    """A world whose default queue compares properties this way."""
    world = World()
    world.queue(properties=properties, **fields)
    return world


def asks(*requires: tuple[str, str], id: str = "x", **fields: object) -> TaskSpec:
    return task(id, requires=requires, **fields)


def takers(world: World, spec: TaskSpec) -> list[str]:
    """The workers that would take the task, in the order in which they are chosen."""
    run = f"taken{world.numbered}"
    world.submit(spec, run=run)
    world.follow_up()
    found: list[str] = []
    while (granted := world.place_one()) is not None:
        found.append(granted.worker)
        world.client(cm.ForgetWorker, worker=granted.worker)
    world.client(cm.CancelRun, run=run)
    world.follow_up()
    return found


def reasons(world: World, worker: str, run: str = "r", *, alone: bool = False) -> list[str]:
    """The codes of why a run's first task is not given to a worker."""
    live = world.run(run)
    demand = world.state.demand(live.graph.signature(0))
    return [item.code for item in fits(demand, world.state.workers[(TENANT, worker)], world.now, alone=alone)]


# Rules.


def test_only_the_worker_with_the_equal_value_gets_an_exact_match():
    world = with_rules(("os", EXACT))
    world.worker("mac", properties=(("os", "mac"),))
    world.worker("linux", properties=(("os", "linux"),))
    world.worker("mute")
    assert takers(world, asks(("os", "linux"))) == ["linux"]


def test_exact_and_minimum_must_both_hold():
    world = with_rules(("os", EXACT), ("cpu", MINIMUM))
    world.worker("small", properties=(("os", "linux"), ("cpu", "1")))
    world.worker("mac", properties=(("os", "mac"), ("cpu", "8")))
    world.worker("right", properties=(("os", "linux"), ("cpu", "8")))
    assert takers(world, asks(("os", "linux"), ("cpu", "4"))) == ["right"]


def test_a_task_without_requirements_may_go_anywhere():
    world = with_rules(("os", EXACT))
    world.worker("a")
    world.worker("b", properties=(("os", "mac"),))
    assert sorted(takers(world, asks())) == ["a", "b"]


def test_a_priority_property_never_restricts():
    world = with_rules(("zone", PRIORITY))
    world.worker("far", properties=(("zone", "far"),))
    world.worker("mute")
    assert sorted(takers(world, asks(("zone", "near")))) == ["far", "mute"]


def test_a_priority_property_chooses_among_those_that_fit():
    world = with_rules(("zone", PRIORITY), ("disk", PRIORITY))
    world.worker("none")
    world.worker("both", properties=(("zone", "near"), ("disk", "ssd")))
    world.worker("one", properties=(("zone", "near"),))
    assert takers(world, asks(("zone", "near"), ("disk", "ssd"))) == ["both", "one", "none"]


def test_a_score_counts_the_preferences_met():
    queue = Queue(tenant=TENANT, name="q", properties=(("zone", PRIORITY), ("disk", PRIORITY)))
    demand = read_demand(Signature(TENANT, "q", "command", (("zone", "near"), ("disk", "ssd"))), queue)
    assert score(demand, {"zone": ("near", "far"), "disk": ("hdd",)}) == 1
    assert score(demand, {}) == 0


def test_an_ignored_property_is_not_compared():
    world = with_rules(("note", IGNORE))
    world.worker("w", properties=(("note", "blue"),))
    assert takers(world, asks(("note", "red"))) == ["w"]


def test_an_undeclared_property_must_be_equal_where_the_worker_declares_it():
    world = with_rules()
    world.worker("equal", properties=(("site", "a"),))
    world.worker("other", properties=(("site", "b"),))
    world.worker("mute")
    assert sorted(takers(world, asks(("site", "a")))) == ["equal", "mute"]


def test_an_undeclared_property_that_no_worker_declares_restricts_nobody():
    world = with_rules()
    world.worker("a")
    world.worker("b")
    assert sorted(takers(world, asks(("site", "a")))) == ["a", "b"]


def test_a_property_with_several_values_matches_any_and_a_task_that_names_it_twice_needs_both():
    world = with_rules(("isa", EXACT))
    world.worker("new", properties=(("isa", "v1"), ("isa", "v2")))
    world.worker("old", properties=(("isa", "v1"),))
    assert sorted(takers(world, asks(("isa", "v1")))) == ["new", "old"]
    world.worker("new", properties=(("isa", "v1"), ("isa", "v2")))
    world.worker("old", properties=(("isa", "v1"),))
    assert takers(world, asks(("isa", "v1"), ("isa", "v2"), id="y")) == ["new"]


def test_a_minimum_that_is_not_a_number_is_refused_at_the_door():
    world = with_rules(("cpu", MINIMUM))
    for value in ("two", "-1", "1.5", "4 GB", "", "9" * 40):
        spec = asks(("cpu", value))
        refused = world.refusal(world.command(cm.SubmitRun, run="r", graph=graph(spec)))
        assert (refused.code, refused.path) == ("requirement.value", "graph.tasks[0].requires.cpu")


def test_a_worker_that_counts_in_words_is_refused_at_the_door():
    world = with_rules(("cpu", MINIMUM))
    with pytest.raises(Refused) as caught:
        world.worker("w", properties=(("cpu", "many"),))
    assert (caught.value.code, caught.value.path) == ("requirement.value", "capacity.properties.cpu")
    assert not world.state.workers


@pytest.mark.parametrize("name", ["queues", "tenants", "kinds"])
def test_a_worker_that_names_more_than_can_be_compared_is_refused_at_the_door(name: str):
    world = World()
    with pytest.raises(Refused) as caught:
        world.worker("w", **{name: ("x",) * (CAPACITY_NAMES_MAX + 1)})
    assert (caught.value.code, caught.value.path) == ("field.value", f"capacity.{name}")
    assert not world.state.workers


# Quantities and slots.


def test_a_minimum_is_used_up_while_the_work_runs_and_given_back_after():
    world = with_rules(("cpu", MINIMUM))
    worker = world.worker("w", slots=10, properties=(("cpu", "4"),))
    world.submit(graph(asks(("cpu", "3"), id="a"), asks(("cpu", "3"), id="b")))
    (first,) = world.turn()
    assert worker.free == {**worker.totals, "cpu": 1}
    assert reasons(world, "w") == ["worker.capacity"]
    world.succeed(first)
    assert worker.free == worker.totals
    (second,) = world.turn()
    assert second.task != first.task


def test_two_small_jobs_share_a_worker_and_a_third_waits():
    world = with_rules(("cpu", MINIMUM))
    world.worker("w", slots=10, properties=(("cpu", "4"),))
    world.submit(graph(*(asks(("cpu", "2"), id=f"x{number}") for number in range(3))))
    assert len(world.turn()) == 2


def test_a_worker_takes_no_more_tasks_than_it_has_slots():
    world = World()
    world.worker("w", slots=3)
    world.submit(graph(task("x", width=5)))
    assert len(world.turn()) == 3
    assert reasons(world, "w") == ["worker.slots"]


def test_an_interrupted_attempt_gives_back_what_it_took():
    world = with_rules(("cpu", MINIMUM))
    worker = world.worker("w", slots=2, properties=(("cpu", "4"),))
    world.submit(asks(("cpu", "3")))
    (granted,) = world.turn()
    world.interrupt(granted)
    assert (worker.slots_free, worker.free["cpu"]) == (2, 4)


# Order inside a run.


def test_tasks_are_run_in_the_order_in_which_they_became_ready():
    world = World()
    world.worker("w")
    world.submit(graph(task("x", width=5)))
    order: list[int] = []
    for _ in range(5):
        (granted,) = world.turn()
        order.append(granted.task)
        world.succeed(granted)
    assert order == [0, 1, 2, 3, 4]


def test_the_higher_priority_goes_first_and_equals_keep_their_order():
    world = World()
    world.worker("w")
    world.submit(graph(task("a"), task("b", priority=5), task("c", priority=5), task("d", priority=-1)))
    order: list[str] = []
    for _ in range(4):
        (granted,) = world.turn()
        order.append(world.run().graph.task_id(granted.task))
        world.succeed(granted)
    assert order == ["b", "c", "a", "d"]


# Allocation.


def two_used_workers(allocation: Allocation, *, alike: bool = True) -> World:
    """Workers `first` and `second`, idle in that order; `alike` or told apart by some waiting task."""
    world = World()
    world.queue(allocation=allocation, properties=(("colour", EXACT),))
    for name, colour in (("first", "red"), ("second", "red" if alike else "blue")):
        world.worker(name, properties=(("colour", colour),))
    world.submit(asks(("colour", "green")), run="nobody's")
    world.submit(graph(task("warm", width=2)), run="warm")
    by_worker = {granted.worker: granted for granted in world.turn()}
    for name in ("first", "second"):
        world.succeed(by_worker[name])
        world.now += 1_000
    return world


@pytest.mark.parametrize("alike", [True, False])
def test_the_worker_that_has_been_idle_longest_is_taken(alike: bool):
    world = two_used_workers(Allocation.LEAST_RECENTLY_USED, alike=alike)
    assert takers(world, task("x")) == ["first", "second"]


@pytest.mark.parametrize("alike", [True, False])
def test_the_most_recently_used_worker_is_taken_where_the_queue_says_so(alike: bool):
    world = two_used_workers(Allocation.MOST_RECENTLY_USED, alike=alike)
    assert takers(world, task("x")) == ["second", "first"]


def test_a_new_worker_counts_as_never_used():
    world = World()
    world.worker("old")
    world.submit(task("warm"), run="warm")
    (granted,) = world.turn()
    world.succeed(granted)
    world.worker("new")
    assert takers(world, task("x")) == ["new", "old"]


def test_a_new_worker_comes_last_where_the_most_recently_used_is_wanted():
    world = World()
    world.queue(allocation=Allocation.MOST_RECENTLY_USED)
    world.worker("old")
    world.submit(task("warm"), run="warm")
    (granted,) = world.turn()
    world.succeed(granted)
    world.worker("new")
    assert takers(world, task("x")) == ["old", "new"]


def after_inputs(allocation: Allocation, readers: int = 1) -> World:
    """Three workers; `b` made two of the inputs of `reads` and `a` one, and `c` has been idle longest."""
    world = World()
    world.queue(allocation=allocation)
    world.worker("a")
    world.worker("b", slots=2)
    world.submit(graph(task("made", width=3), task("reads", "made", inputs=("made",), width=readers)))
    made = world.turn()
    assert sorted(granted.worker for granted in made) == ["a", "b", "b"]
    for granted in made:
        world.succeed(granted)
    world.worker("c")
    return world


@pytest.mark.parametrize(
    ("allocation", "taker"),
    [(Allocation.NEAREST_INPUTS, "b"), (Allocation.LEAST_RECENTLY_USED, "c")],
)
def test_the_worker_that_made_most_of_the_inputs_is_taken_where_the_queue_says_so(allocation: Allocation, taker: str):
    world = after_inputs(allocation)
    (granted,) = world.turn()
    assert granted.worker == taker


def test_nobody_waits_for_the_nearest_worker_while_another_has_room():
    world = after_inputs(Allocation.NEAREST_INPUTS, readers=4)
    assert [granted.worker for granted in world.turn()] == ["b", "b", "a", "c"]


@pytest.mark.parametrize("trouble", ["drained", "another incarnation"])
def test_a_worker_that_takes_nothing_or_has_lost_what_it_made_is_not_the_nearest(trouble: str):
    world = after_inputs(Allocation.NEAREST_INPUTS)
    if trouble == "drained":
        world.client(cm.DrainWorker, worker="b")
    else:
        world.disconnect("b")
        world.worker("b", slots=2, incarnation="b-again")
    (granted,) = world.turn()
    assert granted.worker == "a"


def test_a_task_without_inputs_takes_who_has_been_idle_longest():
    world = two_used_workers(Allocation.NEAREST_INPUTS)
    assert takers(world, task("x")) == ["first", "second"]


@pytest.mark.parametrize("disturbance", ["quiet", "drained", "described"])
def test_a_worker_keeps_its_place_in_line_when_something_else_about_it_changes(disturbance: str):
    world = two_used_workers(Allocation.LEAST_RECENTLY_USED)
    if disturbance == "quiet":
        world.hear("second")
        world.now += world.state.limits.beat_ms + 1
        world.hear("first")
    elif disturbance == "drained":
        world.client(cm.DrainWorker, worker="first")
        world.client(cm.DrainWorker, worker="first", draining=False)
    else:
        world.worker("second", properties=(("colour", "red"), ("size", "1")))
        world.worker("first", properties=(("colour", "red"), ("size", "1")))
    assert takers(world, task("x")) == ["first", "second"]


# Who takes no work.


def test_a_draining_worker_finishes_its_work_and_gets_no_more_until_it_is_let_back():
    world = World()
    world.worker("w", slots=2)
    world.submit(graph(task("x", width=2)))
    first = world.turn()[0]
    world.interrupt(world.place_one() or first)
    world.client(cm.DrainWorker, worker="w")
    assert world.place() == []
    assert "worker.draining" in reasons(world, "w")
    world.client(cm.DrainWorker, worker="w", draining=False)
    assert len(world.place()) >= 1


def test_a_worker_that_fails_by_itself_five_times_rests_for_a_minute():
    world = World()
    world.worker("w")
    world.submit(graph(task("x", width=9)))
    for _ in range(5):
        (granted,) = world.turn()
        world.fail(granted, failure=FailureClass.INTERNAL)
    assert world.turn() == []
    assert reasons(world, "w") == ["worker.quarantined"]
    world.advance(world.state.limits.quarantine_ms)
    assert len(world.turn()) == 1


def test_a_quarantine_has_a_cause_and_can_be_ended():
    world = World()
    worker = world.worker("w")
    world.submit(graph(task("x", width=9)))
    for _ in range(5):
        (granted,) = world.turn()
        world.fail(granted, failure=FailureClass.INTERNAL, error="broken disk\nand more")
    assert worker.row.quarantine_cause.endswith("r/x[4]: broken disk")
    demand = world.state.demand(world.run().graph.signature(0))
    assert worker.row.quarantine_cause in fits(demand, worker, world.now)[0].text
    after = world.restarted()
    assert after.state.workers[worker.key].row == worker.row
    world.client(cm.EndQuarantine, worker="w")
    assert (worker.row.quarantined_until, worker.row.quarantine_cause) == (0, "")
    assert len(world.turn()) == 1
    assert world.client(cm.EndQuarantine, worker="w").changes == [], "once is enough"


def test_a_success_clears_a_workers_record():
    world = World()
    world.worker("w")
    world.submit(graph(task("x", width=20)))
    for number in range(9):
        (granted,) = world.turn()
        if number == 4:
            world.succeed(granted)
        else:
            world.fail(granted, failure=FailureClass.INTERNAL)
    assert len(world.turn()) == 1


def test_a_worker_silent_for_longer_than_its_queue_allows_gets_nothing_until_it_speaks():
    world = World()
    world.queue(worker_timeout_ms=15_000)
    world.worker("w")
    world.silence("w")
    world.now += 15_000
    world.submit(task("x"), run="in time")
    assert len(world.turn()) == 1
    world.worker("w2")
    world.silence("w2")
    world.now += 15_001
    world.submit(task("y"), run="r")
    assert world.turn() == []
    assert reasons(world, "w2") == ["worker.silent"]
    world.hear("w2")
    assert len(world.turn()) == 1


def test_a_short_patience_is_over_as_soon_as_the_worker_speaks_again():
    world = World()
    world.queue(worker_timeout_ms=1_000)
    world.worker("w")
    world.now += 1_001
    world.submit(task("x"))
    assert world.turn() == []
    world.hear("w")
    assert len(world.turn()) == 1


def test_a_worker_whose_stream_is_gone_gets_nothing_until_it_is_back():
    world = World()
    world.worker("w")
    world.disconnect("w")
    world.submit(task("x"))
    assert world.turn() == []
    assert reasons(world, "w") == ["worker.absent"]
    world.hear("w")
    assert len(world.turn()) == 1


# Anti-affinity.


def test_an_interrupted_task_tries_another_worker_first():
    world = World()
    world.worker("a")
    world.submit(task("x"))
    (granted,) = world.turn()
    world.start(granted)
    world.worker("b")
    world.interrupt(granted)
    (again,) = world.turn()
    assert again.worker == "b"


def test_an_interrupted_task_waits_for_another_worker_that_is_busy():
    world = World()
    world.worker("a")
    world.worker("b")
    world.submit(graph(task("x", width=2)))
    first, second = world.turn()
    world.start(first)
    world.interrupt(first)
    assert world.turn() == []
    world.succeed(second)
    (again,) = world.turn()
    assert (again.task, again.worker) == (first.task, second.worker)


def test_an_interrupted_task_returns_to_its_worker_when_there_is_no_other():
    world = World()
    world.worker("a")
    world.submit(task("x"))
    (granted,) = world.turn()
    world.start(granted)
    world.interrupt(granted)
    (again,) = world.turn()
    assert again.worker == "a"


def test_an_interrupted_task_returns_to_its_worker_when_the_other_has_gone():
    world = World()
    world.worker("a")
    world.worker("b")
    world.submit(graph(task("x", width=2)))
    first, second = world.turn()
    world.start(first)
    world.interrupt(first)
    assert world.turn() == []
    world.client(cm.ForgetWorker, worker=second.worker)
    (other,) = world.turn()
    if other.task != first.task:
        world.succeed(other)
        (other,) = world.turn()
    assert (other.task, other.worker) == (first.task, first.worker)


def test_the_least_patient_queue_decides_from_when_on_a_worker_was_quiet():
    world = World()
    usual = world.state.silence_ms
    world.queue("hasty", worker_timeout_ms=1_000)
    assert world.state.silence_ms == 1_000
    world.queue("patient", worker_timeout_ms=10 * usual)
    assert world.state.silence_ms == 1_000
    world.queue("hasty", worker_timeout_ms=2_000)
    assert world.state.silence_ms == 2_000, "a queue that becomes patient again counts as it is"
    world.queue("hasty", worker_timeout_ms=0)
    assert world.state.silence_ms == usual


def test_two_tenants_workers_of_one_name_are_two_workers_to_avoid_and_to_try():
    world = World()
    world.worker("w", tenant="ada")
    world.submit(task("x"))
    (first,) = world.turn()
    world.worker("w", tenant="bob")
    world.start(first)
    world.interrupt(first)
    row = world.task("x")
    assert (row.avoid_tenant, row.avoid) == ("ada", "w")
    world.hear("w", tenant="ada")
    (second,) = world.turn()
    assert (second.worker_tenant, second.worker) == ("bob", "w")


def test_a_task_that_avoids_its_worker_is_looked_at_again_when_the_only_other_one_leaves():
    world = World()
    world.worker("a")
    world.worker("b")
    world.submit(graph(task("x"), task("y")))
    first, second = world.turn()
    world.start(first)
    world.interrupt(first)
    assert world.turn() == []
    world.client(cm.DrainWorker, worker=second.worker)
    assert [again.worker for again in world.turn()] == [first.worker]


def avoiding_its_worker() -> tuple[World, str, str]:
    """A task that waits although its last worker has room, since it was interrupted there and another is well."""
    world = World()
    world.worker("a")
    world.worker("b")
    world.submit(graph(task("x"), task("y")))
    first, second = world.turn()
    world.start(first)
    world.start(second)
    world.interrupt(first)
    assert world.turn() == []
    return world, first.worker, second.worker


def test_a_task_that_avoids_its_worker_is_looked_at_again_when_the_only_other_one_is_quarantined():
    world, avoided, other = avoiding_its_worker()
    evolve(world.state, WorkerQuarantined(TENANT, other, world.now + 60_000))
    assert [again.worker for again in world.turn()] == [avoided]


def test_a_task_that_avoids_its_worker_is_looked_at_again_when_the_only_other_one_says_it_is_stopping():
    world, avoided, other = avoiding_its_worker()
    leaves(world.state, worker_of(world, other), world.now)
    assert [again.worker for again in world.turn()] == [avoided]


def test_a_task_that_avoids_its_worker_is_looked_at_again_when_the_only_other_one_is_silent():
    world, avoided, other = avoiding_its_worker()
    world.silence(other)
    world.advance(Queue(tenant="", name="").worker_timeout_ms - 1_000)
    assert world.turn() == []
    world.advance(2_000)
    assert [again.worker for again in world.turn()] == [avoided]


def test_an_interrupted_task_returns_to_its_worker_when_no_other_is_large_enough():
    world = with_rules(("cpu", MINIMUM))
    world.worker("large", properties=(("cpu", "8"),))
    world.worker("small", properties=(("cpu", "1"),))
    world.submit(asks(("cpu", "8")))
    (granted,) = world.turn()
    world.start(granted)
    world.interrupt(granted)
    assert [again.worker for again in world.turn()] == ["large"]


def test_an_interrupted_task_returns_to_its_worker_when_all_others_are_draining():
    world = World()
    world.worker("a")
    world.submit(task("x"))
    (granted,) = world.turn()
    world.start(granted)
    world.worker("b")
    world.client(cm.DrainWorker, worker="b")
    world.interrupt(granted)
    assert [again.worker for again in world.turn()] == ["a"]


# Tenants, queues, kinds.


@pytest.mark.parametrize(
    ("capacity", "code"),
    [
        ({"tenants": ("other",)}, "worker.tenant"),
        ({"queues": ("other",)}, "worker.queue"),
        ({"kinds": ("python",)}, "worker.kind"),
        ({"pull": True}, "worker.pull"),
    ],
)
def test_a_worker_serves_only_what_it_said_it_serves(capacity: dict[str, object], code: str):
    world = World()
    world.worker("w", **capacity)
    world.submit(task("x"))
    assert world.turn() == []
    assert reasons(world, "w") == [code]


def test_a_worker_of_one_tenant_may_serve_another():
    world = World()
    world.worker("w", tenant="shared", tenants=(TENANT,))
    world.submit(task("x"))
    (granted,) = world.turn()
    assert (granted.worker_tenant, granted.tenant) == ("shared", TENANT)


# Impossible, absent, busy.


def test_impossible_absent_and_busy_are_three_answers():
    world = with_rules(("os", EXACT), ("cpu", MINIMUM))
    world.worker("w", properties=(("os", "linux"), ("cpu", "4")))
    world.submit(asks(("os", "plan9")), run="impossible")
    world.submit(asks(("os", "linux"), ("cpu", "5")), run="too large")
    world.submit(asks(("os", "linux"), ("cpu", "4")), run="busy")
    (granted,) = world.turn()
    assert granted.run == "busy"
    assert reasons(world, "w", "impossible")[0] == "worker.incompatible"
    assert reasons(world, "w", "too large")[0] == "worker.incompatible"
    assert set(reasons(world, "w", "busy")) == {"worker.slots", "worker.capacity"}
    index = world.state.index
    servable = {
        name: index.is_servable(world.state.bucket_of(world.run(name), world.run(name).tasks[0]))
        for name in ("impossible", "too large", "busy")
    }
    assert servable == {"impossible": False, "too large": False, "busy": True}
    world.disconnect("w")
    assert reasons(world, "w", "busy")[0] == "worker.absent"
    assert index.is_servable(world.state.bucket_of(world.run("busy"), world.run("busy").tasks[0]))


def test_an_impossible_task_becomes_possible_when_a_fitting_worker_joins_and_not_when_another_does():
    world = with_rules(("os", EXACT))
    world.submit(asks(("os", "linux")))
    assert world.turn() == []
    world.worker("mac", properties=(("os", "mac"),))
    assert world.turn() == []
    world.worker("linux", properties=(("os", "linux"),))
    assert [granted.worker for granted in world.turn()] == ["linux"]


def test_a_worker_that_left_is_chosen_no_more():
    world = with_rules(("os", EXACT))
    world.worker("linux", properties=(("os", "linux"),))
    world.client(cm.ForgetWorker, worker="linux")
    world.submit(asks(("os", "linux")))
    assert world.turn() == []
    bucket = next(iter(world.state.index.buckets.values()))
    assert bucket.shapes == []
    assert not world.state.index.is_servable(bucket)


# Queues that change.


def test_waiting_tasks_are_read_again_when_their_queue_changes():
    world = with_rules(("os", EXACT))
    world.worker("mac", properties=(("os", "mac"),))
    world.submit(asks(("os", "linux")))
    assert world.turn() == []
    world.queue(properties=(("os", PRIORITY),))
    assert len(world.turn()) == 1


def test_a_quantity_that_becomes_counted_is_counted_for_running_work_too():
    world = with_rules()
    worker = world.worker("w", slots=9, properties=(("ram", "4"),))
    world.submit(graph(asks(("ram", "4"), id="a")))
    assert len(world.turn()) == 1
    world.queue(properties=(("ram", MINIMUM),))
    assert worker.free["ram"] == 0
    world.submit(graph(asks(("ram", "1"), id="b"), name="h"), run="s")
    assert world.turn() == []


def test_a_queue_is_not_redefined_so_that_waiting_requirements_cannot_be_read():
    """Either the new rules are refused, or the task waits and says why; applying a change cannot fail."""
    world = with_rules(("ram", EXACT))
    world.worker("w", properties=(("ram", "lots"),))
    world.submit(asks(("ram", "more")))
    world.turn()
    try:
        world.queue(properties=(("ram", MINIMUM),))
    except Refused as refused:
        assert refused.code == "requirement.value"
    else:
        assert world.turn() == []
        assert world.result() is RunState.RUNNING
    world.client(cm.CancelRun, run="r")
    world.follow_up()
    assert world.result() is RunState.CANCELLED


def test_a_graph_that_was_readable_once_does_not_break_the_queue_that_reads_it_differently_now():
    world = with_rules(("ram", EXACT))
    known = graph(asks(("ram", "more")))
    world.submit(known, run="old")
    world.turn()
    world.client(cm.CancelRun, run="old")
    world.follow_up()
    world.queue(properties=(("ram", MINIMUM),))
    try:
        world.submit(known, run="new")
    except Refused as refused:
        assert refused.code == "requirement.value"
    else:
        assert world.turn() == []


def test_a_task_goes_to_the_worker_it_prefers_also_when_another_became_free_first():
    world = with_rules(("os", PRIORITY))
    world.worker("plain")
    world.worker("linux", properties=(("os", "linux"),))
    world.submit(task("x", width=2), run="first")
    held = {granted.worker: granted for granted in world.turn()}
    world.submit(asks(("os", "linux")), run="second")
    assert world.turn() == []
    world.succeed(held["plain"])
    world.succeed(held["linux"])
    assert [granted.worker for granted in world.turn()] == ["linux"]


# The index equals the predicate.

PROPERTIES = (("os", "linux"), ("os", "mac"), ("cpu", "1"), ("cpu", "2"), ("cpu", "4"), ("zone", "a"), ("zone", "b"))
RULES = st.sampled_from([EXACT, PRIORITY, IGNORE, None])


@st.composite
def rules(draw: st.DrawFn) -> tuple[tuple[str, PropertyRule], ...]:
    chosen = [("os", draw(RULES)), ("zone", draw(RULES)), ("cpu", draw(st.sampled_from([MINIMUM, EXACT, None])))]
    return tuple((name, rule) for name, rule in chosen if rule is not None)


def fitting_pairs(world: World) -> list[tuple[str, int, str]]:
    """Every waiting task with every worker that may have it, by the predicate alone."""
    state = world.state
    found: list[tuple[str, int, str]] = []
    for run, row in world.waiting():
        bucket = state.bucket_of(run, row)
        if bucket.demand.pull or state.pool_reasons(bucket, world.now):
            continue
        demand = state.demand(signature_of(run, row))
        alone = bool(row.avoid) and state.index.is_alone(bucket, world.now)
        fitting = [each for each in state.workers.values() if not fits(demand, each, world.now, alone=alone)]
        found.extend((run.row.id, row.idx, worker.row.id) for worker in fitting)
    return found


def signature_of(run: LiveRun, row: Task) -> Signature:
    plain = run.graph.signature(run.graph.node(row.idx))
    requires = plain.requires if row.requires is None else row.requires
    return Signature(
        plain.tenant, plain.queue, plain.kind, requires, plain.pools, (row.avoid_tenant, row.avoid) if row.avoid else ()
    )


def assert_best(world: World, granted: LeaseGranted) -> None:
    """The worker is among those that meet most of what the task prefers."""
    run = world.state.runs[(granted.tenant, granted.run)]
    demand = world.state.demand(signature_of(run, run.tasks[granted.task]))
    points = {
        name: score(demand, worker_of(world, name).values)
        for run_id, idx, name in fitting_pairs(world)
        if (run_id, idx) == (granted.run, granted.task)
    }
    assert points[granted.worker] == max(points.values())


def worker_of(world: World, name: str) -> LiveWorker:
    return world.state.workers[(TENANT, name)]


def place_and_compare(world: World) -> list[LeaseGranted]:
    made: list[LeaseGranted] = []
    while True:
        pairs = fitting_pairs(world)
        placed = place(world.state, world.now)
        if not placed:
            assert pairs == [], "something fits and nothing is granted"
            return made
        (granted,) = placed
        assert isinstance(granted, LeaseGranted), "nobody has cleared anything"
        assert (granted.run, granted.task, granted.worker) in pairs, "something is granted that does not fit"
        assert_best(world, granted)
        evolve(world.state, granted)
        made.append(granted)


class Disturber:
    """Random things that happen to a world."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.world = World()
        self.held: list[LeaseGranted] = []
        self.number = 0
        self.world.pool("p", slots=2, slots_per_key=1)
        self.world.queue("q", worker_timeout_ms=3_000)

    def choose(self, *items: object) -> object:
        return self.data.draw(st.sampled_from(items))

    def submit(self) -> None:
        self.number += 1
        requires = self.data.draw(st.lists(st.sampled_from(PROPERTIES), max_size=2))
        spec = TaskSpec(
            id="x",
            width=self.data.draw(st.integers(1, 3)),
            kind=str(self.choose("command", "python")),
            queue=str(self.choose("default", "q")),
            requires=tuple(dict.fromkeys(requires)),
            pools=self.choose((), (), (PoolNeed("p"),), (PoolNeed("p", 2),), (PoolNeed("p", 1, "k"),)),
        )
        self.world.submit(graph(spec, name=f"g{self.number}"), run=f"r{self.number}")

    def register(self) -> None:
        name = str(self.choose("w1", "w2", "w3", "w4"))
        properties = self.data.draw(st.lists(st.sampled_from(PROPERTIES), max_size=3, unique=True))
        known = self.world.state.workers.get((TENANT, name))
        self.world.worker(
            name,
            slots=self.data.draw(st.integers(1, 3)),
            incarnation=known.row.incarnation if known else f"i{self.number}",
            properties=tuple(properties),
            kinds=self.choose((), (), ("python",)),
            queues=self.choose((), (), ("q",)),
        )

    def finish(self) -> None:
        live = [granted for granted in self.held if granted.fence in self.world.state.leases]
        if live:
            granted = self.data.draw(st.sampled_from(live))
            outcome = self.choose("success", "released", "interrupted", "internal")
            if outcome == "interrupted":
                self.world.start(granted)
                self.world.interrupt(granted)
            elif outcome == "internal":
                self.world.fail(granted, failure=FailureClass.INTERNAL)
            else:
                self.world.report(granted, cm.Outcome(outcome))

    def worker_changes(self) -> None:
        workers = list(self.world.state.workers.values())
        if not workers:
            return
        name = self.data.draw(st.sampled_from(workers)).row.id
        what = self.choose("drain", "resume", "forget", "hear", "away", "silence")
        if what in ("drain", "resume"):
            self.world.client(cm.DrainWorker, worker=name, draining=what == "drain")
        elif what == "forget":
            self.world.client(cm.ForgetWorker, worker=name)
            self.world.silence(name)
        elif what == "hear":
            self.world.hear(name)
            self.world.beating[(TENANT, name)] = None
        elif what == "away":
            self.world.disconnect(name)
        else:
            self.world.silence(name)

    def definitions_change(self) -> None:
        what = self.choose("queue", "pool", "drop pool")
        if what == "queue":
            self.world.queue(
                str(self.choose("default", "q")), properties=self.data.draw(rules()), worker_timeout_ms=4_000
            )
        elif what == "pool":
            self.world.pool(
                "p", slots=self.data.draw(st.integers(1, 3)), slots_per_key=self.data.draw(st.integers(0, 2))
            )
        elif (TENANT, "p") in self.world.state.pools:
            self.world.client(cm.DropPool, name="p")

    def run_changes(self) -> None:
        live = [
            run for run in self.world.state.runs.values() if run.row.state is RunState.RUNNING and not run.row.stopping
        ]
        if live:
            run = self.data.draw(st.sampled_from(live))
            what = self.choose("pause", "resume", "cancel")
            if what == "cancel":
                self.world.client(cm.CancelRun, run=run.row.id)
            else:
                self.world.client(cm.PauseRun, run=run.row.id, paused=what == "pause")

    def step(self) -> None:
        what = self.choose(
            self.submit,
            self.submit,
            self.register,
            self.finish,
            self.finish,
            self.worker_changes,
            self.definitions_change,
            self.run_changes,
            "time",
        )
        if what == "time":
            self.world.advance(self.data.draw(st.sampled_from([1, 1_000, 4_000, 12_000, 61_000])))
        else:
            try:
                what()
            except Refused as refused:
                assert refused.code in ("pool.too_small", "pool.unknown", "requirement.value", "worker.duplicate")


@examples(80)
@given(data=st.data())
def test_something_is_granted_exactly_while_something_fits(data: st.DataObject):
    disturber = Disturber(data)
    for _ in range(data.draw(st.integers(5, 40))):
        disturber.step()
        disturber.world.follow_up()
        if data.draw(st.booleans()):
            disturber.held += place_and_compare(disturber.world)
    disturber.held += place_and_compare(disturber.world)
