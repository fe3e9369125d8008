"""Records as an older version kept them: without the fields that came later, which have their defaults when read."""

from typing import Any

import msgspec
from msgspec import Struct

from rota.core.history import Ended
from rota.core.model import Queue
from rota.core.records import GraphRecord, Growth, Pause, Record, Run, Schedule, Task, Worker, Workflow
from tests.contract.records import default_of, fields_of

# What version 9 of SQLite's tables and version 7 of PostgreSQL's brought.
REVOKED_LEASES: dict[type[Struct], tuple[str, ...]] = {Task: ("revoked",), Worker: ("quarantine_cause",)}
# What version 7 of SQLite's tables and version 6 of PostgreSQL's brought, and all that came after.
IDLE_TIME: dict[type[Struct], tuple[str, ...]] = {**REVOKED_LEASES, Run: ("idle_ms",)}
# What version 6 of SQLite's tables and version 5 of PostgreSQL's brought, and all that came after.
FEEDS: dict[type[Struct], tuple[str, ...]] = {**IDLE_TIME, Growth: ("feeds",)}
# What version 5 of SQLite's tables and version 4 of PostgreSQL's brought, and all that came after.
AGENTS: dict[type[Struct], tuple[str, ...]] = {
    **FEEDS,
    Run: ("after", "approval", *FEEDS[Run]),
    Task: ("token_hash", *FEEDS[Task]),
    Worker: ("owner", *FEEDS[Worker]),
}
# What version 4 of SQLite's tables and version 3 of PostgreSQL's brought, and all that came after.
BUILDS: dict[type[Struct], tuple[str, ...]] = {
    **AGENTS,
    Run: ("merge", "labels", "share", *AGENTS[Run]),
    Queue: (
        "retain_completed_for_ms",
        "client_action_timeout_ms",
        "max_action_executing_timeout_ms",
        "max_job_retries",
        "worker_match_logging_interval_ms",
        "unservable_ms",
    ),
}
# What version 3 of SQLite's tables and version 2 of PostgreSQL's brought, and all that came after.
LATER: dict[type[Struct], tuple[str, ...]] = {
    **BUILDS,
    Run: ("version", "backfill", *BUILDS[Run]),
    Task: ("first_started_at", "skips", "note", *AGENTS[Task]),
    Schedule: ("params", "version", "backfill"),
}
LATER_TYPES = (Workflow, Pause)


def without_later(records: list[Record]) -> list[Record]:
    """These records with every later field at its default, and none of a later type."""
    return [_bare(record) for record in records if not isinstance(record, LATER_TYPES)]


def without_builds(records: list[Record]) -> list[Record]:
    """These records as they were when there were workflows and no builds."""
    return [_built(record) for record in records if not isinstance(record, Pause)]


def _built(record: Any) -> Any:
    made = _at_default(record, BUILDS)
    if isinstance(made, Run) and made.solo is not None:
        made.solo = _at_default(made.solo, BUILDS)
    return made


def _bare(record: Any) -> Any:
    made = _at_default(record, LATER)
    if isinstance(made, GraphRecord | Growth):
        # What is structured is JSON, and is read without what it does not have.
        return msgspec.convert(_plain(msgspec.to_builtins(made)), type(made))
    if isinstance(made, Run) and made.solo is not None:
        made.solo = _bare(made.solo)
    return made


def _at_default(record: Any, later: dict[type[Struct], tuple[str, ...]]) -> Any:
    defaults = {field.name: default_of(field) for field in fields_of(type(record))}
    return msgspec.structs.replace(record, **{name: defaults[name] for name in later.get(type(record), ())})


LATER_KEYS = ("bundle", "depends_on_past", "expansion", "regrant_when_silent")


def _plain(value: Any) -> Any:
    """The same without keys that definitions did not have."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if key not in LATER_KEYS}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def plain_json(text: str | bytes) -> str:
    """JSON as an older version wrote it."""
    return msgspec.json.encode(_plain(msgspec.json.decode(text))).decode()


def ended_before(ended: Ended) -> Ended:
    """The same of a run that was in history by then."""
    run, *parts = without_later([ended.run, *ended.tasks, *ended.growths])
    assert isinstance(run, Run)
    return Ended(
        run,
        tuple(part for part in parts if isinstance(part, Task)),
        tuple(part for part in parts if isinstance(part, Growth)),
    )
