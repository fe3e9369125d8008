"""The coordinator between clients and store: what is told, when, and what a commit's end does to those who wait."""

from collections.abc import Iterator

import pytest

from rota.control.events import Answer, AskHolds, Commit, Committed, Escalate, Load, Release, Woke
from rota.control.leadership import Role
from rota.control.loop import LEAST_PER_TURN, Ask
from rota.control.trouble import RETRY_COMMIT_MS
from rota.core import commands as cm
from rota.core.bounds import CHANGES_PER_COMMIT_MAX, WORK_PER_TURN
from rota.core.decide.timers import THRESHOLDS
from rota.core.errors import Refused, Unavailable
from rota.core.ids import fence_epoch, fence_number
from rota.core.images import all_records
from rota.core.ladder import Tier
from rota.core.model import Capacity, Graph, Mood, Pool, Queue, RetryPolicy, TaskSpec
from rota.core.questions import ExplainTask, GetRun, RunView
from rota.core.records import Batch, Task
from rota.core.state import State
from rota.core.states import RunState, TaskState
from tests.unit.control.stage import (
    FENCED,
    REFUSED,
    TENANT,
    UNAVAILABLE,
    UNKNOWN,
    Speaker,
    Stage,
    reigning,
)
from tests.unit.core.world import imaged

SINGLE = Graph(name="g", tasks=(TaskSpec(id="x"),))


def slow() -> Stage:
    """A leader whose commits the test ends by hand."""
    stage = reigning()
    stage.withheld = (Commit,)
    return stage


def put_pool(name: str, slots: int = 1, command_id: str = "") -> cm.PutPool:
    return cm.PutPool(
        tenant=TENANT, command_id=command_id or f"pool-{name}", pool=Pool(tenant=TENANT, name=name, slots=slots)
    )


def code(stage: Stage, token: int) -> str:
    """The code of a refusal."""
    value = stage.answer(token)
    assert isinstance(value, Refused | Unavailable)
    return value.code


def pools_of(batch: Batch) -> list[str]:
    return [row.name for row in batch.puts if isinstance(row, Pool)]


def objects_to(*names: str):
    """A store that will not take these pools."""
    return lambda batch: not any(name in names for name in pools_of(batch))


# Every answer waits for what it could have seen.


def test_an_answer_leaves_when_its_commit_is_durable_and_not_before():
    stage = slow()
    token = stage.ask(put_pool("p"))
    assert token not in stage.answers
    stage.end_commit()
    assert stage.answer(token) == "p"
    assert ("Pool", TENANT, "p") in stage.disk.records


def test_a_refusal_waits_for_the_commit_it_could_have_seen():
    stage = slow()
    stage.submit("r")
    refused = stage.ask(cm.SubmitRun(tenant=TENANT, command_id="other", run="r", graph=SINGLE))
    assert refused not in stage.answers
    stage.end_commit()
    assert code(stage, refused) == "run.exists"


def test_a_repeat_is_answered_after_the_commit_of_the_first():
    stage = slow()
    first = stage.ask(put_pool("p"))
    again = stage.ask(put_pool("p"))
    assert not {first, again} & set(stage.answers)
    stage.end_commit()
    assert (stage.answer(first), stage.answer(again)) == ("p", "p")
    assert len(stage.said(Commit)) == 1


def test_a_question_waits_for_the_commit_it_could_have_seen():
    stage = slow()
    stage.submit("r")
    state = stage.ask(GetRun(tenant=TENANT, run="r"))
    why = stage.ask(ExplainTask(tenant=TENANT, run="r", task="x"))
    assert not {state, why} & set(stage.answers)
    stage.end_commit()
    view = stage.answer(state)
    assert isinstance(view, RunView)
    assert view.state is RunState.RUNNING
    reasons = stage.answer(why)
    assert isinstance(reasons, tuple)
    assert reasons[0].code == "worker.none_registered"


def test_what_came_while_a_commit_was_under_way_waits_for_the_next_one():
    stage = slow()
    first = stage.ask(put_pool("p"))
    second = stage.ask(put_pool("q"))
    seen = stage.ask(GetRun(tenant=TENANT, run="nobody"))
    stage.end_commit()
    assert set(stage.answers) == {first}
    stage.end_commit()
    assert set(stage.answers) == {first, second, seen}


