"""Requests of clients and what they are answered, as bytes.

A request has a number of the client's choosing, and its answers carry it; watching is a request with many answers.
"""

from collections.abc import Generator, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from rota.core import backlog as bl
from rota.core import history as hs
from rota.core import overview as ov
from rota.core import questions as qs
from rota.core.commands import SteerStream
from rota.core.door import ClientRequest, refusal
from rota.core.errors import CODES, Refused, Unavailable
from rota.core.ids import NO_FENCE, BlobRef, Fence, Millis
from rota.core.model import Graph, Queue, Tenant
from rota.core.reasons import Reason
from rota.core.records import Story
from rota.wire import sessions as ss
from rota.wire.items import ResolveWork, SubmitWork
from rota.wire.large_requests import SMALL_BYTES_MAX, RequestHead, check_parts, decode_parts, pack_large
from rota.wire.standings import GetStream, ListStreams, StreamsView, StreamView

LENGTH_BYTES = 4
# More would take more memory to look at than to send.
BATCH_REQUESTS_MAX = 100_000
# What clients accept in one answer.
MESSAGE_BYTES_MAX = 256 * 1024 * 1024


class ReadLog(qs.Question, frozen=True, kw_only=True, tag="ReadLog"):
    """What an attempt printed, from where an earlier piece ended; attempt 0 means the newest.

    A log that breaks off without an end is followed by that of the next lease. Whoever knows that there is none yet
    does not have it looked for (`seeks`): in a bucket that takes several requests. `tail_bytes`: of a log that is
    read from its beginning only so much of its end, if it has more.
    """

    run: str
    task: str
    attempt: int = 0
    cursor: str = ""
    seeks: bool = True
    tail_bytes: int = 0


class LogPiece(Struct, frozen=True):
    """What comes next in a log, where to go on after it, and whether that was the end of what its worker wrote.

    Empty content: there is nothing new. An empty cursor: there is no log yet. `fence` is whose log it is.
    """

    content: bytes
    cursor: str
    fence: Fence = NO_FENCE
    is_complete: bool = False


class ReadLogLines(qs.Question, frozen=True, kw_only=True, tag="ReadLogLines"):
    """Lines of what an attempt printed, from line `first` on; the last lines if `first` is 0. Attempt 0 is the newest.

    `log` names one of its logs, as an earlier answer did; without it the log of the newest lease is read.
    """

    run: str
    task: str
    attempt: int = 0
    log: str = ""
    first: int = 0
    count: int = 0


class LogLines(Struct, frozen=True):
    """Lines of a log, and how many it has. There may be fewer than asked for: they are bounded in bytes, too.

    `errors` are the numbers of those that look like errors. An empty `log`: there is none yet.
    """

    log: str = ""
    total: int = 0
    first: int = 1
    lines: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()


class SearchLog(qs.Question, frozen=True, kw_only=True, tag="SearchLog"):
    """The numbers of lines that contain a text, in whatever case; without a text, of those that look like errors.

    Lines before `first` are left out.
    """

    run: str
    task: str
    attempt: int = 0
    log: str = ""
    text: str = ""
    first: int = 1
    limit: int = 1


class LogMatches(Struct, frozen=True):
    """Numbers of lines, the line from which to search on, and whether the search has come to the end of the log."""

    log: str = ""
    lines: tuple[int, ...] = ()
    next: int = 1
    is_end: bool = True


class ReadBlob(qs.Question, frozen=True, kw_only=True, tag="ReadBlob"):
    """Part of a large value. Whoever reads it whole checks it against the reference."""

    ref: BlobRef
    offset: int = 0


class PutBundle(qs.Question, frozen=True, kw_only=True, tag="PutBundle"):
    """Keep a bundle, and say how a graph refers to it; one that is there already is left as it is."""

    sha256: str
    content: bytes


class FindBundle(qs.Question, frozen=True, kw_only=True, tag="FindBundle"):
    """How a graph refers to a bundle of that size; None if it has to be put first."""

    sha256: str
    size: int


class AwaitRun(qs.Question, frozen=True, kw_only=True, tag="AwaitRun"):
    """How a live run stands, as soon as it has ended. The answer may take as long as the run does.

    With `abandon_ms` the run is for whoever waits: if they go, and do not wait again for so long, it is cancelled.
    """

    run: str
    abandon_ms: int = 0


class GetService(qs.Question, frozen=True, kw_only=True, tag="GetService"):
    """What a client or worker should know of the service before it begins."""


