"""Stories: what was committed about a run can be read back and told."""

import msgspec
import pytest

from rota.core import changes as ch
from rota.core import commands as cm
from rota.core.images import take_batch
from rota.core.model import TaskSpec
from rota.core.records import Growth, Slice, Story
from rota.core.states import TaskState
from rota.core.story import RunChange, describe, is_about, read_story, story, story_lines
from tests.unit.core.world import World, graph, task


def told(world: World) -> list[Story]:
    """The stories of the open batch."""
    return take_batch(world.state, world.now).stories


def finished() -> World:
    """A world in which one task of two has run."""
    world = World()
    world.worker()
    world.submit(graph(task("a"), task("b", "a")))
    (granted,) = world.turn()
    world.start(granted)
    world.succeed(granted)
    world.turn()
    return world


def test_a_story_tells_every_change_of_its_run_in_order():
    world = finished()
    of_run = [change for change in world.changes if isinstance(change, ch.OfRun | ch.RunSubmitted)]
    assert [change for _, change in story(told(world))] == of_run


def test_a_story_can_be_told_of_one_task():
    world = finished()
    changes = [type(change).__name__ for _, change in story(told(world), task=1)]
    assert changes == ["TasksScheduled", "LeaseGranted"]


def test_a_line_names_its_task_and_its_fence_for_people():
    world = finished()
    names = world.state.runs[("t", "r")].graph.task_id
    lines = list(story_lines(told(world), world.now, names))
    assert any("LeaseGranted" in line and "a" in line and "fence=1.1" in line for line in lines)


def test_instants_and_growths_are_told_in_words_and_where_a_cascade_stands_is_not_told():
    ended = ch.AttemptEnded("t", "r", 0, 1, TaskState.UP_FOR_RETRY, 5, None, None, "", 1_794_960_000_000)
    assert describe(ended).endswith("due_at=2026-11-18T00:00:00Z")
    assert describe(ch.RunGrew("t", "r", Growth("t", "r", 0, expands="each", width=3), 5)).endswith("each: width 3")
    stages = (TaskSpec(id="b.one", width=2), TaskSpec(id="b.two", upstream=("b.one",)))
    grew = ch.RunGrew("t", "r", Growth("t", "r", 0, stages, feeds="b"), 5)
    assert describe(grew).endswith("b: goes on as b.one × 2, b.two")  # wording
    let_go = ch.RunGrew("t", "r", Growth("t", "r", 1, feeds="b"), 5)
    assert describe(let_go).endswith("b: what it went on as is let go")  # wording
    pending = ch.PendingSet("t", "r", (Slice(TaskState.NONE, 0, 5),))
    part = Story("t", "r", 0, 0, 1, msgspec.msgpack.encode([pending, ch.RunStarted("t", "r", 1)]))
    assert [line.split()[-1] for line in story_lines([part], 0)] == ["RunStarted"]


def test_parts_of_a_story_are_numbered_without_gaps():
    world = World()
    world.submit(graph(task("a")))
    numbers = [part.number for part in told(world)]
    world.client(cm.CancelRun, run="r")
    numbers += [part.number for part in told(world)]
    assert numbers == [0, 1]


@pytest.mark.parametrize("kind", list(RunChange.__args__))
def test_every_change_of_a_run_can_be_read_back(kind: type[ch.Change]):
    fields = {field.name for field in msgspec.structs.fields(kind)}
    assert fields & {"run", "row"}, f"{kind.__name__} does not say which run it is about"


def test_no_change_of_a_run_is_missing_from_stories():
    known = {kind.__name__ for kind in RunChange.__args__}
    defined = {name for name, kind in vars(ch).items() if isinstance(kind, type) and issubclass(kind, ch.OfRun)}
    assert defined - {"OfRun"} <= known


def test_a_change_of_the_whole_run_is_about_no_task():
    assert not is_about(ch.RunStarted("t", "r", 1), 0)
    assert describe(ch.RunStarted("t", "r", 1)) == "RunStarted"


def test_a_story_of_one_commit_is_one_part():
    world = finished()
    assert len(told(world)) == 1
    assert read_story(Story("t", "r", 0, 0, 1, msgspec.msgpack.encode([]))) == []
