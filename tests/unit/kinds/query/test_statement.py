"""A statement of a task: answered where it is asked, or planned as stages that the task goes on as."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rota
from rota.core.bounds import GROWN_BYTES_MAX, ID_CHARS_MAX
from rota.core.graph import LiveGraph
from rota.core.growing import check_fed
from rota.core.model import QUERIES_QUEUE, Graph, TaskSpec
from rota.kinds.query import sizing, statement
from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.statement import answer
from rota.running import Fail
from rota.wire.queries import ENGINE_MEMORY, Answered, decode_fragment
from rota.wire.work import Grown, decode_python
from tests.refusals import refused

SQL = "select k, count(*) as n from t group by k"


@pytest.fixture
def files(tmp_path: Path) -> str:
    for number in range(3):
        pq.write_table(pa.table({"k": [number] * 10, "v": list(range(10))}), tmp_path / f"{number}.parquet")
    return str(tmp_path)


def planned(given: dict[str, object], text: str = SQL, task: str = "totals") -> tuple[TaskSpec, ...]:
    found = answer(text, given, task=task, partitions=2)
    assert isinstance(found, Grown)
    return found.specs


def test_little_to_read_is_answered_at_once(files: str) -> None:
    assert isinstance(answer(SQL, {"t": files}, task="totals"), pa.Table)
    assert isinstance(answer(SQL, {"t": files}, partitions=2), pa.Table), "nobody may go on"
    assert isinstance(answer(SQL, {"t": files}, task="totals", partitions=1), pa.Table)


def test_much_to_read_is_cut_into_as_many_parts_as_the_machine_has_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        values = [f"{number}-{value:>60}" for value in range(60_000)]
        pq.write_table(
            pa.table({"k": values}), tmp_path / f"{number}.parquet", compression="none", use_dictionary=False
        )
    monkeypatch.setattr(sizing, "ALONE_BYTES", 8 * sizing.MB)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    found = answer(SQL, {"t": str(tmp_path)}, task="totals")
    assert isinstance(found, Grown)
    assert [spec.width for spec in found.specs] == [3, 3]


def test_stages_are_tasks_under_the_name_of_the_task_that_the_scheduler_takes(files: str) -> None:
    specs = planned({"t": files})
    assert [(spec.id, spec.upstream, spec.width, spec.queue) for spec in specs] == [
        ("totals.stage-1", (), 2, QUERIES_QUEUE),
        ("totals.stage-2", ("totals.stage-1",), 2, QUERIES_QUEUE),
    ]
    last = decode_fragment(specs[-1].work)
    assert last.output == Answered(is_taken=True)
    assert [exchange.stage for exchange in last.exchanges] == ["totals.stage-1"]
    graph = Graph(name="g", tasks=(TaskSpec(id="totals"),))
    check_fed(LiveGraph("t", "d", graph), 0, specs)


def test_a_small_table_in_memory_travels_and_a_large_one_stays(files: str) -> None:
    statement = "select t.k, names.name from t join names using (k)"
    small = pa.table({"k": [0, 1, 2], "name": ["a", "b", "c"]})
    assert planned({"t": files, "names": small}, statement)
    large = pa.table({"k": list(range(50_000)), "name": ["x"] * 50_000})
    assert large.nbytes > GROWN_BYTES_MAX
    found = answer(statement, {"t": files, "names": large}, task="totals", partitions=2)
    assert isinstance(found, pa.Table)
    assert found.num_rows == 30


def test_a_stream_is_read_once_whether_it_travels_or_not() -> None:
    table = pa.table({"k": list(range(100_000))})
    stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    found = answer("select count(*) as n from t", {"t": stream}, task="totals", partitions=2)
    assert isinstance(found, pa.Table)
    assert found.to_pylist() == [{"n": 100_000}]


def test_a_name_that_is_too_long_for_stages_is_no_error(files: str) -> None:
    task = "t" * (ID_CHARS_MAX - 3)
    assert isinstance(answer(SQL, {"t": files}, task=task, partitions=2), pa.Table)


def test_what_cannot_be_cut_is_answered_at_once() -> None:
    statement = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 5) select sum(i) as s from n"
    found = answer(statement, {}, task="totals", partitions=2)
    assert isinstance(found, pa.Table)
    assert found.to_pylist() == [{"s": 15}]


def test_a_statement_that_writes_does_so_once(files: str, tmp_path: Path) -> None:
    target = tmp_path / "out"
    statement = f"copy (select * from t) to '{target}/' stored as csv"  # noqa: S608 - a path of this test
    answer(statement, {"t": files}, task="totals", partitions=2)
    assert sum(len(file.read_text().splitlines()) - 1 for file in target.iterdir()) == 30


def test_what_is_wrong_fails_for_good_all_the_same(files: str) -> None:
    with pytest.raises(Fail, match=r"query\.column"):
        answer("select nothing from t", {"t": files}, task="totals", partitions=2)


@pytest.mark.parametrize("partitions", [-1, 513, "2"])
def test_partitions_are_a_number_that_makes_sense(partitions: object) -> None:
    with pytest.raises(TypeError, match="partitions"):
        rota.task.sql("select 1", partitions=partitions)  # pyright: ignore[reportArgumentType] - that is the point


def test_only_tasks_that_can_go_on_are_told_that_they_may() -> None:
    @rota.task.sql(SQL)
    def totals(t: str) -> None: ...

    @rota.workflow
    def flow() -> None:
        first = totals("a")
        totals.override(id="bears")("a").after(first)
        totals.override(id="failing", trigger_rule="one_failed")("a").after(first)
        totals.override(id="tolerant", trigger_rule="none_failed")("a").after(first)
        totals.override(id="mapped").expand(t=["a", "b"])
        totals.override(id="prepares", setup=True)("a")
        totals.override(id="elsewhere", queue="far")("a")
        totals.override(id="particular", queue="far", requires={"disk": "fast"})("a")
        totals.override(id="choosy", requires={"disk": "fast"})("a")

    work = {spec.id: decode_python(spec.work).may_grow for spec in flow.build().tasks}
    assert work == {
        "totals": True,
        "bears": True,
        "failing": False,
        "tolerant": True,
        "mapped": False,
        "prepares": False,
        "elsewhere": True,
        "particular": False,
        "choosy": True,
    }


@pytest.mark.parametrize("said", ["4000000", "", "much", "0"])
def test_an_engine_never_has_all_the_memory(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    limits: list[int] = []

    class Noted(SqlEngine):
        def __init__(self, *args: Any, **given: Any) -> None:
            limits.append(given.get("memory_bytes", 0))
            super().__init__(*args, **given)

    monkeypatch.setattr(statement, "SqlEngine", Noted)
    monkeypatch.setenv(ENGINE_MEMORY, said)
    answer("select 1 as x", {}, task="totals")
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert len(limits) == 2, "it is planned, and answered"
    assert all(limit == 4_000_000 if said == "4000000" else 0 < limit < machine for limit in limits)


def test_a_statement_that_takes_more_than_its_share_of_memory_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE_MEMORY, "2000000")
    with refused("query.memory"):
        answer("select array_agg(value) as x from generate_series(1, 10000000)", {})
