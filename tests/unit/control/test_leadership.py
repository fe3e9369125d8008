"""Leadership: who may write, for how long it may believe so, and when it stops."""

import pytest

from rota.control.events import (
    Answer,
    Asked,
    AskHolds,
    CloseStream,
    Elect,
    Elected,
    FrameCame,
    HoldsSaid,
    Intent,
    Level,
    Load,
    Loaded,
    Release,
    Tell,
)
from rota.control.leadership import LOAD_MS_MAX, Leadership, Role
from rota.control.standing import Cause
from rota.core import commands as cm
from rota.core.bounds import TimeLimits
from rota.core.errors import Refused, Unavailable
from rota.stores.memory import MemoryDisk
from rota.wire.frames import WorkerFrame
from tests.unit.control.stage import BEGIN, TENANT, Stage, reigning

LIMITS = TimeLimits()
TERM = LIMITS.term_ms
CAMPAIGN = 1_000


def campaigning() -> tuple[Leadership, Elect]:
    """A machine that has just asked for the lock."""
    machine = Leadership(LIMITS, CAMPAIGN, BEGIN)
    (elect,) = machine.woke(BEGIN)
    assert isinstance(elect, Elect)
    return machine, elect


def loading() -> tuple[Leadership, Load]:
    """A machine that was elected at once and reads everything."""
    machine, elect = campaigning()
    (load,) = machine.elected(Elected(elect.ticket, 7), BEGIN)
    assert isinstance(load, Load)
    return machine, load


def leading() -> Leadership:
    """A machine that leads, with nothing asked yet."""
    machine, load = loading()
    assert machine.loaded(Loaded(load.ticket, []), BEGIN)
    return machine


def asked(intents: list[Intent]) -> AskHolds:
    """The one question among these, whether the lock is still held."""
    (found,) = intents
    assert isinstance(found, AskHolds)
    return found


def reasons(machine: Leadership) -> list[Cause]:
    return list(machine.standing.step_downs)


# Campaigning.


def test_a_new_coordinator_asks_for_the_lock_at_once():
    machine, elect = campaigning()
    assert machine.role is Role.ELECTING
    assert machine.woke(BEGIN) == []
    assert elect.ticket


def test_who_is_not_elected_campaigns_again_after_a_while():
    machine, elect = campaigning()
    assert machine.elected(Elected(elect.ticket, None), BEGIN + 10) == []
    assert machine.role is Role.FOLLOWER
    assert machine.woke(BEGIN + 10 + CAMPAIGN - 1) == []
    (again,) = machine.woke(BEGIN + 10 + CAMPAIGN)
    assert isinstance(again, Elect)
    assert again.ticket != elect.ticket


def test_an_error_of_the_election_is_told_and_is_no_election():
    machine, elect = campaigning()
    (tell,) = machine.elected(Elected(elect.ticket, None, "connection reset"), BEGIN)
    assert tell == Tell("elect.failed", (("error", "connection reset"),), Level.WARNING)
    assert machine.role is Role.FOLLOWER


def test_an_election_without_an_answer_is_given_up_after_a_term():
    machine, elect = campaigning()
    assert machine.woke(BEGIN + TERM - 1) == []
    (tell,) = machine.woke(BEGIN + TERM)
    assert isinstance(tell, Tell)
    assert machine.role is Role.FOLLOWER
    assert machine.epoch == 0
    (again,) = machine.woke(BEGIN + TERM + CAMPAIGN)
    assert isinstance(again, Elect)
    assert again.ticket > elect.ticket


def test_an_epoch_won_too_late_is_released():
    machine, elect = campaigning()
    machine.woke(BEGIN + TERM)
    assert machine.elected(Elected(elect.ticket, 3), BEGIN + TERM + 1) == [Release(3)]
    assert machine.role is Role.FOLLOWER
    machine.woke(BEGIN + TERM + CAMPAIGN)
    assert machine.elected(Elected(elect.ticket, 4), BEGIN + TERM + CAMPAIGN) == [Release(4)]
    assert machine.role is Role.ELECTING


def test_an_election_lost_too_late_changes_nothing():
    machine, elect = campaigning()
    machine.woke(BEGIN + TERM)
    assert machine.elected(Elected(elect.ticket, None), BEGIN + TERM + 1) == []
    assert machine.next_at == BEGIN + TERM + CAMPAIGN


