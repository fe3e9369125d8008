"""What the first page is made of: how things went, small charts, and where reasons lead."""

import pytest

from rota.core.overview import Overview, QueueLine
from rota.core.reasons import Reason, reason
from rota.ui.charts import BARS, WIDTH, ages, throughput
from rota.ui.holders import holders_of
from rota.ui.trend import STEP_MS, STEPS_KEPT, Trend

MINUTE_MS = 60_000


def overview(at: int, success: int = 0, failed: int = 0, oldest_at: int = 0, epoch: int = 1) -> Overview:
    return Overview(
        runs={},
        is_all=True,
        waiting=(),
        unexplained=0,
        queues=(QueueLine("default", 3, oldest_at),) if oldest_at else (),
        leases=0,
        workers={},
        slots=0,
        ended={"success": success, "failed": failed},
        epoch=epoch,
        as_of=at,
    )


def test_a_trend_is_what_ended_between_one_look_and_the_next():
    trend = Trend()
    trend.hear(overview(0, success=100))
    trend.hear(overview(STEP_MS // 2, success=150))
    trend.hear(overview(STEP_MS, success=160, failed=3, oldest_at=4_000))
    assert [(step.well, step.badly) for step in trend.steps] == [(0, 0), (60, 3)]
    assert (trend.steps[-1].queued, trend.steps[-1].waited_ms) == (3, STEP_MS - 4_000)


def test_a_new_reign_counts_anew_and_nothing_goes_backwards():
    trend = Trend()
    trend.hear(overview(0, success=100))
    trend.hear(overview(STEP_MS, success=5, epoch=2))
    trend.hear(overview(2 * STEP_MS, success=9, epoch=2))
    assert [step.well for step in trend.steps] == [0, 0, 4]


def test_a_trend_is_bounded():
    trend = Trend()
    for number in range(STEPS_KEPT + 50):
        trend.hear(overview(number * STEP_MS))
    assert len(trend.steps) == STEPS_KEPT


def test_charts_show_the_last_hour_and_nothing_outside_themselves():
    trend = Trend()
    for number in range(3 * STEPS_KEPT):
        trend.hear(overview(number * STEP_MS, success=number * number, oldest_at=max(1, number * STEP_MS - 90_000)))
    now = 3 * STEPS_KEPT * STEP_MS
    bars = throughput(trend.steps, now).bars
    assert len(bars) <= BARS
    assert all(0 <= bar.x <= bar.x + bar.width <= WIDTH and bar.well + bar.badly <= 56 for bar in bars)
    line = ages(trend.steps, now)
    assert (line.last, line.most) == ("1 min 30 s", "1 min 30 s")
    assert all(0 <= float(pair.partition(",")[0]) <= WIDTH for pair in line.line.split())


def test_charts_of_nothing_are_empty():
    assert throughput((), MINUTE_MS).bars == []
    assert ages((), MINUTE_MS).area == ""


@pytest.mark.parametrize(
    ("given", "urls"),
    [
        (reason("pool.full", "", pool="gpu/a"), ["/queues#pool-gpu%2Fa"]),
        (reason("pool.full", "", pool="@graph"), []),
        (reason("queue.gone", "", queue="q"), ["/queues#queue-q"]),
        (reason("worker.busy", "", workers=1, worker="w 1"), ["/workers/w%201"]),
        (reason("workflow.paused", "", workflow="etl"), ["/workflows/etl"]),
        (reason("run.paused", "", run="here"), []),
        (reason("run.paused", "", run="above"), ["/runs/above"]),
        (reason("past.waiting", "", run="before", task="a"), ["/runs/before", "/runs/before/tasks/a"]),
        (reason("run.queued", "", run="here", graph="etl"), ["/runs?name=etl&state=queued&state=running"]),
        (
            Reason("upstream.waiting", "", (("rule", "all_success"), ("task", "a"), ("task", "b[1]"))),
            ["/runs/here/tasks/a", "/runs/here/tasks/b%5B1%5D"],
        ),
        (reason("attention.parked", "", task="a"), []),
        (reason("order.turn", "pool evil"), []),
    ],
)
def test_a_reason_leads_to_what_it_names_and_not_to_what_it_says(given: Reason, urls: list[str]):
    assert [holder.url for holder in holders_of(given, "here")] == urls
