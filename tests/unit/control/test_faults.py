"""Errors of the scheduler itself: one run is held and says so, and everything else goes on (P-FAULT).

Here one deciding function is made to raise, as a bug of ours would. Leoflow's cases 22 to 30 are about the same.
"""

from collections.abc import Callable
from typing import Any

import pytest

from rota.control.events import Tell
from rota.core import commands as cm
from rota.core import decide as deciding
from rota.core.calendar import ScheduleSpec
from rota.core.decide import timers
from rota.core.decide.leases import report
from rota.core.decide.runs import continue_run
from rota.core.errors import Refused
from rota.core.invariants import validate
from rota.core.model import Graph, RetryPolicy, TaskSpec
from rota.core.plan import Cascade
from rota.core.questions import ExplainTask
from rota.core.reap import FELL_SILENT
from rota.core.state import State
from rota.core.states import RunState, TaskState
from rota.core.step import PHASES
from tests.unit.control.stage import TENANT, Speaker, Stage, reigning
from tests.unit.core.world import short_slices

Decide = Callable[[State, Any, int], Any]


class Bug:
    """A mistake in one deciding function, which can be mended."""

    def __init__(self, real: Decide, meets: Callable[[State, Any], bool]) -> None:
        self.real = real
        self.meets = meets
        self.is_mended = False
        self.raised = 0

    def __call__(self, state: State, command: Any, now: int) -> Any:
        if not self.is_mended and self.meets(state, command):
            self.raised += 1
            raise ZeroDivisionError("by a bug of ours")
        return self.real(state, command, now)


def planted(
    monkeypatch: pytest.MonkeyPatch, command: type[cm.Command], real: Decide, meets: Callable[[State, Any], bool]
) -> Bug:
    """Make one kind of command fail where `meets` says so."""
    bug = Bug(real, meets)
    monkeypatch.setitem(deciding.DECIDERS, command, bug)
    return bug


def names_bad(state: State, command: Any) -> bool:
    return command.run == "bad"


def resume(stage: Stage, run: str = "bad") -> object:
    return stage.answer(stage.ask(cm.PauseRun(tenant=TENANT, command_id=f"resume-{run}", run=run, paused=False)))


def drive(stage: Stage, worker: Speaker, beats: int) -> None:
    """A worker that starts and finishes whatever it is offered, beat by beat."""
    for _ in range(beats):
        stage.advance(stage.limits.beat_ms)
        for offer in list(worker.held.values()):
            worker.start(offer)
            worker.succeed(offer)
        for frame in worker.beat():
            if frame.want_complete:
                worker.present()


def test_an_error_about_one_run_is_written_on_that_run_and_touches_no_other(monkeypatch):
    stage = reigning()
    worker = Speaker(stage, slots=2).join()
    stage.submit("bad", TaskSpec(id="a"), TaskSpec(id="b", upstream=("a",)))
    stage.submit("good", TaskSpec(id="a"), TaskSpec(id="b", upstream=("a",)))
    planted(monkeypatch, cm.Report, report, names_bad)
    drive(stage, worker, 6)
    assert "ZeroDivisionError" in stage.run("bad").fault
    assert stage.run("good").fault == ""
    assert stage.result("good") is RunState.SUCCESS
    assert stage.result("bad") is RunState.RUNNING


def test_a_faulted_run_says_so_to_whoever_asks_and_is_granted_nothing(monkeypatch):
    stage = reigning()
    worker = Speaker(stage).join()
    bug = planted(monkeypatch, cm.CancelRun, timers.nothing, names_bad)
    stage.submit("bad", TaskSpec(id="a"), TaskSpec(id="b"))
    token = stage.ask(cm.CancelRun(tenant=TENANT, command_id="c", run="bad"))
    told = stage.answer(token)
    assert isinstance(told, Refused)
    assert told.code == "run.faulted"
    assert bug.raised == 1
    worker.succeed(worker.take())
    assert stage.states("bad") == [TaskState.SUCCESS, TaskState.QUEUED]
    assert not stage.loop.state.leases
    why = stage.answer(stage.ask(ExplainTask(tenant=TENANT, run="bad", task="b")))
    assert isinstance(why, tuple)
    assert why[0].code == "run.faulted"


def test_a_fault_is_on_disk_and_outlives_the_coordinator(monkeypatch):
    stage = reigning()
    planted(monkeypatch, cm.CancelRun, timers.nothing, names_bad)
    stage.submit("bad")
    stage.ask(cm.CancelRun(tenant=TENANT, command_id="c", run="bad"))
    stage.disk.release(1)
    stage.advance(5_000)
    assert stage.loop.state.epoch == 2
    assert stage.run("bad").fault


