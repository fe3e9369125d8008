"""Where plans are cut, what stays together, and what cannot be cut at all."""

import json
import re
from pathlib import Path
from typing import Any

import datafusion as df
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from rota.core.errors import Refused
from rota.kinds.query.cutting import Uncut, cut, lines_of, whole
from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.plans import Wishes, logical_plan, physical_plan
from rota.kinds.query.settings import PLANNING
from rota.kinds.query.sizing import MB
from rota.kinds.query.stages import Stage
from rota.wire.plans import has_code
from rota.wire.plans.tree import Node, exchange_of, read, read_bytes, walk
from rota.wire.queries import EXCHANGE, Answered, Exchange, Gathered, Hashed
from tests.queries import corpus, staged
from tests.queries.staged import NO_BROADCAST, SPLIT_FILES, Stages
from tests.refusals import refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus.write_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def context(folder: Path) -> df.SessionContext:
    made = staged.planner(4, SPLIT_FILES)
    corpus.register(made, folder)
    return made


@pytest.fixture
def exchanging(folder: Path) -> df.SessionContext:
    made = staged.planner(4, (*SPLIT_FILES, *NO_BROADCAST))
    corpus.register(made, folder)
    return made


def stages_of(context: df.SessionContext, sql: str, again_bytes: int = 0) -> tuple[Stage, ...]:
    return cut(context.sql(sql).execution_plan(), context, again_bytes)


def shape(stages: tuple[Stage, ...]) -> list[tuple[Any, ...]]:
    return [(stage.output, stage.tasks, stage.exchanges) for stage in stages]


def test_a_scan_is_one_stage_with_a_task_for_each_group_of_files(context: df.SessionContext):
    (stage,) = stages_of(context, "select id from sales where day > 3")
    assert (stage.id, stage.output, stage.tasks, stage.is_whole) == ("stage-1", Answered(), 4, False)
    assert (stage.exchanges, stage.upstream) == ((), ())
    assert stage.schema.equals(pa.schema([("id", pa.int64())]))


def test_groups_are_counted_in_part_and_then_by_key(context: df.SessionContext):
    stages = stages_of(context, "select shop, count(*) from sales group by shop")
    assert shape(stages) == [(Hashed(4), 4, ()), (Answered(), 4, (Exchange("stage-1", "hash", 4),))]
    assert stages[1].upstream == ("stage-1",)


def test_a_sorted_answer_is_merged_from_sorted_outputs(context: df.SessionContext):
    stages = stages_of(context, "select id, day from sales order by day, id")
    assert shape(stages) == [(Gathered(), 4, ()), (Answered(), 1, (Exchange("stage-1", "merge"),))]
    assert "SortPreservingMergeExec" in lines_of(stages[1])[0]
    assert re.fullmatch(r"Exchange: merge .*\bstage-1", lines_of(stages[1])[1].strip())


def test_a_small_side_is_sent_to_all_tasks(context: df.SessionContext):
    stages = stages_of(context, "select s.id, r.why from sales s join returns r on s.id = r.id")
    assert [stage.output for stage in stages] == [Gathered(), Answered()]
    assert stages[1].exchanges == (Exchange("stage-1", "all"),)
    assert stages[1].tasks == 4
    assert not stages[1].is_whole


def test_a_little_side_is_read_by_every_task_itself(context: df.SessionContext):
    (stage,) = stages_of(context, "select s.id, r.why from sales s join returns r on s.id = r.id", MB)
    assert (stage.tasks, stage.exchanges) == (4, ())


def test_how_little_a_side_must_be_depends_on_how_many_would_read_it(context: df.SessionContext):
    sql = "select s.id, r.why from sales s join returns r on s.id = r.id"
    size = read_bytes(read(context.sql("select id, why from returns").execution_plan().to_bytes()))
    assert size > 0
    assert len(stages_of(context, sql, 3 * size)) == 1
    first, second = stages_of(context, sql, 3 * size - 1)
    assert (first.tasks, second.tasks) == (1, 4), "one task reads it for the others"


