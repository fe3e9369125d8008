"""Statements as tasks of workflows: their tables come from other tasks, and theirs go to others."""

import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rota
from rota.wire.queries import ENGINE_MEMORY
from rota.worker.properties import memory_kb
from tests.integration.queries import sql_workflow


def test_a_statement_takes_what_tasks_gave_and_gives_a_table(tmp_path: Path) -> None:
    pq.write_table(pa.table({"city": ["Oslo", "Rome"], "land": ["Norway", "Italy"]}), tmp_path / "cities.parquet")
    with rota.Rota.embedded(tmp_path / "data", slots=2) as here:
        run = here.submit(sql_workflow.report, {"cities": str(tmp_path / "cities.parquet"), "least": 10})
        assert run.wait(60).state == "success", [task.error for task in run.tasks()]
        assert run.result("totals").to_pylist() == [{"land": "Italy", "km": 30}, {"land": "Norway", "km": 12}]
        assert run.result("lines") == ["Italy: 30", "Norway: 12"]


def test_a_task_is_told_how_much_memory_its_engine_may_use(tmp_path: Path) -> None:
    @rota.task
    def told() -> int:
        return int(os.environ[ENGINE_MEMORY])

    @rota.workflow
    def one() -> None:
        told()

    with rota.Rota.embedded(tmp_path, slots=2) as here:
        run = here.submit(one)
        assert run.wait(60).state == "success"
        assert 0 < run.result("told") <= (memory_kb() << 10) // 2


def test_outside_of_a_workflow_it_is_a_function() -> None:
    trips = pa.table({"city": ["Oslo"], "km": [5]})
    cities = pa.table({"city": ["Oslo"], "land": ["Norway"]})
    assert sql_workflow.totals(trips, cities, 1).to_pylist() == [{"land": "Norway", "km": 5}]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("select * from nowhere", r"query\.table: .*\bnowhere\b"),
        ("selec 1", r"query\.syntax: .*\bselec\b"),
        ("select $missing", r"query\.parameter"),
    ],
)
def test_a_statement_that_is_wrong_fails_for_good(tmp_path: Path, statement: str, told: str) -> None:
    @rota.task.sql(statement, retries=3)
    def wrong() -> None: ...

    @rota.workflow
    def one() -> None:
        wrong()

    with rota.Rota.embedded(tmp_path) as here:
        run = here.submit(one)
        run.wait(60)
        (task,) = run.tasks()
        assert (task.state, task.attempt) == ("failed", 1)
        assert re.search(told, task.error)
