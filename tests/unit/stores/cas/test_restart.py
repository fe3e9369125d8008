"""Restarts: with a journal, without one, with packs that were torn and files that went."""

import errno
import os
from pathlib import Path

import pytest

from rota.core.ids import Digest
from rota.ports import ContentLost
from rota.stores.blobs import open_blobs
from rota.stores.cas import journal, reading
from rota.stores.cas.journal import Arriving
from rota.stores.cas.stock import blob_name_of_large
from tests.unit.stores.cas.stage import ACME, OTHER, Stage, digest_of, play, some_bytes

pytestmark = pytest.mark.slow

CONTENTS = [some_bytes(size, seed) for size in (100, 3_000, 100_000) for seed in range(5)]


def stage_of(folder: Path, is_local: bool) -> Stage:
    return Stage(folder, None if is_local else open_blobs("memory:///"), pack_bytes_max=5_000)


async def fill(stage: Stage) -> None:
    for tenant in (ACME, OTHER, "é/" * 100):
        for content in CONTENTS:
            await stage.put(content, tenant)
    await stage.content.tidy()


async def has_all(stage: Stage) -> bool:
    return all([await stage.has(content, tenant) for tenant in (ACME, OTHER, "é/" * 100) for content in CONTENTS])


@pytest.mark.parametrize("is_local", [True, False])
def test_without_its_journal_everything_is_found_again(tmp_path: Path, is_local: bool) -> None:
    stage = stage_of(tmp_path, is_local)

    async def test() -> None:
        await fill(stage)
        await stage.content.close()
        stage.lose_journal()
        await stage.open()
        assert await has_all(stage)
        await stage.reopen()
        assert await has_all(stage)
        extra = some_bytes(200, 77)
        await stage.put(extra)
        assert await stage.has(extra)

    play(stage, test)


@pytest.mark.parametrize("damage", [b"", b"not a database", bytes(100_000)])
def test_a_journal_that_cannot_be_read_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    stage = stage_of(tmp_path, True)

    async def test() -> None:
        await fill(stage)
        await stage.content.close()
        (tmp_path / journal.JOURNAL_NAME).write_bytes(damage)
        await stage.open()
        assert await has_all(stage)

    play(stage, test)


def test_a_journal_of_another_version_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(tmp_path, True)

    async def test() -> None:
        await fill(stage)
        await stage.content.close()
        monkeypatch.setattr(journal, "VERSION", 2)
        await stage.open()
        assert await has_all(stage)

    play(stage, test)


@pytest.mark.parametrize("cut", [1, 40, 60, 2_999, 3_040])
@pytest.mark.parametrize("has_journal", [True, False])
def test_a_pack_that_lost_its_end_is_gone_on_with(tmp_path: Path, cut: int, has_journal: bool) -> None:
    stage = Stage(tmp_path)

    async def test() -> None:
        small = [content for content in CONTENTS if len(content) < 64 * 1024]
        for content in small:
            await stage.put(content)
        await stage.content.close()
        pack = stage.packs()[0]
        os.truncate(pack, pack.stat().st_size - cut)
        if not has_journal:
            stage.lose_journal()
        await stage.open()
        assert [await stage.has(content) for content in small] == [*[True] * (len(small) - 1), False]
        await stage.put(small[-1])
        await stage.content.close()
        stage.lose_journal()
        await stage.open()
        assert all([await stage.has(content) for content in small])

    play(stage, test)