@pytest.mark.parametrize(
    "side",
    [
        "(select id, why from returns limit 3)",
        "(select id, why from returns where random() < 0.5)",
        "(select id, uuid() as why from returns)",
        "(select min(id) as id, why from returns group by why)",
        "(select twice(id) as id, why from returns)",
    ],
)
def test_a_side_that_might_come_out_differently_is_read_once(context: df.SessionContext, side: str):
    twice = df.udf(lambda ids: pc.multiply(ids, 2), [pa.int64()], pa.int64(), "immutable", "twice")
    context.register_udf(twice)
    stages = stages_of(context, f"select s.id, r.why from sales s join {side} r on s.id = r.id", MB)  # noqa: S608 - from above
    readers = [stage for stage in stages if b"/returns" in stage.plan]
    assert len(readers) == 1
    assert readers[0] is not stages[-1]


@pytest.mark.parametrize("again_bytes", [0, MB])
@pytest.mark.parametrize("side", ["where random() < 0.5", "where twice(id) > 2"])
def test_a_side_in_one_file_that_might_come_out_differently_is_read_once_too(
    tmp_path: Path, folder: Path, side: str, again_bytes: int
):
    context = staged.planner(4)
    corpus.register(context, folder)
    twice = df.udf(lambda ids: pc.multiply(ids, 2), [pa.int64()], pa.int64(), "immutable", "twice")
    context.register_udf(twice)
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "few.parquet")
    context.register_parquet("few", str(tmp_path / "few.parquet"))
    sql = f"select s.id from sales s join (select id from few {side}) f on s.id = f.id"  # noqa: S608 - from above
    stages = stages_of(context, sql, again_bytes)
    assert stages[-1].tasks > 1
    readers = [stage for stage in stages if b"few.parquet" in stage.plan]
    assert [(stage.tasks, stage.output) for stage in readers] == [(1, Gathered())]


@pytest.mark.parametrize(
    "sql",
    [
        "select s.id, f.id from sales s cross join (select id from returns where id > 0 limit 10) f",
        "select id from sales where price > (select avg(price) from sales where day > 2)",
    ],
)
def test_what_depends_on_the_order_of_others_files_is_done_once_for_all_tasks(exchanging: df.SessionContext, sql: str):
    stages = stages_of(exchanging, sql)
    assert stages[-1].tasks > 1
    last = read(stages[-1].plan)
    for node in walk(last):
        if exchange_of(node) is not None:
            assert stages[-1].exchanges[exchange_of(node) or 0].reading == "all"
    assert not any(node.kind == "aggregate" or _fetch(node) >= 0 for node in walk(last))
    (side,) = (stage for stage in stages if stage.id == stages[-1].exchanges[0].stage)
    assert (side.tasks, side.output) == (1, Gathered())


def _fetch(node: Node) -> int:
    gathering = node.message.coalesce_partitions
    return gathering.fetch if node.kind == "coalesce_partitions" and gathering.HasField("fetch") else -1


@pytest.mark.parametrize("prepare", [cut, whole])
def test_what_writes_files_by_itself_is_not_sent(tmp_path: Path, context: df.SessionContext, prepare: Any):
    sql = f"copy (select id from sales) to '{tmp_path / 'out.parquet'}'"  # noqa: S608 - a folder of ours
    plan = context.sql(sql).execution_plan()
    with pytest.raises(Refused, match=r"query\.unsupported.*write_parquet"):
        prepare(plan, context)


def test_an_answer_of_one_row_from_a_little_table_is_one_task(context: df.SessionContext):
    (stage,) = stages_of(context, "select id from sales order by id limit 3", MB)
    assert stage.tasks == 1


