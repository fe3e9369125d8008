"""The plan of an attempt: its slice of the leaves, the files of exchanges, and nothing that belongs to others."""

from pathlib import Path

import datafusion as df
import pyarrow as pa
import pytest

from rota.kinds.query.cutting import cut
from rota.kinds.query.schemas import exchange_leaf
from rota.wire.plans import plan_pb2 as pb
from rota.wire.plans.binding import Piece, bind
from rota.wire.plans.tree import Node, Unsliceable, coalesced, partitions, read, scan_of, united, walk, write
from rota.wire.queries import Exchange
from tests.queries import corpus, staged
from tests.queries.staged import SPLIT_FILES

SCHEMA = pa.schema([("a", pa.int64()), ("a", pa.string())])
HASH = Exchange("stage-1", "hash", 3)
ALL = Exchange("stage-1", "all")
MERGE = Exchange("stage-1", "merge")


def leaf(exchange: Exchange) -> Node:
    return exchange_leaf(SCHEMA, 0, exchange.parts)


def files_of(plan: bytes) -> list[list[list[str]]]:
    """The paths in each group of each scan."""
    scans = [scan_of(node) for node in walk(read(plan)) if node.kind == "arrow_scan"]
    return [[[file.path for file in group.files] for group in scan.file_groups] for scan in scans]


def kinds_of(plan: bytes) -> list[str]:
    return [node.kind for node in walk(read(plan))]


def pieces(*parts: int, task: int, url: str = "file:///") -> list[Piece]:
    return [Piece(part, url, f"/x/t{task}/p{part}.arrow", 10) for part in parts]


SOURCE = [pieces(0, 1, task=0), pieces(1, 2, task=1), pieces(task=2)]
SPREAD = [pieces(0, 1, task=0, url="s3://w0/"), pieces(1, 2, task=1, url="s3://w1/"), pieces(task=2)]


@pytest.mark.parametrize(
    ("task", "wanted"),
    [
        (0, [["x/t0/p0.arrow"]]),
        (1, [["x/t0/p1.arrow", "x/t1/p1.arrow"]]),
        (2, [["x/t1/p2.arrow"]]),
        (None, [["x/t0/p0.arrow"], ["x/t0/p1.arrow", "x/t1/p1.arrow"], ["x/t1/p2.arrow"]]),
    ],
)
def test_a_task_reads_its_part_of_every_output(task: int | None, wanted: list[list[str]]):
    assert files_of(bind(write(leaf(HASH)), [HASH], [SOURCE], task)) == [wanted]


def test_outputs_in_several_places_are_read_by_a_scan_each():
    plan = bind(write(leaf(HASH)), [HASH], [SPREAD], 1)
    assert kinds_of(plan) == ["coalesce_partitions", "union", "arrow_scan", "arrow_scan"]
    assert files_of(plan) == [[["x/t0/p1.arrow"]], [["x/t1/p1.arrow"]]]
    urls = [scan_of(node).object_store_url for node in walk(read(plan)) if node.kind == "arrow_scan"]
    assert urls == ["s3://w0/", "s3://w1/"]
    whole = bind(write(leaf(HASH)), [HASH], [SPREAD], None)
    assert partitions(read(whole)) == 3
    assert kinds_of(whole).count("coalesce_partitions") == 1, "only where one partition is in two places"


def test_all_of_an_output_is_one_partition():
    source = [pieces(0, task=0), pieces(0, task=1), pieces(task=2)]
    assert files_of(bind(write(leaf(ALL)), [ALL], [source], 0)) == [[["x/t0/p0.arrow", "x/t1/p0.arrow"]]]


def test_sorted_outputs_are_merged_one_by_one_wherever_they_are():
    merge = pb.PlanNode(sort_preserving_merge=pb.Merge(fetch=-1))
    template = write(Node("sort_preserving_merge", merge, [leaf(MERGE)]))
    near = [pieces(0, task=0), pieces(0, task=1)]
    assert files_of(bind(template, [MERGE], [near], 0)) == [[["x/t0/p0.arrow"], ["x/t1/p0.arrow"]]]
    far = [*near, pieces(0, task=2, url="s3://w2/")]
    plan = bind(template, [MERGE], [far], 0)
    assert files_of(plan) == [[["x/t0/p0.arrow"], ["x/t1/p0.arrow"]], [["x/t2/p0.arrow"]]]
    assert kinds_of(plan) == ["sort_preserving_merge", "union", "arrow_scan", "arrow_scan"]


