"""Named schedulers, as build clusters configure them: each is a queue under other words and with other defaults.

`schedulers` is a list of entries with a name and one type. Of the types there is `simple`; its keys, units and defaults
are those of the document that docs/parity.md compares with. What has no meaning here is refused and never ignored.
"""

from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct

from rota.config.addresses import store_kind
from rota.config.lines import Unknown, Where
from rota.config.settings import Backend, Config
from rota.core.bounds import DELAY_MS_MAX, RETRIES_MAX
from rota.core.errors import Refused
from rota.core.ids import DEFAULT_TENANT
from rota.core.model import Allocation, PropertyRule, Queue, Unservable

SIMPLE = "simple"
PROPERTIES = "supported_platform_properties"
# Types that wrap another scheduler, or send its work elsewhere.
OTHER_TYPES = ("cache_lookup", "grpc", "historical_resource", "property_modifier")
OWN_KEYS = ("name", "tenant")
STORES = ("sqlite", "postgres", "etcd", "memory")

Seconds = Annotated[int, Meta(ge=0, le=DELAY_MS_MAX // 1_000)]


class Simple(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`simple`: how its tasks find workers, and what becomes of those that do not."""

    supported_platform_properties: dict[str, PropertyRule] = msgspec.field(default_factory=dict[str, PropertyRule])
    retain_completed_for_s: Seconds = 60
    client_action_timeout_s: Annotated[int, Meta(ge=1, le=DELAY_MS_MAX // 1_000)] = 60
    worker_timeout_s: Seconds = 5
    max_action_executing_timeout_s: Seconds = 0
    max_job_retries: Annotated[int, Meta(ge=0, le=RETRIES_MAX)] = 3
    allocation_strategy: Allocation = Allocation.LEAST_RECENTLY_USED
    worker_match_logging_interval_s: Annotated[int, Meta(ge=-1, le=DELAY_MS_MAX // 1_000)] = 10
    experimental_backend: str | dict[str, Any] | None = None
    # Ours: for how long it is waited that a worker comes which could run a task.
    unservable_s: Seconds = 60


def read_schedulers(entries: object, where: Where, unknown: Unknown) -> tuple[list[Queue], list[Backend]]:
    """The queues that a file's `schedulers` stand for, and the stores that they name."""
    if not isinstance(entries, list):
        hint = f"Write [[schedulers]] on a line of its own. It is at {where('schedulers')}."
        raise Refused("config.value", "schedulers are a list", hint, path="schedulers")
    queues: list[Queue] = []
    backends: list[Backend] = []
    for position, entry in enumerate(cast(list[object], entries)):
        path = f"schedulers[{position}]"
        if not isinstance(entry, dict):
            raise _refusal(path, where, "a scheduler is a table", "Give it a name and a type.")
        queue, named = _read_entry(cast(dict[str, object], entry), path, where, unknown)
        queues.append(queue)
        if named:
            inner = f"{path}.{SIMPLE}.experimental_backend"
            backends.append(Backend(queue.name, named, inner, where(inner)))
    return queues, backends


def _refusal(path: str, where: Where, reason: str, hint: str = "") -> Refused:
    return Refused("config.value", reason, f"{hint} It is at {where(path)}.".strip(), path=path)


def _read_entry(entry: dict[str, object], path: str, where: Where, unknown: Unknown) -> tuple[Queue, str]:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise _refusal(path, where, "a scheduler has no name", 'Give it one: name = "MAIN_SCHEDULER".')
    tenant = entry.get("tenant", DEFAULT_TENANT)
    if not isinstance(tenant, str):
        raise _refusal(f"{path}.tenant", where, "expected `str`")
    types = [key for key in entry if key not in OWN_KEYS]
    for key in types:
        if key != SIMPLE and key not in OTHER_TYPES:
            raise unknown(f"{path}.{key}", key, [*OWN_KEYS, SIMPLE])
    if len(types) != 1:
        has = " and ".join(types) or "none"
        text = f"a scheduler has one type, and {name!r} has {has}"
        raise _refusal(f"{path}.{types[-1]}" if types else path, where, text, f"Give it {SIMPLE}.")
    if types[0] != SIMPLE:
        text = f"schedulers of type {types[0]!r} are not there yet"
        raise _refusal(f"{path}.{types[0]}", where, text, f"Use {SIMPLE}.")
    table = entry[SIMPLE]
    if not isinstance(table, dict):
        raise _refusal(f"{path}.{SIMPLE}", where, "a type is a table")
    simple = _read_simple(cast(dict[str, object], table), f"{path}.{SIMPLE}", where, unknown)
    return _queue(tenant, name, simple), _backend(simple.experimental_backend, f"{path}.{SIMPLE}", where)


def _read_simple(table: dict[str, object], path: str, where: Where, unknown: Unknown) -> Simple:
    known = list(Simple.__struct_fields__)
    for key, value in table.items():
        if key not in known:
            raise unknown(f"{path}.{key}", key, known)
        # One property at a time, so that it is said which is wrong.
        parts = cast(dict[str, object], value) if key == PROPERTIES and isinstance(value, dict) else {}
        for name, rule in parts.items():
            _check({key: {name: rule}}, f"{path}.{key}.{name}", where)
        _check({key: value}, f"{path}.{key}", where)
    simple = msgspec.convert(table, Simple)
    if simple.worker_match_logging_interval_s == 0:
        inner = f"{path}.worker_match_logging_interval_s"
        raise _refusal(inner, where, "0 is no interval", "Use -1 to have nothing logged.")
    return simple


def _check(part: dict[str, object], path: str, where: Where) -> None:
    try:
        msgspec.convert(part, Simple)
    except msgspec.ValidationError as error:
        reason = str(error).partition(" - at `$")[0]
        raise _refusal(path, where, reason[:1].lower() + reason[1:]) from None


def _backend(given: str | dict[str, Any] | None, path: str, where: Where) -> str:
    """The store that is named: by a word, or as the name of an empty table."""
    if isinstance(given, dict):
        if len(given) != 1:
            raise _refusal(f"{path}.experimental_backend", where, "a backend is one table with its name")
        ((given, content),) = given.items()
        if given in STORES and content != {}:
            text = f"how {given} is reached is said by server.store"
            raise _refusal(f"{path}.experimental_backend", where, text, "Leave the table empty.")
    return given or ""


def _queue(tenant: str, name: str, simple: Simple) -> Queue:
    interval_s = simple.worker_match_logging_interval_s
    return Queue(
        tenant=tenant,
        name=name,
        properties=tuple(simple.supported_platform_properties.items()),
        allocation=simple.allocation_strategy,
        worker_timeout_ms=simple.worker_timeout_s * 1_000,
        # A build that nobody can do should fail: whoever waits for it is a program.
        unservable=Unservable.FAIL,
        unservable_ms=simple.unservable_s * 1_000,
        retain_completed_for_ms=simple.retain_completed_for_s * 1_000,
        client_action_timeout_ms=simple.client_action_timeout_s * 1_000,
        max_action_executing_timeout_ms=simple.max_action_executing_timeout_s * 1_000,
        max_job_retries=simple.max_job_retries,
        worker_match_logging_interval_ms=interval_s * 1_000 if interval_s > 0 else -1,
    )


def check_backends(config: Config) -> None:
    """A scheduler keeps its state where its coordinator does; one that names another place is refused."""
    kept = store_kind(config.server.store) or "sqlite"
    for backend in config.definitions.backends:
        # "memory" says that a scheduler shares its state with no other; here it is kept all the same.
        if backend.store in (kept, "memory"):
            continue
        text = f"scheduler {backend.scheduler!r} would keep its state in {backend.store!r}, and it is kept in {kept!r}"
        hint = f"Leave it out, or set server.store. It is at {backend.where}."
        if backend.store not in STORES:
            hint = f"There are {', '.join(STORES)}; leave it out. It is at {backend.where}."
        raise Refused("config.value", text, hint, path=backend.path)
