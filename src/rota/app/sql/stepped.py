"""A step of a stream's round in a worker's process: between the exchanges of queries, with the engine of queries."""

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import datafusion as df
import pyarrow as pa

from rota.core.errors import Refused
from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.streams.asking import Asking, fitted
from rota.kinds.query.streams.pieces import PIECES, ipc
from rota.kinds.query.streams.stepping import Task
from rota.kinds.query.streams.steps import SentView, Step, Told, decode_step, decode_told, encode_told, schema_of
from rota.wire.plans import has_sink
from rota.wire.plans import plan_pb2 as pb
from rota.wire.plans.settings import EXECUTING
from rota.wire.plans.stores import stores_in
from rota.wire.plans.tree import Node, read, write
from rota.wire.queries import Part
from rota.wire.standings import is_stream
from rota.wire.stores import register
from rota.wire.values import Packed
from rota.worker.runners.queries import reaching
from rota.worker.runners.queries.failures import judge
from rota.worker.runners.queries.orders import ENDED, Broke, Ended, Order, Wrote, decode_order, encode_ended
from rota.worker.runners.queries.parts import NotAPart, check_part, measure, part_name
from rota.worker.runners.queries.unlocking import unlock

# Rows of a view, while they are looked at.
_ROWS = "rows.arrow"


class _Lost(Exception):
    """An output of another stage is gone, or is not what was reported."""

    def __init__(self, producer: str, why: str) -> None:
        super().__init__(why)
        self.producer = producer


def run(order: bytes) -> Packed:
    """Carry out an order. Whatever happens is an answer: whose fault it was is best seen here."""
    given = decode_order(order)
    ended: Ended
    try:
        ended = _carried_out(given)
    except _Lost as lost:
        ended = Broke("input_lost", f"an output of another stage is gone: {lost}", (lost.producer,))
    except reaching.Distrusted as distrusted:
        ended = Broke("fatal", f"query.failed: {distrusted}")
    except Refused as refused:
        # What a policy refuses, or is damaged, is no better the next time.
        is_for_good = refused.code.startswith("stream.")
        ended = Broke("fatal", str(refused)) if is_for_good else judge(refused)
    except BaseException as error:
        ended = judge(error)
    return Packed(ENDED, encode_ended(ended), is_spent=isinstance(ended, Broke))


def _carried_out(order: Order) -> Ended:
    packed = Path(os.environ["ROTA_BUNDLE"], order.bundled).read_bytes() if order.bundled else order.plan
    if order.stores and (broke := unlock(order, packed)):
        return broke
    step = decode_step(packed)
    check_step(step, order.stores)
    engine = _engine(order)
    around = _Exchanges(order)
    views = _Views(engine, Path(order.folder))
    # The folder of an attempt has its fence in its name, which no other has.
    attempt = Path(order.folder).name
    try:
        asking = Asking(engine, is_own=True)
        told = Task(step, order.task or 0, attempt, around, asking, views.ask).run()
        parts = around.close()
    finally:
        around.hang_up()
    return Wrote(parts, sum(part.rows for part in parts), told=encode_told(told))


def check_step(step: Step, stores: Sequence[str]) -> None:
    """Refuse a step that reads buckets it was not given, or writes elsewhere than where a stream has its pieces.

    Whoever sends one is not known here; what was said of it when it was submitted is looked at again.
    """
    for view in step.views:
        for store in stores_in(view.plan):
            if store not in stores:
                text = f"view {view.name} reads {store}, which is none of the buckets that the step has named"
                raise Refused("query.source", text, path="plan")
    folder, aside = Path(step.folder), PurePosixPath(step.aside)
    names = [reading.source for reading in step.readings] + ([step.owning.operator] if step.owning else [])
    is_below = aside.parts[:1] == (PIECES,) and ".." not in aside.parts and not any(os.sep in name for name in names)
    if not is_below or not folder.is_absolute() or not is_stream(folder) or (folder / PIECES).is_symlink():
        text = f"{step.folder} is not the folder of a stream here, or {step.aside} is not for pieces of it"
        hint = "Workers must have the stream's folder under the same path."
        raise Refused("stream.folder", text, hint)