def test_sides_of_a_large_join_are_exchanged_by_key(exchanging: df.SessionContext):
    stages = stages_of(exchanging, "select s.id, r.why from sales s join returns r on s.id = r.id")
    assert [stage.output for stage in stages] == [Hashed(4), Hashed(4), Answered()]
    assert [exchange.reading for exchange in stages[2].exchanges] == ["hash", "hash"]
    assert stages[2].upstream == ("stage-1", "stage-2")


@pytest.mark.parametrize("kind", ["left", "full", "left semi", "left anti"])
def test_a_join_that_remembers_its_little_left_side_is_divided_by_its_keys(context: df.SessionContext, kind: str):
    stages = stages_of(context, f"select t.shop from shops t {kind} join sales s on s.shop = t.shop")  # noqa: S608 - a name of ours
    assert [(stage.tasks, stage.alone) for stage in stages][-1] == (4, "")
    assert [exchange.reading for exchange in stages[-1].exchanges] == ["hash", "hash"]


@pytest.mark.parametrize(
    "sql",
    [
        "select t.shop, s.id from shops t left join sales s on s.shop > t.shop",
        "select t.shop, s.id from shops t full join sales s on s.shop > t.shop",
        "select shop from shops where shop not in (select shop from sales)",
        "select shop from sales where shop not in (select max(shop) from shops)",
    ],
)
def test_a_join_that_has_to_be_one_task_says_why(context: df.SessionContext, sql: str):
    stages = stages_of(context, sql)
    alone = [stage for stage in stages if stage.alone]
    assert [(stage.tasks, stage.is_whole) for stage in alone] == [(1, True)]


def test_what_has_to_be_one_task_does_not_make_one_of_what_is_above(context: df.SessionContext):
    sql = """select s.id, x.n from sales s join (
        select t.shop, count(r.id) n from shops t left join returns r on r.shop > t.shop group by t.shop) x
        on x.shop = s.shop"""
    stages = stages_of(context, sql)
    assert stages[-1].tasks == 4
    assert not stages[-1].is_whole
    assert any(stage.is_whole or stage.tasks == 1 for stage in stages[:-1])


def test_rows_that_were_dealt_out_evenly_stay_where_they_are(context: df.SessionContext):
    sql = "select a.id from places p join sold a on a.shop = p.shop + 1 where p.rooms > 0"
    plan = context.sql(sql).execution_plan()
    for stage in cut(plan, context):
        for node in walk(read(stage.plan)):
            method = node.message.repartition.partitioning.WhichOneof("method") if node.kind == "repartition" else None
            assert method != "round_robin"


def test_tasks_give_no_more_rows_than_are_wanted_of_all(context: df.SessionContext):
    first, _ = stages_of(context, "select id + day as x from sales where day > 2 limit 7")
    assert lines_of(first)[0] == "LocalLimitExec: fetch=7"


def test_stages_come_after_those_that_they_read(exchanging: df.SessionContext):
    for case in corpus.CASES:
        seen: list[str] = []
        for stage in stages_of(exchanging, case.sql):
            assert all(each in seen for each in stage.upstream)
            assert stage.upstream == tuple(exchange.stage for exchange in stage.exchanges)
            seen.append(stage.id)
        assert seen == [f"stage-{number}" for number in range(1, len(seen) + 1)]


def test_exchanges_are_leaves_with_their_number(exchanging: df.SessionContext):
    *_, last = stages_of(exchanging, "select s.id, r.id from sales s join returns r on s.id = r.id")
    scans = [node.message.arrow_scan.conf for node in walk(read(last.plan)) if node.kind == "arrow_scan"]
    names = [{file.path for group in scan.file_groups for file in group.files} for scan in scans]
    assert names == [{f"{EXCHANGE}0"}, {f"{EXCHANGE}1"}]


def test_names_of_columns_may_be_the_same(exchanging: df.SessionContext, tmp_path: Path):
    stages = stages_of(exchanging, "select a.id, b.id from sales a join returns b on a.id = b.id order by a.id")
    assert stages[-1].schema.names == ["id", "id"]
    table = Stages(stages, tmp_path).answer()
    assert table.column_names == ["id", "id"]
    assert table.column(0).equals(table.column(1))


