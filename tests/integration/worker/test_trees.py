"""Whole trees are killed, whoever forked how often and hid where; seen through /proc."""

import asyncio
from pathlib import Path

import pytest

from rota.core.model import FailureClass
from tests.integration.worker.stage import Stage, staged, told, value_of


async def cancelled(attempt: "asyncio.Task[object]") -> None:
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt


@staged()
async def test_cancelling_kills_grandchildren_that_hid(stage: Stage) -> None:
    fifo = stage.fifo()
    attempt = asyncio.create_task(stage.call("family", fifo))
    await told(fifo)
    assert len(stage.left()) >= 9
    await cancelled(attempt)
    assert stage.left() == []


@staged()
async def test_running_out_of_time_kills_grandchildren_that_hid(stage: Stage) -> None:
    fifo = stage.fifo()
    attempt = asyncio.create_task(stage.call("family", fifo, timeout_ms=5_000))
    await told(fifo)
    over = await attempt
    assert over.failure is FailureClass.TIMEOUT
    assert stage.left() == []


@staged()
async def test_an_attempt_that_returns_takes_its_family_with_it(stage: Stage) -> None:
    fifo = stage.fifo()
    attempt = asyncio.create_task(stage.call("family", fifo, False))
    await told(fifo)
    assert value_of(await attempt) is None
    assert stage.left() == []


@staged()
async def test_a_crash_takes_the_family_with_it_and_other_attempts_live_on(stage: Stage) -> None:
    calm, wild = stage.fifo("calm"), stage.fifo("wild")
    bystander = asyncio.create_task(stage.call("family", calm))
    await told(calm)
    attempt = asyncio.create_task(
        stage.sh(f"(setsid sleep 1000 &); (sleep 1000 &); echo -n ready > {wild}; kill -SEGV $$")
    )
    await told(wild)
    over = await attempt
    assert over.error == "killed by SIGSEGV"
    assert not bystander.done()
    assert len(stage.left()) >= 9
    assert [pid for pid in stage.left() if b"ROTA_FENCE=2" in Path(f"/proc/{pid}/environ").read_bytes()] == []
    await cancelled(bystander)


@staged()
async def test_a_fork_bomb_is_killed_to_the_last(stage: Stage) -> None:
    fifo = stage.fifo()
    attempt = asyncio.create_task(stage.call("bomb", fifo, 6))
    await told(fifo)
    assert len(stage.left()) == 64
    await cancelled(attempt)
    assert stage.left() == []


@staged()
async def test_ignoring_signals_does_not_help(stage: Stage) -> None:
    fifo = stage.fifo()
    attempt = asyncio.create_task(stage.call("ignore_signals", fifo))
    await told(fifo)
    await cancelled(attempt)
    assert stage.left() == []


@staged()
async def test_cancelling_again_while_killing_still_waits_for_the_end(stage: Stage) -> None:
    fifo = stage.fifo()
    attempt = asyncio.create_task(stage.call("family", fifo))
    await told(fifo)
    attempt.cancel()
    await asyncio.sleep(0)
    await cancelled(attempt)
    assert stage.left() == []


@staged()
async def test_a_command_that_goes_to_the_background_is_ended_with_its_shell(stage: Stage) -> None:
    over = await stage.sh("(setsid sleep 1000 >/dev/null 2>&1 &); sleep 1000 & echo started")
    assert value_of(over) == "started"
    assert stage.left() == []


@staged()
async def test_a_cancelled_command_is_gone_with_everything_it_started(stage: Stage) -> None:
    fifo = stage.fifo()
    attempt = asyncio.create_task(
        stage.sh(f"trap '' TERM INT; (setsid sleep 1000 &); sleep 1000 & echo -n ready > {fifo}; wait")
    )
    await told(fifo)
    while len(stage.left()) < 3:
        # A process that is just becoming another program has no environment for a moment, and is not counted.
        await asyncio.sleep(0)
    await cancelled(attempt)
    assert stage.left() == []


@staged()
async def test_a_command_cancelled_while_it_starts_is_gone(stage: Stage) -> None:
    await stage.sh("true")
    attempt = asyncio.create_task(stage.sh("sleep 1000"))
    await asyncio.sleep(0)
    await cancelled(attempt)
    assert stage.left() == []


@staged()
async def test_no_zombie_is_left_behind(stage: Stage) -> None:
    fifo = stage.fifo()
    attempt = asyncio.create_task(stage.call("bomb", fifo, 4))
    await told(fifo)
    await cancelled(attempt)
    (inner,) = Path(f"/proc/{stage.supervisor.pid}/task/{stage.supervisor.pid}/children").read_text().split()
    assert Path(f"/proc/{inner}/task/{inner}/children").read_text() == ""
