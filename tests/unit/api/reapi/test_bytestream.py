"""Content piece by piece over a real channel: reading, writing, coming back, and doing it wrong."""

import asyncio

import grpc
import pytest

from rota.core.ids import Digest
from rota.wire.reapi import bytestream_pb2 as bs
from rota.wire.reapi import limits
from rota.wire.reapi.digests import EMPTY, digest_of
from rota.wire.reapi.methods import QUERY_WRITE_STATUS, READ, WRITE
from rota.wire.reapi.names import upload_name
from tests.unit.api.reapi.stage import DEADLINE_S, Stage, Told, play, staged

INVALID = grpc.StatusCode.INVALID_ARGUMENT
LARGE = bytes(range(256)) * 12_000


def piece(name: str, offset: int, content: bytes, *, last: bool = False) -> bs.WriteRequest:
    return bs.WriteRequest(resource_name=name, write_offset=offset, data=content, finish_write=last)


async def query(stage: Stage, name: str) -> tuple[int, bool]:
    request = bs.QueryWriteStatusRequest(resource_name=name)
    answer = await stage.ask(QUERY_WRITE_STATUS, request, bs.QueryWriteStatusResponse)
    return answer.committed_size, answer.complete


async def write(stage: Stage, *pieces: bs.WriteRequest) -> int:
    return (await stage.send(WRITE, pieces, bs.WriteResponse)).committed_size


async def refusal(stage: Stage, *pieces: bs.WriteRequest) -> grpc.StatusCode:
    with pytest.raises(Told) as told:
        await write(stage, *pieces)
    assert stage.shelf.kept == {}, "nothing is stored"
    return told.value.code


@pytest.mark.parametrize("step", [1 << 14, 1 << 16, 2 << 20])
@pytest.mark.parametrize("instance", ["", "main", "a/b/c"])
def test_what_was_written_is_read_again_and_is_never_held_as_a_whole(step: int, instance: str):
    async def scene() -> None:
        async with staged() as stage:
            digest = digest_of(LARGE)
            assert await stage.write(LARGE, step=step, instance=instance) == len(LARGE)
            assert await stage.read(digest, instance=instance) == LARGE
            assert stage.shelf.largest <= step
            assert stage.shelf.uploads == {}
            pieces = await stage.listen(READ, bs.ReadRequest(resource_name=f"blobs/{digest.hash}/{digest.size}"))
            assert all(one == bs.ReadResponse.FromString(one).SerializeToString() for one in pieces)

    play(scene)


@pytest.mark.parametrize(
    ("offset", "limit"), [(0, 1), (5, 0), (1 << 20, 17), (len(LARGE), 0), (len(LARGE) - 1, 100), (0, 1 << 40)]
)
def test_a_part_is_read_from_an_offset_up_to_a_limit(offset: int, limit: int):
    async def scene() -> None:
        async with staged() as stage:
            digest = stage.shelf.hold(LARGE)
            expected = LARGE[offset : offset + limit] if limit else LARGE[offset:]
            assert await stage.read(digest, offset, limit) == expected

    play(scene)


@pytest.mark.parametrize(
    ("offset", "limit", "code"),
    [
        (-1, 0, grpc.StatusCode.OUT_OF_RANGE),
        (5, 0, grpc.StatusCode.OUT_OF_RANGE),
        (0, -1, INVALID),
    ],
)
def test_what_is_beyond_the_content_is_not_read(offset: int, limit: int, code: grpc.StatusCode):
    async def scene() -> None:
        async with staged() as stage:
            with pytest.raises(Told) as told:
                await stage.read(stage.shelf.hold(b"four"), offset, limit)
            assert told.value.code is code

    play(scene)


