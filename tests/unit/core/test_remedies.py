"""What a person does about a run: clear, mark, retry now, note; and taking a run out of history for it."""

import time
from collections.abc import Callable

import pytest

from rota.core import commands as cm
from rota.core.bounds import INTERRUPTIONS_MAX
from rota.core.changes import GraphPut, LeaseReturned, RunEnded, TaskMarked
from rota.core.decide import decide
from rota.core.images import take_batch
from rota.core.invariants import validate
from rota.core.model import FailureClass, RetryPolicy
from rota.core.questions import PreviewClear, answer
from rota.core.states import TaskState, can_transition
from rota.core.trigger import TriggerRule
from tests.unit.core.world import TENANT, World, graph, task

CHAIN = graph(task("a"), task("b", "a"), task("c", "b"))
MINUTE_MS = 60_000


def failed_chain() -> World:
    """a failed, and b and c with it."""
    world = World()
    world.worker("w", slots=5)
    world.submit(CHAIN)
    (a,) = world.turn()
    world.fail(a)
    assert world.states() == {"a": "failed", "b": "upstream_failed", "c": "upstream_failed"}
    return world


def finish(world: World) -> None:
    """Everything that can run succeeds."""
    while granted := world.turn():
        for each in granted:
            world.succeed(each)


# Clearing.


def test_no_names_clear_everything_and_only_what_failed_if_asked():
    world = World()
    world.worker("w", slots=5)
    world.submit(graph(task("good"), task("bad"), task("after", "bad"), task("fine", "good")))
    good, bad = world.turn()
    world.succeed(good)
    world.fail(bad)
    finish(world)
    question = PreviewClear(tenant=TENANT, run="r", only_failed=True)
    assert answer(world.state, question, world.now) == ("bad", "after")
    world.client(cm.ClearTasks, run="r", only_failed=True)
    assert {name for name, state in world.states().items() if state == "success"} == {"good", "fine"}
    finish(world)
    assert world.result() == "success"
    world.client(cm.ClearTasks, run="r")
    assert set(world.states().values()) == {"none"}


def test_a_preview_says_exactly_what_clearing_does():
    for names, downstream in ((("b",), True), (("b",), False), ((), True), (("a", "c"), False)):
        world = World()
        world.worker("w", slots=5)
        world.submit(CHAIN)
        finish(world)
        asked = {"run": "r", "tasks": names, "downstream": downstream}
        told = answer(world.state, PreviewClear(tenant=TENANT, **asked), world.now)
        world.client(cm.ClearTasks, **asked)
        assert {name for name, state in world.states().items() if state == "none"} == set(told)


def test_a_cleared_task_has_its_whole_budget_again():
    world = World()
    world.worker("w", slots=5)
    world.submit(graph(task("a", retry=RetryPolicy(retries=1, jitter=False)), task("b", "a")))
    for _ in range(2):
        (a,) = world.turn()
        world.fail(a)
        world.advance(1)
    assert world.states()["a"] == "failed"
    world.client(cm.ClearTasks, run="r", tasks=("a",))
    (a,) = world.turn()
    world.fail(a)
    assert world.states()["a"] == "up_for_retry"


@pytest.mark.parametrize("again", ["clear", "retry", "mark", "revive"])
def test_the_time_a_run_lay_ended_is_no_part_of_how_long_it_took(again: str):
    world = World()
    world.worker("w", slots=5)
    world.submit(graph(task("a"), task("b", "a"), task("z", "b", trigger_rule=TriggerRule.ALL_DONE)))
    work_ms = 0
    for stretch_ms, mark in ((3_000, cm.Mark.SUCCESS), (500, cm.Mark.SKIPPED), (7_000, cm.Mark.FAILED)):
        while granted := world.turn():
            world.advance(stretch_ms)
            work_ms += stretch_ms
            for each in granted:
                name = world.run().graph.task_id(each.task)
                world.report(each, cm.Outcome.FAILED if name == "b" else cm.Outcome.SUCCESS)
        row = world.run().row
        assert world.result() == "success"
        assert row.ended_at - row.started_at - row.idle_ms == work_ms
        if again == "revive":
            rows, definition = tuple(world.run().tasks.values()), world.run().graph.graph
            world.advance(100 * MINUTE_MS)
            take_batch(world.state, world.now)
            world.do(cm.ReviveRun(tenant=TENANT, row=row, tasks=rows, growths=(), graph=definition))
        else:
            world.advance(MINUTE_MS - 1)
        if again == "retry":
            world.client(cm.RetryTasks, run="r", tasks=("b",))
        elif again == "mark":
            world.client(cm.MarkTasks, run="r", tasks=("b",), to=mark)
        else:
            world.client(cm.ClearTasks, run="r", tasks=("b",))
        world = world.restarted()
        world.hear()


