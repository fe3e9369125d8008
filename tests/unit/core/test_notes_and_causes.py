"""What is said about a task that a reaper took back, or that no worker fits, and how long it is said."""

import pytest

from rota.core import commands as cm
from rota.core.bounds import INTERRUPTIONS_MAX
from rota.core.changes import LeaseReturned, TaskStarved
from rota.core.images import take_batch
from rota.core.ladder import NO_FIT, NO_FIT_CHARS_MAX
from rota.core.questions import ListTasks, answer
from rota.core.reap import FELL_SILENT, LEASE_RAN_OUT, NEVER_ACKNOWLEDGED
from rota.core.states import NEEDS_ATTENTION, QUEUED, RUNNING, SUCCESS
from rota.core.story import story_lines
from rota.core.why import explain
from tests.unit.core.world import TENANT, World, task

# --- causes of what a reaper ended ------------------------------------------------------------------------------------


def told(world: World) -> str:
    """The story of everything since the last batch, as people read it."""
    return "\n".join(story_lines(take_batch(world.state, world.now).stories, world.now))


def whose_worker_fell_silent() -> World:
    """A task x that ran, and waits again."""
    world = World()
    world.worker()
    world.submit(task("x"))
    (granted,) = world.turn()
    world.start(granted)
    world.silence()
    world.advance(world.state.limits.lease_ms + world.state.limits.dispatch_ms)
    return world


def test_a_worker_that_fell_silent_is_told_on_its_task_and_in_the_story() -> None:
    world = whose_worker_fell_silent()
    row = world.task("x")
    assert (row.state, row.attempt, row.interruptions) == (QUEUED, 0, 1)
    assert row.error == FELL_SILENT
    (view,) = answer(world.state, ListTasks(tenant=TENANT, run="r"), world.now).tasks
    assert view.error == row.error
    assert f"cause={FELL_SILENT}" in told(world)


def test_the_cause_goes_with_the_next_outcome() -> None:
    world = whose_worker_fell_silent()
    world.worker("other")
    (granted,) = world.turn()
    world.start(granted)
    assert world.task("x").error.startswith("agent_lost"), "it is what happened last"
    world.succeed(granted)
    assert (world.task("x").state, world.task("x").error) == (SUCCESS, "")


def test_a_start_that_nobody_acknowledged_is_told() -> None:
    world = World()
    world.worker()
    world.submit(task("x"))
    world.turn()
    world.advance(world.state.limits.dispatch_ms)
    assert world.task("x").error == NEVER_ACKNOWLEDGED
    assert f"cause={NEVER_ACKNOWLEDGED}" in told(world)


def test_a_claim_that_nobody_renewed_is_told() -> None:
    world = World()
    world.queue("agents", pull=True)
    world.worker(pull=True)
    world.submit(task("x", queue="agents"))
    world.follow_up()
    world.client(cm.ClaimTask, worker="w", incarnation="i1", lease_ms=5_000)
    world.silence()
    world.advance(5_000)
    assert world.task("x").error == LEASE_RAN_OUT


def test_what_was_interrupted_too_often_still_begins_with_who_ended_it() -> None:
    world = World()
    for number in range(INTERRUPTIONS_MAX):
        world.worker(f"w{number}")
        if not number:
            world.submit(task("x"))
        (granted,) = world.turn()
        world.start(granted)
        world.silence(f"w{number}")
        world.advance(world.state.limits.lease_ms + world.state.limits.dispatch_ms)
    assert world.task("x").state is NEEDS_ATTENTION
    assert world.task("x").error.startswith(f"{FELL_SILENT}; interrupted 5 times")
    (why,) = explain(world.state, world.run(), 0, world.now)
    assert (why.code, why.text) == ("attention.parked", world.task("x").error)
    assert world.state.decided["agent_lost"] == INTERRUPTIONS_MAX


def test_what_was_handed_back_or_lost_otherwise_is_nobodys_error() -> None:
    world = World()
    world.worker()
    world.submit(task("x"))
    (granted,) = world.turn()
    world.report(granted, cm.Outcome.RELEASED)
    assert world.task("x").error == ""
    (granted,) = world.turn()
    world.interrupt(granted, "not held any more")
    assert world.task("x").error == ""
    assert not any(world.state.decided.values())


