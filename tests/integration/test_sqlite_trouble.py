"""Disks that are full, damaged, of another version or not ours: what is said, what is kept, what happens afterwards."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from rota.core.errors import Refused, Unavailable
from rota.core.records import Batch, Record, Run, Task
from rota.ports import CommitUnknown, Fenced, StoreRefused
from rota.stores.sql.migrations import latest
from rota.stores.sqlite import SqliteDisk
from tests.contract.bench import assert_same, disk_of
from tests.contract.records import bare, filled
from tests.contract.samples import a_run, one_of_each, rows_of, story_of
from tests.integration.faulty import FaultyFiles


def batch(*puts: Record) -> Batch:
    return Batch(list(puts), [], [], [])


def large(name: str = "large") -> list[Record]:
    """More than what is in the cache of a small connection."""
    run = bare(Run, tenant="t", id=name, name="n" * 20_000)
    return [run, *[Task("t", name, idx, error="e" * 4_000) for idx in range(200)]]


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def disk(tmp_path: Path, files: FaultyFiles) -> Iterator[SqliteDisk]:
    disk = SqliteDisk(tmp_path, vfs=files.name)
    yield disk
    disk.close()


def test_a_disk_that_is_full_at_commit_takes_nothing_and_goes_on_when_there_is_space(
    disk: SqliteDisk, files: FaultyFiles
):
    epoch = disk.elect()
    disk.commit(epoch, batch(*one_of_each()))
    with files.full():
        for _ in range(3):
            with pytest.raises(Unavailable) as trouble:
                disk.commit(epoch, batch(*one_of_each(40_000)))
            assert trouble.value.code == "store.full"
            assert disk.holds(epoch), "the lock is kept"
        assert_same(disk_of(disk.load(epoch)), disk_of(one_of_each()))
    disk.commit(epoch, batch(*one_of_each(40_000)))
    assert_same(disk_of(disk.load(epoch)), disk_of([*one_of_each(), *one_of_each(40_000)]))


def test_a_disk_that_is_full_in_the_middle_of_a_batch_takes_nothing(disk: SqliteDisk, files: FaultyFiles):
    epoch = disk.elect()
    disk.writer.pragma("cache_size", 5)
    disk.commit(epoch, batch(*one_of_each()))
    with files.full():
        with pytest.raises(Unavailable) as trouble:
            disk.commit(epoch, batch(*large()))
        assert trouble.value.code == "store.full"
    assert_same(disk_of(disk.load(epoch)), disk_of(one_of_each()))
    disk.commit(epoch, batch(*large()))
    assert len(disk.load(epoch)) == len(one_of_each()) + len(large())


def test_a_database_that_may_not_grow_is_full_at_a_statement(disk: SqliteDisk):
    epoch = disk.elect()
    pages = disk.writer.pragma("page_count")
    disk.writer.pragma("max_page_count", pages + 5)
    with pytest.raises(Unavailable) as trouble:
        disk.commit(epoch, batch(*large()))
    assert trouble.value.code == "store.full"
    assert disk.load(epoch) == []
    disk.writer.pragma("max_page_count", 1_000_000)
    disk.commit(epoch, batch(*large()))
    assert len(disk.load(epoch)) == len(large())


def test_an_election_on_a_full_disk_is_not_won_and_leaves_the_lock_free(
    disk: SqliteDisk, files: FaultyFiles, tmp_path: Path
):
    with files.full(), pytest.raises(Unavailable):
        disk.elect()
    rival = SqliteDisk(tmp_path)
    assert rival.elect() == 1
    rival.close()


def test_a_commit_that_could_not_be_synced_is_neither_done_nor_undone(disk: SqliteDisk, files: FaultyFiles):
    epoch = disk.elect()
    disk.commit(epoch, batch(*one_of_each()))
    files.fails_to_sync = True
    with pytest.raises(CommitUnknown):
        disk.commit(epoch, batch(*one_of_each(40_000)))
    files.fails_to_sync = False
    # Whatever became of it, the next coordinator finds all of it or nothing, and goes on.
    disk.release(epoch)
    later = disk.elect()
    with pytest.raises(Fenced):
        disk.commit(epoch, batch())
    loaded = disk.load(later)
    assert len(loaded) in (len(one_of_each()), 2 * len(one_of_each()))
    disk.commit(later, batch(*one_of_each(40_000)))
    assert_same(disk_of(disk.load(later)), disk_of([*one_of_each(), *one_of_each(40_000)]))


def test_somebody_else_in_the_middle_of_writing_is_trouble_that_passes(tmp_path: Path):
    disk = SqliteDisk(tmp_path)
    epoch = disk.elect()
    disk.writer.set_busy_timeout(1)
    # Not with Python's own sqlite3: two SQLite libraries in one process do not see each other's locks.
    other = apsw.Connection(str(tmp_path / "rota.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable) as trouble:
        disk.commit(epoch, batch(*one_of_each()))
    assert trouble.value.code == "store.unavailable"
    other.close()
    disk.commit(epoch, batch(*one_of_each()))
    disk.close()


@pytest.mark.parametrize(
    "odd",
    [{"error": "half a pair \ud83d"}, {"cycles": 2**63}, {"cycles": "many"}, {"error": b"bytes"}, {"error": None}],
)
def test_what_no_column_holds_is_refused_whole(disk: SqliteDisk, odd: dict[str, object]):
    epoch = disk.elect()
    with pytest.raises(StoreRefused):
        disk.commit(epoch, batch(*rows_of(a_run()), filled(Task, tenant="t", run="r", idx=99, **odd)))
    assert disk.load(epoch) == []


def test_parts_and_stories_of_a_run_that_is_not_there_are_refused(disk: SqliteDisk):
    epoch = disk.elect()
    stray = Batch([], [], [], story_of())
    for refused in (batch(filled(Task)), batch(a_run().growths[0]), stray):
        with pytest.raises(StoreRefused):
            disk.commit(epoch, refused)
    assert disk.load(epoch) == []


# Files that are not what they should be.


def damaged(folder: Path, at: float = 0.0) -> Path:
    """A folder whose database was overwritten in part, as by a careless copy."""
    disk = SqliteDisk(folder)
    epoch = disk.elect()
    disk.commit(epoch, batch(*large()))
    disk.close()
    path = folder / "rota.db"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(int(size * at))
        file.write(b"\xa5" * (size // 4))
    return path


def assert_helpful(text: str, path: Path) -> None:
    assert str(path) in text
    assert "rota db check" in text
    assert "rota db backup" in text


def test_a_file_that_is_no_database_is_refused_with_what_to_do(tmp_path: Path):
    path = damaged(tmp_path)
    with pytest.raises(Refused) as refused:
        SqliteDisk(tmp_path)
    assert refused.value.code == "store.corrupt"
    assert_helpful(str(refused.value), path)


def test_damage_inside_the_file_is_told_by_whoever_meets_it(tmp_path: Path):
    path = damaged(tmp_path, 0.5)
    disk = SqliteDisk(tmp_path)
    epoch = disk.elect()
    with pytest.raises(Unavailable) as trouble:
        disk.load(epoch)
    assert trouble.value.code == "store.corrupt"
    assert_helpful(str(trouble.value), path)
    with pytest.raises(Unavailable) as trouble:
        disk.commit(epoch, batch(*large()))
    assert trouble.value.code == "store.corrupt"
    assert_helpful(str(trouble.value), path)
    disk.close()


def test_a_folder_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path):
    SqliteDisk(tmp_path).close()
    newer = sqlite3.connect(tmp_path / "rota.db")
    newer.execute(f"PRAGMA user_version = {latest() + 1}")
    newer.commit()
    newer.close()
    before = (tmp_path / "rota.db").read_bytes()
    with pytest.raises(Refused) as refused:
        SqliteDisk(tmp_path)
    assert refused.value.code == "store.newer"
    assert str(latest() + 1) in refused.value.reason
    assert (tmp_path / "rota.db").read_bytes() == before


def test_a_database_of_somebody_else_is_refused_and_left_alone(tmp_path: Path):
    other = sqlite3.connect(tmp_path / "rota.db")
    other.execute("CREATE TABLE photos (taken TEXT)")
    other.commit()
    other.close()
    with pytest.raises(Refused) as refused:
        SqliteDisk(tmp_path)
    assert refused.value.code == "store.corrupt"
    assert str(tmp_path / "rota.db") in refused.value.reason
    assert "of Rota" in refused.value.reason


def test_an_engine_that_can_damage_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(Refused) as refused:
        SqliteDisk(tmp_path)
    assert refused.value.code == "store.engine"
