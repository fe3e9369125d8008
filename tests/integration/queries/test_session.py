"""What a program does with a session: the same in its own process and on workers."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import datafusion as df
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import rota
from rota.app.sql.handles import LocalQuery
from rota.app.sql.runtimes import EmbeddedRuntime
from rota.core.states import RunState
from tests.integration.deadlines import until
from tests.integration.queries.cluster import Gate, make_table
from tests.refusals import refused

TRIPS = pa.table({"city": ["Oslo", "Rome", "Oslo"], "km": [12, 30, 7]})
BY_CITY = "select city, sum(km) as km from trips group by city order by city"
ANSWER = [{"city": "Oslo", "km": 19}, {"city": "Rome", "km": 30}]


@pytest.fixture(scope="module", params=["embedded", "on workers"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[rota.Session]:
    if request.param == "embedded":
        with rota.Session() as session:
            yield session
        return
    data = tmp_path_factory.mktemp("data")
    with rota.Rota.embedded(data, slots=2) as here, rota.Session.on(here, partitions=2) as session:
        yield session


@pytest.fixture
def session(kept: rota.Session) -> Iterator[rota.Session]:
    """A session that has forgotten what other tests have registered."""
    kept.register_table("trips", TRIPS)
    yield kept
    for name in kept.tables():
        if name.startswith("datafusion.public."):
            kept.drop_table(name)


# Answers.


def test_an_answer_comes_in_every_form(session: rota.Session) -> None:
    frame = session.sql(BY_CITY)
    assert frame.to_pylist() == ANSWER
    assert frame.to_arrow().to_pylist() == ANSWER
    assert frame.stream().read_all().to_pylist() == ANSWER
    assert isinstance(frame.to_pandas(), pd.DataFrame)
    assert frame.to_pandas().to_dict("records") == ANSWER
    assert isinstance(frame.to_polars(), pl.DataFrame)
    assert frame.to_polars().to_dicts() == ANSWER
    assert (frame.count(), frame.columns) == (2, ["city", "km"])
    assert duckdb.sql("select max(km) from frame").fetchall() == [(30,)], "others read it as Arrow"


def test_intervals_and_durations_are_answers_too(session: rota.Session) -> None:
    frame = session.sql("select interval '1 day 2 hours' as i, timestamp '2020-02-02' - timestamp '2020-02-01' as d")
    (row,) = frame.to_pylist()
    assert tuple(row["i"]) == (0, 1, 2 * 3600 * 10**9)
    assert row["d"] == timedelta(days=1)
    assert frame.to_pandas()["d"].tolist() == [timedelta(days=1)]
    with refused("query.type"):
        frame.to_polars()


def test_a_handle_tells_how_its_query_stands_and_gives_the_answer_again(session: rota.Session) -> None:
    handle = session.submit(BY_CITY)
    assert handle.to_arrow(60).to_pylist() == ANSWER
    assert handle.status() is RunState.SUCCESS
    assert handle.progress().fraction == 1
    assert [stage.done for stage in handle.progress().stages] == [stage.tasks for stage in handle.progress().stages]
    assert handle.stream().read_all().to_pylist() == ANSWER
    assert handle.to_pandas().to_dict("records") == handle.to_polars().to_dicts() == ANSWER


def test_a_query_was_waited_for_when_its_thread_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that still holds on to the engine while the interpreter ends would take the process down with it."""
    may_end = threading.Event()
    run = LocalQuery._run

    def held(query: LocalQuery) -> None:
        run(query)
        may_end.wait(60)

    monkeypatch.setattr(LocalQuery, "_run", held)
    handle = rota.Session().submit("select 1 as x")
    with pytest.raises(TimeoutError):
        handle.wait(0.5)
    may_end.set()
    handle.wait(60)
    assert handle.to_arrow().to_pylist() == [{"x": 1}]


