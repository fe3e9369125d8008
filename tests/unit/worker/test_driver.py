"""The worker's driver with scripted runners, against a real coordinator and against links that drop."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rota.control.driver import CoordinatorDriver
from rota.core.bounds import TimeLimits
from rota.core.commands import CancelRun, Mark, MarkTasks, Outcome, SubmitRun
from rota.core.decide.leases import Offer
from rota.core.model import Capacity, Graph, RetryPolicy, TaskSpec
from rota.core.questions import ListTasks, TasksPage, TaskView
from rota.ports import Candidate
from rota.stores.memory import MemoryStore
from rota.wire.frames import CoordinatorFrame, WorkerFrame
from rota.worker.driver import WorkerDriver
from rota.worker.runners import AT_ONCE
from rota.worker.sync import AttemptOver, SyncMachine

TENANT = "t"
LIMITS = TimeLimits()
PATIENCE_S = 20

Hear = Callable[[CoordinatorFrame | None], None]


def clock() -> int:
    return 1_000_000_000 + round(asyncio.get_running_loop().time() * 1000)


class Scripted:
    """A runner that does what its script says for each task, and notes what it was asked."""

    def __init__(self) -> None:
        self.scripts: dict[str, Callable[[Offer], Coroutine[Any, Any, AttemptOver]]] = {}
        self.started: list[str] = []
        self.killed: list[str] = []
        self.closed = 0
        self.closing: Exception | None = None
        self.began = asyncio.Event()

    async def run(self, offer: Offer) -> AttemptOver:
        self.started.append(offer.task_id)
        self.began.set()
        script = self.scripts.get(offer.task_id)
        try:
            return await script(offer) if script else AttemptOver(offer.fence, Outcome.SUCCESS)
        except asyncio.CancelledError:
            self.killed.append(offer.task_id)
            raise

    async def close(self) -> None:
        self.closed += 1
        if self.closing is not None:
            raise self.closing


async def for_ever(offer: Offer) -> AttemptOver:
    await asyncio.Event().wait()
    raise AssertionError("nobody comes here")


class Link:
    """A stream to the coordinator that can be cut."""

    def __init__(self, bench: "Bench", hear: Hear) -> None:
        self._bench = bench
        self.hear = hear
        self.is_closed = False
        self.stream = bench.coordinator.open_stream(self._hears)

    def _hears(self, frame: CoordinatorFrame | None) -> None:
        if not self.is_closed:
            self.hear(frame)

    def send(self, frame: WorkerFrame) -> None:
        self._bench.frames.append(frame)
        self._bench.coordinator.hear(self.stream, frame)

    def close(self) -> None:
        self.is_closed = True
        self._bench.coordinator.close_stream(self.stream)

    def drop(self) -> None:
        """The network fails: both sides see the end."""
        self.close()
        self.hear(None)


class Bench:
    """A real coordinator over memory, and one worker driver."""

    def __init__(self, runner: Scripted | None = None, slots: int = 4) -> None:
        self.coordinator = CoordinatorDriver(MemoryStore(), LIMITS, clock, who=Candidate("a test"))
        self.runner = runner or Scripted()
        self.links: list[Link] = []
        self.frames: list[WorkerFrame] = []
        self.failures: list[BaseException] = []
        self.refuse_dials = 0
        machine = SyncMachine(TENANT, "w", "1", Capacity(slots=slots, kinds=("script", "unknown")), LIMITS)
        self.worker = WorkerDriver(machine, self.dial, {"script": self.runner}, clock, self.failures.append)

    async def dial(self, hear: Hear) -> Link:
        if self.refuse_dials:
            self.refuse_dials -= 1
            raise ConnectionRefusedError("nobody there")
        self.links.append(Link(self, hear))
        return self.links[-1]

    async def begin(self) -> None:
        self.coordinator.start()
        assert await self.coordinator.reigns()
        self.worker.start()

    async def submit(self, *ids: str, kind: str = "script", retries: int = 0) -> None:
        specs = tuple(TaskSpec(id=id, kind=kind, retry=RetryPolicy(retries, internal_retries=0)) for id in ids)
        graph = Graph(name="g", tasks=specs)
        await self.coordinator.ask(SubmitRun(tenant=TENANT, command_id="submit", run="r", graph=graph))

    async def tasks(self) -> list[TaskView]:
        page, _ = await self.coordinator.ask(ListTasks(tenant=TENANT, run="r"))
        assert isinstance(page, TasksPage)
        return list(page.tasks)

    async def until(self, *states: str) -> list[TaskView]:
        """Until the tasks are in these states; `played` is not patient for ever."""
        changed = asyncio.Event()
        end = self.coordinator.watch(lambda _: changed.set())
        try:
            while True:
                changed.clear()
                found = await self.tasks()
                if [task.state for task in found] == list(states):
                    return found
                await changed.wait()
        finally:
            end()

    async def end(self) -> None:
        await self.worker.stop()
        await self.coordinator.stop()


def played(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await play()

    asyncio.run(bounded())


def test_work_is_taken_run_and_reported():
    async def play() -> None:
        bench = Bench()
        await bench.begin()
        await bench.submit("a", "b")
        await bench.until("success", "success")
        assert sorted(bench.runner.started) == ["a", "b"]
        await bench.end()
        assert bench.runner.closed == 1

    played(play)


def test_a_kind_without_a_runner_fails_for_good_and_says_what_there_is():
    async def play() -> None:
        bench = Bench()
        await bench.begin()
        await bench.submit("a", kind="unknown", retries=3)
        (task,) = await bench.until("failed")
        assert (task.failure, task.attempt) == ("fatal", 1)
        assert re.search(r"'unknown'.*\bscript\b", task.error)
        await bench.end()

    played(play)


def test_a_runner_that_raises_is_to_blame_and_not_the_attempt():
    async def play() -> None:
        bench = Bench()

        async def broken(offer: Offer) -> AttemptOver:
            raise OSError("no more processes")

        bench.runner.scripts["a"] = broken
        await bench.begin()
        await bench.submit("a", "b")
        task, _ = await bench.until("failed", "success")
        assert task.failure == "internal"
        assert task.error.endswith(": OSError: no more processes")
        await bench.end()

    played(play)


def test_a_cancelled_task_is_killed_and_its_word_does_not_count():
    async def play() -> None:
        bench = Bench()
        bench.runner.scripts["a"] = for_ever
        await bench.begin()
        await bench.submit("a")
        await bench.runner.began.wait()
        await bench.coordinator.ask(CancelRun(tenant=TENANT, command_id="c", run="r"))
        await bench.until("cancelled")
        while not bench.runner.killed:
            await asyncio.sleep(0)
        await bench.end()

    played(play)


def test_a_runner_that_returns_while_it_is_killed_changes_nothing():
    async def play() -> None:
        bench = Bench()

        async def stubborn(offer: Offer) -> AttemptOver:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                bench.runner.killed.append("a")
            return AttemptOver(offer.fence, Outcome.SUCCESS)

        bench.runner.scripts["a"] = stubborn
        await bench.begin()
        await bench.submit("a")
        await bench.runner.began.wait()
        await bench.coordinator.ask(CancelRun(tenant=TENANT, command_id="c", run="r"))
        await bench.until("cancelled")
        while not bench.runner.killed:
            await asyncio.sleep(0)
        (task,) = await bench.tasks()
        assert task.state == "cancelled"
        await bench.end()

    played(play)


def test_a_link_that_drops_is_made_again_and_the_work_goes_on():
    async def play() -> None:
        bench = Bench()
        gate = asyncio.Event()

        async def slow(offer: Offer) -> AttemptOver:
            await gate.wait()
            return AttemptOver(offer.fence, Outcome.SUCCESS)

        bench.runner.scripts["a"] = slow
        await bench.begin()
        await bench.submit("a")
        await bench.until("running")
        bench.refuse_dials = 1
        bench.links[0].drop()
        gate.set()
        (task,) = await bench.until("success")
        assert task.attempt == 1
        assert bench.runner.started == ["a"], "it was run once"
        assert len(bench.links) == 2
        await bench.end()

    played(play)


def test_a_coordinator_that_is_not_there_is_dialled_again():
    async def play() -> None:
        bench = Bench()
        bench.refuse_dials = 2
        await bench.begin()
        await bench.submit("a")
        await bench.until("success")
        await bench.end()

    played(play)


def test_a_link_that_is_gone_before_it_is_there_is_closed():
    async def play() -> None:
        bench = Bench()
        gate = asyncio.Event()
        made: list[Link] = []

        async def slow_dial(hear: Hear) -> Link:
            made.append(Link(bench, hear))
            if len(made) == 1:
                hear(None)
            await gate.wait()
            return made[-1]

        bench.worker._dial = slow_dial  # pyright: ignore[reportPrivateUsage] - the seam of this very test
        await bench.begin()
        await bench.submit("a")
        while not made:
            await asyncio.sleep(0)
        gate.set()
        await bench.until("success")
        assert made[0].is_closed
        assert not made[-1].is_closed
        await bench.end()
        assert made[-1].is_closed

    played(play)


def test_draining_hands_back_what_is_not_finished():
    async def play() -> None:
        bench = Bench()
        bench.runner.scripts["a"] = for_ever
        await bench.begin()
        await bench.submit("a")
        await bench.until("running")
        bench.worker.drain(0)
        await bench.worker.left.wait()
        (task,) = await bench.until("queued")
        assert task.attempt == 0, "it was not spent"
        await bench.worker.stop()
        assert bench.runner.killed == ["a"]
        await bench.coordinator.stop()

    played(play)


def test_what_is_handed_back_is_gone_before_anybody_hears_of_it():
    async def play() -> None:
        bench = Bench()
        asked, gone = asyncio.Event(), asyncio.Event()

        async def dying_slowly(offer: Offer) -> AttemptOver:
            try:
                await asyncio.Event().wait()
            finally:
                asked.set()
                await gone.wait()
            raise AssertionError("nobody comes here")

        bench.runner.scripts["a"] = dying_slowly
        await bench.begin()
        await bench.submit("a")
        await bench.until("running")
        bench.worker.drain(0)
        await asked.wait()
        assert [report.outcome for frame in bench.frames for report in frame.reports] == [Outcome.STARTED]
        assert not bench.worker.left.is_set()
        gone.set()
        await bench.worker.left.wait()
        await bench.until("queued")
        await bench.end()

    played(play)


def test_a_dial_that_nobody_answers_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.worker.driver.DIAL_S", 0.01)

    async def play() -> None:
        bench = Bench()
        dials: list[Hear] = []

        async def swallowed(hear: Hear) -> Link:
            dials.append(hear)
            if len(dials) == 1:
                await asyncio.Event().wait()
            return await bench.dial(hear)

        bench.worker._dial = swallowed  # pyright: ignore[reportPrivateUsage] - the seam of this very test
        await bench.begin()
        await bench.submit("a")
        await bench.until("success")
        assert len(dials) == 2
        await bench.end()

    played(play)


def test_draining_before_it_ever_connected_is_over_at_once():
    async def play() -> None:
        bench = Bench()
        bench.worker.drain(0)
        await bench.worker.left.wait()
        await bench.end()

    played(play)


def test_stopping_kills_attempts_and_closes_every_runner_whatever_one_of_them_meets():
    async def play() -> None:
        bench = Bench()
        other = Scripted()
        bench.worker._runners = {"script": bench.runner, "other": other}  # pyright: ignore[reportPrivateUsage] - a second one
        bench.runner.scripts["a"] = for_ever
        bench.runner.closing = OSError("stuck")
        await bench.begin()
        await bench.submit("a")
        await bench.until("running")
        with pytest.raises(OSError, match="stuck"):
            await bench.worker.stop()
        assert bench.runner.killed == ["a"]
        assert (bench.runner.closed, other.closed) == (1, 1)
        await bench.coordinator.stop()

    played(play)


def test_stopping_while_it_dials_hangs_up():
    async def play() -> None:
        bench = Bench()

        async def dial_for_ever(hear: Hear) -> Link:
            await asyncio.Event().wait()
            raise AssertionError("nobody comes here")

        bench.worker._dial = dial_for_ever  # pyright: ignore[reportPrivateUsage] - the seam of this very test
        bench.worker.start()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await bench.worker.stop()
        await bench.worker.stop()

    played(play)


def test_an_error_of_ours_stops_the_work_and_is_told(monkeypatch: pytest.MonkeyPatch):
    async def play() -> None:
        bench = Bench()
        bench.runner.scripts["a"] = for_ever
        await bench.begin()
        await bench.submit("a")
        await bench.until("running")

        def broken(*_: object) -> list[Any]:
            raise KeyError("ours")

        monkeypatch.setattr(bench.worker.machine, "turn", broken)
        bench.worker.drain(0)
        await bench.worker.left.wait()
        assert [type(error) for error in bench.failures] == [KeyError]
        assert bench.links[-1].is_closed
        while not bench.runner.killed:
            await asyncio.sleep(0)
        await bench.end()

    played(play)


def test_only_an_attempt_whose_lease_could_not_be_renewed_is_ended_at_once():
    async def play() -> None:
        bench = Bench()
        said: list[tuple[str, tuple[Any, ...]]] = []

        async def listens(offer: Offer) -> AttemptOver:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError as cancelled:
                said.append((offer.task_id, cancelled.args))
                raise
            raise AssertionError("nobody comes here")

        bench.runner.scripts.update(a=listens, b=listens)
        await bench.begin()
        await bench.submit("a", "b")
        await bench.until("running", "running")
        marked = MarkTasks(tenant=TENANT, command_id="c", run="r", tasks=("a",), to=Mark.SUCCESS)
        await bench.coordinator.ask(marked)
        while not said:
            await asyncio.sleep(0)
        assert said == [("a", ())]
        bench.refuse_dials = 1_000
        bench.worker.clock = lambda: clock() + LIMITS.lease_ms
        bench.links[-1].drop()
        while len(said) < 2:
            await asyncio.sleep(0)
        assert said[1] == ("b", (AT_ONCE,))
        await bench.end()

    played(play)