def test_a_second_error_leaves_the_first_one_to_be_read(monkeypatch):
    stage = reigning()
    planted(monkeypatch, cm.CancelRun, timers.nothing, names_bad)
    stage.submit("bad")
    stage.ask(cm.CancelRun(tenant=TENANT, command_id="c1", run="bad"))
    first = stage.run("bad").fault
    stage.ask(cm.CancelRun(tenant=TENANT, command_id="c2", run="bad"))
    assert stage.run("bad").fault == first
    assert stage.loop.faults == 2


def test_resuming_lets_go_of_a_run_whose_error_is_mended(monkeypatch):
    stage = reigning()
    worker = Speaker(stage).join()
    bug = planted(monkeypatch, cm.CancelRun, timers.nothing, names_bad)
    stage.submit("bad", TaskSpec(id="a"), TaskSpec(id="b"))
    stage.ask(cm.CancelRun(tenant=TENANT, command_id="c", run="bad"))
    worker.succeed(worker.take())
    bug.is_mended = True
    assert resume(stage) == "bad"
    assert stage.run("bad").fault == ""
    worker.succeed(worker.take())
    assert stage.result("bad") is RunState.SUCCESS
    assert validate(stage.loop.state, stage.now) == []


def test_a_cascade_that_met_an_error_goes_on_when_its_run_is_resumed(monkeypatch):
    stage = reigning()
    worker = Speaker(stage, slots=8).join()
    bug = planted(monkeypatch, cm.ContinueRun, continue_run, names_bad)
    with short_slices(2):
        stage.submit("bad", TaskSpec(id="a", width=6))
        stage.rest()
        assert stage.run("bad").fault
        assert stage.run("bad").pending
        bug.is_mended = True
        resume(stage)
        stage.rest()
        assert not stage.run("bad").pending, "the rest of the cascade waits for the minute's safety net"
        drive(stage, worker, 3)
    assert stage.result("bad") is RunState.SUCCESS


def test_a_retry_whose_timer_met_an_error_is_made_after_resuming(monkeypatch):
    stage = reigning()
    worker = Speaker(stage).join()
    stage.submit("bad", TaskSpec(id="a", retry=RetryPolicy(retries=1, delay_ms=2_000, jitter=False)))
    worker.report(worker.take(), cm.Outcome.FAILED)
    bug = Bug(timers.due, lambda state, key: True)
    monkeypatch.setitem(timers.TICKS, "due", bug)
    stage.advance(3_000)
    assert stage.run("bad").fault
    bug.is_mended = True
    resume(stage)
    worker.beat()
    drive(stage, worker, 15)
    assert stage.result("bad") is RunState.SUCCESS


def test_work_whose_report_met_an_error_is_not_lost_after_resuming(monkeypatch):
    stage = reigning()
    worker = Speaker(stage).join()
    stage.submit("bad")
    offer = worker.take()
    worker.start(offer)
    bug = planted(monkeypatch, cm.Report, report, names_bad)
    worker.succeed(offer)
    assert stage.run("bad").fault
    bug.is_mended = True
    resume(stage)
    drive(stage, worker, 8)
    assert stage.result("bad") is RunState.SUCCESS, "the report was acknowledged, and its lease is renewed for ever"


@pytest.mark.parametrize(
    "fields",
    [{"result": b"x" * 70_000}, {"expands": (("mapped", 1_000_000),)}],
    ids=["a result too large", "a width too large"],
)
def test_a_report_that_is_refused_does_not_leave_its_task_running_for_ever(fields):
    stage = reigning()
    worker = Speaker(stage).join()
    stage.submit("r", TaskSpec(id="a"), TaskSpec(id="mapped", upstream=("a",), width=0))
    offer = worker.take()
    worker.start(offer)
    worker.report(offer, cm.Outcome.SUCCESS, **fields)
    for _ in range(8):
        stage.advance(stage.limits.beat_ms)
        if any(frame.want_complete for frame in worker.beat()):
            worker.present()
    assert stage.task().state is not TaskState.RUNNING or stage.task().fence != offer.fence


def test_a_run_that_cannot_be_started_does_not_stop_other_runs_of_its_graph(monkeypatch):
    stage = reigning()
    start = Cascade.start

    def start_or_fail(cascade: Cascade) -> None:
        if cascade.run.row.id == "bad":
            raise ZeroDivisionError("by a bug of ours")
        start(cascade)

    monkeypatch.setattr(Cascade, "start", start_or_fail)
    for run in ("bad", "good"):
        stage.submit(run, TaskSpec(id="a"), TaskSpec(id="b", upstream=("a",)))
    stage.advance(2 * stage.limits.step_ms)
    assert stage.result("good") is not RunState.QUEUED
    assert stage.run("bad").fault


