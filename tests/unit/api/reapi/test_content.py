"""Content in batches, and trees of directories, over a real channel: good and bad."""

import grpc
import pytest

from rota.api.reapi import content as module
from rota.core.ids import Digest
from rota.wire.reapi import limits
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import EMPTY, as_message, digest_of
from rota.wire.reapi.methods import BATCH_READ_BLOBS, BATCH_UPDATE_BLOBS, FIND_MISSING_BLOBS, GET_TREE
from tests.unit.api.reapi.stage import Stage, Told, file_node, folder_node, play, staged

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def ask_for(*digests: Digest) -> pb.FindMissingBlobsRequest:
    return pb.FindMissingBlobsRequest(blob_digests=[as_message(digest) for digest in digests])


def batch(*contents: bytes) -> pb.BatchUpdateBlobsRequest:
    request = pb.BatchUpdateBlobsRequest()
    for content in contents:
        request.requests.add(digest=as_message(digest_of(content)), data=content)
    return request


async def missing(stage: Stage, request: pb.FindMissingBlobsRequest) -> list[str]:
    answer = await stage.ask(FIND_MISSING_BLOBS, request, pb.FindMissingBlobsResponse)
    return [digest.hash for digest in answer.missing_blob_digests]


def test_what_is_not_there_is_named_and_what_is_there_is_touched():
    async def scene() -> None:
        async with staged() as stage:
            here, gone = stage.shelf.hold(b"here"), digest_of(b"gone")
            assert await missing(stage, ask_for(here, gone, EMPTY)) == [gone.hash]
            assert here in stage.shelf.touched

    play(scene)


@pytest.mark.slow
def test_thousands_of_digests_are_answered_in_slices():
    async def scene() -> None:
        async with staged() as stage:
            asked = [digest_of(b"%d" % number) for number in range(12_000)]
            for number in range(0, 12_000, 3):
                stage.shelf.hold(b"%d" % number)
            expected = [digest.hash for number, digest in enumerate(asked) if number % 3]
            assert await missing(stage, ask_for(*asked)) == expected

    play(scene)


