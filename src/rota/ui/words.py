"""How things are put into words on a page: instants, values, addresses, and the command that says the same."""

import json
import shlex
from typing import Any
from urllib.parse import quote, urlencode

from rota.core.ids import Millis
from rota.core.spans import moment_of, show_beyond
from rota.core.states import (
    ASSIGNED,
    CANCELLED,
    FAILED,
    NEEDS_ATTENTION,
    NONE,
    QUEUED,
    RUNNING,
    SCHEDULED,
    SKIPPED,
    SUCCESS,
    UP_FOR_RESCHEDULE,
    UP_FOR_RETRY,
    UPSTREAM_FAILED,
    TaskState,
)

VALUE_CHARS_MAX = 4_000

# Of several tasks in one place, the state that somebody should see first. Done is said only when all are.
BY_URGENCY: tuple[TaskState, ...] = (
    FAILED,
    NEEDS_ATTENTION,
    UPSTREAM_FAILED,
    CANCELLED,
    RUNNING,
    ASSIGNED,
    UP_FOR_RETRY,
    UP_FOR_RESCHEDULE,
    QUEUED,
    SCHEDULED,
    NONE,
    SUCCESS,
    SKIPPED,
)


def most_urgent(counts: dict[str, int]) -> str:
    """One state for many tasks."""
    return next((state for state in BY_URGENCY if counts.get(state)), NONE)


def in_order(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Counts by state, what is done first, so that a bar grows from its left."""
    done = [state for state in (SUCCESS, SKIPPED) if counts.get(state)]
    rest = [state for state in BY_URGENCY if state not in (SUCCESS, SKIPPED) and counts.get(state)]
    return [(str(state), counts[state]) for state in (*done, *rest)]


def show_counts(counts: dict[str, int]) -> str:
    """Counts in words."""
    return ", ".join(f"{count:,} {show_state(state)}" for state, count in in_order(counts))


def show_state(state: str) -> str:
    """A state as it is read."""
    return "not started" if state == NONE else state.replace("_", " ")


def show_utc(at: Millis) -> str:
    """An instant that does not depend on who reads it."""
    moment = moment_of(at)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment is not None else show_beyond(at)


def show_iso(at: Millis) -> str:
    """An instant for programs; nothing where there is no date for it."""
    moment = moment_of(at)
    return moment.isoformat(timespec="milliseconds") if moment is not None else ""


def show_value(value: Any) -> str:
    """A plain value as JSON, and not too much of it."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    if len(text) <= VALUE_CHARS_MAX:
        return text
    return f"{text[:VALUE_CHARS_MAX]}\n… and {len(text) - VALUE_CHARS_MAX:,} characters more"


def show_size(count: int) -> str:
    """How many bytes, as people say it."""
    size = float(count)
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def command(*words: object) -> str:
    """The line that says the same in a terminal."""
    return shlex.join(["rota", *(str(word) for word in words if word != "")])


def runs_url(**query: Any) -> str:
    """The list of runs."""
    return in_url("/runs", query)


def workflow_url(name: str) -> str:
    """The page of a workflow."""
    return f"/workflows/{quote(name, safe='')}"


def worker_url(worker: str) -> str:
    """The page of a worker."""
    return f"/workers/{quote(worker, safe='')}"


def stream_url(stream: str) -> str:
    """The page of a stream."""
    return f"/streams/{quote(stream, safe='')}"


def queues_url() -> str:
    """The page of queues and pools."""
    return "/queues"


def run_url(run: str, view: str = "", **query: Any) -> str:
    """The page of a run, or one of its views."""
    return in_url(f"/runs/{quote(run, safe='')}{view and f'/{view}'}", query)


def task_url(run: str, task: str, **query: Any) -> str:
    """The page of a task."""
    return in_url(f"{run_url(run)}/tasks/{quote(task, safe='')}", query)


def log_url(run: str, task: str, **query: Any) -> str:
    """A whole log, as text."""
    return in_url(f"{task_url(run, task)}/log", query)


def live_url(url: str) -> str:
    """Where a page is told what changes on it."""
    return f"/live{url}"


def in_url(path: str, query: dict[str, Any]) -> str:
    """An address with what is asked for there; what is empty is left out."""
    given = urlencode({name: value for name, value in query.items() if value}, doseq=True)
    return f"{path}?{given}" if given else path
