"""What callers send: runs and workflows, with the work of their tasks in words; definitions of queues and pools."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from rota.core.bounds import BACKFILL_ACTIVE_RUNS
from rota.core.calendar import ScheduleSpec
from rota.core.commands import Exit, Mark
from rota.core.errors import Refused
from rota.core.ids import BlobRef
from rota.core.model import Graph, Param, Pool, PriorityClass, Queue, TaskSpec
from rota.wire.views import shape_of
from rota.wire.web import check_request
from rota.wire.work import COMMAND, HTTP, CommandWork, HttpWork, check_env, encode_work


class CommandBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program to run: a line for a shell, or a program with its arguments as they are."""

    shell: str = ""
    argv: tuple[str, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    cwd: str = ""
    skip_codes: tuple[int, ...] = CommandWork().skip_codes


def _command(body: CommandBody, path: str) -> tuple[str, bytes]:
    if bool(body.shell) == bool(body.argv):
        raise Refused("field.value", "a command has either `shell` or `argv`", "Give one of them.", path=path)
    check_env(body.env, f"{path}.env")
    work = CommandWork(
        argv=body.argv, shell=body.shell, env=tuple(body.env.items()), cwd=body.cwd, skip_codes=body.skip_codes
    )
    return COMMAND, encode_work(work)


class HttpBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to send from a worker: `body` in base64, or `json` instead of it."""

    url: str
    method: str = HttpWork().method
    headers: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    body: bytes = b""
    json: Any = msgspec.UNSET
    accepted: tuple[int, ...] = HttpWork().accepted
    timeout_ms: int = HttpWork().timeout_ms


def _http(body: HttpBody, path: str) -> tuple[str, bytes]:
    headers, content = dict(body.headers), body.body
    if body.json is not msgspec.UNSET:
        if content:
            raise Refused("field.value", "a request has either `body` or `json`", "Give one of them.", path=path)
        content = msgspec.json.encode(body.json)
        if not any(name.lower() == "content-type" for name in headers):
            headers["Content-Type"] = "application/json"
    work = HttpWork(
        method=body.method,
        url=body.url,
        headers=tuple(headers.items()),
        body=content,
        accepted=body.accepted,
        timeout_ms=body.timeout_ms,
    )
    try:
        check_request(work)
    except Refused as refused:
        raise Refused(refused.code, refused.reason, refused.hint, path=f"{path}.{refused.path}") from None
    return HTTP, encode_work(work)


# Work in words: the field of a task that holds it, and how it becomes the kind and the bytes of a task.
WORKS: dict[str, Callable[[Any, str], tuple[str, bytes]]] = {"command": _command, "http": _http}

TaskBody = shape_of(
    TaskSpec,
    name="TaskDefinition",
    optional=True,
    kind=(str, ""),
    work=(bytes | None, None),
    requires=(dict[str, str], {}),
    command=(CommandBody | None, None),
    http=(HttpBody | None, None),
)


class BundleBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bundle by its name, as it was answered when it was put."""

    name: str
    size: int
    sha256: str


GraphBody = shape_of(
    Graph,
    name="GraphDefinition",
    optional=True,
    tasks=(tuple[TaskBody, ...], msgspec.NODEFAULT),
    bundle=(BundleBody | None, None),
)
ParamBody = shape_of(
    Param,
    name="ParamDefinition",
    optional=True,
    default=(Any, msgspec.UNSET),
    choices=(tuple[Any, ...], ()),
)
QueueBody = shape_of(Queue, name="QueueDefinition", without=("tenant", "name"), optional=True)
PoolBody = shape_of(Pool, name="PoolDefinition", without=("tenant", "name"), optional=True)


class SubmitBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to be made, of a graph given whole or by the digest of one that is known.

    While a run with the same `merge` has not ended, it is joined instead. Runs with the same `share` take their turns
    as if they were one.
    """

    # As it is sent; the endpoint finds a `Graph` here (`large_bodies`).
    graph: GraphBody | None = None  # pyright: ignore[reportInvalidTypeForm] - made from the graph's own fields
    digest: str = ""
    params: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    run: str = ""
    priority: PriorityClass = PriorityClass.NORMAL
    merge: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    share: str = ""


class CancelBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a run is cancelled."""

    reason: str = "cancelled on request"


class EmptyBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing has to be said."""


class ClearBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks to run again, all if none are named; everything after them too unless told otherwise.

    `dry_run`: only say which those are.
    """

    tasks: tuple[str, ...] = ()
    downstream: bool = True
    only_failed: bool = False
    dry_run: bool = False


class MarkBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What tasks came to."""

    tasks: tuple[str, ...]
    to: Mark


class RetryBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks are tried now, if they wait for another try, or run again, if they failed for good or were cancelled;
    all of both sorts if none are named.
    """

    tasks: tuple[str, ...] = ()


class MoveBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """To which version of its workflow a run moves; 0 is the present one."""

    version: int = 0


class NoteBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be known about a task or a run; an empty note takes it away."""

    note: str


class DeployBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workflow to be deployed under its graph's name. Without a schedule it has none any more.

    `zone` is the time zone of its dates: by default that of its schedule, or UTC.
    """

    graph: GraphBody  # pyright: ignore[reportInvalidTypeForm] - made from the graph's own fields
    params: tuple[ParamBody, ...] = ()  # pyright: ignore[reportInvalidTypeForm] - likewise
    schedule: ScheduleSpec | None = None
    priority: PriorityClass = PriorityClass.NORMAL
    paused: bool | None = None
    source: str = ""
    doc: str = ""
    zone: str = ""


class PausedBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a workflow is paused."""

    paused: bool


class TriggerBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to be made of a workflow. `logical_date` is in ISO form, in the workflow's time zone unless it says so."""

    params: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    logical_date: str = ""
    version: int = 0
    run: str = ""
    priority: PriorityClass = PriorityClass.NORMAL


class BackfillBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which stretch of a workflow's calendar is made up for, by dates in ISO form; `dry_run`: only say what that is."""

    workflow: str
    start: str
    end: str
    max_active_runs: int = BACKFILL_ACTIVE_RUNS
    params: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    backfill: str = ""
    dry_run: bool = False


class ResolveBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The way out of needs_attention; `requires` replaces what the task asks of a worker."""

    exit: Exit = Exit.REQUEUE
    requires: dict[str, str] | None = None


def param_from(body: Any) -> Param:
    """The parameter that a body describes."""
    fields = {name: getattr(body, name) for name in Param.__struct_fields__}
    encode = msgspec.msgpack.Encoder(order="deterministic").encode
    fields["default"] = None if body.default is msgspec.UNSET else encode(body.default)
    fields["choices"] = tuple(encode(choice) for choice in body.choices)
    return Param(**fields)


def graph_fields(body: Any) -> dict[str, Any]:
    """The fields of the graph that a body describes; its tasks are the caller's to add."""
    fields = {name: getattr(body, name) for name in Graph.__struct_fields__}
    if body.bundle is not None:
        fields["bundle"] = BlobRef(body.bundle.name, body.bundle.size, body.bundle.sha256)
    return fields


def task_from(body: Any, path: str) -> TaskSpec:
    """The task that a body describes."""
    fields = {name: getattr(body, name) for name in TaskSpec.__struct_fields__}
    fields["requires"] = tuple(body.requires.items())
    given = [name for name in ("work", *WORKS) if getattr(body, name) is not None]
    if len(given) != 1:
        what = " and ".join(f"`{name}`" for name in given) or "no work"
        hint = f"Give one of {', '.join((*WORKS, 'work'))}."
        raise Refused("field.value", f"task {body.id!r} has {what}", hint, path=path)
    if given[0] != "work":
        kind, fields["work"] = WORKS[given[0]](getattr(body, given[0]), f"{path}.{given[0]}")
        if body.kind not in ("", kind):
            text = f"task {body.id!r} has `{given[0]}` and is said to be of kind {body.kind!r}"
            raise Refused("field.value", text, "Leave `kind` out.", path=f"{path}.kind")
        fields["kind"] = kind
    elif not body.kind:
        text = f"task {body.id!r} has `work`, and what kind of work is not said"
        raise Refused("field.value", text, "Give its `kind`.", path=f"{path}.kind")
    return TaskSpec(**fields)
