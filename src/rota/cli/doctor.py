"""`rota doctor`: what could be wrong on this machine, each finding with what to do about it."""

import argparse
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
from msgspec import Struct

from rota import __version__
from rota.cli import EXIT_FAILED
from rota.cli.showing import add_folder, add_json, put, put_json, show_span
from rota.core.errors import Refused, Unavailable
from rota.stores.sqlite import SqliteStore, holder_of

FREE_BYTES_MIN = 1 << 30
SYNC_MS_MAX = 20.0
_SYNCS = 20


class Finding(Struct, frozen=True):
    """One thing that was looked at. `grade` is ok, warn or fail."""

    grade: str
    what: str
    text: str
    hint: str = ""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_folder(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Look, and say what was found; fails if something would keep Rota from working."""
    findings = list(examine(Path(options.data)))
    if options.json:
        put_json(findings)
    else:
        for finding in findings:
            put(f"{finding.grade:<4}  {finding.what:<12}  {finding.text}")
            if finding.hint:
                put(f"{'':<20}→ {finding.hint}")
    return EXIT_FAILED if any(finding.grade == "fail" for finding in findings) else 0


def examine(folder: Path) -> Iterator[Finding]:
    """Everything worth a look."""
    yield Finding(
        "ok", "version", f"rota {__version__}, Python {platform.python_version()}, SQLite {apsw.sqlitelibversion()}"
    )
    yield _platform()
    yield from _folder(folder)
    if folder.is_dir():
        yield from _database(folder)


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
    age_ms = (time.time_ns() - file.stat().st_mtime_ns) // 1_000_000
    size = sum(part.stat().st_size for part in folder.glob("rota.db*"))
    if folder.stat().st_mode & 0o022:
        text = f"{folder} can be written to by others, who could have you open their pickles"
        yield Finding("warn", "data", text, f"chmod go-w {folder}")
    try:
        SqliteStore(folder).close()
    except (Refused, Unavailable) as trouble:
        yield Finding("fail", "database", str(trouble), "`rota db check` says more.")
        return
    yield Finding("ok", "database", f"{size / (1 << 20):.1f} MB, last written {show_span(age_ms)} ago")
