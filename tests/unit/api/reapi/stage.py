"""A front end without a coordinator on a real port, with content in memory, and a client of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from rota.api.reapi.action_cache import ActionCache
from rota.api.reapi.bytestream import ByteStream
from rota.api.reapi.calls import Service
from rota.api.reapi.capabilities import Capabilities, Instances
from rota.api.reapi.content import ContentStorage
from rota.api.reapi.results import Results
from rota.api.reapi.server import ReapiServer
from rota.api.reapi.trees import Trees
from rota.api.tokens import Gate
from rota.config import Secret
from rota.config.settings import Auth
from rota.core.errors import Refused
from rota.core.ids import NO_FENCE, Digest, Fence, Millis
from rota.ports import Checked, Content, ContentFull, ContentLost, Held, WrongContent
from rota.wire.reapi import bytestream_pb2 as bs
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import EMPTY, as_message, digest_of
from rota.wire.reapi.methods import READ, STATUS_DETAILS, WRITE
from rota.wire.reapi.names import blob_name, check_instance, upload_name

DEADLINE_S = 20
PIECE = 1 << 20
T = TypeVar("T")


def play(scene: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a test's coroutine; it has to end."""

    async def bounded() -> T:
        async with asyncio.timeout(2 * DEADLINE_S):
            return await scene()

    return asyncio.run(bounded())


class Told(Exception):
    """What a call ended with, other than well."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self.code = error.code()
        self.text = error.details() or ""
        packed = dict(error.trailing_metadata() or ()).get(STATUS_DETAILS)
        self.status = status_pb2.Status.FromString(packed) if isinstance(packed, bytes) else status_pb2.Status()
        super().__init__(f"{self.code}: {self.text}")

    def missing(self) -> list[str]:
        """What the details say is missing."""
        found: list[str] = []
        for detail in self.status.details:
            failure = error_details_pb2.PreconditionFailure()
            if detail.Unpack(failure):
                assert all(violation.type == "MISSING" for violation in failure.violations)
                found += [violation.subject for violation in failure.violations]
        return found


class MemoryUpload:
    """Content on its way in."""

    def __init__(self, shelf: "Shelf", tenant: str, digest: Digest) -> None:
        self._shelf, self._tenant, self._digest = shelf, tenant, digest
        self.taken = bytearray()

    @property
    def committed(self) -> int:
        return len(self.taken)

    async def write(self, offset: int, content: bytes) -> None:
        if offset > len(self.taken) or offset + len(content) > self._digest.size:
            raise WrongContent("a gap, or too much")
        self._shelf.largest = max(self._shelf.largest, len(content))
        if self._shelf.gate is not None:
            await self._shelf.gate.wait()
        self.taken += content[len(self.taken) - offset :]

    async def finish(self) -> None:
        content = bytes(self.taken)
        await self.abort()
        await self._shelf.put(self._tenant, self._digest, content)

    async def abort(self) -> None:
        self.taken.clear()
        self._shelf.uploads = {key: one for key, one in self._shelf.uploads.items() if one is not self}


class Shelf:
    """Content in a dictionary; what the port promises, and no more."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, Digest], bytes] = {}
        self.uploads: dict[tuple[str, Digest, str], MemoryUpload] = {}
        self.touched: list[Digest] = []
        self.reads = 0
        self.largest = 0
        self.room = 1 << 40
        # Holds writers back.
        self.gate: asyncio.Event | None = None

    def missing(self, tenant: str, digests: Iterable[Digest]) -> list[Digest]:
        asked = list(digests)
        missing = [digest for digest in asked if digest != EMPTY and (tenant, digest) not in self.kept]
        self.touched += [digest for digest in asked if digest not in missing]
        return missing

    async def put(self, tenant: str, digest: Digest, content: bytes) -> None:
        if (sha256(content).hexdigest(), len(content)) != (digest.hash, digest.size):
            raise WrongContent("other bytes")
        if len(content) > self.room:
            raise ContentFull
        self.kept[tenant, digest] = content

    async def get(self, tenant: str, digest: Digest) -> bytes:
        self.reads += 1
        await asyncio.sleep(0)
        if digest == EMPTY:
            return b""
        if (tenant, digest) not in self.kept:
            raise ContentLost
        return self.kept[tenant, digest]

    async def read(self, tenant: str, digest: Digest, offset: int = 0, limit: int = 0) -> AsyncIterator[bytes]:
        content = await self.get(tenant, digest)
        end = min(len(content), offset + limit) if limit else len(content)
        for start in range(offset, end, PIECE):
            yield content[start : min(start + PIECE, end)]

    def upload(self, tenant: str, digest: Digest, name: str) -> MemoryUpload:
        return self.uploads.setdefault((tenant, digest, name), MemoryUpload(self, tenant, digest))

    def keep_since(self, at: Millis | None) -> None:
        pass

    def held(self) -> Held:
        return Held(len(self.kept), sum(map(len, self.kept.values())), self.room, 0)

    async def check(self) -> Checked:
        return Checked(0, 0, 0)

    async def close(self) -> None:
        pass

    def hold(self, content: bytes, tenant: str = "default") -> Digest:
        """Have this content, whoever sent it."""
        digest = digest_of(content)
        self.kept[tenant, digest] = content
        return digest

    def hold_directory(self, directory: pb.Directory, tenant: str = "default") -> Digest:
        return self.hold(directory.SerializeToString(deterministic=True), tenant)


