"""A plan as a tree: read node by node, and written again.

A node is known here or it is refused: whoever divides a plan has to know how each of its nodes treats partitions, and a
guess would be rows that are missing or there twice. What is inside a node that we know is kept as it was.
"""

from collections.abc import Iterator, Sequence

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from msgspec import Struct

from rota.wire.plans import plan_pb2 as pb
from rota.wire.queries import EXCHANGE

DEPTH_MAX = 200
FILE_SCANS = ("arrow_scan", "csv_scan", "json_scan", "parquet_scan")
# Their one partition is all that is below them.
GATHERING = ("coalesce_partitions", "sort_preserving_merge")
# Partition p of these is made of partition p of their one input, and of nothing else.
THROUGH = (
    "aggregate",
    "coalesce_batches",
    "cooperative",
    "filter",
    "global_limit",
    "local_limit",
    "projection",
    "sort",
    "unnest",
    "window",
)
# The build side is read as a whole; a partition is made of all of it and of one partition of the other side.
_BROADCASTING = ("cross_join", "nested_loop_join")

_INPUTS: dict[str, tuple[str, ...]] = {
    "cross_join": ("left", "right"),
    "hash_join": ("left", "right"),
    "nested_loop_join": ("left", "right"),
    "sort_merge_join": ("left", "right"),
    "repartition": ("input",),
    "scalar_subquery": ("input",),
    **dict.fromkeys((*THROUGH, *GATHERING), ("input",)),
}
# Nodes with any number of inputs, and where those are after the first ones.
_SEVERAL = {"interleave": "inputs", "scalar_subquery": "subqueries", "union": "inputs"}


class Unsliceable(Exception):
    """A plan that we do not know how to divide, and why."""


class Node(Struct):
    """A node of a plan. `message` has everything but its inputs."""

    kind: str
    message: pb.PlanNode
    inputs: Sequence["Node"] = ()

    def over(self, inputs: Sequence["Node"]) -> "Node":
        """The same node with other inputs."""
        return Node(self.kind, self.message, inputs)


def read(plan: bytes, _depth: int = 0) -> Node:
    """The tree of a plan; `Unsliceable` if there is a node that is not known here."""
    if _depth == DEPTH_MAX:
        raise Unsliceable(f"it is nested more than {DEPTH_MAX} levels deep")
    try:
        message = pb.PlanNode.FromString(plan)
    except DecodeError:
        raise Unsliceable("this is not a physical plan") from None
    kind = message.WhichOneof("kind")
    if kind is None:
        numbers = ", ".join(str(field.field_number) for field in UnknownFieldSet(message))
        raise Unsliceable(f"it is not known how nodes of kind {numbers or '(none)'} divide their partitions")
    body: Message = getattr(message, kind)
    inputs: list[bytes] = []
    for name in _INPUTS.get(kind, ()):
        inputs.append(getattr(body, name))
        body.ClearField(name)
    if name := _SEVERAL.get(kind):
        inputs += getattr(body, name)
        body.ClearField(name)
    return Node(kind, message, [read(each, _depth + 1) for each in inputs])


def write(node: Node) -> bytes:
    """The plan of a tree."""
    if not node.inputs:
        return node.message.SerializeToString()
    message = pb.PlanNode()
    message.CopyFrom(node.message)
    body: Message = getattr(message, node.kind)
    inputs = iter([write(each) for each in node.inputs])
    for name in _INPUTS.get(node.kind, ()):
        setattr(body, name, next(inputs))
    if name := _SEVERAL.get(node.kind):
        getattr(body, name).extend(inputs)
    assert not list(inputs), f"a node {node.kind} has fewer inputs"
    return message.SerializeToString()


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    yield node
    for each in node.inputs:
        yield from walk(each)


def is_broadcasting(node: Node) -> bool:
    """Whether each partition of a join needs all of its left side."""
    if node.kind == "hash_join":
        mode = node.message.hash_join.mode
        if mode not in (pb.COLLECT_LEFT, pb.PARTITIONED):
            raise Unsliceable("a hash join has not been told how its sides are divided")
        return mode == pb.COLLECT_LEFT
    return node.kind in _BROADCASTING


