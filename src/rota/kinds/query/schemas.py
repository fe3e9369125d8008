"""Schemas: that of a plan, which the engine does not tell, and the leaf that reads rows of a schema from an exchange.

The engine writes both down by itself; we never encode a type.
"""

from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import datafusion as df
import pyarrow as pa

from rota.wire.plans import plan_pb2 as pb
from rota.wire.plans.tree import FILE_SCANS, Node, Unsliceable, scan_of, write
from rota.wire.queries import EXCHANGE

# Types that the engine has, and Arrow's Python library has no values of.
_UNREADABLE = {
    pa.lib.Type_INTERVAL_MONTHS: "an Interval(YearMonth)",  # pyright: ignore[reportAttributeAccessIssue] - not in the stubs
    pa.lib.Type_INTERVAL_DAY_TIME: "an Interval(DayTime)",  # pyright: ignore[reportAttributeAccessIssue] - not in the stubs
}


def schema_of(root: Node, context: df.SessionContext) -> pa.Schema:
    """The schema of what a plan gives, found without running it or looking at a file."""
    return schema_of_plan(write(_hollow(root)), context)


def schema_of_plan(plan: bytes, context: df.SessionContext) -> pa.Schema:
    """The same for a plan that we cannot read. Parts of it may begin to run, and are stopped at once."""
    # A row of no columns is joined with no row of the plan, and so is given with nulls in all its columns. The left
    # side of the inner join is empty: the engine never asks the plan for a row.
    empty = pb.PlanNode(empty=pb.Rowless(schema=b"", partitions=1)).SerializeToString()
    row = pb.PlanNode(placeholder_row=pb.Rowless(schema=b"", partitions=1)).SerializeToString()
    none = pb.PlanNode(cross_join=pb.Pair(left=empty, right=plan)).SerializeToString()
    outer = pb.PlanNode(nested_loop_join=pb.NestedLoopJoin(left=row, right=none, join_type=pb.LEFT))
    (batch,) = context.execute(df.ExecutionPlan.from_bytes(context, outer.SerializeToString()), 0)
    return batch.to_pyarrow().schema


def _hollow(node: Node) -> Node:
    """The same plan without rows, in one partition."""
    if node.kind in ("union", "interleave"):
        return _hollow(node.inputs[0])
    if node.inputs:
        return node.over([_hollow(each) for each in node.inputs])
    message = pb.PlanNode()
    match node.kind:
        case "empty" | "placeholder_row" | "generate_series":
            schema: bytes = getattr(node.message, node.kind).schema
            return Node("empty", pb.PlanNode(empty=pb.Rowless(schema=schema, partitions=1)))
        case "memory_scan":
            message.CopyFrom(node.message)
            message.memory_scan.partitions[:] = [b""]
            return Node(node.kind, message)
        case kind:
            assert kind in FILE_SCANS, f"a leaf {kind} that the tree knows and this does not"
            message.CopyFrom(node.message)
            conf = scan_of(Node(kind, message))
            del conf.file_groups[:]
            conf.file_groups.add()
            return Node(kind, message)


def unreadable_column(schema: pa.Schema) -> str:
    """The first column whose values Arrow's Python library cannot hold, with its type for people; "" if none is."""
    for field in schema:
        if kind := _unreadable(field.type):
            return f"column {field.name!r}, which is {kind}"
    return ""


def _unreadable(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        return _unreadable(kind.value_type)
    inner = (_unreadable(kind.field(number).type) for number in range(kind.num_fields))
    return _UNREADABLE.get(kind.id) or next(filter(None, inner), "")


def mended(node: Node) -> Node:
    """The same plan, where the engine wrote down less than it has to know.

    A series that is only counted is written without its column, and read as one that gives rows of another form.
    """
    if node.kind != "generate_series" or node.message.generate_series.schema:
        return node.over([mended(each) for each in node.inputs])
    if not node.message.generate_series.HasField("numbers"):
        raise Unsliceable("a series of times whose values nobody reads cannot be sent to a worker")
    message = pb.PlanNode()
    message.CopyFrom(node.message)
    message.generate_series.schema = _series_schema()
    return Node("projection", pb.PlanNode(projection=pb.Single()), [Node(node.kind, message)])


@cache
def _series_schema() -> bytes:
    plan = _bare().sql("select value from generate_series(1, 1)").execution_plan()
    return pb.PlanNode.FromString(plan.to_bytes()).generate_series.schema


def exchange_leaf(schema: pa.Schema, number: int, partitions: int) -> Node:
    """The leaf that stands for an exchange of rows with that schema.

    Columns of an exchange have the names c0, c1 and so on, since theirs need not be unique, and get their names back
    here. Rows without columns have one, so that they can be counted.
    """
    scan = pb.FileScan()
    scan.CopyFrom(_scan_of_types(tuple(schema.types)))
    exprs = [
        pb.ProjectionExpr(alias=name, expr=pb.Expr(column=pb.Column(name=f"c{index}", index=index)))
        for index, name in enumerate(schema.names)
    ]
    scan.conf.projection_exprs.CopyFrom(pb.ProjectionExprs(exprs=exprs))
    group = pb.FileGroup(files=[pb.File(path=f"{EXCHANGE}{number}")])
    scan.conf.file_groups.extend([group] * partitions)
    return Node("arrow_scan", pb.PlanNode(arrow_scan=scan))


@lru_cache(maxsize=1024)
def _scan_of_types(types: tuple[pa.DataType, ...]) -> pb.FileScan:
    """How the engine writes down the scan of a file that has columns of these types."""
    fields = [pa.field(f"c{index}", kind) for index, kind in enumerate(types)] or [pa.field("c0", pa.int8())]
    with TemporaryDirectory(prefix="rota-") as folder:
        path = Path(folder) / "leaf.arrow"
        with pa.ipc.new_file(str(path), pa.schema(fields)):
            pass
        plan = _bare().read_arrow(str(path)).execution_plan().to_bytes()
    scan = pb.PlanNode.FromString(plan).arrow_scan
    del scan.conf.file_groups[:]
    return scan


@cache
def _bare() -> df.SessionContext:
    return df.SessionContext()