def _engine(order: Order) -> SqlEngine:
    os.environ["TMPDIR"] = order.folder
    # Texts of a step are anybody's: they define nothing, and a bucket that one names is not reached for it.
    engine = SqlEngine(dict(EXECUTING), reads_only=True)
    if order.memory_bytes:
        engine.context.sql(f"SET datafusion.runtime.memory_limit = '{max(1, order.memory_bytes >> 10)}K'")
    for store in order.stores:
        register(engine.context, store)
    if not order.has_code:
        engine.context = engine.context.with_python_udf_inlining(enabled=False)
    return engine


class _Views:
    """Views as plans: their rows are put down in a file, which the plan then reads."""

    def __init__(self, engine: SqlEngine, folder: Path) -> None:
        self._engine = engine
        self._file = folder / _ROWS

    def ask(self, view: SentView, table: pa.Table) -> pa.Table:
        """What a view gives for these rows."""
        size = self._file.write_bytes(ipc(table))
        context, schema = self._engine.context, schema_of(view.schema)
        with self._engine.complaining(view.sql):
            # Of one use: a plan that has run is not run again.
            bound = write(_bound(read(view.plan), view.leaf, self._file, size))
            plan = df.ExecutionPlan.from_bytes(context, bound)
            if has_sink(plan):
                text = f"view {view.name} writes files by itself, which is not done here"
                raise Refused("query.unsupported", text, path="plan")
            batches = [
                batch.to_pyarrow() for number in range(plan.partition_count) for batch in context.execute(plan, number)
            ]
        if not batches:
            return schema.empty_table()
        named = [pa.RecordBatch.from_arrays(batch.columns, names=schema.names) for batch in batches]
        return fitted(pa.Table.from_batches(named), schema)


def _bound(node: Node, leaf: str, file: Path, size: int) -> Node:
    """The plan with a file in the place of a leaf."""
    if node.kind != "arrow_scan":
        return node.over([_bound(each, leaf, file, size) for each in node.inputs])
    groups = node.message.arrow_scan.conf.file_groups
    if not any(each.path.endswith(leaf) for group in groups for each in group.files):
        return node
    message = pb.PlanNode()
    message.CopyFrom(node.message)
    conf = message.arrow_scan.conf
    del conf.file_groups[:]
    conf.file_groups.append(pb.FileGroup(files=[pb.File(path=str(file).lstrip("/"), size=size, modified_ns=1)]))
    return Node(node.kind, message)


class _Exchanges:
    """What other tasks have spread, on this disk or at peers; and what this one spreads."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._peers = reaching.Asking(order.peers, order.authority)
        self._tables: dict[int, list[pa.Table]] = {}

    def told(self, exchange: int) -> Sequence[Told]:
        """What the tasks of a stage have told."""
        return [decode_told(source.told) for source in self._order.sources[exchange]]

    def taken(self, exchange: int, part: int) -> list[pa.Table]:
        """What they have spread to a part. Whatever is not what was reported is made again."""
        found: list[pa.Table] = []
        for source in self._order.sources[exchange]:
            for each in source.parts:
                if each.part == part:
                    try:
                        found.append(self._read(source.peer, source.path(each), each))
                    except NotAPart as error:
                        raise _Lost(source.producer, str(error)) from None
        return found

    def _read(self, peer: int | None, path: str, part: Part) -> pa.Table:
        if peer is not None:
            return pa.ipc.open_file(pa.py_buffer(self._peers.fetch(peer, path))).read_all()
        check_part(path, part)
        with pa.OSFile(path, "rb") as file:
            return pa.ipc.open_file(file).read_all()

    def spread(self, part: int, table: pa.Table) -> None:
        """Rows for a part."""
        self._tables.setdefault(part, []).append(table)

    def close(self) -> tuple[Part, ...]:
        """Write all parts; what was written."""
        found: list[Part] = []
        for number, tables in sorted(self._tables.items()):
            path, table = f"{self._order.folder}/{part_name(number)}", pa.concat_tables(tables)
            options = pa.ipc.IpcWriteOptions(compression=self._order.compression or None)
            with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
                writer.write_table(table)
            opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                size, checksum = measure(opened)
            finally:
                os.close(opened)
            found.append(Part(number, size, table.num_rows, checksum))
        return tuple(found)

    def hang_up(self) -> None:
        """Let go of peers."""
        self._peers.close()
