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
    """A body whose large fields are not decoded yet."""
    fields: list[Any] = []
    for field in structs.fields(kind):
        if field.name in other:
            fields.append((field.name, *other[field.name]))
        elif field.default_factory is not msgspec.NODEFAULT:
            fields.append((field.name, field.type, msgspec.field(default_factory=field.default_factory)))
        elif field.default is not msgspec.NODEFAULT:
            fields.append((field.name, field.type, field.default))
        else:
            fields.append((field.name, field.type))
    return msgspec.defstruct(f"Found{kind.__name__}", fields, kw_only=True, frozen=True, forbid_unknown_fields=True)


_FOUND: dict[type[Struct], type[Struct]] = {
    SubmitBody: _found(SubmitBody, graph=(_FoundGraph | None, None), params=(Raw, Raw(b"{}"))),
    DeployBody: _found(DeployBody, graph=(_FoundGraph,), params=(Raw, Raw(b"[]"))),
}
_VALUES: dict[type[Struct], Any] = {SubmitBody: dict[str, Any], DeployBody: tuple[ParamBody, ...]}


def is_large(kind: type[Struct]) -> bool:
    """Whether a body of this type may have very many tasks."""
    return kind in _FOUND


async def parse_large(content: bytes, kind: type[Struct]) -> Any:
    """A body as its type; `graph` is the graph itself, with its tasks."""
    found: Any = parse(content, _FOUND[kind], kind)
    values = parse_part(_bounded(found.params, "params", BODY_BYTES_MAX, ITEMS_MAX), _VALUES[kind], "params", kind)
    graph = None if found.graph is None else await _graph(found.graph, kind)
    given = {field.name: getattr(found, field.name) for field in structs.fields(kind)}
    return kind(**{**given, "params": values, "graph": graph})


async def _graph(found: Any, kind: type[Struct]) -> Graph:
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
