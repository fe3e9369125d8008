"""Work items: what is asked for, what may be done about one, and how one is seen.

An item is a run of one task that sessions claim. Its words are agents' own; what they become is for whoever compiles
them (`rota.kinds.agent.items`). Here is how they are read back, so that everybody shows an item alike.
"""

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct, to_builtins

from rota.core.commands import Exit
from rota.core.errors import Refused
from rota.core.graph import check_size
from rota.core.ids import Fence, Millis
from rota.core.model import Approval, Pairs, PriorityClass, TaskSpec
from rota.core.question import Question
from rota.core.questions import RunView, TaskView
from rota.core.states import RUN_TERMINAL
from rota.wire.given import plain
from rota.wire.values import PLAIN, unpack
from rota.wire.views import UNREADABLE, show_result

# What an item's graph and its only task are called.
WORK = "work"
TITLE = "title"
PAYLOAD_BYTES_MAX = 64 * 1024
# With its envelope a result has 64 KiB, like that of every task.
RESULT_BYTES_MAX = 64 * 1024 - 32
TITLE_CHARS_MAX = 200
ATTEMPTS = 3
ATTEMPTS_MAX = 10
BULK_MAX = 50
# In front of an owner's name: any session of that agent, or one session.
POOL_OWNER = "pool"
SESSION_OWNER = "session"


class Priority(StrEnum):
    """How urgent an item is, in agents' words."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    URGENT = "urgent"


PRIORITY_CLASSES: dict[Priority, PriorityClass] = {
    Priority.LOW: PriorityClass.LOW,
    Priority.MEDIUM: PriorityClass.NORMAL,
    Priority.HIGH: PriorityClass.HIGH,
    Priority.URGENT: PriorityClass.URGENT,
}
_PRIORITIES = {of_class: priority for priority, of_class in PRIORITY_CLASSES.items()}


class ApprovalPolicy(StrEnum):
    """Whether a person has to approve of an item before anybody may claim it."""

    NONE = "none"
    MANUAL = "manual"


class WorkItem(Struct, frozen=True, kw_only=True):
    """What somebody wants done. `payload` is MessagePack; `owner` is `pool:AGENT`, `session:ID` or nothing."""

    title: str
    payload: bytes = b""
    requires: tuple[str, ...] = ()
    prefers: tuple[str, ...] = ()
    priority: Priority = Priority.MEDIUM
    workspace: str = ""
    channel: str = ""
    owner: str = ""
    depends_on: tuple[str, ...] = ()
    approval: ApprovalPolicy = ApprovalPolicy.NONE
    max_attempts: int = ATTEMPTS
    deadline_at: Millis = 0
    parent: str = ""
    labels: Pairs = ()


class SubmitWork(Question, frozen=True, kw_only=True, tag="SubmitWork"):
    """Make an item. The same `command_id` again makes no second one; the answer is its id."""

    command_id: str
    item: str
    work: WorkItem


class ResolveWork(Question, frozen=True, kw_only=True, tag="ResolveWork"):
    """Take a parked item out of needs_attention, at no cost. What is not None replaces what it asks of a session."""

    command_id: str
    item: str
    exit: Exit = Exit.REQUEUE
    requires: tuple[str, ...] | None = None
    prefers: tuple[str, ...] | None = None
    channel: str | None = None
    owner: str | None = None


class ItemView(Struct, frozen=True, kw_only=True):
    """An item as its readers see it. `state` is that of its task, or of its run before the task waits and at the end.

    `session` holds it, or held it last; `deliveries` is how often it was lost by whoever had it.
    """

    item: str
    title: str
    state: str
    priority: Priority
    workspace: str
    channel: str
    owner: str
    requires: tuple[str, ...]
    prefers: tuple[str, ...]
    payload: Any
    depends_on: tuple[str, ...]
    approval: Approval
    paused: bool
    attempt: int
    max_attempts: int
    deliveries: int
    session: str
    fence: Fence
    created_at: Millis
    eligible_at: Millis
    started_at: Millis
    ended_at: Millis
    deadline_at: Millis
    reason: str
    error: str
    note: str
    result: Any
    parent: str
    labels: dict[str, str]


class BulkOutcome(Struct, frozen=True, kw_only=True):
    """What became of one item of several: `code` and `error` are empty if it was done."""

    item: str
    done: bool
    code: str = ""
    error: str = ""


class Words(Struct, frozen=True):
    """What an item asks of a session, in agents' words."""

    workspace: str
    channel: str
    owner: str
    requires: tuple[str, ...]
    prefers: tuple[str, ...]


