"""One statement over values that a task was given: tables by their names, and parameters as `$name`."""

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from rota.core.bounds import GROWN_BYTES_MAX, ID_CHARS_MAX
from rota.core.errors import Refused
from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.graphs import is_large, specs_within
from rota.kinds.query.parameters import names_in
from rota.kinds.query.plans import Wishes, logical_plan, physical_plan
from rota.kinds.query.settings import PLANNING
from rota.running import Fail
from rota.wire.work import Grown

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


def answer(statement: str, given: Mapping[str, Any]) -> pa.Table:
    """What a statement gives. A value is a parameter if the statement has `$` and its name, else a table."""
    engine = SqlEngine()
    try:
        params = _params(engine, statement, given)
        with engine.complaining(statement):
            return engine.sql(statement, params).to_arrow_table()
    except Refused as refused:
        if refused.code in _FOR_GOOD:
            raise Fail(str(refused)) from refused
        raise


def stages(statement: str, given: Mapping[str, Any], task: str, partitions: int) -> Grown | None:
    """The stages as which a task goes on to answer a statement; None if it has to do, or better does, all by itself.

    So it is with little to read, with a plan that cannot be cut, and with tables in memory that are too large to travel
    with the plan. What is wrong with a statement shows where it is answered.
    """
    # A statement that defines or writes something has done so when it is planned.
    engine = SqlEngine(dict(PLANNING), reads_only=True)
    try:
        params = _params(engine, statement, given)
        asked = logical_plan(engine.sql(statement, params))
        planned = physical_plan(engine, asked, len(os.sched_getaffinity(0)), Wishes(partitions=partitions))
    except Refused:
        return None
    found = planned.stages
    if planned.unstaged or sum(stage.tasks for stage in found) < 2 or any(map(is_large, found)):
        return None
    specs = specs_within(task, found, planned.schema)
    is_too_long = max(len(spec.id) for spec in specs) > ID_CHARS_MAX
    if is_too_long or sum(len(spec.work) for spec in specs) > GROWN_BYTES_MAX:
        return None
    return Grown(specs)


def _params(engine: SqlEngine, statement: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Make the tables known; the rest are parameters."""
    params = names_in(statement)
    for name, value in given.items():
        if name not in params:
            _register(engine, name, value)
    return {name: given[name] for name in params if name in given}


def _register(engine: SqlEngine, name: str, value: Any) -> None:
    if isinstance(value, str | os.PathLike):
        engine.register_path(name, value)  # pyright: ignore[reportUnknownArgumentType] - a path of texts
    elif isinstance(value, list):
        engine.register_arrow(name, pa.Table.from_pylist(value))
    elif isinstance(value, dict):
        engine.register_arrow(name, pa.table(value))
    else:
        engine.register_arrow(name, value)
