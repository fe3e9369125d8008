"""What user code may know and raise."""

import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest

import rota
from rota.running import Entered


def some_context() -> rota.Context:
    return rota.Context(tenant="acme", run="run", task="task", attempt=1, fence=42, packed=b"\x81\xa3day\x01")


def test_there_is_no_context_outside_an_attempt() -> None:
    with pytest.raises(LookupError, match="no attempt is running here"):
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
