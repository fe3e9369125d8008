"""A coordinator that is killed again and again under load: each outcome is recorded once, and nothing is lost."""

from collections import Counter
from pathlib import Path

import pytest

import rota
from tests.integration.deadlines import is_running, until
from tests.integration.service import tasks
from tests.integration.service.stage import SHORT_LEASE_S, open_stage, until_present, until_task

pytestmark = pytest.mark.full

KILLS = 5
WIDTH = 200
# Time enough to start a coordinator on a busy machine before workers stop their work.
LEASE_S = 20


@rota.workflow
def load(folder: str, gate: str):
    """Many short tasks, and two that end when the test says so."""
    for _ in range(2):
        tasks.gated(folder, gate)
    for _ in range(WIDTH):
        tasks.step(folder)


def test_a_coordinator_that_is_killed_again_and_again_records_each_outcome_once(tmp_path: Path):
    with open_stage(tmp_path, lease_s=LEASE_S) as stage:
        server = stage.start_server()
        workers = [stage.start_worker(name, slots=4) for name in ("left", "right")]
        client = stage.client()
        until_present(client, *(worker.name for worker in workers))
        names = [f"round-{number}" for number in range(KILLS + 1)]
        for name in names[:-1]:
            client.submit(load, {"folder": str(tmp_path), "gate": name}, run=name)
            until(lambda name=name: under_way(tmp_path, name), f"{name} to be under way")
            server.kill()
            # What runs goes on without a coordinator, and ends without one.
            (tmp_path / name).touch()
            until(lambda name=name: finished(tmp_path, name) == 2, "what was held to end while nobody could hear of it")
            server = stage.start_server()
        (tmp_path / names[-1]).touch()
        client.submit(load, {"folder": str(tmp_path), "gate": names[-1]}, run=names[-1])
        assert (WIDTH + 2) * len(names) >= 1_000
        for name in names:
            assert client.run(name).wait(60).state == "success"
            check(client, tmp_path, name)


def test_what_was_done_while_the_coordinator_stood_still_counts(tmp_path: Path):
    with open_stage(tmp_path, lease_s=SHORT_LEASE_S) as stage:
        server = stage.start_server()
        stage.start_worker("one", slots=2)
        client = stage.client()
        fences: dict[str, int] = {}
        for name in ("ends", "goes-on"):
            client.submit(tasks.held, {"folder": str(tmp_path)}, run=name)
            fences[name] = until_task(client, name, "held", "running").fence
        begun = until(lambda: both(tasks.lines(tmp_path, tasks.BEGAN)), "both to begin")
        server.freeze()
        (tmp_path / f"go.{fences['ends']}").touch()
        until(lambda: tasks.lines(tmp_path, tasks.DONE), "one of them to be done while nobody listens")
        # A worker that is not answered stops what it still runs before its lease is over.
        until(lambda: not is_running(begun["goes-on"].pid), "the other to be stopped by its worker")
        server.thaw()
        assert client.run("ends").result(timeout_s=30) == fences["ends"]
        until(lambda: len(tasks.lines(tmp_path, tasks.BEGAN)) == 3, "the other to begin again")
        (tmp_path / "go").touch()
        assert client.run("goes-on").result(timeout_s=30) > fences["goes-on"]
        assert [line.run for line in tasks.lines(tmp_path, tasks.BEGAN)].count("ends") == 1


def both(begun: list[tasks.Line]) -> dict[str, tasks.Line]:
    return {line.run: line for line in begun} if len(begun) == 2 else {}


def under_way(folder: Path, run: str) -> bool:
    """Whether both tasks that are held have begun, and a part of the others is done."""
    mine = [line for line in tasks.lines(folder) if line.run == run]
    done = sum(line.phase == tasks.DONE for line in mine)
    return len({line.task for line in mine if line.task.startswith("gated")}) == 2 and done >= WIDTH // 10


def finished(folder: Path, run: str) -> int:
    return sum(line.run == run and line.task.startswith("gated") for line in tasks.lines(folder, tasks.DONE))


def check(client: rota.Rota, folder: Path, run: str) -> None:
    """What the tasks did themselves agrees with what was recorded, and nothing was begun again without a reason."""
    events = list(client.run(run).events())
    recorded = Counter(event.task for event in events if event.what == "AttemptEnded")
    interrupted = Counter(
        event.task for event in events if event.what == "LeaseReturned" and "counted=True" in event.text
    )
    views = client.run(run).tasks()
    assert len(views) == WIDTH + 2
    mine = [line for line in tasks.lines(folder) if line.run == run]
    begun = Counter(line.task for line in mine if line.phase == tasks.BEGAN)
    done = Counter((line.task, line.fence) for line in mine if line.phase == tasks.DONE)
    for view in views:
        assert recorded[view.id] == 1, view
        assert done[view.id, view.fence] == 1, "the fence that was accepted is that of an attempt that was done"
        assert begun[view.id] == 1 + interrupted[view.id], "only what was interrupted is begun again"
    assert sum(interrupted.values()) == 0, "a coordinator that comes back in time interrupts nothing"
