"""What the engine complains about reaches people as a code, a place and a way out: real texts of the real engine."""

from pathlib import Path

import pyarrow as pa
import pytest

from rota.core.errors import CODES, Refused
from rota.kinds.query.engine import SqlEngine


@pytest.fixture
def engine() -> SqlEngine:
    engine = SqlEngine()
    engine.register_batches("nation", [pa.record_batch({"name": ["a", "b"], "key": [1, 2]})])
    return engine


def refused(engine: SqlEngine, sql: str, params: tuple[object, ...] = ()) -> Refused:
    with pytest.raises(Refused) as caught, engine.complaining(sql):
        engine.sql(sql, params).collect()
    assert caught.value.code in CODES
    return caught.value


@pytest.mark.parametrize(
    ("sql", "code", "reason", "path"),
    [
        ("selec 1", "query.syntax", "expected: an SQL statement, found: selec", "line 1, column 1"),
        ("select 1,\n  from", "query.syntax", "", "line 2"),
        ("select * from nation where key = 'x' and", "query.syntax", "found: EOF", "line 1, column 41"),
        ("select 1; select 2", "query.syntax", "one statement", "sql"),
        ("select 'abc", "query.syntax", "unterminated string literal", "line 1, column 8"),
        ("  ", "query.syntax", "empty", "sql"),
        ("select * from nations", "query.table", " nations", "sql"),
        ("select * from far.away.nation", "query.table", "far.away.nation", "sql"),
        ("select nam from nation", "query.column", " nam", "sql"),
        ("select key from nation a, nation b", "query.column", "unqualified field key", "sql"),
        ("select key from nation order by 7", "query.column", "out of bounds", "sql"),
        ("select name from nation group by key", "query.column", "GROUP BY", "sql"),
        ("select upper(1, 2)", "query.type", "expects 1 arguments but received 2", "sql"),
        ("select * from read_parquet('x')", "query.function", "table function 'read_parquet' not found", "sql"),
        ("select name + 1 from nation", "query.type", "Cannot coerce", "sql"),
        ("select cast('x' as int)", "query.type", "cast string 'x'", "sql"),
        ("select nofunc(1)", "query.function", "Invalid function 'nofunc'", "sql"),
        ("select $1", "query.parameter", " $1", "params"),
        ("select 1/0", "query.type", "Divide by zero", "sql"),
        ("create external table x stored as parquet location '/nowhere/x.parquet'", "query.source", "No files", "sql"),
    ],
)
def test_a_complaint_has_a_code_a_reason_and_a_place(
    engine: SqlEngine, sql: str, code: str, reason: str, path: str
) -> None:
    told = refused(engine, sql)
    assert (told.code, reason in told.reason, path in (told.path or "")) == (code, True, True), told
    assert "DataFusion error" not in told.reason and "Error during planning" not in told.reason
    assert "\n" not in str(told), "it is one line"


def test_a_table_that_is_not_there_is_answered_with_the_nearest_ones(engine: SqlEngine) -> None:
    engine.register_batches("nations_of_old", [pa.record_batch({"a": [1]})])
    assert refused(engine, "select * from natoin").hint == "Did you mean nation?"
    assert "SHOW TABLES" in refused(engine, "select * from something_else").hint
    assert "register_parquet" in refused(SqlEngine(), "select * from nation").hint


def test_a_column_that_is_not_there_is_answered_with_the_nearest_one_or_some(engine: SqlEngine) -> None:
    assert refused(engine, "select nam from nation").hint == "Did you mean nation.name?"
    engine.register_batches("wide", [pa.record_batch({f"c{number}": [1] for number in range(30)})])
    told = refused(engine, "select something_else from wide")
    assert told.hint.startswith("There are wide.c0, wide.c1, ")
    assert told.hint.endswith("wide.c9 and 20 more.")


def test_who_may_only_read_is_told_so() -> None:
    engine = SqlEngine(reads_only=True)
    for sql in ("set datafusion.execution.batch_size = 3", "create table x as select 1", "copy (select 1) to 'x.csv'"):
        told = refused(engine, sql)
        assert (told.code, "read" in told.hint) == ("query.unsupported", True)


def test_values_for_parameters_that_are_not_there_are_refused(engine: SqlEngine) -> None:
    assert refused(engine, "select ?", (1, 2)).code == "query.parameter"
    assert "no parameters" in refused(engine, "select 1", (1,)).reason


def test_files_that_cannot_be_read_are_named(engine: SqlEngine, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"query\.source.*nothing\.parquet"):
        engine.register_parquet("t", tmp_path / "nothing.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"hello, this is no Parquet")
    with pytest.raises(Refused, match=r"query\.source"):
        engine.register_parquet("t", tmp_path / "bad.parquet")


def test_a_function_that_raises_is_told_with_its_error(engine: SqlEngine) -> None:
    import datafusion as df

    def fails(values: pa.Array) -> pa.Array:
        raise ValueError("no such thing")

    engine.register_udf(df.udf(fails, [pa.int64()], pa.int64(), "immutable", "fails"))
    told = refused(engine, "select fails(key) from nation")
    assert told.code == "query.function_failed"
    assert told.reason.endswith(" ValueError: no such thing")
