"""Those who ask for their work themselves: order, limits, tokens, whose session it is, beats, and what is lost."""

import pytest

from rota.core import commands as cm
from rota.core.bounds import INTERRUPTIONS_MAX
from rota.core.changes import AttemptStarted, LeaseGranted, TokenReplaced
from rota.core.decide.leases import Judgement
from rota.core.invariants import validate
from rota.core.model import Mood, PriorityClass
from rota.core.states import NEEDS_ATTENTION, QUEUED, RUNNING, SUCCESS, UP_FOR_RESCHEDULE
from tests.unit.core.world import INCARNATION, TENANT, World, task

HOUR_MS = 3_600_000


def session(world: World, name: str = "s", *, slots: int = 1, silence_ms: int = HOUR_MS, **properties: str) -> None:
    pairs = tuple((key, value) for key, values in properties.items() for value in values.split("+"))
    world.worker(name, slots, pull=True, queues=("agents",), silence_ms=silence_ms, properties=pairs)


def item(world: World, run: str, priority: str = "normal", **requires: str) -> None:
    pairs = tuple((key, value) for key, values in requires.items() for value in values.split("+"))
    world.submit(task("x", queue="agents", requires=pairs), run, priority=PriorityClass(priority))
    world.follow_up()


def claim(world: World, name: str = "s", **fields: object) -> str:
    """The run that a session was given; empty if none."""
    decision = world.client(cm.ClaimTask, worker=name, incarnation=INCARNATION, **fields)
    return next((change.run for change in decision.changes if isinstance(change, LeaseGranted)), "")


def fence_of(world: World, run: str) -> int:
    return world.state.runs[(TENANT, run)].tasks[0].fence


def report(world: World, run: str, outcome: cm.Outcome, **fields: object) -> str:
    lease = world.state.leases[fence_of(world, run)]
    return world.do(
        cm.Report(
            tenant=TENANT,
            run=run,
            task=0,
            worker_tenant=TENANT,
            worker=lease.worker.row.id,
            incarnation=INCARNATION,
            fence=lease.fence,
            outcome=outcome,
            **fields,
        )
    ).answer


# Order.


def test_the_more_urgent_is_claimed_first_whenever_it_came():
    world = World()
    session(world, slots=9)
    for priority in ("low", "normal", "high", "urgent"):
        item(world, priority, priority)
        world.now += 1
    assert [claim(world) for _ in range(5)] == ["urgent", "high", "normal", "low", ""]


def test_among_equals_what_prefers_the_session_comes_first_then_the_oldest_then_by_name():
    world = World()
    session(world, slots=9, capability="a+b", prefers="a+b")
    item(world, "old")
    world.now += 1
    item(world, "z")
    item(world, "k")
    world.now += 1
    item(world, "likes-one", prefers="b")
    item(world, "likes-both", prefers="a+b")
    assert [claim(world) for _ in range(5)] == ["likes-both", "likes-one", "old", "k", "z"]


def test_what_was_overtaken_for_too_long_comes_before_its_turn():
    world = World()
    session(world, slots=90)
    item(world, "low", "low")
    world.advance(11 * 60_000)
    for number in range(60):
        item(world, f"u{number:02}", "urgent")
    assert "low" in [claim(world) for _ in range(45)]


def test_a_claim_may_leave_out_what_is_not_urgent_enough_or_elsewhere_or_another_run():
    world = World()
    session(world, slots=9, channel="c")
    item(world, "one", "normal")
    item(world, "two", "high", channel="c")
    assert claim(world, least=PriorityClass.URGENT) == ""
    assert claim(world, where=(("channel", "d"),)) == ""
    assert claim(world, run="nobody") == ""
    assert claim(world, run="one") == "one"
    assert claim(world, least=PriorityClass.HIGH, where=(("channel", "c"),)) == "two"


def test_a_paused_run_is_not_claimed_by_its_name_either():
    world = World()
    session(world)
    item(world, "one")
    world.client(cm.PauseRun, run="one")
    assert claim(world, run="one") == ""


# Who may.


