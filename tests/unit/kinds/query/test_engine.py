"""The engine of a session: what it sees of files, and what statements may do."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.core.errors import Refused
from rota.kinds.query.engine import SqlEngine
from tests.refusals import refused


def count(engine: SqlEngine) -> int:
    return engine.sql("select count(*) as n from t").to_pylist()[0]["n"]


def test_files_that_come_and_go_are_seen_by_the_next_statement(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    engine = SqlEngine()
    engine.register_parquet("t", tmp_path)
    assert count(engine) == 1
    pq.write_table(pa.table({"a": [2, 3]}), tmp_path / "2.parquet")
    assert count(engine) == 3
    (tmp_path / "1.parquet").unlink()
    assert count(engine) == 2


def test_a_table_can_be_registered_again_and_dropped() -> None:
    engine = SqlEngine()
    engine.register_batches("t", [pa.record_batch({"a": [1]})])
    engine.register_batches("t", [], pa.schema([("a", pa.int64())]))
    assert count(engine) == 0
    engine.drop("t")
    for forgotten in (lambda: engine.drop("t"), lambda: engine.table("t")):
        with pytest.raises(Refused, match=r"query\.table"):
            forgotten()
    with refused("field.value", "'t'", path="batches"):
        engine.register_batches("t", [])


def test_a_table_stays_if_what_should_take_its_place_cannot_be_read(tmp_path: Path) -> None:
    engine = SqlEngine()
    engine.register_batches("t", [pa.record_batch({"a": [1]})])
    (tmp_path / "x.parquet").write_bytes(b"no table")
    with pytest.raises(Refused, match=r"query\.source"):
        engine.register_parquet("t", tmp_path / "x.parquet")
    assert count(engine) == 1
    assert engine.tables() == ("datafusion.public.t",)


@pytest.mark.parametrize(
    "statement",
    [
        "create table x as select 1",
        "create view x as select 1",
        "create external table x stored as csv location '/etc/passwd'",
        "drop table t",
        "insert into t values (1)",
        "copy t to '/tmp/nowhere.csv'",
        "set datafusion.execution.batch_size = 1",
    ],
)
def test_an_engine_for_strangers_only_reads(statement: str, tmp_path: Path) -> None:
    engine = SqlEngine(reads_only=True)
    engine.register_batches("t", [pa.record_batch({"a": [1]})])
    with pytest.raises(Refused, match=r"query\.unsupported"):
        engine.sql(statement)
    with pytest.raises(Refused, match=r"query\.table"):
        engine.sql("select * from '/etc/passwd'")
    assert engine.sql("select a from t").to_pylist() == [{"a": 1}]


def test_a_query_that_needs_more_memory_than_the_engine_may_hold_is_refused() -> None:
    engine = SqlEngine(memory_bytes=4 << 20)
    with refused("query.memory"), engine.complaining():
        engine.sql(
            "select array_agg(x) from (select repeat('x', 1000) || value as x from range(200000))"
        ).to_arrow_table()
