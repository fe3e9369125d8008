"""What every adapter of the Blobs port does, on a local folder and in memory."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rota.ports import BlobLost, BlobRef, Blobs, Listed
from rota.stores.blobs import ObjectBlobs, open_blobs
from tests.refusals import refused

pytestmark = pytest.mark.slow

LATER = 1 << 43


@pytest.fixture(params=["folder", "file://", "memory:///"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    place = tmp_path / "blobs"
    return open_blobs({"folder": place, "file://": f"file://{place}"}.get(request.param, request.param))


def play(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())


@pytest.mark.parametrize("size", [0, 1, 5_000, 20_000_000])
@pytest.mark.parametrize("is_file", [False, True])
def test_content_comes_back_as_it_was_put(blobs: Blobs, tmp_path: Path, size: int, is_file: bool) -> None:
    async def test() -> None:
        content = bytes(range(256)) * (size // 256) + bytes(size % 256)
        source, target = tmp_path / "source", tmp_path / "target"
        source.write_bytes(content)
        ref = await blobs.put("acme/run/x", source if is_file else content)
        assert ref == BlobRef("acme/run/x", size, sha256(content).hexdigest())
        assert await blobs.get(ref) == content
        await blobs.fetch(ref, target)
        assert target.read_bytes() == content

    play(test)


def test_a_name_is_replaced_and_the_old_reference_is_lost(blobs: Blobs) -> None:
    async def test() -> None:
        old = await blobs.put("acme/x", b"old content")
        new = await blobs.put("acme/x", b"new")
        assert await blobs.get(new) == b"new"
        with pytest.raises(BlobLost):
            await blobs.get(old)

    play(test)


def test_what_is_gone_or_was_changed_is_lost(blobs: Blobs, tmp_path: Path) -> None:
    async def test() -> None:
        ref = await blobs.put("acme/x", b"12345")
        for wrong in (
            BlobRef("acme/y", ref.size, ref.sha256),
            BlobRef("acme/x", 4, ref.sha256),
            BlobRef("acme/x", ref.size, sha256(b"54321").hexdigest()),
        ):
            with pytest.raises(BlobLost, match=wrong.name):
                await blobs.get(wrong)
            with pytest.raises(BlobLost, match=wrong.name):
                await blobs.fetch(wrong, tmp_path / "target")
        assert not (tmp_path / "target").exists()
        assert not list(tmp_path.glob("*.part"))

    play(test)


@pytest.mark.parametrize("name", ["", "/x", "x/", "a//b", "..", "../x", "a/../b", "a/./b", "a\0b", "a#1", "a" * 300])
def test_a_name_that_leads_elsewhere_is_refused(blobs: Blobs, tmp_path: Path, name: str) -> None:
    async def test() -> None:
        with pytest.raises(ValueError, match="name"):
            await blobs.put(name, b"x")
        with pytest.raises(ValueError, match="name"):
            await blobs.get(BlobRef(name, 1, ""))
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

    play(test)


def test_collecting_removes_what_is_old_and_unwanted_under_a_prefix(blobs: Blobs) -> None:
    async def test() -> None:
        names = [f"acme/run/{number}" for number in range(120)]
        refs = [await blobs.put(name, b"x") for name in (*names, "acme/runner", "other/run/1")]
        assert await blobs.collect("acme/run", lambda name: True, LATER) == 0
        assert await blobs.collect("acme/run", lambda name: False, 1_000) == 0
        assert await blobs.collect("acme/run", lambda name: name == "acme/run/7", LATER) == 119
        for ref in (refs[7], *refs[-2:]):
            assert await blobs.get(ref) == b"x"
        with pytest.raises(BlobLost):
            await blobs.get(refs[0])

    play(test)


def test_a_put_that_fails_leaves_nothing(blobs: Blobs, tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(OSError, match="gone"):
            await blobs.put("acme/x", tmp_path / "gone")
        assert await blobs.collect("acme", lambda name: False, LATER) == 0

    play(test)


def test_a_part_is_read_by_its_name(blobs: Blobs) -> None:
    async def test() -> None:
        content = bytes(range(256)) * 10
        await blobs.put("acme/x", content, is_durable=False)
        assert await blobs.read("acme/x", 0, 100) == content[:100]
        assert await blobs.read("acme/x", 2_500, 1_000) == content[2_500:]
        for past in (2_560, 9_999):
            assert await blobs.read("acme/x", past, 10) == b""
        with pytest.raises(BlobLost, match="acme/y"):
            await blobs.read("acme/y", 0, 10)
        for offset, size in ((-1, 10), (0, 0), (0, 8 * 1024 * 1024 + 1)):
            with pytest.raises(ValueError, match="at once"):
                await blobs.read("acme/x", offset, size)

    play(test)


def test_what_is_directly_under_a_prefix_is_listed_in_order(blobs: Blobs) -> None:
    async def test() -> None:
        for name in ("acme/r/log/000001", "acme/r/log/000000", "acme/r/log/000002-end", "acme/r/result", "acme/runner"):
            await blobs.put(name, b"12345")
        assert await blobs.list("acme/r") == [Listed("log", 0, is_folder=True), Listed("result", 5)]
        assert [each.name for each in await blobs.list("acme/r/log")] == ["000000", "000001", "000002-end"]
        assert await blobs.list("acme/nothing") == []

    play(test)


def test_a_fetch_that_was_given_up_leaves_no_file(
    blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = ObjectBlobs._pieces

    def one_by_one(self: ObjectBlobs, ref: BlobRef, given_up: threading.Event) -> Iterator[bytes]:
        """The next piece comes when the fetch was given up, so that it is never done before."""
        for piece in pieces(self, ref, given_up):
            yield piece
            assert given_up.wait(60), "nobody gave it up"

    monkeypatch.setattr(ObjectBlobs, "_pieces", one_by_one)

    async def test() -> None:
        ref = await blobs.put("acme/x", bytes(50_000_000))
        fetching = asyncio.create_task(blobs.fetch(ref, tmp_path / "target"))
        while not (tmp_path / "target.part").exists():
            await asyncio.sleep(0)
        fetching.cancel()
        await asyncio.gather(fetching, return_exceptions=True)
        # Whoever waits is not kept waiting; the thread follows.
        await asyncio.get_running_loop().shutdown_default_executor()
        assert not list(tmp_path.glob("target*"))

    play(test)


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_file_that_is_adopted_is_gone_and_replaces_what_was_there(
    blobs: Blobs, tmp_path: Path, is_durable: bool
) -> None:
    async def test() -> None:
        old = await blobs.put("acme/deep/x", b"old content")
        source = tmp_path / "source"
        source.write_bytes(b"12345")
        await blobs.adopt("acme/deep/x", source, is_durable=is_durable)
        assert not source.exists()
        assert await blobs.get(BlobRef("acme/deep/x", 5, sha256(b"12345").hexdigest())) == b"12345"
        with pytest.raises(BlobLost):
            await blobs.get(old)
        with pytest.raises(OSError, match="source"):
            await blobs.adopt("acme/deep/y", source)
        with pytest.raises(ValueError, match="name"):
            await blobs.adopt("../y", tmp_path)
        assert [each.name for each in await blobs.list("acme/deep")] == ["x"]

    play(test)


def test_a_file_on_another_disk_is_adopted_too(tmp_path: Path) -> None:
    async def test() -> None:
        with TemporaryDirectory(dir="/dev/shm") as elsewhere:
            source = Path(elsewhere) / "source"
            source.write_bytes(b"12345")
            if source.stat().st_dev == tmp_path.stat().st_dev:
                pytest.skip("everything is on one disk here")
            blobs = open_blobs(tmp_path)
            await blobs.adopt("acme/x", source)
            assert not source.exists()
            assert await blobs.read("acme/x", 0, 10) == b"12345"

    play(test)


def test_where_blobs_are_files_they_can_be_read_as_such(blobs: Blobs) -> None:
    async def test() -> None:
        await blobs.put("acme/x", b"12345")
        path = blobs.local("acme/x")
        assert path is None or path.read_bytes() == b"12345"
        with pytest.raises(ValueError, match="name"):
            blobs.local("../x")

    play(test)


def test_what_is_dropped_is_gone_and_may_have_been_before(blobs: Blobs) -> None:
    async def test() -> None:
        for name in ("acme/x", "acme/y", "acme/z"):
            await blobs.put(name, b"12345")
        await blobs.drop(["acme/x", "acme/nothing", "acme/z"])
        await blobs.drop([])
        assert [each.name for each in await blobs.list("acme")] == ["y"]
        with pytest.raises(ValueError, match="name"):
            await blobs.drop(["acme/y", "../x"])
        assert [each.name for each in await blobs.list("acme")] == ["y"]

    play(test)


def test_what_the_store_has_against_something_is_told_in_one_line(tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "acme").touch()
        with pytest.raises(OSError, match="Generic LocalFileSystem error") as trouble:
            await open_blobs(tmp_path).put("acme/x", b"under a file")
        assert "\n" not in str(trouble.value)

    play(test)


@pytest.mark.parametrize("url", ["ftp://me:hunter2@host/x", "s3://"])
def test_a_place_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with refused("config.value", url.replace("me:hunter2@", ""), path="server.blobs") as caught:
        open_blobs(url)
    assert "hunter2" not in str(caught.value)
