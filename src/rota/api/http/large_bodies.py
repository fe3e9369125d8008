"""Bodies with very many tasks: the tasks are found first, and then decoded in slices between which the loop turns.

The first step builds no object inside a task or a value; what it costs is bounded by the bytes and items of a body
(`rota.api.http.reading`). The second bounds each task and each value by itself.
"""

import asyncio
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from rota.api.http.bodies import DeployBody, GraphBody, ParamBody, SubmitBody, TaskBody, graph_fields, task_from
from rota.api.http.reading import BODY_BYTES_MAX, ITEMS_MAX, check_items, parse, parse_part
from rota.core.errors import Refused
from rota.core.model import Graph
from rota.wire.views import shape_of

# One task: its work has up to 256 KiB, and it may wait for very many others.
TASK_BYTES_MAX = 2 * 1024 * 1024
TASK_ITEMS_MAX = 200_000
# So much is decoded in one turn; a task counts for more than its bytes.
SLICE_BYTES = 64 * 1024
TASK_COSTS_BYTES = 256

_FoundGraph = shape_of(
    Graph,
    name="FoundGraph",
    optional=True,
    tasks=(list[Raw], msgspec.NODEFAULT),
    bundle=(next(field.type for field in structs.fields(GraphBody) if field.name == "bundle"), None),
)


def _found(kind: type[Struct], **other: Any) -> type[Struct]:
    """A body no field of which is decoded yet; one that is missing is empty."""
    fields: list[Any] = []
    for field in structs.fields(kind):
        if field.name in other:
            fields.append((field.name, *other[field.name]))
        elif field.required:
            fields.append((field.name, Raw))
        else:
            fields.append((field.name, Raw, Raw()))
    return msgspec.defstruct(f"Found{kind.__name__}", fields, kw_only=True, frozen=True, forbid_unknown_fields=True)


_RawGraph = _found(_FoundGraph, tasks=(list[Raw],))
_FOUND: dict[type[Struct], type[Struct]] = {
    SubmitBody: _found(SubmitBody, graph=(_RawGraph | None, None)),
    DeployBody: _found(DeployBody, graph=(_RawGraph,)),
}
_VALUES: dict[type[Struct], Any] = {SubmitBody: dict[str, Any], DeployBody: tuple[ParamBody, ...]}


def is_large(kind: type[Struct]) -> bool:
    """Whether a body of this type may have very many tasks."""
    return kind in _FOUND


async def parse_large(content: bytes, kind: type[Struct]) -> Any:
    """A body as its type; `graph` is the graph itself, with its tasks."""
    found: Any = parse(content, _FOUND[kind], kind)
    given = _fields(found, kind, kind, params=_VALUES[kind])
    graph = None if found.graph is None else await _graph(found.graph, kind)
    return kind(**given, graph=graph)


def _fields(found: Any, shape: type[Struct], kind: type[Struct], where: str = "", **other: Any) -> dict[str, Any]:
    """The fields that were given besides the graph and its tasks, each bounded by itself.

    They are those of `shape`, at a path of a body of the type `kind`. `other` has types that are not the field's own.
    """
    given: dict[str, Any] = {}
    for field in structs.fields(shape):
        raw = getattr(found, field.name)
        if field.name not in ("graph", "tasks") and len(memoryview(raw)):
            path = f"{where}{field.name}"
            content = _bounded(raw, path, BODY_BYTES_MAX, ITEMS_MAX)
            given[field.name] = parse_part(content, other.get(field.name, field.type), path, kind)
    return given


async def _graph(raw_graph: Any, kind: type[Struct]) -> Graph:
    found: Any = _FoundGraph(**_fields(raw_graph, _FoundGraph, kind, "graph."), tasks=raw_graph.tasks)
    tasks: list[Any] = []
    cost = 0
    for position, raw in enumerate(found.tasks):
        path = f"graph.tasks[{position}]"
        cost += len(memoryview(raw)) + TASK_COSTS_BYTES
        body = parse_part(_bounded(raw, path, TASK_BYTES_MAX, TASK_ITEMS_MAX), TaskBody, path, kind)
        tasks.append(task_from(body, path))
        if cost > SLICE_BYTES:
            cost = 0
            await asyncio.sleep(0)
    fields = graph_fields(found)
    fields["tasks"] = tuple(tasks)
    return Graph(**fields)


def _bounded(raw: Raw, path: str, bytes_max: int, items_max: int) -> bytes:
    content = bytes(raw)
    if len(content) > bytes_max:
        text = f"{len(content):,} bytes are more than {bytes_max:,}"
        raise Refused("field.size", text, "Read it in a task, or have a task return it.", path=path)
    check_items(content, items_max, path)
    return content
