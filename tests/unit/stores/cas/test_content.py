"""Content by its digest: what is kept, what is refused, and whose it is."""

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.core.errors import Refused, Unavailable
from rota.core.ids import Digest
from rota.ports import Blobs, ContentLost, WrongContent
from rota.stores.blobs import open_blobs
from rota.stores.cas.stock import ROOT
from tests.refusals import refused
from tests.unit.stores.cas.stage import ACME, MB, OTHER, Stage, digest_of, play, some_bytes

SIZES = [1, 200, 64 * 1024, 64 * 1024 + 1, 3 * MB + 7]
EMPTY = digest_of(b"")


@pytest.fixture(params=["files", "no files"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    blobs: Blobs | None = open_blobs("memory:///") if request.param == "no files" else None
    return Stage(tmp_path, blobs)


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """As good as a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", SIZES)
def test_content_comes_back_as_it_was_put(stage: Stage, size: int) -> None:
    async def test() -> None:
        content = some_bytes(size)
        digest = digest_of(content)
        assert stage.content.missing(ACME, [digest]) == [digest]
        with pytest.raises(ContentLost, match=digest.hash):
            await stage.content.get(ACME, digest)
        for _ in range(2):
            await stage.put(content)
        assert await stage.has(content)
        assert await stage.content.get(ACME, digest) == content
        await stage.reopen()
        assert await stage.has(content)
        assert await stage.content.get(ACME, digest) == content
        assert stage.litter() == []

    play(stage, test)


def test_the_empty_content_is_always_there(stage: Stage) -> None:
    async def test() -> None:
        assert stage.content.missing(ACME, [EMPTY]) == []
        assert await stage.content.get(ACME, EMPTY) == b""
        assert [piece async for piece in stage.content.read(ACME, EMPTY)] == []
        await stage.content.put(ACME, EMPTY, b"")
        upload = stage.content.upload(ACME, EMPTY, "u")
        assert upload.committed == 0
        await upload.finish()
        nothing = Digest(digest_of(b"x").hash, 0)
        assert stage.content.missing(ACME, [nothing]) == [nothing]
        with pytest.raises(WrongContent):
            await stage.content.put(ACME, nothing, b"")

    play(stage, test)


@pytest.mark.parametrize("size", [5_000, 3 * MB])
def test_a_part_can_be_read(stage: Stage, size: int) -> None:
    async def test() -> None:
        content = some_bytes(size)
        digest = await stage.put(content)
        for offset, limit in ((0, 0), (1, 0), (10, 100), (size - 1, 0), (size, 0), (0, 2 * size), (size // 2, 1)):
            pieces = [piece async for piece in stage.content.read(ACME, digest, offset, limit)]
            assert b"".join(pieces) == content[offset:][: limit or size]
            assert all(0 < len(piece) <= MB for piece in pieces)
        for offset, limit in ((-1, 0), (size + 1, 0), (0, -1)):
            with pytest.raises(ValueError, match="cannot be read"):
                _ = [piece async for piece in stage.content.read(ACME, digest, offset, limit)]

    play(stage, test)


def test_many_digests_are_asked_for_at_once(stage: Stage) -> None:
    async def test() -> None:
        contents = [some_bytes(100, seed) for seed in range(300)]
        digests = [digest_of(content) for content in contents]
        await asyncio.gather(*(stage.put(content) for content in contents[::2]))
        assert stage.content.missing(ACME, digests) == digests[1::2]
        assert stage.content.missing(ACME, iter(digests)) == digests[1::2]

    play(stage, test)


def test_a_digest_with_another_size_is_missing(stage: Stage) -> None:
    async def test() -> None:
        for content in (b"hello", some_bytes(MB)):
            digest = await stage.put(content)
            other = Digest(digest.hash, digest.size + 1)
            assert stage.content.missing(ACME, [other]) == [other]
            with pytest.raises(ContentLost):
                await stage.content.get(ACME, other)

    play(stage, test)


@pytest.mark.parametrize(
    ("hash", "size"),
    [
        ("", 5),
        ("abc", 5),
        ("g" * 64, 5),
        ("../" * 21 + "a", 5),
        (" " + "a" * 63, 5),
        ("a" * 62 + " a", 5),
        ("a" * 128, 5),
        ("a" * 64, -1),
    ],
)
def test_what_is_no_digest_is_refused(stage: Stage, hash: str, size: int) -> None:  # noqa: A002 - the digest's name for it
    async def test() -> None:
        digest = Digest(hash, size)
        with pytest.raises(WrongContent):
            stage.content.missing(ACME, [digest])
        with pytest.raises(WrongContent):
            await stage.content.put(ACME, digest, b"hello")
        with pytest.raises(WrongContent):
            stage.content.upload(ACME, digest, "u")
        with pytest.raises(WrongContent):
            await stage.content.get(ACME, digest)

    play(stage, test)


@pytest.mark.parametrize("size", [100, 2 * MB])
def test_content_that_is_not_what_its_digest_says_leaves_nothing(stage: Stage, size: int) -> None:
    async def test() -> None:
        content = some_bytes(size)
        right = digest_of(content)
        for wrong in (Digest(digest_of(b"x").hash, size), Digest(right.hash, size - 1), Digest(right.hash, size + 1)):
            with pytest.raises(WrongContent):
                await stage.content.put(ACME, wrong, content)
            assert stage.content.missing(ACME, [wrong, right]) == [wrong, right]
        assert stage.packs() == stage.files() == stage.litter() == []

    play(stage, test)


def test_content_over_the_limit_for_one_is_refused_before_a_byte_is_sent(tmp_path: Path) -> None:
    stage = Stage(tmp_path, blob_bytes_max=1_000)

    async def test() -> None:
        assert await stage.put(bytes(1_000))
        with pytest.raises(WrongContent, match=r"1,001 .*1,000\b"):
            await stage.put(bytes(1_001))
        with pytest.raises(WrongContent, match=r"5,000 .*1,000\b"):
            stage.content.upload(ACME, Digest("a" * 64, 5_000), "u")

    play(stage, test)


def test_only_what_is_small_enough_is_given_whole(stage: Stage) -> None:
    async def test() -> None:
        digest = await stage.put(bytes(8 * MB + 1))
        with pytest.raises(Refused, match=r"field\.size"):
            await stage.content.get(ACME, digest)

    play(stage, test)


TENANTS = [
    ACME,
    "home",
    "",
    ".",
    "..",
    "../acme",
    "a/b",
    "a\\b",
    "ACME",
    "%",
    "%41",
    "é",
    "acme\0",
    "n" * 250,
    "é" * 250,
]


def test_no_tenant_sees_what_another_has(stage: Stage) -> None:
    async def test() -> None:
        for size in (100, 100_000):
            for number, tenant in enumerate(TENANTS):
                content = some_bytes(size, number)
                await stage.put(content, tenant)
                digest = digest_of(content)
                for other in TENANTS:
                    if other != tenant:
                        assert stage.content.missing(other, [digest]) == [digest]
                        with pytest.raises(ContentLost):
                            await stage.content.get(other, digest)
        await stage.reopen()
        for size in (100, 100_000):
            for number, tenant in enumerate(TENANTS):
                assert [await stage.has(some_bytes(size, number), each) for each in TENANTS].count(True) == 1
                assert await stage.has(some_bytes(size, number), tenant)

    play(stage, test)


def test_tenants_share_no_file(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def test() -> None:
        for content in (some_bytes(100), some_bytes(100_000)):
            for tenant in (ACME, OTHER):
                await stage.put(content, tenant)
        assert len(stage.files()) == len(stage.packs()) == 2
        assert all(path.is_relative_to(tmp_path) for path in tmp_path.rglob("*"))

    play(stage, test)


def test_nothing_leads_out_of_the_folder(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "in")

    async def test() -> None:
        for tenant in TENANTS:
            await stage.put(b"hello", tenant)
            await stage.put(bytes(100_000), tenant)

    play(stage, test)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    homes = sorted(path.name for path in (tmp_path / "in" / "blobs" / ROOT).iterdir())
    assert len(homes) == len(TENANTS)


@pytest.mark.parametrize("size", [100, 40_000, 2 * MB])
def test_a_full_disk_is_said_and_nothing_half_is_kept(tmp_path: Path, size: int) -> None:
    stage = Stage(tmp_path)

    async def test() -> None:
        kept = some_bytes(50)
        await stage.put(kept)
        content = some_bytes(size)
        with files_no_larger_than(120), pytest.raises(Unavailable, match=r"store\.full"):
            await stage.put(content)
        assert not await stage.has(content)
        assert stage.files() == stage.litter() == []
        await stage.put(content)
        assert await stage.has(content)
        await stage.reopen()
        assert await stage.has(content)
        assert await stage.has(kept)

    play(stage, test)


def test_one_process_has_the_folder(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def test() -> None:
        with refused("store.held", str(tmp_path), f" {os.getpid()} "):
            await Stage(tmp_path).open()
        await stage.content.close()
        await stage.content.close()
        await stage.open()

    play(stage, test)


def test_one_folder_has_the_blobs(tmp_path: Path) -> None:
    first = Stage(tmp_path / "first", open_blobs(tmp_path / "shared"))

    async def test() -> None:
        await first.put(b"hello")
        with pytest.raises(Refused, match=r"blobs\.elsewhere: .* take over"):
            await Stage(tmp_path / "second", first.blobs).open()

    play(first, test)


def test_a_check_finds_what_is_damaged_and_drops_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def test() -> None:
        contents = [some_bytes(size, seed) for size in (100, 100_000) for seed in range(4)]
        for content in contents:
            await stage.put(content)
        assert (await stage.content.check()).damaged == 0
        pack = stage.packs()[0]
        raw = bytearray(pack.read_bytes())
        at = raw.index(contents[1])
        raw[at] ^= 1
        pack.write_bytes(raw)
        for path in stage.files()[:2]:
            path.write_bytes(path.read_bytes()[:-1])
        stage.files()[2].unlink()
        checked = await stage.content.check()
        assert (checked.checked, checked.damaged) == (8, 4)
        assert checked.checked_bytes == 4 * 100_100
        there = [await stage.has(content) for content in contents]
        assert there[:4] == [True, False, True, True]
        assert there[4:].count(True) == 1
        assert (await stage.content.check()).damaged == 0
        assert len(stage.files()) == 1

    play(stage, test)
