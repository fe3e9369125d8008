"""Folders of older versions: brought up to date before anything is loaded, the rest in slices, whatever interrupts."""

import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from rota.core.errors import Refused
from rota.core.model import Tenant
from rota.core.records import Batch, Workflow
from rota.stores.sql.migrations import MIGRATIONS, Database, Migration, latest, statements
from rota.stores.sqlite import SqliteDisk
from tests.contract.before import ended_before, plain_json, without_builds, without_later
from tests.contract.bench import assert_same, disk_of
from tests.contract.records import filled
from tests.contract.samples import a_one_task_run, a_run, one_of_each, rows_of, story_of
from tests.integration.test_sqlite_folder import end, holding
from tests.integration.writer import elected

NOTES = 25


def fill_slice(database: Database, limit: int) -> int:
    """Ten rows at a time, whatever the limit."""
    rows = list(database.execute("SELECT rowid, name FROM note WHERE length IS NULL LIMIT ?", (min(limit, 10),)))
    for rowid, name in rows:
        database.execute("UPDATE note SET length = ? WHERE rowid = ?", (len(name), rowid))
    return len(rows)


OLD = MIGRATIONS
BASE = latest(OLD)
NEW = (
    *OLD,
    Migration(
        BASE + 1,
        "notes",
        statements(
            "CREATE TABLE note (name TEXT, length INTEGER)",
            *["INSERT INTO note (name) VALUES ('a note')"] * NOTES,
        ),
        fill_slice,
    ),
    Migration(BASE + 2, "no old rows", statements("CREATE INDEX note_by_name ON note (name)")),
)


def version_of(folder: Path) -> int:
    connection = apsw.Connection(str(folder / "rota.db"))
    version = connection.pragma("user_version")
    connection.close()
    assert isinstance(version, int)
    return version


def old_folder(folder: Path) -> None:
    disk = SqliteDisk(folder, OLD)
    disk.commit(elected(disk), Batch(one_of_each(), [], [], []))
    disk.close()
    assert version_of(folder) == BASE


def test_a_folder_is_brought_up_to_date_and_keeps_what_is_in_it(tmp_path: Path):
    old_folder(tmp_path)
    disk = SqliteDisk(tmp_path, NEW)
    epoch = elected(disk)
    assert version_of(tmp_path) == BASE + 2
    assert_same(disk_of(disk.load(epoch)), disk_of(one_of_each()))
    disk.close()


def test_old_rows_follow_in_slices_and_may_be_interrupted(tmp_path: Path):
    old_folder(tmp_path)
    slices: list[int] = []
    for _ in range(10):
        disk = SqliteDisk(tmp_path, NEW)
        slices.append(disk.tidy(elected(disk), 0, 1 << 60))
        disk.close()
    assert slices == [10, 10, 5, 0, 0, 0, 0, 0, 0, 0]
    disk = SqliteDisk(tmp_path, NEW)
    assert list(disk.reader.execute("SELECT count(*) FROM note WHERE length = length(name)")) == [(NOTES,)]
    assert list(disk.reader.execute("SELECT value FROM meta WHERE name = 'migrated'")) == [(BASE + 2,)]
    disk.close()


def test_a_step_that_fails_leaves_the_old_version(tmp_path: Path):
    old_folder(tmp_path)

    def fail(database: Database) -> None:
        database.execute("CREATE TABLE half (done TEXT)")
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError):
        SqliteDisk(tmp_path, (*OLD, Migration(BASE + 1, "fails", fail)))
    assert version_of(tmp_path) == BASE
    disk = SqliteDisk(tmp_path, OLD)
    assert_same(disk_of(disk.load(elected(disk))), disk_of(one_of_each()))
    assert list(disk.reader.execute("SELECT 1 FROM sqlite_schema WHERE name = 'half'")) == []
    disk.close()


def test_a_folder_that_somebody_works_with_is_not_migrated_under_them(tmp_path: Path):
    old_folder(tmp_path)
    process = holding(tmp_path)
    with pytest.raises(Refused) as refused:
        SqliteDisk(tmp_path, NEW)
    assert refused.value.code == "store.held"
    assert str(process.pid) in refused.value.reason
    assert version_of(tmp_path) == BASE
    end(process)
    SqliteDisk(tmp_path, NEW).close()
    assert version_of(tmp_path) == BASE + 2


def test_what_a_newer_program_made_is_refused_by_an_older_one(tmp_path: Path):
    SqliteDisk(tmp_path, NEW).close()
    with pytest.raises(Refused) as refused:
        SqliteDisk(tmp_path, OLD)
    assert refused.value.code == "store.newer"


