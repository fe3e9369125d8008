"""Records in and out of bytes: each a MessagePack array of its fields, in the order in which its struct has them.

With the names of the fields a task would take three times the bytes, and no less time to write. So the order of a
record's fields is what is on disk: a new field goes to the end and has a default, and rows of before are read without
it. `tests/integration/test_etcd_rows.py` has the order written down.
"""

from inspect import Parameter, signature
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct, defstruct
from msgspec.structs import astuple, fields

from rota.core.model import Pool, Queue, Tenant
from rota.core.records import (
    RECORD_NAMES,
    Audit,
    GraphRecord,
    Growth,
    Key,
    Pause,
    Receipt,
    Record,
    Run,
    Schedule,
    Task,
    Worker,
    Workflow,
)

# What a row is of is a number, its place in this list, and never changes. The first fields are the key.
ROWS: tuple[tuple[type[Struct], int], ...] = (
    (Run, 2),
    (Task, 3),
    (Growth, 3),
    (GraphRecord, 2),
    (Worker, 2),
    (Queue, 2),
    (Pool, 2),
    (Tenant, 1),
    (Schedule, 2),
    (Receipt, 2),
    (Workflow, 2),
    (Pause, 2),
)
RUN, TASK, GROWTH, GRAPH = range(4)
# One record: what it is of, and its bytes.
Row = tuple[int, bytes]

_pack = msgspec.msgpack.Encoder().encode


class Form:
    """How one type of record is written and read."""

    def __init__(self, cls: type[Struct], solo: "Form | None" = None) -> None:
        self._cls: Any = cls
        # The form of the task inside a run, and which field that is.
        self._solo = solo
        self._at = cls.__struct_fields__.index("solo") if solo is not None else 0
        self.row: Any = _array(cls, solo)
        self._decode = msgspec.msgpack.Decoder(self.row).decode
        kinds = [one.kind for one in signature(cls).parameters.values()]
        self._by_name = Parameter.KEYWORD_ONLY in kinds

    def write(self, record: Struct) -> bytes:
        """A record as bytes."""
        return _pack(self._values(record))

    def _values(self, record: Struct) -> tuple[Any, ...]:
        values, at = astuple(record), self._at
        if self._solo is None or values[at] is None:
            return values
        return (*values[:at], astuple(values[at]), *values[at + 1 :])

    def read(self, content: bytes) -> Any:
        """The record that was written. Raises `msgspec.MsgspecError` if it was not."""
        row = self._decode(content)
        if self._by_name:
            return msgspec.convert(row, self._cls, from_attributes=True)
        values, at = astuple(row), self._at
        if self._solo is not None and values[at] is not None:
            values = (*values[:at], self._solo._cls(*astuple(values[at])), *values[at + 1 :])
        return self._cls(*values)


def _array(cls: type[Struct], solo: Form | None) -> type[Struct]:
    columns: list[Any] = []
    for field in fields(cls):
        kind = field.type if solo is None or field.name != "solo" else solo.row | None
        columns.append((field.name, kind) if field.default is NODEFAULT else (field.name, kind, field.default))
    return defstruct(f"{cls.__name__}Row", columns, array_like=True, gc=False)


_TASK = Form(Task)
FORMS: tuple[Form, ...] = tuple(Form(cls, _TASK if cls is Run else None) for cls, _ in ROWS)
AUDIT = Form(Audit)
_NUMBERS: dict[type, int] = {cls: number for number, (cls, _) in enumerate(ROWS)}
TABLES: dict[str, int] = {RECORD_NAMES[cls]: number for number, (cls, _) in enumerate(ROWS)}


def _key_decoder(cls: type[Struct], count: int) -> Any:
    columns: Any = [(field.name, field.type) for field in fields(cls)[:count]]
    return msgspec.msgpack.Decoder(defstruct(f"{cls.__name__}Key", columns, array_like=True, gc=False)).decode


_KEYS = tuple((RECORD_NAMES[cls], _key_decoder(cls, count)) for cls, count in ROWS)


def write_row(record: Record) -> Row:
    """A record as a row. Raises `KeyError` if it is none."""
    number = _NUMBERS[type(record)]
    return number, FORMS[number].write(record)


def read_row(row: Row) -> Record:
    """The record of a row."""
    return FORMS[row[0]].read(row[1])


def key_of_row(row: Row) -> Key:
    """The key of the record in a row, without reading the rest of it."""
    table, decode = _KEYS[row[0]]
    return (table, *astuple(decode(row[1])))
