"""From what etcd and gRPC say to our words: what happened, whether it may still happen, what to do."""

from typing import Any

from msgspec import Struct

from rota.core.errors import Refused, Unavailable
from rota.wire.channels import CERTIFICATES, grpc

Code = grpc.StatusCode

FULL_HINT = (
    "Give it space: compact and defragment it, then `etcdctl alarm disarm`, or raise --quota-backend-bytes."
    " Nothing is lost meanwhile."
)
_FULL = "database space exceeded"
_NO_QUORUM = ("no leader", "request timed out", "leader changed", "not a leader")
# Ends of a call after which nothing was done and nothing will be. After any other it may have been, or may still be.
_CERTAIN = (
    Code.FAILED_PRECONDITION,
    Code.INVALID_ARGUMENT,
    Code.OUT_OF_RANGE,
    Code.PERMISSION_DENIED,
    Code.RESOURCE_EXHAUSTED,
    Code.UNAUTHENTICATED,
    Code.UNIMPLEMENTED,
)
# Said before a request is taken: by gRPC when nobody could be asked, by a member that knows of no leader.
_UNASKED = ("failed to connect", "DNS resolution failed", "etcdserver: no leader")


class Failure(Struct):
    """A call that failed. `is_certain` says that it did nothing and never will."""

    trouble: Refused | Unavailable
    is_certain: bool
    is_token_old: bool = False
    # It is over, and may have been carried out all the same.
    is_over: bool = False
    # A member said so itself, and not gRPC about one that was not reached.
    is_said: bool = False


def read_failure(error: Any, where: str) -> Failure:
    """What an `AioRpcError` means to us."""
    code, details = error.code(), str(error.details() or "")
    if code is Code.UNAVAILABLE:
        is_certain = any(words in details for words in _UNASKED)
        return Failure(_unreached(details, where), is_certain, is_said="etcdserver" in details)
    is_token_old = code is Code.UNAUTHENTICATED or "auth store is old" in details
    # The change with which etcd notices that it is full is carried out, and answered as if it were not.
    is_full = _FULL in details
    return Failure(_trouble(code, details, where), code in _CERTAIN and not is_full, is_token_old, is_full)


def _trouble(code: Any, details: str, where: str) -> Refused | Unavailable:
    if _FULL in details:
        return Unavailable("store.full", f"etcd at {where} is full. {FULL_HINT}")
    if code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED) or "authentication" in details or "user name" in details:
        return _unwelcome(code, details, where)
    if code is Code.UNIMPLEMENTED or "is too large" in details or "larger than max" in details:
        return _unfit(code, details, where)
    if code is Code.DEADLINE_EXCEEDED:
        return Unavailable("store.unavailable", f"etcd at {where} does not answer in time.")
    return Unavailable("store.unavailable", f"etcd at {where}: {code.name.lower()}: {_said(details)}.")


def _unwelcome(code: Any, details: str, where: str) -> Refused:
    if code is Code.PERMISSION_DENIED:
        hint = "Grant its role reading and writing of the whole prefix: etcdctl role grant-permission --prefix=true."
        return Refused("store.denied", f"etcd at {where} does not allow this user what is needed", hint)
    if "user name is empty" in details:
        hint = "Put them into the address: etcd://user:password@host/prefix."
        return Refused("store.denied", f"etcd at {where} asks for a user and a password", hint)
    if "authentication is not enabled" in details:
        hint = "Leave user and password out of the address, or enable authentication."
        return Refused("store.denied", f"etcd at {where} knows no users", hint)
    return Refused("store.denied", f"etcd at {where} does not accept the user or the password", "Correct the address.")


def _unfit(code: Any, details: str, where: str) -> Refused:
    if code is Code.UNIMPLEMENTED:
        hint = "Name the port for clients of an etcd 3.4 or newer, usually 2379."
        return Refused("store.foreign", f"what answers at {where} is not etcd", hint)
    hint = "Leave etcd's --max-request-bytes at its default of 1.5 MB, or set it higher."
    return Refused("store.refused", f"etcd at {where} takes only small requests: {_said(details)}", hint)


def _unreached(details: str, where: str) -> Refused | Unavailable:
    for words, meaning, hint in CERTIFICATES:
        if words in details:
            text = f"etcd at {where} is not spoken to: {meaning}"
            return Refused("tls.handshake", text, hint.replace("grpc://", "etcd://"))
    if any(words in details for words in _NO_QUORUM):
        text = f"etcd at {where} has no quorum: too few of its members are alive or reach each other."
        return Unavailable("store.unavailable", text)
    if "http1.x" in details or "http/1" in details.lower() or "expected SETTINGS" in details:
        hint = "Name the port for clients of an etcd 3.4 or newer, usually 2379."
        return Refused("store.foreign", f"what answers at {where} is not etcd", hint)
    return Unavailable("store.unavailable", f"etcd at {where} is not reached: {_said(details)}.")


def _said(details: str) -> str:
    return details.rpartition("last error: ")[2].rstrip(".")[:300]


def missing(shown: str) -> Refused:
    """The keys that were there are gone."""
    text = f"the keys of this store are gone from {shown}: they were deleted, or it is another etcd"
    hint = "Stop every coordinator. Restore etcd from its backup, or begin anew with another prefix and other blobs."
    return Refused("store.missing", text, hint)


def corrupt(what: str) -> Unavailable:
    """What was read is not what was written."""
    hint = "Restore etcd and the blobs from a backup of the same time."
    return Unavailable("store.corrupt", f"{what}. {hint}")
