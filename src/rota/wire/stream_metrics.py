"""Metrics of streams, as a coordinator shows them: what each stream has told, by its name."""

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import Metric as Family

from rota.core.ids import Millis
from rota.wire.metrics import Labelled, Metric
from rota.wire.standings import STATES, StreamsView, StreamView

_BY_STREAM = ("tenant", "stream")
# Sorts of rows that have not gone where rows go.
ASIDE = ("late", "dead", "skipped", "refused")
# docs/reference/metrics.md is checked against this table.
STREAM_METRICS: tuple[Metric, ...] = (
    Metric("rota_streams", "gauge", ("state",), "Streams that are known here, by how they stand."),
    Metric("rota_stream_rows_total", "counter", _BY_STREAM, "Rows that were read from a stream's sources."),
    Metric("rota_stream_rounds_total", "counter", _BY_STREAM, "Rounds that were published."),
    Metric(
        "rota_stream_set_aside_rows_total",
        "counter",
        ("tenant", "stream", "sort"),
        "Rows that were late, dead letters, skipped or refused by a sink.",
    ),
    Metric("rota_stream_watermark_lag_seconds", "gauge", _BY_STREAM, "How far a stream's time is behind the clock's."),
    Metric("rota_stream_state_rows", "gauge", _BY_STREAM, "Rows of state."),
    Metric("rota_stream_state_bytes", "gauge", _BY_STREAM, "Bytes of state."),
    Metric("rota_stream_checkpoint_seconds", "gauge", _BY_STREAM, "How long the last checkpoint took."),
    Metric("rota_stream_checkpoint_age_seconds", "gauge", _BY_STREAM, "How long ago that was."),
    Metric("rota_stream_silent_seconds", "gauge", _BY_STREAM, "How long ago whoever runs it was heard from."),
)
_BY_NAME = {metric.name: metric for metric in STREAM_METRICS}


def stream_families(seen: Mapping[str, StreamsView]) -> Iterator[Family]:
    """All of them by tenant, for a registry. A stream that nothing is known of is counted, and has no numbers."""
    states: dict[tuple[str, ...], float] = {(state,): 0 for state in STATES}
    told: dict[tuple[str, str], StreamView] = {}
    going: dict[tuple[str, str], tuple[StreamView, Millis]] = {}
    for tenant, each in seen.items():
        for view in each.streams:
            states[view.state,] += 1
            # Of two with the same name the second one is broken.
            if view.told_at and view.state != "broken":
                told[tenant, view.name] = view
                if view.state in ("running", "paused", "silent"):
                    going[tenant, view.name] = (view, each.as_of)
    yield _BY_NAME["rota_streams"].family(states)
    yield _family("rows_total", {name: view.rows for name, view in told.items()})
    yield _family("rounds_total", {name: view.round for name, view in told.items()})
    yield _family(
        "set_aside_rows_total", {(*name, sort): getattr(view, sort) for name, view in told.items() for sort in ASIDE}
    )
    lags = {name: view.lag_ms / 1e3 for name, view in told.items() if view.lag_ms is not None}
    yield _family("watermark_lag_seconds", lags)
    yield _family("state_rows", {name: view.state_rows for name, view in told.items()})
    yield _family("state_bytes", {name: view.state_bytes for name, view in told.items()})
    yield _family("checkpoint_seconds", {name: view.checkpoint_ms / 1e3 for name, view in told.items()})
    published = {name: (view.published_at, now) for name, (view, now) in going.items() if view.published_at}
    yield _family("checkpoint_age_seconds", {name: max(0, now - at) / 1e3 for name, (at, now) in published.items()})
    yield _family("silent_seconds", {name: max(0, now - view.told_at) / 1e3 for name, (view, now) in going.items()})


def _family(name: str, values: Labelled) -> Family:
    return _BY_NAME[f"rota_stream_{name}"].family(values)