def test_what_is_not_there_is_not_found():
    async def scene() -> None:
        async with staged() as stage:
            with pytest.raises(Told) as told:
                await stage.read(digest_of(b"gone"))
            assert told.value.code is grpc.StatusCode.NOT_FOUND
            other = Digest(stage.shelf.hold(b"four").hash, 5)
            with pytest.raises(Told) as told:
                await stage.read(other)
            assert told.value.code is grpc.StatusCode.NOT_FOUND, "another size is another content"

    play(scene)


def test_the_empty_content_is_always_there():
    async def scene() -> None:
        async with staged() as stage:
            assert await stage.read(EMPTY) == b""
            assert await stage.write(b"") == 0
            assert await query(stage, upload_name("", "u", EMPTY)) == (0, True)

    play(scene)


def test_what_is_there_need_not_be_sent_again():
    async def scene() -> None:
        async with staged() as stage:
            digest = stage.shelf.hold(LARGE)
            name = upload_name("", "u", digest)
            assert await write(stage, piece(name, 0, LARGE[:10])) == len(LARGE), "after the first piece of many"
            assert await query(stage, name) == (len(LARGE), True)

    play(scene)


def test_a_broken_upload_is_resumed_where_it_stopped():
    async def scene() -> None:
        async with staged() as stage:
            digest = digest_of(LARGE)
            name = upload_name("i", "u", digest)
            assert await query(stage, name) == (0, False)
            stopped = await write(stage, piece(name, 0, LARGE[:1000]), piece("", 1000, LARGE[1000:3000]))
            assert stopped == 3000
            assert await query(stage, name) == (3000, False)
            with pytest.raises(Told) as told:
                await stage.read(digest)
            assert told.value.code is grpc.StatusCode.NOT_FOUND, "nobody sees a part of it"
            assert await write(stage, piece(name, 3000, LARGE[3000:], last=True)) == len(LARGE)
            assert await query(stage, name) == (len(LARGE), True)
            assert await stage.read(digest) == LARGE

    play(scene)


def test_an_upload_may_begin_again_from_the_start():
    async def scene() -> None:
        async with staged() as stage:
            name = upload_name("", "u", digest_of(LARGE))
            await write(stage, piece(name, 0, LARGE[:5000]))
            assert await write(stage, piece(name, 0, LARGE[:100]), piece(name, 100, LARGE[100:], last=True)) == len(
                LARGE
            )

    play(scene)


def test_another_name_is_another_upload():
    async def scene() -> None:
        async with staged() as stage:
            digest = digest_of(LARGE)
            await write(stage, piece(upload_name("", "one", digest), 0, LARGE[:5000]))
            assert await query(stage, upload_name("", "two", digest)) == (0, False)

    play(scene)


def test_pieces_that_do_not_follow_each_other_are_refused():
    async def scene() -> None:
        async with staged() as stage:
            name = upload_name("", "u", digest_of(LARGE))
            assert await refusal(stage, piece(name, 7, LARGE[7:], last=True)) is INVALID
            assert await refusal(stage, piece(name, -1, LARGE)) is INVALID
            assert await refusal(stage, piece(name, 0, b"ab"), piece("", 3, b"de", last=True)) is INVALID
            assert await refusal(stage, piece(name, 0, b"ab"), piece("", 0, b"ab", last=True)) is INVALID
            another = upload_name("", "v", digest_of(LARGE))
            assert await refusal(stage, piece(name, 0, b"ab"), piece(another, 2, b"c", last=True)) is INVALID

    play(scene)


def test_content_that_is_not_what_it_says_is_not_kept():
    async def scene() -> None:
        async with staged() as stage:
            right = digest_of(b"right")
            name = upload_name("", "u", right)
            assert await refusal(stage, piece(name, 0, b"wrong", last=True)) is INVALID
            assert await refusal(stage, piece(name, 0, b"rig", last=True)) is INVALID, "cut off"
            assert await refusal(stage, piece(name, 0, b"right and more", last=True)) is INVALID
            assert await refusal(stage, piece(name, 0, b"right"), piece("", 5, b"!", last=True)) is INVALID
            assert await query(stage, name) == (0, False), "and nothing waits to be resumed"
            assert await write(stage, piece(name, 0, b"right", last=True)) == 5, "it can be sent after all"

    play(scene)


