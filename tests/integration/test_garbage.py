"""What nobody refers to is removed, and nothing else: results that did not count, logs of runs that are gone."""

import asyncio
import os
import time
from pathlib import Path

import pytest

import rota
from rota.app.garbage import GARBAGE_AGE_MS, collect, fence_of
from rota.stores.blobs import open_blobs
from rota.stores.sqlite import SqliteStore
from rota.worker.logs import LogFolder

LONG = 20_000


@rota.task
def large() -> str:
    print("making it")  # noqa: T201 - so that there is a log
    return "x" * LONG


@rota.graph
def one():
    large()


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def sweep(folder: Path, now: int) -> tuple[int, int]:
    store = SqliteStore(folder)
    try:
        return await collect(store, open_blobs(folder / "blobs"), LogFolder(folder), "default", now)
    finally:
        store.close()


def swept(folder: Path, now: int) -> tuple[int, int]:
    return asyncio.run(sweep(folder, now))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with rota.Rota.embedded(tmp_path, slots=1) as here:
        assert here.submit(one, run="r").result("large") == "x" * LONG
    return tmp_path


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_what_is_referred_to_stays_however_old_it_is(folder: Path) -> None:
    before = files(folder / "blobs") + files(folder / "logs")
    assert len(before) == 2
    assert swept(folder, now_ms() + 10 * GARBAGE_AGE_MS) == (0, 0)
    assert files(folder / "blobs") + files(folder / "logs") == before


def test_a_result_that_did_not_count_goes_when_it_is_old(folder: Path) -> None:
    (kept,) = files(folder / "blobs")
    stray = folder / "blobs" / Path(kept).parents[1] / "2-999" / "result"
    stray.parent.mkdir()
    stray.write_bytes(b"late")
    assert swept(folder, now_ms()) == (0, 0)
    assert swept(folder, now_ms() + 2 * GARBAGE_AGE_MS) == (1, 0)
    assert files(folder / "blobs") == [kept]


def test_logs_of_a_run_that_is_gone_go_when_they_are_old(folder: Path) -> None:
    log = folder / "logs" / "default" / "gone" / "t" / "1-5.log"
    log.parent.mkdir(parents=True)
    log.write_text("old")
    old_ns = (now_ms() - 3 * GARBAGE_AGE_MS) * 1_000_000
    os.utime(log, ns=(old_ns, old_ns))
    os.utime(log.parent, ns=(old_ns, old_ns))
    assert swept(folder, now_ms()) == (0, 1)
    assert not log.exists()


def test_a_fence_is_read_from_the_name_of_an_attempt() -> None:
    assert fence_of("t/r/x/3-77/result") == 77
    assert fence_of("something/else") is None
    assert fence_of("alone") is None