def test_a_session_has_as_many_leases_as_it_said():
    world = World()
    session(world, slots=2)
    for name in ("one", "two", "two-more"):
        item(world, name)
    assert [claim(world), claim(world)] == ["one", "two"]
    refused = world.refusal(world.command(cm.ClaimTask, worker="s", incarnation=INCARNATION))
    assert refused.code == "lease.held"
    assert "one" in refused.reason


@pytest.mark.parametrize(
    ("wants", "code"),
    [
        ({"worker": "nobody", "incarnation": INCARNATION}, "worker.unknown"),
        ({"worker": "s", "incarnation": "another"}, "worker.unknown"),
        ({"worker": "s", "incarnation": INCARNATION, "owner": "thief"}, "session.foreign"),
        ({"worker": "s", "incarnation": INCARNATION, "lease_ms": 0}, "field.value"),
        ({"worker": "s", "incarnation": INCARNATION, "lease_ms": -1}, "field.value"),
        ({"worker": "s", "incarnation": INCARNATION, "lease_ms": 24 * HOUR_MS + 1}, "field.value"),
    ],
)
def test_a_claim_that_cannot_be_carried_out_is_refused_and_changes_nothing(wants: dict[str, object], code: str):
    world = World()
    session(world)
    item(world, "one")
    assert world.refusal(world.command(cm.ClaimTask, **wants)).code == code
    assert not world.state.leases


def test_a_session_that_is_about_to_leave_claims_nothing_and_one_that_talks_may():
    world = World()
    session(world)
    item(world, "one")
    worker = world.state.workers[(TENANT, "s")]
    worker.mood = Mood.STOPPING
    assert world.refusal(world.command(cm.ClaimTask, worker="s", incarnation=INCARNATION)).code == "worker.draining"
    worker.mood = Mood.PROMPTING
    assert claim(world) == "one"


def test_a_claim_is_a_start():
    world = World()
    session(world)
    item(world, "one")
    changes = world.client(cm.ClaimTask, worker="s", incarnation=INCARNATION).changes
    assert [type(change) for change in changes[:2]] == [LeaseGranted, AttemptStarted]
    assert world.state.runs[(TENANT, "one")].tasks[0].state is RUNNING


# Tokens.


def test_only_who_knows_the_token_speaks_for_the_lease():
    world = World()
    session(world)
    item(world, "one")
    claim(world, token_hash="right")
    fence = fence_of(world, "one")
    for wrong in ("", "wrong", "righ", "right "):
        assert report(world, "one", cm.Outcome.SUCCESS, token_hash=wrong) == Judgement.WRONG_TOKEN
        renewal = cm.RenewLease(tenant=TENANT, worker="s", incarnation=INCARNATION, fence=fence, token_hash=wrong)
        assert world.refusal(renewal).code == "lease.token"
    assert world.state.runs[(TENANT, "one")].tasks[0].state is RUNNING
    assert report(world, "one", cm.Outcome.SUCCESS, token_hash="right") == Judgement.ACCEPTED
    assert world.state.runs[(TENANT, "one")].tasks[0].token_hash == ""


def test_a_repeated_claim_has_the_same_lease_under_a_new_token_and_the_old_one_is_void():
    world = World()
    session(world)
    item(world, "one")
    item(world, "two")

    def ask(token: str) -> cm.ClaimTask:
        return cm.ClaimTask(tenant=TENANT, command_id="once", worker="s", incarnation=INCARNATION, token_hash=token)

    first, again = world.do(ask("a")), world.do(ask("b"))
    assert (first.answer, again.is_repeat) == (again.answer, True)
    assert [type(change) for change in again.changes] == [TokenReplaced]
    assert report(world, "one", cm.Outcome.SUCCESS, token_hash="a") == Judgement.WRONG_TOKEN
    assert report(world, "one", cm.Outcome.SUCCESS, token_hash="b") == Judgement.ACCEPTED
    assert world.refusal(ask("c")).code == "lease.expired"
    assert world.state.runs[(TENANT, "two")].tasks[0].state is QUEUED


def test_a_claim_that_waited_is_repeated_whatever_time_was_left():
    world = World()
    session(world)
    item(world, "one")

    def ask(wait_ms: int) -> cm.ClaimTask:
        return cm.ClaimTask(
            tenant=TENANT,
            command_id="once",
            worker="s",
            incarnation=INCARNATION,
            wait_ms=wait_ms,
            token_hash=f"t{wait_ms}",
        )

    first = world.do(ask(15_321))
    for wait_ms in (20_000, 0):
        again = world.do(ask(wait_ms))
        assert (again.answer, again.is_repeat) == (first.answer, True)


