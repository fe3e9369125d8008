"""`information_schema` as ordinary tables, so that questions about tables run on workers like all others.

What the engine makes of it is computed where it is asked, and cannot be sent anywhere.
"""

import datafusion as df
import pyarrow as pa
from datafusion.catalog import Schema

from rota.kinds.query.engine import SqlEngine

SCHEMA = "information_schema"
SETTING = f"datafusion.catalog.{SCHEMA}"


def describe_tables(engine: SqlEngine) -> None:
    """Write down what tables, columns, functions and settings there are now; in place of what was written before."""
    context = engine.context
    with engine.complaining():
        catalog = context.catalog()
        if SCHEMA in catalog.names():
            catalog.deregister_schema(SCHEMA)
        context.sql(f"set {SETTING} = true")
        try:
            listed = context.sql(f"select table_name from {SCHEMA}.tables where table_schema = '{SCHEMA}'")  # noqa: S608 - a constant
            names = [str(name) for name in listed.to_arrow_table().column(0).to_pylist()]
            written = {name: context.sql(f'select * from {SCHEMA}."{name}"').to_arrow_table() for name in names}  # noqa: S608 - likewise, and names of the engine
        finally:
            context.sql(f"set {SETTING} = false")
        kept = Schema.memory_schema()
        catalog.register_schema(SCHEMA, kept)
        for name, table in written.items():
            kept.register_table(name, _in_memory(name, table))


def _in_memory(name: str, table: pa.Table) -> df.catalog.Table:
    beside = df.SessionContext()
    batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    beside.register_record_batches(name, [batches])
    return beside.catalog().schema("public").table(name)