def test_rubbish_after_the_end_of_a_pack_is_not_taken_for_content(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def test() -> None:
        await stage.put(CONTENTS[0])
        await stage.content.close()
        pack = stage.packs()[0]
        pack.write_bytes(pack.read_bytes() + pack.read_bytes()[20:90])
        await stage.open()
        await stage.put(CONTENTS[1])
        await stage.content.close()
        stage.lose_journal()
        await stage.open()
        assert [await stage.has(content) for content in CONTENTS[:3]] == [True, True, False]

    play(stage, test)


def test_a_pack_that_was_never_begun_well_is_removed(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def test() -> None:
        await stage.put(CONTENTS[0])
        await stage.content.close()
        (stage.packs()[0].parent / "0000000002").write_bytes(b"ROTA")
        (stage.packs()[0].parent / "notes.txt").write_bytes(b"of somebody else")
        await stage.open()
        assert await stage.has(CONTENTS[0])
        await stage.put(CONTENTS[1])
        assert await stage.has(CONTENTS[1])
        await stage.reopen()
        assert await stage.has(CONTENTS[1])

    play(stage, test)


@pytest.mark.parametrize("is_local", [True, False])
def test_packs_that_are_gone_are_missing_and_nothing_else(tmp_path: Path, is_local: bool) -> None:
    stage = stage_of(tmp_path, is_local)

    async def test() -> None:
        await fill(stage)
        await stage.content.close()
        root = ".rota/cas/acme/packs"
        await stage.blobs.drop([f"{root}/{each.name}" for each in await stage.blobs.list(root)])
        await stage.open()
        missing = stage.content.missing(ACME, [digest_of(content) for content in CONTENTS])
        assert missing
        assert all(digest.size < 64 * 1024 for digest in missing)
        assert stage.content.missing(OTHER, [digest_of(content) for content in CONTENTS]) == []
        for content in CONTENTS:
            await stage.put(content)
        assert await has_all(stage)

    play(stage, test)


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("has_file", [True, False])
def test_a_large_content_that_was_just_arriving_is_there_if_its_file_is(
    tmp_path: Path, is_local: bool, has_file: bool
) -> None:
    stage = stage_of(tmp_path, is_local)

    async def test() -> None:
        await stage.put(CONTENTS[0])
        content = CONTENTS[-1]
        key = bytes.fromhex(digest_of(content).hash)
        name = blob_name_of_large(ACME, key)
        stage.content._stock.journal.arriving(Arriving(name, 0, key, len(content)))
        if has_file:
            await stage.blobs.put(name, content)
        await stage.reopen()
        assert await stage.has(content) is has_file
        await stage.reopen()
        assert await stage.has(content) is has_file

    play(stage, test)


def test_a_file_that_was_just_leaving_is_removed(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def test() -> None:
        content = CONTENTS[-1]
        name = blob_name_of_large(ACME, bytes.fromhex(digest_of(content).hash))
        await stage.put(content)
        stage.content._stock.remove(stage.content._stock.index.shelves[0].slots[bytes.fromhex(digest_of(content).hash)])
        await stage.content.close()
        assert (tmp_path / "blobs" / name).exists()
        await stage.open()
        assert not (tmp_path / "blobs" / name).exists()
        await stage.put(content)
        await stage.reopen()
        assert await stage.has(content)

    play(stage, test)


@pytest.mark.parametrize("is_local", [True, False])
def test_a_large_content_that_was_changed_meanwhile_is_never_given_out(tmp_path: Path, is_local: bool) -> None:
    stage = stage_of(tmp_path, is_local)

    async def test() -> None:
        content = CONTENTS[-1]
        digest = await stage.put(content)
        await stage.content.close()
        name = blob_name_of_large(ACME, bytes.fromhex(digest.hash))
        await stage.blobs.put(name, bytes([content[0] ^ 1]) + content[1:])
        await stage.open()
        with pytest.raises(ContentLost, match="damaged"):
            _ = [piece async for piece in stage.content.read(ACME, digest)]
        assert stage.content.missing(ACME, [digest]) == [digest]
        await stage.put(content)
        assert await stage.has(content)

    play(stage, test)


@pytest.mark.parametrize("is_local", [True, False])
def test_a_small_content_that_was_changed_is_never_given_out(tmp_path: Path, is_local: bool) -> None:
    stage = Stage(tmp_path, None if is_local else open_blobs("memory:///"), pack_bytes_max=1, recent_bytes_max=0)

    async def test() -> None:
        digest = await stage.put(CONTENTS[0])
        await stage.put(CONTENTS[1])
        await stage.content.tidy()
        await stage.content.close()
        name = ".rota/cas/acme/packs/0000000001"
        raw = bytearray(await stage.blobs.read(name, 0, 10_000))
        raw[raw.index(CONTENTS[0]) + 50] ^= 1
        await stage.blobs.put(name, bytes(raw))
        await stage.open()
        with pytest.raises(ContentLost, match="damaged"):
            await stage.content.get(ACME, digest)
        assert stage.content.missing(ACME, [digest]) == [digest]
        assert await stage.has(CONTENTS[1])

    play(stage, test)


@pytest.mark.parametrize("number", [0, -1])
def test_what_the_disk_cannot_read_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    stage = Stage(tmp_path, recent_bytes_max=0)

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "a bad sector")

    async def test() -> None:
        digest = await stage.put(CONTENTS[number])
        with monkeypatch.context() as patched:
            patched.setattr(reading, "read_cached", lambda *_: None)
            patched.setattr(reading.os, "pread", broken)
            with pytest.raises(ContentLost):
                await stage.content.get(ACME, digest)
        assert stage.content.missing(ACME, [digest]) == [digest]

    play(stage, test)


def test_a_folder_whose_blobs_are_lost_has_nothing(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, False)

    async def test() -> None:
        digest = await stage.put(CONTENTS[-1])
        await stage.content.close()
        stage.blobs = open_blobs("memory:///")
        await stage.open()
        with pytest.raises(ContentLost):
            await stage.content.get(ACME, digest)
        assert stage.content.missing(ACME, [digest, Digest("a" * 64, 3)]) == [digest, Digest("a" * 64, 3)]

    play(stage, test)


def test_what_is_used_after_a_clock_was_set_back_is_still_the_last_to_go(tmp_path: Path) -> None:
    stage = Stage(tmp_path, bytes_max=400_000, pack_bytes_max=5_000)
    old, new = [some_bytes(100_000, seed) for seed in (1, 2)], some_bytes(100_000, 3)

    async def test() -> None:
        for content in old:
            await stage.put(content)
            stage.now += 10_000
        stage.now -= 3_600_000
        await stage.reopen()
        await stage.put(new)
        stage.now += 2_000
        for seed in (4, 5):
            await stage.put(some_bytes(100_000, seed))
            await stage.content.tidy()
        assert await stage.has(new)
        assert not await stage.has(old[0])

    play(stage, test)
