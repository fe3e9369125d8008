"""From records to rows and back, worked out once from the struct definitions.

A scalar field is a column under its own name: integers and instants as integers, enumerations as their text, flags as
0 and 1, bytes as bytes. Anything structured is JSON text, which a person can read and which comes back exactly. The
functions that turn a record into a row are written out as source and compiled at import, because asking a field for
its type costs more than storing it.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from struct import Struct as Packing
from typing import Any, cast

import msgspec
from msgspec import Struct, inspect

from rota.core.model import Pool, Queue, Tenant
from rota.core.records import Audit, GraphRecord, Growth, Pause, Receipt, Run, Schedule, Story, Task, Worker, Workflow

Value = str | int | bytes | None
Row = tuple[Value, ...]
# Keeps one copy of a text that many rows share; `{}.setdefault`, for as long as one reading takes.
Same = Callable[[str, str], str]

# Fields whose texts many rows share.
_SHARED = ("tenant", "run", "graph", "name", "kind", "schedule", "worker_tenant", "worker", "incarnation")
_NOTHING = "[]"


class Column(Struct, frozen=True):
    """One column and how its field is turned into it: `kind` is integer, text, bytes, flag, choice or json."""

    name: str
    kind: str
    nullable: bool
    type: Any

    def written(self, value: str, names: dict[str, object]) -> str:
        """The expression that makes a column's value from `value`."""
        if self.kind != "json":
            return value
        names["dump"] = _dump
        if self.nullable:
            return f"None if {value} is None else dump({value})"
        return f"dump({value}) if {value} else {_NOTHING!r}" if _is_tuple(self.type) else f"dump({value})"

    def read(self, value: str, names: dict[str, object]) -> str:
        """The expression that makes a field's value from a column's."""
        made = value
        if self.kind == "flag":
            made = f"{value} != 0"
        elif self.kind == "choice":
            choices = f"choices_{self.name}"
            names[choices] = {member.value: member for member in cast("type[Enum]", self.type)}
            made = f"{choices}[{value}]"
        elif self.kind == "json":
            names[f"load_{self.name}"] = msgspec.json.Decoder(self.type).decode
            made = f"load_{self.name}({value})"
            if _is_tuple(self.type) and not self.nullable:
                return f"() if {value} == {_NOTHING!r} else {made}"
        elif self.name.removeprefix("solo_") in _SHARED:
            return f"same({value}, {value})"
        return f"None if {value} is None else {made}" if self.nullable and made != value else made


def _is_tuple(kind: object) -> bool:
    return getattr(kind, "__origin__", None) is tuple


_encode = msgspec.json.Encoder().encode


def _dump(value: object) -> str:
    return _encode(value).decode()


def columns_of(cls: type[Struct], prefix: str = "") -> tuple[Column, ...]:
    """The columns of a record type, in the order of its fields."""
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType), f"{cls.__name__} is a struct"
    hints = _hints(cls)
    return tuple(_column(prefix + field.name, field.type, hints[field.name]) for field in info.fields)


