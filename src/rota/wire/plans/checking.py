"""Whether the installed engine writes plans as we read them.

Known little queries are planned, and each of our fields is looked for in what comes out. A number that has moved would
otherwise be a slice that was not made, or an exchange that stays empty: wrong rows, and nobody to notice.
"""

from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import datafusion as df
import pyarrow as pa

from rota.core.errors import Refused
from rota.wire.plans import plan_pb2 as pb
from rota.wire.plans.binding import bind
from rota.wire.plans.code import has_code
from rota.wire.plans.tree import Node, Unsliceable, partitions, read, scan_of, scanned_bytes, walk, write

# The engine that is installed, as fragments name it.
ENGINE = f"datafusion {version('datafusion')}"

_PARTITIONS = 5
_FILE_BYTES = 100
_ROWS = 1_000
_SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])
# How the engine calls our kinds of nodes. Scans are told apart by what they say about their files.
_NAMES = {
    "aggregate": ("AggregateExec",),
    "arrow_scan": ("DataSourceExec",),
    "coalesce_batches": ("CoalesceBatchesExec",),
    "coalesce_partitions": ("CoalescePartitionsExec",),
    "cooperative": ("CooperativeExec",),
    "cross_join": ("CrossJoinExec",),
    "csv_scan": ("DataSourceExec",),
    "empty": ("EmptyExec",),
    "filter": ("FilterExec",),
    "generate_series": ("LazyMemoryExec",),
    "global_limit": ("GlobalLimitExec",),
    "hash_join": ("HashJoinExec",),
    "interleave": ("InterleaveExec",),
    "json_scan": ("DataSourceExec",),
    "local_limit": ("LocalLimitExec",),
    "memory_scan": ("DataSourceExec",),
    "nested_loop_join": ("NestedLoopJoinExec",),
    "parquet_scan": ("DataSourceExec",),
    "placeholder_row": ("PlaceholderRowExec",),
    "projection": ("ProjectionExec",),
    "repartition": ("RepartitionExec",),
    "scalar_subquery": ("ScalarSubqueryExec",),
    "sort": ("SortExec",),
    "sort_merge_join": ("SortMergeJoinExec",),
    "sort_preserving_merge": ("SortPreservingMergeExec",),
    "union": ("UnionExec",),
    "unnest": ("UnnestExec",),
    "window": ("BoundedWindowAggExec", "WindowAggExec"),
}


@cache
def check_engine() -> None:
    """Refuse an engine whose plans we would misread. It takes a moment, once in a process."""
    try:
        with TemporaryDirectory(prefix="rota-") as folder:
            _Check(Path(folder)).run()
    except (KeyboardInterrupt, SystemExit, OSError):
        raise
    except BaseException as error:
        # A panic of the engine is not an Exception.
        what = str(error).partition("\n")[0]
        if not isinstance(error, _Differs):
            what = f"a plan cannot be read again: {what}"
        reason = f"{ENGINE} writes plans in another way than this version of Rota reads them: {what}"
        hint = "Install the engine that rota[query] names: pip install --force-reinstall 'rota[query]'."
        raise Refused("query.engine", reason, hint) from None


class _Differs(Exception):
    """What is not where it should be."""


def _expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise _Differs(f"{what} should be {wanted!r} and is read as {found!r}")


