"""Queries on a whole worker: what it says of itself, and a run whose answer is a table."""

from pathlib import Path

import pytest

import rota
from rota.app import working
from rota.kinds.query.graphs import graph_of
from rota.wire.queries import QUERY
from rota.worker.runners.queries.runner import query_properties
from tests.integration.worker.query_stage import planned

SQL = "select value % 7 as g, count(*) as n from generate_series(1, 70) group by 1 order by 1"


@pytest.mark.parametrize("threads", [False, True])
def test_a_run_of_a_query_gives_a_table_and_leaves_nothing_behind(tmp_path: Path, threads: bool) -> None:
    stages = planned(SQL, 2)
    with rota.Rota.embedded(tmp_path, slots=2, threads=threads) as here:
        (worker,) = here.workers()
        assert QUERY in worker.capacity.kinds
        assert set(query_properties().items()) <= set(worker.capacity.properties)
        answer = here.submit(graph_of(stages)).result(stages[-1].id)
        assert answer.to_pylist() == [{"g": group, "n": 10} for group in range(7)]
    assert list(tmp_path.rglob("*.arrow")) == []


def test_a_worker_without_the_engine_says_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "why_no_queries", lambda: "not installed")
    with rota.Rota.embedded(tmp_path) as here:
        (worker,) = here.workers()
        assert QUERY not in worker.capacity.kinds
        assert "datafusion" not in dict(worker.capacity.properties)


def test_an_answer_without_columns_knows_its_rows(tmp_path: Path) -> None:
    stages = planned("select from generate_series(1, 5)", 1)
    with rota.Rota.embedded(tmp_path, slots=1) as here:
        answer = here.submit(graph_of(stages)).result(stages[-1].id)
        assert (answer.num_columns, answer.num_rows) == (0, 5)