def _hints(cls: type[Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(cls)}


def _column(name: str, kind: inspect.Type, hint: Any) -> Column:
    nullable = isinstance(kind, inspect.UnionType)
    if isinstance(kind, inspect.UnionType):
        (kind,) = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        (hint,) = [one for one in hint.__args__ if one is not type(None)]
    match kind:
        case inspect.IntType():
            return Column(name, "integer", nullable, hint)
        case inspect.StrType():
            return Column(name, "text", nullable, hint)
        case inspect.BytesType():
            return Column(name, "bytes", nullable, hint)
        case inspect.BoolType():
            return Column(name, "flag", nullable, hint)
        case inspect.EnumType():
            return Column(name, "choice", nullable, hint)
        case inspect.StructType() | inspect.VarTupleType() | inspect.TupleType():
            return Column(name, "json", nullable, hint)
        case _:
            raise TypeError(f"{name}: no column for {kind}; teach it to {__name__}")


def compiled(source: str, names: dict[str, object]) -> Any:
    """The function `turn` of a source that is made of field names; `names` is what it knows besides."""
    made: dict[str, Any] = dict(names)
    exec(compile(source, f"<{__name__}>", "exec"), made)  # noqa: S102 - the source is made of field names, here and in postgres/rows.py
    return made["turn"]


def _plain_table(cls: type[Struct]) -> "Table":
    columns = columns_of(cls)
    names: dict[str, object] = {"make": cls}
    values = ", ".join(column.written(f"record.{column.name}", names) for column in columns)
    write = compiled(f"def turn(record):\n    return ({values},)\n", names)
    variables = ", ".join(column.name for column in columns)
    fields = ", ".join(f"{column.name}={column.read(column.name, names)}" for column in columns)
    read = compiled(f"def turn(row, same):\n    {variables}, = row\n    return make({fields})\n", names)
    return Table(tuple(column.name for column in columns), write, read)


def _part_table(cls: type[Struct]) -> "Table":
    """A part of a run: `run_no` stands for the tenant and the run's id, which the reader is given."""
    columns = columns_of(cls)[2:]
    names: dict[str, object] = {"make": cls}
    values = ", ".join(column.written(f"record.{column.name}", names) for column in columns)
    write = compiled(f"def turn(record, run_no):\n    return (run_no, {values})\n", names)
    variables = ", ".join(column.name for column in columns)
    fields = ", ".join(column.read(column.name, names) for column in columns)
    read = compiled(
        f"def turn(row, tenant, run, same):\n    _, {variables}, = row\n    return make(tenant, run, {fields})\n", names
    )
    return Table(("run_no", *[column.name for column in columns]), write, read)


def _run_table() -> "Table":
    """A run, with the one task of a one-task run in columns of its own. A row ends with what is told in it."""
    own = tuple(column for column in columns_of(Run) if column.name != "solo")
    inside = columns_of(Task, "solo_")[3:]
    names: dict[str, object] = {"make": Run, "make_task": Task}
    values = ", ".join(column.written(f"record.{column.name}", names) for column in own)
    within = ", ".join(column.written(f"solo.{column.name.removeprefix('solo_')}", names) for column in inside)
    write = compiled(
        f"def turn(record, told):\n    solo = record.solo\n    if solo is None:\n"
        f"        return ({values}, {', '.join(['None'] * len(inside))}, told)\n"
        f"    return ({values}, {within}, told)\n",
        names,
    )
    variables = ", ".join(column.name for column in (*own, *inside))
    fields = ", ".join(f"{column.name}={column.read(column.name, names)}" for column in own)
    task = ", ".join(column.read(column.name, names) for column in inside)
    read = compiled(
        f"def turn(row, same):\n    {variables}, = row\n    tenant = same(tenant, tenant)\n"
        f"    solo = None if solo_state is None else make_task(tenant, id, 0, {task})\n"
        f"    return make({fields}, solo=solo)\n",
        names,
    )
    return Table(tuple(column.name for column in (*own, *inside)), write, read)


class Table(Struct, frozen=True):
    """The columns of a record type, and the functions between records and rows."""

    columns: tuple[str, ...]
    write: Callable[..., Row]
    read: Callable[..., Any]

    @property
    def listed(self) -> str:
        """The columns, for a statement."""
        return ", ".join(self.columns)


RUN = _run_table()
TASK = _part_table(Task)
GROWTH = _part_table(Growth)
AUDIT = _plain_table(Audit)
# Records that stand alone: table, then its columns, then its key.
ALONE: dict[type, tuple[str, Table, tuple[str, ...]]] = {
    GraphRecord: ("graph", _plain_table(GraphRecord), ("tenant", "digest")),
    Worker: ("worker", _plain_table(Worker), ("tenant", "id")),
    Queue: ("queue", _plain_table(Queue), ("tenant", "name")),
    Pool: ("pool", _plain_table(Pool), ("tenant", "name")),
    Tenant: ("tenant", _plain_table(Tenant), ("tenant",)),
    Schedule: ("schedule", _plain_table(Schedule), ("tenant", "id")),
    Workflow: ("workflow", _plain_table(Workflow), ("tenant", "name")),
    Receipt: ("receipt", _plain_table(Receipt), ("tenant", "command_id")),
    Pause: ("pause", _plain_table(Pause), ("tenant", "scope")),
}

# The first stories of a one-task run live in its row, each after its number, instant and length. That halves the rows
# of such a run; a story that goes on gets rows, because the whole of `told` is written again with every commit.
TOLD_INSIDE_MAX = 8
_HEAD = Packing(">BqI")


def pack_story(story: Story) -> bytes:
    """A story as it lies in `told`."""
    return _HEAD.pack(story.number, story.at, len(story.changes)) + story.changes


def unpack_stories(told: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, instant and changes of each story in `told`."""
    at = 0
    while at < len(told):
        number, when, size = _HEAD.unpack_from(told, at)
        at += _HEAD.size + size
        yield number, when, told[at - size : at]