@pytest.mark.parametrize(
    ("digest", "code"),
    [
        (pb.Digest(hash="", size_bytes=1), INVALID),
        (pb.Digest(hash="A" * 64, size_bytes=1), INVALID),
        (pb.Digest(hash="g" * 64, size_bytes=1), INVALID),
        (pb.Digest(hash="a" * 40, size_bytes=1), INVALID),
        (pb.Digest(hash="a" * 64, size_bytes=-1), INVALID),
        (pb.Digest(hash="a" * 64, size_bytes=0), INVALID),
        (pb.Digest(hash=EMPTY.hash, size_bytes=7), INVALID),
        (pb.Digest(hash="a" * 64, size_bytes=limits.BLOB_BYTES_MAX + 1), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
def test_a_digest_that_is_none_is_refused(digest: pb.Digest, code: grpc.StatusCode):
    async def scene() -> None:
        async with staged() as stage:
            good = [as_message(digest_of(b"x"))] * 3
            with pytest.raises(Told) as told:
                await missing(stage, pb.FindMissingBlobsRequest(blob_digests=[*good, digest]))
            assert told.value.code is code
            assert "blob_digests[3]" in told.value.text
            updated = await stage.ask(
                BATCH_UPDATE_BLOBS,
                pb.BatchUpdateBlobsRequest(requests=[pb.BatchUpdateBlobsRequest.Request(digest=digest, data=b"x")]),
                pb.BatchUpdateBlobsResponse,
            )
            assert updated.responses[0].status.code == code.value[0]
            assert stage.shelf.kept == {}

    play(scene)


@pytest.mark.parametrize("function", [pb.DigestFunction.SHA1, pb.DigestFunction.BLAKE3, 99])
@pytest.mark.parametrize(
    ("method", "request_type"),
    [
        (FIND_MISSING_BLOBS, pb.FindMissingBlobsRequest),
        (BATCH_UPDATE_BLOBS, pb.BatchUpdateBlobsRequest),
        (BATCH_READ_BLOBS, pb.BatchReadBlobsRequest),
    ],
)
def test_another_digest_function_is_refused(method: str, request_type: type, function: int):
    async def scene() -> None:
        async with staged() as stage:
            with pytest.raises(Told, match="Use SHA256") as told:
                await stage.ask(method, request_type(digest_function=function))
            assert told.value.code is INVALID

    play(scene)


def test_a_batch_is_kept_and_read_again_blob_by_blob():
    async def scene() -> None:
        async with staged() as stage:
            request = batch(b"one", b"", b"two")
            request.requests.add(digest=as_message(digest_of(b"three")), data=b"THREE")
            request.requests.add(digest=as_message(digest_of(b"four")), data=b"fou")
            request.requests.add(digest=as_message(digest_of(b"five")), data=b"five", compressor=pb.Compressor.ZSTD)
            answer = await stage.ask(BATCH_UPDATE_BLOBS, request, pb.BatchUpdateBlobsResponse)
            assert [one.status.code for one in answer.responses] == [0, 0, 0, 3, 3, 3]
            assert [one.digest for one in answer.responses] == [one.digest for one in request.requests]
            wanted = [as_message(digest_of(content)) for content in (b"one", b"three", b"five", b"two", b"")]
            read = await stage.ask(
                BATCH_READ_BLOBS, pb.BatchReadBlobsRequest(digests=wanted), pb.BatchReadBlobsResponse
            )
            assert [(one.data, one.status.code) for one in read.responses] == [
                (b"one", 0),
                (b"", 5),
                (b"", 5),
                (b"two", 0),
                (b"", 0),
            ]

    play(scene)


def test_a_batch_without_room_says_so_for_each_blob():
    async def scene() -> None:
        async with staged() as stage:
            stage.shelf.room = 3
            answer = await stage.ask(BATCH_UPDATE_BLOBS, batch(b"abc", b"abcd"), pb.BatchUpdateBlobsResponse)
            assert [one.status.code for one in answer.responses] == [0, grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]]

    play(scene)


def test_a_batch_has_a_limit_both_ways_and_nothing_of_a_larger_one_is_kept():
    async def scene() -> None:
        async with staged() as stage:
            with pytest.raises(Told) as told:
                await stage.ask(BATCH_UPDATE_BLOBS, batch(b"small", bytes(limits.BATCH_BYTES_MAX)))
            assert told.value.code is INVALID
            assert stage.shelf.kept == {}
            large = pb.Digest(hash="a" * 64, size_bytes=limits.BATCH_BYTES_MAX // 2 + 1)
            with pytest.raises(Told) as told:
                await stage.ask(BATCH_READ_BLOBS, pb.BatchReadBlobsRequest(digests=[large, large]))
            assert told.value.code is INVALID
            many = pb.BatchReadBlobsRequest(digests=[pb.Digest()] * (limits.BATCH_BLOBS_MAX + 1))
            with pytest.raises(Told) as told:
                await stage.ask(BATCH_READ_BLOBS, many)
            assert told.value.code is INVALID
            full = batch(bytes(limits.BATCH_BYTES_MAX))
            answer = await stage.ask(BATCH_UPDATE_BLOBS, full, pb.BatchUpdateBlobsResponse)
            assert [one.status.code for one in answer.responses] == [0], "and the limit itself can be sent"
            read = pb.BatchReadBlobsRequest(digests=[one.digest for one in full.requests])
            found = await stage.ask(BATCH_READ_BLOBS, read, pb.BatchReadBlobsResponse)
            assert len(found.responses[0].data) == limits.BATCH_BYTES_MAX, "and read by a client as it comes"

    play(scene)


def test_a_batch_of_tiny_content_fits_a_message_too():
    async def scene() -> None:
        async with staged() as stage:
            size = limits.BATCH_BYTES_MAX // limits.BATCH_BLOBS_MAX
            digests = [stage.shelf.hold(b"%0*d" % (size, number)) for number in range(limits.BATCH_BLOBS_MAX)]
            read = pb.BatchReadBlobsRequest(digests=[as_message(digest) for digest in digests])
            found = await stage.ask(BATCH_READ_BLOBS, read, pb.BatchReadBlobsResponse)
            assert all(one.data for one in found.responses)

    play(scene)


def test_a_message_that_is_too_large_is_not_read():
    async def scene() -> None:
        async with staged() as stage:
            with pytest.raises(Told) as told:
                await stage.ask(FIND_MISSING_BLOBS, bytes(limits.MESSAGE_BYTES_MAX + 1))
            assert told.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert await missing(stage, ask_for(EMPTY)) == [], "and others are served"

    play(scene)


# Trees.


def chain(stage: Stage, length: int) -> list[Digest]:
    """Directories, each in the one before; the outermost first."""
    below: list[Digest] = []
    for number in range(length):
        directory = pb.Directory(files=[file_node(f"f{number}", digest_of(b"%d" % number))])
        if below:
            directory.directories.append(folder_node("d", below[0]))
        below.insert(0, stage.shelf.hold_directory(directory))
    return below


async def tree(stage: Stage, root: Digest, size: int = 0, token: str = "") -> list[pb.GetTreeResponse]:
    request = pb.GetTreeRequest(root_digest=as_message(root), page_size=size, page_token=token)
    return await stage.listen(GET_TREE, request, pb.GetTreeResponse)


def digests_in(pages: list[pb.GetTreeResponse]) -> list[Digest]:
    return [digest_of(one.SerializeToString(deterministic=True)) for page in pages for one in page.directories]


def test_a_tree_comes_in_pages_and_from_any_of_them_on():
    async def scene() -> None:
        async with staged() as stage:
            below = chain(stage, 7)
            whole = await tree(stage, below[0])
            assert digests_in(whole) == below
            assert [page.next_page_token for page in whole] == [""]
            pages = await tree(stage, below[0], size=3)
            assert [len(page.directories) for page in pages] == [3, 3, 1]
            assert digests_in(pages) == below
            for number, page in enumerate(pages[:-1]):
                rest = await tree(stage, below[0], size=3, token=page.next_page_token)
                assert rest == pages[number + 1 :]

    play(scene)


def test_pages_have_a_size_of_our_own(monkeypatch: pytest.MonkeyPatch):
    async def scene() -> None:
        async with staged() as stage:
            monkeypatch.setattr(module, "PAGE_BYTES", 200)
            below = chain(stage, 7)
            pages = await tree(stage, below[0])
            assert len(pages) > 1
            assert digests_in(pages) == below

    play(scene)


def test_a_directory_that_is_named_twice_comes_once_and_one_that_is_missing_not_at_all():
    async def scene() -> None:
        async with staged() as stage:
            leaf = stage.shelf.hold_directory(pb.Directory(files=[file_node("f", EMPTY)]))
            gone = digest_of(b"gone")
            nodes = [folder_node("a", leaf), folder_node("b", leaf), folder_node("c", gone), folder_node("d", EMPTY)]
            root = stage.shelf.hold_directory(pb.Directory(directories=nodes))
            assert digests_in(await tree(stage, root)) == [root, leaf, EMPTY]

    play(scene)


def test_a_tree_whose_root_is_missing_is_not_found():
    async def scene() -> None:
        async with staged() as stage:
            with pytest.raises(Told) as told:
                await tree(stage, digest_of(b"gone"))
            assert told.value.code is grpc.StatusCode.NOT_FOUND
            assert digests_in(await tree(stage, EMPTY)) == [EMPTY]

    play(scene)


def test_a_tree_has_a_limit(monkeypatch: pytest.MonkeyPatch):
    async def scene() -> None:
        async with staged() as stage:
            monkeypatch.setattr("rota.api.reapi.trees.TREE_DIRECTORIES_MAX", 5)
            with pytest.raises(Told, match=r"content\.tree") as told:
                await tree(stage, chain(stage, 9)[0])
            assert told.value.code is INVALID

    play(scene)


@pytest.mark.parametrize(("size", "token"), [(-1, ""), (0, "x"), (0, "-1"), (0, "1" * 30), (0, "٣")])
def test_a_page_that_cannot_be_is_refused(size: int, token: str):
    async def scene() -> None:
        async with staged() as stage:
            root = stage.shelf.hold_directory(pb.Directory(files=[file_node("f", EMPTY)]))
            with pytest.raises(Told) as told:
                await tree(stage, root, size, token)
            assert told.value.code is INVALID

    play(scene)


def test_content_that_is_no_directory_is_not_listed():
    async def scene() -> None:
        async with staged() as stage:
            with pytest.raises(Told, match=r"content\.tree") as told:
                await tree(stage, stage.shelf.hold(b"\xff\xff\xff no directory"))
            assert told.value.code is INVALID

    play(scene)