def test_processes_that_open_a_new_folder_at_once_make_it_once(tmp_path: Path):
    text = (
        "import sys; from pathlib import Path; from rota.stores.sqlite import SqliteDisk; SqliteDisk(Path(sys.argv[1]))"
    )
    processes = [subprocess.Popen([sys.executable, "-c", text, str(tmp_path)]) for _ in range(4)]
    assert [process.wait() for process in processes] == [0, 0, 0, 0]
    assert version_of(tmp_path) == BASE


def folder_of(folder: Path, version: int, *batches: Batch, slices: int = 0) -> None:
    """A folder as a program of that version left it after these commits and so much housekeeping.

    Written by this program elsewhere, and copied into the tables of then.
    """
    now = SqliteDisk(folder / "now")
    epoch = elected(now)
    for batch in batches:
        now.commit(epoch, batch)
    for _ in range(slices):
        now.tidy(epoch, 0, 1 << 60)
    now.close()
    SqliteDisk(folder, MIGRATIONS[:version]).close()
    connection = apsw.Connection(str(folder / "rota.db"))
    connection.create_scalar_function("plain", plain_json, 1)
    connection.execute("ATTACH ? AS now", (str(folder / "now" / "rota.db"),))
    tables = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT IN ('meta', 'sqlite_sequence')"
    for (table,) in list(connection.execute(tables)):
        columns = [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]
        values = [
            f"plain({name})" if version < 3 and (name in ("specs",) or (table, name) in GRAPHS) else name
            for name in columns
        ]
        connection.execute(
            f"INSERT INTO main.{table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM now.{table}"  # noqa: S608 - names of our own
        )
    connection.close()
    shutil.rmtree(folder / "now")
    assert version_of(folder) == version


GRAPHS = (("graph", "graph"), ("history_graph", "graph"))


def test_a_folder_of_the_first_version_learns_shares_and_audits(tmp_path: Path):
    records = [record for record in without_later(one_of_each()) if not isinstance(record, Tenant)]
    folder_of(tmp_path, 1, Batch(one_of_each(), [], [], []))
    disk = SqliteDisk(tmp_path)
    assert_same(disk_of(disk.load(elected(disk))), disk_of(records))
    disk.close()
    assert version_of(tmp_path) == BASE


@pytest.mark.parametrize("slices", range(3))
def test_a_folder_of_the_second_version_learns_of_workflows_wherever_its_rows_are(tmp_path: Path, slices: int):
    many, one = a_run(run="many"), a_one_task_run(run="one", start=20_000)
    live = [*one_of_each(40_000), *rows_of(a_run(run="live", start=60_000), a_one_task_run(run="l1", start=80_000))]
    told = [*story_of(many.run), *story_of(one.run)]
    put = Batch([*live, *rows_of(many, one)], [], [], told)
    folder_of(tmp_path, 2, put, Batch([], [], [("t", "many"), ("t", "one")], []), slices=slices)
    disk = SqliteDisk(tmp_path)
    epoch = elected(disk)
    assert version_of(tmp_path) == BASE
    assert_same(disk_of(disk.load(epoch)), disk_of(without_later(live)))
    past = [ended_before(many), ended_before(one)]
    assert [disk.ended("t", ended.run.id) for ended in past] == past
    assert list(disk.reader.execute("SELECT run, version, backfill FROM runs WHERE run = 'many'")) == [
        ("many", None, 0)
    ]
    # It goes on: what moves to history, and back, is as it was.
    while disk.tidy(epoch, 0, 1 << 60):
        pass
    assert [disk.ended("t", ended.run.id) for ended in past] == past
    revives = [("t", ended.run.id, ended.run.created_at) for ended in past]
    disk.commit(epoch, Batch([filled(Workflow)], [], [], [], [], revives))
    assert_same(disk_of(disk.load(epoch)), disk_of([*without_later(live), *rows_of(*past), filled(Workflow)]))
    for ended in past:
        assert disk.told("t", ended.run.id, ended.run.created_at) == story_of(ended.run)
    disk.close()


def test_a_folder_of_the_third_version_learns_of_builds(tmp_path: Path):
    past = a_one_task_run(run="past", start=20_000)
    put = Batch([*one_of_each(), *rows_of(past)], [], [], story_of(past.run))
    folder_of(tmp_path, 3, put, Batch([], [], [("t", "past")], []))
    disk = SqliteDisk(tmp_path)
    assert_same(disk_of(disk.load(elected(disk))), disk_of(without_builds(one_of_each())))
    found = disk.ended("t", "past")
    assert found is not None and [found.run] == without_builds([past.run])
    disk.close()
    assert version_of(tmp_path) == BASE