def test_a_schema_is_found_without_running_anything(context: df.SessionContext):
    called: list[int] = []

    def touchy(values: pa.Array) -> pa.Array:
        called.append(len(values))
        raise ValueError("not now")

    make: Any = df.udf
    context.register_udf(make(touchy, [pa.int64()], pa.int64(), "volatile", name="touchy"))
    for sql in (
        "select touchy(count(*)) as x from sales",
        "select touchy(1) as x",
        "select touchy(id) as x from sold",
        "select touchy(max(value)) as x from generate_series(1, 1000000000000)",
    ):
        stages = stages_of(context, sql)
        assert stages[-1].schema.equals(pa.schema([("x", pa.int64())])), sql
    assert called == []


def test_types_stay_what_they_are(exchanging: df.SessionContext, tmp_path: Path):
    sql = """select shop, item, price, count(*) n, [day] l, named_struct('d', day, 'i', item) s,
        arrow_cast(item, 'Dictionary(Int32, Utf8)') d, cast(day as timestamp) t, cast(day as date) e, item is null b,
        interval '1 day' i, cast(item as bytea) y, null z
        from sales group by shop, item, price, day"""
    frame = exchanging.sql(sql)
    table = Stages(cut(frame.execution_plan(), exchanging), tmp_path).answer()
    assert table.schema.types == frame.schema().types
    assert corpus.rows_of(table, False) == corpus.rows_of(frame.to_arrow_table(), False)


def test_tables_may_be_files_of_all_kinds(tmp_path: Path):
    rows = [row for row in corpus.tables()["sales"].drop(["price"]).to_pylist() if row["shop"] is not None]
    table = pa.Table.from_pylist(rows)
    by_shop = ds.partitioning(pa.schema([("shop", pa.int64())]), flavor="hive")
    ds.write_dataset(table, tmp_path / "hive", format="parquet", partitioning=by_shop)
    csv.write_csv(table, tmp_path / "some.csv")
    (tmp_path / "some.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pa.ipc.new_file(str(tmp_path / "some.arrow"), table.schema) as file:
        file.write_table(table, max_chunksize=60)
    context = staged.planner(3, SPLIT_FILES)
    context.register_parquet("hive", f"{tmp_path}/hive/", table_partition_cols=[("shop", pa.int64())])
    context.register_csv("csv", str(tmp_path / "some.csv"))
    context.register_json("json", str(tmp_path / "some.json"))
    context.register_arrow("arrow", str(tmp_path / "some.arrow"))
    for number, sql in enumerate(
        (
            "select shop, count(*), sum(day), min(item) from hive group by shop",
            "select h.shop, c.id, j.item from hive h join csv c on h.id = c.id left join json j on j.id = c.id + 1",
            "select a.shop, count(*) from arrow a join hive h on h.day = a.day and h.shop = a.shop group by a.shop",
        )
    ):
        found = Stages(stages_of(context, sql), tmp_path / str(number)).answer()
        assert corpus.rows_of(found, False) == corpus.rows_of(context.sql(sql).to_arrow_table(), False), sql


def test_a_table_of_arrow_streams_stays_where_it_is(tmp_path: Path):
    table = pa.table({"a": [1, 2]})
    with pa.ipc.new_stream(str(tmp_path / "some.arrow"), table.schema) as file:
        file.write_table(table)
    context = staged.planner(2)
    context.register_arrow("streamed", str(tmp_path / "some.arrow"))
    for refuse in (cut, whole):
        with pytest.raises(Uncut, match="Arrow streams"):
            refuse(context.table("streamed").execution_plan(), context)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (
            "with recursive r as (select 1 x union all select x + 1 from r where x < 5) select * from r",
            "a recursive WITH",
        ),
        ("select shop, count(*) from dataset group by shop", "a pyarrow dataset"),
        ("explain select 1", " ExplainExec "),
    ],
)
def test_what_cannot_be_cut_says_why(sql: str, reason: str, context: df.SessionContext, folder: Path):
    context.register_dataset("dataset", ds.dataset(folder / "sales"))
    with pytest.raises(Uncut, match=reason):
        stages_of(context, sql)


