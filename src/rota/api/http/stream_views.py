"""Streams over HTTP: how each stands, and what is asked of it. (`streams` is about answers that go on.)"""

from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import Response

from rota.api.auth import Role
from rota.api.http.bodies import EmptyBody
from rota.api.http.endpoints import Call, Endpoint, Serve, reply
from rota.core.commands import SteerStream
from rota.core.ids import CommandId
from rota.wire.standings import StreamsView, StreamView
from rota.wire.views import as_plain, shape_of

STREAMS = "/api/v1/streams"
STREAM = f"{STREAMS}/{{stream}}"

StreamShape = shape_of(StreamView)

Word = Annotated[str, Meta(min_length=1, max_length=100)]


class StreamsAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The streams in the folders that the coordinator knows; `left_out`: how many more there are."""

    streams: list[StreamShape]  # pyright: ignore[reportInvalidTypeForm] - made from the view's own fields
    folders: list[str]
    left_out: int


class SavepointBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the savepoint is called, and whether the stream stops after it."""

    name: Word
    stop: bool = False


class RestoreBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of a round that can be gone on from, or the name of a savepoint."""

    round: Word


async def list_streams(call: Call) -> Response:
    """All of them."""
    found: StreamsView = await call.client.streams()
    streams = [as_plain(each) for each in found.streams]
    return reply({"streams": streams, "folders": found.folders, "left_out": found.left_out})


async def get_stream(call: Call) -> Response:
    """One of them."""
    return reply(await call.client.stream(call.path["stream"]))


async def pause_stream(call: Call) -> Response:
    """Have it stand still."""
    return await _steer(call, "pause")


async def resume_stream(call: Call) -> Response:
    """Let it go on."""
    return await _steer(call, "resume")


async def save_stream(call: Call) -> Response:
    """Have a round kept."""
    body: SavepointBody = call.body
    return await _steer(call, "savepoint", body.name, stop=body.stop)


async def restore_stream(call: Call) -> Response:
    """Have it go on from another round."""
    body: RestoreBody = call.body
    return await _steer(call, "restore", body.round)


async def _steer(call: Call, verb: str, which: str = "", *, stop: bool = False) -> Response:
    command = SteerStream(
        tenant=call.tenant,
        command_id=CommandId(call.command_id),
        stream=call.path["stream"],
        verb=verb,
        which=which,
        stop=stop,
    )
    return reply(await call.client.ask(command))


def _read(path: str, serve: Serve, summary: str, answer: type[Struct]) -> Endpoint:
    return Endpoint(method="GET", path=path, role=Role.READER, serve=serve, summary=summary, answer=answer)


def _ask(verb: str, serve: Serve, summary: str, body: type[Struct] = EmptyBody) -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"{STREAM}/{verb}",
        role=Role.WRITER,
        serve=serve,
        summary=summary,
        answer=StreamShape,
        body=body,
    )


ENDPOINTS: tuple[Endpoint, ...] = (
    _read(STREAMS, list_streams, "List streams, and how each stands", StreamsAnswer),
    _read(STREAM, get_stream, "Show a stream", StreamShape),
    _ask("pause", pause_stream, "Have a stream stand still after its round"),
    _ask("resume", resume_stream, "Let a stream go on"),
    _ask("savepoint", save_stream, "Have a stream's last round kept under a name", SavepointBody),
    _ask("restore", restore_stream, "Have a stream go on from an older round or a savepoint", RestoreBody),
)
