"""What user code may know and raise."""

import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

import rota
from rota.running import Entered


def some_context() -> rota.Context:
    return rota.Context(tenant="acme", run="run", task="task", attempt=1, fence=42, packed=b"\x81\xa3day\x01")


def test_there_is_no_context_outside_an_attempt() -> None:
    with pytest.raises(LookupError, match=r"rota\.context\(\)"):
        rota.context()


@pytest.mark.parametrize("owns_process", [True, False])
def test_a_context_is_seen_inside_only(owns_process: bool) -> None:
    seen: list[bool] = []

    def look() -> None:
        try:
            seen.append(rota.context().fence == 42)
        except LookupError:
            seen.append(False)

    with Entered(some_context(), owns_process=owns_process):
        assert rota.context().params == {"day": 1}
        assert "run/task#1" in repr(rota.context())
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert seen == [owns_process]
    with pytest.raises(LookupError):
        rota.context()


def test_a_context_knows_its_time_and_its_run() -> None:
    at = 1_794_830_400_000
    fields = {"tenant": "acme", "run": "r", "task": "t", "attempt": 1, "fence": 1, "logical_at": at}
    here = rota.Context(**fields, zone="Australia/Lord_Howe", deadline_at=time.time_ns() // 1_000_000 + 60_000)
    assert here.logical_date.isoformat() == "2026-11-16T23:00:00+11:00"
    assert rota.Context(**fields).logical_date == datetime(2026, 11, 16, 12, tzinfo=UTC)
    assert here.remaining_s is not None
    assert 50 < here.remaining_s <= 60
    assert rota.Context(**fields).remaining_s is None
    assert rota.Context(**fields, deadline_at=1).remaining_s == 0


def test_a_request_to_stop_is_seen_and_waited_for() -> None:
    cancelled = some_context().cancelled
    assert not cancelled.is_set()
    assert not cancelled.wait(0.01)
    threading.Thread(target=cancelled.set).start()
    assert cancelled.wait(30)
    assert cancelled.is_set()
    cancelled.set()
    assert cancelled.is_set(), "once asked is asked"


def test_who_watches_for_a_request_is_told_once() -> None:
    told: list[object] = []
    here = rota.Context(tenant="a", run="r", task="t", attempt=1, fence=1, watch=told.append)
    assert told == []
    assert here.cancelled is here.cancelled
    assert told == [here.cancelled]


def test_a_logger_writes_to_what_stderr_is_now(capsys: pytest.CaptureFixture[str]) -> None:
    some_context().log.info("seen %s", 5)
    some_context().log.debug("not seen")
    assert capsys.readouterr().err.endswith(" INFO seen 5\n")


def test_a_request_has_one_body_and_plain_parts() -> None:
    asked = rota.Request("post", "https://example.org", json={"a": 1}, headers={"X": 5})  # pyright: ignore[reportArgumentType] - a number is common
    assert asked.plain() == {
        "method": "POST",
        "url": "https://example.org",
        "headers": {"X": "5", "Content-Type": "application/json"},
        "body": b'{"a":1}',
        "accepted": [200, 201, 202, 204],
    }
    with pytest.raises(TypeError, match="one body"):
        rota.Request("POST", "https://example.org", json=1, body="x")
    with pytest.raises(TypeError, match="JSON"):
        rota.Request("POST", "https://example.org", json=object())


def test_when_to_come_back() -> None:
    now = 1_000_000
    assert rota.Reschedule(2.5).resume_at(now) == 1_002_500
    assert rota.Reschedule(timedelta(minutes=1)).resume_at(now) == 1_060_000
    assert rota.Reschedule(-5).resume_at(now) == now
    assert rota.Reschedule(at=datetime(1970, 1, 1, 0, 20, tzinfo=UTC)).resume_at(now) == 1_200_000
    with pytest.raises(ValueError, match="time zone"):
        rota.Reschedule(at=datetime(2030, 1, 1))  # noqa: DTZ001 - the mistake that is refused


def test_importing_rota_imports_next_to_nothing() -> None:
    code = "import sys; before = set(sys.modules); import rota; print(*sorted(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = ("msgspec", "asyncio", "cloudpickle", "obstore", "datetime")
    assert [name for name in heavy if name in run.stdout.split()] == []