def test_when_memory_equals_the_disk_answers_leave_at_once():
    stage = slow()
    unknown = stage.ask(GetRun(tenant=TENANT, run="nobody"))
    refused = stage.ask(cm.DropPool(tenant=TENANT, command_id="c", name="nothing"))
    assert (code(stage, unknown), code(stage, refused)) == ("run.unknown", "pool.unknown")
    assert not stage.said(Commit)


def test_a_question_about_an_unknown_task_is_refused_by_its_path():
    stage = reigning()
    stage.submit("r")
    value = stage.answer(stage.ask(ExplainTask(tenant=TENANT, run="r", task="nothing")))
    assert isinstance(value, Refused)
    assert (value.code, value.path) == ("task.unknown", "task")


def test_why_is_asked_of_one_task_of_a_group_by_its_number():
    stage = reigning()
    stage.submit("r", TaskSpec(id="extract", width=5), TaskSpec(id="load", upstream=("extract",)))
    stage.rest()
    (one,) = stage.answer(stage.ask(ExplainTask(tenant=TENANT, run="r", task="extract[3]")))
    assert one.code == "worker.none_registered"
    (waiting,) = stage.answer(stage.ask(ExplainTask(tenant=TENANT, run="r", task="load")))
    assert waiting.code == "upstream.waiting"
    for name in ("extract", "extract[5]"):
        refused = stage.answer(stage.ask(ExplainTask(tenant=TENANT, run="r", task=name)))
        assert (refused.code, refused.path) == ("task.unknown", "task")


def test_nobody_asks_for_another_tenants_run():
    stage = reigning()
    stage.submit("r")
    assert code(stage, stage.ask(GetRun(tenant="somebody else", run="r"))) == "run.unknown"


# One commit at a time.


def test_one_commit_is_under_way_and_the_next_takes_whatever_has_arrived():
    stage = slow()
    for name in "abcd":
        stage.ask(put_pool(name))
    assert pools_of(stage.only(Commit).batch) == ["a"]
    stage.end_commit()
    assert pools_of(stage.only(Commit).batch) == ["b", "c", "d"]
    stage.end_commit()
    assert not stage.waits(Commit)
    assert len(stage.said(Commit)) == 2


def test_the_answer_to_an_older_commit_is_ignored():
    stage = slow()
    stage.ask(put_pool("a"))
    old = stage.only(Commit).ticket
    stage.end_commit()
    waiting = stage.ask(put_pool("b"))
    stage.give(Committed(old, FENCED))
    stage.give(Committed(old, UNKNOWN))
    assert stage.coordinator.leadership.role is Role.LEADER
    assert waiting not in stage.answers
    stage.end_commit()
    assert stage.answer(waiting) == "b"


def test_a_commit_that_went_through_proves_leadership_from_when_it_was_sent():
    stage = reigning()
    stage.withheld = (Commit, AskHolds)
    stage.advance(1_000)
    stage.ask(put_pool("p"))
    sent_at = stage.now
    stage.now += 300
    stage.end_commit()
    assert stage.proven_until == sent_at + stage.limits.term_ms


def test_a_commit_holds_a_bounded_number_of_changes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.control.loop.CHANGES_PER_COMMIT_MAX", 20)
    stage = slow()
    tokens = [stage.ask(put_pool(f"p{number}")) for number in range(60)]
    stage.rest()
    sizes = []
    while stage.waits(Commit):
        sizes.append(len(pools_of(stage.only(Commit).batch)))
        stage.end_commit()
        stage.rest()
    assert all(2 * size <= 20 for size in sizes), "a pool and its receipt are two changes"
    assert sum(sizes) == 60
    assert sorted(stage.answers) == tokens


def test_what_does_not_fit_a_commit_is_not_tried_again_until_the_commit_has_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.control.loop.CHANGES_PER_COMMIT_MAX", 4)
    stage = slow()
    for number in range(20):
        stage.ask(put_pool(f"p{number}"))
    stage.rest()
    assert stage.loop.wanted_at > stage.now