def test_what_only_waits_after_a_cleared_task_waits_for_it_again():
    world = World()
    world.worker("w", slots=1)
    world.submit(graph(task("a"), task("b", "a"), task("c", "a")))
    (a,) = world.turn()
    world.succeed(a)
    world.turn()
    assert world.states()["c"] == "queued"
    world.client(cm.ClearTasks, run="r", tasks=("a",))
    assert world.states()["c"] == "none"
    assert validate(world.state, world.now) == []


def test_a_resource_that_is_gone_is_set_up_again_for_what_is_cleared():
    world = World()
    world.worker("w", slots=5)
    world.submit(
        graph(
            task("make", is_setup=True),
            task("work", "make"),
            task("beside", "make"),
            task("drop", "make", "work", "beside", is_teardown=True),
        )
    )
    finish(world)
    assert set(answer(world.state, PreviewClear(tenant=TENANT, run="r", tasks=("work",)), world.now)) == {
        "make",
        "work",
        "drop",
    }
    world.client(cm.ClearTasks, run="r", tasks=("work",))
    assert world.states() == {"make": "none", "work": "none", "beside": "success", "drop": "none"}
    finish(world)
    assert world.result() == "success"


@pytest.mark.parametrize("width", [0, 2, 3, 5])
def test_a_source_that_gives_more_or_fewer_the_second_time_is_mapped_over_anew(width: int):
    world = World()
    world.worker("w", slots=9)
    world.submit(graph(task("a"), task("each", "a", width=0), task("end", "each", trigger_rule=TriggerRule.ALL_DONE)))
    (a,) = world.turn()
    world.succeed(a, expands=(("each", 3),))
    finish(world)
    world.client(cm.ClearTasks, run="r", tasks=("a",))
    (a,) = world.turn()
    world.succeed(a, expands=(("each", width),))
    assert validate(world.state, world.now) == []
    finish(world)
    live = world.run()
    tasks = [live.tasks[idx] for idx in live.graph.tasks_of(live.graph.index["each"])]
    assert [each.state.value for each in tasks] == (["success"] * width or ["skipped"])
    assert world.result() == "success"
    assert validate(world.restarted().state, world.now) == []


# Marking.


@pytest.mark.parametrize("to", list(cm.Mark), ids=str)
def test_a_failed_task_that_is_said_to_be_well_lets_what_failed_with_it_run(to: cm.Mark):
    world = failed_chain()
    world.client(cm.MarkTasks, run="r", tasks=("a",), to=to)
    finish(world)
    after = {"success": "success", "failed": "upstream_failed", "skipped": "skipped"}[to]
    assert world.states() == {"a": to, "b": after, "c": after}
    assert world.result() == ("failed" if to == "failed" else "success")
    assert validate(world.state, world.now) == []


def test_a_running_task_that_is_marked_is_taken_from_its_worker_and_its_report_is_late():
    world = World()
    world.worker("w", slots=5)
    world.submit(CHAIN)
    (a,) = world.turn()
    world.start(a)
    decision = world.client(cm.MarkTasks, run="r", tasks=("a",), to=cm.Mark.SUCCESS)
    assert isinstance(decision.changes[0], LeaseReturned)
    assert world.states()["a"] == "success"
    assert not world.state.leases
    assert world.succeed(a) == "already_ended"
    finish(world)
    assert world.result() == "success"


