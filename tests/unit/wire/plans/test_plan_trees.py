"""Plans as trees: what is read is written again, and what is not known is refused."""

from pathlib import Path

import datafusion as df
import pytest

from rota.wire.plans import plan_pb2 as pb
from rota.wire.plans.tree import DEPTH_MAX, Node, Unsliceable, partitions, read, scanned_bytes, walk, write
from tests.queries import corpus, staged
from tests.queries.staged import NO_BROADCAST, SORT_MERGE, SPLIT_FILES


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> df.SessionContext:
    made = staged.planner(5, (*SPLIT_FILES, *NO_BROADCAST, *SORT_MERGE))
    corpus.register(made, corpus.write_tables(tmp_path_factory.mktemp("tables")))
    return made


def test_what_is_read_and_written_is_the_same_plan(context: df.SessionContext):
    for case in corpus.CASES:
        content = context.sql(case.sql).execution_plan().to_bytes()
        # The engine itself does not always write what it has read.
        wanted = df.ExecutionPlan.from_bytes(context, content).to_bytes()
        assert df.ExecutionPlan.from_bytes(context, write(read(content))).to_bytes() == wanted, case.name


def test_partitions_are_counted_as_the_engine_counts_them(context: df.SessionContext):
    def compare(node: Node, plan: df.ExecutionPlan) -> None:
        assert partitions(node) == plan.partition_count, plan.display()
        for below, child in zip(node.inputs, plan.children(), strict=True):
            compare(below, child)

    for case in corpus.CASES:
        plan = context.sql(case.sql).execution_plan()
        compare(read(plan.to_bytes()), plan)


def test_fields_that_are_not_known_are_kept():
    # A field of a node, one of a node's scan, and one beside the node, all with numbers that nobody uses.
    inner = pb.ScanConf(object_store_url="file:///").SerializeToString() + b"\xfa\x3e\x03abc"
    scan = b"\x0a" + bytes([len(inner)]) + inner + b"\xf8\x3e\x07"
    content = b"\x0a" + bytes([len(scan)]) + scan + b"\xf8\x3e\x09"
    node = read(content)
    assert node.kind == "parquet_scan"
    node.message.parquet_scan.conf.object_store_url = "s3://b/"
    written = write(node)
    assert b"s3://b/" in written
    for kept in (b"\xfa\x3e\x03abc", b"\xf8\x3e\x07", b"\xf8\x3e\x09"):
        assert kept in written
    assert write(read(written)) == written


def test_a_plan_may_be_deeper_than_messages_may_be():
    content = pb.PlanNode(placeholder_row=pb.Rowless(schema=b"", partitions=1)).SerializeToString()
    for _ in range(DEPTH_MAX - 1):
        content = pb.PlanNode(filter=pb.Single(input=content)).SerializeToString()
    tree = read(content)
    assert sum(1 for _ in walk(tree)) == DEPTH_MAX
    assert write(tree) == content
    with pytest.raises(Unsliceable, match="more than 200 levels deep"):
        read(pb.PlanNode(filter=pb.Single(input=content)).SerializeToString())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xea\x02\x00", "nodes of kind 45 "),
        (b"", r"nodes of kind \(none\)"),
        (b"\x0a\x7f", "a physical plan"),
        (b"rows", "a physical plan"),
        (pb.PlanNode(filter=pb.Single(input=b"\xea\x02\x00")).SerializeToString(), "nodes of kind 45 "),
    ],
)
def test_what_is_not_known_is_refused(content: bytes, reason: str):
    with pytest.raises(Unsliceable, match=reason):
        read(content)


def leaf(count: int) -> Node:
    return Node("empty", pb.PlanNode(empty=pb.Rowless(schema=b"", partitions=count)))


@pytest.mark.parametrize(
    "join",
    [
        Node("hash_join", pb.PlanNode(hash_join=pb.HashJoin(mode=pb.PARTITIONED)), [leaf(2), leaf(3)]),
        Node("hash_join", pb.PlanNode(hash_join=pb.HashJoin(mode=pb.COLLECT_LEFT)), [leaf(2), leaf(3)]),
        Node("hash_join", pb.PlanNode(hash_join=pb.HashJoin(mode=pb.AUTO)), [leaf(1), leaf(3)]),
        Node("nested_loop_join", pb.PlanNode(nested_loop_join=pb.NestedLoopJoin()), [leaf(2), leaf(2)]),
        Node("sort_merge_join", pb.PlanNode(sort_merge_join=pb.Pair()), [leaf(2), leaf(1)]),
        Node("interleave", pb.PlanNode(interleave=pb.Many()), [leaf(2), leaf(1)]),
    ],
    ids=lambda join: join.kind,
)
def test_sides_that_do_not_fit_are_refused(join: Node):
    with pytest.raises(Unsliceable):
        partitions(join)


def test_what_is_read_is_measured(context: df.SessionContext, tmp_path: Path):
    path = tmp_path / "some.csv"
    path.write_text("a,b\n" + "1,2\n" * 500)
    context.register_csv("measured", str(path))
    once = path.stat().st_size
    assert scanned_bytes(context.sql("select a from measured where b > 1").execution_plan().to_bytes()) == once
    twice = "select x.a from measured x join measured y on x.a = y.b"
    assert scanned_bytes(context.sql(twice).execution_plan().to_bytes()) == 2 * once
    assert scanned_bytes(context.sql("select * from sold").execution_plan().to_bytes()) > 5_000, "it travels along"
    assert scanned_bytes(b"\xea\x02\x00") == 0
