"""Runs that may not start yet: after others, with a person's word, inside a paused one, in a paused scope."""

import pytest

from rota.core import commands as cm
from rota.core.bounds import AFTER_MAX
from rota.core.invariants import validate
from rota.core.model import Approval
from rota.core.relations import PARENTS_MAX
from rota.core.states import QUEUED, RUNNING, RunState
from tests.unit.core.test_loading import Disk, assert_survives
from tests.unit.core.world import TENANT, World, graph, task


def state_of(world: World, run: str) -> RunState:
    return world.state.runs[(TENANT, run)].row.state


def after(world: World, run: str, *others: str) -> None:
    world.submit(task("x"), run, after=others)
    world.follow_up()


def settle(world: World) -> None:
    """What follows at once, timers that are due among it."""
    world.advance(0)
    world.follow_up()


def submission(world: World, run: str, **fields: object) -> cm.ClientCommand:
    return world.command(cm.SubmitRun, run=run, graph=graph(task("x")), **fields)


# After others.


def test_a_run_starts_when_all_that_it_waits_for_have_succeeded():
    world = World()
    world.worker(slots=9)
    world.submit(task("x"), "a")
    world.submit(task("x"), "b")
    after(world, "c", "a", "b")
    granted = {one.run: one for one in world.turn()}
    assert state_of(world, "c") is RunState.QUEUED
    world.succeed(granted["a"])
    settle(world)
    assert state_of(world, "c") is RunState.QUEUED
    assert world.state.runs[(TENANT, "c")].row.after == ("b",)
    world.succeed(granted["b"])
    settle(world)
    assert state_of(world, "c") is RunState.RUNNING
    assert world.state.runs[(TENANT, "c")].tasks[0].eligible_at == world.now


def test_a_run_that_has_succeeded_is_not_waited_for():
    world = World()
    world.worker()
    world.submit(task("x"), "a")
    world.succeed(*world.turn())
    after(world, "b", "a")
    assert state_of(world, "b") is RunState.RUNNING


def test_one_that_fails_is_waited_for_until_somebody_tries_it_again():
    world = World()
    world.worker()
    world.submit(task("x"), "a")
    granted = world.turn()
    after(world, "b", "a")
    world.fail(*granted)
    world.advance(3_600_000)
    assert state_of(world, "b") is RunState.QUEUED
    assert (TENANT, "a") in world.state.runs, "it is kept for the one that waits for it"
    world.client(cm.RetryTasks, run="a")
    world.succeed(*world.turn())
    settle(world)
    assert state_of(world, "b") is RunState.RUNNING
    world.advance(3_600_000)
    assert (TENANT, "a") not in world.state.runs


def test_one_that_was_kept_goes_when_who_waits_for_it_is_cancelled():
    world = World()
    world.worker()
    world.submit(task("x"), "a")
    granted = world.turn()
    after(world, "b", "a")
    world.fail(*granted)
    world.client(cm.CancelRun, run="b")
    world.advance(3_600_000)
    assert world.state.runs == {}


@pytest.mark.parametrize(("others", "code"), [(("nobody",), "run.unknown"), (("a",) * (AFTER_MAX + 1), "field.value")])
def test_what_cannot_be_waited_for_is_refused(others: tuple[str, ...], code: str):
    world = World()
    world.submit(task("x"), "a")
    refused = world.refusal(submission(world, "b", after=others))
    assert refused.code == code
    assert (TENANT, "b") not in world.state.runs


def test_waiting_survives_a_restart_also_if_it_was_over_and_nobody_had_looked():
    world, disk = World(), Disk()
    world.worker()
    world.submit(task("x"), "a")
    granted = world.turn()
    after(world, "b", "a")
    assert_survives(world, disk)
    world.succeed(*granted)
    disk.commit(world)
    again = world.restarted()
    settle(again)
    assert state_of(again, "b") is RunState.RUNNING
    assert validate(again.state, again.now) == []


# With a person's word.


def test_a_run_that_needs_approval_starts_with_it():
    world = World()
    world.worker()
    world.submit(task("x"), "a", needs_approval=True)
    assert world.turn() == []
    world.client(cm.ApproveRun, run="a")
    assert len(world.turn()) == 1
    assert world.state.runs[(TENANT, "a")].row.approval is Approval.APPROVED
    assert world.client(cm.ApproveRun, run="a").changes == []


