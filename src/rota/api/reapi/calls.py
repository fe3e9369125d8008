"""One call of a client or worker, from its admission to its status. What is answered is a service's."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from enum import Enum
from functools import cached_property
from typing import Any, Never, Protocol

from google.protobuf.message import DecodeError, Message
from msgspec import Struct

from rota.api.agent_scope import check_unbound
from rota.api.auth import Principal, Role
from rota.api.reapi.statuses import TOLD_MAX, as_status, refusal_of
from rota.api.rpc.visits import FAREWELL_S, Count, Failed, Gate
from rota.core.errors import Refused, Unavailable
from rota.core.graph import check_id
from rota.ports import ContentFull, ContentLost, WrongContent
from rota.wire.channels import AUTHORIZATION, TENANT, Metadata, grpc, status_of
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.methods import REQUEST_METADATA, STATUS_DETAILS

SURFACE = "reapi"
# Refusals that are part of a client's day, or are told elsewhere.
_UNTOLD = ("action.", "auth.", "content.", "service.failed")


class Sort(Enum):
    """Who says how much in a call."""

    # `async serve(caller, request) -> answer`
    ONE_ANSWER = "one answer"
    # `serve(caller, request) -> AsyncGenerator[answer]`
    MANY_ANSWERS = "many answers"
    # The same; what it says at the end is a `Last`
    ANSWERS_TO_A_LAST = "answers to a last"
    # `async serve(caller, AsyncIterator[request]) -> answer`; it need not hear all of them
    MANY_PIECES = "many pieces"


class Last(Struct, frozen=True):
    """The last of many answers. It travels together with the end of the call."""

    answer: Message


class Method(Struct, frozen=True):
    """What a service does with one sort of call. An answer is a message, or one that is bytes already."""

    request: type[Message]
    serve: Callable[..., Any]
    need: Role
    sort: Sort = Sort.ONE_ANSWER
    # Workers may too, for the tenant that they name.
    is_for_workers: bool = False
    # Reads a request in another way than as such a message. Raises `DecodeError`.
    read: Callable[[bytes], Any] | None = None


class Service(Protocol):
    """Some methods of the API."""

    def methods(self) -> Mapping[str, Method]:
        """What it serves, by full names."""
        ...


class Context(Protocol):
    """The server's end of a call, as `grpc.aio` has it."""

    async def read(self) -> Any:
        """What the caller says next, or `EOF`."""
        ...

    async def write(self, content: bytes) -> None:
        """Tell the caller something."""
        ...

    async def abort(self, code: grpc.StatusCode, details: str, trailing_metadata: Metadata) -> None:
        """End the call; it always raises."""
        ...

    def invocation_metadata(self) -> Metadata | None:
        """What the caller said of itself."""
        ...

    def peer(self) -> str:
        """From where it calls."""
        ...


class Caller:
    """Who is calling, for which tenant, and what it says the call is about."""

    def __init__(self, who: Principal, tenant: str, peer: str, said: Mapping[str, str | bytes]) -> None:
        self.who = who
        self.tenant = tenant
        self.peer = peer
        self._said = said

    @property
    def token(self) -> str:
        """What it presents; empty if nobody asks for it."""
        said = self._said.get(AUTHORIZATION, "")
        assert isinstance(said, str), "only names that end with -bin have bytes"
        scheme, blank, rest = said.partition(" ")
        return rest.strip() if blank and scheme.lower() == "bearer" else said

    @cached_property
    def about(self) -> pb.RequestMetadata:
        """Which build, target and tool. It is a courtesy: what cannot be read is as if it were not there."""
        said = self._said.get(REQUEST_METADATA)
        try:
            return pb.RequestMetadata.FromString(said) if isinstance(said, bytes) else pb.RequestMetadata()
        except DecodeError:
            return pb.RequestMetadata()


