"""The limit: what goes first, what stays whatever happens, and packs with holes."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from rota.ports import Blobs, ContentFull
from rota.stores.blobs import open_blobs
from tests.unit.stores.cas.stage import ACME, MB, OTHER, Stage, digest_of, play, some_bytes

pytestmark = pytest.mark.slow

LIMIT = 2 * MB
PACK = 100_000


def small_packs(folder: Path, blobs: Blobs | None = None) -> Stage:
    return Stage(folder, blobs, bytes_max=LIMIT, pack_bytes_max=PACK, recent_bytes_max=50_000)


@pytest.fixture(params=["files", "no files"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return small_packs(tmp_path, open_blobs("memory:///") if request.param == "no files" else None)


def on_disk(stage: Stage) -> int:
    size = 0
    for path in [*stage.packs(), *stage.files(), *stage.litter()]:
        with suppress(FileNotFoundError):  # it may be going in this very moment
            size += path.stat().st_size
    return size


@pytest.mark.parametrize("size", [5_000, 50_000, 150_000])
def test_what_was_used_longest_ago_goes_first(stage: Stage, size: int) -> None:
    async def test() -> None:
        contents = [some_bytes(size, seed) for seed in range(3 * LIMIT // size)]
        favourite = contents[0]
        for content in contents:
            stage.now += 1_000
            await stage.put(content)
            stage.content.missing(ACME, [digest_of(favourite)])
            # What is moved is there twice for a moment.
            assert on_disk(stage) <= LIMIT + PACK
            if contents.index(content) % 5 == 0:
                await stage.content.tidy()
        # In one go: room may still be being made.
        missing = stage.content.missing(ACME, [digest_of(content) for content in contents])
        assert missing == [digest_of(content) for content in contents[1 : 1 + len(missing)]]
        assert 0 < len(missing) < len(contents) - LIMIT / 2 / size
        assert await stage.has(favourite)

    play(stage, test)


def test_packs_may_go_while_another_is_moved(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    adopt = stage.blobs.adopt

    async def adopt_slowly(name: str, path: Path, *, is_durable: bool = True) -> None:
        here = set(stage.packs())
        seed = 10_000
        while here <= set(stage.packs()):
            seed += 1
            stage.now += 1_000
            await stage.put(some_bytes(5_000, seed))
        await adopt(name, path, is_durable=is_durable)

    async def test() -> None:
        for seed in range(LIMIT * 3 // 4 // 5_000):
            await stage.put(some_bytes(5_000, seed))
        monkeypatch.setattr(stage.blobs, "adopt", adopt_slowly)
        await stage.content.tidy()
        assert on_disk(stage) <= LIMIT + PACK

    play(stage, test)


@pytest.mark.parametrize("size", [5_000, 150_000])
def test_what_an_action_under_way_may_need_stays(stage: Stage, size: int) -> None:
    async def test() -> None:
        older = [some_bytes(size, seed) for seed in range(LIMIT // 4 // size)]
        for content in older:
            await stage.put(content)
        stage.now += 5_000
        inputs = [some_bytes(size, 1_000 + seed) for seed in range(LIMIT // 4 // size)]
        for content in inputs:
            await stage.put(content)
        stage.content.missing(ACME, [digest_of(older[0])])
        stage.content.keep_since(stage.now)
        stage.now += 5_000
        with pytest.raises(ContentFull):
            for seed in range(2 * LIMIT // size):
                await stage.put(some_bytes(size, 2_000 + seed))
        assert [await stage.has(content) for content in inputs] == [True] * len(inputs)
        assert [await stage.has(content) for content in older] == [True] + [False] * (len(older) - 1)
        stage.content.keep_since(None)
        await stage.put(some_bytes(size, 9_999))

    play(stage, test)


def test_a_reader_finishes_what_it_began(stage: Stage) -> None:
    async def test() -> None:
        content = some_bytes(LIMIT // 2 + MB // 2)
        digest = await stage.put(content)
        reading = stage.content.read(ACME, digest)
        pieces = [await anext(reading)]
        stage.now += 10_000
        others = [some_bytes(100_000, seed) for seed in range(30)]
        for other in others:
            await stage.put(other)
        pieces += [piece async for piece in reading]
        assert b"".join(pieces) == content
        stage.now += 10_000
        for seed in range(30):
            await stage.put(some_bytes(100_000, 100 + seed))
        assert not await stage.has(content)
        assert on_disk(stage) <= LIMIT + PACK

    play(stage, test)


def test_packs_that_are_mostly_holes_are_rewritten(stage: Stage) -> None:
    async def test() -> None:
        contents = [some_bytes(2_000, seed) for seed in range(800)]
        for content in contents:
            await stage.put(content)
        favourites = contents[::10]
        stage.now += 10_000
        stage.content.missing(ACME, [digest_of(content) for content in favourites])
        stage.now += 10_000
        for seed in range(600):
            await stage.put(some_bytes(2_000, 10_000 + seed))
        assert all([await stage.has(content) for content in favourites])
        assert on_disk(stage) <= LIMIT + PACK
        await stage.reopen()
        assert all([await stage.has(content) for content in favourites])

    play(stage, test)


@pytest.mark.full
def test_nobody_reads_anything_wrong_while_packs_are_rewritten(stage: Stage) -> None:
    async def test() -> None:
        contents = [some_bytes(3_000, seed) for seed in range(2_000)]
        is_over = asyncio.Event()

        async def write() -> None:
            for number, content in enumerate(contents):
                if number % 20 == 0:
                    stage.now += 1_000
                await stage.put(content, (ACME, OTHER)[number % 2])
            is_over.set()

        async def read(tenant: str) -> None:
            while not is_over.is_set():
                for content in contents[::97]:
                    await stage.has(content, tenant)
                await asyncio.sleep(0)

        async def tidy() -> None:
            while not is_over.is_set():
                await stage.content.tidy()
                await asyncio.sleep(0)

        await asyncio.gather(write(), read(ACME), read(OTHER), tidy())
        assert on_disk(stage) <= LIMIT + PACK
        assert (await stage.content.check()).damaged == 0

    play(stage, test)


def test_a_pack_that_is_gone_does_not_stop_the_others(stage: Stage) -> None:
    async def test() -> None:
        contents = [some_bytes(2_000, seed) for seed in range(800)]
        for content in contents:
            await stage.put(content)
        await stage.content.tidy()
        stage.now += 10_000
        stage.content.missing(ACME, [digest_of(content) for content in contents[::10]])
        root = ".rota/cas/acme/packs"
        await stage.blobs.drop([f"{root}/{each.name}" for each in (await stage.blobs.list(root))[:3]])
        stage.now += 10_000
        newer = [some_bytes(2_000, 10_000 + seed) for seed in range(600)]
        for content in newer:
            await stage.put(content)
        assert await stage.has(newer[-1])
        await stage.content.check()
        assert (await stage.content.check()).damaged == 0

    play(stage, test)


def test_the_order_of_use_outlives_a_restart(stage: Stage) -> None:
    async def test() -> None:
        contents = [some_bytes(150_000, seed) for seed in range(8)]
        for content in contents:
            await stage.put(content)
            stage.now += 1_000_000
        stage.content.missing(ACME, [digest_of(contents[0])])
        await stage.reopen()
        for seed in range(8):
            await stage.put(some_bytes(150_000, 100 + seed))
        there = [await stage.has(content) for content in contents]
        assert there[0]
        assert not there[1]

    play(stage, test)


def test_room_is_not_given_away_before_the_file_in_it_is_gone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        asked, may_go = asyncio.Event(), asyncio.Event()
        room, drop = stage.content._room, stage.blobs.drop

        async def drop_late(names: Sequence[str]) -> None:
            asked.set()
            await may_go.wait()
            await drop(names)

        monkeypatch.setattr(stage.blobs, "drop", drop_late)
        await stage.put(some_bytes(LIMIT // 2))
        stage.now += 10_000
        await room.hold(LIMIT // 2 - LIMIT // 100)
        await asked.wait()
        holding = asyncio.ensure_future(room.hold(LIMIT // 4))
        for _ in range(5):
            await asyncio.sleep(0)
        was_given = holding.done()
        may_go.set()
        await holding
        assert not was_given

    play(stage, test)


def test_room_taken_by_uploads_counts(stage: Stage) -> None:
    async def test() -> None:
        old = some_bytes(LIMIT // 2)
        await stage.put(old)
        stage.now += 10_000
        content = some_bytes(LIMIT // 4 * 3)
        upload = stage.content.upload(ACME, digest_of(content), "u")
        for offset in range(0, len(content), 64 * 1024):
            await upload.write(offset, content[offset : offset + 64 * 1024])
            assert on_disk(stage) <= LIMIT + PACK
        await upload.finish()
        assert not await stage.has(old)
        assert await stage.has(content)

    play(stage, test)


def test_what_went_may_come_back_at_once(stage: Stage) -> None:
    async def test() -> None:
        contents = [some_bytes(300_000, seed) for seed in range(12)]
        # All that is on its way in at once must fit.
        few = asyncio.Semaphore(3)

        async def insist(content: bytes) -> None:
            for _ in range(10):
                async with few:
                    await stage.put(content)
                stage.now += 1_000
                await asyncio.sleep(0)

        await asyncio.gather(*(insist(content) for content in contents))
        for content in contents:
            await stage.has(content)
        assert (await stage.content.check()).damaged == 0
        there = [content for content in contents if not stage.content.missing(ACME, [digest_of(content)])]
        assert there
        await stage.reopen()
        assert [await stage.has(content) for content in there] == [True] * len(there)

    play(stage, test)