def in_state(here: TaskState) -> World:
    """A run whose task b is in this state; `scheduled` lasts for no time at all."""
    world = World()
    world.worker("w", slots=5)
    retry = RetryPolicy(retries=1, delay_ms=MINUTE_MS)
    world.submit(graph(task("a"), task("b", "a", retry=retry), task("c", "b")))
    (a,) = world.turn()
    match here:
        case TaskState.NONE:
            return world
        case TaskState.UPSTREAM_FAILED:
            world.fail(a)
            return world
        case _:
            world.succeed(a)
            world.follow_up()
    if here is TaskState.CANCELLED:
        world.client(cm.CancelRun, run="r")
        world.turn()
    if here in (TaskState.QUEUED, TaskState.CANCELLED):
        return world
    (b,) = world.turn()
    if here is TaskState.ASSIGNED:
        return world
    world.start(b)
    match here:
        case TaskState.SUCCESS:
            world.succeed(b)
        case TaskState.FAILED:
            world.fail(b, failure=FailureClass.FATAL)
        case TaskState.SKIPPED:
            world.report(b, cm.Outcome.SKIPPED)
        case TaskState.UP_FOR_RETRY:
            world.fail(b)
        case TaskState.UP_FOR_RESCHEDULE:
            world.report(b, cm.Outcome.RESCHEDULE, resume_at=world.now + MINUTE_MS)
        case TaskState.NEEDS_ATTENTION:
            for _ in range(INTERRUPTIONS_MAX - 1):
                world.interrupt(b)
                (b,) = world.turn()
                world.start(b)
            world.interrupt(b)
        case _:
            pass
    return world


@pytest.mark.parametrize("to", cm.Mark)
@pytest.mark.parametrize("here", [state for state in TaskState if state is not TaskState.SCHEDULED])
def test_a_task_can_be_marked_in_every_state_by_moves_that_the_table_has(here: TaskState, to: cm.Mark):
    world = in_state(here)
    assert world.states()["b"] == here
    before = dict(world.state.moves)
    world.client(cm.MarkTasks, run="r", tasks=("b",), to=to)
    assert world.states()["b"] == to
    made = {pair for pair, count in world.state.moves.items() if count != before[pair]}
    assert [pair for pair in made if not can_transition(*pair)] == []
    assert ((TaskState.NONE, TaskState(to.value)) in made) == (here != to)
    assert validate(world.state, world.now) == []


def test_marking_the_last_task_ends_the_run():
    world = World()
    world.submit(graph(task("a"), task("b")))
    world.follow_up()
    decision = world.client(cm.MarkTasks, run="r", tasks=("a", "b"), to=cm.Mark.SUCCESS)
    assert isinstance(decision.changes[-2], RunEnded)
    assert world.result() == "success"


def wide_run(roots: int) -> World:
    """A setup, many tasks that need it, nine after each of those, and a teardown; all of it has ended."""
    world = World()
    middle = [task(f"r{number}", "up") for number in range(roots)]
    below = [task(f"c{number}-{one}", f"r{number}") for number in range(roots) for one in range(9)]
    down = task("down", "up", *(one.id for one in middle), is_teardown=True)
    world.submit(graph(task("up", is_setup=True), *middle, *below, down))
    world.follow_up()
    world.client(cm.MarkTasks, run="r", tasks=("up",), to=cm.Mark.SUCCESS)
    world.follow_up()
    for at in range(0, roots, 1_000):
        names = tuple(one.id for one in middle[at : at + 1_000])
        world.client(cm.MarkTasks, run="r", tasks=names, to=cm.Mark.FAILED)
        world.follow_up()
    world.client(cm.MarkTasks, run="r", tasks=("down",), to=cm.Mark.SUCCESS)
    world.follow_up()
    return world


REPAIRS: dict[str, Callable[[tuple[str, ...]], cm.Command]] = {
    "mark": lambda names: cm.MarkTasks(tenant=TENANT, command_id="x", run="r", tasks=names, to=cm.Mark.SUCCESS),
    "clear": lambda names: cm.ClearTasks(tenant=TENANT, command_id="x", run="r", tasks=names),
    "retry": lambda names: cm.RetryTasks(tenant=TENANT, command_id="x", run="r", tasks=names),
}


