"""How everything of a tenant stands at once: what runs, what waits for what, and for how long."""

import pytest

from rota.core import commands as cm
from rota.core.overview import GetOverview, Overview
from rota.core.questions import ListRuns, RunsPage, answer
from tests.unit.core.world import TENANT, World, graph, task


def overview(world: World, tenant: str = TENANT) -> Overview:
    found = answer(world.state, GetOverview(tenant=tenant), world.now)
    assert isinstance(found, Overview)
    return found


def test_tasks_that_wait_for_the_same_are_one_line_that_names_the_oldest():
    world = World()
    world.worker("small", slots=1, properties=(("cpu_count", "1"),))
    world.submit(graph(*(task(f"x{n}", requires=(("gpu_count", "8"),)) for n in range(3))), "first")
    world.turn()
    world.advance(5_000)
    world.submit(graph(task("y", requires=(("gpu_count", "8"),))), "second")
    world.turn()
    (line,) = overview(world).waiting
    assert (line.reason.code, line.tasks, line.run, line.task) == ("worker.none_match", 4, "first", "x0")
    (queue,) = overview(world).queues
    assert (queue.queue, queue.tasks, world.now - queue.oldest_at) == ("default", 4, 5_000)


def test_runs_that_are_held_as_a_whole_are_counted_by_what_holds_them():
    world = World()
    world.client(cm.DeployWorkflow, graph=graph(task("x"), name="w"), paused=True)
    for run in ("a", "b"):
        world.client(cm.SubmitRun, run=run, workflow="w")
    capped = graph(task("x"), name="capped", max_active_runs=1)
    for run in ("c", "d", "e"):
        world.submit(capped, run)
    world.follow_up()
    found = {line.reason.code: line.runs for line in overview(world).waiting if line.runs}
    assert found == {"workflow.paused": 2, "run.queued": 2}
    assert overview(world).runs["queued"] >= 2


def test_what_ended_is_counted_and_nobody_sees_what_others_wait_for():
    world = World()
    world.worker("w", slots=4)
    world.submit(graph(task("x"), task("y")), "r")
    first, _ = world.turn()
    assert (overview(world).leases, overview(world).slots) == (2, 4)
    assert overview(world).workers == {"present": 1, "away": 0, "draining": 0, "quarantined": 0}
    world.succeed(first)
    assert overview(world).ended == {"success": 1}
    other = overview(world, "other")
    assert (other.runs, other.waiting, other.queues, other.leases) == ({}, (), (), 0)


def test_very_many_runs_are_counted_as_far_as_is_quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.core.overview.RUNS_COUNTED_MAX", 3)
    world = World()
    for number in range(5):
        world.submit(task("x"), f"r{number}")
    found = overview(world)
    assert (sum(found.runs.values()), found.is_all) == (3, False)


def listed(world: World, **how: object) -> list[str]:
    page = answer(world.state, ListRuns(tenant=TENANT, **how), world.now)
    assert isinstance(page, RunsPage)
    return [view.id for view in page.runs]


def test_runs_are_found_by_words_of_their_ids_names_and_labels():
    world = World()
    world.submit(graph(task("x"), name="nightly"), "Load-17", labels=(("team", "red"),))
    world.submit(graph(task("x"), name="hourly", kind="build"), "other", labels=(("team", "blue"),))
    assert listed(world, find="load") == ["Load-17"]
    assert listed(world, find="NIGHT 17") == ["Load-17"]
    assert listed(world, find="team=b") == ["other"]
    assert listed(world, find="re hourly") == []
    assert listed(world, kind="build") == ["other"]
    assert listed(world, find="  ") == ["other", "Load-17"]