class Cabinet:
    """Results of actions in a dictionary."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str, Digest], tuple[bytes, Fence]] = {}

    async def get(self, tenant: str, instance: str, action: Digest) -> bytes | None:
        return self.kept.get((tenant, instance, action), (None,))[0]

    async def put(self, tenant: str, instance: str, action: Digest, result: bytes, fence: Fence = NO_FENCE) -> bool:
        if fence and self.kept.get((tenant, instance, action), (b"", 0))[1] > fence:
            return False
        self.kept[tenant, instance, action] = (result, fence)
        return True

    async def close(self) -> None:
        pass


class Stage:
    """Everything of one front end, and a channel to it."""

    def __init__(
        self, gate: Gate, instances: Instances, services: Sequence[Service] = (), content: Content | None = None
    ) -> None:
        self.shelf = Shelf()
        self.cabinet = Cabinet()
        content = self.shelf if content is None else content
        self.trees = Trees(content)
        self.results = Results(content, self.cabinet, self.trees)
        self.said: list[str] = []
        self.counted: list[tuple[str, str]] = []
        self.failures: list[Exception] = []
        self.server = ReapiServer(
            [
                Capabilities(can_execute=True, instances=instances),
                ContentStorage(content, self.trees, instances),
                ByteStream(content, instances),
                ActionCache(self.results, instances),
                *services,
            ],
            gate,
            self._failed,
            say=self.said.append,
            count=lambda surface, method, code: self.counted.append((method, code)),
        )
        self.channel: Any = None
        self.port = 0

    def _failed(self, what: str, error: Exception) -> Refused:
        self.failures.append(error)
        return Refused("service.failed", "an error of ours")

    async def ask(
        self,
        method: str,
        request: Message | bytes,
        kind: type[T] = bytes,
        *,
        token: str = "",
        tenant: str = "",
        extra: Sequence[tuple[str, str | bytes]] = (),
    ) -> T:
        """One answer, or `Told`."""
        try:
            answer = await self.channel.unary_unary(method)(
                _bytes(request), metadata=_metadata(token, tenant, extra), timeout=DEADLINE_S
            )
        except grpc.aio.AioRpcError as error:
            raise Told(error) from None
        return _read(kind, answer)

    async def listen(self, method: str, request: Message | bytes, kind: type[T] = bytes, **said: Any) -> list[T]:
        """All answers, or `Told`."""
        metadata = _metadata(said.get("token", ""), said.get("tenant", ""), ())
        try:
            call = self.channel.unary_stream(method)(_bytes(request), metadata=metadata, timeout=DEADLINE_S)
            return [_read(kind, answer) async for answer in call]
        except grpc.aio.AioRpcError as error:
            raise Told(error) from None

    async def send(self, method: str, pieces: Iterable[Message | bytes], kind: type[T] = bytes, **said: Any) -> T:
        """The answer to some pieces, or `Told`."""

        async def all_pieces() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield _bytes(piece)

        metadata = _metadata(said.get("token", ""), said.get("tenant", ""), ())
        try:
            answer = await self.channel.stream_unary(method)(all_pieces(), metadata=metadata, timeout=DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            raise Told(error) from None
        return _read(kind, answer)

    async def write(self, content: bytes, digest: Digest | None = None, step: int = 1 << 16, **said: Any) -> int:
        """Write content as clients do; how much is there then."""
        digest = digest or digest_of(content)
        name = upload_name(said.pop("instance", ""), said.pop("upload", "u1"), digest)
        pieces = [
            bs.WriteRequest(
                resource_name="" if start else name,
                write_offset=start,
                data=content[start : start + step],
                finish_write=start + step >= len(content),
            )
            for start in range(0, max(len(content), 1), step)
        ]
        return (await self.send(WRITE, pieces, bs.WriteResponse, **said)).committed_size

    async def read(self, digest: Digest, offset: int = 0, limit: int = 0, instance: str = "", **said: Any) -> bytes:
        """Read content as clients do."""
        name = blob_name(instance, digest)
        request = bs.ReadRequest(resource_name=name, read_offset=offset, read_limit=limit)
        return b"".join(piece.data for piece in await self.listen(READ, request, bs.ReadResponse, **said))


def gate_of(tokens: str = "") -> Gate:
    """A gate that knows these tokens; without any it is open."""
    return Gate(Auth(tokens=Secret(tokens) if tokens else None), lambda: 0)


@asynccontextmanager
async def staged(
    gate: Gate | None = None,
    instances: Instances = check_instance,
    services: Sequence[Service] = (),
    content: Content | None = None,
) -> AsyncIterator[Stage]:
    """A front end that listens; without any `content` it has some in memory."""
    stage = Stage(gate or gate_of(), instances, services, content)
    [stage.port] = await stage.server.start()
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{stage.port}", options=[("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        stage.channel = channel
        try:
            yield stage
        finally:
            await stage.server.stop()
    assert stage.failures == [], "no error of ours"


def file_node(name: str, digest: Digest) -> pb.FileNode:
    """A file in a directory."""
    return pb.FileNode(name=name, digest=as_message(digest))


def folder_node(name: str, digest: Digest) -> pb.DirectoryNode:
    """A directory in a directory."""
    return pb.DirectoryNode(name=name, digest=as_message(digest))


def _bytes(request: Message | bytes) -> bytes:
    return request if isinstance(request, bytes) else request.SerializeToString()


def _read(kind: type[T], answer: bytes) -> T:
    return kind.FromString(answer) if issubclass(kind, Message) else answer  # type: ignore[return-value] - bytes are bytes


def _metadata(token: str, tenant: str, extra: Sequence[tuple[str, str | bytes]]) -> list[tuple[str, str | bytes]]:
    said: Mapping[str, str] = {"authorization": f"Bearer {token}" if token else "", "rota-tenant": tenant}
    return [*((name, value) for name, value in said.items() if value), *extra]
