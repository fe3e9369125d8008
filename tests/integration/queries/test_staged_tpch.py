"""TPC-H in stages on real workers is equal to one process of DataFusion, and to DuckDB."""

import math
from decimal import Decimal
from pathlib import Path

import datafusion as df
import duckdb
import pyarrow as pa
import pytest

from tests.integration.queries.cluster import session_on
from tests.integration.service.stage import open_stage
from tests.queries.staged import BROADCAST
from tests.queries.tpch import QUERIES, TABLES, register


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    """Values only: engines differ in names, and in how wide a decimal is."""
    columns = [column.to_pylist() for column in table.columns]
    return [tuple(map(_plain, row)) for row in zip(*columns, strict=True)]


def _plain(value: object) -> object:
    if isinstance(value, str):
        return value.rstrip()
    return float(value) if isinstance(value, Decimal) else value


def is_near(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Whether two rows are equal, of numbers to the last cent: averages of decimals are rounded in different places."""
    return len(one) == len(other) and all(
        math.isclose(mine, yours, rel_tol=1e-9, abs_tol=0.011)
        if isinstance(mine, int | float) and isinstance(yours, int | float)
        else mine == yours
        for mine, yours in zip(one, other, strict=True)
    )


def alone(tpch: Path) -> df.SessionContext:
    context = df.SessionContext(df.SessionConfig().with_target_partitions(2))
    register(context, tpch)
    return context


def duck(tpch: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name in TABLES:
        connection.execute(f"create view {name} as select * from '{tpch / name}/*.parquet'")  # noqa: S608 - names of our own
    return connection


@pytest.mark.parametrize(
    ("partitions", "is_broadcasting"),
    [
        pytest.param(0, True, id="as they are", marks=pytest.mark.full),
        pytest.param(2, False, id="2 exchanged"),
        pytest.param(3, True, id="3", marks=pytest.mark.full),
    ],
)
def test_all_queries_are_equal_on_two_workers_that_fetch_from_each_other(
    tpch: Path, tmp_path: Path, partitions: int, is_broadcasting: bool
) -> None:
    engine, other = alone(tpch), duck(tpch)
    with open_stage(tmp_path) as stage:
        stage.start_server()
        for name in ("one", "two"):
            stage.start_worker(name, slots=1)
        session = session_on(stage, partitions=partitions)
        for name in TABLES:
            session.register_parquet(name, tpch / name)
        if not is_broadcasting:
            for setting in ("", "_rows"):
                session.sql(f"set {BROADCAST}{setting} = 0")
        stages: set[int] = set()
        for number, query in enumerate(QUERIES, 1):
            handle = session.submit(query)
            answer = rows(handle.to_arrow(timeout_s=60))
            assert handle.unstaged == "", number
            assert answer == rows(engine.sql(query).to_arrow_table()), number
            theirs = rows(other.sql(query).to_arrow_table())
            assert len(answer) == len(theirs), number
            assert all(map(is_near, answer, theirs)), number
            stages.add(len(handle.progress().stages))
        assert max(stages) >= (5 if partitions else 1)
