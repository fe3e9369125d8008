"""Large requests: their tasks, or the bytes of a bundle, travel as parts of their own.

A request is an array: its number, any parts as byte strings, and last the body, whose first key is its type. So the
number, the type and every size are read from a few headers, and a request that is too large is refused before
anything is decoded. Parts hold few tasks each and are decoded one by one: between two of them the event loop turns.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, structs

from rota.core import commands as cm
from rota.core.bounds import NODES_PER_GRAPH_MAX
from rota.core.errors import Refused
from rota.core.model import TaskSpec
from rota.core.tags import tag_of

# What is said in one message of gRPC, unless one thing is larger. A message costs as much as thirty requests.
BATCH_BYTES = 1 << 20
# The largest request there is: one with a graph.
REQUEST_BYTES_MAX = 64 << 20
# A request up to this size is decoded at once, whatever it holds.
SMALL_BYTES_MAX = 64 * 1024
# What the fields of a request may have besides its parts. Parameters have up to 256 KiB.
BODY_BYTES_MAX = 512 * 1024
TASKS_PER_PART_MAX = 1_000
# A sender begins another part at this size. One task may be larger: it may wait for very many others.
PART_BYTES = 256 * 1024
PART_BYTES_MAX = 2 * 1024 * 1024
PARTS_MAX = 2_000

_TYPE_KEY = b"\xa4type"
_encode = msgspec.msgpack.Encoder().encode
_tasks = msgspec.msgpack.Decoder(Annotated[list[TaskSpec], Meta(max_length=TASKS_PER_PART_MAX)])


class RequestHead(Struct, frozen=True):
    """What the headers of a request say: no value of it was decoded."""

    number: int
    # The name of the body's type; empty if the body does not begin with it.
    tag: str
    parts: tuple[memoryview, ...]
    body: memoryview

    @property
    def size(self) -> int:
        """How many bytes the request has."""
        return len(self.body) + sum(len(part) for part in self.parts)


def read_head(content: bytes | memoryview | msgspec.Raw) -> RequestHead:
    """The head of a request. Raises Refused if it does not begin like one."""
    view = memoryview(content)
    try:
        length, at = _array(view, 0)
        number, at = _number(view, at)
        if not 2 <= length <= PARTS_MAX + 2:
            raise Refused("field.type", f"this is no request: it has {length:,} elements")
        parts: list[memoryview] = []
        for _ in range(length - 2):
            size, at = _bytes(view, at)
            parts.append(view[at : at + size])
            at += size
        return RequestHead(number, _tag(view, at), tuple(parts), view[at:])
    except (IndexError, _WrongHeaderError):
        raise Refused("field.type", "this is no request: its beginning cannot be read") from None


def number_of(content: bytes | memoryview | msgspec.Raw) -> int:
    """The number of a request that cannot be read otherwise; 0 if not even that."""
    view = memoryview(content)
    try:
        return _number(view, _array(view, 0)[1])[0]
    except (IndexError, _WrongHeaderError):
        return 0


def check_parts(head: RequestHead) -> None:
    """Refuse a request whose body, or one of whose parts, would take too long to decode at once."""
    split = SPLIT.get(head.tag)
    if split is None:
        if head.parts:
            raise Refused("field.type", f"a request of type {head.tag[:100]!r} has no parts")
        return
    if len(head.body) > BODY_BYTES_MAX:
        hint = "Send the tasks, or the bundle, in parts."
        raise Refused("field.size", f"{len(head.body):,} bytes are more than {BODY_BYTES_MAX:,}", hint)
    largest = max((len(part) for part in head.parts), default=0)
    if split.is_tasks and largest > PART_BYTES_MAX:
        raise Refused("field.size", f"a part of {largest:,} bytes is larger than {PART_BYTES_MAX:,}")


def decode_parts(head: RequestHead) -> Generator[None, None, Callable[[Any], Any]]:
    """Decodes the parts, one at each step; the result puts them into the decoded body."""
    split = SPLIT[head.tag]
    if not split.is_tasks:
        content = b"".join(head.parts)
        return lambda body: split.join(body, content)
    specs: list[TaskSpec] = []
    for part in head.parts:
        specs += _tasks.decode(part)
        if len(specs) > NODES_PER_GRAPH_MAX:
            raise Refused(
                "field.size", f"there are more than {NODES_PER_GRAPH_MAX:,} tasks", "Use `width` for tasks alike."
            )
        yield
    whole = tuple(specs)
    return lambda body: split.join(body, whole)


def pack_large(number: int, body: Any) -> bytes | None:
    """A request in parts; None if its type has none."""
    split = SPLIT.get(tag_of(body))
    if split is None:
        return None
    content = split.take(body)
    if content is None:
        return None
    parts = _pack_tasks(content) if split.is_tasks else [content]
    return _encode([number, *parts, split.join(body, () if split.is_tasks else b"")])


def _pack_tasks(specs: Sequence[TaskSpec]) -> list[bytes]:
    parts: list[bytes] = []
    batch: list[msgspec.Raw] = []
    size = 0
    for spec in specs:
        packed = _encode(spec)
        if batch and (size + len(packed) > PART_BYTES or len(batch) == TASKS_PER_PART_MAX):
            parts.append(_encode(batch))
            batch, size = [], 0
        batch.append(msgspec.Raw(packed))
        size += len(packed)
    if batch:
        parts.append(_encode(batch))
    return parts


class _Split(Struct, frozen=True):
    """How the large field of a request is taken out of it, and put back."""

    take: Callable[[Any], Any]
    join: Callable[[Any, Any], Any]
    is_tasks: bool = True


def _graph_tasks(body: Any) -> Any:
    return None if body.graph is None else body.graph.tasks


def _with_graph_tasks(body: Any, tasks: Any) -> Any:
    if body.graph is None:
        raise Refused("field.type", "there are tasks in parts, and no graph for them", path="graph")
    return structs.replace(body, graph=structs.replace(body.graph, tasks=tasks))


_OF_GRAPH = _Split(_graph_tasks, _with_graph_tasks)
SPLIT: dict[str, _Split] = {
    **dict.fromkeys((tag_of(kind) for kind in (cm.SubmitRun, cm.DeployWorkflow, cm.PutSchedule)), _OF_GRAPH),
    tag_of(cm.GrowRun): _Split(lambda body: body.specs, lambda body, specs: structs.replace(body, specs=specs)),
    "PutBundle": _Split(
        lambda body: body.content, lambda body, content: structs.replace(body, content=content), is_tasks=False
    ),
}


# MessagePack headers, as far as a head needs them.


class _WrongHeaderError(Exception):
    """Something else stands here."""


def _uint(view: memoryview, at: int, size: int) -> tuple[int, int]:
    if at + size > len(view):
        raise _WrongHeaderError
    return int.from_bytes(view[at : at + size], "big"), at + size


def _array(view: memoryview, at: int) -> tuple[int, int]:
    first = view[at]
    if first & 0xF0 == 0x90:
        return first & 0x0F, at + 1
    if first in (0xDC, 0xDD):
        return _uint(view, at + 1, 2 if first == 0xDC else 4)
    raise _WrongHeaderError


def _number(view: memoryview, at: int) -> tuple[int, int]:
    first = view[at]
    if first <= 0x7F:
        return first, at + 1
    if 0xCC <= first <= 0xCF:
        return _uint(view, at + 1, 1 << (first - 0xCC))
    if 0xD0 <= first <= 0xD3:
        # Signed, as some libraries write numbers that are not negative.
        size = 1 << (first - 0xD0)
        number, after = _uint(view, at + 1, size)
        if number < 1 << (8 * size - 1):
            return number, after
    raise _WrongHeaderError


def _bytes(view: memoryview, at: int) -> tuple[int, int]:
    first = view[at]
    if not 0xC4 <= first <= 0xC6:
        raise _WrongHeaderError
    size, at = _uint(view, at + 1, 1 << (first - 0xC4))
    if at + size > len(view):
        raise _WrongHeaderError
    return size, at


def _tag(view: memoryview, at: int) -> str:
    first = view[at]
    if first & 0xF0 == 0x80:
        at += 1
    elif first in (0xDE, 0xDF):
        at += 3 if first == 0xDE else 5
    else:
        return ""
    if bytes(view[at : at + len(_TYPE_KEY)]) != _TYPE_KEY:
        return ""
    at += len(_TYPE_KEY)
    first = view[at]
    if first & 0xE0 == 0xA0:
        size, at = first & 0x1F, at + 1
    elif first == 0xD9:
        size, at = _uint(view, at + 1, 1)
    else:
        return ""
    return bytes(view[at : at + size]).decode(errors="replace")
