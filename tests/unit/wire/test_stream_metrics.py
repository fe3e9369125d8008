"""Metrics of streams: what is shown of which."""

from rota.wire.standings import StreamsView, StreamView
from rota.wire.stream_metrics import STREAM_METRICS, stream_families

NOW = 1_700_000_000_000


def samples(*views: StreamView) -> dict[str, dict[tuple[str, ...], float]]:
    families = stream_families({"acme": StreamsView(as_of=NOW, streams=views)})
    return {each.name: {tuple(sample.labels.values()): sample.value for sample in each.samples} for each in families}


def view(name: str, state: str, **more) -> StreamView:
    return StreamView(name=name, folder=f"/s/{name}", state=state, **more)


def test_every_metric_is_made_also_without_streams():
    assert len(samples()) == len(STREAM_METRICS)
    assert sum(samples()["rota_streams"].values()) == 0


def test_a_stream_has_its_numbers_in_seconds():
    found = samples(
        view(
            "s",
            "running",
            told_at=NOW - 500,
            rows=9,
            round=3,
            lag_ms=2_500,
            late=4,
            published_at=NOW - 750,
            checkpoint_ms=12.5,
            state_rows=5,
            state_bytes=6,
        )
    )
    assert found["rota_streams"]["running",] == 1
    assert found["rota_stream_rows"] == {("acme", "s"): 9}
    assert found["rota_stream_rounds"] == {("acme", "s"): 3}
    assert found["rota_stream_set_aside_rows"] == {
        ("acme", "s", "late"): 4,
        ("acme", "s", "dead"): 0,
        ("acme", "s", "skipped"): 0,
        ("acme", "s", "refused"): 0,
    }
    assert found["rota_stream_watermark_lag_seconds"] == {("acme", "s"): 2.5}
    assert found["rota_stream_checkpoint_seconds"] == {("acme", "s"): 0.0125}
    assert found["rota_stream_checkpoint_age_seconds"] == {("acme", "s"): 0.75}
    assert found["rota_stream_silent_seconds"] == {("acme", "s"): 0.5}


def test_one_that_has_ended_is_not_silent_and_what_cannot_be_read_has_no_numbers():
    ended = view("ended", "stopped", told_at=NOW - 10**9, published_at=1)
    broken = view("ended", "broken", told_at=NOW)
    found = samples(ended, broken, view("new", "new"))
    assert found["rota_stream_silent_seconds"] == found["rota_stream_checkpoint_age_seconds"] == {}
    assert list(found["rota_stream_rows"]) == [("acme", "ended")]
    assert (found["rota_streams"]["broken",], found["rota_streams"]["new",]) == (1, 1)
