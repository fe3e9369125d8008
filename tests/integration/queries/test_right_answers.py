"""Answers of sessions, here and on workers, are those of the engine itself: values, types, and failures."""

from collections.abc import Iterator
from pathlib import Path

import datafusion as df
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rota
from rota.app.sql.cluster import ClusterQuery
from rota.core.errors import Refused
from tests.refusals import refused

ROWS = pa.table({"a": [1, None, 3, 4, 5], "b": [1, 1, 2, 2, 2], "f": [1.0, 2.0, 3.0, 4.0, 5.0]})
# What the encoding of physical plans loses; a worker plans these.
UNSTAGED = {
    "null treatment": "select f, last_value(a) ignore nulls over (order by f) as x from t",
    "filter": "select f, sum(a) filter (where a > 2) over (order by f) as x from t",
    "turned": "select f, lag(a) over (order by f) as x, lag(a) over (order by f desc) as y from t",
    "turned by a table's order": "select f, nth_value(a, 2) over (order by f desc) as x from sorted",
    "empty grouping set": "select count(*) as n from t group by grouping sets (())",
    "array of JSON": "select * from listed",
    "array of JSON in a subquery": "select (select count(*) from listed) as n",
    "array of JSON in IN": "select a from listed where a in (select a from listed)",
    "null treatment beside IN": (
        "select f, last_value(a) ignore nulls over (order by f) as x from t where b in (select b from t where b = 2)"
    ),
    "null treatment beside EXISTS": (
        "select f, last_value(a) ignore nulls over (order by f) as x from t "
        "where exists (select 1 from t as other where other.b = t.b and other.f = 4)"
    ),
    "half": "select f, arrow_cast(1, 'Float16') as x from t",
    "half and one": "select f, arrow_cast(f, 'Float16') + arrow_cast(1, 'Int8') as x from t",
    "half as a default": (
        "select f, lag(arrow_cast(f, 'Float16'), 1, arrow_cast(1, 'Float16')) over (order by f) as x from t"
    ),
    "recursive": "with recursive r as (select 1 as n union all select n + 1 from r where n < 5) select n from r",
}
STAGED = {
    "date and time": "select date '2020-01-01' as x union all select timestamp '2020-02-02 03:04:05'",
    "whole and fraction": "select 1 as x union all select 2.5",
    "of a case": "select case when false then 1 else 2.5 end as x",
    "nothing and text": "select null as x union all select 'a'",
    "small and large": "select cast(1 as smallint) as x union select 70000",
    "half and tiny": "select f, arrow_cast(f, 'Float16') + cast(b as tinyint) as x from t",
    "interval": "select interval '1 month 2 days' as x from t",
    "dictionary": "select arrow_cast('a', 'Dictionary(Int32, Utf8)') as x from t",
    "instant in a filter": (
        "select b, count(*) as n from t where arrow_cast(b, 'Timestamp(Second, None)') < '2020-01-01 12:00:00' "
        "group by b"
    ),
    "instant with a zone": "select b, arrow_cast('2020-01-01', 'Timestamp(Nanosecond, Some(\"+02:00\"))') as x from t",
    "time of day": (
        "select b, count(*) as n from t where arrow_cast(b, 'Time64(Nanosecond)') < time '10:00:00' group by b"
    ),
    "value in a filter": "select sum(a) filter (where a > (select min(a) from t)) as x from t",
    "value in an order": "select b from t order by f * (select min(a) - 2 from t)",
}


def register(context: df.SessionContext, folder: Path) -> None:
    """The tables, as both the engine and a session's engine are told of them."""
    context.register_parquet("t", f"{folder}/t/")
    context.register_parquet("sorted", f"{folder}/t/", file_sort_order=[[df.col("f").sort(ascending=True)]])
    context.sql(
        f"create external table listed stored as json options ('format.newline_delimited' 'false') "
        f"location '{folder}/listed.json'"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    (folder / "t").mkdir()
    pq.write_table(ROWS.slice(0, 3), folder / "t" / "0.parquet")
    pq.write_table(ROWS.slice(3), folder / "t" / "1.parquet")
    (folder / "listed.json").write_text('[{"a": 1}, {"a": 2}]')
    return folder


@pytest.fixture(scope="module")
def engine(folder: Path) -> df.SessionContext:
    context = df.SessionContext()
    register(context, folder)
    return context


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rota.Rota]:
    with rota.Rota.embedded(tmp_path_factory.mktemp("data"), slots=2) as here:
        yield here


