"""Beginning and end of the mechanical scheduler's loop: cases 25 to 27 by number. Time moves by hand."""

import asyncio

import pytest

from rota.core.errors import Refused
from rota.kinds.agent import Actor, ActorKind, Scheduler, Stopped, with_actor, with_interval
from rota.kinds.agent.clocks import SteadyClock
from tests.unit.kinds.agent.stage import Sessions, Stage, Tasks, Waking, bounded


def cycles(stage: Stage) -> int:
    return stage.scheduler.stats().cycles


def test_the_first_cycle_is_at_once_and_then_there_is_one_in_each_interval() -> None:
    async def scene() -> None:
        stage = Stage(with_interval(-5))
        await stage.scheduler.start()
        for number in range(1, 4):
            await stage.clock.napping.wait()
            assert cycles(stage) == number
            stage.clock.pass_by(14_999)
            await asyncio.sleep(0)
            assert cycles(stage) == number
            stage.clock.pass_by(1)
        await stage.clock.napping.wait()
        await stage.scheduler.shutdown()

    bounded(scene())


def test_starting_twice_is_starting_once() -> None:
    async def scene() -> None:
        stage = Stage()
        first = await stage.scheduler.start()
        assert await stage.scheduler.start() is first
        await stage.clock.napping.wait()
        assert cycles(stage) == 1
        await stage.scheduler.shutdown()

    bounded(scene())


def test_25_a_scheduler_that_was_stopped_is_not_started_again() -> None:
    async def scene() -> None:
        stage = Stage()
        loop = await stage.scheduler.start()
        await stage.clock.napping.wait()
        await stage.scheduler.shutdown()
        assert loop.done()
        stage.clock.pass_by(60_000)
        await asyncio.sleep(0)
        assert cycles(stage) == 1
        with pytest.raises(Stopped):
            await stage.scheduler.start()
        await stage.scheduler.shutdown()
        await stage.scheduler.run_once()
        assert cycles(stage) == 2, "a cycle can still be asked for"

        unborn = Stage()
        await unborn.scheduler.shutdown()
        with pytest.raises(Stopped):
            await unborn.scheduler.start()

    bounded(scene())


@pytest.mark.parametrize("missing", ["tasks", "sessions", "waker"])
def test_25_a_scheduler_needs_its_sources(missing: str) -> None:
    given = {"tasks": Tasks(), "sessions": Sessions(), "waker": Waking(), missing: None}
    with pytest.raises(Refused) as caught:
        Scheduler(**given)  # type: ignore[arg-type] - that is the point
    assert (caught.value.code, caught.value.path) == ("field.value", missing)


@pytest.mark.parametrize("actor", [None, Actor(ActorKind.DAEMON, " "), Actor("nobody", "x")])
def test_25_a_scheduler_acts_in_somebodys_name(actor: Actor) -> None:
    with pytest.raises(Refused) as caught:
        Scheduler(Tasks(), Sessions(), Waking(), with_actor(actor))
    assert caught.value.path == "actor"


def test_26_cancelling_the_loop_ends_it_for_good() -> None:
    async def scene() -> None:
        stage = Stage()
        loop = await stage.scheduler.start()
        await stage.clock.napping.wait()
        loop.cancel()
        await asyncio.wait([loop])
        stage.clock.pass_by(60_000)
        await asyncio.sleep(0)
        assert cycles(stage) == 1
        with pytest.raises(Stopped):
            await stage.scheduler.start()
        await stage.scheduler.shutdown()

        early = Stage()
        (await early.scheduler.start()).cancel()
        await early.scheduler.shutdown()
        assert cycles(early) == 0

    bounded(scene())


def test_27_a_shutdown_that_runs_out_of_time_says_so_and_can_be_asked_for_again() -> None:
    async def scene() -> None:
        stage = Stage()
        stage.tasks.gate = asyncio.Event()
        await stage.scheduler.start()
        await stage.tasks.entered.wait()
        with pytest.raises(TimeoutError):
            await stage.scheduler.shutdown(timeout_ms=0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await stage.scheduler.shutdown()
        with pytest.raises(Stopped):
            await stage.scheduler.start()
        again = asyncio.create_task(stage.scheduler.shutdown())
        await asyncio.sleep(0)
        assert not again.done()
        stage.tasks.gate.set()
        await again
        assert cycles(stage) == 1, "the cycle that was under way came to its end"

    bounded(scene())


def test_the_loop_goes_on_whatever_a_cycle_meets(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        stage = Stage()
        stage.tasks.broken.append("pending_runs")
        await stage.scheduler.start()
        await stage.clock.napping.wait()
        stage.tasks.broken.clear()
        stage.clock.pass_by(15_000)
        await stage.clock.napping.wait()
        assert cycles(stage) == 1
        await stage.scheduler.shutdown()

    bounded(scene())
    (met,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert (met.getMessage().startswith("scheduler: "), met.exc_info is not None) == (True, True)


def test_the_usual_clock_goes_forward() -> None:
    clock = SteadyClock()
    began = clock.now()
    bounded(clock.wait(1))
    assert 1_700_000_000_000 < began < clock.now()