# Loading.


def test_the_elected_reads_everything_before_it_leads():
    machine, load = loading()
    assert (machine.role, load.epoch) == (Role.LOADING, 7)
    assert machine.loaded(Loaded(load.ticket, []), BEGIN + 5)
    assert machine.role is Role.LEADER


def test_a_load_of_an_earlier_life_does_not_begin_a_reign():
    machine, load = loading()
    assert not machine.loaded(Loaded(load.ticket - 1, []), BEGIN)
    machine.reload(BEGIN)
    assert not machine.loaded(Loaded(load.ticket, []), BEGIN)
    assert machine.role is Role.LOADING


def test_the_proof_counts_from_asking_for_the_lock_and_not_from_getting_it():
    machine, elect = campaigning()
    machine.elected(Elected(elect.ticket, 7), BEGIN + TERM - 1)
    assert machine.proven_until == BEGIN + TERM


def test_loading_may_take_longer_than_a_term_because_the_lock_is_asked_for_meanwhile():
    machine, load = loading()
    now = BEGIN
    for _ in range(12):
        now += TERM // 4
        question = asked(machine.woke(now))
        assert question.epoch == 7
        assert machine.holds_said(HoldsSaid(question.ticket, held=True), now + 1) == []
    assert now > BEGIN + 2 * TERM
    assert machine.loaded(Loaded(load.ticket, []), now + 2)
    assert machine.proven_until == now + TERM
    assert asked(machine.woke(now + 2))
    assert machine.role is Role.LEADER


def test_a_load_that_outlives_its_proof_ends_in_stepping_down_and_not_in_a_reign():
    stage = Stage()
    stage.withheld = (Load, AskHolds)
    stage.wake()
    stage.now += TERM + 1
    stage.end_load()
    assert stage.coordinator.leadership.role is Role.FOLLOWER
    assert stage.coordinator.loop is None
    assert stage.said(Release) == [Release(1)]


