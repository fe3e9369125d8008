"""Questions of operators to the engine: SQL over tables that are in memory for as long as a round takes."""

import os
from typing import Any

import pyarrow as pa

from rota.kinds.query.engine import SqlEngine
from rota.wire.plain import plain_schema

# Into how large pieces rows are cut, so that threads can share them; and how many are worth sharing.
_BATCH_ROWS_LEAST = 8_192
_ROWS_SHARED_LEAST = 32_768


class Asking:
    """The engine of batch queries, asked about the rows of a round and the state."""

    def __init__(self, engine: SqlEngine, *, is_own: bool = False) -> None:
        """`is_own`: nobody else asks this engine, so that it may be set for each question."""
        self.engine = engine
        self._is_own = is_own
        self._threads = len(os.sched_getaffinity(0))
        self._rows: dict[str, int] = {}

    def ask(self, sql: str, schema: pa.Schema | None = None, /, **tables: pa.Table) -> pa.Table:
        """The answer to a statement over these tables, with the types of `schema`; all others are the engine's.

        A table may be called `sql` or `schema`, too.
        """
        for name, table in tables.items():
            self.know(name, table)
        answer = self._answer(sql)
        return plain(answer) if schema is None else fitted(answer, schema)

    def _answer(self, sql: str) -> pa.Table:
        if self._is_own:
            is_little = max(self._rows.values(), default=0) < _ROWS_SHARED_LEAST
            self.engine.set_partitions(1 if is_little else self._threads)
        with self.engine.complaining(sql):
            return self.engine.sql(sql).to_arrow_table()

    def know(self, name: str, table: pa.Table) -> None:
        """Make rows known by a name, until others are."""
        self._rows[name] = table.num_rows
        size = max(_BATCH_ROWS_LEAST, -(-table.num_rows // self._threads))
        self.engine.register_batches(name, table.to_batches(max_chunksize=size), table.schema)


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table with these types; the engine's own may grow with every sum."""
    return table if table.schema.equals(schema) else table.select(schema.names).cast(schema)


def plain(table: pa.Table) -> pa.Table:
    """A table with texts as everybody reads them, and not as the engine holds them."""
    return fitted(table, row_schema(table.schema))


def row_schema(schema: pa.Schema) -> pa.Schema:
    """A schema without views and categories, of which all columns may lack values."""
    decoded = pa.schema([pa.field(field.name, _without_categories(field.type)) for field in schema])
    return pa.schema([pa.field(field.name, field.type) for field in plain_schema(decoded)])


def _without_categories(kind: Any) -> pa.DataType:
    # Parts of a table may have other ones, which many formats and statements refuse.
    return kind.value_type if pa.types.is_dictionary(kind) else kind
