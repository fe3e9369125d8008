"""The bundles of a worker: fetched once, checked, kept read-only, removed when others need the room."""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rota.core.commands import Outcome
from rota.core.decide.leases import Offer
from rota.core.ids import BlobRef
from rota.core.model import FailureClass
from rota.ports import Blobs
from rota.stores.blobs import open_blobs
from rota.wire.bundles import BundleFile, bundle_ref, pack_bundle
from rota.wire.work import CommandWork, PythonWork, encode_work
from rota.worker.accounts import find_account
from rota.worker.bundles.driver import BundleCache, NoBundle
from rota.worker.runners.thread import ThreadRunner
from tests.integration.worker.stage import Stage, staged, value_of

CODE = b"""
import os, pathlib, sys

def where():
    return [__file__, os.environ["ROTA_BUNDLE"], (pathlib.Path(__file__).parent / "words.txt").read_text()]

def spoil():
    (pathlib.Path(__file__).parent / "words.txt").write_text("other")

def pid():
    return os.getpid()
"""


class Counted:
    """The blobs, and how often something was fetched from them."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.fetched: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    async def fetch(self, ref: BlobRef, target: Path) -> None:
        self.fetched.append(ref.sha256)
        await self.gate.wait()
        await self._blobs.fetch(ref, target)


async def put(blobs: Blobs, *files: BundleFile) -> BlobRef:
    content = pack_bundle(files)
    ref = bundle_ref("acme", content)
    await blobs.put(ref.name, content)
    return ref


def offer_of(bundle: BlobRef | None, tenant: str = "acme") -> Offer:
    work = encode_work(PythonWork(function="m:f"))
    return Offer(tenant, "run", 0, "t", 1, 1, "python", work, b"", 0, 30_000, bundle=bundle)


def cached(folder: Path, blobs: Any, **options: Any) -> BundleCache:
    return BundleCache(blobs, folder / "bundles", **options)


def kept_in(folder: Path) -> list[str]:
    return sorted(each.name for each in (folder / "bundles").iterdir())


def run(test: Callable[[Path, Counted], Any]) -> Callable[[Path], None]:
    def wrapped(tmp_path: Path) -> None:
        async def inside() -> None:
            async with asyncio.timeout(60):
                await test(tmp_path, Counted(open_blobs(tmp_path / "blobs")))

        asyncio.run(inside())

    wrapped.__name__ = test.__name__
    wrapped.__doc__ = test.__doc__
    return wrapped


@run
async def test_attempts_that_need_the_same_bundle_wait_for_one_fetch(folder: Path, blobs: Counted) -> None:
    ref = await put(blobs, BundleFile("a.py", b"x = 1\n"))
    cache = cached(folder, blobs)
    blobs.gate.clear()
    takers = [asyncio.create_task(cache.take(offer_of(ref))) for _ in range(10)]
    while not blobs.fetched:
        await asyncio.sleep(0)
    # One that gives up does not stop it for the others.
    takers[0].cancel()
    blobs.gate.set()
    done = await asyncio.gather(*takers, return_exceptions=True)
    assert isinstance(done[0], asyncio.CancelledError)
    assert len(set(map(str, done[1:]))) == 1
    assert blobs.fetched == [ref.sha256]
    assert Path(str(done[1]), "a.py").read_bytes() == b"x = 1\n"
    await cache.close()


@run
async def test_what_is_unpacked_may_not_be_changed(folder: Path, blobs: Counted) -> None:
    ref = await put(blobs, BundleFile("lib/a.py", b""), BundleFile("lib/run.sh", b"", is_executable=True))
    path = Path(await cached(folder, blobs).take(offer_of(ref)))
    modes = {str(each.relative_to(path)): stat.S_IMODE(each.stat().st_mode) for each in path.rglob("*")}
    assert modes == {"lib": 0o555, "lib/a.py": 0o444, "lib/run.sh": 0o555}
    assert stat.S_IMODE(path.stat().st_mode) == 0o555


@run
async def test_a_worker_that_starts_again_finds_what_it_had(folder: Path, blobs: Counted) -> None:
    ref = await put(blobs, BundleFile("a.py", b""))
    first = cached(folder, blobs)
    path = await first.take(offer_of(ref))
    await first.close()
    (folder / "bundles" / "part-left-by-a-crash").mkdir()
    assert await cached(folder, blobs).take(offer_of(ref)) == path
    assert blobs.fetched == [ref.sha256]
    assert kept_in(folder) == [ref.sha256]


@run
async def test_the_one_that_was_used_least_recently_makes_room_unless_it_is_in_use(
    folder: Path, blobs: Counted
) -> None:
    refs = [await put(blobs, BundleFile("a.bin", bytes([number]) * 1_000)) for number in range(4)]
    cache = cached(folder, blobs, bytes_max=2_500)
    for ref in refs[:2]:
        await cache.take(offer_of(ref))
    cache.give_back(offer_of(refs[1]))
    # The first is the oldest and in use: the second goes.
    await cache.take(offer_of(refs[2]))
    assert kept_in(folder) == sorted([refs[0].sha256, refs[2].sha256])
    cache.give_back(offer_of(refs[0]))
    cache.give_back(offer_of(refs[2]))
    # Used again, and so not the oldest any more.
    await cache.take(offer_of(refs[0]))
    await cache.take(offer_of(refs[3]))
    assert kept_in(folder) == sorted([refs[0].sha256, refs[3].sha256])


@run
async def test_a_bundle_that_is_gone_damaged_or_unsafe_is_told_and_tried_again(folder: Path, blobs: Counted) -> None:
    content = pack_bundle((BundleFile("a.py", b""),))
    ref = bundle_ref("acme", content)
    cache = cached(folder, blobs)
    with pytest.raises(NoBundle, match="is gone"):
        await cache.take(offer_of(ref))
    await blobs.put(ref.name, content[:-1] + b"x")
    with pytest.raises(NoBundle, match="SHA-256"):
        await cache.take(offer_of(ref))
    unsafe = b"this is not a zip"
    other = bundle_ref("acme", unsafe)
    await blobs.put(other.name, unsafe)
    with pytest.raises(NoBundle, match="zip"):
        await cache.take(offer_of(other))
    assert kept_in(folder) == []
    await blobs.put(ref.name, content)
    assert Path(await cache.take(offer_of(ref)), "a.py").exists()


@run
async def test_nobody_gets_the_bundle_of_another_tenant(folder: Path, blobs: Counted) -> None:
    ref = await put(blobs, BundleFile("a.py", b""))
    cache = cached(folder, blobs)
    for _ in range(2):
        with pytest.raises(NoBundle, match="'eve'"):
            await cache.take(offer_of(ref, tenant="eve"))
        # From here on it is there, and still not hers.
        await cache.take(offer_of(ref))


@staged()
async def test_code_and_commands_find_the_files_of_their_bundle(stage: Stage) -> None:
    ref = await put(stage.blobs, BundleFile("m.py", CODE), BundleFile("words.txt", b"hello"))
    over = await stage.run(stage.offer(PythonWork(function="m:where"), bundle=ref))
    assert over.outcome is Outcome.SUCCESS, over.error
    folder = str(stage.folder / "bundles" / ref.sha256)
    assert value_of(over) == [f"{folder}/m.py", folder, "hello"]
    over = await stage.run(stage.offer(CommandWork(shell="cat words.txt; echo; echo $ROTA_BUNDLE"), bundle=ref))
    assert value_of(over) == folder
    assert stage.log() == f"hello\n{folder}\n".encode()


@staged()
async def test_two_versions_of_a_module_live_in_processes_of_their_own(stage: Stage) -> None:
    versions = [await put(stage.blobs, BundleFile("m.py", CODE + f"def v(): return {n}\n".encode())) for n in (1, 2)]
    seen = [value_of(await stage.run(stage.offer(PythonWork(function="m:v"), bundle=ref))) for ref in versions * 2]
    assert seen == [1, 2, 1, 2]
    pids = [value_of(await stage.run(stage.offer(PythonWork(function="m:pid"), bundle=ref))) for ref in versions * 2]
    assert pids[0] == pids[2] != pids[1] == pids[3]


@staged()
async def test_an_attempt_whose_bundle_is_lost_is_an_internal_failure(stage: Stage) -> None:
    content = pack_bundle((BundleFile("m.py", CODE),))
    for work in (PythonWork(function="m:pid"), CommandWork(shell="true")):
        over = await stage.run(stage.offer(work, bundle=bundle_ref("acme", content)))
        assert (over.outcome, over.failure) == (Outcome.FAILED, FailureClass.INTERNAL)
        assert "with its code could not be had" in over.error


def test_threads_refuse_code_that_has_versions(tmp_path: Path):
    async def attempt() -> Any:
        blobs = open_blobs(tmp_path / "blobs")
        runner = ThreadRunner(blobs, tmp_path)
        try:
            return await runner.run(offer_of(await put(blobs, BundleFile("m.py", CODE))))
        finally:
            await runner.close()

    over = asyncio.run(attempt())
    assert (over.outcome, over.failure) == (Outcome.FAILED, FailureClass.FATAL)
    assert "without --threads" in over.error


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run code as somebody else")
def test_code_of_another_user_finds_its_bundle_and_cannot_change_it(tmp_path: Path):
    @staged(run_as=find_account("nobody"))
    async def attempt(stage: Stage) -> None:
        ref = await put(stage.blobs, BundleFile("words.txt", b"hello"))
        lines = "id -un; cat words.txt; echo; touch words.txt || touch new || echo nothing changed"
        over = await stage.run(stage.offer(CommandWork(shell=lines), bundle=ref))
        assert value_of(over) == "nothing changed"
        assert stage.log().splitlines()[:2] == [b"nobody", b"hello"]
        await stage.bundles.close()
        # What was made for that user is gone.
        assert kept_in(stage.folder) == []

    attempt(tmp_path)
