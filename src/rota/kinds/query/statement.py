"""One statement over values that a task was given: tables by their names, and parameters as `$name`."""

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from rota.core.errors import Refused
from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.parameters import names_in
from rota.running import Fail

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
    params = names_in(statement)
    engine = SqlEngine()
    try:
        for name, value in given.items():
            if name not in params:
                _register(engine, name, value)
        with engine.complaining(statement):
            return engine.sql(statement, {name: given[name] for name in params if name in given}).to_arrow_table()
    except Refused as refused:
        if refused.code in _FOR_GOOD:
            raise Fail(str(refused)) from refused
        raise


def _register(engine: SqlEngine, name: str, value: Any) -> None:
    if isinstance(value, str | os.PathLike):
        engine.register_path(name, value)  # pyright: ignore[reportUnknownArgumentType] - a path of texts
    elif isinstance(value, list):
        engine.register_arrow(name, pa.Table.from_pylist(value))
    elif isinstance(value, dict):
        engine.register_arrow(name, pa.table(value))
    else:
        engine.register_arrow(name, value)
