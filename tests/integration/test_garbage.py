"""What nobody refers to is removed, and nothing else: results that did not count, logs of runs that are gone."""

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest

import rota
from rota.app.garbage import GARBAGE_AGE_MS, REST_S, STAMP, collect, is_attempt, keep_collecting
from rota.control.events import Escalate, Tell
from rota.core.errors import Refused
from rota.stores.blobs import open_blobs
from rota.stores.sqlite import SqliteStore, read_identity_file
from rota.wire.bundles import BundleFile, pack_bundle
from tests.refusals import refused

pytestmark = pytest.mark.full

LONG = 70_000


@rota.task
def large() -> str:
    print("making it")  # noqa: T201 - so that there is a log
    return "x" * LONG


@rota.workflow
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
    names = [Path(name).name for name in before]
    # On a busy machine a log is shipped in more than one part.
    parts = len(names) - 2
    assert parts >= 1
    assert names == ["home", *(f"{part:06d}" for part in range(parts - 1)), f"{parts - 1:06d}-end", "result"]
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


FLOW = "import rota\n\n@rota.task\ndef a():\n    return {word!r}\n\n@rota.workflow\ndef flow():\n    a()\n"


def test_a_bundle_goes_when_it_is_old_and_no_definition_names_it(tmp_path: Path) -> None:
    data, root = tmp_path / "data", tmp_path / "root"
    root.mkdir()

    def bundles() -> list[str]:
        return [Path(name).stem for name in files(data / "blobs") if ".bundles" in name]

    with rota.Rota.embedded(data, slots=1) as here:
        (root / "flow.py").write_text(FLOW.format(word="x"))
        (first,) = here.deploy(root)
        assert here.trigger("flow").wait(60).state == "success"
        stray = pack_bundle((BundleFile("a.py", b"never deployed"),))
        unused = here._thread.call(here._rota.put_bundle(stray)).sha256
    later = now_ms() + 2 * GARBAGE_AGE_MS
    assert sorted(bundles()) == sorted([first.bundle, unused])
    assert swept(data, now_ms()) == 0, "what is deployed with it may be on its way"
    assert swept(data, later) == 1
    assert bundles() == [first.bundle], "an older version, and a run in history, would need it"


def test_the_bundle_of_a_workflow_that_was_deployed_again_unchanged_stays(tmp_path: Path) -> None:
    data, root = tmp_path / "data", tmp_path / "root"
    root.mkdir()
    with rota.Rota.embedded(data, slots=1) as here:
        (root / "flow.py").write_text(FLOW.format(word="x"))
        (root / "other.py").write_text("# no part of it")
        (first,) = here.deploy(root)
        (root / "other.py").write_text("# nor this")
        (again,) = here.deploy(root)
        assert (again.version, again.is_new, again.bundle) == (1, False, first.bundle)
    # The second bundle, of which no version is, goes.
    assert swept(data, now_ms() + 2 * GARBAGE_AGE_MS) == 1
    with rota.Rota.embedded(data, slots=1) as here:
        assert here.trigger("flow").result(timeout_s=60) == "x"


def test_a_bundle_that_somebody_asks_for_is_young_again(tmp_path: Path) -> None:
    """Whoever deploys does not send again what is there: it must not go before what is deployed names it."""
    content = pack_bundle((BundleFile("a.py", b"x = 1"),))
    with rota.Rota.embedded(tmp_path, slots=1) as here:
        ref = here._thread.call(here._rota.put_bundle(content))
        stored = tmp_path / "blobs" / ref.name
        for _ in range(2):
            os.utime(stored, (0, 0))
            assert here._thread.call(here._rota.put_bundle(content)) == ref
            assert swept(tmp_path, now_ms()) == 0


def test_an_attempt_is_told_by_its_name() -> None:
    assert is_attempt("3-77")
    assert not any(is_attempt(name) for name in ("3", "3-", "-77", "x-77", "3-7-7"))