def test_a_query_is_cancelled_and_nothing_of_it_is_seen(session: rota.Session, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    session.register_parquet("t", make_table(tmp_path / "t"))
    session.register_udf(gate.function(0), [pa.int64(), pa.int64()], pa.int64(), name="waits")
    handle = session.submit("select waits(part, v) as v from t")
    until(gate.is_reached, "the query to wait")
    with pytest.raises(TimeoutError):
        handle.wait(0.01)
    assert handle.status() is RunState.RUNNING
    handle.cancel("enough")
    if isinstance(session.runtime, EmbeddedRuntime):
        # Nothing but a function's end gives the thread back.
        gate.open()
    with pytest.raises(rota.Refused, match=r"run\.ended: .*cancelled"):
        handle.to_arrow(60)
    assert handle.status() is RunState.CANCELLED


async def _asked(session: rota.Session) -> list[Any]:
    handle = await asyncio.to_thread(session.submit, BY_CITY)
    await handle.wait_async(60)
    streamed = [batch async for batch in handle.stream_async()]
    whole = await asyncio.gather(session.sql_async(BY_CITY), handle.to_arrow_async(60))
    return [pa.Table.from_batches(streamed), *whole]


def test_programs_that_wait_with_await_have_the_same_answers(session: rota.Session) -> None:
    assert [table.to_pylist() for table in asyncio.run(_asked(session))] == [ANSWER] * 3


# Questions.


def test_statements_take_values_by_place_and_by_name(session: rota.Session) -> None:
    far = session.prepare("select count(*) as n from trips where km > ?")
    assert [far.bind(km).to_pylist() for km in (10, 29, 99)] == [[{"n": 2}], [{"n": 1}], [{"n": 0}]]
    named = session.prepare("select city from trips where city = $city and km < $most")
    assert named.bind(city="Oslo", most=10).to_pylist() == [{"city": "Oslo"}]
    assert session.sql("select $1 as a, $2 as b, $1 as c", ["x", None]).to_pylist() == [{"a": "x", "b": None, "c": "x"}]


@pytest.mark.parametrize(
    ("params", "said"),
    [((), r"query\.parameter"), ((1, 2), r"query\.parameter"), ({"most": 1}, r"query\.parameter")],
)
def test_values_that_do_not_fit_a_statement_are_refused(session: rota.Session, params: Any, said: str) -> None:
    with pytest.raises(rota.Refused, match=said):
        session.sql("select count(*) from trips where km > $1", params).to_arrow()


def test_frames_are_put_together_step_by_step(session: rota.Session) -> None:
    trips = session.table("trips")
    column, functions = df.col, df.functions
    by_city = trips.aggregate("city", [functions.sum(column("km")).alias("km")]).sort(column("city").sort())
    assert by_city.to_pylist() == ANSWER
    assert session.dataframe("trips").filter(column("km") > 10).select("city").distinct().count() == 2
    halves = trips.with_column("half", column("km") / 2).rename("km", "length").drop("city")
    assert sorted(halves.columns) == ["half", "length"]
    assert trips.union(trips).count() == 6
    assert trips.intersect(trips.limit(1)).count() == 1
    assert trips.except_all(trips.limit(1)).count() == 2
    session.register_table("cities", pa.table({"city": ["Oslo"], "country": ["no"]}))
    assert {row["country"] for row in trips.join(session.table("cities"), on="city").to_pylist()} == {"no"}
    assert session.frame(trips.inner.limit(2)).count() == 2


@pytest.mark.parametrize("what", ["logical", "physical", "stages"])
def test_a_query_is_explained_in_three_ways(session: rota.Session, what: Any) -> None:
    said = session.sql(BY_CITY).explain(what)
    words = {"logical": "Aggregate: groupBy=", "physical": "AggregateExec: mode=", "stages": "AggregateExec"}
    assert words[what] in said


# Tables and functions.


def test_tables_come_from_memory_and_from_files_of_every_form(session: rota.Session, tmp_path: Path) -> None:
    folder = make_table(tmp_path / "t", files=2, rows=3)
    (tmp_path / "t.csv").write_text("part,v\n0,0\n0,1\n")
    (tmp_path / "t.json").write_text('{"part": 0, "v": 0}\n{"part": 0, "v": 1}\n')
    session.register_parquet("of_parquet", folder)
    session.register_csv("of_csv", tmp_path / "t.csv")
    session.register_json("of_json", tmp_path / "t.json")
    session.register_path("of_path", tmp_path / "t.csv")
    session.register_record_batches("of_batches", pa.table({"v": [1, 2]}).to_batches())
    session.register_table("of_pandas", pd.DataFrame({"v": [1, 2]}))
    session.register_table("of_polars", pl.DataFrame({"v": [1, 2]}))
    session.register_table("of_frame", session.sql("select km as v from trips"))
    wanted = {"parquet": 6, "csv": 2, "json": 2, "path": 2, "batches": 2, "pandas": 2, "polars": 2, "frame": 3}
    assert {name: session.table(f"of_{name}").count() for name in wanted} == wanted
    read = (session.read_parquet(folder), session.read_csv(tmp_path / "t.csv"), session.read_json(tmp_path / "t.json"))
    assert [frame.count() for frame in read] == [6, 2, 2]
    assert "datafusion.public.of_csv" in session.tables()
    session.drop_table("of_csv")
    with pytest.raises(rota.Refused, match=r"query\.table: .*of_csv"):
        session.table("of_csv")


def test_functions_of_rows_and_of_groups(session: rota.Session) -> None:
    class Longest(df.Accumulator):
        """The longest text of a group."""

        def __init__(self) -> None:
            self._found = ""

        def update(self, *values: pa.Array) -> None:
            for value in values[0].to_pylist():
                self._found = max(self._found, value or "", key=len)

        def merge(self, states: list[pa.Array]) -> None:
            self.update(*states)

        def state(self) -> list[pa.Scalar]:
            return [pa.scalar(self._found)]

        def evaluate(self) -> pa.Scalar:
            return pa.scalar(self._found)

    def doubled(values: pa.Array) -> pa.Array:
        return pa.array([2 * value for value in values.to_pylist()])

    session.register_udf(doubled, [pa.int64()], pa.int64())
    session.register_udaf(Longest, [pa.string()], pa.string(), [pa.string()], name="longest")
    found = session.sql("select longest(city || km) as longest, sum(doubled(km)) as km from trips").to_pylist()
    assert found[0]["km"] == 98
    assert len(found[0]["longest"]) == len("Oslo12")


# What is wrong with a question.


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("selec 1", r"query\.syntax: .*line 1, column 1"),
        ("select *\nfrom trips\nwher km > 1", r"query\.syntax: .*line 3"),
        ("select * from trip", r"query\.table: .*trip.*Did you mean trips\?"),
        ("select kilometres from trips", r"query\.column: .*kilometres"),
        ("select city + interval '1 day' from trips", r"query\.type: "),
        ("select nonsense(km) from trips", r"query\.function: .*nonsense"),
        ("select cast(city as int) from trips", r"query\.type: .*Oslo"),
        ("delete from trips", r"query\.unsupported: "),
        ("explain analyze update trips set km = km + 1", r"query\.unsupported: "),
    ],
)
def test_what_is_wrong_with_a_statement_is_said_by_a_code(session: rota.Session, sql: str, said: str) -> None:
    with pytest.raises(rota.Refused, match=f"(?s){said}"):
        session.sql(sql).to_arrow()
    assert session.sql("select sum(km) as km from trips").to_pylist() == [{"km": 49}], "it has changed nothing"


def test_files_that_are_missing_or_broken_are_told_from_each_other(session: rota.Session, tmp_path: Path) -> None:
    with pytest.raises(rota.Refused, match=r"query\.source: .*nowhere"):
        session.register_parquet("t", tmp_path / "nowhere")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 this is none PAR1")
    with pytest.raises(rota.Refused, match=r"query\.source: .*broken\.parquet"):
        session.register_parquet("t", tmp_path / "broken.parquet")
    with pytest.raises(rota.Refused, match=r"query\.source: .*broken\.parquet"):
        session.read_parquet(tmp_path / "broken.parquet")