def test_a_frame_with_many_reports_does_not_make_a_commit_too_large(monkeypatch: pytest.MonkeyPatch):
    stage = reigning()
    worker = Speaker(stage, slots=30).join()
    stage.submit("r", TaskSpec(id="a", width=30), TaskSpec(id="b", upstream=("a",)))
    stage.rest()
    worker.hear()
    monkeypatch.setattr("rota.control.loop.CHANGES_PER_COMMIT_MAX", 20)
    stage.withheld = (Commit,)
    words = tuple(worker.word(offer, cm.Outcome.STARTED) for offer in worker.held.values())
    worker.say(reports=words)
    while stage.waits(Commit):
        rows = [row for row in stage.only(Commit).batch.puts if isinstance(row, Task)]
        assert len(rows) <= 20
        stage.end_commit()
    assert stage.states() == [TaskState.RUNNING] * 30


def test_reports_that_change_nothing_do_not_fill_a_commit_that_never_comes():
    stage = reigning()
    worker = Speaker(stage).join()
    about_nothing = cm.Report(
        tenant=TENANT,
        run="gone",
        task=0,
        worker_tenant=TENANT,
        worker="w",
        incarnation="i1",
        fence=1,
        outcome=cm.Outcome.SUCCESS,
    )
    worker.say(reports=(about_nothing,) * CHANGES_PER_COMMIT_MAX)
    token = stage.ask(put_pool("p"))
    stage.advance(2_000)
    assert stage.answers.get(token) is not None, "the loop is stuck: its open batch is full and empty"


# Fenced, and unknown.


@pytest.mark.parametrize("outcome", [FENCED, UNKNOWN])
def test_a_commit_that_may_not_have_happened_drops_memory_and_tells_everyone_to_ask_again(outcome):
    stage = slow()
    worker = Speaker(stage).greet()
    stage.end_commit()
    worker.present()
    tokens = [stage.ask(put_pool("a")), stage.ask(put_pool("b")), stage.ask(GetRun(tenant=TENANT, run="r"))]
    intents = stage.end_commit(outcome)
    assert [code(stage, token) for token in tokens] == ["leader.none"] * 3
    assert worker.is_closed()
    assert Release(1) in intents
    assert stage.coordinator.loop is None
    assert not stage.waits(Commit)


def test_after_an_unknown_commit_that_was_written_a_repeat_is_answered_and_not_repeated():
    stage = slow()
    token = stage.submit("r", command_id="c")
    stage.disk.commit(1, stage.only(Commit).batch)
    stage.end_commit(UNKNOWN)
    assert code(stage, token) == "leader.none"
    stage.withheld = ()
    stage.advance(1_000)
    again = stage.submit("r", command_id="c")
    assert stage.answer(again) == "r"
    assert list(stage.loop.state.runs) == [(TENANT, "r")]


def test_after_an_unknown_commit_that_was_not_written_a_repeat_is_carried_out():
    stage = slow()
    stage.submit("r", command_id="c")
    stage.end_commit(UNKNOWN)
    stage.withheld = ()
    stage.advance(1_000)
    assert not stage.loop.state.runs
    assert stage.answer(stage.submit("r", command_id="c")) == "r"


def test_a_deposed_leader_writes_nothing_and_the_next_one_loads_what_is_on_disk():
    stage = slow()
    stage.ask(put_pool("a"))
    stage.disk.release(1)
    assert stage.disk.elect() == 2
    stage.end_commit(FENCED)
    assert stage.disk.records == {}
    stage.disk.release(2)
    stage.advance(1_000)
    assert stage.loop.state.epoch == 3
    assert not stage.loop.state.pools


def test_what_is_loaded_is_what_is_on_disk():
    stage = reigning()
    worker = Speaker(stage).join()
    stage.submit("r", TaskSpec(id="a"), TaskSpec(id="b", upstream=("a",)))
    worker.start(worker.take())
    before = imaged(all_records(stage.loop.state))
    assert before == imaged(stage.disk.load(1))
    stage.disk.release(1)
    stage.advance(5_000)
    assert stage.loop.state.epoch == 2
    assert imaged(all_records(stage.loop.state)) == before


# Unavailable.