def test_an_id_that_was_used_for_another_claim_is_refused():
    world = World()
    session(world)
    item(world, "one")
    claimed = cm.ClaimTask(tenant=TENANT, command_id="once", worker="s", incarnation=INCARNATION, token_hash="a")
    world.do(claimed)
    other = cm.ClaimTask(tenant=TENANT, command_id="once", worker="s", incarnation=INCARNATION, lease_ms=7_000)
    assert world.refusal(other).code == "command.id_reused"


# Whose session.


def test_a_session_belongs_to_the_token_that_registered_it():
    world = World()
    session(world)
    worker = world.state.workers[(TENANT, "s")]
    again = cm.RegisterWorker(
        tenant=TENANT, worker="s", incarnation="i2", capacity=worker.row.capacity, owner="another"
    )
    assert world.refusal(again).code == "session.foreign"
    left = cm.LeaveWorker(tenant=TENANT, worker="s", incarnation=INCARNATION, owner="another")
    assert world.refusal(left).code == "session.foreign"
    beat = cm.BeatWorker(tenant=TENANT, worker="s", incarnation=INCARNATION, owner="another")
    assert world.refusal(beat).code == "session.foreign"


# Death.


def test_a_session_that_leaves_returns_its_work_at_once():
    world = World()
    session(world)
    item(world, "one")
    claim(world)
    world.do(cm.LeaveWorker(tenant=TENANT, worker="s", incarnation=INCARNATION))
    assert world.state.runs[(TENANT, "one")].tasks[0].state is QUEUED
    assert (TENANT, "s") not in world.state.workers
    assert world.do(cm.LeaveWorker(tenant=TENANT, worker="s", incarnation=INCARNATION)).changes == []


def test_a_silent_session_is_dead_after_its_own_time_and_its_work_is_returned_at_once():
    world = World()
    session(world, silence_ms=5_000)
    item(world, "one")
    claim(world, lease_ms=HOUR_MS)
    world.silence("s")
    world.advance(4_999)
    assert world.state.runs[(TENANT, "one")].tasks[0].state is RUNNING
    world.advance(1)
    assert world.state.runs[(TENANT, "one")].tasks[0].state is QUEUED
    assert (TENANT, "s") not in world.state.workers


def test_a_session_that_comes_back_as_another_process_loses_what_the_first_had():
    world = World()
    session(world)
    item(world, "one")
    claim(world)
    capacity = world.state.workers[(TENANT, "s")].row.capacity
    world.do(cm.RegisterWorker(tenant=TENANT, worker="s", incarnation="i2", capacity=capacity))
    assert world.state.runs[(TENANT, "one")].tasks[0].state is QUEUED


def test_work_that_is_lost_again_and_again_is_offered_less_and_less_often_and_then_parked():
    world = World()
    item(world, "one")
    waits: list[int] = []
    row = world.state.runs[(TENANT, "one")].tasks[0]
    for _ in range(INTERRUPTIONS_MAX):
        session(world)
        assert claim(world) == "one"
        world.do(cm.LeaveWorker(tenant=TENANT, worker="s", incarnation=INCARNATION))
        if row.state is UP_FOR_RESCHEDULE:
            waits.append(row.due_at - world.now)
            world.advance(waits[-1])
    assert waits == [5_000, 10_000, 20_000]
    assert (row.state, row.attempt) == (NEEDS_ATTENTION, 0)


def test_work_that_is_released_costs_nothing_and_may_be_had_at_once():
    world = World()
    session(world)
    item(world, "one")
    claim(world)
    assert report(world, "one", cm.Outcome.RELEASED) == Judgement.ACCEPTED
    assert world.state.runs[(TENANT, "one")].tasks[0].interruptions == 0
    assert claim(world) == "one"


def test_a_person_takes_work_back():
    world = World()
    session(world)
    item(world, "one")
    claim(world)
    world.client(cm.ReleaseTasks, run="one", reason="stuck")
    row = world.state.runs[(TENANT, "one")].tasks[0]
    assert (row.state, row.interruptions) == (QUEUED, 0)
    assert world.refusal(world.command(cm.ReleaseTasks, run="one")).code == "lease.none"