def test_a_run_that_is_rejected_has_ended_and_says_by_whom():
    world = World()
    world.submit(task("x"), "a", needs_approval=True)
    world.client(cm.ApproveRun, run="a", approved=False, reason="too dear", actor="ann")
    row = world.state.runs[(TENANT, "a")].row
    assert (row.state, " ann: too dear" in row.reason) == (RunState.CANCELLED, True)
    assert world.refusal(world.command(cm.ApproveRun, run="a")).code == "run.approval"


def test_what_needs_no_approval_is_not_approved_of():
    world = World()
    world.submit(task("x"), "a")
    assert world.refusal(world.command(cm.ApproveRun, run="a")).code == "run.approval"


# By a deadline.


def test_a_run_that_has_not_ended_by_its_deadline_has_failed_started_or_not():
    world = World()
    world.worker()
    world.submit(task("x"), "a", deadline_at=world.now + 5_000)
    world.submit(task("x"), "b", deadline_at=world.now + 5_000, needs_approval=True)
    world.turn()
    world.advance(4_999)
    assert (state_of(world, "a"), state_of(world, "b")) == (RunState.RUNNING, RunState.QUEUED)
    world.advance(1)
    world.turn()
    assert (state_of(world, "a"), state_of(world, "b")) == (RunState.FAILED, RunState.FAILED)
    assert world.refusal(submission(world, "c", deadline_at=world.now)).code == "field.value"


def test_a_run_that_is_run_again_after_its_deadline_has_none_and_its_time_limit_begins_anew():
    world = World()
    world.worker()
    world.submit(graph(task("x"), run_timeout_ms=10_000), "a", deadline_at=world.now + 5_000)
    world.turn()
    world.advance(5_000)
    world.follow_up()
    assert state_of(world, "a") is RunState.FAILED
    world.client(cm.RetryTasks, run="a")
    world.turn()
    assert world.state.runs[(TENANT, "a")].row.deadline_at == world.now + 10_000
    world.advance(9_999)
    assert state_of(world, "a") is RunState.RUNNING


def test_a_run_whose_whole_comes_later_or_goes_is_held_by_who_is_there():
    world = World()
    world.worker(slots=9)
    world.submit(task("x", requires=(("not", "here"),)), "whole")
    world.client(cm.PauseRun, run="whole")
    world.submit(task("x", requires=(("not", "here"),)), "inner", parent="middle")
    world.submit(task("x", requires=(("not", "here"),)), "middle", parent="whole")
    assert world.turn() == []
    assert validate(world.state, world.now) == []
    world.client(cm.CancelRun, run="middle")
    world.follow_up()
    world.advance(3_600_000)
    assert (TENANT, "middle") not in world.state.runs
    assert validate(world.state, world.now) == []
    assert [one.run for one in world.turn()] == ["inner"]


# Inside a paused one.


def test_pausing_a_run_pauses_everything_inside_it_and_writes_nothing_there():
    world = World()
    world.worker(slots=9)
    world.submit(task("x", requires=(("not", "here"),)), "whole")
    world.submit(task("x", requires=(("not", "here"),)), "part", parent="whole")
    world.follow_up()
    world.client(cm.PauseRun, run="whole")
    world.submit(task("x"), "inner", parent="part")
    assert world.turn() == []
    assert not world.state.runs[(TENANT, "inner")].row.paused
    world.client(cm.PauseRun, run="whole", paused=False)
    assert {one.run for one in world.turn()} == {"whole", "part", "inner"}


def test_the_end_of_a_paused_run_lets_go_of_what_is_inside_it():
    world = World()
    world.worker()
    world.submit(task("x"), "whole")
    world.client(cm.PauseRun, run="whole")
    world.submit(task("x"), "part", parent="whole")
    assert world.turn() == []
    world.client(cm.CancelRun, run="whole")
    assert [one.run for one in world.turn()] == ["part"]


def test_runs_are_inside_each_other_only_so_deep():
    world = World()
    world.submit(task("x"), "r0")
    for depth in range(1, PARENTS_MAX):
        world.submit(task("x"), f"r{depth}", parent=f"r{depth - 1}")
    refused = world.refusal(submission(world, "deeper", parent=f"r{PARENTS_MAX - 1}"))
    assert refused.code == "field.size"


