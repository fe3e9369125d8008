"""Content of builds, asked of a front end and given to it: the Remote Execution API from the worker's side.

A front end that restarts is waited for, since what an action took long to make would be lost with the attempt.
"""

import asyncio
import hashlib
import io
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import Message
from msgspec import Struct

from rota.core.errors import Refused
from rota.core.ids import Digest
from rota.wire.channels import AUTHORIZATION, TENANT, grpc
from rota.wire.places import Place, open_channel
from rota.wire.reapi import bytestream_pb2 as bs
from rota.wire.reapi import methods
from rota.wire.reapi import remote_execution_pb2 as rx
from rota.wire.reapi.digests import EMPTY, as_message, digest_of
from rota.wire.reapi.limits import BATCH_BYTES_MAX
from rota.wire.reapi.names import blob_name, upload_name
from rota.worker.supervisor.patience import outlast

BATCH_BLOBS_MAX = 1_000
# Larger content is streamed, in pieces of that size.
SMALL_BYTES_MAX = 1 << 20
PIECE_BYTES = 1 << 20
AT_ONCE_MAX = 4
# A digest takes some 80 bytes.
ASKED_MAX = 30_000
# So little is sent without asking first whether it is there: the question takes as long.
UNASKED_BYTES_MAX = 64 * 1024
CHANNELS_MAX = 16
# How long a front end is waited for, and how long one answer or one piece may take.
PATIENCE_S = 60.0
ANSWER_S = 60.0
# And a large one is not waited for that goes slower than this.
SLOWEST_BYTES_S = 1 << 20
# gRPC's own words for a stream that ended while it was written to. What the other side said then is lost.
_BROKEN = "Internal error from Core"
_PAUSE_S = (0.05, 0.1, 0.2, 0.5, 1.0)

_INVALID_ARGUMENT, _NOT_FOUND = 3, 5
_DENIED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_OPTIONS = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1_000)]

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class ContentAway(Exception):
    """Content could not be read or written; nobody's fault, and worth another try."""


class ContentDenied(Exception):
    """A front end does not let this worker in: it presents no token there, or one that is not good."""


class ContentMissing(Exception):
    """A front end does not have this content."""

    def __init__(self, digests: Sequence[Digest]) -> None:
        super().__init__(", ".join(f"{digest.hash}/{digest.size}" for digest in digests))
        self.digests = tuple(digests)


class Changed(Exception):
    """What was to be sent is not any more what it was when its digest was taken."""


class Blob(Struct, frozen=True):
    """What is to be sent: bytes, a file by its path, or one that is open, whatever became of its path."""

    digest: Digest
    content: bytes = b""
    path: str = ""
    file: int = -1


class ContentClient:
    """The front ends that a worker knows; one channel for each, kept open."""

    def __init__(self, find: Callable[[str], Place], token: Callable[[str], str]) -> None:
        """`find` says how an address is dialled, `token` what is presented there, as it is now."""
        self._find = find
        self._token = token
        self._channels: dict[str, Any] = {}
        self._streams = asyncio.Semaphore(AT_ONCE_MAX)

    def at(self, url: str, tenant: str, instance: str) -> "Content":
        """The content of a tenant at an address. Raises Refused if that is none."""
        channel = self._channels.pop(url, None) or open_channel(self._find(url), _OPTIONS)
        self._channels[url] = channel
        if len(self._channels) > CHANNELS_MAX:
            # Whoever still uses it keeps it until it is done.
            self._channels.pop(next(iter(self._channels)))
        said = [(TENANT, tenant)]
        if token := self._token(url):
            said.append((AUTHORIZATION, f"Bearer {token}"))
        for name, value in said:
            if not (value.isascii() and value.isprintable()):
                raise Refused("field.value", f"{'a token' if name == AUTHORIZATION else tenant!r} cannot be sent")
        return Content(channel, url, instance, said, self._streams)

    async def close(self) -> None:
        """Hang up everywhere."""
        for channel in self._channels.values():
            await channel.close()


