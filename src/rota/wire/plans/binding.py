"""The plan of one attempt: that of its stage with the task's slice of the leaves, and the files of the exchanges.

An engine that is asked for one partition of a plan may wait for the others, or read what belongs to them. So a task
gets a plan that has nothing but its partition in it.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from rota.wire.plans import plan_pb2 as pb
from rota.wire.plans.tree import (
    FILE_SCANS,
    GATHERING,
    THROUGH,
    Node,
    Unsliceable,
    coalesced,
    exchange_of,
    is_broadcasting,
    partitions,
    read,
    scan_of,
    united,
    write,
)
from rota.wire.queries import Exchange


class Piece(Struct, frozen=True, array_like=True):
    """A file of an exchange: for which task it is, in which store (`file:///`, `s3://w3/`) and where in it."""

    part: int
    url: str
    path: str
    bytes: int


# What each task of the producing stage has written.
Source = Sequence[Sequence[Piece]]


def bind(plan: bytes, exchanges: Sequence[Exchange], sources: Sequence[Source], task: int | None) -> bytes:
    """The plan of a stage as one task runs it, or, with None, of a task that runs all of it."""
    root = read(plan)
    binding = _Binding(exchanges, sources)
    if task is None:
        return write(binding.all_of(root))
    return write(binding.slice_of(root, task))


class _Binding:
    def __init__(self, exchanges: Sequence[Exchange], sources: Sequence[Source]) -> None:
        assert len(exchanges) == len(sources), "every exchange has its source"
        self._exchanges = exchanges
        self._sources = sources

    def slice_of(self, root: Node, task: int) -> Node:
        """What a task does of a stage."""
        match root.kind:
            case "repartition":
                # It stays above the slice: the rows of this task, divided among the tasks of the next stage.
                return root.over([self.part_of(root.inputs[0], task)])
            case "scalar_subquery":
                below, *values = root.inputs
                return root.over([self.slice_of(below, task), *map(self.all_of, values)])
            case _:
                return self.part_of(root, task)

    def part_of(self, node: Node, part: int) -> Node:
        """Partition `part` of a node, as the only one."""
        assert 0 <= part < partitions(node), f"a node {node.kind} has no partition {part}"
        match node.kind:
            case kind if kind in FILE_SCANS or not node.inputs:
                exchange = exchange_of(node)
                return _leaf_part(node, part) if exchange is None else self._exchange_part(node, exchange, part)
            case kind if kind in GATHERING:
                return self.all_of(node)
            case "union":
                for each in node.inputs:
                    if part < partitions(each):
                        return self.part_of(each, part)
                    part -= partitions(each)
                raise AssertionError("the partitions of a union are those of its inputs")
            case "interleave":
                return coalesced(united([self.part_of(each, part) for each in node.inputs]))
            case "hash_join" | "sort_merge_join" | "nested_loop_join" | "cross_join":
                left, right = node.inputs
                shared = 0 if is_broadcasting(node) else part
                return node.over([self.part_of(left, shared), self.part_of(right, part)])
            case "scalar_subquery":
                below, *values = node.inputs
                return node.over([self.part_of(below, part), *map(self.all_of, values)])
            case kind if kind in THROUGH:
                return node.over([self.part_of(node.inputs[0], part)])
            case _:
                raise Unsliceable(f"it is not known how a node {node.kind} is divided")

    def all_of(self, node: Node) -> Node:
        """All partitions of a node, with the files of the exchanges below it."""
        exchange = exchange_of(node)
        if exchange is not None:
            return self._exchange_all(node, exchange)
        if node.kind == "interleave":
            # The engine would want to see that its inputs are divided alike, which files do not show.
            return united([self.part_of(node, part) for part in range(partitions(node))])
        return node.over([self.all_of(each) for each in node.inputs])

    def _exchange_part(self, leaf: Node, index: int, part: int) -> Node:
        exchange = self._exchanges[index]
        assert exchange.reading != "merge", "sorted outputs are merged as a whole"
        wanted = part if exchange.reading == "hash" else 0
        return _scan_of_one(leaf, [piece for piece in self._pieces(index) if piece.part == wanted])

    def _exchange_all(self, leaf: Node, index: int) -> Node:
        exchange = self._exchanges[index]
        pieces = list(self._pieces(index))
        match exchange.reading:
            case "all":
                return self._exchange_part(leaf, index, 0)
            case "merge":
                # Each is sorted, and stays by itself for the node above that merges them.
                stores = _by_store(pieces)
                return united([_scan(leaf, url, [[piece] for piece in stores[url]]) for url in stores] or [_scan(leaf)])
            case "hash":
                parts = [[piece for piece in pieces if piece.part == part] for part in range(exchange.parts)]
                urls = list(_by_store(pieces)) or [""]
                if len(urls) == 1:
                    return _scan(leaf, urls[0], parts)
                return united([_scan_of_one(leaf, part) for part in parts])

    def _pieces(self, index: int) -> Iterable[Piece]:
        return (piece for written in self._sources[index] for piece in written)


def _leaf_part(leaf: Node, part: int) -> Node:
    message = pb.PlanNode()
    message.CopyFrom(leaf.message)
    node = Node(leaf.kind, message)
    match leaf.kind:
        case kind if kind in FILE_SCANS:
            groups = scan_of(node).file_groups
            kept = groups[part]
            del groups[:]
            groups.append(kept)
        case "memory_scan":
            kept = leaf.message.memory_scan.partitions[part]
            message.memory_scan.partitions[:] = [kept]
        case "empty":
            message.empty.partitions = 1
        case "placeholder_row":
            message.placeholder_row.partitions = 1
        case "generate_series":
            pass
        case _:
            raise Unsliceable(f"it is not known how a node {leaf.kind} is divided")
    return node


def _scan_of_one(leaf: Node, pieces: Sequence[Piece]) -> Node:
    """All the pieces as one partition."""
    stores = _by_store(pieces)
    scans = [_scan(leaf, url, [stores[url]]) for url in stores] or [_scan(leaf)]
    return scans[0] if len(scans) == 1 else coalesced(united(scans))


def _scan(leaf: Node, url: str = "", groups: Sequence[Sequence[Piece]] = ((),)) -> Node:
    """An exchange leaf that reads these files, one partition for each group of them."""
    message = pb.PlanNode()
    message.CopyFrom(leaf.message)
    conf = message.arrow_scan.conf
    del conf.file_groups[:]
    for pieces in groups:
        files = [pb.File(path=piece.path.lstrip("/"), size=piece.bytes, modified_ns=1) for piece in pieces]
        conf.file_groups.append(pb.FileGroup(files=files))
    if url:
        conf.object_store_url = url
    return Node(leaf.kind, message)


def _by_store(pieces: Iterable[Piece]) -> dict[str, list[Piece]]:
    stores: dict[str, list[Piece]] = {}
    for piece in pieces:
        stores.setdefault(piece.url, []).append(piece)
    return stores