@pytest.mark.parametrize("words", [{"lease_ms": 60_001}, {"fence": 7}, {"worker": "other"}])
def test_a_renewal_that_is_not_ones_own_or_too_long_is_refused(words: dict[str, object]):
    world = World()
    session(world)
    session(world, "other")
    item(world, "one")
    claim(world, lease_ms=60_000)
    mine: dict[str, object] = {"worker": "s", "fence": fence_of(world, "one"), "lease_ms": 60_000}
    refused = world.refusal(cm.RenewLease(tenant=TENANT, incarnation=INCARNATION, **{**mine, **words}))
    assert refused.code in ("field.value", "lease.lost", "lease.foreign")


def test_what_was_claimed_and_ended_is_ended_whoever_says_so_again():
    world = World()
    session(world)
    item(world, "one")
    claim(world)
    fence = fence_of(world, "one")
    assert report(world, "one", cm.Outcome.SUCCESS) == Judgement.ACCEPTED
    again = cm.Report(
        tenant=TENANT,
        run="one",
        task=0,
        worker_tenant=TENANT,
        worker="s",
        incarnation=INCARNATION,
        fence=fence,
        outcome=cm.Outcome.FAILED,
    )
    assert world.do(again).answer == Judgement.DUPLICATE
    assert world.state.runs[(TENANT, "one")].tasks[0].state is SUCCESS


def test_what_was_cleared_since_is_late_whatever_is_said_of_it():
    world = World()
    session(world)
    item(world, "one")
    claim(world, token_hash="h")
    fence = fence_of(world, "one")

    def say(of: World, outcome: cm.Outcome, result: bytes | None = None, error: str = "") -> str:
        return of.do(
            cm.Report(
                tenant=TENANT,
                run="one",
                task=0,
                worker_tenant=TENANT,
                worker="s",
                incarnation=INCARNATION,
                fence=fence,
                outcome=outcome,
                result=result,
                error=error,
                token_hash="h",
            )
        ).answer

    assert say(world, cm.Outcome.SUCCESS, b"1") == Judgement.ACCEPTED
    assert say(world, cm.Outcome.SUCCESS, b"1") == Judgement.DUPLICATE
    assert say(world, cm.Outcome.RELEASED) == Judgement.OTHER_OUTCOME
    world.client(cm.ClearTasks, run="one", tasks=("x",))
    world.follow_up()
    for again in (world, world.restarted()):
        late = {
            say(again, cm.Outcome.SUCCESS, b"1"),
            say(again, cm.Outcome.SUCCESS, b"2"),
            say(again, cm.Outcome.FAILED, error="no"),
            say(again, cm.Outcome.RELEASED),
        }
        assert late in ({Judgement.OLD_FENCE}, {Judgement.OLD_EPOCH})


def test_pausing_and_resuming_leaves_no_second_age_behind():
    world = World()
    session(world)
    item(world, "one")
    for _ in range(300):
        world.client(cm.PauseRun, run="one")
        world.client(cm.PauseRun, run="one", paused=False)
    (bucket,) = world.state.index.buckets.values()
    assert sum(len(ages) for ages in bucket.ages.values()) == 1
    assert validate(world.state, world.now) == []


def test_who_releases_with_a_reason_is_not_punished_for_it():
    world = World()
    session(world)
    item(world, "one")
    claim(world)
    assert report(world, "one", cm.Outcome.RELEASED, error="not my field") == Judgement.ACCEPTED
    row = world.state.runs[(TENANT, "one")].tasks[0]
    assert (row.state, row.interruptions) == (QUEUED, 0)
    assert world.state.workers[(TENANT, "s")].row.quarantined_until == 0
    assert claim(world) == "one"


def test_a_claim_that_found_nothing_may_be_repeated_under_its_id():
    world = World()
    session(world)
    ask = cm.ClaimTask(tenant=TENANT, command_id="once", worker="s", incarnation=INCARNATION)
    assert world.do(ask).answer == ""
    item(world, "one")
    assert world.do(ask).answer == str(fence_of(world, "one"))