def test_losing_the_lock_while_loading_ends_it_at_once():
    machine, load = loading()
    question = asked(machine.woke(BEGIN + TERM // 4))
    intents = machine.holds_said(HoldsSaid(question.ticket, held=False), BEGIN + TERM // 4)
    assert Release(7) in intents
    assert not machine.loaded(Loaded(load.ticket, []), BEGIN + TERM // 4)


def test_a_load_without_an_answer_is_given_up_in_the_end():
    machine, _ = loading()
    now = BEGIN
    while now < BEGIN + LOAD_MS_MAX:
        now += TERM // 4
        for intent in machine.woke(now):
            if isinstance(intent, AskHolds):
                machine.holds_said(HoldsSaid(intent.ticket, held=True), now)
    assert machine.role is Role.FOLLOWER
    assert reasons(machine) == [Cause.STORE_SILENT]


def test_a_load_that_failed_gives_the_lock_back():
    stage = Stage()
    stage.withheld = (Load,)
    stage.wake()
    intents = stage.give(Loaded(stage.only(Load).ticket, None, "disk on fire"))
    assert Release(1) in intents
    assert stage.disk.holder == 0
    stage.withheld = ()
    stage.advance(CAMPAIGN)
    assert stage.loop.state.epoch == 2


def test_a_load_that_failed_in_an_earlier_life_does_not_end_this_one():
    stage = Stage()
    stage.withheld = (Load,)
    stage.wake()
    late = stage.only(Load)
    stage.unanswered.clear()
    stage.disk.release(1)
    stage.advance(TERM // 4 + CAMPAIGN)
    assert stage.only(Load).epoch == 2
    stage.give(Loaded(late.ticket, None, "epoch 1 has passed; 2 reigns"))
    assert stage.coordinator.leadership.role is Role.LOADING
    stage.end_load()
    assert stage.loop.state.epoch == 2


# Leading.


def test_a_leader_asks_every_quarter_of_a_term_one_question_at_a_time():
    machine = leading()
    question = asked(machine.woke(BEGIN))
    assert machine.woke(BEGIN + TERM // 4) == []
    machine.holds_said(HoldsSaid(question.ticket, held=True), BEGIN + TERM // 4)
    assert machine.woke(BEGIN + TERM // 4) == []
    assert asked(machine.woke(BEGIN + TERM // 2)).ticket > question.ticket


def test_a_proof_counts_from_when_it_was_asked_for():
    machine = leading()
    asked(machine.woke(BEGIN))
    machine.holds_said(HoldsSaid(machine._waiting_for, held=True), BEGIN)
    question = asked(machine.woke(BEGIN + 2_000))
    machine.holds_said(HoldsSaid(question.ticket, held=True), BEGIN + 4_900)
    assert machine.proven_until == BEGIN + 2_000 + TERM


def test_an_older_proof_never_shortens_a_newer_one():
    machine = leading()
    machine.proven_at(BEGIN + 3_000)
    machine.proven_at(BEGIN + 1_000)
    assert machine.proven_until == BEGIN + 3_000 + TERM


def test_an_unproven_leader_steps_down_after_a_term_and_not_before():
    machine = leading()
    machine.woke(BEGIN)
    assert machine.woke(BEGIN + TERM) == []
    assert machine.role is Role.LEADER
    intents = machine.woke(BEGIN + TERM + 1)
    assert Release(7) in intents
    assert (machine.role, machine.epoch, machine.proven_until) == (Role.FOLLOWER, 0, 0)


def test_a_lost_lock_ends_the_reign_at_once():
    machine = leading()
    question = asked(machine.woke(BEGIN))
    assert Release(7) in machine.holds_said(HoldsSaid(question.ticket, held=False), BEGIN + 1)
    assert machine.role is Role.FOLLOWER
    assert reasons(machine) == [Cause.LOCK_LOST]


def test_single_errors_never_depose_and_never_prove():
    machine = leading()
    now = BEGIN
    for _ in range(4):
        question = asked(machine.woke(now))
        (tell,) = machine.holds_said(HoldsSaid(question.ticket, held=False, error="timeout"), now + 1)
        assert tell == Tell("holds.failed", (("error", "timeout"),))
        assert machine.role is Role.LEADER
        now += TERM // 4
    assert machine.proven_until == BEGIN + TERM
    question = asked(machine.woke(BEGIN + TERM))
    machine.holds_said(HoldsSaid(question.ticket, held=True), BEGIN + TERM)
    assert machine.proven_until == BEGIN + 2 * TERM
    assert not machine.standing.step_downs


def test_errors_for_a_whole_term_end_the_reign():
    stage = reigning()
    stage.withheld = (AskHolds,)
    for _ in range(20):
        stage.advance(TERM // 4)
        for question in list(stage.unanswered):
            stage.unanswered.remove(question)
            stage.give(HoldsSaid(question.ticket, held=False, error="timeout"))
        if stage.coordinator.loop is None:
            break
    assert list(stage.coordinator.leadership.standing.step_downs) == [Cause.NOT_PROVEN]
    assert stage.now <= BEGIN + 3 * TERM


def test_answers_to_questions_of_an_earlier_life_are_ignored():
    machine = leading()
    stale = asked(machine.woke(BEGIN))
    machine.step_down(Cause.LOCK_LOST, "for this test", BEGIN)
    assert machine.holds_said(HoldsSaid(stale.ticket, held=True), BEGIN) == []
    assert machine.proven_until == 0
    (elect,) = machine.woke(BEGIN + CAMPAIGN)
    assert isinstance(elect, Elect)
    (load,) = machine.elected(Elected(elect.ticket, 9), BEGIN + CAMPAIGN)
    assert isinstance(load, Load)
    machine.loaded(Loaded(load.ticket, []), BEGIN + CAMPAIGN)
    assert machine.holds_said(HoldsSaid(stale.ticket, held=False), BEGIN + CAMPAIGN) == []
    assert machine.role is Role.LEADER


def test_stepping_down_says_why_counts_it_and_campaigns_again():
    machine = leading()
    tell, release = machine.step_down(Cause.LOCK_LOST, "for this test", BEGIN)
    about = (("cause", "lock_lost"), ("reason", "for this test"), ("epoch", "7"))
    assert tell == Tell("step_down", about, Level.WARNING)
    assert release == Release(7)
    assert machine.woke(BEGIN + CAMPAIGN - 1) == []
    assert len(machine.woke(BEGIN + CAMPAIGN)) == 1
    machine.step_down(Cause.LOCK_LOST, "for this test", BEGIN + CAMPAIGN)
    assert machine.standing.step_downs == {Cause.LOCK_LOST: 2}


# Two coordinators and one lock.


def test_of_two_coordinators_one_leads_and_the_other_takes_over_in_a_later_epoch():
    disk = MemoryDisk()
    first = reigning(disk=disk)
    second = Stage(disk=disk)
    second.wake()
    assert second.coordinator.loop is None
    disk.release(1)
    first.advance(TERM // 4)
    assert first.coordinator.loop is None
    second.advance(CAMPAIGN)
    assert second.loop.state.epoch == 2


def test_a_follower_reads_nothing_writes_nothing_and_sends_everybody_away():
    disk = MemoryDisk()
    reigning(disk=disk)
    follower = Stage(disk=disk)
    follower.wake()
    command = cm.DrainWorker(tenant=TENANT, command_id="c", worker="w")
    (answer,) = follower.give(Asked(1, command))
    assert isinstance(answer, Answer)
    assert isinstance(answer.value, Unavailable)
    assert answer.value.code == "leader.none"
    greeting = WorkerFrame(tenant=TENANT, worker="w", incarnation="i", epoch=0, number=0)
    assert follower.give(FrameCame(5, greeting)) == [CloseStream(5)]
    follower.advance(5 * CAMPAIGN)
    assert {type(intent) for intent in follower.log} == {Elect, Answer, CloseStream}


def test_a_coordinator_does_not_start_on_a_broken_ladder_of_limits():
    with pytest.raises(Refused) as caught:
        Stage(limits=TimeLimits(term_ms=20_000))
    assert caught.value.code == "field.value"


def test_a_leader_wants_to_be_woken_before_its_next_question():
    stage = reigning()
    assert stage.coordinator.wake_at(stage.now) <= stage.now + TERM // 4
    stage.disk.release(1)
    stage.advance(TERM // 4)
    assert list(stage.coordinator.leadership.standing.step_downs) == [Cause.LOCK_LOST]


# Hints that the lock is free.


def test_a_follower_that_hears_of_a_free_lock_asks_for_it_at_once():
    machine, elect = campaigning()
    machine.elected(Elected(elect.ticket, None), BEGIN)
    machine.vacated(BEGIN + 10)
    assert len(machine.woke(BEGIN + 10)) == 1


def test_who_has_just_stepped_down_lets_others_go_first():
    machine = leading()
    machine.step_down(Cause.COMMIT_UNKNOWN, "for this test", BEGIN)
    machine.vacated(BEGIN + 1)
    assert machine.woke(BEGIN + CAMPAIGN - 1) == []
    assert len(machine.woke(BEGIN + CAMPAIGN)) == 1


def test_a_hint_never_puts_an_election_off():
    machine, elect = campaigning()
    machine.elected(Elected(elect.ticket, None), BEGIN)
    machine.vacated(BEGIN + 2 * CAMPAIGN)
    assert len(machine.woke(BEGIN + CAMPAIGN)) == 1


def test_whoever_leads_or_campaigns_takes_no_hints():
    for machine in (leading(), campaigning()[0], loading()[0]):
        next_at = machine.next_at
        machine.vacated(BEGIN - 1)
        assert machine.next_at == next_at


def test_whom_the_store_will_not_have_takes_no_hints():
    machine, elect = campaigning()
    (tell,) = machine.elected(Elected(elect.ticket, None, "store.newer: too new"), BEGIN)
    assert tell == Tell("elect.failed", (("error", "store.newer: too new"),), Level.WARNING)
    machine.vacated(BEGIN + 1)
    assert machine.woke(BEGIN + CAMPAIGN - 1) == []
    assert len(machine.woke(BEGIN + CAMPAIGN)) == 1


def test_a_campaign_that_is_given_up_opens_no_window():
    machine, _ = campaigning()
    machine.woke(BEGIN + TERM)
    assert machine.standing.step_downs == {Cause.STORE_SILENT: 1}
    assert not machine.standing.stepping_down


def test_a_reload_is_not_leading():
    machine = leading()
    machine.reload(BEGIN)
    assert not machine.standing.is_leading