def test_while_the_store_is_away_the_same_batch_is_sent_again_and_again():
    stage = slow()
    token = stage.ask(put_pool("a"))
    first = stage.only(Commit)
    for wait_ms in (*RETRY_COMMIT_MS, RETRY_COMMIT_MS[-1]):
        stage.end_commit(UNAVAILABLE)
        assert not stage.waits(Commit)
        stage.advance(wait_ms - 1)
        assert not stage.waits(Commit)
        stage.advance(1)
        again = stage.only(Commit)
        assert again.batch is first.batch
        assert again.ticket != first.ticket
    assert code(stage, token) == "store.unavailable", "nobody is kept waiting for a store whose trouble lasts"
    stage.end_commit()
    assert stage.answer(stage.ask(put_pool("a"))) == "a", "and is answered when it repeats what was written meanwhile"
    stage.ask(put_pool("b"))
    stage.end_commit(UNAVAILABLE)
    stage.advance(RETRY_COMMIT_MS[0])
    assert stage.waits(Commit), "patience begins anew with each commit that went well"


@pytest.mark.parametrize(
    ("said", "expected"),
    [("store.full", "store.full"), ("store.missing", "store.unavailable"), ("", "store.unavailable")],
)
def test_while_the_store_is_away_new_commands_are_turned_away_at_once_and_told_why(said, expected):
    stage = slow()
    first = stage.ask(put_pool("a"))
    stage.end_commit(UNAVAILABLE, "its own words", said)
    turned_away = stage.ask(put_pool("b"))
    assert code(stage, turned_away) == expected
    assert stage.answer(turned_away).reason == "its own words"
    assert first not in stage.answers
    stage.advance(RETRY_COMMIT_MS[0])
    stage.end_commit()
    assert stage.answer(first) == "a"
    assert ("Pool", TENANT, "b") not in stage.disk.records
    stage.ask(put_pool("b"))
    stage.end_commit()
    assert ("Pool", TENANT, "b") in stage.disk.records


def test_a_question_during_an_outage_is_turned_away_because_it_would_see_what_is_not_on_disk():
    stage = slow()
    stage.submit("r")
    stage.end_commit(UNAVAILABLE, "no space left.", "store.full")
    assert code(stage, stage.ask(GetRun(tenant=TENANT, run="r"))) == "store.full"
    stage.advance(RETRY_COMMIT_MS[0])
    stage.end_commit()
    assert isinstance(stage.answer(stage.ask(GetRun(tenant=TENANT, run="r"))), RunView)


def test_nothing_is_granted_while_the_store_is_away_and_afterwards_at_once():
    stage = reigning()
    worker = Speaker(stage, slots=2).join()
    stage.withheld = (Commit,)
    stage.submit("r", TaskSpec(id="t"))
    granted = stage.task().fence
    assert granted
    # The grant is in the batch that is not written. It is given up once, since nobody acknowledges it.
    for _ in range(20):
        stage.end_commit(UNAVAILABLE)
        worker.beat()
        stage.advance(RETRY_COMMIT_MS[-1])
    assert stage.task().state is TaskState.QUEUED
    stage.end_commit()
    assert fence_number(stage.task().fence) == fence_number(granted) + 1, "one grant for each commit that can be made"
    stage.end_commit()
    assert worker.take().fence == stage.task().fence


def test_an_outage_of_the_store_is_no_proof_and_does_not_end_the_reign_while_the_lock_is_held():
    stage = slow()
    stage.ask(put_pool("a"))
    for _ in range(10):
        stage.end_commit(UNAVAILABLE)
        stage.advance(RETRY_COMMIT_MS[-1])
    assert stage.coordinator.leadership.role is Role.LEADER
    stage.disk.release(1)
    stage.advance(stage.limits.term_ms)
    assert stage.coordinator.leadership.standing.step_downs


# Refused by the store.


def test_a_lone_command_that_the_store_refuses_is_refused():
    stage = reigning()
    stage.accepts = objects_to("bad")
    token = stage.ask(put_pool("bad"))
    assert code(stage, token) == "store.refused"
    assert stage.loop.state.epoch == 1
    assert not stage.loop.state.pools


def test_of_a_refused_batch_only_the_culprit_is_refused_and_the_rest_go_on_one_by_one():
    stage = slow()
    first = stage.ask(put_pool("first"))
    tokens = {name: stage.ask(put_pool(name)) for name in ("a", "bad", "b", "worse", "c")}
    stage.accepts = objects_to("bad", "worse")
    stage.end_commit()
    assert stage.answer(first) == "first"
    before = len(stage.said(Commit))
    stage.withheld = ()
    stage.end_commit()
    stage.rest()
    assert {name: stage.answer(token) for name, token in tokens.items() if name in "abc"} == {
        "a": "a",
        "b": "b",
        "c": "c",
    }
    assert [code(stage, tokens[name]) for name in ("bad", "worse")] == ["store.refused"] * 2
    tried = [pools_of(commit.batch) for commit in stage.said(Commit)[before:]]
    assert all(len(names) == 1 for names in tried), "each stands alone"
    assert sorted(name for _, name in stage.loop.state.pools) == ["a", "b", "c", "first"]
    assert stage.told().count("commit.refused") == 3


