"""Statements in workflows that run as stages of the same run."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rota
import rota.testing
from rota.client.blocking import BlockingRun
from tests.integration.deadlines import until
from tests.integration.queries import sql_workflow
from tests.integration.service.stage import SHORT_LEASE_S, open_stage

pytestmark = pytest.mark.full

ROWS = 60_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of four files with a few megabytes."""
    made = tmp_path_factory.mktemp("table")
    for part in range(4):
        names = [f"{part}-{number:040d}" for number in range(ROWS)]
        table = pa.table({"part": [part] * ROWS, "v": list(range(ROWS)), "name": names})
        pq.write_table(table, made / f"{part}.parquet", compression="none")
    return str(made)


def ids(run: BlockingRun) -> list[str]:
    return [task.id for task in run.tasks()]


def stages(run: BlockingRun, name: str) -> list[str]:
    return [each for each in ids(run) if each.startswith(f"{name}.stage-")]


def told(run: BlockingRun) -> str:
    return "\n".join(f"{task.id} {task.state} {task.error}" for task in run.tasks())


def given_to(run: BlockingRun) -> str:
    """Who was given the first task of a stage; nobody yet if it is empty."""
    granted = (each for each in run.happened() if each.what == "LeaseGranted")
    return next((each.worker for each in granted if (each.task or "").startswith("staged.stage-")), "")


@pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads"])
def test_a_statement_runs_as_stages_of_its_run_and_gives_what_it_gives_in_one_task(
    tmp_path: Path, folder: str, threads: bool
) -> None:
    with rota.Rota.embedded(tmp_path, slots=2, threads=threads) as here:
        run = here.submit(sql_workflow.compared, {"folder": folder, "least": 10})
        assert run.wait(120).state == "success", told(run)
        assert run.result("same") == 4
        assert stages(run, "staged") == [
            "staged.stage-1[0]",
            "staged.stage-1[1]",
            "staged.stage-2[0]",
            "staged.stage-2[1]",
        ]
        assert stages(run, "alone") == []
        (task,) = run.tasks("staged")
        assert (task.state, task.attempt) == ("success", 1)
        assert run.result("staged").num_rows == 4
        grew = [each.text for each in run.happened() if each.what == "RunGrew"]
        assert [re.findall(r"[\w.-]*stage[\w.-]*(?: × \d+)?", each) for each in grew] == [
            ["staged", "staged.stage-1 × 2", "staged.stage-2 × 2"]
        ]


def test_pieces_that_are_too_large_to_travel_are_put_together(tmp_path: Path, folder: str) -> None:
    with rota.Rota.embedded(tmp_path, slots=2) as here:
        run = here.submit(sql_workflow.copied, {"folder": folder, "least": 1_000})
        assert run.wait(120).state == "success", told(run)
        assert stages(run, "large")
        assert run.result("count") == 4 * (ROWS - 1_000)


def test_what_is_cleared_is_planned_anew_and_sees_new_files(tmp_path: Path) -> None:
    files = tmp_path / "t"
    files.mkdir()
    for part in range(2):
        pq.write_table(pa.table({"part": [part], "v": [1], "name": ["x"]}), files / f"{part}.parquet")
    with rota.Rota.embedded(tmp_path / "data", slots=2) as here:
        run = here.submit(sql_workflow.copied, {"folder": str(files), "least": 0})
        assert run.wait(120).state == "success", told(run)
        assert run.result("count") == 2
        assert stages(run, "large")
        pq.write_table(pa.table({"part": [2], "v": [1], "name": ["x"]}), files / "2.parquet")
        run.clear("large")
        assert run.wait(120).state == "success", told(run)
        assert run.result("count") == 3


def test_mapped_tasks_and_those_with_other_rules_are_one_task_each(tmp_path: Path, folder: str) -> None:
    with rota.Rota.embedded(tmp_path, slots=2) as here:
        run = here.submit(sql_workflow.in_place, {"folder": folder})
        assert run.wait(120).state == "success", told(run)
        assert sorted(ids(run)) == ["after_all", "each[0]", "each[1]", "where"]
        assert [table.num_rows for table in run.result("each")] == [4, 4]


def test_a_table_in_memory_that_cannot_travel_stays_where_it_is(tmp_path: Path) -> None:
    @rota.task
    def made() -> pa.Table:
        return pa.table({"part": [1, 2] * 100_000, "v": list(range(200_000)), "name": ["x"] * 200_000})

    @rota.workflow
    def flow() -> None:
        sql_workflow.staged(made(), 0)

    with rota.Rota.embedded(tmp_path, slots=2) as here:
        run = here.submit(flow)
        assert run.wait(120).state == "success", told(run)
        assert ids(run) == ["made", "staged"]
        assert run.result("staged").num_rows == 2


def test_a_statement_that_fails_in_a_stage_fails_its_task(tmp_path: Path) -> None:
    files = tmp_path / "t"
    files.mkdir()
    for part in range(2):
        pq.write_table(pa.table({"text": ["x"]}), files / f"{part}.parquet")

    @rota.task.sql("select sum(cast(text as int)) as n from t", partitions=2)
    def wrong(t: str) -> None: ...

    @rota.workflow
    def flow() -> None:
        wrong(str(files))

    with rota.Rota.embedded(tmp_path / "data", slots=2) as here:
        run = here.submit(flow)
        assert run.wait(120).state == "failed"
        states = {task.id: task.state for task in run.tasks()}
        assert states["wrong"] == "upstream_failed"
        assert "failed" in [states[each] for each in stages(run, "wrong")]


def test_in_a_trial_it_is_one_task(folder: str) -> None:
    trial = rota.testing.run_workflow(sql_workflow.copied, {"folder": folder, "least": ROWS - 1})
    assert trial.results["count"] == 4
    assert sorted(trial.tasks) == ["count", "large"]


def test_a_worker_is_killed_in_the_middle_of_a_statement(tmp_path: Path, folder: str) -> None:
    with open_stage(tmp_path, lease_s=SHORT_LEASE_S) as stage:
        stage.start_server()
        workers = {name: stage.start_worker(name, slots=2) for name in ("one", "two")}
        run = stage.client().submit(sql_workflow.compared, {"folder": folder, "least": 0})
        worker = until(lambda: given_to(run), "a stage to be given to a worker")
        workers[worker].kill()
        assert run.wait(120).state == "success", told(run)
        assert run.result("same") == 4


def test_a_coordinator_is_killed_between_planning_and_putting_together(tmp_path: Path, folder: str) -> None:
    with open_stage(tmp_path, lease_s=10) as stage:
        server = stage.start_server()
        stage.start_worker("one", slots=2)
        run = stage.client().submit(sql_workflow.compared, {"folder": folder, "least": 0})
        until(lambda: stages(run, "staged"), "the run to have grown")
        server.kill()
        stage.start_server()
        until(lambda: run.status().state == "success", "the run to end")
        assert run.result("same") == 4