def partitions(node: Node) -> int:
    """How many partitions the node has."""
    message = node.message
    match node.kind:
        case kind if kind in FILE_SCANS:
            return len(scan_of(node).file_groups)
        case "memory_scan":
            return len(message.memory_scan.partitions)
        case "empty":
            return max(1, message.empty.partitions)
        case "placeholder_row":
            return max(1, message.placeholder_row.partitions)
        case "generate_series":
            return 1
        case "repartition":
            method = message.repartition.partitioning
            return method.round_robin if method.WhichOneof("method") == "round_robin" else method.hash.partitions
        case "union":
            return sum(map(partitions, node.inputs))
        case kind if kind in GATHERING:
            return 1
        case _ if is_broadcasting(node):
            left, right = node.inputs
            if partitions(left) != 1:
                raise Unsliceable("a join that reads all of its left side finds it in several partitions")
            return partitions(right)
        case "hash_join" | "sort_merge_join" | "interleave":
            first, *others = map(partitions, node.inputs)
            if any(each != first for each in others):
                raise Unsliceable(f"the inputs of a node {node.kind} are not divided alike")
            return first
        case kind if kind in THROUGH or kind == "scalar_subquery":
            return partitions(node.inputs[0])
        case _:
            raise Unsliceable(f"it is not known how nodes of kind {node.kind} divide their partitions")


def scan_of(node: Node) -> pb.ScanConf:
    """What a scan of files reads."""
    scan: pb.FileScan = getattr(node.message, node.kind)
    return scan.conf


def exchange_of(node: Node) -> int | None:
    """The number of the exchange that a leaf stands for, if it is one."""
    if node.kind != "arrow_scan":
        return None
    paths = [file.path for group in node.message.arrow_scan.conf.file_groups for file in group.files]
    number = paths[0].removeprefix(EXCHANGE) if paths else ""
    if not number.isdecimal() or any(path != f"{EXCHANGE}{number}" for path in paths):
        return None
    return int(number)


def coalesced(node: Node) -> Node:
    """All partitions of a node as one, in any order."""
    return Node("coalesce_partitions", pb.PlanNode(coalesce_partitions=pb.Coalesce()), [node])


def united(nodes: Sequence[Node]) -> Node:
    """The partitions of all these nodes, one after the other."""
    return nodes[0] if len(nodes) == 1 else Node("union", pb.PlanNode(union=pb.Many()), nodes)


def scanned_bytes(plan: bytes) -> int:
    """How much a plan reads from files and brings along; 0 if there is a node that is not known."""
    try:
        return read_bytes(read(plan))
    except Unsliceable:
        return 0


def read_bytes(node: Node) -> int:
    """How much the leaves at and below a node read, of the columns that are wanted; exchanges are not counted."""
    return sum(map(_leaf_bytes, walk(node)))


def _leaf_bytes(node: Node) -> int:
    if node.kind == "memory_scan":
        return sum(map(len, node.message.memory_scan.partitions))
    if node.kind not in FILE_SCANS or exchange_of(node) is not None:
        return 0
    conf = scan_of(node)
    wanted = _column_bytes(conf)
    return sum(_file_bytes(file) for group in conf.file_groups for file in group.files) if wanted is None else wanted


def _column_bytes(conf: pb.ScanConf) -> int | None:
    """How large the columns are that a scan gives, if the engine knows."""
    known = conf.statistics.columns
    found = 0
    for each in conf.projection_exprs.exprs:
        index = each.expr.column.index
        if not each.expr.HasField("column") or index >= len(known) or not known[index].bytes.value.HasField("number"):
            return None
        found += known[index].bytes.value.number
    return found if conf.HasField("projection_exprs") else None


def _file_bytes(file: pb.File) -> int:
    return file.range.end - file.range.start if file.HasField("range") else file.size