@pytest.mark.parametrize("exchange", [HASH, ALL, MERGE], ids=lambda exchange: exchange.reading)
def test_an_output_without_rows_is_read_as_none(exchange: Exchange):
    template = leaf(exchange)
    if exchange is MERGE:
        merge = pb.PlanNode(sort_preserving_merge=pb.Merge(fetch=-1))
        template = Node("sort_preserving_merge", merge, [template])
    plan = bind(write(template), [exchange], [[[], []]], 0)
    assert files_of(plan) == [[[]]], "one partition that has nothing in it"


def test_columns_get_their_names_back():
    scan = scan_of(read(bind(write(leaf(ALL)), [ALL], [[]], 0)))
    columns = [(each.alias, each.expr.column.name, each.expr.column.index) for each in scan.projection_exprs.exprs]
    assert columns == [("a", "c0", 0), ("a", "c1", 1)]


def test_slices_of_a_scan_read_every_row_once(tmp_path: Path):
    context = staged.planner(5, SPLIT_FILES)
    corpus.register(context, corpus.write_tables(tmp_path / "tables"))
    for table in ("sales", "sold", "days"):
        (stage,) = cut(context.table(table).select("id").execution_plan(), context)
        assert stage.tasks > 1
        found: list[int] = []
        for task in range(stage.tasks):
            plan = df.ExecutionPlan.from_bytes(context, bind(stage.plan, (), (), task))
            assert plan.partition_count == 1
            found += (row for batch in context.execute(plan, 0) for row in batch.to_pyarrow().column(0).to_pylist())
        assert sorted(found) == list(range(400)), table


def test_a_slice_does_not_carry_the_rows_of_others():
    context = staged.planner(4)
    batch = pa.record_batch({"a": list(range(50_000))})
    context.register_record_batches("big", [[batch.slice(start, 10_000)] for start in range(0, 50_000, 10_000)])
    (stage,) = cut(context.sql("select a from big").execution_plan(), context)
    assert stage.tasks == 5
    assert len(bind(stage.plan, (), (), 3)) < len(stage.plan) / 4


def nothing(count: int) -> Node:
    return Node("empty", pb.PlanNode(empty=pb.Rowless(schema=b"", partitions=count)))


def test_a_partition_of_a_union_is_one_of_the_input_that_has_it():
    one = Node("filter", pb.PlanNode(filter=pb.Single()), [nothing(2)])
    two = Node("projection", pb.PlanNode(projection=pb.Single()), [nothing(3)])
    template = write(united([one, two]))
    wanted = [["filter", "empty"]] * 2 + [["projection", "empty"]] * 3
    assert [kinds_of(bind(template, (), (), task)) for task in range(5)] == wanted


def test_an_interleaved_partition_is_made_of_those_of_all_inputs():
    template = write(Node("interleave", pb.PlanNode(interleave=pb.Many()), [nothing(2), nothing(2)]))
    assert kinds_of(bind(template, (), (), 1)) == ["coalesce_partitions", "union", "empty", "empty"]
    assert partitions(read(bind(template, (), (), None))) == 2


def test_each_task_of_a_broadcast_join_has_all_of_the_left_side_and_its_part_of_the_right_one():
    join = pb.PlanNode(nested_loop_join=pb.NestedLoopJoin(join_type=pb.INNER))
    template = write(Node("nested_loop_join", join, [coalesced(nothing(4)), nothing(3)]))
    left, right = read(bind(template, (), (), 2)).inputs
    assert (left.kind, partitions(left.inputs[0]), partitions(right)) == ("coalesce_partitions", 4, 1)


def test_a_task_that_is_not_there_is_a_mistake_of_ours():
    with pytest.raises(AssertionError, match="has no partition 3"):
        bind(write(nothing(3)), (), (), 3)


def test_rows_are_spread_above_a_slice_and_nowhere_else():
    spread = pb.PlanNode(
        repartition=pb.Repartition(partitioning=pb.Partitioning(hash=pb.HashPartitioning(partitions=4)))
    )
    above = Node("repartition", spread, [nothing(3)])
    bound = read(bind(write(above), (), (), 2))
    assert (bound.kind, partitions(bound), partitions(bound.inputs[0])) == ("repartition", 4, 1)
    with pytest.raises(Unsliceable, match="repartition"):
        bind(write(Node("filter", pb.PlanNode(filter=pb.Single()), [above])), (), (), 2)
