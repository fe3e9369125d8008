"""What callers and coordinators agree on over gRPC: names, versions, sizes, and trouble as a status.

Messages are MessagePack of the same structs as everywhere (docs/decisions/0009-grpc-carries-messagepack.md), so gRPC is
given bytes and asked to do nothing with them.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import msgspec

from rota.core.errors import Refused, Unavailable
from rota.wire.requests import Trouble, error_of, trouble_of

# gRPC writes a line for each handshake that fails, and anybody may fail as many as they like.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Its own help for those who fork starts threads in the child, and a third of the children crash before their `exec`.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

import grpc

# What this code speaks. It grows when the other side could misunderstand what is said, and not for new fields.
PROTOCOL: Final = 1
SERVICE: Final = "rota.v1.Coordinator"
TALK: Final = f"/{SERVICE}/Talk"
SYNC: Final = f"/{SERVICE}/Sync"

AUTHORIZATION: Final = "authorization"
TENANT: Final = "rota-tenant"
VERSION: Final = "rota-protocol"
TROUBLE: Final = "rota-trouble-bin"

# A frame of a worker. Workers begin another one at half of it (`rota.worker.sync`).
FRAME_BYTES_MAX = 4 << 20
# A larger message of a client travels in fragments: gRPC puts each message together in one turn of the loop, which
# takes about 4 ms for each MB. Fragments begin with one of these; nothing in MessagePack begins with their first byte.
FRAGMENT_BYTES: Final = 2 << 20
FRAGMENT: Final = b"\xc1"
MORE_FRAGMENTS: Final = b"\xc1\x01"
LAST_FRAGMENT: Final = b"\xc1\x00"
# What gRPC itself cuts off by the length that a message says it has.
_RECEIVED_BYTES_MAX = FRAME_BYTES_MAX + (1 << 20)
_TEXT_CHARS_MAX = 1_000

# A peer that has vanished is noticed within PING_EVERY_MS + PING_WAIT_MS. Only open streams are looked after.
# Whoever waits for a coordinator that was stopped should find the next one before long.
PING_EVERY_MS = 10_000
PING_WAIT_MS = 5_000

# A client or worker has a connection of its own, with one stream; a proxy may carry those of several in one.
CONNECTIONS_MAX = 4_000
STREAMS_MAX = 100
IDLE_MS = 30_000

Options = list[tuple[str, int]]
Metadata = Iterable[tuple[str, str | bytes]]


class Call(Protocol):
    """A stream, from the end that opened it."""

    async def initial_metadata(self) -> Metadata:
        """What the other side said first; nothing if it refused."""
        ...

    async def write(self, content: bytes) -> None:
        """Say something."""
        ...

    async def read(self) -> Any:
        """What the other side says next, or `EOF`."""
        ...

    async def code(self) -> grpc.StatusCode:
        """How it ended, once it has."""
        ...

    async def details(self) -> str:
        """Why, in words."""
        ...

    async def trailing_metadata(self) -> Metadata:
        """What else was said about the end."""
        ...

    def cancel(self) -> bool:
        """End it."""
        ...


def _ping_wait() -> Options:
    # Both: by default the second is a minute, and the longer one counts.
    return [("grpc.keepalive_timeout_ms", PING_WAIT_MS), ("grpc.http2.ping_timeout_ms", PING_WAIT_MS)]


def caller_options() -> Options:
    """How channels are opened. Whoever dials trusts whom it dialled: nothing is too large to be heard."""
    return [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", PING_EVERY_MS),
        *_ping_wait(),
        ("grpc.http2.max_pings_without_data", 0),
        # A new dial is a new connection, and does not wait until an earlier one is thought worth another try.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
    ]


def server_options() -> Options:
    """How a coordinator listens."""
    return [
        # Two programs on one port would each get half of the callers.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", _RECEIVED_BYTES_MAX),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", 2 * PING_EVERY_MS),
        *_ping_wait(),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", PING_EVERY_MS // 2),
        ("grpc.server_handshake_timeout_ms", 10_000),
        # Nobody needs a connection without a stream, so those who hold one do not keep others out for long.
        ("grpc.max_connection_idle_ms", IDLE_MS),
        ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
        ("grpc.max_concurrent_streams", STREAMS_MAX),
    ]


def fragments_of(content: bytes) -> list[bytes]:
    """A message of a client as it travels: whole, or in fragments."""
    if len(content) <= FRAGMENT_BYTES:
        return [content]
    pieces = [content[at : at + FRAGMENT_BYTES] for at in range(0, len(content), FRAGMENT_BYTES)]
    return [*(MORE_FRAGMENTS + piece for piece in pieces[:-1]), LAST_FRAGMENT + pieces[-1]]


def greeting(token: str, tenant: str = "") -> list[tuple[str, str]]:
    """What a caller says of itself before anything else."""
    said = [(VERSION, str(PROTOCOL))]
    if tenant:
        said.append((TENANT, tenant))
    if token:
        said.append((AUTHORIZATION, f"Bearer {token}"))
    for name, value in said:
        if not (value.isascii() and value.isprintable()):
            what = "the token" if name == AUTHORIZATION else f"the tenant {tenant!r}"
            code = "auth.wrong" if name == AUTHORIZATION else "field.value"
            raise Refused(code, f"{what} has characters that cannot be sent", "Use letters, digits and ._~+/-.")
    return said


def check_version(said: str | None) -> None:
    """Refuse a caller whose messages may mean what this coordinator does not know."""
    if said is None or not (said.isascii() and said.isdigit() and 0 < len(said) < 10):
        text = f"the call does not say which version of the protocol it speaks ({VERSION})"
        raise Refused("protocol.version", text, "Is this a client or worker of Rota?")
    if int(said) > PROTOCOL:
        text = f"the caller speaks version {said} of the protocol, and this coordinator version {PROTOCOL}"
        raise Refused("protocol.version", text, "Upgrade the coordinator before its clients and workers.")


def check_answered(said: str | None, where: str) -> None:
    """Refuse a coordinator that does not speak as we do, or is something else."""
    if said is None:
        raise Refused("protocol.version", f"what answers at {where} is not a coordinator of Rota")
    if said != str(PROTOCOL):
        text = f"the coordinator at {where} answers in version {said} of the protocol, and this is version {PROTOCOL}"
        raise Refused("protocol.version", text, "Upgrade this client or worker.")


class Unreached(Unavailable):
    """Nobody answers at an address; as far as can be told there is nobody."""


_STATUS_OF: Final[dict[str, grpc.StatusCode]] = {
    "action.unknown": grpc.StatusCode.NOT_FOUND,
    "auth.missing": grpc.StatusCode.UNAUTHENTICATED,
    "auth.wrong": grpc.StatusCode.UNAUTHENTICATED,
    "auth.role": grpc.StatusCode.PERMISSION_DENIED,
    "auth.tenant": grpc.StatusCode.PERMISSION_DENIED,
    "content.digest": grpc.StatusCode.INVALID_ARGUMENT,
    "content.full": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "content.missing": grpc.StatusCode.NOT_FOUND,
    "content.range": grpc.StatusCode.OUT_OF_RANGE,
    "content.tree": grpc.StatusCode.INVALID_ARGUMENT,
    "content.wrong": grpc.StatusCode.INVALID_ARGUMENT,
    "field.size": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "field.type": grpc.StatusCode.INVALID_ARGUMENT,
    "field.value": grpc.StatusCode.INVALID_ARGUMENT,
    # Where it is not found, something would be taken for missing and sent, or done, again.
    "instance.unknown": grpc.StatusCode.INVALID_ARGUMENT,
    "requirement.value": grpc.StatusCode.INVALID_ARGUMENT,
    "service.failed": grpc.StatusCode.INTERNAL,
}


def status_of(trouble: Refused | Unavailable) -> grpc.StatusCode:
    """The status with which a stream ends that meets this."""
    if isinstance(trouble, Unavailable):
        return grpc.StatusCode.UNAVAILABLE
    return _STATUS_OF.get(trouble.code, grpc.StatusCode.FAILED_PRECONDITION)


def pack_trouble(trouble: Refused | Unavailable) -> tuple[str, tuple[tuple[str, bytes], ...]]:
    """A status's words and what goes with them; bounded, since they travel as headers."""
    said = trouble_of(trouble)
    short = msgspec.structs.replace(said, reason=said.reason[:_TEXT_CHARS_MAX], hint=said.hint[:_TEXT_CHARS_MAX])
    return str(trouble)[:_TEXT_CHARS_MAX], ((TROUBLE, msgspec.msgpack.encode(short)),)