def test_no_run_is_part_of_itself_however_it_comes_about():
    world = World()
    assert world.refusal(submission(world, "r", parent="r")).code == "field.value"
    world.submit(task("x"), "a", parent="b")
    assert world.refusal(submission(world, "b", parent="a")).code == "field.value"
    world.submit(task("x"), "c", parent="a")
    assert world.refusal(submission(world, "b", parent="c")).code == "field.value"


def test_runs_that_come_from_the_inside_out_are_only_so_deep_too():
    world = World()
    for depth in range(PARENTS_MAX - 1):
        world.submit(task("x"), f"r{depth}", parent=f"r{depth + 1}")
    last = PARENTS_MAX - 1
    assert world.refusal(submission(world, f"r{last}", parent=f"r{last + 1}")).code == "field.size"
    world.submit(task("x"), f"r{last}")
    assert validate(world.state, world.now) == []


def test_what_ended_before_it_started_is_not_run_again_and_that_is_said():
    world = World()
    world.submit(task("x"), "a", needs_approval=True)
    world.client(cm.ApproveRun, run="a", approved=False)
    for kind in (cm.ClearTasks, cm.RetryTasks):
        assert world.refusal(world.command(kind, run="a")).code == "task.not_started"


# In a paused scope.


@pytest.mark.parametrize("scope", ["", "workspace=docs"])
def test_nobody_is_given_what_is_paused_and_the_rest_goes_on(scope: str):
    world = World()
    world.worker(slots=9)
    world.worker("s", pull=True)
    world.client(cm.PauseScheduler, scope=scope)
    world.submit(task("x", requires=(("workspace", "docs"),)), "pushed")
    world.submit(task("x", queue="agents", requires=(("workspace", "docs"),)), "pulled")
    world.submit(task("x", requires=(("workspace", "other"),)), "other")
    assert [one.run for one in world.turn()] == (["other"] if scope else [])
    assert world.client(cm.ClaimTask, worker="s", incarnation="i1").answer == ""
    world.client(cm.PauseScheduler, scope=scope, paused=False)
    assert [one.run for one in world.turn()] == (["pushed"] if scope else ["pushed", "other"])
    assert world.state.runs[(TENANT, "pulled")].tasks[0].state is QUEUED


def test_a_pause_survives_a_restart_and_what_runs_goes_on():
    world, disk = World(), Disk()
    world.worker()
    world.submit(task("x"), "a")
    granted = world.turn()
    world.client(cm.PauseScheduler, reason="the night")
    world.submit(task("x"), "b")
    disk.commit(world)
    again = world.restarted()
    again.hear("w")
    assert again.turn() == []
    assert again.state.runs[(TENANT, "a")].tasks[0].state.value in ("assigned", RUNNING)
    assert world.succeed(*granted) == "accepted"


def test_time_under_a_pause_is_no_waiting():
    world = World()
    world.worker()
    world.client(cm.PauseScheduler)
    world.submit(task("x", requires=(("cpu_count", "99"),)), "a")
    world.follow_up()
    world.advance(3_600_000)
    world.sweep()
    assert world.state.runs[(TENANT, "a")].tasks[0].cycles == 0
    world.client(cm.PauseScheduler, paused=False)
    world.advance(60_000)
    world.sweep()
    assert world.state.runs[(TENANT, "a")].tasks[0].cycles == 0
    world.advance(60_000)
    world.sweep()
    assert world.state.runs[(TENANT, "a")].tasks[0].cycles > 0


@pytest.mark.parametrize("scope", ["docs", "=docs", "workspace=", "a\0=b"])
def test_what_is_no_scope_is_refused(scope: str):
    world = World()
    assert world.refusal(world.command(cm.PauseScheduler, scope=scope)).code == "field.value"


def test_pausing_twice_changes_nothing():
    world = World()
    world.client(cm.PauseScheduler)
    assert world.client(cm.PauseScheduler).changes == []
    assert world.client(cm.PauseScheduler, scope="workspace=a", paused=False).changes == []


def test_scopes_that_were_resumed_leave_room_for_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.core.decide.definitions.PAUSES_PER_TENANT_MAX", 1)
    world = World()
    world.client(cm.PauseScheduler, scope="workspace=a")
    assert world.refusal(world.command(cm.PauseScheduler, scope="workspace=b")).code == "field.size"
    world.client(cm.PauseScheduler, scope="workspace=a", paused=False)
    world.client(cm.PauseScheduler, scope="workspace=b")
    assert world.state.pauses[(TENANT, "workspace=b")].paused