class ServiceView(Struct, frozen=True, kw_only=True):
    """The version it runs, and where it keeps logs and large values: `home` is what is written there to know it by.

    `cluster` is the id that workers of this service name; empty if the service is of an older version.
    """

    version: str
    blobs: str
    home: str
    cluster: str = ""


class InspectService(qs.Question, frozen=True, kw_only=True, tag="InspectService"):
    """What goes on inside the coordinator's process, for whoever has to find out what is wrong with it."""


class ServiceInside(Struct, frozen=True, kw_only=True):
    """Its process, what it said last, what it has counted, and where each of its threads and tasks is just now.

    There are no values of variables in it, and what it said was written without secrets.
    """

    pid: int
    version: str
    python: str
    role: str
    epoch: int
    memory_bytes_max: int
    journal: tuple[str, ...] = ()
    metrics: str = ""
    threads: dict[str, str] = {}
    tasks: tuple[str, ...] = ()


AnyQuestion = (
    ss.SessionRequest
    | SubmitWork
    | ResolveWork
    | bl.GetScheduler
    | bl.ListBacklog
    | ov.GetOverview
    | qs.GetRun
    | qs.ListRuns
    | qs.ListTasks
    | qs.SumTasks
    | qs.ListWorkers
    | qs.ListQueues
    | qs.ListPools
    | qs.ListTenants
    | qs.GetWorkflow
    | qs.ListWorkflows
    | qs.ListBackfills
    | qs.PreviewClear
    | qs.ExplainTask
    | hs.HistoryQuery
    | hs.GetEnded
    | hs.ListAudits
    | hs.GetGraph
    | hs.GetStories
    | ReadLog
    | ReadLogLines
    | SearchLog
    | ReadBlob
    | PutBundle
    | FindBundle
    | GetService
    | InspectService
    | AwaitRun
    | ListStreams
    | GetStream
)


class Watch(Struct, frozen=True, tag="Watch"):
    """Tell me what happens to a run; to every run of the tenant if none is named."""

    tenant: str
    run: str


class Forget(Struct, frozen=True, tag="Forget"):
    """Nobody waits for the answers to request `number` any more, be it a watching or a question."""

    number: int


RequestBody = ClientRequest | AnyQuestion | Watch | Forget


class Request(Struct, frozen=True, array_like=True):
    """From a client."""

    number: int
    body: RequestBody


class Trouble(Struct, frozen=True, array_like=True):
    """A refusal, or that nobody can answer now."""

    code: str
    reason: str
    hint: str = ""
    path: str = ""
    # Zero means refused: trying again does not help.
    retry_after_ms: int = 0
    # Where to ask instead.
    grpc: str = ""
    http: str = ""


class Response(Struct, frozen=True, array_like=True):
    """To a client: the answer to request `number`, or trouble. `more`: another one will follow."""

    number: int
    answer: bytes = b""
    trouble: Trouble | None = None
    more: bool = False


_ANSWERS: dict[type, Any] = {
    ss.RegisterSession: ss.SessionView,
    ss.BeatSession: tuple[Fence, ...],
    ss.EndSession: None,
    ss.AwaitWake: ss.WakeView | None,
    ss.ClaimWork: tuple[ss.WorkLease, ...],
    ss.RenewWork: Millis,
    ss.FinishWork: None,
    SubmitWork: str,
    ResolveWork: str,
    bl.GetScheduler: bl.SchedulerView,
    bl.ListBacklog: tuple[bl.BacklogLine, ...],
    ov.GetOverview: ov.Overview,
    qs.GetRun: qs.RunView,
    qs.ListRuns: qs.RunsPage,
    qs.ListTasks: qs.TasksPage,
    qs.SumTasks: dict[str, qs.TaskSum],
    qs.ListWorkers: tuple[qs.WorkerView, ...],
    qs.ListQueues: tuple[Queue, ...],
    qs.ListPools: tuple[qs.PoolView, ...],
    qs.ListTenants: tuple[Tenant, ...],
    qs.GetWorkflow: qs.WorkflowView,
    qs.ListWorkflows: tuple[qs.WorkflowView, ...],
    qs.ListBackfills: tuple[qs.BackfillView, ...],
    qs.PreviewClear: tuple[str, ...],
    qs.ExplainTask: tuple[Reason, ...],
    hs.HistoryQuery: hs.Page,
    hs.GetEnded: hs.Ended | None,
    hs.ListAudits: hs.AuditsPage,
    hs.GetGraph: Graph,
    hs.GetStories: list[Story],
    ReadLog: LogPiece,
    ReadLogLines: LogLines,
    SearchLog: LogMatches,
    ReadBlob: bytes,
    InspectService: ServiceInside,
    PutBundle: BlobRef,
    FindBundle: BlobRef | None,
    GetService: ServiceView,
    AwaitRun: qs.RunView,
    ListStreams: StreamsView,
    GetStream: StreamView,
    SteerStream: StreamView,
    Watch: list[Story],
}
_encode = msgspec.msgpack.Encoder().encode
# How much of a text is shown that cannot be sent.
_SHOWN_CHARS = 100
_request = msgspec.msgpack.Decoder(Request)
_body = msgspec.msgpack.Decoder(RequestBody)
_response = msgspec.msgpack.Decoder(Response)
_responses = msgspec.msgpack.Decoder(list[Response])
_batch = msgspec.msgpack.Decoder(Annotated[list[msgspec.Raw], msgspec.Meta(max_length=BATCH_REQUESTS_MAX)])


