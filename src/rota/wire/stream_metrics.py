"""Metrics of streams, as a coordinator shows them: what each stream has told, by its name."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric as Family

from rota.wire.metrics import Labelled, Metric
from rota.wire.standings import STATES, StreamsView

_BY_STREAM = ("stream",)
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
        ("stream", "sort"),
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


def stream_families(seen: StreamsView) -> Iterator[Family]:
    """All of them, for a registry. A stream that nothing is known of is counted, and has no numbers."""
    states: dict[tuple[str, ...], float] = {(state,): 0 for state in STATES}
    for view in seen.streams:
        states[view.state,] += 1
    yield _BY_NAME["rota_streams"].family(states)
    # Of two with the same name the second one is broken.
    told = [view for view in seen.streams if view.told_at and view.state != "broken"]
    yield _family("rows_total", {view.name: view.rows for view in told})
    yield _family("rounds_total", {view.name: view.round for view in told})
    aside = {(view.name, sort): getattr(view, sort) for view in told for sort in ASIDE}
    yield _BY_NAME["rota_stream_set_aside_rows_total"].family(aside)
    lags = {view.name: view.lag_ms / 1e3 for view in told if view.lag_ms is not None}
    yield _family("watermark_lag_seconds", lags)
    yield _family("state_rows", {view.name: view.state_rows for view in told})
    yield _family("state_bytes", {view.name: view.state_bytes for view in told})
    yield _family("checkpoint_seconds", {view.name: view.checkpoint_ms / 1e3 for view in told})
    going = [view for view in told if view.state in ("running", "paused", "silent")]
    ages = {view.name: max(0, seen.as_of - view.published_at) / 1e3 for view in going if view.published_at}
    yield _family("checkpoint_age_seconds", ages)
    yield _family("silent_seconds", {view.name: max(0, seen.as_of - view.told_at) / 1e3 for view in going})


def _family(name: str, values: dict[str, float]) -> Family:
    labelled: Labelled = {(stream,): value for stream, value in values.items()}
    return _BY_NAME[f"rota_stream_{name}"].family(labelled)
