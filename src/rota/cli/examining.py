"""What `rota doctor` looks at: this machine, a data folder, every setting and where it came from."""

import asyncio
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path

import apsw
from msgspec import Struct, to_builtins

from rota import __version__
from rota.api.tokens import Gate, check_exposure
from rota.app.clocks import wall_clock
from rota.app.shared import Sharing, open_shared, sharing_of
from rota.cli.installation import Finding, install_command, version_numbers
from rota.config import (
    SETTINGS,
    Config,
    Secret,
    check_backends,
    read_address,
    read_client_tls,
    read_server_tls,
)
from rota.config.masking import mask
from rota.config.reading import FILE_VARIABLE
from rota.config.settings import Server
from rota.core.cluster import cluster_id
from rota.core.errors import Refused, Unavailable
from rota.core.spans import show_span
from rota.ports import Look
from rota.stores.blobs import open_blobs
from rota.stores.sqlite import SqliteStore, holder_of, read_identity_file

FREE_BYTES_MIN = 1 << 30
ENGINE = "datafusion"
SYNC_MS_MAX = 20.0
# The first etcd of 3.5 that keeps what it acknowledged when a member is killed, in a cluster of one, too.
ETCD_SAFE = (3, 5, 5)
_SYNCS = 20


class Value(Struct, frozen=True):
    """A setting as it is in force, and where it came from."""

    setting: str
    value: object
    source: str


def show_values(config: Config) -> Iterator[Value]:
    """Every setting, then what the file defines."""
    for setting, value, source in config.values():
        yield Value(setting.path, show_value(value), source)
    defined = config.definitions
    for kind, named in (("queues", defined.queues), ("pools", defined.pools)):
        for each in named:
            yield Value(f"{kind}.{each.name}", to_builtins(each), config.file)
    for tenant in defined.tenants:
        yield Value(f"tenants.{tenant.tenant}", to_builtins(tenant), config.file)


def show_value(value: object) -> object:
    """A value for people and programs; of a secret no more than that it is there."""
    if isinstance(value, Secret):
        return mask(value)
    return "" if value is None or value in ((), {}) else mask(to_builtins(value))


def examine(folder: Path) -> Iterator[Finding]:
    """Everything about this machine and a data folder that is worth a look."""
    yield Finding(
        "ok", "version", f"rota {__version__}, Python {platform.python_version()}, SQLite {apsw.sqlitelibversion()}"
    )
    yield _platform()
    yield from _folder(folder)
    if folder.is_dir():
        yield from _database(folder)


def judge_settings(config: Config, env: Mapping[str, str]) -> Iterator[Finding]:
    """What a coordinator with these settings would say at its start."""
    yield Finding("ok", "settings", f"read from {config.file}" if config.file else "no file of settings")
    now = wall_clock()
    has_tls = bool(config.tls.cert)
    try:
        served = read_server_tls(config.tls, now)
        read_client_tls(config.client, now)
        mutual = "; callers must show a certificate" if served is not None and served.client_ca is not None else ""
        yield Finding(
            "ok", "tls", f"certificate and key can be used{mutual}" if served is not None else "not configured"
        )
    except Refused as refused:
        yield Finding("fail", "tls", str(refused))
    try:
        gate = Gate(config.auth, lambda: now)
        names = ", ".join(gate.names) or "none, so that every call is refused"
        yield Finding("ok", "tokens", "not configured: whoever reaches it may do anything" if gate.is_open else names)
        yield from _exposure(config, is_open=gate.is_open, has_tls=has_tls)
    except Refused as refused:
        yield Finding("fail", "tokens", str(refused))
    if config.auth.token_file and _is_readable_by_others(Path(config.auth.token_file)):
        text = f"{config.auth.token_file} can be read by others"
        yield Finding("warn", "tokens", text, f"chmod go= {config.auth.token_file}")
    try:
        check_backends(config)
    except Refused as refused:
        yield Finding("fail", "schedulers", str(refused))
    yield from _store(config)
    yield from _queries(config)
    yield from _misspelt(env)


def _queries(config: Config) -> Iterator[Finding]:
    """Which engine there is for queries, and whether the tables of the settings are where they should be."""
    try:
        version = metadata.version(ENGINE)
    except metadata.PackageNotFoundError:
        is_wanted = bool(config.queries.listen or config.queries.tables)
        hint = install_command("query") if is_wanted else ""
        yield Finding("warn" if is_wanted else "ok", "queries", f"{ENGINE} is not installed", hint)
        return
    yield Finding("ok", "queries", f"{ENGINE} {version}")
    for name, path in config.queries.tables.items():
        if "://" not in path and not any(mark in path for mark in "*?[") and not Path(path).exists():
            text = f"table {name!r}: there is no file or folder {path} (at queries.tables.{name})"
            yield Finding("warn", "queries", text, "`rota flight` will not start.")


def _store(config: Config) -> Iterator[Finding]:
    """Whether a store that coordinators share answers, and who leads."""
    server = config.server
    try:
        sharing = sharing_of(config, wall_clock())
        if sharing is None:
            return
        found = asyncio.run(_look_at(sharing, server))
    except (Refused, Unavailable) as trouble:
        yield Finding("fail", "store", str(trouble))
        return
    yield from _server_version(found.server)
    if not found.identity:
        yield Finding("ok", "store", f"{found.server} answers; there is nothing yet: the first coordinator makes it")
        return
    leader = found.leader
    who = f"{leader.name} leads{', at ' + leader.grpc if leader.grpc else ''}" if leader is not None else "nobody leads"
    yield Finding("ok", "store", f"{found.server} answers (epoch {found.epoch}); {who}")
    yield Finding("ok", "cluster", cluster_id(found.identity))


