"""A store that will not take what a worker said: the culprit is found, and nobody else pays for it."""

from rota.control.events import Commit, Release
from rota.control.standing import Cause
from rota.core import commands as cm
from rota.core.decide.leases import Offer
from rota.core.model import Capacity, FailureClass, Queue, TaskSpec
from rota.core.records import Batch, Run, Task, Worker
from rota.core.states import RunState, TaskState
from tests.unit.control.stage import TENANT, Speaker, Stage, reigning

SUCCESS = cm.Outcome.SUCCESS


def tasks_of(batch: Batch) -> list[Task]:
    rows = [row.solo if isinstance(row, Run) else row for row in batch.puts]
    return [row for row in rows if isinstance(row, Task)]


def keeps_no_bad_result(batch: Batch) -> bool:
    return not any(row.result == b"bad" for row in tasks_of(batch))


def keeps_nothing_of(run: str):
    return lambda batch: not any(row.run == run and row.state in ("success", "failed") for row in tasks_of(batch))


def keeps_no_worker(name: str, slots: int = 1):
    def accepts(batch: Batch) -> bool:
        return not any(isinstance(row, Worker) and (row.id, row.capacity.slots) == (name, slots) for row in batch.puts)

    return accepts


def working(runs: tuple[str, ...]) -> tuple[Stage, Speaker, dict[str, Offer]]:
    """A leader and a worker that has begun these runs."""
    stage = reigning()
    worker = Speaker(stage, slots=len(runs)).join()
    for run in runs:
        stage.submit(run, name=run)
    stage.rest()
    offers = {offer.run: offer for frame in worker.hear() for offer in frame.start}
    assert set(offers) == set(runs)
    return stage, worker, offers


def dial_again(stage: Stage, worker: Speaker, *reports: cm.Report, stream: int = 2) -> Speaker:
    """The worker after its stream was closed, saying again what was not acknowledged."""
    assert worker.is_closed()
    other = Speaker(stage, worker.name, stream=stream, slots=worker.capacity.slots, epoch=1)
    other.held = dict(worker.held)
    other.greet().present(*reports)
    return other


def test_a_result_that_the_store_refuses_is_a_fatal_failure_of_that_attempt_and_of_no_other():
    stage, worker, offers = working(("good", "bad", "other"))
    stage.accepts = keeps_no_bad_result
    results = {"good": b"fine", "bad": b"bad", "other": b"fine"}
    reports = tuple(worker.word(offers[run], SUCCESS, result=result) for run, result in results.items())
    worker.say(reports=reports)
    stage.rest()
    assert {run: stage.result(run) for run in offers} == {
        "good": RunState.SUCCESS,
        "bad": RunState.FAILED,
        "other": RunState.SUCCESS,
    }
    row = stage.task("bad")
    assert (row.state, row.failure, row.result) == (TaskState.FAILED, FailureClass.FATAL, None)
    assert row.error.startswith("store.refused: ")
    assert stage.disk.epoch == 1 and not stage.coordinator.leadership.standing.step_downs
    again = dial_again(stage, worker, *reports)
    assert [frame.ack for frame in stage.frames[again.stream]][-1] == 1, "said again, it is a repetition"
    assert stage.loop.tally.stale_reports == {}
    assert stage.told().count("commit.refused") == 2


def test_reports_are_tried_one_by_one_and_nothing_else_is_in_their_batches():
    stage, worker, offers = working(("a", "bad"))
    stage.accepts = keeps_no_bad_result
    stage.submit("waiting", name="waiting")
    before = len(stage.said(Commit))
    worker.say(
        reports=(
            worker.word(offers["a"], SUCCESS, result=b"fine"),
            worker.word(offers["bad"], SUCCESS, result=b"bad"),
        )
    )
    stage.rest()
    refused, *tried = [[row.run for row in tasks_of(commit.batch)] for commit in stage.said(Commit)[before:]]
    assert {"a", "bad"} <= set(refused)
    assert tried == [["a"], ["bad"], ["bad"]], "one, the culprit, and the failure that stands for it"


def test_a_pull_worker_is_told_and_its_attempt_has_failed():
    stage = reigning()
    stage.ask(cm.PutQueue(tenant=TENANT, command_id="q", queue=Queue(tenant=TENANT, name="agents", pull=True)))
    capacity = Capacity(pull=True)
    stage.ask(cm.RegisterWorker(tenant=TENANT, worker="w", incarnation="i1", capacity=capacity))
    stage.submit("r", TaskSpec(id="x", queue="agents"))
    claim = stage.ask(cm.ClaimTask(tenant=TENANT, command_id="c", worker="w", incarnation="i1"))
    offer = stage.answers[claim].detail
    stage.accepts = keeps_no_bad_result
    report = Speaker(stage).word(offer, SUCCESS, result=b"bad")
    assert stage.answer(stage.ask(report)).code == "store.refused"
    stage.rest()
    assert (stage.task().state, stage.task().failure) == (TaskState.FAILED, FailureClass.FATAL)
    assert stage.answer(stage.ask(report)) == "duplicate"


def test_a_greeting_that_the_store_refuses_is_turned_away_and_the_reign_goes_on():
    stage = reigning()
    stage.accepts = keeps_no_worker("bad")
    Speaker(stage, "bad", stream=1).greet()
    stage.rest()
    well = Speaker(stage, "well", stream=2).join()
    assert stage.disk.epoch == 1
    stage.submit("r")
    well.succeed(well.take())
    assert stage.result() is RunState.SUCCESS
    before = len(stage.said(Commit))
    again = Speaker(stage, "bad", stream=3).greet()
    (frame,) = stage.frames[3]
    assert "store.refused" in frame.refused
    assert again.is_closed()
    assert len(stage.said(Commit)) == before, "the store is not asked again for what it has refused"
    other = Speaker(stage, "bad", stream=4, slots=2).join()
    assert not other.is_closed(), "a worker that describes itself otherwise gets another try"


def test_greetings_in_one_batch_do_not_pay_for_each_other():
    stage = reigning()
    stage.accepts = keeps_no_worker("bad")
    stage.withheld = (Commit,)
    stage.submit("first", name="first")
    Speaker(stage, "well", stream=1).greet()
    Speaker(stage, "bad", stream=2).greet()
    stage.withheld = ()
    stage.end_commit()
    stage.rest()
    assert list(stage.loop.state.workers) == [(TENANT, "well")]
    worker = stage.loop.state.workers[(TENANT, "well")]
    assert not worker.present, "its stream was closed; it is given nothing before it greets again"
    assert not stage.loop.state.leases


def test_a_store_that_will_not_take_the_failure_either_ends_the_reign():
    stage, worker, offers = working(("r",))
    stage.accepts = keeps_nothing_of("r")
    worker.report(offers["r"], SUCCESS)
    assert Release(1) in stage.log
    assert list(stage.coordinator.leadership.standing.step_downs) == [Cause.STORE_REFUSED]