@pytest.mark.slow
def test_a_repair_of_many_tasks_costs_in_proportion_to_them():
    def cpu_s(world: World, repair: str, count: int) -> float:
        command = REPAIRS[repair](tuple(f"r{number}" for number in range(count)))
        taken: list[float] = []
        for _ in range(3):
            began = time.thread_time()
            assert decide(world.state, command, world.now).changes
            taken.append(time.thread_time() - began)
        return min(taken)

    small, large = wide_run(500), wide_run(3_000)
    ratios = {repair: cpu_s(large, repair, 3_000) / cpu_s(small, repair, 500) for repair in REPAIRS}
    # Six times as many; a cost that grows with the square would be near 36 times.
    assert {repair: ratio for repair, ratio in ratios.items() if ratio > 15} == {}


def test_a_waiting_task_that_is_marked_is_not_judged_again():
    world = World()
    world.worker("w", slots=5)
    world.submit(CHAIN)
    world.client(cm.PauseRun, run="r")
    world.follow_up()
    world.client(cm.MarkTasks, run="r", tasks=("b",), to=cm.Mark.SUCCESS)
    world.client(cm.PauseRun, run="r", paused=False)
    finish(world)
    assert world.states() == {"a": "success", "b": "success", "c": "success"}
    assert sum(isinstance(change, TaskMarked) for change in world.changes) == 1


def test_marking_what_it_is_already_changes_nothing():
    world = failed_chain()
    assert world.client(cm.MarkTasks, run="r", tasks=("a",), to=cm.Mark.FAILED).changes == []


def test_a_group_that_has_not_started_is_marked_as_a_whole_or_not_at_all():
    world = World()
    world.worker("w", slots=5)
    world.submit(graph(task("a"), task("each", "a", width=3), task("end", "each")))
    (a,) = world.turn()
    refused = world.refusal(world.command(cm.MarkTasks, run="r", tasks=("each[1]",), to=cm.Mark.SUCCESS))
    assert refused.code == "task.not_started"
    world.client(cm.MarkTasks, run="r", tasks=("each",), to=cm.Mark.SUCCESS)
    world.succeed(a)
    finish(world)
    assert world.result() == "success"


def test_nothing_is_marked_in_a_run_that_has_not_started():
    world = World()
    world.submit(graph(task("x"), task("y", "x"), max_active_runs=1), "one")
    world.submit(graph(task("x"), task("y", "x"), max_active_runs=1), "two")
    world.follow_up()
    refused = world.refusal(world.command(cm.MarkTasks, run="two", tasks=("x",), to=cm.Mark.SUCCESS))
    assert refused.code == "task.not_started"


def test_a_mark_of_failure_is_told_to_what_comes_after():
    world = World()
    world.worker("w", slots=5)
    world.submit(graph(task("a"), task("b", "a"), task("tidy", "a", trigger_rule=TriggerRule.ALL_DONE)))
    world.turn()
    world.client(cm.MarkTasks, run="r", tasks=("a",), to=cm.Mark.FAILED)
    assert world.states() == {"a": "failed", "b": "upstream_failed", "tidy": "queued"}


# Retrying now.


def test_a_task_that_cools_down_is_tried_at_once():
    world = World()
    world.worker("w", slots=5)
    world.submit(graph(task("a", retry=RetryPolicy(retries=1, delay_ms=MINUTE_MS, jitter=False)), task("b", "a")))
    (a,) = world.turn()
    world.fail(a)
    assert world.turn() == []
    world.client(cm.RetryTasks, run="r", tasks=("a",))
    (again,) = world.turn()
    assert again.attempt == 2
    world.start(again)
    world.advance(2 * MINUTE_MS)
    assert world.states()["a"] == "running"


def test_what_has_failed_for_good_is_run_again_with_what_failed_because_of_it():
    world = failed_chain()
    world.client(cm.RetryTasks, run="r")
    finish(world)
    assert world.result() == "success"


def test_nothing_to_retry_is_said():
    world = World()
    world.worker("w", slots=5)
    world.submit(CHAIN)
    finish(world)
    assert world.refusal(world.command(cm.RetryTasks, run="r")).code == "task.not_waiting"
    assert "a is success" in world.refusal(world.command(cm.RetryTasks, run="r", tasks=("a",))).reason


# Notes.