def test_a_plan_that_is_nested_too_deep_for_the_engine_is_not_cut(context: df.SessionContext):
    frame = context.table("sold")
    for number in range(60):
        frame = frame.filter(df.col("id") > number).limit(1000 - number)
    with pytest.raises(Uncut, match="decode physical node"):
        cut(frame.execution_plan(), context)
    with pytest.raises(Uncut, match="decode physical node"):
        whole(frame.execution_plan(), context)


def test_a_plan_may_stay_in_one_piece(context: df.SessionContext, tmp_path: Path):
    sql = "select shop, count(*) n from sales group by shop order by n, shop"
    (stage,) = whole(context.sql(sql).execution_plan(), context)
    assert (stage.tasks, stage.is_whole, stage.output) == (1, True, Answered())
    assert Stages((stage,), tmp_path).answer().to_pylist() == context.sql(sql).to_pylist()


def test_what_cannot_be_sent_cannot_be_sent_in_one_piece_either(context: df.SessionContext, folder: Path):
    context.register_dataset("dataset", ds.dataset(folder / "sales"))
    with pytest.raises(Uncut, match="a pyarrow dataset"):
        whole(context.sql("select * from dataset").execution_plan(), context)


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("select twice(id) from sales", True),
        ("select longest(day) from sales group by shop", True),
        ("select shop, sum(twice(day)) over (partition by shop) from sales", True),
        ("select * from sales where twice(id) > 3 and item <> 'DFPYUDF'", True),
        ("select 'DFPYUDF' as x, item from sales where item like '%DFPYUDA%'", False),
        ("select abs(day), count(*) from sales group by day", False),
    ],
)
def test_functions_of_python_are_noticed(sql: str, wanted: bool, context: df.SessionContext):
    assert any(has_code(stage.plan) for stage in stages_of(context, sql)) == wanted


SINGLE_TASK_JOINS = [
    f"select * from {left} l {kind} join {right} r on l.k {operator} r.k"  # noqa: S608 - names of ours
    for kind in ("inner", "left", "right", "full", "left semi", "left anti", "right semi", "right anti")
    for left in ("memory", "parts")
    for right in ("memory", "file")
    for operator in ("=", "<")
]


@pytest.mark.parametrize(
    "sql", [*SINGLE_TASK_JOINS, "select * from parts l, file r", "select * from memory l, memory r"]
)
def test_every_join_of_one_task_says_why_and_is_refused_by_strict(sql: str, tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2, None, 4], "v": [1, 2, 3, 4]})
    (tmp_path / "parts").mkdir()
    for number in range(3):
        pq.write_table(rows, tmp_path / "parts" / f"{number}.parquet")
    pq.write_table(rows, tmp_path / "file.parquet")
    engine = SqlEngine(dict(PLANNING))
    engine.register_arrow("memory", rows)
    engine.register_path("parts", tmp_path / "parts")
    engine.register_path("file", tmp_path / "file.parquet")
    asked = logical_plan(engine, engine.sql(sql))
    planned = physical_plan(engine, asked, lambda: 3, Wishes(partitions=3))
    joining = [stage for stage in planned.stages if any("Join" in line for line in lines_of(stage))]
    assert joining
    assert [stage.id for stage in joining if stage.tasks == 1 and not stage.alone] == []
    if any(stage.tasks == 1 for stage in joining):
        with refused("query.unstaged"):
            physical_plan(engine, asked, lambda: 3, Wishes(partitions=3, strict=True))
    assert not any(stage.alone for stage in physical_plan(engine, asked, lambda: 1, Wishes(partitions=1)).stages)