class Content:
    """One tenant's content at one front end."""

    def __init__(
        self, channel: Any, url: str, instance: str, said: list[tuple[str, str]], streams: asyncio.Semaphore
    ) -> None:
        self._channel = channel
        self._url = url
        self._instance = instance
        self._said = said
        self._streams = streams

    def is_small(self, digest: Digest) -> bool:
        """Whether it is read and written in batches."""
        return digest.size <= SMALL_BYTES_MAX

    # Reading.

    async def read(self, digests: Sequence[Digest]) -> dict[Digest, bytes]:
        """Small content, checked. Raises ContentMissing, ContentAway."""
        found: dict[Digest, bytes] = {EMPTY: b""} if EMPTY in digests else {}

        def keep(contents: dict[Digest, bytes]) -> None:
            for digest, content in contents.items():
                if digest_of(content) != digest:
                    raise ContentAway(f"what {self._url} gave as {digest.hash} is something else")
            found.update(contents)

        wanted = [digest for digest in dict.fromkeys(digests) if digest.size]
        for batch in _batches([digest for digest in wanted if self.is_small(digest)]):
            keep(await self._read_batch(batch))
        for digest in wanted:
            if not self.is_small(digest):
                found[digest] = await self._patiently(lambda digest=digest: self._read_large(digest))
        return found

    async def fetch(self, digests: Sequence[Digest], keep: Callable[[dict[Digest, bytes]], None]) -> None:
        """Read small content in batches; `keep` is called with each, in a thread."""
        missing: list[Digest] = []

        async def load(batch: list[Digest]) -> None:
            async with self._streams:
                try:
                    contents = await self._read_batch(batch)
                except ContentMissing as error:
                    missing.extend(error.digests)
                    return
            await asyncio.to_thread(keep, contents)

        for trouble in await asyncio.gather(*map(load, _batches(digests)), return_exceptions=True):
            if trouble is not None:
                raise trouble
        if missing:
            raise ContentMissing(missing)

    async def _read_batch(self, batch: Sequence[Digest]) -> dict[Digest, bytes]:
        asked = rx.BatchReadBlobsRequest(instance_name=self._instance, digests=map(as_message, batch))
        answer = await self._ask(methods.BATCH_READ_BLOBS, asked, rx.BatchReadBlobsResponse)
        found: dict[Digest, bytes] = {}
        missing: list[Digest] = []
        for each in answer.responses:
            digest = Digest(each.digest.hash, each.digest.size_bytes)
            if each.status.code == _NOT_FOUND:
                missing.append(digest)
            elif each.status.code:
                raise ContentAway(f"{self._url} does not give {digest.hash}: {each.status.message[:200]}")
            else:
                found[digest] = each.data
        if missing:
            raise ContentMissing(missing)
        for digest in batch:
            if digest not in found:
                raise ContentAway(f"{self._url} has left {digest.hash} out of its answer")
        return {digest: found[digest] for digest in batch}

    async def stream(self, digest: Digest, path: str) -> None:
        """Read large content into a new file, checked."""
        async with self._streams:
            await self._patiently(lambda: self._stream_file(digest, path))

    async def _stream_file(self, digest: Digest, path: str) -> None:
        # An earlier try may have left a part of it.
        with Path(path).open("wb", buffering=0) as file:
            await self._stream(digest, file)

    async def _read_large(self, digest: Digest) -> bytes:
        content = io.BytesIO()
        await self._stream(digest, content)
        return content.getvalue()

    async def _stream(self, digest: Digest, file: io.RawIOBase | io.BytesIO) -> None:
        name = blob_name(self._instance, digest)
        method = self._channel.unary_stream(
            methods.READ,
            request_serializer=bs.ReadRequest.SerializeToString,
            response_deserializer=bs.ReadResponse.FromString,
        )
        call = method(bs.ReadRequest(resource_name=name), metadata=self._said)
        sink = _Sink(file)
        try:
            while True:
                async with asyncio.timeout(ANSWER_S):
                    piece = await call.read()
                if not isinstance(piece, bs.ReadResponse):  # the end
                    break
                # To its end: the file is closed when this is left.
                await outlast(asyncio.to_thread(sink.write, piece.data))
                if sink.size > digest.size:
                    break
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise ContentMissing([digest]) from None
            raise
        finally:
            call.cancel()
        if sink.digest != digest:
            raise ContentAway(f"what {self._url} gave as {digest.hash} is something else")

    # Writing.

    async def send(self, blobs: Sequence[Blob]) -> None:
        """Have content kept there; what is there already is not sent. Raises Changed, ContentAway."""
        by_digest = {blob.digest: blob for blob in blobs if blob.digest.size}
        if sum(digest.size for digest in by_digest) > UNASKED_BYTES_MAX:
            wanted = await self._missing(list(by_digest))
            by_digest = {digest: by_digest[digest] for digest in wanted if digest in by_digest}
        small = [digest for digest in by_digest if self.is_small(digest)]
        large = [digest for digest in by_digest if not self.is_small(digest)]
        for batch in _batches(small):
            await self._send_batch([by_digest[digest] for digest in batch])
        for trouble in await asyncio.gather(
            *(self._send_large(by_digest[digest]) for digest in large), return_exceptions=True
        ):
            if trouble is not None:
                raise trouble

    async def _missing(self, digests: list[Digest]) -> list[Digest]:
        found: list[Digest] = []
        for start in range(0, len(digests), ASKED_MAX):
            some = map(as_message, digests[start : start + ASKED_MAX])
            asked = rx.FindMissingBlobsRequest(instance_name=self._instance, blob_digests=some)
            answer = await self._ask(methods.FIND_MISSING_BLOBS, asked, rx.FindMissingBlobsResponse)
            found += [Digest(each.hash, each.size_bytes) for each in answer.missing_blob_digests]
        return found

    async def _send_batch(self, blobs: list[Blob]) -> None:
        contents = await asyncio.to_thread(_read_all, blobs)
        asked = rx.BatchUpdateBlobsRequest(instance_name=self._instance)
        for blob, content in zip(blobs, contents, strict=True):
            asked.requests.add(digest=as_message(blob.digest), data=content)
        answer = await self._ask(methods.BATCH_UPDATE_BLOBS, asked, rx.BatchUpdateBlobsResponse)
        for each in answer.responses:
            if each.status.code == _INVALID_ARGUMENT:
                raise Changed(each.status.message[:200])
            if each.status.code:
                raise ContentAway(f"{self._url} does not take {each.digest.hash}: {each.status.message[:200]}")

    async def _send_large(self, blob: Blob) -> None:
        async with self._streams:
            try:
                committed = await self._patiently(lambda: self._write(blob))
            except FileNotFoundError:
                raise Changed(f"{blob.path} is gone") from None
        if committed != blob.digest.size:
            raise Changed(f"{committed} of {blob.digest.size} bytes were taken")

    async def _write(self, blob: Blob) -> int:
        name = upload_name(self._instance, secrets.token_hex(16), blob.digest)
        method = self._channel.stream_unary(
            methods.WRITE,
            request_serializer=bs.WriteRequest.SerializeToString,
            response_deserializer=bs.WriteResponse.FromString,
        )
        file = _open_plain(blob.path, os.O_RDONLY) if blob.path else -1
        read_from = file if file >= 0 else blob.file
        try:
            patience_s = ANSWER_S + blob.digest.size / SLOWEST_BYTES_S
            call = method(_pieces(name, blob, read_from), metadata=self._said, timeout=patience_s)
            return (await call).committed_size
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise Changed(_said_by(error)) from None
            raise
        finally:
            if file >= 0:
                os.close(file)

    # Calls.

    async def _ask(self, method: str, asked: Message, answer: type[M]) -> M:
        call = self._channel.unary_unary(
            method, request_serializer=type(asked).SerializeToString, response_deserializer=answer.FromString
        )
        return await self._patiently(lambda: call(asked, metadata=self._said, timeout=ANSWER_S))

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer; if there is none the call is made again for a while. Raises ContentAway, ContentDenied."""
        loop = asyncio.get_running_loop()
        until, tries = loop.time() + PATIENCE_S, 0
        while True:
            try:
                return await call()
            except TimeoutError:
                raise ContentAway(f"{self._url} stopped in the middle of an answer") from None
            except grpc.aio.AioRpcError as error:
                if error.code() in _DENIED:
                    raise ContentDenied(f"{self._url} does not let this worker in: {_said_by(error)}") from None
                is_lost = error.code() is grpc.StatusCode.UNAVAILABLE or error.details() == _BROKEN
                if not is_lost or loop.time() > until:
                    raise ContentAway(f"{self._url} does not answer as it should: {_said_by(error)}") from None
            await asyncio.sleep(_PAUSE_S[min(tries, len(_PAUSE_S) - 1)])
            tries += 1


def _said_by(error: Any) -> str:
    text = f"{error.code().name}: {(error.details() or '')[:200]}"
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        # A run names any address that it likes; a token is only for those that the operator knows.
        text += " (a token is presented only where worker.build_content says so)"
    return text


def _batches(digests: Sequence[Digest]) -> list[list[Digest]]:
    batches: list[list[Digest]] = []
    room = 0
    for digest in digests:
        if not batches or room < digest.size or len(batches[-1]) >= BATCH_BLOBS_MAX:
            batches.append([])
            room = BATCH_BYTES_MAX
        batches[-1].append(digest)
        room -= digest.size
    return batches


def _read_all(blobs: list[Blob]) -> list[bytes]:
    """What is to be sent, with files read as far as their digests say."""
    contents: list[bytes] = []
    for blob in blobs:
        if blob.file >= 0:
            contents.append(os.pread(blob.file, blob.digest.size + 1, 0))
        elif blob.path:
            try:
                with open(blob.path, "rb", opener=_open_plain) as file:
                    contents.append(file.read(blob.digest.size + 1))
            except FileNotFoundError:
                raise Changed(f"{blob.path} is gone") from None
        else:
            contents.append(blob.content)
    return contents


def _open_plain(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


async def _pieces(name: str, blob: Blob, file: int) -> AsyncIterator[bs.WriteRequest]:
    """A large blob piece by piece. One that became longer is cut, and its digest is wrong then."""
    sent, size = 0, blob.digest.size
    while sent < size:
        if file >= 0:
            piece = await outlast(asyncio.to_thread(os.pread, file, min(PIECE_BYTES, size - sent), sent))
        else:
            piece = blob.content[sent : sent + PIECE_BYTES]
        is_last = not piece or sent + len(piece) == size
        yield bs.WriteRequest(resource_name="" if sent else name, write_offset=sent, finish_write=is_last, data=piece)
        if not piece:
            return
        sent += len(piece)


class _Sink:
    """What is being fetched, and its digest so far."""

    def __init__(self, file: io.RawIOBase | io.BytesIO) -> None:
        self._file = file
        self._sha = hashlib.sha256()
        self.size = 0

    def write(self, piece: bytes) -> None:
        """Add to it."""
        self._sha.update(piece)
        self.size += len(piece)
        left = memoryview(piece)
        while left:
            left = left[self._file.write(left) or 0 :]

    @property
    def digest(self) -> Digest:
        """Of what was written until now."""
        return Digest(self._sha.hexdigest(), self.size)
