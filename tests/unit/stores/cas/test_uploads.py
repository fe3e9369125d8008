"""Uploads: piece by piece, resumed by name, and nothing until they are finished."""

import asyncio
from pathlib import Path

import pytest

from rota.core.errors import Unavailable
from rota.core.ids import Digest
from rota.ports import Blobs, ContentFull, Upload, WrongContent
from rota.stores.blobs import open_blobs
from rota.stores.cas import uploads
from tests.unit.stores.cas.stage import ACME, MB, OTHER, Stage, digest_of, play, some_bytes

pytestmark = pytest.mark.slow

SMALL, LARGE = 10_000, 3 * MB + 5


@pytest.fixture(params=["files", "no files"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    blobs: Blobs | None = open_blobs("memory:///") if request.param == "no files" else None
    return Stage(tmp_path, blobs)


async def send(upload: Upload, content: bytes, chunk: int = 64 * 1024, until: int | None = None) -> None:
    end = len(content) if until is None else until
    for offset in range(upload.committed, end, chunk):
        await upload.write(offset, content[offset : min(offset + chunk, end)])


@pytest.mark.parametrize("size", [1, SMALL, LARGE])
@pytest.mark.parametrize("chunk", [1_000, 64 * 1024, 2 * MB])
def test_pieces_become_content_when_they_are_finished(stage: Stage, size: int, chunk: int) -> None:
    async def test() -> None:
        content = some_bytes(size)
        digest = digest_of(content)
        upload = stage.content.upload(ACME, digest, "u")
        assert upload.committed == 0
        await send(upload, content, chunk)
        assert upload.committed == size
        assert stage.content.missing(ACME, [digest]) == [digest]
        await upload.finish()
        assert await stage.has(content)
        assert stage.litter() == []
        await stage.reopen()
        assert await stage.has(content)

    play(stage, test)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_broken_upload_is_gone_on_with_by_its_name(stage: Stage, size: int) -> None:
    async def test() -> None:
        content = some_bytes(size)
        digest = digest_of(content)
        half = size // 2
        await send(stage.content.upload(ACME, digest, "u"), content, until=half)
        assert stage.content.upload(ACME, digest, "other").committed == 0
        assert stage.content.upload(OTHER, digest, "u").committed == 0
        assert stage.content.upload(ACME, Digest("a" * 64, size), "u").committed == 0
        upload = stage.content.upload(ACME, digest, "u")
        assert upload.committed == half
        # Whoever begins anew sends what is here already.
        await upload.write(0, content[: half + 10])
        assert upload.committed == half + 10
        await send(upload, content)
        await upload.finish()
        assert await stage.has(content)

    play(stage, test)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_gaps_and_surplus_are_refused_and_leave_nothing(stage: Stage, size: int) -> None:
    async def test() -> None:
        content = some_bytes(size)
        digest = digest_of(content)
        for offset, piece in ((size // 2 + 1, b"x"), (-1, b"x"), (size // 2, content[: size // 2 + 2])):
            upload = stage.content.upload(ACME, digest, "u")
            await send(upload, content, until=size // 2)
            with pytest.raises(WrongContent):
                await upload.write(offset, piece)
            assert stage.content.upload(ACME, digest, "u").committed == 0
        assert stage.content.missing(ACME, [digest]) == [digest]
        assert stage.litter() == []

    play(stage, test)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_what_is_not_what_was_announced_leaves_nothing(stage: Stage, size: int) -> None:
    async def test() -> None:
        content = some_bytes(size)
        digest = digest_of(content)
        upload = stage.content.upload(ACME, digest, "u")
        await send(upload, content, until=size - 1)
        with pytest.raises(WrongContent, match="instead of"):
            await upload.finish()
        upload = stage.content.upload(ACME, digest, "u")
        await send(upload, content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(WrongContent, match="hash"):
            await upload.finish()
        assert stage.content.missing(ACME, [digest]) == [digest]
        assert stage.litter() == []
        upload = stage.content.upload(ACME, digest, "u")
        await send(upload, content)
        await upload.finish()
        assert await stage.has(content)

    play(stage, test)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_what_is_there_needs_not_be_sent(stage: Stage, size: int) -> None:
    async def test() -> None:
        content = some_bytes(size)
        digest = await stage.put(content)
        upload = stage.content.upload(ACME, digest, "u")
        assert upload.committed == size
        await upload.write(0, b"never looked at")
        await upload.finish()
        await upload.abort()
        assert await stage.has(content)

    play(stage, test)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_several_may_send_the_same_at_once(stage: Stage, size: int) -> None:
    async def test() -> None:
        content = some_bytes(size)
        digest = digest_of(content)

        async def whole(name: str) -> None:
            upload = stage.content.upload(ACME, digest, name)
            await send(upload, content)
            await upload.finish()

        await asyncio.gather(*(whole(f"{number}") for number in range(8)), *(stage.put(content) for _ in range(4)))
        assert await stage.has(content)
        assert stage.litter() == []
        await stage.reopen()
        assert await stage.has(content)

    play(stage, test)


def test_two_streams_of_one_upload_do_not_harm_it(stage: Stage) -> None:
    async def test() -> None:
        content = some_bytes(LARGE)
        digest = digest_of(content)

        async def stream() -> None:
            upload = stage.content.upload(ACME, digest, "u")
            for offset in range(0, LARGE, 50_000):
                await upload.write(offset, content[offset : offset + 50_000])

        await asyncio.gather(stream(), stream(), stream())
        await stage.content.upload(ACME, digest, "u").finish()
        assert await stage.has(content)

    play(stage, test)


def test_an_upload_that_is_aborted_leaves_nothing(stage: Stage) -> None:
    async def test() -> None:
        content = some_bytes(LARGE)
        upload = stage.content.upload(ACME, digest_of(content), "u")
        await send(upload, content)
        await upload.abort()
        with pytest.raises(Unavailable, match="begin it again"):
            await upload.write(LARGE, b"")
        with pytest.raises(Unavailable, match="begin it again"):
            await upload.finish()
        assert stage.litter() == []
        assert not await stage.has(content)

    play(stage, test)


def test_an_upload_that_is_left_alone_is_forgotten(stage: Stage) -> None:
    async def test() -> None:
        content, other = some_bytes(LARGE), some_bytes(LARGE, 2)
        await send(stage.content.upload(ACME, digest_of(content), "u"), content, until=2 * MB)
        stage.now += uploads.IDLE_MS
        await send(stage.content.upload(ACME, digest_of(other), "u"), other, until=2 * MB)
        stage.now += 1
        await stage.content.tidy()
        assert stage.content.upload(ACME, digest_of(other), "u").committed == 2 * MB
        while stage.content.upload(ACME, digest_of(content), "u").committed:
            await asyncio.sleep(0)

    play(stage, test)


def test_there_are_only_so_many_unfinished_uploads(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "UPLOADS_MAX", 3)

    async def test() -> None:
        contents = [some_bytes(SMALL, seed) for seed in range(4)]
        for content in contents:
            stage.now += 1
            await send(stage.content.upload(ACME, digest_of(content), "u"), content, until=10)
            await asyncio.sleep(0)
        assert [stage.content.upload(ACME, digest_of(content), "u").committed for content in contents[1:]] == [10] * 3

    play(stage, test)


def test_a_restart_forgets_unfinished_uploads(stage: Stage) -> None:
    async def test() -> None:
        content = some_bytes(LARGE)
        await send(stage.content.upload(ACME, digest_of(content), "u"), content, until=2 * MB)
        await stage.reopen()
        assert stage.content.upload(ACME, digest_of(content), "u").committed == 0
        assert stage.litter() == []

    play(stage, test)


def test_an_upload_for_which_there_is_no_room_leaves_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, bytes_max=2 * MB)

    async def test() -> None:
        content = some_bytes(LARGE)
        upload = stage.content.upload(ACME, digest_of(content), "u")
        with pytest.raises(ContentFull):
            await send(upload, content)
        assert stage.litter() == []
        assert stage.content.upload(ACME, digest_of(content), "u").committed == 0
        fits = some_bytes(2 * MB - 10_000)
        await stage.put(fits)
        assert await stage.has(fits)

    play(stage, test)


def test_whoever_sent_it_may_be_gone_before_it_is_finished(stage: Stage) -> None:
    async def test() -> None:
        content = some_bytes(LARGE)
        digest = digest_of(content)
        upload = stage.content.upload(ACME, digest, "u")
        await send(upload, content)
        finishing = asyncio.create_task(upload.finish())
        await asyncio.sleep(0)
        finishing.cancel()
        await asyncio.gather(finishing, return_exceptions=True)
        while stage.content.missing(ACME, [digest]):
            await asyncio.sleep(0)
        assert await stage.has(content)

    play(stage, test)
