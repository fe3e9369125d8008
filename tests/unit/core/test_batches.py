"""What a commit writes: the open batch, taken whole."""

import pytest

from rota.core import commands as cm
from rota.core.errors import Unavailable
from rota.core.images import is_clean, take_batch
from rota.core.records import Run
from tests.unit.core.world import World, graph, task


def ended() -> World:
    """A world whose only run has ended and is due to be archived."""
    world = World()
    world.worker()
    world.submit(graph(task("x")))
    (granted,) = world.turn()
    world.succeed(granted)
    return world


def archive(world: World) -> None:
    """A minute later."""
    world.now += world.state.limits.retain_ended_ms
    world.do(cm.Tick(tenant="t", kind="archive", key=("t", "r")))


def test_an_id_is_free_again_only_when_its_run_has_reached_history():
    world = ended()
    archive(world)
    with pytest.raises(Unavailable) as caught:
        world.submit(graph(task("x")), command_id="again")
    assert caught.value.code == "run.busy"
    take_batch(world.state, world.now)
    world.submit(graph(task("x")), command_id="again")
    assert ("t", "r") in world.state.runs


def test_the_last_changes_of_a_run_are_in_the_batch_that_archives_it():
    world = ended()
    archive(world)
    batch = take_batch(world.state, world.now)
    assert batch.archives == [("t", "r")]
    (row,) = [record for record in batch.puts if isinstance(record, Run)]
    assert row.state == "success"
    assert row.solo is not None and row.solo.state == "success"


def test_a_batch_is_taken_once():
    world = ended()
    assert not is_clean(world.state)
    take_batch(world.state, world.now)
    assert is_clean(world.state)


def test_what_happens_later_does_not_reach_into_a_batch_that_was_taken():
    world = World()
    world.worker()
    world.submit(graph(task("x"), task("y")))
    world.follow_up()
    batch = take_batch(world.state, world.now)
    before = [str(record) for record in batch.puts]
    world.turn()
    assert [str(record) for record in batch.puts] == before


@pytest.mark.parametrize("error", ["a\0b", "half \ud800 a character", "x" * 100_000])
def test_an_error_text_is_kept_in_a_form_that_every_store_can_hold(error: str):
    world = World()
    world.worker()
    world.submit(graph(task("x")))
    (granted,) = world.turn()
    world.report(granted, cm.Outcome.FAILED, error=error)
    kept = world.task("x").error
    assert kept and "\0" not in kept and len(kept) <= 4_096
    kept.encode()
