"""A data folder and the processes around it: who holds it, what is found after a restart, who waits for whom."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rota.core.errors import Refused
from rota.core.history import HistoryQuery
from rota.core.ids import Epoch
from rota.core.records import Batch, Record
from rota.ports import Candidate
from rota.stores.sqlite import SqliteDisk, SqliteStore, held
from tests.contract.bench import assert_same, disk_of
from tests.contract.samples import a_one_task_run, a_run, one_of_each, rows_of, story_of
from tests.integration.writer import elected
from tests.refusals import refused

HOLD = """
import sys
from pathlib import Path
from rota.stores.sqlite import SqliteDisk
disk = SqliteDisk(Path(sys.argv[1]))
print(disk.elect("the other process"), flush=True)
sys.stdin.read()
"""


def holding(folder: Path) -> subprocess.Popen[str]:
    """Another process that holds a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() != "None"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.communicate()


def batch(*puts: Record, archives: tuple[tuple[str, str], ...] = (), stories: tuple = ()) -> Batch:
    return Batch(list(puts), [], list(archives), list(stories))


def test_a_second_process_is_refused_and_told_the_pid_of_the_first(tmp_path: Path):
    process = holding(tmp_path)
    disk = SqliteDisk(tmp_path)
    assert disk.elect() is None
    assert f"process {process.pid} on " in disk.holder()
    assert "the other process" in disk.holder()
    refused = held(tmp_path)
    assert isinstance(refused, Refused)
    assert refused.code == "store.held"
    assert str(process.pid) in refused.reason
    end(process)
    assert disk.holder() == ""
    assert disk.elect() == 2
    disk.close()


def test_a_process_that_was_killed_leaves_the_folder_free(tmp_path: Path):
    process = holding(tmp_path)
    disk = SqliteDisk(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    end(process)
    assert disk.elect() == 2
    disk.close()


def test_a_process_that_is_stopped_keeps_the_folder(tmp_path: Path):
    """A coordinator that does not run is still the holder; nobody may take a folder on the strength of silence."""
    process = holding(tmp_path)
    os.kill(process.pid, signal.SIGSTOP)
    disk = SqliteDisk(tmp_path)
    assert disk.elect() is None
    os.kill(process.pid, signal.SIGCONT)
    end(process)
    disk.close()


def test_a_lock_on_a_file_that_somebody_deleted_is_no_proof(tmp_path: Path):
    disk = SqliteDisk(tmp_path)
    epoch = elected(disk)
    (tmp_path / "rota.lock").unlink()
    assert not disk.holds(epoch)
    rival = SqliteDisk(tmp_path)
    later = elected(rival)
    assert rival.holds(later)
    assert not disk.holds(epoch)
    disk.close()
    rival.close()


def test_a_restart_finds_the_same_records(tmp_path: Path):
    runs, told = [a_run(), a_one_task_run(run="one", start=20_000)], []
    disk = SqliteDisk(tmp_path)
    epoch = elected(disk)
    for run in runs:
        told += story_of(run.run)
    disk.commit(epoch, batch(*one_of_each(60_000), *rows_of(*runs), stories=tuple(told)))
    before = disk_of(disk.load(epoch))
    disk.close()
    for _ in range(3):
        disk = SqliteDisk(tmp_path)
        epoch = elected(disk)
        assert_same(disk_of(disk.load(epoch)), before)
        assert [disk.told("t", run.run.id, run.run.created_at) for run in runs] == [story_of(run.run) for run in runs]
        disk.close()


def test_settings_that_durability_rests_on(tmp_path: Path):
    disk = SqliteDisk(tmp_path)
    assert disk.writer.pragma("journal_mode") == "wal"
    assert disk.writer.pragma("synchronous") == 2
    disk.close()


# The port: one thread writes, one reads.


def test_reading_does_not_wait_for_a_commit(tmp_path: Path):
    async def scene() -> None:
        store = SqliteStore(tmp_path)
        epoch = await store.elect(Candidate("somebody"))
        assert epoch is not None
        await store.commit(epoch, batch(*rows_of(a_run()), archives=(("t", "r"),)))
        reached, resumed = threading.Event(), threading.Event()

        def stand() -> bool:
            reached.set()
            return not resumed.wait(60)

        store.disk.writer.set_commit_hook(stand)
        commit = asyncio.create_task(store.commit(epoch, batch(*one_of_each())))
        await asyncio.to_thread(reached.wait, 60)
        page = await store.history(HistoryQuery(tenant="t"))
        assert [run.id for run in page.runs] == ["r"]
        assert await store.holds(epoch)
        assert [record async for record in store.load(epoch)] == [], "what is not committed is not seen"
        assert not commit.done()
        resumed.set()
        await commit
        store.disk.writer.set_commit_hook(None)
        assert len([record async for record in store.load(epoch)]) == len(one_of_each())
        store.close()

    asyncio.run(scene())


def test_a_store_can_be_closed_twice_and_frees_the_folder(tmp_path: Path):
    async def elect(store: SqliteStore) -> Epoch | None:
        return await store.elect(Candidate("somebody"))

    before = threading.active_count()
    store = SqliteStore(tmp_path)
    assert asyncio.run(elect(store)) == 1
    store.close()
    store.close()
    assert threading.active_count() == before, "its threads are gone"
    again = SqliteStore(tmp_path)
    assert asyncio.run(elect(again)) == 2
    again.close()


def test_a_load_that_is_given_up_leaves_nothing_open(tmp_path: Path):
    async def scene() -> None:
        store = SqliteStore(tmp_path)
        epoch = await store.elect(Candidate("somebody"))
        assert epoch is not None
        await store.commit(epoch, batch(*one_of_each()))
        loading = store.load(epoch)
        await anext(loading)
        await loading.aclose()
        store.close()
        assert not (tmp_path / "rota.db-wal").exists(), "the last connection to close clears the log away"

    asyncio.run(scene())


@pytest.mark.parametrize("name", ["a folder", "ünïcode", "a%20b?mode=memory"])
def test_any_folder_will_do(tmp_path: Path, name: str):
    folder = tmp_path / name / "deeper"
    disk = SqliteDisk(folder)
    assert disk.elect() == 1
    disk.close()
    assert (folder / "rota.db").is_file()


def test_a_folder_that_was_moved_away_is_not_stood_for_any_more(tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there"
    disk = SqliteDisk(here)
    disk.release(elected(disk))
    here.rename(there)
    with refused("store.missing", str(here)):
        disk.elect("one")
    other = SqliteDisk(here)
    assert elected(other) == 1
    with refused("store.missing", str(here)):
        disk.elect("one")
    other.close()
    disk.close()
    moved = SqliteDisk(there)
    assert elected(moved) == 2
    moved.close()
