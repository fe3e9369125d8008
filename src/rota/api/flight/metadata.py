"""What a driver asks about a server before it asks anything else: who it is, and which tables there are."""

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from google.protobuf.message import Message

from rota.api.flight.batches import driver_schema
from rota.api.flight.desk import Table
from rota.wire.flight import flight_sql_pb2 as pb

TABLE = "TABLE"

_TEXT = pa.field("string_value", pa.string())
_INFO_VALUE = pa.dense_union(
    [
        _TEXT,
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(pa.string())),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
    ]
)
_KEYS = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), False),
        pa.field("column_name", pa.string(), False),
        pa.field("key_sequence", pa.int32(), False),
        pa.field("key_name", pa.string()),
    ]
)
_TWO_KEYS = pa.schema(
    [
        *(
            pa.field(f"{side}_{name}", pa.string(), name in ("catalog_name", "db_schema_name"))
            for side in ("pk", "fk")
            for name in ("catalog_name", "db_schema_name", "table_name", "column_name")
        ),
        pa.field("key_sequence", pa.int32(), False),
        pa.field("fk_key_name", pa.string()),
        pa.field("pk_key_name", pa.string()),
        pa.field("update_rule", pa.uint8(), False),
        pa.field("delete_rule", pa.uint8(), False),
    ]
)
_TABLES = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), False),
        pa.field("table_type", pa.string(), False),
    ]
)

SCHEMAS: dict[str, pa.Schema] = {
    "CommandGetSqlInfo": pa.schema([pa.field("info_name", pa.uint32(), False), pa.field("value", _INFO_VALUE, False)]),
    "CommandGetCatalogs": pa.schema([pa.field("catalog_name", pa.string(), False)]),
    "CommandGetDbSchemas": pa.schema(
        [pa.field("catalog_name", pa.string()), pa.field("db_schema_name", pa.string(), False)]
    ),
    "CommandGetTables": _TABLES,
    "CommandGetTableTypes": pa.schema([pa.field("table_type", pa.string(), False)]),
    "CommandGetPrimaryKeys": _KEYS,
    "CommandGetImportedKeys": _TWO_KEYS,
    "CommandGetExportedKeys": _TWO_KEYS,
}

# Of the numbers of the specification: name, version, Arrow's version; read only, SQL, Substrait, transactions, cancel.
VERSION = 1
_INFOS: dict[int, str | bool | int] = {
    0: "Rota",
    VERSION: "",
    2: pa.__version__,
    3: True,
    4: True,
    5: False,
    8: 0,
    9: True,
}


def schema_of(name: str, command: Message | None) -> pa.Schema:
    """Of what an answer is made."""
    if isinstance(command, pb.GetTables) and command.include_schema:
        return _TABLES.append(pa.field("table_schema", pa.binary(), False))
    return SCHEMAS[name]


def answer(name: str, command: Message | None, tables: Sequence[Table], version: str) -> pa.Table:
    """The answer to a question about the server of that version."""
    schema = schema_of(name, command)
    if isinstance(command, pb.GetSqlInfo):
        return _infos(command.info or _INFOS, {**_INFOS, VERSION: version}, schema)
    if name == "CommandGetCatalogs":
        return _rows([(name,) for name in sorted({table.catalog for table in tables})], schema)
    if isinstance(command, pb.GetDbSchemas):
        found = sorted({(table.catalog, table.schema) for table in tables if _is_in(table, command)})
        return _rows(found, schema)
    if isinstance(command, pb.GetTables):
        return _rows(_listed(command, tables), schema)
    if name == "CommandGetTableTypes":
        return _rows([(TABLE,)], schema)
    # Nobody here knows of keys.
    return schema.empty_table()


def _listed(command: pb.GetTables, tables: Sequence[Table]) -> list[tuple[object, ...]]:
    if command.table_types and TABLE not in command.table_types:
        return []
    found = [
        table
        for table in tables
        if _is_in(table, command)
        and (not command.HasField("table_pattern") or _is_like(table.name, command.table_pattern))
    ]
    rows: list[tuple[object, ...]] = []
    for table in sorted(found, key=lambda each: (each.catalog, each.schema, each.name)):
        row = (table.catalog, table.schema, table.name, TABLE)
        rows.append((*row, driver_schema(table.columns).serialize().to_pybytes()) if command.include_schema else row)
    return rows


def _is_in(table: Table, command: pb.GetDbSchemas | pb.GetTables) -> bool:
    if command.HasField("catalog") and table.catalog != command.catalog:
        return False
    return not command.HasField("schema_pattern") or _is_like(table.schema, command.schema_pattern)


def _is_like(text: str, pattern: str) -> bool:
    """SQL's LIKE, as drivers send it."""
    pieces = re.split(r"([%_])", pattern)
    glob = "".join({"%": "*", "_": "?"}.get(piece) or re.sub(r"([*?\[])", r"[\1]", piece) for piece in pieces)
    return fnmatch.fnmatchcase(text, glob)


def _rows(rows: Iterable[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def _infos(wanted: Iterable[int], infos: Mapping[int, str | bool | int], schema: pa.Schema) -> pa.Table:
    known = [(number, infos[number]) for number in wanted if number in infos]
    kinds: list[int] = []
    offsets: list[int] = []
    values: list[list[object]] = [[] for _ in range(_INFO_VALUE.num_fields)]
    for _, value in known:
        kind = 1 if isinstance(value, bool) else 0 if isinstance(value, str) else 3
        kinds.append(kind)
        offsets.append(len(values[kind]))
        values[kind].append(value)
    children = [pa.array(each, _INFO_VALUE.field(number).type) for number, each in enumerate(values)]
    names = [_INFO_VALUE.field(number).name for number in range(_INFO_VALUE.num_fields)]
    union = pa.UnionArray.from_dense(pa.array(kinds, pa.int8()), pa.array(offsets, pa.int32()), children, names)
    return pa.Table.from_arrays([pa.array([number for number, _ in known], pa.uint32()), union], schema=schema)
