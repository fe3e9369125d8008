"""Views as JSON has them: one shape for the terminal, the web and whoever reads either.

Instants are in milliseconds, fences are text, and bytes are opened where that is safe. The same table that shapes a
view says what its shape is, so a document of the shapes cannot disagree with what is sent.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec
from msgspec import Struct, defstruct, to_builtins

from rota.core.calendar import ScheduleSpec
from rota.core.ids import Millis
from rota.core.model import Capacity, Param, ParamType, PropertyRule, Queue
from rota.core.questions import BackfillView, PoolView, RunView, TaskView, WorkerView, WorkflowView
from rota.core.reasons import Reason
from rota.core.records import Version
from rota.wire.values import PLAIN, Unreadable, unpack
from rota.wire.work import StoredValue, decode_value

# What reading bytes raises that are not what their writer should have written.
UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError, Unreadable)


class Shaping(Struct, frozen=True):
    """How one field is shown: what JSON has in its place, and how it gets there."""

    kind: Any
    show: Callable[[Any], Any]


def as_json(value: object, indent: int = 0) -> str:
    """A value as the text that HTTP has for it too: numbers without end are null, what JSON has no form for is a text.

    In one line, unless there is an indent.
    """
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=indent).decode()


def show_result(result: bytes | None) -> Any:
    """What a task returned, without running anything: a pickle is only named. Bytes are shown in base64."""
    if result is None:
        return None
    try:
        value = decode_value(result)
        if isinstance(value, StoredValue):
            return {"stored": value.ref.name, "size": value.ref.size, "encoding": value.encoding}
        if value.encoding != PLAIN:
            return {"size": len(value.content), "encoding": value.encoding}
        return to_builtins(unpack(value.encoding, value.content))
    except UNREADABLE:
        return {"size": len(result), "encoding": "unknown"}


def show_params(params: bytes) -> dict[str, Any]:
    """A run's parameters. Whoever submitted it wrote them, so they may be anything."""
    if not params:
        return {}
    try:
        return msgspec.convert(to_builtins(unpack(PLAIN, params)), dict[str, Any])
    except UNREADABLE:
        return {"size": len(params), "encoding": "unknown"}


def show_param(param: Param) -> dict[str, Any]:
    """A parameter of a workflow, with its values opened."""
    return {
        **to_builtins(param),
        "required": param.is_required,
        "default": None if param.default is None else _opened(param.default),
        "choices": [_opened(choice) for choice in param.choices],
    }


def show_default(param: Param) -> str:
    """What a run gets that gives no value, for people; JSON if it is a value."""
    if param.defaults_to_logical_date:
        return "the run's logical date"
    return "" if param.default is None else as_json(_opened(param.default))


def _opened(packed: bytes) -> Any:
    try:
        return to_builtins(unpack(PLAIN, packed))
    except UNREADABLE:
        return {"size": len(packed), "encoding": "unknown"}


def as_plain(view: Struct) -> dict[str, Any]:
    """A view as JSON has it: values opened where that is safe, instants in milliseconds."""
    if isinstance(view, PoolView):
        # Flat, so that what is read is what may be written.
        return {**as_plain(view.pool), "taken": view.taken, "by_key": dict(view.by_key)}
    if isinstance(view, WorkflowView):
        return _plain_workflow(view)
    shaped = _SHAPED.get(type(view), {})
    shown = {
        name: shaped[name].show(getattr(view, name)) if name in shaped else getattr(view, name)
        for name in view.__struct_fields__
    }
    return to_builtins(shown)


def _plain_workflow(view: WorkflowView) -> dict[str, Any]:
    """Flat, and without what only the scheduler remembers of it."""
    workflow = view.workflow
    return {
        **{name: getattr(workflow, name) for name in ("tenant", "name", "version", "graph", "paused", "source", "doc")},
        "params": _show_declared(workflow.params),
        "versions": [as_plain(version) for version in workflow.versions],
        **to_builtins({name: getattr(view, name) for name in view.__struct_fields__ if name != "workflow"}),
    }


def _show_declared(params: tuple[Param, ...]) -> list[dict[str, Any]]:
    return [show_param(param) for param in params]