def test_the_reign_goes_on_after_a_refusal_and_takes_new_commands():
    stage = reigning()
    stage.accepts = objects_to("bad")
    stage.ask(put_pool("bad"))
    assert stage.answer(stage.ask(put_pool("good"))) == "good"
    assert stage.disk.epoch == 1


def test_fences_do_not_start_again_after_a_reload_in_the_same_reign():
    stage = reigning()
    worker = Speaker(stage, slots=2).join()
    stage.submit("r")
    first = worker.take()
    stage.accepts = objects_to("bad")
    stage.ask(put_pool("bad"))
    assert worker.is_closed()
    worker = Speaker(stage, stream=2, slots=2)
    worker.held = {first.fence: first}
    worker.greet().present()
    stage.submit("s", name="h")
    second = worker.take()
    assert fence_epoch(second.fence) == fence_epoch(first.fence) == 1
    assert fence_number(second.fence) > fence_number(first.fence)


def test_a_fence_that_was_granted_in_a_refused_batch_is_not_granted_again():
    stage = slow()
    worker = Speaker(stage, slots=2).greet()
    stage.end_commit()
    worker.present()
    stage.submit("r")
    stage.rest()
    lost = stage.task("r").fence
    assert lost
    stage.end_commit(REFUSED, "no")
    stage.end_commit(REFUSED, "no, not by itself either")
    stage.withheld = ()
    worker = Speaker(stage, stream=2, slots=2).join()
    stage.submit("s", name="h")
    assert worker.take().fence > lost


def test_refused_work_of_our_own_ends_the_reign():
    stage = reigning()
    stage.submit("r")
    stage.withheld = (Commit,)
    stage.advance(stage.limits.starve_ms + 2 * stage.limits.sweep_ms)
    intents = stage.end_commit(REFUSED, "a step on the ladder that nobody asked for")
    assert Release(1) in intents
    assert stage.coordinator.loop is None


def test_the_ladder_says_what_is_needed_from_the_tier_on_at_which_somebody_is_asked_for():
    stage = reigning()
    stage.submit("r", TaskSpec(id="a", requires=(("rack", "b7"),)))
    stage.advance(stage.limits.starve_ms + (THRESHOLDS.park + 1) * stage.limits.sweep_ms)
    said = stage.said(Escalate)
    assert [each.tier for each in said if each.is_new] == [Tier.FAN_OUT, Tier.SPAWN, Tier.EVENT, Tier.PARK]
    for each in said:
        is_asked_for = Tier.SPAWN <= each.tier < Tier.PARK
        assert (each.demand is not None) == is_asked_for, "a task that is parked needs nobody any more"
        if each.demand is not None:
            assert each.demand.signature.requires == (("rack", "b7"),)
        assert "no worker" in each.why


def test_whoever_waits_when_a_reload_fails_is_told_to_ask_again():
    stage = slow()
    tokens = [stage.ask(put_pool("a")), stage.ask(put_pool("b")), stage.ask(put_pool("c"))]
    stage.end_commit()
    stage.disk.release(1)
    stage.disk.elect()
    stage.end_commit(REFUSED, "no")
    assert [code(stage, token) for token in tokens[1:]] == ["leader.none"] * 2


def test_commands_that_come_during_a_reload_are_told_that_nobody_leads():
    stage = reigning()
    stage.accepts = objects_to("bad")
    stage.withheld = (Load,)
    stage.ask(put_pool("bad"))
    assert code(stage, stage.ask(put_pool("a"))) == "leader.none"
    stage.end_load()
    stage.end_load()
    assert stage.answer(stage.ask(put_pool("a", command_id="again"))) == "a"


def test_nobody_is_swallowed_when_a_reign_ends():
    stage = slow()
    tokens = [stage.ask(put_pool(f"p{number}")) for number in range(10)]
    tokens += [stage.ask(GetRun(tenant=TENANT, run="r")) for _ in range(5)]
    stage.end_commit()
    stage.end_commit(FENCED)
    assert sorted(stage.answers) == tokens
    assert next(intent for intent in stage.said(Answer) if intent.token == tokens[0]).value == "p0"


