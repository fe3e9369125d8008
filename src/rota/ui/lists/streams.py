"""Streams: those that the coordinator knows and how each stands; and one of them, with its last hour."""

from itertools import pairwise
from typing import Any

from rota.core.ids import Millis
from rota.core.spans import show_span
from rota.ui.acts.streams import stream_offers
from rota.ui.charts import Line, trace
from rota.ui.lists.listed import Listed
from rota.ui.visits import Visit
from rota.ui.words import command
from rota.wire.standings import STATES, StreamsView, StreamView

# Streams say how they stand about once a second.
LOOK_EVERY_S = 2.0
# A state that is not known here is one that somebody should see.
_RANKS = {state: rank for rank, state in enumerate(STATES)}
FRAGMENTS = ("head", "numbers", "progress", "counts", "checkpoints", "kept")


async def read_streams(visit: Visit) -> dict[str, Any]:
    """All of them; those that somebody should see come first."""
    found: StreamsView = await visit.client.streams()
    streams = sorted(found.streams, key=lambda view: (_RANKS.get(view.state, -1), view.name))
    return {
        "streams": streams,
        "folders": found.folders,
        "left_out": found.left_out,
        "rows_per_s": sum(view.rows_per_s for view in streams),
        "cli": command("stream", "list"),
    }


async def read_one(visit: Visit) -> dict[str, Any]:
    """One of them."""
    view: StreamView = await visit.client.stream(visit.path["stream"])
    return {
        "stream": view,
        "rates": rates(view, visit.now),
        "lags": lags(view, visit.now),
        "offers": stream_offers(visit, view),
        "cli": command("stream", "show", view.name),
    }


def rates(view: StreamView, now: Millis) -> Line:
    """Rows a second, over the time since the step before; and as it is now."""
    values = [
        (step.at, round(step.rows * 1_000 / max(1, step.at - before.at))) for before, step in pairwise(view.steps)
    ]
    if view.rows_per_s:
        values.append((now, round(view.rows_per_s)))
    return trace(values, now, lambda rows: f"{rows:,}")


def lags(view: StreamView, now: Millis) -> Line:
    """How far it was behind at each step, and is now."""
    values = [(step.at, step.lag_ms) for step in view.steps if step.lag_ms is not None]
    if view.lag_ms is not None:
        values.append((now, view.lag_ms))
    return trace(values, now, show_span)


STREAMS = Listed(
    path="/streams",
    summary="Streams, and how each stands",
    template="streams.html",
    fragments={"streams": "streams_table.html"},
    read=read_streams,
    every_s=LOOK_EVERY_S,
)
STREAM = Listed(
    path="/streams/{stream}",
    summary="A stream",
    template="stream.html",
    fragments={name: f"stream_{name}.html" for name in FRAGMENTS},
    read=read_one,
    every_s=LOOK_EVERY_S,
)
