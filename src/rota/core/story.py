"""The story of a run: reading the durable account of what happened to it, and telling it to people."""

from collections.abc import Callable, Iterable, Iterator
from typing import cast

import msgspec

from rota.core import changes as ch
from rota.core.errors import headline
from rota.core.ids import Fence, Millis, show_fence
from rota.core.records import Growth, Story
from rota.core.spans import show_instant
from rota.core.tags import tag_of

RunChange = (
    ch.RunSubmitted
    | ch.RunStarted
    | ch.RunEnded
    | ch.RunReopened
    | ch.RunPaused
    | ch.RunUnblocked
    | ch.RunApproved
    | ch.RunStopping
    | ch.RunFaulted
    | ch.RunGrew
    | ch.PendingSet
    | ch.RunArchived
    | ch.RunMoved
    | ch.RunNoted
    | ch.TasksScheduled
    | ch.TasksSettled
    | ch.TasksReset
    | ch.TaskRequeued
    | ch.TaskMarked
    | ch.TaskNoted
    | ch.TaskAmended
    | ch.TaskEnded
    | ch.TaskStarved
    | ch.LeaseGranted
    | ch.TokenReplaced
    | ch.AttemptStarted
    | ch.AttemptEnded
    | ch.LeaseReturned
    | ch.RevokedLeaseEnded
    | ch.ReportRefused
)
Namer = Callable[[int], str]

_decode = msgspec.msgpack.Decoder(list[RunChange]).decode
_NAMED_MAX = 10
_UNTOLD = (
    "tenant",
    "run",
    "row",
    "at",
    "worker_tenant",
    "incarnation",
    "growths",
    "lease_ms",
    "result",
    "params",
    "pending",
    "token_hash",
)


def read_story(story: Story) -> list[RunChange]:
    """What one commit changed about one run."""
    return _decode(story.changes)


def story(parts: Iterable[Story], task: int | None = None) -> Iterator[tuple[Millis, RunChange]]:
    """Everything that happened to a run, or to one of its tasks, with the time of each commit."""
    for part in parts:
        for change in read_story(part):
            if task is None or is_about(change, task):
                yield part.at, change


def is_about(change: RunChange, task: int) -> bool:
    """Whether a change concerns one task; changes of the whole run concern none in particular."""
    if isinstance(change, ch.RunMoved):
        return False
    return getattr(change, "task", None) == task or task in getattr(change, "tasks", ())


def is_told(change: RunChange) -> bool:
    """Whether people are told of a change: not where a long cascade stands, which is the scheduler's own affair."""
    return not isinstance(change, ch.PendingSet)


def story_lines(parts: Iterable[Story], began_at: Millis, namer: Namer = str, task: int | None = None) -> Iterator[str]:
    """A story for people, in seconds since `began_at`; `namer` gives tasks their names."""
    for at, change in story(parts, task):
        if is_told(change):
            yield show_line(at - began_at, describe(change, namer))


def show_line(after_ms: Millis, text: str) -> str:
    """One line of a story for people."""
    return f"{after_ms / 1000:8.3f} s  {text}"


def _show(name: str, value: object) -> object:
    if isinstance(value, int) and name == "fence":
        return show_fence(Fence(value))
    if isinstance(value, int) and name.endswith("_at"):
        return show_instant(value)
    if isinstance(value, str) and name == "error":
        return headline(value)
    return ",".join(map(str, cast("tuple[object, ...]", value))) if isinstance(value, tuple) else value


def _tell_growth(growth: Growth) -> str:
    if growth.expands:
        return f"{growth.expands}: width {growth.width}"
    if growth.feeds and not growth.specs:
        return f"{growth.feeds}: what it went on as is let go"
    names = ", ".join(spec.id if spec.width == 1 else f"{spec.id} × {spec.width}" for spec in growth.specs[:_NAMED_MAX])
    more = f" and {len(growth.specs) - _NAMED_MAX} more" if len(growth.specs) > _NAMED_MAX else ""
    return f"{growth.feeds}: goes on as {names}{more}" if growth.feeds else f"added: {len(growth.specs)}"


def describe(change: RunChange, namer: Namer = str) -> str:
    """One change as a short line: its name, then what it is about."""
    return f"{tag_of(change):<16}{tell(change, namer)}".rstrip()


def tell(change: RunChange, namer: Namer = str) -> str:
    """What a change is about."""
    parts: list[str] = []
    for name in change.__struct_fields__:
        value = getattr(change, name)
        if name == "task":
            parts.append(namer(value))
        elif name == "growth":
            parts.append(_tell_growth(value))
        elif name == "tasks" and isinstance(change, ch.RunMoved):
            parts.append(f"kept={len(value)}")
        elif name == "tasks":
            parts.append(", ".join(namer(task) for task in value))
        elif name not in _UNTOLD and value not in ("", None, 0, False, ()):
            parts.append(f"{name}={_show(name, value)}")
    return "  ".join(parts)