@pytest.fixture(scope="module", params=["embedded", "one task", "on workers"])
def session(request: pytest.FixtureRequest, here: rota.Rota, folder: Path) -> Iterator[rota.Session]:
    if request.param == "embedded":
        made = rota.Session()
    else:
        made = rota.Session.on(here, partitions=3 if request.param == "on workers" else 0)
    with made as session:
        register(session.engine.context, folder)
        yield session


def _rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("what", [*UNSTAGED, *STAGED])
def test_an_answer_is_that_of_the_engine(session: rota.Session, engine: df.SessionContext, what: str) -> None:
    sql = {**UNSTAGED, **STAGED}[what]
    wanted = engine.sql(sql).to_arrow_table()
    frame = session.sql(sql)
    found = frame.to_arrow()
    assert _rows(found) == _rows(wanted)
    assert found.schema.types == wanted.schema.types
    assert frame.schema.types == wanted.schema.types


@pytest.mark.parametrize("what", UNSTAGED)
def test_what_is_lost_in_encoding_is_planned_by_a_worker(here: rota.Rota, folder: Path, what: str) -> None:
    with rota.Session.on(here, partitions=3) as session:
        register(session.engine.context, folder)
        handle = session.submit(UNSTAGED[what])
        assert handle.unstaged
        assert [task.id for task in here.run(handle.id).tasks()] == ["stage-1"]
        assert "one task" in session.sql(UNSTAGED[what]).explain()
    with rota.Session.on(here, partitions=3, strict=True) as session:
        register(session.engine.context, folder)
        with refused("query.unstaged"):
            session.submit(UNSTAGED[what])


@pytest.mark.parametrize("what", STAGED)
def test_what_survives_encoding_is_split_into_stages(here: rota.Rota, folder: Path, what: str) -> None:
    with rota.Session.on(here, partitions=3, strict=True) as session:
        register(session.engine.context, folder)
        planned = session.runtime.plan(session.engine, session.sql(STAGED[what]).plan())
        assert planned is not None
        assert planned.unstaged == ""
        assert not any(stage.is_logical for stage in planned.stages)
        if " from t where" in STAGED[what] and "group by" in STAGED[what]:
            assert max(stage.tasks for stage in planned.stages) == 3


def test_dictionaries_may_differ_between_batches() -> None:
    texts = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", None]).dictionary_encode()]
    with rota.Session() as session:
        session.register_table("texts", pa.table({"x": pa.chunked_array(texts)}))
        answer = session.sql("select * from texts").submit().to_arrow()
    assert answer.column("x").to_pylist() == ["a", "b", "c", None]


def test_a_join_of_one_task_says_so_and_strict_refuses_it(here: rota.Rota, folder: Path) -> None:
    sql = "select x.f from t x left join t y on x.f < y.b"
    with rota.Session.on(here, partitions=3) as session:
        register(session.engine.context, folder)
        assert "1 task" in session.sql(sql).explain() and "because" in session.sql(sql).explain()
    with rota.Session.on(here, partitions=3, strict=True) as session:
        register(session.engine.context, folder)
        with refused("query.unstaged"):
            session.submit(sql)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("select a, (select b from t) as x from t", "query.failed"),
        ("select 1 / (b - 1) as x from t", "query.type"),
        ("select cast('x' || a as int) as x from t", "query.type"),
    ],
)
def test_an_error_of_the_engine_is_final(here: rota.Rota, folder: Path, sql: str, code: str) -> None:
    with rota.Session.on(here) as session:
        register(session.engine.context, folder)
        handle = session.submit(sql)
        with pytest.raises(Refused) as caught:
            handle.to_arrow()
        assert caught.value.code == code
        assert [task.attempt for task in here.run(handle.id).tasks()] == [1]


def test_statements_are_prepared_and_executed(session: rota.Session) -> None:
    session.sql("prepare more as select a from t where a > $1 and b < $2 order by a").to_arrow()
    assert session.sql("execute more(2, 5)").to_pylist() == [{"a": 3}, {"a": 4}, {"a": 5}]
    assert session.sql("execute more(4, 5)").to_pylist() == [{"a": 5}]
    with refused("query.statement"):
        session.sql("prepare more as select 1")
    session.sql("deallocate more").to_arrow()
    with refused("query.statement"):
        session.sql("execute more(1, 2)")


