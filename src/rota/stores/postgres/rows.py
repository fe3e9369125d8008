"""How rows travel: a batch as JSON, one document for each table, as the routine `write` takes them.

Records are encoded as they are, by msgspec, and PostgreSQL turns the documents into rows. That costs this process
1 to 3 µs for a row; bound one by one, the values of a row cost it 100 (decision 0010). What most of a commit is made
of, runs and tasks, leaves out what has its default, which halves the server's work.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
from msgspec import NODEFAULT, Struct, structs

from rota.core.ids import RunKey
from rota.core.records import RECORD_NAMES, Batch, Growth, Key, Run, Story, Task
from rota.ports import StoreRefused
from rota.stores.sql.columns import ALONE, TOLD_INSIDE_MAX, Column, columns_of, compiled, pack_story

# What is text on its way and bytes in its column.
_TYPES = {"integer": "bigint", "text": "text", "bytes": "text", "flag": "boolean", "choice": "text", "json": "json"}
_encode = msgspec.json.Encoder().encode


class Taken(Struct, frozen=True):
    """A column as it is taken out of a document; `default` is what it has if the document does not say."""

    column: Column
    default: str

    @property
    def declared(self) -> str:
        """The column and its type, for `json_to_recordset`."""
        return f"{self.column.name} {_TYPES[self.column.kind]}"

    @property
    def value(self) -> str:
        """The expression that makes the column's value from the document's."""
        text = f"t.{self.column.name}"
        if self.column.kind == "bytes":
            text = f"decode({text}, 'base64')"
        return f"coalesce({text}, {self.default})" if self.default else text


def _default(column: Column, value: object) -> str:
    if value is NODEFAULT or value is None:
        return ""
    match column.kind:
        case "integer":
            return f"{value:d}"
        case "flag":
            return "true" if value else "false"
        case "bytes":
            return "''::bytea"
        case "json":
            return f"'{_encode(value).decode()}'::json"
        case _:
            text = str(getattr(value, "value", value))
            assert "'" not in text, "a default that needs no quoting"
            return f"'{text}'"


def taken(cls: type[Struct], *, skip: int = 0, prefix: str = "") -> tuple[Taken, ...]:
    """The columns of a record type, as they are taken out of a document of such records."""
    fields = {field.name: field.default for field in structs.fields(cls)}
    columns = columns_of(cls, prefix)[skip:]
    return tuple(Taken(column, _default(column, fields[column.name.removeprefix(prefix)])) for column in columns)


OWN = tuple(one for one in taken(Run) if one.column.name != "solo")
# A run without a task inside has nothing in these columns, defaults neither.
SOLO = taken(Task, skip=3, prefix="solo_")
TASK = taken(Task, skip=2)
GROWTH = taken(Growth)


def _slim(name: str, columns: Sequence[Taken], source: dict[str, Any], *more: tuple[str, type, Any]) -> Any:
    """A struct of these columns that leaves out defaults when it is encoded."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for one in columns:
        default = source[one.column.name]
        fields.append((one.column.name, Any) if default is NODEFAULT else (one.column.name, Any, default))
    return msgspec.defstruct(name, [*fields, *more], omit_defaults=True, gc=False)


def _defaults(cls: type[Struct], prefix: str = "") -> dict[str, Any]:
    return {prefix + field.name: field.default for field in structs.fields(cls)}


_TaskRow = _slim("TaskRow", TASK, _defaults(Task))
_RunRow = _slim(
    "RunRow",
    (*OWN, *SOLO),
    {**_defaults(Run), **_defaults(Task, "solo_"), "solo_state": None},
    ("told", bytes, b""),
)


def _listed(of: str, columns: Sequence[Taken], prefix: str = "") -> str:
    return ", ".join(f"{of}.{one.column.name.removeprefix(prefix)}" for one in columns)


_task_row: Callable[[Task], Any] = compiled(
    f"def turn(task):\n    return make({_listed('task', TASK)})\n", {"make": _TaskRow}
)
_run_row: Callable[[Run, bytes], Any] = compiled(
    f"def turn(run, told):\n    solo = run.solo\n    if solo is None:\n"
    f"        return make({_listed('run', OWN)}, told=told)\n"
    f"    return make({_listed('run', OWN)}, {_listed('solo', SOLO, 'solo_')}, told)\n",
    {"make": _RunRow},
)


class _Parts(Struct, gc=False):
    """Tasks of one run: whose they are is said once."""

    tenant: str
    run: str
    rows: list[Any]


DROPPED = ("Task", "Growth", "Run", *[RECORD_NAMES[cls] for cls in ALONE])


def documents(batch: Batch) -> list[bytes | None]:
    """A batch as the routine `write` takes it: a document for each of its parameters, or None.

    Raises StoreRefused, or one of UNSTORABLE, for what no document can hold.
    """
    runs: list[Run] = []
    tasks: dict[RunKey, _Parts] = {}
    growths: list[Growth] = []
    alone: dict[type, list[Struct]] = {}
    for record in batch.puts:
        cls = type(record)
        if cls is Task:
            _add(tasks, cast("Task", record))
        elif cls is Run:
            runs.append(cast("Run", record))
        elif cls is Growth:
            growths.append(cast("Growth", record))
        elif cls in ALONE:
            alone.setdefault(cls, []).append(record)
        else:
            raise StoreRefused(f"{cls.__name__} is no type of record")
    told, stories = _tell(batch.stories, runs)
    nothing = b""
    rows = [_run_row(run, told.get((run.tenant, run.id), nothing)) for run in runs]
    parts = [rows, list(tasks.values()), growths, *[alone.get(cls) for cls in ALONE]]
    parts += [stories, batch.audits, list(dict.fromkeys(batch.archives)), _drops(batch.drops)]
    parts.append(list(dict.fromkeys(batch.revives)))
    return [_encode(part) if part else None for part in parts]


def _add(tasks: dict[RunKey, _Parts], task: Task) -> None:
    key = (task.tenant, task.run)
    parts = tasks.get(key)
    if parts is None:
        parts = tasks[key] = _Parts(task.tenant, task.run, [])
    parts.rows.append(_task_row(task))


def _tell(stories: Sequence[Story], runs: Sequence[Run]) -> tuple[dict[RunKey, bytes], list[Story]]:
    """Stories that go into their runs' rows, and those that become rows of their own."""
    inside = {(run.tenant, run.id): run.created_at for run in runs if run.solo is not None}
    told: dict[RunKey, bytes] = {}
    rest: list[Story] = []
    for story in stories:
        key = (story.tenant, story.run)
        if inside.get(key) == story.created_at and 0 <= story.number < TOLD_INSIDE_MAX:
            told[key] = told.get(key, b"") + pack_story(story)
        else:
            rest.append(story)
    return told, rest


def _drops(drops: Sequence[Key]) -> dict[str, list[Key]]:
    found: dict[str, list[Key]] = {}
    for key in drops:
        name = str(key[0])
        if name not in DROPPED:
            raise StoreRefused(f"{name} is no type of record")
        found.setdefault(name, []).append(key[1:])
    return found