class _Check:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plain = self._context()
        self._seen: dict[str, None] = {}

    def run(self) -> None:
        self._check_scans()
        self._check_sizes()
        self._check_nodes()
        self._check_joins()
        self._check_made()
        self._check_code()
        kinds = [field.name for field in pb.PlanNode.DESCRIPTOR.fields]
        _expect("the kinds of nodes that were tried", sorted(self._seen), sorted(kinds))

    # Plans.

    def _context(self, *settings: tuple[str, str]) -> df.SessionContext:
        """A context with tables of files that nobody opens, and of batches in memory."""
        config = df.SessionConfig().with_target_partitions(_PARTITIONS)
        config = config.set("datafusion.execution.collect_statistics", "false")
        for name, value in (("repartition_file_min_size", "1"), *settings):
            config = config.set(f"datafusion.optimizer.{name}", value)
        context = df.SessionContext(config)
        for kind in ("parquet", "csv", "json"):
            getattr(context, f"register_{kind}")(kind, self._files(kind), schema=_SCHEMA)
        order = [[df.col("a").sort(ascending=True)]]
        context.register_parquet("ordered", self._files("parquet"), schema=_SCHEMA, file_sort_order=order)
        batch = pa.RecordBatch.from_pylist([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], schema=_SCHEMA)
        context.register_record_batches("three", [[batch]] * 3)
        context.register_record_batches("one", [[batch]])
        return context

    def _files(self, kind: str) -> str:
        folder = self._folder / kind
        if not folder.exists():
            folder.mkdir()
            for number in range(2):
                (folder / f"{number}.{kind}").write_bytes(b"-" * _FILE_BYTES)
        return f"{folder}/"

    def _nodes(self, sql: str, context: df.SessionContext | None = None) -> dict[str, Node]:
        """The nodes of a query by their kinds, the lowest of each; and that they are read as they were written."""
        context = context or self._plain
        plan = context.sql(sql).execution_plan()
        content = plan.to_bytes()
        try:
            tree = read(content)
        except Unsliceable as error:
            raise _Differs(f"in {sql!r}, {error}") from None
        self._compare(sql, tree, plan)
        again = df.ExecutionPlan.from_bytes(context, write(tree))
        _expect(f"what is left of {sql!r} after it was read and written", again.to_bytes(), content)
        return {node.kind: node for node in walk(tree)}

    def _compare(self, sql: str, node: Node, plan: df.ExecutionPlan) -> None:
        self._seen[node.kind] = None
        name = plan.display().strip().partition(":")[0]
        if name not in _NAMES[node.kind]:
            raise _Differs(f"in {sql!r}, a node {name} is read as {node.kind}")
        children = plan.children()
        _expect(f"in {sql!r}, the number of inputs of {name}", len(node.inputs), len(children))
        _expect(f"in {sql!r}, the number of partitions of {name}", partitions(node), plan.partition_count)
        for below, child in zip(node.inputs, children, strict=True):
            self._compare(sql, below, child)

    def _check_scans(self) -> None:
        for kind, sql in (
            ("parquet", "select b as c, a from parquet"),
            ("csv", "select b as c, a from csv"),
            ("json", "select b as c, a from json"),
        ):
            scan = scan_of(self._nodes(sql)[f"{kind}_scan"])
            first, path = scan.file_groups[0].files[0], Path(self._files(kind), f"0.{kind}")
            _expect(f"the path of a {kind} file", first.path, str(path).lstrip("/"))
            _expect(f"the size of a {kind} file", first.size, _FILE_BYTES)
            _expect(f"when a {kind} file was changed", first.modified_ns, path.stat().st_mtime_ns)
            ranges = (first.range.start, first.range.end, scan.file_groups[1].files[0].range.start)
            _expect(f"which bytes of a {kind} file are read", ranges, (0, 40, 40))
            _expect(f"the store of a {kind} file", scan.object_store_url, "file:///")
            columns = [
                (each.alias, each.expr.column.name, each.expr.column.index) for each in scan.projection_exprs.exprs
            ]
            _expect(f"the columns of a {kind} file", columns, [("c", "b", 1), ("a", "a", 0)])
        parquet = str(Path(self._files("parquet"), "0.parquet"))
        logical = self._plain.read_parquet(parquet, schema=_SCHEMA).logical_plan().to_bytes(self._plain)
        paths = list(pb.LogicalNode.FromString(logical).listing.paths)
        _expect("the paths in a logical plan", [path.removeprefix("file://") for path in paths], [parquet])
        path = self._folder / "real.arrow"
        with pa.ipc.new_file(str(path), _SCHEMA):
            pass
        self._plain.register_arrow("arrow", str(path))
        leaf = self._nodes("select b as c from arrow")["arrow_scan"]
        _expect("the path of an arrow file", scan_of(leaf).file_groups[0].files[0].path, str(path).lstrip("/"))

    def _check_sizes(self) -> None:
        """How large a column is, as far as the engine says so."""
        path = self._folder / "sized.parquet"
        table = pa.table({"a": pa.nulls(_ROWS, pa.string()), "b": pa.array(range(_ROWS))})
        context = df.SessionContext()
        context.from_arrow(table).write_parquet(str(path))
        context.register_parquet("sized", str(path))
        plan = context.sql("select b from sized").execution_plan().to_bytes()
        _expect("the size of a column of a parquet file", scanned_bytes(plan), 8 * _ROWS)

    def _check_nodes(self) -> None:
        self._nodes("select a, count(*) from three where a > 1 group by a")
        for sql in (
            "select * from three, one",
            "select a from three union all select a from csv",
            "select sum(a) over (partition by b order by a) from three",
            "select sum(a) over () from three",
            "select a from three where a > (select max(a) from one) and b = (select min(b) from one)",
            "select a, sum(n) from (select a, count(*) n from three group by a union all "
            "select a, count(*) n from csv group by a) group by a",
        ):
            self._nodes(sql)
        kept = self._nodes("select a, count(*) from ordered group by a")["repartition"]
        _expect("whether an order is kept", kept.message.repartition.preserve_order, True)
        spread = self._nodes("select b, count(*) from parquet group by b")["repartition"]
        _expect("whether an order is kept", spread.message.repartition.preserve_order, False)
        gathered = self._nodes("select a from parquet where a > 2 limit 7 offset 2")["coalesce_partitions"]
        _expect("the limit of a node that gathers", gathered.message.coalesce_partitions.fetch, 9)
        nodes = self._nodes("select * from parquet order by a limit 7")
        sort, merge = nodes["sort"].message.sort, nodes["sort_preserving_merge"].message.sort_preserving_merge
        _expect("the limits of sorting and merging", (sort.fetch, merge.fetch), (7, 7))
        _expect("what is sorted and merged by", (len(sort.exprs), list(sort.exprs)), (1, list(merge.exprs)))
        _expect("whether partitions are sorted by themselves", sort.preserve_partitioning, True)
        self._nodes("select unnest([a, 2]) from one")
        for sql, kind in (("select 1", "placeholder_row"), ("select a from one where false", "empty")):
            node = self._nodes(sql)[kind]
            _expect(f"whether a node {kind} has a schema", getattr(node.message, kind).HasField("schema"), True)
        series = self._nodes("select * from generate_series(1, 9)")["generate_series"].message.generate_series
        _expect("whether a series has a schema", series.HasField("schema"), True)
        _expect("whether a series is of numbers", series.HasField("numbers"), True)
        self._made("empty", pb.PlanNode(empty=pb.Rowless(schema=series.schema, partitions=3)), "EmptyExec", 3)

    def _check_joins(self) -> None:
        hashed = self._nodes("select * from parquet join csv on parquet.a = csv.a")["hash_join"]
        collected = self._nodes("select * from three where a not in (select a from parquet)")["hash_join"]
        join = collected.message.hash_join
        _expect(
            "how a NOT IN is joined",
            (join.join_type, join.mode, join.null_aware),
            (pb.LEFT_ANTI, pb.COLLECT_LEFT, True),
        )
        _expect("how two large tables are joined", hashed.message.hash_join.mode, pb.PARTITIONED)
        (keys,) = hashed.message.hash_join.keys or [pb.JoinKeys()]
        for side, key in zip(hashed.inputs, (keys.left, keys.right), strict=True):
            spread = next(node for node in walk(side) if node.kind == "repartition").message.repartition
            _expect("by what a side of a join is spread", list(spread.partitioning.hash.exprs), [key])
        nested = self._nodes("select * from three full join one on three.a < one.a")["nested_loop_join"]
        _expect("how two tables are compared", nested.message.nested_loop_join.join_type, pb.FULL)
        merging = self._context(("prefer_hash_join", "false"))
        self._nodes("select * from parquet join csv on parquet.a = csv.a", merging)
        side = write(self._nodes("select a from one")["memory_scan"])
        for name in pb.JoinType.keys():  # noqa: SIM118 - it is no dict
            made = pb.PlanNode(nested_loop_join=pb.NestedLoopJoin(left=side, right=side, join_type=name))
            wanted = f"NestedLoopJoinExec: join_type={name.title().replace('_', '')}"
            self._made("nested_loop_join", made, wanted, 1, is_all=True)

    def _check_made(self) -> None:
        """Nodes that we make, and those that the engine reads and seldom writes."""
        scan = self._nodes("select a, b from parquet")["parquet_scan"]
        below = write(scan)
        self._made(
            "local_limit", pb.PlanNode(local_limit=pb.LocalLimit(input=below, fetch=3)), "LocalLimitExec: fetch=3"
        )
        self._made("cooperative", pb.PlanNode(cooperative=pb.Single(input=below)), "CooperativeExec")
        self._made("coalesce_batches", pb.PlanNode(coalesce_batches=pb.Single(input=below)), "CoalesceBatchesExec: ")
        self._made("union", pb.PlanNode(union=pb.Many(inputs=[below, below])), "UnionExec", 2 * _PARTITIONS)
        sliced = df.ExecutionPlan.from_bytes(self._plain, bind(below, (), (), 1))
        _expect("the partitions of a slice", sliced.partition_count, 1)
        if f"{{1 group: [[{scan_of(scan).file_groups[1].files[0].path}:40..80]]}}" not in sliced.display():
            raise _Differs(f"a slice of a scan is {sliced.display().strip()!r}")

    def _made(
        self, kind: str, message: pb.PlanNode, wanted: str, count: int = _PARTITIONS, *, is_all: bool = False
    ) -> None:
        plan = df.ExecutionPlan.from_bytes(self._plain, message.SerializeToString())
        self._seen[kind] = None
        said = plan.display().strip()
        if said != wanted if is_all else not said.startswith(wanted):
            raise _Differs(f"a node that was made as {wanted} is {said}")
        _expect(f"the partitions of a node that was made as {kind}", plan.partition_count, count)

    def _check_code(self) -> None:
        number: Any = pa.field("", pa.int64())
        self._plain.register_udf(df.ScalarUDF("rota_check", _same, [number], number, "immutable"))
        for sql, wanted in (("select rota_check(a) from one", True), ("select a + 1 from one", False)):
            _expect(f"whether {sql!r} brings code", has_code(self._plain.sql(sql).execution_plan().to_bytes()), wanted)


def _same(values: Any) -> Any:
    return values
