"""The same services over the content store that is really used."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from rota.core.ids import Digest
from rota.stores.blobs import open_blobs
from rota.stores.cas.content import ContentBounds
from rota.stores.cas.opening import open_content
from rota.wire.reapi import bytestream_pb2 as bs
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import EMPTY, as_message, digest_of
from rota.wire.reapi.methods import (
    BATCH_READ_BLOBS,
    BATCH_UPDATE_BLOBS,
    FIND_MISSING_BLOBS,
    GET_TREE,
    QUERY_WRITE_STATUS,
    WRITE,
)
from rota.wire.reapi.names import upload_name
from tests.unit.api.reapi.stage import Stage, Told, file_node, folder_node, play, staged

SIZES = (1, 1_000, 64 * 1024, 64 * 1024 + 1, 3_000_000)


@asynccontextmanager
async def on_disk(folder: Path, bytes_max: int = 1 << 30) -> AsyncIterator[Stage]:
    content = await open_content(
        folder / "content",
        open_blobs(folder / "blobs"),
        clock=lambda: time.time_ns() // 1_000_000,
        bounds=ContentBounds(bytes_max=bytes_max, blob_bytes_max=4 << 20),
    )
    try:
        async with staged(content=content) as stage:
            yield stage
    finally:
        await content.close()


async def missing(stage: Stage, *digests: Digest, tenant: str = "") -> list[str]:
    request = pb.FindMissingBlobsRequest(blob_digests=[as_message(digest) for digest in digests])
    answer = await stage.ask(FIND_MISSING_BLOBS, request, pb.FindMissingBlobsResponse, tenant=tenant)
    return [digest.hash for digest in answer.missing_blob_digests]


def some(size: int) -> bytes:
    return (b"%d " % size * size)[:size]


def test_content_of_every_size_is_kept_and_read_again(tmp_path: Path):
    async def scene() -> None:
        contents = [some(size) for size in SIZES]
        digests = [digest_of(content) for content in contents]
        async with on_disk(tmp_path) as stage:
            assert await missing(stage, *digests) == [digest.hash for digest in digests]
            await asyncio.gather(*(stage.write(content, upload=f"u{len(content)}") for content in contents))
            assert await missing(stage, *digests, EMPTY) == []
            assert await missing(stage, *digests, tenant="another") == [digest.hash for digest in digests]
        async with on_disk(tmp_path) as stage:
            for content, digest in zip(contents, digests, strict=True):
                assert await stage.read(digest) == content
                assert await stage.read(digest, len(content) // 2, 10) == content[len(content) // 2 :][:10]

    play(scene)


def test_batches_both_ways(tmp_path: Path):
    async def scene() -> None:
        async with on_disk(tmp_path) as stage:
            contents = [b"%d" % number * 50 for number in range(700)]
            request = pb.BatchUpdateBlobsRequest()
            for content in contents:
                request.requests.add(digest=as_message(digest_of(content)), data=content)
            request.requests.add(digest=as_message(digest_of(b"right")), data=b"wrong")
            answer = await stage.ask(BATCH_UPDATE_BLOBS, request, pb.BatchUpdateBlobsResponse)
            assert [one.status.code for one in answer.responses] == [0] * 700 + [3]
            read = pb.BatchReadBlobsRequest(digests=[one.digest for one in request.requests])
            found = await stage.ask(BATCH_READ_BLOBS, read, pb.BatchReadBlobsResponse)
            assert [one.data for one in found.responses] == [*contents, b""]
            assert found.responses[-1].status.code == 5

    play(scene)


@pytest.mark.parametrize("size", [1_000, 3_000_000])
def test_an_upload_is_resumed_and_a_wrong_one_leaves_nothing(tmp_path: Path, size: int):
    async def scene() -> None:
        content = some(size)
        digest = digest_of(content)
        name = upload_name("i", "u", digest)
        half = size // 2

        async def write(offset: int, part: bytes, *, last: bool) -> int:
            piece = bs.WriteRequest(resource_name=name, write_offset=offset, data=part, finish_write=last)
            return (await stage.send(WRITE, [piece], bs.WriteResponse)).committed_size

        async def query() -> bs.QueryWriteStatusResponse:
            request = bs.QueryWriteStatusRequest(resource_name=name)
            return await stage.ask(QUERY_WRITE_STATUS, request, bs.QueryWriteStatusResponse)

        async with on_disk(tmp_path) as stage:
            for wrong in (content[:-1] + b"!", content[:-1], content + b"!"):
                with pytest.raises(Told) as told:
                    await write(0, wrong, last=True)
                assert told.value.code is grpc.StatusCode.INVALID_ARGUMENT
                assert (await query()).committed_size == 0
            assert await missing(stage, digest) == [digest.hash]
            assert await write(0, content[:half], last=False) == half
            assert (await query()).committed_size == half
            assert await write(half, content[half:], last=True) == size
            assert (await query()).complete
            assert await stage.read(digest) == content

    play(scene)


def test_what_is_larger_than_the_store_takes_is_refused(tmp_path: Path):
    async def scene() -> None:
        async with on_disk(tmp_path) as stage:
            with pytest.raises(Told) as told:
                await stage.write(b"x", Digest("a" * 64, 5 << 20))
            assert told.value.code is grpc.StatusCode.INVALID_ARGUMENT

    play(scene)


def test_a_tree_is_listed(tmp_path: Path):
    async def scene() -> None:
        async with on_disk(tmp_path) as stage:
            leaf = pb.Directory(files=[file_node("f", EMPTY)]).SerializeToString()
            root = pb.Directory(directories=[folder_node("d", digest_of(leaf))]).SerializeToString()
            for content in (leaf, root):
                await stage.write(content, upload=digest_of(content).hash)
            request = pb.GetTreeRequest(root_digest=as_message(digest_of(root)))
            [page] = await stage.listen(GET_TREE, request, pb.GetTreeResponse)
            assert [one.SerializeToString() for one in page.directories] == [root, leaf]

    play(scene)