def test_a_session_that_only_reads_prepares_nothing_that_writes(folder: Path) -> None:
    with rota.Session(reads_only=True) as session:
        session.register_parquet("t", folder / "t")
        for sql in ("prepare w as create table z as select 1", "prepare w as drop table t", "set a.b = 1"):
            with refused("query.unsupported"):
                session.sql(sql)
        with refused("query.statement"):
            session.sql("execute w")
        session.sql("prepare r as select count(*) as n from t").to_arrow()
        assert session.sql("execute r").to_pylist() == [{"n": 5}]


def test_a_table_that_a_statement_makes_says_where_its_query_ran(here: rota.Rota, folder: Path) -> None:
    with rota.Session.on(here) as session:
        register(session.engine.context, folder)
        handle = session.submit("create table made as select count(*) as n from t")
        assert "this process" in handle.unstaged
        assert session.sql("select n from made").to_pylist() == [{"n": 5}]
        for sql in (
            "create view seen as select count(*) as n from t",
            f"create external table other stored as parquet location '{folder}/t/'",
            "create table empty (n bigint)",
        ):
            assert session.submit(sql).unstaged == "", sql
        with refused("query.unsupported"):
            session.submit(f"copy t to '{folder}/copied.parquet'")


@pytest.mark.parametrize(
    "sql",
    [
        "select cast(to_timestamp(f) as varchar) as x from t",
        "select cast(to_timestamp(f) as varchar) as x, last_value(a) ignore nulls over (order by f) as y from t",
    ],
)
def test_settings_of_a_session_hold_on_workers(here: rota.Rota, folder: Path, sql: str) -> None:
    with rota.Session() as embedded, rota.Session.on(here, partitions=3) as session:
        register(session.engine.context, folder)
        before = session.sql(sql).to_arrow()
        for each in (embedded, session):
            each.sql("set datafusion.execution.time_zone = '+02:00'").to_arrow()
        register(embedded.engine.context, folder)
        assert _rows(session.sql(sql).to_arrow()) == _rows(embedded.sql(sql).to_arrow()) != _rows(before)


@pytest.mark.parametrize("kind", ["Interval(YearMonth)", "Interval(DayTime)"])
def test_a_type_that_no_program_can_read_is_refused_before_it_runs(session: rota.Session, kind: str) -> None:
    value = f"arrow_cast('1 year', '{kind}')"
    for shape in ("{}", "[{}]", "named_struct('a', {})", "map(['a'], [[{}]])"):
        sql = f"select b, {shape.format(value)} as x from t"  # noqa: S608 - names of ours
        with refused("query.type"):
            session.submit(sql)
        with refused("query.type"):
            session.sql(sql).to_arrow()
    cast = f"select b, arrow_cast({value}, 'Interval(MonthDayNano)') as x from t"  # noqa: S608 - names of ours
    assert session.sql(cast).to_arrow().num_rows == 5
    inside = (
        f"select x is null as n, count(*) as c from (select case when b = 1 then {value} end as x from t) group by x"  # noqa: S608 - names of ours
    )
    assert _rows(session.sql(inside).to_arrow()) == ["{'n': False, 'c': 2}", "{'n': True, 'c': 3}"]


ENDLESS = "with recursive r as (select 1 as n union all select n + 1 from r) select count(*) as x from r"


def test_a_time_limit_is_that_of_the_whole_query(here: rota.Rota) -> None:
    with rota.Session.on(here, timeout_s=1) as session:
        handle = session.submit(ENDLESS)
        with pytest.raises(Refused):
            handle.to_arrow()
        assert here.run(handle.id).status().state == "failed"


def test_a_strict_session_makes_no_table_from_a_query(here: rota.Rota, folder: Path) -> None:
    with rota.Session.on(here, strict=True) as session:
        register(session.engine.context, folder)
        for sql in (
            "create table made as select count(*) as n from t",
            "/* now */ create or replace table made as values (1)",
        ):
            with refused("query.unstaged"):
                session.sql(sql)
        with refused("query.unstaged"):
            session.sql("create table made as select a from t where a > $1", [2])
        assert not any("made" in name for name in session.tables())
        session.sql("create view seen as select count(*) as n from t").to_arrow()
        assert session.sql("select n from seen").to_pylist() == [{"n": 5}]


