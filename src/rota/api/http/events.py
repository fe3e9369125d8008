"""Server-sent events over HTTP: what happens to a run, and to all runs of a tenant."""

from collections.abc import AsyncIterator

import msgspec
from starlette.responses import Response

from rota.api.agent_scope import check_unbound
from rota.api.auth import Role
from rota.api.http.endpoints import EVENTS, Call, Endpoint
from rota.api.http.feed import Feeds, as_event
from rota.api.http.paging import is_number
from rota.api.http.runs import RUN
from rota.api.http.streams import stream
from rota.client.happenings import Happening
from rota.core.ids import Millis
from rota.wire.sse import BEAT, RETRY, event
from rota.wire.views import as_plain, shape_of

HappeningShape = shape_of(
    Happening,
    name="Happening",
    run=(str, msgspec.NODEFAULT),
    created_at=(Millis, msgspec.NODEFAULT),
)


def read_place(last_event_id: str, created_at: Millis) -> tuple[int, int] | None:
    """The commit and the number of events of it that were seen; None if the id is not one of this run's."""
    parts = last_event_id.split(".")
    if len(parts) != 3 or not all(map(is_number, parts)) or int(parts[0]) != created_at:
        return None
    return int(parts[1]), int(parts[2]) + 1


async def run_events(call: Call) -> Response:
    """What happened to a run, and what happens until it has ended."""
    check_unbound(call.who, "the events of a run")
    run = call.run
    created_at = (await run.status()).created_at
    place = read_place(call.last_event_id, created_at)

    async def events() -> AsyncIterator[bytes]:
        yield RETRY
        if call.last_event_id and place is None:
            yield event("reset", {})
        number, seen = place or (0, 0)
        async for story, happened in run.told(number - 1):
            told = [
                event("happening", as_event(story, each), f"{created_at}.{story.number}.{position}")
                for position, each in enumerate(happened)
                if story.number > number or position >= seen
            ]
            yield b"".join(told)
        yield event("end", as_plain(await run.status()))

    return stream(events(), EVENTS, call.readmit, beat=BEAT)


def endpoints(feeds: Feeds) -> tuple[Endpoint, ...]:
    """The endpoints; those of all runs read from the feeds."""

    async def all_events(call: Call) -> Response:
        check_unbound(call.who, "the events of all runs")

        async def events() -> AsyncIterator[bytes]:
            yield RETRY
            async for content in feeds.read(call.tenant, call.last_event_id):
                yield content

        return stream(events(), EVENTS, call.readmit, beat=BEAT)

    return (
        Endpoint(
            method="GET",
            path=f"{RUN}/events",
            role=Role.READER,
            serve=run_events,
            summary="Stream what happens to a run until it has ended",
            answer=HappeningShape,
            media=EVENTS,
        ),
        Endpoint(
            method="GET",
            path="/api/v1/events",
            role=Role.READER,
            serve=all_events,
            summary="Stream what happens to all runs",
            answer=HappeningShape,
            media=EVENTS,
        ),
    )