def test_a_note_stays_with_its_task_through_everything():
    world = failed_chain()
    world.client(cm.NoteTask, run="r", task="a", note="vendor down")
    world.client(cm.ClearTasks, run="r", tasks=("a",))
    finish(world)
    assert world.task("a").note == "vendor down"
    assert world.client(cm.NoteTask, run="r", task="a", note="vendor down").changes == []
    refused = world.refusal(world.command(cm.NoteTask, run="r", task="a", note="x" * 1001))
    assert (refused.code, refused.hint) == ("field.value", "Use at most 1,000 characters.")


def test_a_note_about_a_run_is_its_label_and_a_repeated_submission_does_not_mind():
    world = World()
    command = world.command(cm.SubmitRun, run="r", graph=graph(task("a")), labels=(("team", "red"),))
    world.do(command)
    world.client(cm.NoteTask, run="r", task="", note="vendor down")
    assert world.run().row.labels == (("team", "red"), ("note", "vendor down"))
    assert world.client(cm.NoteTask, run="r", task="", note="vendor down").changes == []
    assert world.do(command).answer == "r"
    assert world.refusal(world.command(cm.NoteTask, run="r", task="", note="x" * 501)).path == "labels[1]"
    world.client(cm.NoteTask, run="r", task="", note="")
    assert world.run().row.labels == (("team", "red"),)


# Out of history.


def test_a_run_in_history_is_taken_out_of_it_to_be_cleared():
    world = failed_chain()
    archived = world.run()
    row, rows = archived.row, tuple(archived.tasks.values())
    world.advance(100 * MINUTE_MS)
    assert not world.state.runs and not world.state.graphs
    take_batch(world.state, world.now)
    decision = world.do(cm.ReviveRun(tenant=TENANT, row=row, tasks=rows, growths=(), graph=CHAIN))
    assert isinstance(decision.changes[0], GraphPut)
    assert world.state.touched.revives == [(TENANT, "r", row.created_at)]
    assert world.states() == {"a": "failed", "b": "upstream_failed", "c": "upstream_failed"}
    assert world.do(cm.ReviveRun(tenant=TENANT, row=row, tasks=rows, growths=(), graph=CHAIN)).changes == []
    world.client(cm.ClearTasks, run="r", tasks=("a",))
    finish(world)
    assert world.result() == "success"
    assert validate(world.state, world.now) == []


def test_a_run_that_nobody_did_anything_about_goes_back_to_history():
    world = failed_chain()
    row, rows = world.run().row, tuple(world.run().tasks.values())
    world.advance(2 * MINUTE_MS)
    take_batch(world.state, world.now)
    world.do(cm.ReviveRun(tenant=TENANT, row=row, tasks=rows, growths=(), graph=CHAIN))
    world.advance(2 * MINUTE_MS)
    assert not world.state.runs


def test_a_run_out_of_history_stays_as_long_as_one_that_has_just_ended_whoever_looks_and_whoever_leads():
    world = failed_chain()
    row, rows = world.run().row, tuple(world.run().tasks.values())
    world.advance(10 * MINUTE_MS)
    take_batch(world.state, world.now)
    world.do(cm.ReviveRun(tenant=TENANT, row=row, tasks=rows, growths=(), graph=CHAIN))
    world.fire("review", (TENANT, "r"))
    assert world.state.runs
    other = world.restarted()
    other.advance(MINUTE_MS - 1)
    assert other.state.runs
    other.advance(2)
    assert not other.state.runs


def test_the_teardown_of_a_cancelled_run_can_be_run_afterwards():
    world = World()
    world.worker("w", slots=5)
    gone = task("gone", "made", "work", is_teardown=True, trigger_rule=TriggerRule.ALL_DONE_SETUP_SUCCESS)
    world.submit(graph(task("made", is_setup=True), task("work", "made"), gone))
    (made,) = world.turn()
    world.succeed(made)
    world.turn()
    world.client(cm.CancelRun, run="r")
    world.follow_up()
    assert world.states() == {"made": "success", "work": "cancelled", "gone": "cancelled"}
    world.client(cm.ClearTasks, run="r", tasks=("gone",), downstream=False)
    finish(world)
    assert world.states() == {"made": "success", "work": "cancelled", "gone": "success"}