def pack(message: Request | Response) -> bytes:
    """A request or response as bytes; a large request in parts."""
    try:
        content = _encode(message)
        if isinstance(message, Request) and len(content) > SMALL_BYTES_MAX:
            return pack_large(message.number, message.body) or content
        return content
    except UnicodeEncodeError as error:
        # Such as a word of a command line, which may be any bytes.
        text = f"{error.object[:_SHOWN_CHARS]!a} is not UTF-8"
        raise Refused("field.value", text, "Give a name that is.") from None


def pack_message(message: Request | Response) -> bytes:
    """A message with its length in front."""
    content = pack(message)
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


def read_request(content: bytes | memoryview | msgspec.Raw) -> Request:
    """What a client asks. Shape is checked here, once."""
    try:
        return _request.decode(content)
    except msgspec.ValidationError as error:
        found = refusal(str(error))
        # What is wrong is told by its place in the body, which is the second part of a request.
        found.path = found.path.removeprefix("[1]").removeprefix(".")
        raise found from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("field.type", f"this is no request: {error}") from None


def read_large_request(head: RequestHead) -> Generator[None, None, Request]:
    """What a client asks in a request with parts, one part at each step."""
    check_parts(head)
    try:
        # What is wrong with the body is told before its parts are looked at.
        body = _body.decode(head.body)
        if head.parts:
            join = yield from decode_parts(head)
            body = join(body)
    except msgspec.ValidationError as error:
        raise refusal(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("field.type", f"this is no request: {error}") from None
    return Request(head.number, body)


def read_response(content: bytes) -> Response:
    """What a client is told."""
    return _response.decode(content)


def pack_batch(parts: Sequence[bytes]) -> bytes:
    """Several packed requests or responses as one message."""
    return _encode([msgspec.Raw(part) for part in parts])


def split_batch(content: bytes) -> list[msgspec.Raw]:
    """What is in such a message, each still to be read by itself."""
    try:
        return _batch.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused("field.type", f"this is no list of requests: {error}") from None


def read_responses(content: bytes) -> list[Response]:
    """What a client is told, several at once."""
    return _responses.decode(content)


def answered(number: int, value: object, *, more: bool = False) -> Response:
    """An answer as a message."""
    return Response(number, _encode(value), more=more)


def trouble_of(error: Refused | Unavailable) -> Trouble:
    """Trouble as it travels."""
    if isinstance(error, Refused):
        return Trouble(error.code, error.reason, error.hint, error.path)
    wait_ms = max(1, error.retry_after_ms)
    return Trouble(error.code, error.reason, retry_after_ms=wait_ms, grpc=error.grpc, http=error.http)


def error_of(trouble: Trouble) -> Refused | Unavailable:
    """Trouble as it is raised."""
    # A server of a later version may know codes that we do not.
    code = trouble.code if trouble.code in CODES else "store.unavailable"
    if trouble.retry_after_ms:
        return Unavailable(
            code, trouble.reason, retry_after_ms=trouble.retry_after_ms, grpc=trouble.grpc, http=trouble.http
        )
    return Refused(code, trouble.reason, trouble.hint, path=trouble.path)


def troubled(number: int, error: Refused | Unavailable) -> Response:
    """Trouble as a message."""
    return Response(number, trouble=trouble_of(error))


def open_answer(request: object, response: Response) -> Any:
    """The value in an answer. Raises the trouble in it."""
    if response.trouble is not None:
        raise error_of(response.trouble)
    return msgspec.msgpack.decode(response.answer, type=_ANSWERS.get(type(request), str))
