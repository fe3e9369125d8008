"""A thin client of etcd: the calls that the store makes, each with a deadline, at whichever member answers.

A call that only reads, or that may as well be made twice, goes to the next member when one does not answer. One that
changes something is made once (`attempt`): whoever makes it must know what may have become of it.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, TypeVar

from google.protobuf.message import Message

from rota.core.errors import Refused, Unavailable
from rota.stores.etcd import rpc_pb2 as rpc
from rota.stores.etcd.address import Address
from rota.stores.etcd.failures import Failure, read_failure
from rota.stores.etcd.keys import after
from rota.wire.channels import Options, grpc
from rota.wire.places import Place, open_channel

Reply = TypeVar("Reply", bound=Message)

_RANGE = "/etcdserverpb.KV/Range"
_TXN = "/etcdserverpb.KV/Txn"
_COMPACT = "/etcdserverpb.KV/Compact"
_GRANT = "/etcdserverpb.Lease/LeaseGrant"
_REVOKE = "/etcdserverpb.Lease/LeaseRevoke"
_KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"
_WATCH = "/etcdserverpb.Watch/Watch"
_STATUS = "/etcdserverpb.Maintenance/Status"
_ALARM = "/etcdserverpb.Maintenance/Alarm"
_AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"

# A member that was away is found again soon, and whether to ask again is for us to decide.
_OPTIONS: Options = [
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]
# A member that knows of no leader says so at once, instead of waiting for one.
_HAS_LEADER = ("hasleader", "true")
# Trouble that may be over soon, and trouble that the next member may not have.
_PASSING = ("store.unavailable",)
_OF_ONE_MEMBER = (*_PASSING, "store.foreign", "tls.handshake")
# Between two tries of the same call, when every member has failed once.
PAUSE_S = 0.1
# The share of a call's whole time that a member is given at least, before another is asked.
_SHARE = 4


class Doubt:
    """A call whose outcome is not known: it may have been carried out, or may still be unless it `is_over`."""

    def __init__(self, trouble: Refused | Unavailable, *, is_over: bool = False) -> None:
        self.trouble = trouble
        self.is_over = is_over


class Client:
    """Connections to the members of a cluster; made when they are used, in the event loop that uses them."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self._channels: dict[str, Any] = {}
        self._calls: dict[tuple[str, str], Any] = {}
        self._host = 0
        self._token = ""
        # How long the last answer took; or, if none came, how long it was waited for.
        self._took_s = 0.0

    @property
    def patience_s(self) -> float:
        """How long one member is waited for where it is better to ask another soon.

        One that died never answers. Where all of them are slow, asking again gains nothing and has to wait as well.
        """
        return min(self.timeout_s, max(self.timeout_s / _SHARE, 2 * self._took_s))

    async def close(self) -> None:
        """Hang up; may be called twice, and a call after it dials anew."""
        channels, self._channels = self._channels, {}
        self._calls.clear()
        for channel in channels.values():
            await channel.close()

    # Keys and values.

    async def read(self, key: bytes, end: bytes = b"", *, limit: int = 0, keys_only: bool = False) -> rpc.RangeResponse:
        """Read a key, or the first ones up to and without another, as they are now.

        Not by a transaction: an etcd that is full refuses even those that only read.
        """
        request = rpc.RangeRequest(key=key, range_end=end, limit=limit, keys_only=keys_only)
        return await self._ask(_RANGE, request, rpc.RangeResponse)

    async def read_all(self, prefix: bytes) -> dict[bytes, rpc.KeyValue]:
        """All keys with a prefix that ends in a slash, as they were at one instant."""
        return {found.key: found for found in (await self.read(prefix, after(prefix))).kvs}

    async def repeat(self, request: rpc.TxnRequest) -> rpc.TxnResponse:
        """A transaction that does no harm if it is carried out twice."""
        return await self._ask(_TXN, request, rpc.TxnResponse)

    async def attempt(self, request: rpc.TxnRequest, timeout_s: float) -> rpc.TxnResponse | Doubt:
        """A transaction, sent once. Raises only if nothing was done and nothing will be."""
        answer = await self._try(_TXN, request, rpc.TxnResponse, timeout_s)
        if not isinstance(answer, Failure):
            return answer
        if answer.is_certain:
            raise answer.trouble
        return Doubt(answer.trouble, is_over=answer.is_over)

    async def compact(self, revision: int) -> None:
        """Forget what keys were before a revision."""
        await self._ask(_COMPACT, rpc.CompactionRequest(revision=revision), rpc.CompactionResponse)

    # Leases.

    async def grant(self, ttl_s: int) -> int:
        """A lease that ends by itself, and with it the keys that were put with it."""
        return (await self._ask(_GRANT, rpc.LeaseGrantRequest(ttl=ttl_s), rpc.LeaseGrantResponse)).id

    async def revoke(self, lease: int) -> None:
        """End a lease; one that has ended already is no error."""
        await self._ask(_REVOKE, rpc.LeaseRevokeRequest(id=lease), rpc.LeaseRevokeResponse, is_gone_fine=True)

    async def keep_alive(self, lease: int) -> bool:
        """Begin a lease's time anew, at whichever member answers; False if it has ended."""
        give_up_at = asyncio.get_running_loop().time() + self.timeout_s
        members = len(self.address.hosts)
        for turn in range(1, members + 1):
            try:
                return await self._keep_alive(lease, self._share_s(give_up_at, turn))
            except Unavailable:
                if turn == members:
                    raise
        raise AssertionError("a cluster has members")

    async def _keep_alive(self, lease: int, timeout_s: float) -> bool:
        began = asyncio.get_running_loop().time()
        async with self._stream(_KEEP_ALIVE, rpc.LeaseKeepAliveResponse, timeout_s) as call:
            await call.write(rpc.LeaseKeepAliveRequest(id=lease))
            answer = await call.read()
            self._took(began)
            return isinstance(answer, rpc.LeaseKeepAliveResponse) and answer.ttl > 0

    # Watching.

    async def deletion(self, key: bytes, after: int) -> None:
        """Return when the key has been deleted after a revision, or when nobody can say that it was not."""
        asked = rpc.WatchCreateRequest(key=key, start_revision=after + 1, filters=[rpc.WatchCreateRequest.NOPUT])
        async with self._stream(_WATCH, rpc.WatchResponse, None) as call:
            await call.write(rpc.WatchRequest(create_request=asked))
            while True:
                answer = await call.read()
                if not isinstance(answer, rpc.WatchResponse) or answer.canceled or answer.events:
                    return

    # The cluster itself.

    async def status(self) -> rpc.StatusResponse:
        """How one member is."""
        return await self._ask(_STATUS, rpc.StatusRequest(), rpc.StatusResponse)

    async def alarms(self) -> rpc.AlarmResponse:
        """What is wrong with the cluster, as it knows itself."""
        return await self._ask(_ALARM, rpc.AlarmRequest(), rpc.AlarmResponse)

    # How calls are made.

    async def _ask(self, method: str, request: Message, reply: type[Reply], *, is_gone_fine: bool = False) -> Reply:
        """The first answer of any member, within the deadline."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self.timeout_s
        said: Failure | None = None
        for turn in count(1):
            share_s = self._share_s(give_up_at, turn)
            answer = await self._try(method, request, reply, share_s, is_gone_fine=is_gone_fine)
            if not isinstance(answer, Failure):
                return answer
            # What a member says of the cluster tells more than that another one is not reached.
            said = answer if said is None or answer.is_said else said
            is_round_over = turn >= len(self.address.hosts)
            if answer.trouble.code not in (_PASSING if is_round_over else _OF_ONE_MEMBER):
                raise answer.trouble
            if loop.time() + PAUSE_S >= give_up_at:
                break
            if is_round_over:
                await asyncio.sleep(PAUSE_S)
        assert said is not None, "without trouble there is an answer"
        raise said.trouble

    def _share_s(self, give_up_at: float, turn: int) -> float:
        """How long to wait for a member: an equal part of what is left, or longer if they were slow before."""
        left_s = give_up_at - asyncio.get_running_loop().time()
        equal_s = left_s / max(1, len(self.address.hosts) + 1 - turn)
        return max(0.01, equal_s, min(left_s, 2 * self._took_s))

    def _took(self, began: float) -> None:
        self._took_s = asyncio.get_running_loop().time() - began

    async def _try(
        self, method: str, request: Message, reply: type[Reply], timeout_s: float, *, is_gone_fine: bool = False
    ) -> Reply | Failure:
        """One member's answer, or why there is none; then the next is asked next time."""
        for is_last in (False, True):
            host, began = self._host, asyncio.get_running_loop().time()
            try:
                metadata = await self._metadata(timeout_s)
                answer = await self._unary(host, method, reply)(request, timeout=timeout_s, metadata=metadata)
                self._took(began)
                return answer
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    self._took(began)
                if is_gone_fine and error.code() is grpc.StatusCode.NOT_FOUND:
                    return reply()
                failure = read_failure(error, self._shown(host))
            if failure.is_token_old and self.address.user and not is_last:
                self._token = ""
                continue
            self._turn_from(host)
            return failure
        raise AssertionError("the second answer is the last")

    def _turn_from(self, host: int) -> None:
        if host == self._host:
            self._host = (host + 1) % len(self.address.hosts)

    def _shown(self, host: int) -> str:
        return self.address.hosts[host]

    async def _metadata(self, timeout_s: float) -> tuple[tuple[str, str], ...]:
        if not self.address.user:
            return (_HAS_LEADER,)
        if not self._token:
            request = rpc.AuthenticateRequest(name=self.address.user, password=self.address.password.reveal())
            call = self._unary(self._host, _AUTHENTICATE, rpc.AuthenticateResponse)
            self._token = (await call(request, timeout=timeout_s)).token
        return (_HAS_LEADER, ("token", self._token))

    def _channel(self, host: int) -> Any:
        name = self.address.hosts[host]
        if name not in self._channels:
            self._channels[name] = open_channel(Place(self.address.shown, name, self.address.tls), _OPTIONS)
        return self._channels[name]

    def _unary(self, host: int, method: str, reply: type[Message]) -> Any:
        key = (self.address.hosts[host], method)
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = self._channel(host).unary_unary(
                method, request_serializer=_serialize, response_deserializer=reply.FromString
            )
        return call

    @asynccontextmanager
    async def _stream(self, method: str, reply: type[Message], timeout_s: float | None) -> AsyncGenerator[Any, None]:
        """A stream that is hung up in the end, whatever comes."""
        host, began = self._host, asyncio.get_running_loop().time()
        call: Any = None
        try:
            metadata = await self._metadata(timeout_s or self.timeout_s)
            make = self._channel(host).stream_stream(
                method, request_serializer=_serialize, response_deserializer=reply.FromString
            )
            call = make(timeout=timeout_s, metadata=metadata)
            yield call
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                self._took(began)
            failure = read_failure(error, self._shown(host))
            if failure.is_token_old:
                self._token = ""
            self._turn_from(host)
            raise failure.trouble from None
        finally:
            if call is not None:
                call.cancel()


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
