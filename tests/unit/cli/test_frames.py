"""`rota top` as text: it fits every terminal, shows what matters first, and shows what others wrote as text."""

from typing import Any

import pytest

from rota.cli.frames import Rate, Sight, coloured, draw
from rota.core.model import Capacity, PriorityClass
from rota.core.overview import Overview, QueueLine, WaitingLine
from rota.core.questions import RunView, WorkerView
from rota.core.reasons import Reason
from rota.core.states import RunState

NOW = 1_800_000_000_000


def overview(**more: Any) -> Overview:
    given: dict[str, Any] = {
        "runs": {"running": 2, "queued": 1},
        "is_all": True,
        "waiting": (),
        "unexplained": 0,
        "queues": (),
        "leases": 3,
        "workers": {"present": 1, "away": 1},
        "slots": 8,
        "ended": {"success": 10},
        "epoch": 1,
        "as_of": NOW,
    }
    return Overview(**{**given, **more})


def a_run(id: str, **tasks: int) -> RunView:
    return RunView(
        tenant="default",
        id=id,
        name="etl",
        kind="workflow",
        graph="",
        state=RunState.RUNNING,
        priority=PriorityClass.NORMAL,
        created_at=NOW - 65_000,
        started_at=NOW - 65_000,
        ended_at=0,
        paused=False,
        reason="",
        fault="",
        schedule="",
        slot_at=0,
        parent="",
        params=b"",
        total=sum(tasks.values()),
        tasks=tasks,
        story=0,
    )


def a_worker(id: str, **more: Any) -> WorkerView:
    given: dict[str, Any] = {
        "tenant": "default",
        "id": id,
        "incarnation": "1",
        "capacity": Capacity(slots=4, kinds=("python",)),
        "present": True,
        "draining": False,
        "quarantined_until": 0,
        "seen_at": NOW - 500,
        "leases": 3,
    }
    return WorkerView(**{**given, **more})


def full(count: int = 30) -> Sight:
    why = Reason("worker.none_match", "needs gpu ≥ 8")
    return Sight(
        "data in .rota",
        overview(
            waiting=tuple(WaitingLine(reason=why, run=f"r{n}", task="t", tasks=n + 1) for n in range(count)),
            queues=(QueueLine("", 120, NOW - 90_000), QueueLine("gpu", 3, NOW)),
            unexplained=4,
        ),
        [a_run(f"etl-{n}", success=3, running=1, failed=n % 2) for n in range(count)],
        [a_worker(f"build-{n}", present=n > 1, draining=n == 3) for n in range(count)],
        12.5,
        0.5,
    )


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 10), (200, 60), (80, 5), (10, 3)])
def test_a_picture_fits_the_terminal(columns: int, rows: int):
    lines = draw(full(), columns, rows, "12:03:07")
    assert len(lines) <= rows
    assert max(map(len, lines)) <= max(columns, 40)


def test_a_small_terminal_shows_some_of_everything():
    shown = "\n".join(draw(full(), 80, 24, "12:03:07"))
    for wanted in ("12:03:07", "q quits", "2 running, 1 queued", "3 of 8 slots", "12.5 tasks/s, 0.5 failed/s"):
        assert wanted in shown
    assert "default 120 (oldest 1 min 30 s)" in shown
    assert "etl-1 " in shown and "1 failed" in shown
    assert "worker.none_match: needs gpu ≥ 8" in shown and "rota why r0 t" in shown
    assert "build-10 " in shown and "3/4" in shown
    assert "more)" in shown, "what is left out is counted"


def test_nothing_is_said_to_be_nothing():
    lines = draw(Sight("x", overview(runs={}, workers={}, leases=0, slots=0)), 80, 24, "12:03:07")
    shown = "\n".join(lines)
    assert "runs     none" in shown
    assert "nothing waits" in shown
    assert "none: start one" in shown and "`rota worker`" in shown
    assert "0 of 0 slots taken, –" in shown, "how much gets done is not known at the first look"


def test_what_others_wrote_is_shown_as_text():
    sight = Sight("x", overview(), [a_run("e\x1b[2Jvil\n", running=1)], [a_worker("w\x07")])
    assert "\x1b" not in "\n".join(draw(sight, 80, 24, "12:03:07"))


def test_colour_is_never_the_only_signal():
    strip = [line.replace("\x1b[0m", "") for line in draw(full(), 80, 24, "12:03:07", coloured)]
    plain = draw(full(), 80, 24, "12:03:07")
    assert [line.partition("m")[2] if line.startswith("\x1b[") else line for line in strip] == plain


def test_trouble_is_said_above_what_was_seen_last():
    sight = Sight("x", overview(), trouble="leader.none: nobody leads")
    assert any("! leader.none: nobody leads" in line for line in draw(sight, 80, 24, "12:03:07"))


def test_a_rate_begins_anew_with_each_reign():
    rate = Rate()
    assert rate.hear(overview()) == (None, 0.0)
    later = overview(ended={"success": 30, "failed": 4}, as_of=NOW + 2_000)
    assert rate.hear(later) == (12.0, 2.0)
    assert rate.hear(overview(epoch=2, ended={"success": 1}, as_of=NOW + 3_000)) == (None, 0.0)
    assert rate.hear(overview(epoch=2, ended={"success": 1}, as_of=NOW + 3_000)) == (None, 0.0)
