"""One statement over values that a task was given: tables by their names, and parameters as `$name`."""

import os
import re
from collections.abc import Mapping
from typing import Any

import datafusion as df
import msgspec
import pyarrow as pa

from rota.core.bounds import GROWN_BYTES_MAX, ID_CHARS_MAX
from rota.core.errors import Refused
from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.graphs import is_large, specs_within
from rota.kinds.query.parameters import names_in
from rota.kinds.query.plans import Wishes, logical_plan, physical_plan, texts_of
from rota.kinds.query.settings import PLANNING
from rota.running import Fail
from rota.wire.queries import ENGINE_MEMORY, Texts
from rota.wire.work import Grown

# What begins a statement of which fewer rows can be had; others show or explain something.
_SELECTS = re.compile(r"(?>\s+|--[^\n]*\n|/\*.*?\*/|\()*+(?:select|with|values|table)\b", re.IGNORECASE | re.DOTALL)
# Where a table says how it was planned.
_PLAN = b"rota.plan"
# Of the machine's memory, where no worker says how much a task may use.
_MACHINE_SHARE = 0.6
# What would be refused again, however often it is tried.
_FOR_GOOD = (
    "query.syntax",
    "query.table",
    "query.column",
    "query.type",
    "query.function",
    "query.parameter",
    "query.unsupported",
    "field.value",
)


def answer(
    statement: str,
    given: Mapping[str, Any],
    *,
    task: str = "",
    partitions: int = 0,
    reads_only: bool = False,
    rows_max: int = 0,
    with_plan: bool = False,
) -> pa.Table | Grown:
    """What a statement gives. A value is a parameter if the statement has `$` and its name, else a table.

    Or the stages as which a `task` goes on to answer it, if one is named and that is worth it. `reads_only`: it may not
    define or write anything. `rows_max`: no more rows than that, of a statement that selects some. `with_plan`: a table
    says how it was planned, as stages do (`plan_of`).
    """
    # Of some a table can be made only once.
    named = names_in(statement)
    held = {name: value if name in named else _held(value) for name, value in given.items()}
    rows_max = rows_max if _SELECTS.match(statement) else 0
    stages = _stages(statement, held, task, partitions, rows_max) if task and partitions != 1 else None
    if stages is not None:
        return stages
    engine = SqlEngine(reads_only=reads_only, memory_bytes=_memory_bytes())
    try:
        params = _params(engine, statement, held)
        with engine.complaining(statement):
            frame = _first(engine.sql(statement, params), rows_max)
            table = frame.to_arrow_table()
            return _planned(table, frame) if with_plan else table
    except Refused as refused:
        if refused.code in _FOR_GOOD:
            raise Fail(str(refused)) from refused
        raise


def plan_of(table: pa.Table) -> Texts:
    """How an answer was planned, if it says so."""
    said = (table.schema.metadata or {}).get(_PLAN)
    return msgspec.json.decode(said, type=Texts) if said else ()


def _planned(table: pa.Table, frame: df.DataFrame) -> pa.Table:
    texts = texts_of(frame.logical_plan().display_indent(), frame.execution_plan().display_indent())
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _PLAN: msgspec.json.encode(texts)})


def _stages(statement: str, given: Mapping[str, Any], task: str, partitions: int, rows_max: int = 0) -> Grown | None:
    """The stages of a statement; None if its task has to do, or better does, all by itself.

    So it is with little to read, with a plan that cannot be cut, and with tables in memory that are too large to travel
    with the plan. What is wrong with a statement shows where it is answered.
    """
    if sum(value.nbytes for value in given.values() if isinstance(value, pa.Table | pa.RecordBatch)) > GROWN_BYTES_MAX:
        # Not even written down to see how large it is.
        return None
    # A statement that defines or writes something has done so when it is planned.
    engine = SqlEngine(dict(PLANNING), reads_only=True, memory_bytes=_memory_bytes())
    try:
        params = _params(engine, statement, given)
        asked = logical_plan(engine, _first(engine.sql(statement, params), rows_max))
        planned = physical_plan(engine, asked, _processors, Wishes(partitions=partitions))
    except Refused:
        return None
    found = planned.stages
    if planned.unstaged or sum(stage.tasks for stage in found) < 2 or any(map(is_large, found)):
        return None
    specs = specs_within(task, found, planned.schema, planned.texts())
    is_too_long = max(len(spec.id) for spec in specs) > ID_CHARS_MAX
    if is_too_long or sum(len(spec.work) for spec in specs) > GROWN_BYTES_MAX:
        return None
    return Grown(specs)


def _first(frame: df.DataFrame, rows_max: int) -> df.DataFrame:
    """As many rows as are wanted; all of them if nobody says."""
    return frame.limit(rows_max) if rows_max else frame


def _memory_bytes() -> int:
    """How much the engine may use: what the worker says of the slot, or a part of the machine's memory."""
    said = os.environ.get(ENGINE_MEMORY, "")
    if said.isdecimal() and int(said):
        return int(said)
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _MACHINE_SHARE)


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _held(value: Any) -> Any:
    """A table of Arrow where a value is one in memory; anything else as it is."""
    if isinstance(value, list):
        return pa.Table.from_pylist(value)
    if isinstance(value, dict):
        return pa.table(value)
    is_other = not isinstance(value, pa.Table | pa.RecordBatch) and hasattr(value, "__arrow_c_stream__")
    return pa.table(value) if is_other else value


def _params(engine: SqlEngine, statement: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Make the tables known; the rest are parameters."""
    params = names_in(statement)
    for name, value in given.items():
        if name in params:
            continue
        if isinstance(value, str | os.PathLike):
            engine.register_path(name, value)  # pyright: ignore[reportUnknownArgumentType] - a path of texts
        else:
            engine.register_arrow(name, value)
    return {name: given[name] for name in params if name in given}
