"""Looking after a data folder by hand: a copy while it is in use, a check, and giving space back."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
from msgspec import Struct

from rota.core.bounds import TimeLimits
from rota.core.errors import Refused, Unavailable
from rota.core.ids import EPOCH_MAX, Epoch, Millis
from rota.core.invariants import validate
from rota.core.load import load
from rota.core.records import Record
from rota.stores.sqlite import reading
from rota.stores.sqlite.connection import CREATE, READ_WRITE, Connection, connect
from rota.stores.sqlite.errors import UNREADABLE, at_open
from rota.stores.sqlite.lock import FolderLock, held
from rota.stores.sqlite.opening import DATABASE_NAME, check_version, missing, open_existing, open_folder
from rota.wire.flushing import flush

# A restored copy must not issue fences that were issued after it was made. This many elections are enough for the life
# of a copy, and eight thousand generations of copies fit an epoch's 23 bits.
EPOCHS_AHEAD = 1_000
_PAGES_PER_STEP = 1_000
_FAULTS_MAX = 100

Progress = Callable[[int, int], None]

_STRAYS = {
    f"{table} rows of a run that is not there": f"SELECT count(*) FROM {table} WHERE run_no NOT IN"
    " (SELECT run_no FROM run UNION ALL SELECT run_no FROM history_run)"
    for table in ("task", "growth", "story")
} | {
    f"{table} rows of a run that is not in history": f"SELECT count(*) FROM {table} WHERE run_no NOT IN"
    " (SELECT run_no FROM history_run)"
    for table in ("history_task", "history_growth")
}
_STRAYS["runs that are both live and ended"] = (
    "SELECT count(*) FROM run WHERE run_no IN (SELECT run_no FROM history_run)"
)
_STRAYS["tasks that are both live and ended"] = (
    "SELECT count(*) FROM task JOIN history_task USING (run_no, idx) WHERE 1"
)
_COUNTS = ("run", "task", "history_run", "history_task", "story", "graph", "worker", "schedule", "workflow", "receipt")


class Report(Struct, frozen=True):
    """What a check found; no faults means that all is well."""

    folder: str
    version: int
    epoch: int
    bytes: int
    rows: dict[str, int]
    faults: tuple[str, ...]


def backup(folder: Path, target: Path, *, force: bool = False, progress: Progress | None = None) -> int:
    """Copy the database of a folder into a file, also while it is in use; its size in bytes.

    The copy is of one moment, appears whole or not at all, and its epoch is ahead of the original's.
    """
    if target.exists() and not force:
        raise Refused("field.value", f"{target} exists already.", "Name another file, or say --force.", path="file")
    if not target.parent.is_dir():
        raise Refused("field.value", f"there is no folder {target.parent}.", "Make it first.", path="file")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    with closing(open_existing(folder)) as source:
        try:
            _copy(source, part, progress)
            part.replace(target)
            flush(target.parent)
        except apsw.Error as error:
            raise at_open(error, source, part) from error
        except OSError as error:
            raise Unavailable("store.unavailable", f"{target}: {error.strerror}.") from error
        finally:
            for left in (part, *[part.with_name(part.name + end) for end in ("-wal", "-shm", "-journal")]):
                left.unlink(missing_ok=True)
    return target.stat().st_size


def _copy(source: Connection, part: Path, progress: Progress | None) -> None:
    os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with closing(connect(part, READ_WRITE | CREATE)) as copy:
        # A transaction of the source's own: what is written meanwhile is not part of the copy and cannot restart it.
        source.execute("BEGIN")
        list(source.execute("SELECT count(*) FROM meta"))
        copying = copy.backup("main", source, "main")
        try:
            while not copying.done:
                copying.step(_PAGES_PER_STEP)
                if progress is not None:
                    progress(copying.page_count - copying.remaining, copying.page_count)
        finally:
            copying.finish()
        copy.pragma("journal_mode", "delete")
        copy.execute(
            "UPDATE meta SET value = min(value + ?, ?) WHERE name = 'epoch'", (EPOCHS_AHEAD, EPOCH_MAX - EPOCHS_AHEAD)
        )
        copy.pragma("journal_mode", "wal")
    flush(part)


def check(folder: Path, now: Millis) -> Report:
    """Read everything: SQLite's own check, rows that belong nowhere, the rules of the core over all live records."""
    with closing(open_existing(folder)) as connection:
        version = check_version(connection, folder)
        faults: list[str] = []
        try:
            faults += _file_faults(connection)
            connection.execute("BEGIN")
            rows = {name: _count(connection, f"SELECT count(*) FROM {name}") for name in _COUNTS}
            faults += [f"{count} {what}" for what, text in _STRAYS.items() if (count := _count(connection, text))]
            ((epoch,),) = connection.execute("SELECT value FROM meta WHERE name = 'epoch'")
            records = [record for some in reading.live_records(connection) for record in some]
        except (apsw.Error, *UNREADABLE) as error:
            rows, epoch, records = {}, 0, []
            faults.append(f"reading stopped: {type(error).__name__}: {error}")
        faults += _rule_faults(records, max(1, epoch), now)
    size = sum(path.stat().st_size for path in folder.glob(f"{DATABASE_NAME}*"))
    return Report(str(folder), version, epoch, size, rows, tuple(faults[:_FAULTS_MAX]))


def _file_faults(connection: Connection) -> Iterator[str]:
    for (said,) in connection.execute(f"PRAGMA integrity_check({_FAULTS_MAX})"):
        if said != "ok":
            yield f"the file: {said}"


def _rule_faults(records: list[Record], epoch: int, now: Millis) -> list[str]:
    """What a coordinator would stumble over."""
    try:
        state = load(Epoch(epoch + 1), TimeLimits(), records, now)
        return [f"the rules: {broken}" for broken in validate(state, now)]
    except Exception as error:
        return [f"the records cannot be loaded: {type(error).__name__}: {error}"]


def _count(connection: Connection, text: str) -> int:
    ((count,),) = connection.execute(text)
    return int(count)


def vacuum(folder: Path) -> tuple[int, int]:
    """Write the database anew without its gaps; its size before and after. Needs the folder for itself."""
    lock = FolderLock(folder)
    if not (folder / DATABASE_NAME).is_file():
        raise missing(folder)
    if not lock.take("vacuum"):
        raise held(folder)
    try:
        connection = open_folder(folder)
        try:
            before = (folder / DATABASE_NAME).stat().st_size
            connection.execute("VACUUM")
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error as error:
            raise at_open(error, connection, folder / DATABASE_NAME) from error
        finally:
            connection.close()
    finally:
        lock.free()
    return before, (folder / DATABASE_NAME).stat().st_size
