"""A fragment in the process that runs it: its plan is bound to files, run, and what comes out is written down.

Whatever happens is an answer, and not an exception: whose fault it was is best seen here. After a failure the process
is not used again, because an engine whose streams were dropped may go on computing.
"""

import asyncio
import os
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from msgspec import Struct

from rota.core.errors import Refused
from rota.wire.plans import has_sink
from rota.wire.plans.binding import Piece, bind
from rota.wire.plans.settings import EXECUTING, is_sent
from rota.wire.queries import Answered, Hashed, Part, Published, Written
from rota.wire.stores import register
from rota.wire.targets import FileWriter, Unpublished, publish
from rota.wire.values import ARROW, Packed
from rota.worker.runners.queries import reaching
from rota.worker.runners.queries.failures import judge, unreadable
from rota.worker.runners.queries.orders import ENDED, Broke, Ended, Order, Source, Wrote, decode_order, encode_ended
from rota.worker.runners.queries.parts import NotAPart, check_part
from rota.worker.runners.queries.tables import Tables
from rota.worker.runners.queries.unlocking import unlock
from rota.worker.runners.queries.writing import (
    AnswerWriter,
    KeptHere,
    LargeAnswer,
    PartWriter,
    StoredAnswer,
    counted,
    read_schema,
)
from rota.worker.runners.sequels import inline_bytes_max

# They have no types that a checker could use.
_df: Any = import_module("datafusion")

# Python finds out once where temporary files go, and not while that is the folder of one attempt.
gettempdir()

# What is summed up over all nodes of a plan.
_METRICS = ("elapsed_compute", "spill_count", "spilled_bytes", "spilled_rows")
_SCANNED = "bytes_scanned"
# Files of exchanges, as they stand in a plan: by the folder of the attempt, whose fence no other has.
_in_plan = re.compile(rb"t\d+-\d+/p\d+[.0-9a-f]*\.arrow").findall


# A file that is read.
Read = tuple[Source, Part]
# Is given a batch, and of which partition it is; and what gives all of them.
Take = Callable[[int, Any], None]
Drain = Callable[[Take], None]


class Reads(Struct):
    """What an attempt reads: parts of other stages' outputs, and tables, once that is known."""

    parts: list[Read] = []
    tables: Tables | None = None


class SourcesLost(Exception):
    """Files of other stages that are gone or are not those that were reported."""

    def __init__(self, producers: list[str], why: str) -> None:
        super().__init__(why)
        self.producers = producers


def run(order: bytes) -> Packed:
    """Carry out an order."""
    given = decode_order(order)
    reads = Reads()
    try:
        return _carried_out(given, reads)
    except SourcesLost as lost:
        return _lost(lost)
    except BaseException as error:
        # The engine's complaint about a file that is gone could be any; and if one is, others may be too.
        try:
            _check(given, reads.parts, is_thorough=True)
        except SourcesLost as lost:
            return _lost(lost)
        except reaching.Distrusted as distrusted:
            return _answer(Broke("fatal", f"query.failed: {distrusted}"))
        return _answer(judge(_changed(reads) or error, [peer.url for peer in given.peers]))


def _changed(reads: Reads) -> Refused | None:
    """What says more than an error of the engine: that a table is not the one that was planned."""
    try:
        if reads.tables is not None:
            reads.tables.check_unchanged()
    except Refused as changed:
        return changed
    except Exception:
        # It cannot be looked at; the engine has said why.
        return None
    return None


def _answer(ended: Ended) -> Packed:
    return Packed(ENDED, encode_ended(ended), is_spent=isinstance(ended, Broke))


def _lost(lost: SourcesLost) -> Packed:
    return _answer(Broke("input_lost", f"an output of another stage is gone: {lost}", tuple(lost.producers)))


def _carried_out(order: Order, reads: Reads) -> Packed:
    plan = Path(os.environ["ROTA_BUNDLE"], order.bundled).read_bytes() if order.bundled else order.plan
    if order.stores and (broke := unlock(order, plan)):
        return _answer(broke)
    if isinstance(order.output, Published):
        return _published(order, order.output)
    if order.exchanges or order.task is not None:
        try:
            plan = bind(plan, order.exchanges, _pieces(order), order.task)
        except Exception as error:
            return _answer(Broke("fatal", f"query.failed: its plan cannot be put together: {error!r}"))
    reads.parts += _used(order, plan)
    _check(order, reads.parts)
    try:
        context = _context(order)
        # Of one use: a plan that has run is not run again.
        physical = _planned(context, plan) if order.is_logical else _df.ExecutionPlan.from_bytes(context, plan)
        if has_sink(physical):
            return _answer(Broke("fatal", "query.unsupported: a plan writes files by itself, which is not done here"))
        schema = read_schema(order.schema)
        reads.tables = tables = Tables(order, plan, physical)
    except Refused:
        raise
    except Exception as error:
        return _answer(unreadable(error))

    def drain(take: Take) -> None:
        _drain(context, physical, take)
        tables.check_unchanged()

    if isinstance(order.output, Answered):
        return _answered(order, schema, drain)
    if isinstance(order.output, Written):
        return _written(order, order.output, schema, drain)
    is_hashed = isinstance(order.output, Hashed)
    writer = PartWriter(order.folder, schema, order.compression)
    try:
        drain(lambda number, batch: writer.write(number if is_hashed else 0, batch))
        parts = writer.close()
    finally:
        writer.abandon()
    return _answer(Wrote(parts, sum(part.rows for part in parts), _metrics(physical)))


