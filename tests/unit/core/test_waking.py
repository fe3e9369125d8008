"""Whom the coordinator tells of work that waits to be claimed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rota.core import commands as cm
from rota.core.backlog import BacklogLine, GetScheduler, ListBacklog, SchedulerView
from rota.core.bounds import TimeLimits
from rota.core.cycle import COOLDOWN_MS, Wake
from rota.core.fits import fits
from rota.core.ladder import NOT_CLAIMED, PARKED_QUEUED, PARKED_UNCLAIMED, STILL_QUEUED, ClimbRule
from rota.core.model import Mood, PoolNeed, PriorityClass, RetryPolicy
from rota.core.presence import heard_from, take_mood
from rota.core.questions import answer
from rota.core.states import TaskState
from rota.core.waking import FEW, found_nothing, in_order, stir_all, stop_waiting, wait_for_work, wakes, woke
from tests.effort import examples
from tests.unit.core.test_claims import INCARNATION, claim, item, report, session
from tests.unit.core.world import TENANT, World, task


def woken(world: World, *, everybody: bool = False) -> list[tuple[str, str]]:
    """Who was told of what, in this turn."""
    world.turn()
    found = wakes(world.state, world.now, everybody=everybody)
    for wake in found:
        woke(world.state, wake, world.now)
    return [(wake.item[1], wake.session[1]) for wake in found]


def sweep(world: World) -> list[tuple[str, str]]:
    stir_all(world.state, world.now)
    return woken(world, everybody=True)


def test_a_session_is_told_of_new_work_once():
    world = World()
    session(world)
    assert woken(world) == []
    item(world, "one")
    assert woken(world) == [("one", "s")]
    assert woken(world) == []


def test_each_of_several_is_told_to_another_session():
    world = World()
    session(world, "a")
    session(world, "b")
    for name in ("one", "two", "three-more"):
        item(world, name)
    assert sorted(woken(world)) == [("one", "a"), ("three-more", "b")]


def test_a_session_that_becomes_free_is_told_of_what_waits():
    world = World()
    session(world)
    item(world, "one")
    item(world, "two")
    assert woken(world) == [("one", "s")]
    claim(world)
    assert woken(world) == []
    world.do(cm.LeaveWorker(tenant=TENANT, worker="s", incarnation="i1"))
    session(world, "t")
    assert woken(world) == [("one", "t")]


def test_who_is_busy_talking_or_about_to_leave_is_not_told():
    world = World()
    session(world)
    worker = world.state.workers[(TENANT, "s")]
    for mood in (Mood.PROMPTING, Mood.STOPPING):
        take_mood(world.state, worker, mood)
        item(world, f"for-{mood}")
        assert woken(world) == []
    take_mood(world.state, worker, Mood.IDLE)
    assert len(woken(world)) == 1


def test_the_same_is_not_told_again_before_the_cooldown_is_over():
    world = World()
    session(world)
    item(world, "one")
    assert woken(world) == [("one", "s")]
    world.advance(COOLDOWN_MS - 1)
    assert sweep(world) == []
    world.advance(1)
    assert sweep(world) == [("one", "s")]


def test_nobody_is_told_of_what_is_paused():
    world = World()
    session(world, workspace="w")
    world.client(cm.PauseScheduler, scope="workspace=w")
    item(world, "one", workspace="w")
    assert woken(world) == []
    world.client(cm.PauseScheduler, scope="workspace=w", paused=False)
    assert woken(world) == [("one", "s")]


def test_wakes_are_forgotten_when_they_do_not_matter_any_more():
    world = World()
    session(world)
    item(world, "one")
    woken(world)
    assert len(world.state.wakes) == 1
    world.advance(3_600_000)
    stir_all(world.state, world.now)
    assert len(world.state.wakes) == 0


def test_a_wake_gives_nobody_anything():
    world = World()
    session(world)
    item(world, "one")
    before = len(world.changes)
    assert woken(world) == [("one", "s")]
    assert world.changes[before:] == []
    assert not world.state.leases
    assert woke(world.state, Wake((TENANT, "one"), (TENANT, "gone")), world.now) is None


def test_a_heap_is_read_in_order_and_left_alone():
    heap = [(at, "", number, None, 0) for number, at in enumerate([1, 3, 2, 7, 4, 9, 5])]
    assert [entry[0] for entry in in_order(heap)] == sorted(entry[0] for entry in heap)


def test_who_was_heard_of_just_now_is_told_first():
    world = World()
    session(world, "deaf")
    world.silence("deaf")
    world.advance(20_000)
    session(world, "listens")
    item(world, "one")
    assert woken(world) == [("one", "listens")]


def test_who_could_have_what_a_pool_held_back_is_told_when_it_opens():
    world = World()
    world.pool("p", slots=1)
    session(world, "a")
    session(world, "b")
    needs = (PoolNeed("p"),)
    for run in ("one", "two"):
        world.submit(task("x", queue="agents", pools=needs), run)
    world.follow_up()
    woken(world)
    assert claim(world, "a") == "one"
    assert woken(world) == []
    world.do(cm.LeaveWorker(tenant=TENANT, worker="a", incarnation="i1"))
    assert [session for _, session in woken(world)] == ["b"]


# The backlog.


def backlog(world: World, **fields: object) -> list[str]:
    found = answer(world.state, ListBacklog(tenant=TENANT, **fields), world.now)
    assert isinstance(found, tuple)
    return [line.run + ("*" if line.paused else "") for line in found if isinstance(line, BacklogLine)]


def test_the_backlog_is_in_the_order_of_claims_with_what_is_held_back_at_its_end():
    world = World()
    session(world, slots=9)
    item(world, "low", "low")
    item(world, "urgent", "urgent")
    item(world, "paused", "urgent")
    item(world, "elsewhere", "high", workspace="w")
    world.client(cm.PauseRun, run="paused")
    world.client(cm.PauseScheduler, scope="workspace=w")
    assert backlog(world) == ["urgent", "elsewhere*", "low", "paused*"]
    assert backlog(world, limit=1) == ["urgent"]
    assert backlog(world, include_paused=False) == ["urgent", "low"]
    assert backlog(world, scope="workspace=w") == ["elsewhere*"]
    assert [claim(world), claim(world), claim(world)] == ["urgent", "low", ""]


def test_how_the_scheduler_stands():
    world = World()
    session(world, slots=9)
    item(world, "one")
    item(world, "two", capability="flying")
    item(world, "three")
    claim(world)
    world.client(cm.PauseScheduler, reason="night")
    found = answer(world.state, GetScheduler(tenant=TENANT), world.now)
    assert isinstance(found, SchedulerView)
    assert (found.paused, found.queued, found.held, found.starved, found.sessions) == (True, 2, 1, 1, 1)
    assert found.pauses[0].reason == "night"


# Work that comes back.


def wait(world: World, name: str = "s", wait_ms: int = 3_600_000, **fields: object) -> str:
    """Claim as a session that waits does: the run it was given, or nothing, and then it waits for a wake."""
    wanted = {"command_id": str(fields), **fields}
    command = cm.ClaimTask(tenant=TENANT, worker=name, incarnation=INCARNATION, wait_ms=wait_ms, **wanted)
    got = claim(world, name, wait_ms=wait_ms, **fields)
    worker = world.state.workers[(TENANT, name)]
    if got:
        stop_waiting(worker, command.command_id)
    else:
        found_nothing(world.state, worker, world.now)
        wait_for_work(worker, command, world.now)
    return got


def come_back(world: World, how: str) -> None:
    """Let the item that session s holds, or was told of, become claimable anew."""
    if how == "released":
        claim(world)
        report(world, "one", cm.Outcome.RELEASED)
    elif how == "lease expired":
        claim(world, lease_ms=5_000)
        world.silence("s")
        world.advance(6_000)
        world.hear("s")
    elif how == "retry due":
        claim(world)
        report(world, "one", cm.Outcome.FAILED)
        world.advance(world.task("x", "one").due_at - world.now)
    elif how == "run resumed":
        world.client(cm.PauseRun, run="one")
        world.advance(1_000)
        world.client(cm.PauseRun, run="one", paused=False)
    else:
        world.client(cm.PauseScheduler)
        world.advance(1_000)
        world.client(cm.PauseScheduler, paused=False)


@pytest.mark.parametrize("how", ["released", "lease expired", "retry due", "run resumed", "scheduler resumed"])
def test_work_that_comes_back_is_told_within_the_cooldown(how: str):
    world = World()
    session(world)
    world.submit(task("x", queue="agents", retry=RetryPolicy(retries=3)), "one")
    world.follow_up()
    assert woken(world) == [("one", "s")]
    come_back(world, how)
    assert woken(world) == [("one", "s")]


def test_a_session_that_claimed_one_task_of_a_run_is_told_of_the_next_when_it_is_free():
    world = World()
    session(world)
    world.submit(task("x", queue="agents", width=2), "one")
    world.follow_up()
    assert woken(world) == [("one", "s")]
    assert claim(world) == "one"
    report(world, "one", cm.Outcome.SUCCESS)
    assert woken(world) == [("one", "s")]


def test_a_claim_that_waits_is_told_before_a_session_that_only_listens():
    world = World()
    session(world, "listens")
    session(world, "waits")
    woken(world)
    assert wait(world, "waits") == ""
    item(world, "one")
    assert woken(world) == [("one", "waits")]


def test_a_claim_that_waits_for_something_else_is_not_told_first():
    world = World()
    session(world, "waits", channel="c")
    session(world, "other")
    woken(world)
    assert wait(world, "waits", where=(("channel", "c"),)) == ""
    item(world, "one")
    item(world, "two", channel="c")
    assert sorted(woken(world)) == [("one", "other"), ("two", "waits")]


def test_every_claim_that_waits_is_told_when_a_run_has_enough_tasks():
    world = World()
    names = ["a", "b", "c"]
    for name in names:
        session(world, name)
    woken(world)
    assert [wait(world, name) for name in names] == ["", "", ""]
    world.submit(task("x", queue="agents", width=3), "one")
    world.follow_up()
    got: list[tuple[str, str]] = []
    while told := woken(world):
        got += [(name, wait(world, name)) for _, name in told]
    assert sorted(got) == [(name, "one") for name in names]


def test_all_claims_of_a_session_wait_and_each_may_be_withdrawn():
    world = World()
    session(world, "listens", slots=2, channel="c")
    session(world, "waits", slots=2, channel="c")
    woken(world)
    worker = world.state.workers[(TENANT, "waits")]
    wait(world, "waits", where=(("channel", "c"),))
    wait(world, "waits", least=PriorityClass.URGENT)
    stop_waiting(worker, "of another claim that did not wait")
    item(world, "one", channel="c")
    assert woken(world) == [("one", "waits")]
    assert claim(world, "listens") == "one"
    wait(world, "waits", where=(("channel", "c"),))
    wait(world, "waits", least=PriorityClass.URGENT)
    stop_waiting(worker, str({"where": (("channel", "c"),)}))
    item(world, "two", channel="c")
    assert woken(world) == [("two", "listens")], "the claim for it was withdrawn"
    item(world, "three", "urgent", channel="c")
    assert woken(world) == [("three", "waits")]


def test_the_claims_of_an_earlier_process_wait_no_longer():
    world = World()
    session(world, "senior")
    session(world, "waits")
    woken(world)
    wait(world, "waits")
    register = cm.RegisterWorker(
        tenant=TENANT, worker="waits", incarnation="i2", capacity=world.state.workers[(TENANT, "waits")].row.capacity
    )
    world.advance(3_600_001)
    world.do(register)
    woken(world)
    assert world.state.workers[(TENANT, "waits")].claims == {}


def test_claims_that_wait_for_other_work_do_not_hide_one_that_waits_for_this():
    world = World()
    for number in range(FEW + 1):
        session(world, f"u{number:03}")
    session(world, "z")
    woken(world)
    for number in range(FEW + 1):
        wait(world, f"u{number:03}", least=PriorityClass.URGENT)
    wait(world, "z")
    item(world, "one")
    assert woken(world) == [("one", "z")]


def test_a_session_that_was_told_too_early_is_told_again_when_the_pool_opens():
    world = World()
    world.pool("p", slots=1)
    session(world, "a")
    session(world, "b")
    woken(world)
    for run in ("one", "two"):
        world.submit(task("x", queue="agents", pools=(PoolNeed("p"),)), run)
    world.follow_up()
    assert sorted(woken(world)) == [("one", "a"), ("two", "b")]
    assert claim(world, "a") == "one"
    assert claim(world, "b") == ""
    found_nothing(world.state, world.state.workers[(TENANT, "b")], world.now)
    world.advance(5_000)
    report(world, "one", cm.Outcome.SUCCESS)
    take_mood(world.state, world.state.workers[(TENANT, "a")], Mood.PROMPTING)
    assert woken(world) == [("two", "b")]
    world.advance(1_000)
    assert sweep(world) == [], "from then on the cooldown holds"


def test_a_claim_whose_wait_is_over_is_a_session_like_any_other():
    world = World()
    session(world, "waited")
    session(world, "senior")
    woken(world)
    wait(world, "waited", wait_ms=1_000)
    world.advance(1_000)
    item(world, "one")
    assert woken(world) == [("one", "senior")], "the first by name of those that joined together"
    assert world.state.workers[(TENANT, "waited")].claims == {}, "a claim that is over is forgotten"


# Promise 12: claimable work and a claim that waits for it meet, whatever happened before.

SESSIONS = ("s", "t")
ITEMS = ("one", "two")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["item", "wait", "give_up", "release", "fail", "hold", "resume", "pause", "go_on", "time"]),
        st.integers(0, 1),
        st.integers(0, 40_000),
    ),
    max_size=25,
)


class Drive:
    """Two sessions and two items; a session that is woken while its claim waits claims again."""

    def __init__(self) -> None:
        self.world = World()
        self.waiting: dict[str, None] = {}
        for name in SESSIONS:
            session(self.world, name)
            # Its beats would renew its leases.
            self.world.silence(name)
        self.settle()

    def settle(self) -> None:
        for name in SESSIONS:
            heard_from(self.world.state, self.world.state.workers[(TENANT, name)], self.world.now)
        while told := woken(self.world):
            for _, name in told:
                if name in self.waiting:
                    self.wait(name)

    def wait(self, name: str) -> None:
        self.waiting.pop(name, None)
        if self.world.state.workers[(TENANT, name)].slots_free and not wait(self.world, name, lease_ms=5_000):
            self.waiting[name] = None

    def holder(self, name: str) -> str:
        run = self.world.state.runs.get((TENANT, name))
        return run.tasks[0].worker if run is not None and run.tasks and run.tasks[0].fence else ""

    def do(self, what: str, which: int) -> None:
        world, name, one = self.world, ITEMS[which], SESSIONS[which]
        exists = (TENANT, name) in world.state.runs
        if what == "item" and not exists:
            world.submit(task("x", queue="agents", retry=RetryPolicy(retries=9)), name)
            world.follow_up()
        elif what == "wait" and one not in self.waiting:
            self.wait(one)
        elif what == "give_up" and one in self.waiting:
            del self.waiting[one]
            stop_waiting(world.state.workers[(TENANT, one)])
        elif what in ("release", "fail") and self.holder(name):
            report(world, name, cm.Outcome.RELEASED if what == "release" else cm.Outcome.FAILED)
        elif what in ("hold", "resume") and exists:
            world.client(cm.PauseRun, run=name, paused=what == "hold")
        elif what in ("pause", "go_on"):
            world.client(cm.PauseScheduler, paused=what == "pause")

    def apart(self) -> list[tuple[str, str]]:
        """Claims that wait, and work that the claims could have."""
        state, now = self.world.state, self.world.now
        return [
            (name, str(bucket.demand.signature))
            for name in self.waiting
            for bucket in state.index.buckets.values()
            if bucket.live
            and not state.hold_reasons(bucket, now)
            and not fits(bucket.demand, state.workers[(TENANT, name)], now, alone=state.index.is_alone(bucket, now))
        ]


@examples(200)
@given(STEPS)
def test_claimable_work_and_a_claim_that_waits_meet(steps: list[tuple[str, int, int]]):
    drive = Drive()
    for what, which, then_ms in steps:
        drive.do(what, which)
        drive.settle()
        assert drive.apart() == []
        drive.world.advance(then_ms)
        drive.settle()
        assert drive.apart() == []


# The ladder.


def cycles_of(world: World, run: str = "one") -> int:
    return world.state.runs[(TENANT, run)].tasks[0].cycles


def sweeps(world: World, count: int) -> None:
    """Sweep as the loop does: wakes first, then the ladder."""
    for _ in range(count):
        sweep(world)
        world.sweep()
        world.advance(15_000)


def test_work_that_an_idle_session_was_told_of_and_did_not_claim_climbs_and_is_parked():
    world = World()
    session(world)
    item(world, "one")
    sweeps(world, 8)
    assert cycles_of(world) == 0, "it was offered for less than the threshold"
    sweeps(world, 9)
    assert cycles_of(world) == 9
    found = answer(world.state, GetScheduler(tenant=TENANT), world.now)
    assert isinstance(found, SchedulerView) and found.starved == 1
    assert world.task("x", "one").note.startswith(NOT_CLAIMED)
    sweeps(world, 1)
    row = world.task("x", "one")
    assert (row.state, row.error.startswith(PARKED_UNCLAIMED)) == (TaskState.NEEDS_ATTENTION, True)


def test_work_behind_busy_sessions_does_not_climb():
    world = World()
    session(world)
    item(world, "busy")
    claim(world)
    item(world, "one")
    sweeps(world, 40)
    assert cycles_of(world) == 0


def test_by_the_rule_queued_work_behind_busy_sessions_climbs_and_is_parked_unless_it_is_held():
    world = World()
    world.state.wake_settings = structs.replace(world.state.wake_settings, rule=ClimbRule.QUEUED)
    session(world, slots=1)
    item(world, "busy")
    claim(world)
    session(world, "t", workspace="w")
    item(world, "busy too", workspace="w")
    assert claim(world, "t") == "busy too"
    item(world, "one")
    item(world, "held", workspace="w")
    world.client(cm.PauseScheduler, scope="workspace=w")
    world.submit(task("x"), "pushed")
    world.worker("push")
    sweeps(world, 8)
    assert cycles_of(world) == 0, "it has waited for less than the threshold"
    sweeps(world, 9)
    assert cycles_of(world) == 9
    found = answer(world.state, GetScheduler(tenant=TENANT), world.now)
    assert isinstance(found, SchedulerView) and found.starved == 1
    assert world.task("x", "one").note.startswith(STILL_QUEUED)
    sweeps(world, 1)
    row = world.task("x", "one")
    assert (row.state, row.error.startswith(PARKED_QUEUED)) == (TaskState.NEEDS_ATTENTION, True)
    assert [world.task("x", name).cycles for name in ("held", "pushed", "busy")] == [0, 0, 0]


@pytest.mark.parametrize(("cap", "told"), [(0, 70), (3, 3), (1, 1)])
@pytest.mark.parametrize("starve_ms", [30_000, 120_000])
def test_a_starved_item_is_told_to_every_idle_session_unless_that_is_capped(cap: int, told: int, starve_ms: int):
    world = World(limits=TimeLimits(starve_ms=starve_ms))
    world.state.wake_settings = structs.replace(world.state.wake_settings, fan_out_max=cap, cooldown_ms=0)
    for number in range(70):
        session(world, f"s{number:02}")
    item(world, "one")
    assert len(woken(world)) == 1
    world.advance(starve_ms - 1)
    assert len(sweep(world)) == 1
    world.advance(1)
    assert len({name for _, name in sweep(world)}) == told


@pytest.mark.parametrize("rule", ClimbRule)
def test_work_that_comes_back_from_a_session_begins_its_wait_anew(rule: ClimbRule):
    world = World()
    world.state.wake_settings = structs.replace(world.state.wake_settings, rule=rule)
    session(world, slots=2)
    item(world, "busy")
    item(world, "one")
    claim(world)
    assert claim(world) == "one"
    world.advance(600_000)
    report(world, "one", cm.Outcome.RELEASED)
    session(world, "t")
    assert len(sweep(world)) == 1, "it is not starved, so one session is told"
    sweeps(world, 7)
    assert cycles_of(world) == 0
    sweeps(world, 3)
    assert cycles_of(world) > 0


def test_work_that_others_of_its_kind_are_claimed_before_does_not_climb():
    world = World()
    session(world, "idle")
    session(world, "works")
    item(world, "one", "low")
    for number in range(12):
        item(world, f"other-{number}", "high")
        assert claim(world, "works") == f"other-{number}"
        report(world, f"other-{number}", cm.Outcome.SUCCESS)
        sweeps(world, 2)
    assert cycles_of(world) == 0


def test_a_claim_ends_the_climb():
    world = World()
    session(world)
    item(world, "one")
    sweeps(world, 12)
    assert cycles_of(world) == 4
    claim(world)
    report(world, "one", cm.Outcome.RELEASED)
    assert cycles_of(world) == 0
    sweeps(world, 8)
    assert cycles_of(world) == 0