def _server_version(server: str) -> Iterator[Finding]:
    """Warn of an etcd that can lose data when it is killed."""
    product, _, version = server.partition(" ")
    if product == "etcd" and (3, 5) <= version_numbers(version) < ETCD_SAFE:
        text = f"{server} can lose data when it is killed, which was repaired in {'.'.join(map(str, ETCD_SAFE))}"
        yield Finding("warn", "store", text, "Upgrade etcd before you rely on it.")


async def _look_at(sharing: Sharing, server: Server) -> Look:
    # Nothing is kept there meanwhile.
    store = open_shared(sharing, open_blobs("memory:///"), term_ms=server.limits.term_ms)
    try:
        return await store.look()
    finally:
        await store.close()


def _exposure(config: Config, *, is_open: bool, has_tls: bool) -> Iterator[Finding]:
    listen = [read_address(text, "server") for text in (config.server.listen, config.server.http) if text]
    try:
        for warning in check_exposure(listen, is_open=is_open, has_tls=has_tls):
            yield Finding("warn", "exposure", warning)
    except Refused as refused:
        yield Finding("fail", "exposure", str(refused))


def _is_readable_by_others(file: Path) -> bool:
    return file.exists() and bool(file.stat().st_mode & 0o077)


def _misspelt(env: Mapping[str, str]) -> Iterator[Finding]:
    """Variables that look like ours and are not: nobody refuses them, because others may have put them there."""
    known = [FILE_VARIABLE, *(setting.env for setting in SETTINGS if setting.env)]
    for name in sorted(env):
        near = get_close_matches(name, known, 1, 0.9)
        if name.startswith("ROTA_") and name not in known and near:
            yield Finding("warn", "environment", f"{name} is not a setting", f"Did you mean {near[0]}?")


def _platform() -> Finding:
    if sys.platform != "linux":
        text = f"{sys.platform} is not what Rota is tested on"
        return Finding("warn", "platform", text, "Processes that a task leaves behind are found through /proc.")
    return Finding("ok", "platform", f"{os.cpu_count()} processors, {platform.machine()}, {platform.release()}")


def _folder(folder: Path) -> Iterator[Finding]:
    home = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not home.is_dir():
        yield Finding("fail", "data", f"{home} is not a folder", "Choose another one with --data.")
        return
    if not folder.exists():
        yield Finding("ok", "data", f"{folder} does not exist yet; it is made by the first run")
    try:
        sync_ms = _time_sync(home)
    except OSError as error:
        # Asked of the disk itself: the superuser is told that everything may be written.
        text = f"{home} cannot be written to: {error.strerror}"
        yield Finding("fail", "data", text, "Choose another folder with --data.")
        return
    free = shutil.disk_usage(home).free
    grade = "ok" if free >= FREE_BYTES_MIN else "warn"
    hint = "" if grade == "ok" else "On a full disk submissions are refused; work that runs is kept."
    yield Finding(grade, "disk", f"{free / (1 << 30):.1f} GB free", hint)
    grade = "ok" if sync_ms <= SYNC_MS_MAX else "warn"
    hint = "" if grade == "ok" else "Every commit waits for this. Use a local disk."
    yield Finding(grade, "sync", f"one sync of the disk takes {sync_ms:.2f} ms", hint)


def _time_sync(home: Path) -> float:
    """How long the disk takes to promise something: the median of some tries."""
    probe = home / f".rota-doctor-{os.getpid()}"
    taken: list[float] = []
    try:
        with probe.open("wb", buffering=0) as file:
            for _ in range(_SYNCS):
                file.write(b"x" * 4096)
                began = time.perf_counter()
                os.fdatasync(file.fileno())
                taken.append((time.perf_counter() - began) * 1000)
    finally:
        probe.unlink(missing_ok=True)
    return sorted(taken)[len(taken) // 2]


def _database(folder: Path) -> Iterator[Finding]:
    holder = holder_of(folder)
    if holder:
        yield Finding("ok", "holder", f"held by {holder}")
    else:
        yield Finding("ok", "holder", "nobody is running on it")
    file = folder / "rota.db"
    if not file.exists():
        yield Finding("ok", "database", "no data yet")
        return
    parts = [part.stat() for part in folder.glob("rota.db*")]
    age_ms = (time.time_ns() - max(part.st_mtime_ns for part in parts)) // 1_000_000
    size = sum(part.st_size for part in parts)
    if folder.stat().st_mode & 0o022:
        text = f"{folder} can be written to by others, who could have you open their pickles"
        yield Finding("warn", "data", text, f"chmod go-w {folder}")
    try:
        SqliteStore(folder).close()
    except (Refused, Unavailable) as trouble:
        yield Finding("fail", "database", str(trouble), "`rota db check` says more.")
        return
    yield Finding("ok", "database", f"{size / (1 << 20):.1f} MB, last written {show_span(age_ms)} ago")
    identity = read_identity_file(folder)
    if identity:
        yield Finding("ok", "cluster", cluster_id(identity))
