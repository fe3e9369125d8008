"""Whatever is killed in the middle of a query: only what was lost runs again, and the answer is right."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from rota.app.sql.cluster import ClusterQuery
from rota.core.questions import TaskView
from tests.integration.deadlines import until
from tests.integration.queries.cluster import Gate, make_table, session_on
from tests.integration.service.stage import SHORT_LEASE_S, Stage, open_stage

pytestmark = pytest.mark.full

SQL = "select part, sum(waits(part, v)) as total, count(*) as n from t group by part order by part"
RIGHT = [{"part": part, "total": 4_950, "n": 100} for part in range(4)]
HELD = 2


def begin(stage: Stage, gate: Gate, folder: Path) -> ClusterQuery:
    """A query of which one task waits at the gate."""
    session = session_on(stage, partitions=4)
    session.register_parquet("t", make_table(folder / "t"))
    session.register_udf(gate.function(HELD), [pa.int64(), pa.int64()], pa.int64(), name="waits")
    handle = session.submit(SQL)
    assert isinstance(handle, ClusterQuery)
    until(gate.is_reached, "a task to wait at the gate")
    return handle


def at_gate(handle: ClusterQuery) -> tuple[str, str]:
    """The task that waits, once it is the only one that runs, and its worker."""

    def alone() -> list[TaskView]:
        running = [task for task in handle.tasks() if task.state == "running"]
        done = [task for task in handle.tasks() if task.state == "success"]
        return running if len(running) == 1 and len(done) == 3 else []

    (task,) = until(alone, "all other tasks of the stage to be done")
    return task.id, task.worker


def granted_again(handle: ClusterQuery) -> set[str]:
    """The tasks that were given to a worker more than once, as the story has it."""
    granted = Counter(each.task for each in handle.run.happened() if each.what == "LeaseGranted")
    return {task for task, times in granted.items() if times > 1}


def granted_to(handle: ClusterQuery, worker: str) -> set[str]:
    """The tasks that a worker was given."""
    happened = handle.run.happened()
    return {each.task or "" for each in happened if each.what == "LeaseGranted" and each.worker == worker}


def test_a_worker_is_killed_and_only_what_it_had_runs_again(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with open_stage(tmp_path, lease_s=SHORT_LEASE_S) as stage:
        stage.start_server()
        workers = {name: stage.start_worker(name, slots=2) for name in ("one", "two")}
        handle = begin(stage, gate, tmp_path)
        task, worker = at_gate(handle)
        had = granted_to(handle, worker)
        assert task in had
        workers[worker].kill()
        until(lambda: gate.is_reached(2), "the task to be tried elsewhere")
        gate.open()
        assert handle.to_arrow(timeout_s=60).to_pylist() == RIGHT
        # What was done on it is lost with it, and what reads that had to look twice; nothing else is done again.
        assert {each for each in granted_again(handle) if each.startswith("stage-1")} == had


def test_a_coordinator_is_killed_and_nothing_runs_again(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with open_stage(tmp_path, lease_s=10) as stage:
        server = stage.start_server()
        for name in ("one", "two"):
            stage.start_worker(name, slots=2)
        handle = begin(stage, gate, tmp_path)
        at_gate(handle)
        server.kill()
        gate.open()
        stage.start_server()
        assert handle.to_arrow(timeout_s=60).to_pylist() == RIGHT
        assert granted_again(handle) == set()
        assert gate.came.read_text() == "came\n"


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared folder", "own folder"])
def test_a_worker_is_restarted_between_two_stages(tmp_path: Path, is_shared: bool) -> None:
    """Executors keep nothing that cannot be made again; in a shared folder nothing even has to be."""
    gate = Gate(tmp_path)
    (tmp_path / "shared").mkdir()
    env = {"ROTA_WORKER_EXCHANGE_FOLDER": str(tmp_path / "shared")} if is_shared else {}
    with open_stage(tmp_path, lease_s=SHORT_LEASE_S) as stage:
        stage.start_server()
        workers = {name: stage.start_worker(name, slots=2, env=env) for name in ("one", "two")}
        handle = begin(stage, gate, tmp_path)
        _, held_by = at_gate(handle)
        (other,) = {"one", "two"} - {held_by}
        had = granted_to(handle, other)
        workers[other].kill()
        stage.start_worker(other, slots=2, env=env)
        gate.open()
        assert handle.to_arrow(timeout_s=60).to_pylist() == RIGHT
        again = {each for each in granted_again(handle) if each.startswith("stage-1")}
        assert again == (set() if is_shared else had)