def _answered(order: Order, schema: Any, drain: Drain) -> Packed:
    """The answer, or a piece of it."""

    def large() -> LargeAnswer:
        return KeptHere(order.folder, schema) if order.keeps_answer else StoredAnswer(order.result_file, schema)

    is_taken = isinstance(order.output, Answered) and order.output.is_taken
    answer = AnswerWriter(schema, large, inline_bytes_max(is_shared=is_taken))
    drain(lambda _, batch: answer.write(batch))
    found = answer.close()
    if isinstance(found, bytes):
        return Packed(ARROW, found)
    if isinstance(found, KeptHere):
        return _answer(Wrote(found.parts, sum(part.rows for part in found.parts)))
    return Packed(ARROW, None)


def _written(order: Order, output: Written, schema: Any, drain: Drain) -> Packed:
    """A file for good, put aside until it is published."""
    file = FileWriter(order.aside, schema, output.target.form)
    try:
        drain(lambda _, batch: file.write(batch))
    except BaseException:
        file.give_up()
        raise
    return _answer(Wrote((Part(0, file.close(), file.rows),), file.rows))


def _published(order: Order, output: Published) -> Packed:
    """What others have put aside is seen; the answer is how many rows that are."""
    try:
        publish(output.target, order.run, order.files)
    except Unpublished as lost:
        is_alone = len(order.files) == 1
        producers = (output.stage if is_alone else f"{output.stage}[{task}]" for task in lost.tasks)
        return _answer(Broke("input_lost", str(lost), tuple(producers)))
    except Refused as refused:
        return _answer(Broke("fatal", str(refused)))
    schema = read_schema(order.schema)
    return _answered(order, schema, lambda take: take(0, counted(order.rows, schema)))


# The engine.


def _context(order: Order) -> Any:
    # A plan that is made here is for one task, and so for one slot.
    config = _df.SessionConfig().with_target_partitions(1)
    for name, value in order.settings:
        if not is_sent(name):
            raise Refused("query.unsupported", f"the setting {name} is not one that a session may send to a worker")
        config = config.set(name, value)
    for name, value in EXECUTING:
        config = config.set(name, value)
    # Where the engine puts what does not fit into memory, if anything does not; a folder that it is told of by other
    # means it would use at once.
    os.environ["TMPDIR"] = order.folder
    runtime = _df.RuntimeEnvBuilder().with_disk_manager_os()
    if order.memory_bytes:
        runtime = runtime.with_fair_spill_pool(order.memory_bytes)
    context = _df.SessionContext(config, runtime)
    if not order.has_code:
        # Nobody was asked whether code may be run: the engine opens none.
        context = context.with_python_udf_inlining(enabled=False)
    with reaching.trusting(order):
        for number, peer in enumerate(order.peers):
            context.register_object_store("s3://", reaching.store_of(peer), reaching.host_of(number))
    for store in order.stores:
        register(context, store)
    return context


def _planned(context: Any, plan: bytes) -> Any:
    """The physical plan of a logical one."""
    return context.create_dataframe_from_logical_plan(_df.LogicalPlan.from_bytes(context, plan)).execution_plan()


def _drain(context: Any, plan: Any, take: Take) -> None:
    """Run a plan, and give its batches away."""
    if plan.partition_count > 1:
        asyncio.run(_drain_together(context, plan, take))
        return
    for found in context.execute(plan, 0):
        batch = found.to_pyarrow()
        if batch.num_rows:
            take(0, batch)


async def _drain_together(context: Any, plan: Any, take: Take) -> None:
    """Run all partitions at once: one after the other, the engine would hold those that wait in memory."""

    async def drain(number: int) -> None:
        async for found in context.execute(plan, number):
            batch = found.to_pyarrow()
            if batch.num_rows:
                take(number, batch)

    await asyncio.gather(*(drain(number) for number in range(plan.partition_count)))


def _metrics(plan: Any) -> tuple[tuple[str, int], ...]:
    sums = dict.fromkeys((*_METRICS, _SCANNED), 0)
    for _, measured in plan.collect_metrics():
        for name in _METRICS:
            sums[name] += getattr(measured, name) or 0
        sums[_SCANNED] += measured.sum_by_name(_SCANNED) or 0
    return tuple((name, value) for name, value in sums.items() if value)


# Files of other stages.


def _pieces(order: Order) -> list[list[list[Piece]]]:
    return [[_pieces_of(source) for source in written] for written in order.sources]


def _pieces_of(source: Source) -> list[Piece]:
    url = "file:///" if source.peer is None else f"s3://{reaching.host_of(source.peer)}/"
    return [Piece(part.part, url, source.path(part), part.bytes) for part in source.parts]


def _used(order: Order, plan: bytes) -> list[Read]:
    """The files that a plan reads; most tasks read only a part of what there is."""
    found = frozenset(_in_plan(plan))
    every = ((source, part) for written in order.sources for source in written for part in source.parts)
    return [(source, part) for source, part in every if _in_attempt(source.path(part)) in found]


def _in_attempt(path: str) -> bytes:
    return "/".join(path.rsplit("/", 2)[1:]).encode()


def _check(order: Order, reads: list[Read], *, is_thorough: bool = False) -> None:
    """Raise SourcesLost if files are not what was reported: all that are, so that they are made again at once.

    What is at a peer is checked there when it is read, and here only if something went wrong.
    """
    lost: dict[str, str] = {}
    asking = reaching.Asking(order.peers, order.authority)
    try:
        for source, part in reads:
            try:
                if source.peer is None:
                    check_part(source.path(part), part)
                elif is_thorough:
                    asking.check(source.peer, source.path(part))
            except NotAPart as error:
                lost.setdefault(source.producer, str(error))
    finally:
        asking.close()
    if lost:
        raise SourcesLost(list(lost), next(iter(lost.values())))