# Pull workers ask like clients.


def test_claims_and_renewals_are_turned_away_without_a_proof():
    stage = reigning()
    stage.loop.proven_until = stage.now - 1
    loop = stage.loop
    for number, command in enumerate(
        (
            cm.ClaimTask(tenant=TENANT, command_id="c", worker="w", incarnation="i"),
            cm.RenewLease(tenant=TENANT, worker="w", incarnation="i", fence=1),
        )
    ):
        loop.inbox.append(Ask(command, number))
        (answer,) = [intent for intent in loop.turn(stage.now) if isinstance(intent, Answer)]
        assert isinstance(answer.value, Unavailable)
        assert answer.value.code == "leader.none"


def test_a_claim_is_answered_with_its_fence_and_its_offer_when_the_grant_is_durable():
    stage = pulling()
    stage.withheld = (Commit,)
    claim = stage.ask(cm.ClaimTask(tenant=TENANT, command_id="claim", worker="agent", incarnation="i"))
    assert claim not in stage.answers
    stage.end_commit()
    answer = stage.answers[claim]
    assert answer.detail.fence == int(answer.value)
    assert answer.detail.run == "r"


def test_a_repeated_claim_gets_the_same_lease_and_its_offer_again():
    stage = pulling()
    command = cm.ClaimTask(tenant=TENANT, command_id="claim", worker="agent", incarnation="i")
    first, again = stage.answers[stage.ask(command)], stage.answers[stage.ask(command)]
    assert (first.value, first.detail) == (again.value, again.detail)
    assert len(stage.loop.state.leases) == 1


def test_a_renewal_is_told_until_when_and_holds_until_then():
    stage = pulling()
    claim = cm.ClaimTask(tenant=TENANT, command_id="claim", worker="agent", incarnation="i", lease_ms=10_000)
    fence = int(str(stage.answer(stage.ask(claim))))
    stage.advance(9_000)
    renewal = cm.RenewLease(tenant=TENANT, worker="agent", incarnation="i", fence=fence, lease_ms=10_000)
    answer = stage.answers[stage.ask(renewal)]
    assert (answer.value, answer.detail) == ("renewed", stage.now + 10_000)
    stage.advance(9_999)
    assert fence in stage.loop.state.leases
    stage.advance(1)
    assert fence not in stage.loop.state.leases
    assert code(stage, stage.ask(renewal)) == "lease.lost"


def test_a_pull_worker_that_begins_anew_is_free_whatever_it_said_before():
    stage = pulling()
    stage.ask(cm.BeatWorker(tenant=TENANT, worker="agent", incarnation="i", mood=Mood.STOPPING))
    claim = cm.ClaimTask(tenant=TENANT, command_id="claim", worker="agent", incarnation="i")
    assert code(stage, stage.ask(claim)) == "worker.draining"
    stage.ask(cm.RegisterWorker(tenant=TENANT, worker="agent", incarnation="i", capacity=Capacity(pull=True)))
    assert int(str(stage.answer(stage.ask(claim)))) in stage.loop.state.leases


def pulling() -> Stage:
    """A leader with a pull worker and one task for it."""
    stage = reigning()
    queue = Queue(tenant=TENANT, name="agents", pull=True)
    stage.ask(cm.PutQueue(tenant=TENANT, command_id="queue", queue=queue))
    capacity = Capacity(pull=True)
    stage.ask(cm.RegisterWorker(tenant=TENANT, worker="agent", incarnation="i", capacity=capacity))
    stage.submit("r", TaskSpec(id="x", queue="agents"))
    assert stage.states() == [TaskState.QUEUED], "nobody claims for a pull worker"
    return stage


# Time.


def test_a_deadline_is_kept_by_the_clock():
    stage = reigning()
    stage.submit("r", run_timeout_ms=5_000)
    stage.advance(4_999)
    assert stage.result() is RunState.RUNNING
    stage.advance(1)
    assert stage.result() is RunState.FAILED