def test_every_return_of_a_reaper_begins_with_its_word() -> None:
    world = World()
    world.worker(slots=3)
    for name in ("a", "b"):
        world.submit(task(name), run=name)
    first, _second = world.turn()
    world.start(first)
    world.silence()
    world.advance(world.state.limits.lease_ms + world.state.limits.dispatch_ms)
    causes = [change.cause.partition(":")[0] for change in world.changes if isinstance(change, LeaseReturned)]
    assert causes == ["dispatch_lost", "agent_lost"]


# --- notes ------------------------------------------------------------------------------------------------------------


def starving(cycles: int = 1, **fields: object) -> World:
    """A task that has climbed so far, because the only worker does other work."""
    world = World()
    world.worker(kinds=("other",))
    world.submit(task("x", **fields))
    world.turn()
    world.advance(world.state.limits.starve_ms)
    for _ in range(cycles - world.task("x").cycles):
        world.sweep()
    assert world.task("x").cycles == cycles
    return world


def test_a_task_that_no_worker_fits_says_so_in_its_note() -> None:
    world = starving()
    row = world.task("x")
    reasons = explain(world.state, world.run(), 0, world.now)
    assert row.note == f"{NO_FIT}{reasons[0].text}"
    assert (reasons[0].code, dict(reasons[0].about)["worker"]) == ("worker.none_match", "w")
    assert f"note={row.note}" in told(world)
    assert world.restarted().task("x").note == row.note


def test_a_note_follows_what_is_the_matter() -> None:
    world = starving()
    assert world.task("x").note.endswith("runs other")
    world.do(cm.ForgetWorker(tenant=TENANT, command_id="f", worker="w"))
    world.sweep()
    (reason,) = explain(world.state, world.run(), 0, world.now)
    assert (reason.code, world.task("x").note) == ("worker.none_registered", f"{NO_FIT}{reason.text}")


def test_without_any_worker_it_says_that() -> None:
    world = World()
    world.submit(task("x"))
    world.turn()
    world.advance(world.state.limits.starve_ms)
    world.sweep()
    (reason,) = explain(world.state, world.run(), 0, world.now)
    assert (reason.code, world.task("x").note) == ("worker.none_registered", f"{NO_FIT}{reason.text}")


def test_the_note_goes_when_the_task_is_granted() -> None:
    world = starving()
    world.worker("fits")
    (granted,) = world.turn()
    assert world.task("x").note == ""
    world.start(granted)
    assert (world.task("x").state, world.restarted().task("x").note) == (RUNNING, "")


def test_the_note_of_a_parked_task_stays_until_it_is_granted() -> None:
    world = starving(10)
    assert world.task("x").state is NEEDS_ATTENTION
    assert world.task("x").note.startswith(NO_FIT)
    world.client(cm.ResolveTask, run="r", task="x", exit=cm.Exit.REQUEUE)
    world.worker("fits")
    world.turn()
    assert world.task("x").note == ""


def test_clearing_takes_our_note_away_and_leaves_a_persons() -> None:
    for said in ("", "ask Ada"):
        world = starving(10)
        if said:
            world.client(cm.NoteTask, run="r", task="x", note=said)
        world.client(cm.CancelRun, run="r")
        world.follow_up()
        world.client(cm.ClearTasks, run="r", tasks=("x",))
        assert world.task("x").note == said


def test_what_a_person_wrote_is_neither_replaced_nor_taken_away() -> None:
    world = World()
    world.worker(kinds=("other",))
    world.submit(task("x"))
    world.turn()
    world.client(cm.NoteTask, run="r", task="x", note="ask Ada")
    world.advance(world.state.limits.starve_ms)
    for _ in range(4):
        world.sweep()
    assert world.task("x").cycles >= 4
    assert world.task("x").note == "ask Ada"
    world.worker("fits")
    world.turn()
    assert world.task("x").note == "ask Ada"


def test_the_reason_is_worked_out_once_a_rung_and_not_once_a_cycle() -> None:
    world = starving(9)
    starved = [change for change in world.changes if isinstance(change, TaskStarved)]
    assert [change.cycles for change in starved if change.note] == [1, 2, 4, 6]


@pytest.mark.parametrize("length", [10, 250])
def test_a_note_is_short_however_long_names_are(length: int) -> None:
    world = World()
    world.worker("w" * length, kinds=("k" * length,))
    world.submit(task("x", kind="n" * length))
    world.turn()
    world.advance(world.state.limits.starve_ms)
    world.sweep()
    assert len(NO_FIT) < len(world.task("x").note) <= NO_FIT_CHARS_MAX