def test_two_coordinators_do_not_share_a_place_for_what_each_would_remove(tmp_path: Path) -> None:
    shared = str(tmp_path / "shared")
    with rota.Rota.embedded(tmp_path / "a", slots=1, blobs=shared) as here:
        assert here.submit(one, run="r").result("large") == "x" * LONG
    assert (tmp_path / "a" / "home").stat().st_mode & 0o777 == 0o600
    with refused("blobs.elsewhere", shared, path="server.blobs") as caught:
        rota.Rota.embedded(tmp_path / "b", slots=1, blobs=shared)
    assert ".rota/home" in caught.value.hint
    with pytest.raises(Refused, match=r"blobs\.elsewhere"):
        rota.Rota.embedded(slots=1, blobs=shared)
    with rota.Rota.embedded(tmp_path / "a", slots=1, blobs=shared) as here:
        assert here.run("r").result("large") == "x" * LONG, "its own again"


def test_a_place_is_taken_over_by_removing_its_mark_and_the_one_before_removes_nothing_there(tmp_path: Path) -> None:
    shared, told = tmp_path / "shared", list[str]()
    with rota.Rota.embedded(tmp_path / "a", slots=1, blobs=str(shared)):
        pass
    (shared / ".rota/home").unlink()
    with rota.Rota.embedded(tmp_path / "b", slots=1, blobs=str(shared)):
        pass
    log = shared / "default" / "r" / "t" / "1-5" / "log" / "000000-end"
    log.parent.mkdir(parents=True)
    log.write_text("of the second")

    async def tend() -> None:
        store, gone = SqliteStore(tmp_path / "a"), asyncio.Event()

        def hear(said: Tell | Escalate) -> None:
            told.append(str(said))
            gone.set()

        later = now_ms() + 2 * GARBAGE_AGE_MS
        tending = asyncio.create_task(
            keep_collecting(
                store, open_blobs(shared), read_identity_file(tmp_path / "a"), tmp_path / "a", lambda: later, hear
            )
        )
        async with asyncio.timeout(20):
            await gone.wait()
        tending.cancel()
        store.close()

    asyncio.run(tend())
    assert "blobs.elsewhere" in told[0]
    assert log.exists()


def test_a_new_leader_of_several_rests_before_it_removes_anything(tmp_path: Path) -> None:
    async def tend(rest_s: float) -> bool:
        store = SqliteStore(tmp_path)
        home = await store.identity()
        blobs = open_blobs(tmp_path / "blobs")
        tending = asyncio.create_task(
            keep_collecting(store, blobs, home, tmp_path, now_ms, lambda said: None, rest_s=rest_s)
        )
        for _ in range(3):
            await asyncio.sleep(0)
        tending.cancel()
        await asyncio.gather(tending, return_exceptions=True)
        store.close()
        return (tmp_path / STAMP).exists()

    assert not asyncio.run(tend(REST_S))
    assert asyncio.run(tend(0.0))


def test_programs_in_memory_may_share_a_place_and_leave_no_mark(tmp_path: Path) -> None:
    for _ in range(2):
        with rota.Rota.embedded(slots=1, blobs=str(tmp_path)) as here:
            assert here.submit(one).result("large") == "x" * LONG
    assert not (tmp_path / ".rota").exists()


@pytest.mark.parametrize("is_backup", [False, True])
def test_a_folder_moves_with_its_blobs(folder: Path, tmp_path_factory: pytest.TempPathFactory, is_backup: bool) -> None:
    there = tmp_path_factory.mktemp("there") / "data"
    shutil.move(folder, there)
    if is_backup:
        # What a backup has is the database and the blobs.
        (there / "home").unlink()
    with rota.Rota.embedded(there, slots=1) as here:
        assert here.run("r").result("large") == "x" * LONG
    assert (there / "home").read_text() == (there / "blobs/.rota/home").read_text() + "\n"
