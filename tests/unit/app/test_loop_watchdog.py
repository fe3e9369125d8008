"""The watchdog of the event loop: a turn that lasts too long is reported with its cause, and a short one is not."""

import asyncio
import threading
import time
from collections.abc import Callable
from functools import cache

import pytest

from rota.app.loop_watchdog import TURN_MS_MAX, LoopWatchdog, Pause, PauseLog
from rota.control.events import Level, Tell

PATIENCE_S = 20.0
# Far above the bound, so that a busy machine cannot hide it.
STALL_S = 0.5


def stall_in_python() -> None:
    end = time.monotonic() + STALL_S
    while time.monotonic() < end:
        pass


def stall_in_one_call() -> None:
    """One single call that does not let go of the interpreter."""
    sum(numbers_for(STALL_S))


@cache
def numbers_for(seconds: float) -> range:
    """As many as take so long to be added up in one call, at least."""
    count = 1_000_000
    began = time.thread_time()
    sum(range(count))
    return range(round(count * seconds / (time.thread_time() - began)))


def stall_asleep() -> None:
    threading.Event().wait(STALL_S)


def watched(work: Callable[[], None], *, elsewhere: bool = False) -> list[Pause]:
    """The pauses that were told of while a task of this name did this, on the loop or in another thread."""
    pauses: list[Pause] = []
    told = threading.Event()

    def report(pause: Pause) -> None:
        pauses.append(pause)
        told.set()

    async def run() -> None:
        watchdog = LoopWatchdog(report)
        watchdog.start()

        async def culprit() -> None:
            if elsewhere:
                await asyncio.to_thread(work)
            else:
                work()

        await asyncio.create_task(culprit(), name="the culprit")
        async with asyncio.timeout(PATIENCE_S):
            while not told.is_set():
                await asyncio.sleep(0.01)
        watchdog.stop()
        assert watchdog.longest_ms >= TURN_MS_MAX

    asyncio.run(run())
    return pauses


@pytest.mark.parametrize("work", [stall_in_python, stall_in_one_call, stall_asleep], ids=lambda work: work.__name__)
def test_a_stalled_turn_is_reported_with_the_function_that_stalled_it(work: Callable[[], None]):
    worst = max(watched(work), key=lambda pause: pause.pause_ms)
    assert worst.pause_ms >= TURN_MS_MAX
    assert work.__name__ in worst.cause
    assert worst.task == "the culprit"


def test_one_call_is_measured_whole_whenever_it_begins():
    """The watchdog's thread cannot run during the call; wherever it was before, the pause is the call's."""
    numbers_for(STALL_S)
    for _ in range(3):
        worst = max(watched(stall_in_one_call), key=lambda pause: pause.pause_ms)
        assert worst.cpu_ms >= STALL_S * 1000 / 2


def test_one_call_in_another_thread_is_a_pause_in_which_the_loop_computed_nothing():
    numbers_for(STALL_S)
    worst = max(watched(stall_in_one_call, elsewhere=True), key=lambda pause: pause.pause_ms)
    assert worst.pause_ms >= STALL_S * 1000 / 2
    assert worst.cpu_ms < STALL_S * 1000 / 4


def test_an_idle_loop_pauses_nowhere_and_the_watchdog_costs_little():
    pauses: list[Pause] = []

    async def run() -> float:
        watchdog = LoopWatchdog(pauses.append)
        watchdog.start()
        began = time.process_time()
        await asyncio.sleep(0.5)
        watchdog.stop()
        return time.process_time() - began

    assert asyncio.run(run()) < 0.1
    assert [pause for pause in pauses if pause.cpu_ms >= TURN_MS_MAX] == []


def test_computing_is_told_from_waiting():
    assert max(pause.cpu_ms for pause in watched(stall_in_python)) >= TURN_MS_MAX
    assert max(pause.cpu_ms for pause in watched(stall_asleep)) < STALL_S * 1000 / 2


def test_a_loop_that_is_closed_ends_the_watchdog():
    watchdog = LoopWatchdog(lambda pause: None)

    async def run() -> None:
        watchdog.start()

    asyncio.run(run())
    assert watchdog._thread is not None
    watchdog._thread.join(PATIENCE_S)
    assert not watchdog._thread.is_alive()


def test_pauses_are_told_to_the_journal_and_many_of_them_once():
    told: list[Tell] = []

    log = PauseLog(told.append)
    for _ in range(5):
        log(Pause(pause_ms=150, cpu_ms=140, task="GET /", cause="core/graph.py:1 check_graph"))
    (line,) = told
    assert (line.what, line.level) == ("loop.paused", Level.WARNING)
    assert dict(line.about) == {
        "pause_ms": "150",
        "cpu_ms": "140",
        "task": "GET /",
        "cause": "core/graph.py:1 check_graph",
    }