# Made by intermediaries, by gRPC itself, or by something that is no coordinator.
_MEANING: Final[dict[grpc.StatusCode, tuple[Callable[..., Refused | Unavailable], str, str]]] = {
    grpc.StatusCode.UNAUTHENTICATED: (Refused, "auth.wrong", "does not accept the token"),
    grpc.StatusCode.PERMISSION_DENIED: (Refused, "auth.role", "does not allow this"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (Refused, "field.size", "was sent more than it takes"),
    grpc.StatusCode.UNIMPLEMENTED: (Refused, "protocol.version", "is not a coordinator of Rota"),
}


async def trouble_at_end(call: Call, where: str) -> Refused | Unavailable:
    """Why a call is over."""
    code, details = await call.code(), await call.details()
    for name, value in await call.trailing_metadata():
        if name == TROUBLE and isinstance(value, bytes):
            try:
                return error_of(msgspec.msgpack.decode(value, type=Trouble))
            except (msgspec.DecodeError, UnicodeDecodeError):
                break
    if code is grpc.StatusCode.UNAVAILABLE:
        return _unreached(where, details)
    family, name, text = _MEANING.get(code, (Unavailable, "leader.none", f"ended the call ({code.name})"))
    return family(name, f"what answers at {where} {text}{': ' + details if details else ''}.")


# Words of the library for TLS, and what they mean to whoever dialled.
CERTIFICATES: Final = (
    ("certificate has expired", "its certificate has expired", "Renew it there; is the clock of this machine right?"),
    ("certificate is not yet valid", "its certificate is not valid yet", "Is the clock of this machine right?"),
    ("Hostname Verification Check failed", "its certificate is for another name", "Use the name in the certificate."),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is of no authority that is trusted here", "Name the authority: ca."),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS", "Use grpc://."),
)
_HUNG_UP: Final = ("Socket closed", "Connection reset", "Broken pipe", "handshake")


def _unreached(where: str, details: str) -> Refused | Unavailable:
    """Nobody was reached, or not the one who was meant."""
    for words, meaning, hint in CERTIFICATES:
        if words in details:
            return Refused("tls.handshake", f"the coordinator at {where} is not spoken to: {meaning}", hint)
    # Only while connecting: a stream that was open ends in other words.
    if details.startswith("failed to connect") and any(words in details for words in _HUNG_UP):
        if where.startswith("grpcs:"):
            text = "it may not accept our certificate (expired, of another authority), or want one"
        else:
            text = "it may speak TLS only (grpcs://), or have as many connections as it takes"
        return Unavailable("tls.handshake", f"whoever listens at {where} hung up at once: {text}.")
    said = details.rpartition("last error: ")[2].rstrip(".")
    return Unreached("leader.none", f"nobody answers at {where}: {said}.")