def test_a_stream_without_a_word_is_refused():
    async def scene() -> None:
        async with staged() as stage:
            assert await refusal(stage) is INVALID
            assert await refusal(stage, bs.WriteRequest(data=b"x")) is INVALID

    play(scene)


def test_a_full_store_says_so():
    async def scene() -> None:
        async with staged() as stage:
            stage.shelf.room = 3
            code = await refusal(stage, piece(upload_name("", "u", digest_of(b"four")), 0, b"four", last=True))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED

    play(scene)


def test_what_is_larger_than_the_limit_is_refused_before_it_is_sent():
    async def scene() -> None:
        async with staged() as stage:
            name = upload_name("", "u", Digest("a" * 64, limits.BLOB_BYTES_MAX + 1))
            assert await refusal(stage, piece(name, 0, b"x")) is grpc.StatusCode.RESOURCE_EXHAUSTED

    play(scene)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "blobs",
        "uploads/u/blobs",
        f"uploads//blobs/{'a' * 64}/1",
        f"uploads/u/blobs/{'a' * 64}/-1",
        f"uploads/u/blobs/{'A' * 64}/1",
        f"uploads/u/blobs/blake3/{'a' * 64}/1",
        f"uploads/u/compressed-blobs/zstd/{'a' * 64}/1",
        f"compressed-blobs/zstd/{'a' * 64}/1",
        f"blobs/{'a' * 64}/1/extra",
        f"blobs/{'a' * 64}/1x",
        f"{'i' * 300}/blobs/{'a' * 64}/1",
        f"operations/blobs/{'a' * 64}/1",
    ],
)
def test_names_that_cannot_be_read_are_refused(name: str):
    async def scene() -> None:
        async with staged() as stage:
            with pytest.raises(Told) as told:
                await stage.listen(READ, bs.ReadRequest(resource_name=name))
            assert told.value.code is INVALID
            assert await refusal(stage, piece(name, 0, b"x")) is INVALID
            with pytest.raises(Told) as told:
                await query(stage, name)
            assert told.value.code is INVALID
            if "compressed" in name:
                assert "compressed" in told.value.text

    play(scene)


def test_a_client_that_comes_back_takes_its_upload_over():
    async def scene() -> None:
        async with staged() as stage:
            name = upload_name("", "u", digest_of(LARGE))
            stage.shelf.gate = asyncio.Event()
            stale = stage.channel.stream_unary(WRITE)(timeout=DEADLINE_S)
            await stale.write(piece(name, 0, LARGE[:100]).SerializeToString())
            while not stage.shelf.uploads:
                await asyncio.sleep(0)
            fresh = asyncio.create_task(write(stage, piece(name, 0, LARGE, last=True)))
            stage.shelf.gate.set()
            assert await fresh == len(LARGE)
            await stale.write(piece("", 100, LARGE[100:200]).SerializeToString())
            assert await stale.code() is grpc.StatusCode.UNAVAILABLE
            assert await stage.read(digest_of(LARGE)) == LARGE

    play(scene)


def test_many_may_send_the_same_at_once():
    async def scene() -> None:
        async with staged() as stage:
            sent = await asyncio.gather(*(stage.write(LARGE, upload=f"u{number}") for number in range(20)))
            assert sent == [len(LARGE)] * 20

    play(scene)


def test_a_reader_that_goes_away_disturbs_nobody():
    async def scene() -> None:
        async with staged() as stage:
            digest = stage.shelf.hold(LARGE)
            request = bs.ReadRequest(resource_name=f"blobs/{digest.hash}/{digest.size}").SerializeToString()
            call = stage.channel.unary_stream(READ)(request, timeout=DEADLINE_S)
            await call.read()
            call.cancel()
            assert await stage.read(digest) == LARGE

    play(scene)