def words_of(requires: Pairs) -> Words:
    """The words that became these requirements."""
    found: dict[str, list[str]] = {}
    for name, value in requires:
        found.setdefault(name, []).append(value)

    def first(name: str) -> str:
        return found.get(name, [""])[0]

    workspace = first("workspace")
    owner = ""
    if "agent" in found:
        owner = f"{POOL_OWNER}:{first('agent')}"
    elif "session" in found:
        owner = f"{SESSION_OWNER}:{first('session')}"
    return Words(
        "" if workspace == "-" else workspace,
        first("channel"),
        owner,
        tuple(found.get("capability", ())),
        tuple(found.get("prefers", ())),
    )


def view_item(run: RunView, task: TaskView | None, spec: TaskSpec) -> ItemView:
    """An item from its run, its task and what its graph says of the task."""
    labels = dict(run.labels)
    words = words_of(spec.requires if task is None or task.requires is None else task.requires)
    is_at_work = task is not None and run.state not in RUN_TERMINAL and bool(task.eligible_at)
    return ItemView(
        item=run.id,
        title=labels.get(TITLE, ""),
        state=str(task.state if task is not None and is_at_work else run.state),
        priority=_PRIORITIES.get(run.priority, Priority.MEDIUM),
        workspace=words.workspace,
        channel=words.channel,
        owner=words.owner,
        requires=words.requires,
        prefers=words.prefers,
        payload=open_plain(run.params),
        depends_on=run.after,
        approval=run.approval,
        paused=run.paused,
        attempt=task.attempt if task is not None else 0,
        max_attempts=spec.retry.retries + 1,
        deliveries=task.interruptions if task is not None else 0,
        session=task.worker if task is not None else "",
        fence=Fence(task.fence if task is not None else 0),
        created_at=run.created_at,
        eligible_at=task.eligible_at if task is not None else 0,
        started_at=task.started_at if task is not None else 0,
        ended_at=run.ended_at,
        deadline_at=run.deadline_at,
        reason=run.reason,
        error=task.error if task is not None else "",
        note=task.note if task is not None else "",
        result=show_result(task.result) if task is not None else None,
        parent=run.parent,
        labels=labels,
    )


def pack_plain(value: Any, path: str, bytes_max: int = PAYLOAD_BYTES_MAX) -> bytes:
    """A value as it travels; nothing for None. Only what JSON has a form for too, and not too much of it."""
    if value is None:
        return b""
    try:
        packed = msgspec.msgpack.encode(plain(value))
    except (TypeError, OverflowError, ValueError, RecursionError) as error:
        hint = "Use text, numbers, lists, dictionaries and dates."
        raise Refused("field.type", f"this cannot be sent: {error}", hint, path=path) from None
    check_plain(packed, path, bytes_max)
    return packed


def check_plain(packed: bytes, path: str, bytes_max: int = PAYLOAD_BYTES_MAX) -> None:
    """Refuse what is too large, or not what `pack_plain` writes: readers must be able to open it."""
    check_size(packed, bytes_max, path)
    try:
        if packed:
            to_builtins(unpack(PLAIN, packed), str_keys=True)
    except UNREADABLE as error:
        raise Refused("field.type", f"this is no value that can be read: {error}", path=path) from None


def open_plain(packed: bytes) -> Any:
    """The value again. Whoever sent it wrote it, so it may be anything."""
    if not packed:
        return None
    try:
        return to_builtins(unpack(PLAIN, packed), str_keys=True)
    except UNREADABLE:
        return {"size": len(packed), "encoding": "unknown"}
