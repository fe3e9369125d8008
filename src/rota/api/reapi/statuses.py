"""Trouble as the Remote Execution API tells it: a status, with details that a client can act on."""

from collections.abc import Iterable
from itertools import islice

from google.protobuf.duration_pb2 import Duration
from google.rpc import (  # pyright: ignore[reportMissingTypeStubs] - they are there, only not marked as such
    code_pb2,
    error_details_pb2,
    status_pb2,
)

from rota.core.errors import Refused, Unavailable
from rota.core.ids import Digest
from rota.ports import ContentFull, ContentLost, WrongContent
from rota.wire.channels import status_of
from rota.wire.reapi.names import blob_name

OK = status_pb2.Status()
TEXT_CHARS_MAX = 1_000
# A status travels as a header, and a client takes eight kilobytes of those.
TOLD_MAX = 30
# What a client looks for: whatever is named like this it sends again, and tries once more.
_MISSING = "MISSING"


class MissingContent(Refused):
    """Content that something else needs is not there; a client that is told which sends it."""

    def __init__(self, what: str, digests: Iterable[Digest]) -> None:
        self.digests = list(digests)
        some = ", ".join(blob_name("", digest) for digest in self.digests[:3])
        more = f" and {len(self.digests) - 3:,} more" if len(self.digests) > 3 else ""
        super().__init__("content.incomplete", f"{what} needs content that is not there: {some}{more}")


def refusal_of(error: WrongContent | ContentLost | ContentFull, what: str) -> Refused:
    """What a store of content says, as its caller is told."""
    match error:
        case WrongContent():
            return Refused("content.wrong", f"{what} is not what its digest says: {error}")
        case ContentLost():
            return Refused("content.missing", f"{what} is not here")
        case ContentFull():
            return Refused("content.full", f"there is no room for {what}", "Wait until builds have ended.")


def as_status(trouble: Refused | Unavailable, told_max: int | None = None) -> status_pb2.Status:
    """Trouble as a message. `told_max` is how many missing things are named at most."""
    code = code_pb2.Code.Value(status_of(trouble).name)
    status = status_pb2.Status(code=code, message=str(trouble)[:TEXT_CHARS_MAX])
    if isinstance(trouble, MissingContent):
        failure = error_details_pb2.PreconditionFailure()
        for digest in islice(trouble.digests, told_max):
            failure.violations.add(type=_MISSING, subject=blob_name("", digest))
        status.details.add().Pack(failure)
    elif isinstance(trouble, Unavailable):
        delay = Duration()
        delay.FromMilliseconds(trouble.retry_after_ms)
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status
