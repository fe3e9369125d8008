"""Cutting: a physical plan into stages.

A plan is cut where rows change hands: where they are spread by hash, and where several partitions become one. What the
engine keeps in one place for all partitions of a join stays in one task, since tasks do not see each other.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import datafusion as df
import pyarrow as pa

from rota.core.errors import Refused
from rota.kinds.query.proven_plans import has_subquery_value, why_unproven
from rota.kinds.query.schemas import exchange_leaf, mended, schema_of, schema_of_plan, unreadable_column
from rota.kinds.query.sizing import AGAIN_BYTES
from rota.kinds.query.sources import leaves_of, unsent
from rota.kinds.query.stages import Stage
from rota.wire.plans import has_code, has_sink
from rota.wire.plans import plan_pb2 as pb
from rota.wire.plans.tree import (
    FILE_SCANS,
    GATHERING,
    Node,
    Unsliceable,
    exchange_of,
    is_broadcasting,
    partitions,
    read,
    read_bytes,
    united,
    walk,
    write,
)
from rota.wire.queries import EXCHANGE, Answered, Exchange, Gathered, Hashed, Output, Reading

# Why NOT IN is one task.
_OF_ALL_ROWS = "NOT IN has to know of all rows whether there is a NULL among them"
_JOINS = ("cross_join", "hash_join", "nested_loop_join", "sort_merge_join")
# Joins that never have to know which rows of their left side no task has found a partner for.
_ALONE = (pb.INNER, pb.RIGHT, pb.RIGHT_SEMI, pb.RIGHT_ANTI, pb.RIGHT_MARK)

# What gives the same rows each time it is run: no limits, which take what comes first, and no sums, which depend on the
# order of what is added up.
_REPEATABLE = (
    *FILE_SCANS,
    "coalesce_batches",
    "coalesce_partitions",
    "cooperative",
    "cross_join",
    "empty",
    "filter",
    "generate_series",
    "hash_join",
    "memory_scan",
    "nested_loop_join",
    "placeholder_row",
    "projection",
    "union",
)
# Functions of the engine that give something else each time, as a plan has their names: after how long they are.
_VOLATILE = (b"\x06random", b"\x04uuid", b"\x07shuffle")

_NAMED = re.compile(rf"DataSourceExec: .*?{re.escape(EXCHANGE)}(?P<number>\d+).*")


class Uncut(Exception):
    """A plan that cannot be cut, and why; the sentence goes on after "because"."""


def cut(
    plan: df.ExecutionPlan,
    context: df.SessionContext,
    again_bytes: int = AGAIN_BYTES,
    answer: pa.Schema | None = None,
    wanted: int = 1,
) -> tuple[Stage, ...]:
    """The stages of a plan, each after those that it reads; the last one gives the answer.

    `again_bytes` is how much the tasks of a stage may read again rather than have it read for them. `answer` is the
    schema of what the plan gives, where that is known. `wanted` is how many tasks a stage was planned to have: a join
    that is one task all the same says why.
    The plan has to be made with `settings.PLANNING`. `Uncut` if it has to be run in one piece, or where it is.
    """
    content = _proven_bytes_of(plan)
    try:
        return _Cutter(context, again_bytes, answer, wanted).stages_of(mended(read(content)))
    except Unsliceable as error:
        raise Uncut(_unknown(plan) or str(error)) from None


def whole(plan: df.ExecutionPlan, context: df.SessionContext) -> tuple[Stage, ...]:
    """A plan as one stage of one task; `Uncut` if it cannot be sent to another process, or not all of it."""
    content = _proven_bytes_of(plan)
    with _reading():
        try:
            root = mended(read(content))
            content, schema = write(root), schema_of(root, context)
        except Unsliceable:
            schema = schema_of_plan(content, context)
    return (Stage(id="stage-1", plan=content, output=Answered(), schema=schema, is_whole=True),)


def _bytes_of(plan: df.ExecutionPlan) -> bytes:
    if source := unsent(plan):
        raise Uncut(f"{source} cannot be sent to a worker")
    if has_sink(plan):
        # Attempts of tasks would write over each other, and what a failed one wrote would stay.
        text = "COPY and INSERT are not run by workers"
        raise Refused("query.unsupported", text, "Use write_parquet or write_csv of a frame.", path="sql")
    try:
        return plan.to_bytes()
    except Exception as error:
        raise Uncut(_unwritable(plan) or f"it cannot be sent to a worker: {error}") from None


def _proven_bytes_of(plan: df.ExecutionPlan) -> bytes:
    content = _bytes_of(plan)
    if reason := why_unproven(content):
        raise Uncut(_unknown(plan) or reason)
    return content


def _unwritable(plan: df.ExecutionPlan) -> str:
    """Which node it is that cannot be written."""
    for each in plan.children():
        if reason := _unwritable(each):
            return reason
    try:
        plan.to_bytes()
    except Exception:
        leaf = next(leaves_of(plan)) if not plan.children() else None
        return f"{leaf.called if leaf else plan.display().strip().partition(':')[0]} cannot be sent to a worker"
    return ""


def _unknown(plan: df.ExecutionPlan) -> str:
    """Which node it is that we cannot divide, if it is for its kind."""
    if pb.PlanNode.FromString(plan.to_bytes()).WhichOneof("kind") is None:
        return f"it is not known how a {plan.display().strip().partition(':')[0]} is divided among tasks"
    return next(filter(None, map(_unknown, plan.children())), "")


@contextmanager
def _reading() -> Generator[None]:
    try:
        yield
    except Exception as error:
        text = str(error).partition("\n")[0]
        raise Uncut(f"the engine cannot read a part of it again: {text[:200]}") from error


class _Cutter:
    def __init__(self, context: df.SessionContext, again_bytes: int, answer: pa.Schema | None, wanted: int) -> None:
        self._context = context
        self._again_bytes = again_bytes
        self._answer = answer
        self._wanted = wanted
        self._stages: list[Stage] = []
        # All exchanges so far; leaves are numbered by their place here until their stage is complete.
        self._exchanges: list[Exchange] = []
        # Those whose rows the engine takes for sorted: it merges them while it spreads them, or they are of one task.
        self._merged: list[int] = []
        self._from_one: list[int] = []
        # What gives the values of the scalar subqueries that expressions here refer to.
        self._values: Sequence[Node] = ()

    def stages_of(self, root: Node) -> tuple[Stage, ...]:
        self._add(self._cut(root), Answered())
        return tuple(self._stages)

    def _cut(self, node: Node) -> Node:
        """The node with everything below it cut off that other stages do."""
        if node.kind == "scalar_subquery":
            return self._cut_subqueries(node)
        node = _divided(node)
        node = node.over([self._cut(each) for each in node.inputs])
        if node.kind == "sort_preserving_merge" and self._loses_order(node.inputs[0]):
            node = node.over([_sorted_as(node, node.inputs, node.message.sort_preserving_merge.fetch)])
        match kind := node.kind:
            case "repartition":
                return self._cut_repartition(node)
            case "window" | "sort_merge_join" if any(self._loses_order(each, kind == "window") for each in node.inputs):
                raise Uncut("rows have to stay in the order of a table while they are spread")
            case _ if kind in GATHERING and partitions(node.inputs[0]) > 1 and not _shared_by(node.inputs[0]):
                (below,) = node.inputs
                if self._is_little(below):
                    # Whoever reads it does it by itself; if those are several, it is cut off later.
                    return node
                reading: Reading = "all" if kind == "coalesce_partitions" else "merge"
                return node.over([self._exchange(_limited(below, _fetch_of(node)), Gathered(), reading)])
            case _:
                return node

    def _cut_subqueries(self, node: Node) -> Node:
        """Have each scalar subquery computed once, and its value read by all tasks that need it."""
        below, *values = node.inputs
        if all(partitions(each) == 1 for each in walk(node)):
            return node
        values = [self._exchange(self._cut(each), Gathered(), "all") for each in values]
        with self._knowing(values):
            return node.over([self._cut(below), *values])

    @contextmanager
    def _knowing(self, values: Sequence[Node]) -> Generator[None]:
        """Below a node with scalar subqueries, stages are given their values."""
        outer, self._values = self._values, values
        try:
            yield
        finally:
            self._values = outer

    def _valued(self, root: Node) -> Node:
        """The root of a stage with the values that its expressions refer to."""
        if not self._values or not has_subquery_value(write(root)):
            return root
        return Node("scalar_subquery", pb.PlanNode(scalar_subquery=pb.Subqueries()), [root, *self._values])

    def _cut_repartition(self, node: Node) -> Node:
        repartition = node.message.repartition
        match repartition.partitioning.WhichOneof("method"):
            case "hash":
                leaf = self._exchange(node, Hashed(partitions(node)), "hash")
                if repartition.preserve_order:
                    self._merged.append(len(self._exchanges) - 1)
                elif partitions(node.inputs[0]) == 1:
                    self._from_one.append(len(self._exchanges) - 1)
                return leaf
            case "round_robin":
                # It would only give more tasks something to do; a task for each partition that is there is enough.
                return node.inputs[0]
            case _:
                raise Uncut("rows are spread in a way that is not known")

    def _exchange(self, root: Node, output: Output, reading: Reading) -> Node:
        """The leaf that stands for a new stage."""
        stage = self._add(root, output)
        parts = output.parts if isinstance(output, Hashed) else 1
        self._exchanges.append(Exchange(stage.id, reading, parts))
        return exchange_leaf(stage.schema, len(self._exchanges) - 1, parts)

    def _add(self, root: Node, output: Output) -> Stage:
        body = root.inputs[0] if root.kind == "repartition" else root
        tasks, alone = partitions(body), ""
        if tasks > 1:
            alone = _shared_by(body)
            if alone:
                tasks = 1
            else:
                body = self._cut_gathered(body, tasks)
        elif any(_is_not_in(each) and self._reads_tasks(each) for each in walk(body)):
            alone = _OF_ALL_ROWS
        is_whole = bool(alone)
        if tasks == 1 and self._wanted > 1:
            alone = alone or self._why_join_is_alone(body)
        root = root.over([body]) if root.kind == "repartition" else body
        root, exchanges = self._numbered(self._valued(root))
        plan = write(root)
        with _reading():
            if self._answer is not None and isinstance(output, Answered):
                # To find it costs more than all else about a little query; that the plan can be read is seen anyway.
                df.ExecutionPlan.from_bytes(self._context, plan)
                schema = self._answer
            else:
                schema = schema_of(self._valued(body), self._context)
        if unreadable := unreadable_column(schema):
            raise Uncut(f"tasks would have to hand on a {unreadable}")
        stage = Stage(
            id=f"stage-{len(self._stages) + 1}",
            plan=plan,
            output=output,
            schema=schema,
            exchanges=exchanges,
            tasks=tasks,
            is_whole=is_whole,
            alone=alone,
            upstream=tuple(exchange.stage for exchange in exchanges),
        )
        self._stages.append(stage)
        return stage

    def _why_join_is_alone(self, body: Node) -> str:
        """Why a join in a stage of one partition is one task; "" if there is none, or it is little to read."""
        for node in walk(body):
            if node.kind not in _JOINS or self._is_little(node):
                continue
            right = node.inputs[1]
            if _has_exchange(right) or any(each.kind in GATHERING for each in walk(right)):
                return "the right side of a join was gathered in one place before"
            is_in_memory = any(each.kind == "memory_scan" for each in walk(right))
            what = "a table in memory" if is_in_memory else "a source that is not divided, such as one small file"
            return f"the right side of a join is {what}"
        return ""

    def _cut_gathered(self, node: Node, tasks: int) -> Node:
        """Cut off what one task has to do as a whole, and every task of this stage would do again.

        If that is little, and comes out the same each time, doing it again is less than handing it out.
        """
        if node.kind == "scalar_subquery":
            below, *values = node.inputs
            with self._knowing(values):
                return node.over([self._cut_gathered(below, tasks), *values])
        if node.kind not in GATHERING:
            if is_broadcasting(node) and partitions(node) > 1 and _may_differ(node.inputs[0]):
                # Each task would have its own idea of it.
                left, right = node.inputs
                return node.over([self._exchange(left, Gathered(), "all"), self._cut_gathered(right, tasks)])
            return node.over([self._cut_gathered(each, tasks) for each in node.inputs])
        if partitions(node.inputs[0]) == 1 or (self._is_little(node, tasks - 1) and _is_repeatable(node)):
            return node
        leaf = self._exchange(node, Gathered(), "all")
        # What comes of one task is in its order still; but the engine, which may count on it above, cannot see that.
        return _sorted_as(node, [leaf], -1) if node.kind == "sort_preserving_merge" else leaf

    def _is_little(self, node: Node, times: int = 1) -> bool:
        """Whether reading what is below a node, so many times, costs less than a stage of its own.

        What an exchange gives is nobody's to read again.
        """
        if not self._again_bytes or _has_exchange(node):
            return False
        return read_bytes(node) * times <= self._again_bytes

    def _reads_tasks(self, node: Node) -> bool:
        """Whether a node reads what several tasks give."""
        numbers = (exchange_of(each) for each in walk(node))
        read = {self._exchanges[number].stage for number in numbers if number is not None}
        return any(stage.tasks > 1 for stage in self._stages if stage.id in read)

    def _loses_order(self, node: Node, is_told: bool = False) -> bool:
        """Whether rows come out of an exchange in another order than the engine counts on.

        It counts on none if it sorts them above. Rows from one task are still in order, but an engine that is not told
        so groups them by hash, and gives the groups in any order; `is_told`: it has to be told.
        """
        number = exchange_of(node)
        if number is not None:
            return number in self._merged or (is_told and number in self._from_one)
        if node.kind in ("sort", "sort_preserving_merge"):
            return False
        # Joins give rows in the order of the right side, if in any.
        inputs = node.inputs[1:] if node.kind in ("hash_join", "nested_loop_join", "cross_join") else node.inputs
        if node.kind == "scalar_subquery":
            inputs = node.inputs[:1]
        return any(self._loses_order(each, is_told or node.kind == "aggregate") for each in inputs)

    def _numbered(self, root: Node) -> tuple[Node, tuple[Exchange, ...]]:
        """The same with the leaves numbered by their place in the stage, and what they stand for."""
        found: list[Exchange] = []

        def visit(node: Node) -> Node:
            number = exchange_of(node)
            if number is None:
                return node.over([visit(each) for each in node.inputs])
            message = pb.PlanNode()
            message.CopyFrom(node.message)
            for group in message.arrow_scan.conf.file_groups:
                group.files[0].path = f"{EXCHANGE}{len(found)}"
            found.append(self._exchanges[number])
            return Node(node.kind, message)

        return visit(root), tuple(found)


def _is_not_in(node: Node) -> bool:
    return node.kind == "hash_join" and node.message.hash_join.null_aware


def _shared_by(node: Node) -> str:
    """What at or below a node has partitions that know of each other, beyond what they read; "" if nothing."""
    if not node.inputs or node.kind in GATHERING or partitions(node) == 1:
        return ""
    if _is_not_in(node):
        return _OF_ALL_ROWS
    if is_broadcasting(node):
        kind = _join_type(node)
        if kind not in _ALONE:
            name = pb.JoinType.Name(kind).replace("_", " ")
            return f"a {name} join that compares every pair has to know which rows have found no partner"
        return _shared_by(node.inputs[1])
    return next(filter(None, map(_shared_by, node.inputs)), "")


def _divided(node: Node) -> Node:
    """A join whose tasks would share which rows of its left side have a partner, with both sides divided by their keys.

    Joins that do not have to know that send their left side to every task instead.
    """
    if node.kind != "hash_join" or not is_broadcasting(node) or partitions(node) == 1:
        return node
    join = node.message.hash_join
    if join.null_aware or join.join_type in _ALONE:
        return node
    left, right = node.inputs
    if left.kind == "coalesce_partitions" and _fetch_of(left) < 0:
        (left,) = left.inputs
    count = partitions(right)
    message = pb.PlanNode()
    message.CopyFrom(node.message)
    message.hash_join.mode = pb.PARTITIONED
    sides = ((left, [each.left for each in join.keys]), (right, [each.right for each in join.keys]))
    return Node(node.kind, message, [_hashed(side, keys, count) for side, keys in sides])


def _hashed(node: Node, keys: Sequence[bytes], count: int) -> Node:
    """The rows of a node divided by the hash of some expressions."""
    method = pb.Partitioning(hash=pb.HashPartitioning(exprs=keys, partitions=count))
    return Node("repartition", pb.PlanNode(repartition=pb.Repartition(partitioning=method)), [node])


def _is_repeatable(node: Node) -> bool:
    """Whether a part of a plan gives the same rows wherever it is run, in whatever order."""
    if node.kind not in _REPEATABLE or _fetch_of(node) >= 0:
        return False
    return not _has_volatile(node) and all(map(_is_repeatable, node.inputs))


def _may_differ(node: Node) -> bool:
    """Whether tasks that each do a part of a plan may come to something else.

    Files of several workers come in any order: the first ten of their rows are others each time, and their sum may be.
    """
    return any(map(_has_volatile, walk(node))) or (_has_exchange(node) and not _is_repeatable(node))


def _has_exchange(node: Node) -> bool:
    return any(exchange_of(each) is not None for each in walk(node))


def _has_volatile(node: Node) -> bool:
    content = node.message.SerializeToString()
    return has_code(content) or any(name in content for name in _VOLATILE)


def _join_type(node: Node) -> pb.JoinType:
    match node.kind:
        case "hash_join":
            return node.message.hash_join.join_type
        case "nested_loop_join":
            return node.message.nested_loop_join.join_type
        case _:
            return pb.INNER


def _fetch_of(node: Node) -> int:
    """How many rows a node gives at most that gathers; below zero for all."""
    if node.kind == "sort_preserving_merge":
        return node.message.sort_preserving_merge.fetch
    coalesce = node.message.coalesce_partitions
    return coalesce.fetch if node.kind == "coalesce_partitions" and coalesce.HasField("fetch") else -1


def _sorted_as(merge: Node, inputs: Sequence[Node], fetch: int) -> Node:
    """Rows sorted as a merging node has them, at most so many; below zero for all of them."""
    wanted = merge.message.sort_preserving_merge
    sort = pb.Sort(exprs=wanted.exprs, fetch=fetch, preserve_partitioning=True)
    return Node("sort", pb.PlanNode(sort=sort), inputs)


def _limited(node: Node, fetch: int) -> Node:
    """No more rows than the one who reads them takes of all of them."""
    if fetch < 0:
        return node
    return Node("local_limit", pb.PlanNode(local_limit=pb.LocalLimit(fetch=fetch)), [node])


def lines_of(stage: Stage) -> list[str]:
    """What a stage does, as the engine says it, with its exchanges by their names."""
    try:
        content = write(_shown(read(stage.plan)))
    except Unsliceable:
        content = stage.plan
    shown = df.ExecutionPlan.from_bytes(df.SessionContext(), content).display_indent().rstrip("\n").split("\n")
    return [_NAMED.sub(lambda leaf: _named(leaf, stage.exchanges), line) for line in shown]


def _named(leaf: re.Match[str], exchanges: Sequence[Exchange]) -> str:
    exchange = exchanges[int(leaf["number"])]
    return f"Exchange: {exchange.reading} of {exchange.stage}"


def _shown(node: Node) -> Node:
    """The engine does not read nodes that want to see how their inputs are divided."""
    inputs = [_shown(each) for each in node.inputs]
    return united(inputs) if node.kind == "interleave" else node.over(inputs)