@pytest.mark.parametrize(
    "sql",
    [
        "show tables",
        "show columns from t",
        "show datafusion.execution.time_zone",
        "describe t",
        "explain select b, last_value(a) ignore nulls over (order by f) as x from t",
        "explain verbose select count(*) from t",
    ],
)
def test_a_strict_session_tells_of_tables_and_plans(here: rota.Rota, folder: Path, sql: str) -> None:
    with rota.Session.on(here, partitions=3, strict=True) as session:
        register(session.engine.context, folder)
        assert session.sql(sql).to_arrow().num_rows
        for other in ("explain analyze select a from t", "select 1 from information_schema.tables x, t y"):
            with refused("query.unstaged"):
                session.submit(other)


# One batch, after hours; a table in memory with a window that is lost in encoding, so it is not sent anywhere.
LONG_HERE = """
    select count(*) as n, sum(y.value % 7 + x.l) as s
    from (select last_value(a) ignore nulls over (order by a) as l from m) as x
    cross join generate_series(1, 3000000000000) as y
"""


def test_a_time_limit_holds_for_a_query_in_this_process(here: rota.Rota) -> None:
    with rota.Session.on(here, timeout_s=0.2) as session:
        session.register_table("m", ROWS)
        handle = session.submit(LONG_HERE)
        assert "this process" in handle.unstaged
        with refused("query.failed", "0.2 s"):
            handle.wait(60)
        assert handle.status() == "failed"


def test_a_time_limit_holds_for_the_query_of_a_new_table(here: rota.Rota) -> None:
    with rota.Session.on(here, timeout_s=0.2) as session:
        session.register_table("m", ROWS)
        for sql in (LONG_HERE, "select count(*) as n from generate_series(1, 400000000000) where value % 7 = 3"):
            with refused("query.failed", "0.2 s"):
                session.sql(f"create table made as {sql}")
        with refused("query.unsupported"):
            session.sql("create table made (a int primary key) as select 1")
        assert not any("made" in name for name in session.tables())


def test_a_table_is_made_the_same_with_a_time_limit(here: rota.Rota, folder: Path) -> None:
    statements = (
        "create table made as select b, arrow_cast(sum(a), 'Int16') as x, 'y' as s from t group by b",
        'create table if not exists "A ""b""".made as select a from t where a > 3',
        "create table if not exists made as select 1 / 0",
        "create or replace table public.MADE (b bigint, x text) as select b, f from t where a > 2",
        "create table datafusion.public.empty as select a from t where a > 100",
    )
    with rota.Session.on(here, timeout_s=60) as limited, rota.Session.on(here) as free:
        for session in (limited, free):
            register(session.engine.context, folder)
            session.sql('create schema "A ""b"""').to_arrow()
        for sql in statements:
            assert [session.submit(sql).unstaged for session in (limited, free)].count("") == 0
            assert limited.tables() == free.tables()
            for name in ("made", '"A ""b""".made', "empty"):
                if free.engine.context.table_exist(name):
                    wanted, found = (each.table(name).to_arrow() for each in (free, limited))
                    assert (_rows(found), found.schema) == (_rows(wanted), wanted.schema), (sql, name)
        for session in (limited, free):
            with refused("query.failed"):
                session.sql("create table made as select 1")


def test_a_query_in_this_process_is_cancelled_before_its_first_batch(here: rota.Rota) -> None:
    with rota.Session.on(here) as session:
        session.register_table("m", ROWS)
        handle = session.submit(LONG_HERE)
        handle.cancel()
        with pytest.raises(Refused, match="was cancelled"):
            handle.wait(60)
        assert handle.status() == "cancelled"


def test_a_time_limit_counts_what_was_tried_before(here: rota.Rota, folder: Path) -> None:
    """A query that is planned again, because it was out of memory, has no more time than before."""
    with rota.Session.on(here, timeout_s=60) as session:
        register(session.engine.context, folder)
        handle = session.submit("select a from t")
        assert isinstance(handle, ClusterQuery)
        handle.to_arrow()
        handle._ends_at = 0.0  # pyright: ignore[reportPrivateUsage] - as if a minute had passed
        with refused("query.failed"):
            handle._submit(handle._plan)  # pyright: ignore[reportPrivateUsage] - as it does when it is out of memory