def shape_of(
    view: type[Struct], *, name: str = "", without: Iterable[str] = (), optional: bool = False, **other: tuple[Any, Any]
) -> type[Struct]:
    """The struct that JSON of a view decodes to: its fields, with what stands in their place.

    A field that has a default is `optional` in what is sent to us, and is always there in what we send. `without`
    leaves fields out; `other` gives a field another type and default, or adds one.
    """
    shaped = _SHAPED.get(view, {})
    fields: list[tuple[str, Any, Any]] = []
    for field in msgspec.structs.fields(view):
        if field.name in without or field.name in other:
            continue
        kind = shaped[field.name].kind if field.name in shaped else field.type
        default = field.default if optional else msgspec.NODEFAULT
        if field.name in shaped and default is not msgspec.NODEFAULT:
            default = shaped[field.name].show(default)
        fields.append((field.name, kind, _default(default)))
    fields += [(added, kind, _default(default)) for added, (kind, default) in other.items()]
    return defstruct(
        name or view.__name__.removesuffix("View"),
        fields,
        namespace={"__doc__": view.__doc__},
        kw_only=True,
        frozen=True,
        forbid_unknown_fields=True,
    )


def _default(value: Any) -> Any:
    if value is msgspec.NODEFAULT:
        return msgspec.field()
    if value == {}:
        return msgspec.field(default_factory=cast(Callable[[], Any], dict))
    return msgspec.field(default=value)


def _gathered(pairs: tuple[tuple[str, str], ...]) -> dict[str, list[str]]:
    """A property may have several values."""
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


_SHAPED: dict[type[Struct], dict[str, Shaping]] = {
    RunView: {"params": Shaping(dict[str, Any], show_params), "labels": Shaping(dict[str, str], dict)},
    TaskView: {
        "fence": Shaping(str, str),
        "result": Shaping(Any, show_result),
        "requires": Shaping(dict[str, list[str]] | None, lambda pairs: None if pairs is None else _gathered(pairs)),
    },
    Capacity: {"properties": Shaping(dict[str, list[str]], _gathered)},
    Queue: {"properties": Shaping(dict[str, PropertyRule], dict)},
    Reason: {"about": Shaping(dict[str, str], dict)},
    Version: {"params": Shaping(list[Any], _show_declared)},
}

CapacityShape = shape_of(Capacity)
_SHAPED[WorkerView] = {"capacity": Shaping(CapacityShape, as_plain)}

RunShape = shape_of(RunView)
TaskShape = shape_of(TaskView)
WorkerShape = shape_of(WorkerView)
QueueShape = shape_of(Queue)
ReasonShape = shape_of(Reason)
VersionShape = shape_of(Version)
ScheduleShape = shape_of(ScheduleSpec, name="Schedule")
BackfillShape = shape_of(BackfillView)


class PoolShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pool, with what live leases hold of it, in all and for each key."""

    tenant: str
    name: str
    slots: int
    slots_per_key: int
    starts_per_minute: int
    burst: int
    taken: int
    by_key: dict[str, int]


class ParamShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A parameter of a workflow's runs.

    `default` has a meaning only if it is not `required` and not `defaults_to_logical_date`, where the default is the
    logical date of each run.
    """

    name: str
    type: ParamType
    required: bool
    default: Any
    nullable: bool
    choices: list[Any]
    least: float | None
    most: float | None
    pattern: str
    doc: str
    defaults_to_logical_date: bool


class WorkflowShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workflow: its present version, what its runs take, when they are made, and how many there are."""

    tenant: str
    name: str
    version: int
    graph: str
    params: list[ParamShape]
    versions: list[VersionShape]  # pyright: ignore[reportInvalidTypeForm] - made from the record's own fields
    paused: bool
    source: str
    doc: str
    schedule: ScheduleShape | None  # pyright: ignore[reportInvalidTypeForm] - made from the spec's own fields
    next_at: Millis | None
    last_slot_at: Millis | None
    active_runs: int
    waiting_runs: int
    max_active_runs: int
    tasks: int
    zone: str
