"""TPC-H in stages on real workers is equal to one process of DataFusion, and to DuckDB."""

from pathlib import Path

import datafusion as df
import duckdb
import pyarrow as pa
import pytest

from tests.integration.queries.cluster import session_on
from tests.integration.service.stage import open_stage
from tests.queries.tpch import QUERIES, TABLES, register


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    """Values only: engines differ in names, and in how wide a decimal is."""
    columns = [column.to_pylist() for column in table.columns]
    return [tuple(_plain(value) for value in row) for row in zip(*columns, strict=True)]


def _plain(value: object) -> object:
    if isinstance(value, str):
        return value.rstrip()
    try:
        return round(float(value), 2)  # pyright: ignore[reportArgumentType] - what is no number stays as it is
    except (TypeError, ValueError):
        return value


def alone(tpch: Path) -> df.SessionContext:
    context = df.SessionContext(df.SessionConfig().with_target_partitions(2))
    register(context, tpch)
    return context


def duck(tpch: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name in TABLES:
        connection.execute(f"create view {name} as select * from '{tpch / name}/*.parquet'")  # noqa: S608 - names of our own
    return connection


@pytest.mark.parametrize("partitions", [2, 3])
def test_all_queries_are_equal_on_two_workers_that_fetch_from_each_other(
    tpch: Path, tmp_path: Path, partitions: int
) -> None:
    engine, other = alone(tpch), duck(tpch)
    with open_stage(tmp_path) as stage:
        stage.start_server()
        for name in ("one", "two"):
            stage.start_worker(name, slots=1)
        session = session_on(stage, partitions=partitions)
        for name in TABLES:
            session.register_parquet(name, tpch / name)
        stages: set[int] = set()
        for number, query in enumerate(QUERIES, 1):
            handle = session.submit(query)
            answer = rows(handle.to_arrow(timeout_s=60))
            assert handle.unstaged == "", number
            assert answer == rows(engine.sql(query).to_arrow_table()), number
            # Numbers are rounded to cents, and of half a cent each engine has its own opinion.
            assert len(answer) == len(other.execute(query).fetchall()), number
            stages.add(len(handle.progress().stages))
        assert max(stages) >= 5