@pytest.mark.parametrize("kind", ["worker", "forget", "schedule", "receipts", "graph"])
def test_an_error_about_something_else_holds_no_run_that_happens_to_have_its_name(monkeypatch, kind):
    stage = reigning()
    stage.submit("same")
    stage.loop.state.set_timer(stage.now, kind, TENANT, "same")
    monkeypatch.setitem(timers.TICKS, kind, Bug(timers.TICKS[kind], lambda state, key: True))
    stage.wake()
    assert stage.loop.faults == 1
    assert stage.run("same").fault == ""


def test_a_timer_that_meets_an_error_again_and_again_does_not_stop_the_loop(monkeypatch):
    stage = reigning()
    bug = Bug(timers.sweep, lambda state, key: True)
    monkeypatch.setitem(timers.TICKS, "sweep", bug)
    stage.advance(5 * stage.limits.sweep_ms)
    assert bug.raised >= 4
    assert stage.answer(stage.submit("r")) == "r"


def names_the_bad_one(state: State, key: Any) -> bool:
    return key[1] == "bad"


def test_a_schedule_that_meets_an_error_stops_no_other(monkeypatch):
    stage = reigning()
    bug = Bug(timers.look_at_schedule, names_the_bad_one)
    monkeypatch.setitem(timers.TICKS, "schedule", bug)
    for name in ("bad", "good"):
        graph = Graph(name=name, tasks=(TaskSpec(id="x"),))
        minutely = ScheduleSpec(cron="* * * * *")
        stage.ask(cm.DeployWorkflow(tenant=TENANT, command_id=name, graph=graph, schedule=minutely))
    stage.advance(60_000)
    assert [row.row.name for row in stage.loop.state.runs.values()] == ["good"]
    bug.is_mended = True
    stage.advance(stage.limits.step_ms + 60_000)
    assert {row.row.name for row in stage.loop.state.runs.values()} == {"bad", "good"}, "the safety net looks again"
    assert bug.raised >= 1


def test_a_reaper_that_meets_an_error_about_one_worker_goes_on_with_the_others(monkeypatch):
    bug = Bug(timers.watch_worker, names_the_bad_one)
    monkeypatch.setitem(timers.TICKS, "worker", bug)
    stage = reigning()
    for number, name in enumerate(("bad", "good"), 1):
        worker = Speaker(stage, name, stream=number).join()
        stage.submit(name)
        worker.start(worker.take())
    stage.advance(stage.limits.lease_ms + stage.limits.dispatch_ms)
    assert stage.task("good").error == FELL_SILENT
    assert (stage.task("bad").state, stage.run("bad").fault) == (TaskState.RUNNING, "")
    bug.is_mended = True
    stage.advance(2 * stage.limits.step_ms)
    assert stage.task("bad").error == FELL_SILENT


def test_an_error_while_a_worker_registers_turns_only_that_worker_away(monkeypatch):
    stage = reigning()
    planted(
        monkeypatch,
        cm.RegisterWorker,
        deciding.DECIDERS[cm.RegisterWorker],
        lambda state, command: command.worker == "bad",
    )
    bad = Speaker(stage, "bad", stream=1).greet()
    assert bad.hear()[-1].refused
    assert bad.is_closed()
    good = Speaker(stage, "good", stream=2).join()
    stage.submit("r")
    good.succeed(good.take())
    assert stage.result() is RunState.SUCCESS


def test_a_phase_of_the_safety_net_that_fails_stops_neither_the_loop_nor_the_other_phases(monkeypatch):
    def broken(state: State, now: int):
        raise ZeroDivisionError("by a bug of ours")
        yield

    monkeypatch.setattr("rota.control.agenda.PHASES", (broken, *PHASES))
    stage = reigning()
    stage.submit("r", max_active_runs=1)
    stage.submit("s", max_active_runs=1)
    stage.loop.state.starts.clear()
    stage.ask(cm.CancelRun(tenant=TENANT, command_id="c", run="r"))
    stage.loop.state.starts.clear()
    stage.advance(2 * stage.limits.step_ms)
    assert stage.result("s") is RunState.RUNNING


def test_an_error_in_matching_is_told_and_does_not_stop_the_loop(monkeypatch):
    stage = reigning()
    Speaker(stage).join()

    def broken(state: object, now: int) -> None:
        raise ZeroDivisionError("by a bug of ours")

    monkeypatch.setattr("rota.control.loop.place", broken)
    stage.submit("r")
    told = [intent for intent in stage.said(Tell) if intent.what == "fault"]
    assert told and ("where", "place") in told[0].about
    assert stage.result("r") is RunState.RUNNING