def test_time_during_which_the_coordinator_did_not_run_is_added_to_every_lease():
    stage = reigning()
    worker = Speaker(stage).join()
    stage.submit("r")
    offer = worker.take()
    worker.start(offer)
    lease = stage.loop.state.leases[offer.fence]
    stall_ms = 3_000
    wanted_at = stage.loop.wanted_at
    stage.now = wanted_at + stall_ms
    stage.wake()
    assert stage.loop.state.stalled_ms == stall_ms
    ends_at = lease.expires_at + stall_ms
    stage.advance(ends_at - 1 - stage.now)
    assert offer.fence in stage.loop.state.leases
    stage.advance(stage.limits.dispatch_ms)
    assert offer.fence not in stage.loop.state.leases


def test_once_a_minute_the_safety_net_finds_what_a_lost_timer_would_have_done():
    stage = reigning()
    worker = Speaker(stage).join()
    stage.submit("r", TaskSpec(id="x", retry=RetryPolicy(retries=1, delay_ms=2_000, jitter=False)))
    worker.report(worker.take(), cm.Outcome.FAILED)
    state = stage.loop.state
    state.timers = [timer for timer in state.timers if timer[2] != "due"]
    stage.advance(10_000)
    assert stage.states() == [TaskState.UP_FOR_RETRY]
    stage.advance(stage.limits.step_ms)
    assert stage.states() == [TaskState.QUEUED]


def test_a_step_that_is_not_finished_is_not_begun_a_second_time(monkeypatch: pytest.MonkeyPatch):
    begun: list[int] = []

    def endless(state: State, now: int) -> Iterator[cm.Command]:
        begun.append(now)
        while True:
            yield cm.Tick(tenant=TENANT, kind="review", key=(TENANT, "nobody"))

    monkeypatch.setattr("rota.control.agenda.PHASES", (endless,))
    stage = reigning()
    for _ in range(5):
        stage.loop.state.set_timer(stage.now, "step")
        for _ in range(3):
            stage.wake()
        assert len(stage.loop.agenda.phases) == 1
        stage.now += 1
    assert len(begun) == 1


def test_the_safety_net_has_a_share_of_every_turn_under_full_load(monkeypatch: pytest.MonkeyPatch):
    stage = reigning()
    stage.submit("r")
    looked: list[int] = []

    def phase(state: State, now: int) -> Iterator[cm.Command]:
        for number in range(10 * LEAST_PER_TURN):
            looked.append(number)
            yield cm.Tick(tenant=TENANT, kind="review", key=(TENANT, "nobody"))

    monkeypatch.setattr("rota.control.agenda.PHASES", (phase,))
    stage.loop.state.set_timer(stage.now, "step")
    for turn in range(1, 6):
        stage.loop.inbox.extend(Ask(GetRun(tenant=TENANT, run="r")) for _ in range(2 * WORK_PER_TURN))
        stage.coordinator.handle(Woke(), stage.now)
        assert stage.loop.inbox, "the load is more than a turn takes"
        assert len(looked) == turn * LEAST_PER_TURN


def test_a_pause_too_short_to_be_noticed_is_not_added():
    stage = reigning()
    stage.now = stage.loop.wanted_at + stage.limits.stall_ms
    stage.wake()
    assert stage.loop.state.stalled_ms == 0


def test_a_frame_that_comes_at_the_very_end_of_a_lease_is_heard_before_the_timer_runs():
    stage = reigning()
    worker = Speaker(stage).join()
    stage.submit("r")
    offer = worker.take()
    worker.start(offer)
    ends_at = stage.loop.state.leases[offer.fence].expires_at
    stage.advance(ends_at - 1 - stage.now)
    stage.now = ends_at
    worker.succeed(offer)
    assert stage.result() is RunState.SUCCESS
    assert stage.task().interruptions == 0


def test_after_an_election_no_lease_ends_before_a_full_lease_time_has_passed():
    stage = reigning()
    worker = Speaker(stage).join()
    stage.submit("r")
    offer = worker.take()
    worker.start(offer)
    stage.advance(26_000)
    stage.disk.release(1)
    stage.advance(3_000)
    assert stage.loop.state.epoch == 2
    stage.advance(stage.loop.state.born_at + stage.limits.lease_ms - 1 - stage.now)
    assert stage.task().state is TaskState.RUNNING
    stage.advance(stage.limits.dispatch_ms)
    assert stage.task().state is TaskState.QUEUED
    assert stage.task().attempt == 0