class Traffic:
    """Bytes of messages, both ways."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0


class Reception:
    """Lets callers in to the methods of services, and tells each what became of its call."""

    def __init__(self, gate: Gate, say: Callable[[str], None], count: Count, failed: Failed) -> None:
        self.gate = gate
        self.say = say
        self.count = count
        self.failed = failed
        self.traffic = Traffic()
        self.calls: dict[_Call, None] = {}
        # Why nobody is let in any more.
        self.closed: Unavailable | None = None
        self._version = gate.version

    def open(self, name: str, method: Method) -> Any:
        """The method as gRPC wants it. It passes bytes on as they are, so that what they are is ours to judge."""
        traffic = self.traffic

        async def one(content: bytes, context: Context) -> bytes:
            traffic.received += len(content)
            async with _Call(self, name, method, context) as caller:
                answer = _bytes(await method.serve(caller, parse(method.request, content)))
                traffic.sent += len(answer)
                return answer

        async def many(content: bytes, context: Context) -> None:
            traffic.received += len(content)
            async with (
                _Call(self, name, method, context) as caller,
                aclosing(method.serve(caller, parse(method.request, content))) as answers,
            ):
                async for answer in answers:
                    content = _bytes(answer)
                    traffic.sent += len(content)
                    await context.write(content)

        async def to_a_last(content: bytes, context: Context) -> bytes:
            async with (
                _Call(self, name, method, context) as caller,
                aclosing(method.serve(caller, parse(method.request, content))) as answers,
            ):
                async for answer in answers:
                    if isinstance(answer, Last):
                        return _bytes(answer.answer)
                    await context.write(_bytes(answer))
            raise AssertionError("it ends with a last answer, or with an error")

        async def pieces(_requests: object, context: Context) -> bytes:
            async with _Call(self, name, method, context) as caller:
                return _bytes(await method.serve(caller, _pieces(method, context, traffic)))

        opened: dict[Sort, Any] = {
            Sort.ONE_ANSWER: grpc.unary_unary_rpc_method_handler(one),
            Sort.MANY_ANSWERS: grpc.unary_stream_rpc_method_handler(many),
            # To gRPC that is one answer, for which alone it has a way to send it with the status; as bytes on the wire
            # it is the same, and a message less.
            Sort.ANSWERS_TO_A_LAST: grpc.unary_unary_rpc_method_handler(to_a_last),
            Sort.MANY_PIECES: grpc.stream_unary_rpc_method_handler(pieces),
        }
        return opened[method.sort]

    def recheck(self) -> None:
        """See whether callers may still be here: a token that was revoked ends what was begun with it."""
        version = self.gate.version
        if version == self._version:
            return
        self._version = version
        for call in list(self.calls):
            call.recheck()

    def close(self, trouble: Unavailable) -> None:
        """Let nobody in any more, and send away who is here."""
        self.closed = trouble
        for call in list(self.calls):
            call.end(trouble)


class _Call:
    """One call; what goes wrong in it becomes its status."""

    def __init__(self, reception: Reception, name: str, method: Method, context: Context) -> None:
        self._reception = reception
        self._name = name.rpartition("/")[2]
        self._method = method
        self._context = context
        self._said = dict(context.invocation_metadata() or ())
        self._who: Principal | None = None
        self._ended: Refused | Unavailable | None = None
        self._task = asyncio.current_task()

    async def __aenter__(self) -> Caller:
        try:
            return self._admit()
        except Exception as error:
            await self._part(error)

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._reception.calls.pop(self, None)
        if error is None:
            self._reception.count(SURFACE, self._name, "ok")
        else:
            await self._part(error)

    def end(self, trouble: Refused | Unavailable) -> None:
        """Hang up, and say why."""
        if self._ended is None and self._task is not None:
            self._ended = trouble
            self._task.cancel()

    def recheck(self) -> None:
        """End the call if its caller is not let in any more, or is somebody else now."""
        try:
            if self._identify() != self._who:
                self.end(Unavailable("leader.none", "this token stands for somebody else now; begin again."))
        except Refused as refused:
            self.end(refused)

    def _admit(self) -> Caller:
        if self._reception.closed is not None:
            raise self._reception.closed
        self._who = who = self._identify()
        tenant, peer = who.acting_tenant, self._context.peer()
        check_id(tenant, "tenant")
        if not (self._method.is_for_workers and who.role is Role.WORKER):
            try:
                who.may(self._method.need, tenant)
                check_unbound(who, "the content of builds")
            except Refused as refused:
                self._reception.gate.refused(refused, peer=peer)
                raise
        self._reception.calls[self] = None
        return Caller(who, tenant, peer, self._said)

    def _identify(self) -> Principal:
        token, tenant = self._said.get(AUTHORIZATION), self._said.get(TENANT)
        assert not isinstance(token, bytes), "only names that end with -bin have bytes"
        assert not isinstance(tenant, bytes), "likewise"
        return self._reception.gate.admit(token, tenant or None, peer=self._context.peer())

    async def _part(self, error: BaseException) -> Never:
        """End the call with a status. A caller that is gone, or does not read, is dropped instead."""
        trouble = self._trouble_of(error)
        self._reception.count(SURFACE, self._name, "cancelled" if trouble is None else trouble.code)
        if trouble is None:
            # gRPC takes this as the end of a call that nobody waits for any more, and says nothing about it.
            raise asyncio.CancelledError
        if isinstance(trouble, Refused) and not trouble.code.startswith(_UNTOLD):
            self._reception.say(f"{self._name} from {self._context.peer()} ended: {trouble}")
        status = as_status(trouble, TOLD_MAX)
        details = ((STATUS_DETAILS, status.SerializeToString()),) if status.details else ()
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._context.abort(status_of(trouble), status.message, details)
        except grpc.aio.AbortError:
            raise
        except (TimeoutError, grpc.aio.BaseError):
            pass
        raise asyncio.CancelledError

    def _trouble_of(self, error: BaseException) -> Refused | Unavailable | None:
        """What the caller is told; None if nobody is there who could be told."""
        match error:
            case Refused() | Unavailable():
                return error
            case WrongContent() | ContentLost() | ContentFull():
                return refusal_of(error, "the content")
            case asyncio.CancelledError():
                if self._ended is not None and self._task is not None:
                    self._task.uncancel()
                return self._ended
            case grpc.aio.BaseError():
                return None
            case Exception():
                return self._reception.failed(self._name, error)
            case _:
                raise error


def parse(kind: type[Message], content: bytes, read: Callable[[bytes], Any] | None = None) -> Any:
    """A message out of bytes, or a refusal."""
    try:
        return kind.FromString(content) if read is None else read(content)
    except DecodeError:
        raise Refused("field.type", f"this is not a {kind.DESCRIPTOR.name}") from None


def _bytes(answer: Message | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


async def _pieces(method: Method, context: Context, traffic: Traffic) -> AsyncIterator[Any]:
    while isinstance(content := await context.read(), bytes):
        traffic.received += len(content)
        yield parse(method.request, content, method.read)
