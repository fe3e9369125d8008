"""What nobody refers to is removed, and nothing else: results that did not count, logs of runs that are gone."""

import asyncio
import time
from pathlib import Path

import pytest

import rota
from rota.app.garbage import GARBAGE_AGE_MS, collect, is_attempt
from rota.stores.blobs import open_blobs
from rota.stores.sqlite import SqliteStore

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


async def sweep(folder: Path, now: int) -> int:
    store = SqliteStore(folder)
    try:
        return await collect(store, open_blobs(folder / "blobs"), now)
    finally:
        store.close()


def swept(folder: Path, now: int) -> int:
    return asyncio.run(sweep(folder, now))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with rota.Rota.embedded(tmp_path, slots=1) as here:
        assert here.submit(one, run="r").result("large") == "x" * LONG
    return tmp_path


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_what_is_referred_to_stays_however_old_it_is(folder: Path) -> None:
    before = files(folder / "blobs")
    assert [Path(name).name for name in before] == ["home", "000000-end", "result"]
    assert swept(folder, now_ms() + 10 * GARBAGE_AGE_MS) == 0
    assert files(folder / "blobs") == before


def test_a_result_that_did_not_count_goes_when_it_is_old_and_its_log_stays_with_the_run(folder: Path) -> None:
    before = files(folder / "blobs")
    stray = folder / "blobs" / Path(before[-1]).parents[1] / "2-999"
    (stray / "log").mkdir(parents=True)
    (stray / "result").write_bytes(b"late")
    (stray / "log" / "000000-end").write_bytes(b"said on the way")
    assert swept(folder, now_ms()) == 0
    assert swept(folder, now_ms() + 2 * GARBAGE_AGE_MS) == 1
    assert files(folder / "blobs") == sorted([*before, str((stray / "log/000000-end").relative_to(folder / "blobs"))])


def test_logs_of_a_run_that_is_gone_go_when_they_are_old(folder: Path) -> None:
    before = files(folder / "blobs")
    log = folder / "blobs" / "default" / "gone" / "t" / "1-5" / "log" / "000000-end"
    log.parent.mkdir(parents=True)
    log.write_text("old")
    assert swept(folder, now_ms()) == 0
    assert swept(folder, now_ms() + 2 * GARBAGE_AGE_MS) == 1
    assert files(folder / "blobs") == before


def test_what_belongs_to_no_attempt_is_left_alone(folder: Path) -> None:
    other = folder / "blobs" / "default" / "bundles" / "abc"
    other.parent.mkdir()
    other.write_text("somebody else's")
    assert swept(folder, now_ms() + 2 * GARBAGE_AGE_MS) == 0


def test_an_attempt_is_told_by_its_name() -> None:
    assert is_attempt("3-77")
    assert not any(is_attempt(name) for name in ("3", "3-", "-77", "x-77", "3-7-7"))
