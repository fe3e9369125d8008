"""The service ByteStream: large content, read and written piece by piece. None is ever held as a whole."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from rota.api.auth import Role
from rota.api.reapi.calls import Caller, Method, Sort
from rota.api.reapi.capabilities import Instances
from rota.api.reapi.statuses import refusal_of
from rota.core.errors import Refused, Unavailable
from rota.ports import Content, ContentFull, ContentLost, Upload, WrongContent
from rota.wire.reapi import bytestream_pb2 as bs
from rota.wire.reapi.methods import QUERY_WRITE_STATUS, READ, WRITE
from rota.wire.reapi.names import UploadName, check_instance, read_blob_name, read_upload_name
from rota.wire.reapi.pieces import Piece, read_piece

# Field 10 of a ReadResponse, a string of bytes.
_DATA_TAG = b"\x52"


class ByteStream:
    """Reads and writes the content of each tenant."""

    def __init__(self, content: Content, instances: Instances = check_instance) -> None:
        self._content = content
        self._instances = instances
        # Who writes under a name now. A client that comes back may be here before we know that it had gone.
        self._writing: dict[tuple[str, UploadName], _Turn] = {}

    def methods(self) -> Mapping[str, Method]:
        """See `Service`."""
        read, written = Role.READER, Role.WRITER
        return {
            READ: Method(bs.ReadRequest, self._read, read, Sort.MANY_ANSWERS, is_for_workers=True),
            WRITE: Method(
                bs.WriteRequest, self._write, written, Sort.MANY_PIECES, is_for_workers=True, read=read_piece
            ),
            QUERY_WRITE_STATUS: Method(bs.QueryWriteStatusRequest, self._query, written, is_for_workers=True),
        }

    async def _read(self, caller: Caller, request: bs.ReadRequest) -> AsyncIterator[bytes]:
        name = read_blob_name(request.resource_name)
        self._instances(name.instance)
        digest = name.digest
        if not 0 <= request.read_offset <= digest.size:
            text = f"{digest.hash} has {digest.size:,} bytes, and was to be read from {request.read_offset:,} on"
            raise Refused("content.range", text, path="read_offset")
        if request.read_limit < 0:
            raise Refused("field.value", f"{request.read_limit} bytes cannot be read", path="read_limit")
        if self._content.missing(caller.tenant, [digest]):
            raise Refused("content.missing", f"{digest.hash} is not here", path="resource_name")
        if request.read_offset == digest.size:
            return
        try:
            async for piece in self._content.read(caller.tenant, digest, request.read_offset, request.read_limit):
                yield _as_response(piece)
        except ContentLost as error:
            raise refusal_of(error, digest.hash) from None

    async def _write(self, caller: Caller, pieces: AsyncIterator[Piece]) -> bs.WriteResponse:
        first = await anext(pieces, None)
        if first is None:
            raise Refused("field.value", "the stream ended before it said what is written", path="resource_name")
        name = read_upload_name(first.resource_name)
        self._instances(name.instance)
        if not self._content.missing(caller.tenant, [name.digest]):
            # The client need not send the rest.
            return bs.WriteResponse(committed_size=name.digest.size)
        key = (caller.tenant, name)
        before = self._writing.get(key)
        self._writing[key] = turn = _Turn()
        try:
            if before is not None:
                await before.end()
            upload = self._content.upload(caller.tenant, name.digest, name.upload)
            return await _take(upload, name, first, pieces, turn)
        finally:
            if self._writing.get(key) is turn:
                del self._writing[key]

    async def _query(self, caller: Caller, request: bs.QueryWriteStatusRequest) -> bs.QueryWriteStatusResponse:
        name = read_upload_name(request.resource_name)
        self._instances(name.instance)
        if not self._content.missing(caller.tenant, [name.digest]):
            return bs.QueryWriteStatusResponse(committed_size=name.digest.size, complete=True)
        upload = self._content.upload(caller.tenant, name.digest, name.upload)
        return bs.QueryWriteStatusResponse(committed_size=upload.committed)


class _Turn:
    """One stream's right to write under a name, until another takes it over."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._is_over = False

    async def end(self) -> None:
        """Let another go on, as soon as what is being written is written."""
        async with self._lock:
            self._is_over = True

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        if self._is_over:
            self._lock.release()
            raise Unavailable("service.busy", "another stream goes on with this upload.")

    async def __aexit__(self, *_error: object) -> None:
        self._lock.release()


async def _take(
    upload: Upload, name: UploadName, first: Piece, pieces: AsyncIterator[Piece], turn: _Turn
) -> bs.WriteResponse:
    """Write what comes, up to where the client says that it is all, or stops."""
    offset = first.write_offset
    piece: Piece | None = first
    while piece is not None:
        if piece.resource_name not in ("", first.resource_name):
            raise Refused("field.value", "one stream writes one content", path="resource_name")
        async with turn:
            if piece.write_offset != offset or not 0 <= offset <= upload.committed:
                text = f"{name.digest.hash} is to go on at {upload.committed:,}, and not at {piece.write_offset:,}"
                raise Refused("field.value", text, "Ask how much was written.", path="write_offset")
            try:
                await upload.write(offset, piece.data)
                if piece.finish_write:
                    await upload.finish()
                    return bs.WriteResponse(committed_size=name.digest.size)
            except (WrongContent, ContentFull) as error:
                await upload.abort()
                raise refusal_of(error, name.digest.hash) from None
        offset += len(piece.data)
        piece = await anext(pieces, None)
    # It ended before it was finished: what was taken waits for the client to come back.
    return bs.WriteResponse(committed_size=upload.committed)


def _as_response(piece: bytes) -> bytes:
    """A ReadResponse with this content; made by hand, since the other way copies every byte twice more."""
    length = bytearray()
    left = len(piece)
    while left > 0x7F:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    length.append(left)
    return b"".join((_DATA_TAG, length, piece))
