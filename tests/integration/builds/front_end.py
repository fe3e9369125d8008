"""Content in memory behind the real protocol, with faults that a test asks for."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status

from rota.core.ids import Digest
from rota.wire.reapi import bytestream_pb2 as bs
from rota.wire.reapi import methods
from rota.wire.reapi import remote_execution_pb2 as rx
from rota.wire.reapi.digests import as_message, digest_of

PIECE_BYTES = 300_000
_NOT_FOUND, _INVALID = 5, 3


def message_of(content: bytes) -> rx.Digest:
    return as_message(digest_of(content))


class FrontEnd:
    """Serves one tenant's content; counts what is asked, and remembers who asked."""

    def __init__(self) -> None:
        self.blobs: dict[Digest, bytes] = {}
        self.asked: list[str] = []
        self.read: list[Digest] = []
        self.said: list[dict[str, str | bytes]] = []
        # Called before each answer with the method's name; may raise, wait, or abort through the context.
        self.before: Callable[[str, Any], Awaitable[None]] | None = None
        self.port = 0
        self._server: Any = None

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def put(self, content: bytes | Message) -> rx.Digest:
        raw = content if isinstance(content, bytes) else content.SerializeToString()
        self.blobs[digest_of(raw)] = raw
        return message_of(raw)

    def get(self, digest: rx.Digest) -> bytes:
        return self.blobs[Digest(digest.hash, digest.size_bytes)] if digest.size_bytes else b""

    async def start(self, port: int = 0) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(0)

    async def _meet(self, method: str, context: Any) -> None:
        self.asked.append(method.rpartition("/")[2])
        self.said.append(dict(context.invocation_metadata()))
        if self.before is not None:
            await self.before(method.rpartition("/")[2], context)

    async def find_missing(self, asked: rx.FindMissingBlobsRequest, context: Any) -> rx.FindMissingBlobsResponse:
        await self._meet(methods.FIND_MISSING_BLOBS, context)
        missing = [each for each in asked.blob_digests if Digest(each.hash, each.size_bytes) not in self.blobs]
        return rx.FindMissingBlobsResponse(missing_blob_digests=missing)

    async def batch_read(self, asked: rx.BatchReadBlobsRequest, context: Any) -> rx.BatchReadBlobsResponse:
        await self._meet(methods.BATCH_READ_BLOBS, context)
        answer = rx.BatchReadBlobsResponse()
        for each in asked.digests:
            digest = Digest(each.hash, each.size_bytes)
            self.read.append(digest)
            if digest in self.blobs:
                answer.responses.add(digest=each, data=self.blobs[digest])
            else:
                answer.responses.add(digest=each, status=Status(code=_NOT_FOUND, message="gone"))
        return answer

    async def batch_update(self, asked: rx.BatchUpdateBlobsRequest, context: Any) -> rx.BatchUpdateBlobsResponse:
        await self._meet(methods.BATCH_UPDATE_BLOBS, context)
        answer = rx.BatchUpdateBlobsResponse()
        for each in asked.requests:
            is_right = message_of(each.data) == each.digest
            if is_right:
                self.put(each.data)
            answer.responses.add(digest=each.digest, status=Status(code=0 if is_right else _INVALID))
        return answer

    async def stream_read(self, asked: bs.ReadRequest, context: Any) -> AsyncIterator[bs.ReadResponse]:
        await self._meet(methods.READ, context)
        sha, size = asked.resource_name.split("/")[-2:]
        digest = Digest(sha, int(size))
        self.read.append(digest)
        if digest not in self.blobs:
            await context.abort(grpc.StatusCode.NOT_FOUND, "gone")
        content = self.blobs[digest]
        for start in range(0, len(content), PIECE_BYTES):
            yield bs.ReadResponse(data=content[start : start + PIECE_BYTES])

    async def stream_write(self, pieces: AsyncIterator[bs.WriteRequest], context: Any) -> bs.WriteResponse:
        await self._meet(methods.WRITE, context)
        name, content = "", bytearray()
        async for piece in pieces:
            name = name or piece.resource_name
            assert piece.write_offset == len(content)
            content += piece.data
        sha, size = name.split("/")[-2:]
        if digest_of(bytes(content)) != Digest(sha, int(size)):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "these are other bytes")
        self.put(bytes(content))
        return bs.WriteResponse(committed_size=len(content))


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, end: FrontEnd) -> None:
        def unary(call: Any, asked: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                call, asked.FromString, lambda answer: answer.SerializeToString()
            )

        self._table = {
            methods.FIND_MISSING_BLOBS: unary(end.find_missing, rx.FindMissingBlobsRequest),
            methods.BATCH_READ_BLOBS: unary(end.batch_read, rx.BatchReadBlobsRequest),
            methods.BATCH_UPDATE_BLOBS: unary(end.batch_update, rx.BatchUpdateBlobsRequest),
            methods.READ: grpc.unary_stream_rpc_method_handler(
                end.stream_read, bs.ReadRequest.FromString, lambda answer: answer.SerializeToString()
            ),
            methods.WRITE: grpc.stream_unary_rpc_method_handler(
                end.stream_write, bs.WriteRequest.FromString, lambda answer: answer.SerializeToString()
            ),
        }

    def service(self, details: Any) -> Any:
        return self._table.get(details.method)
