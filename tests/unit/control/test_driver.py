"""The coordinator's driver over stores that fail in every way they may, and stopping it in the middle of everything."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from rota.control.driver import CoordinatorDriver
from rota.control.events import Escalate, Tell
from rota.core.bounds import TimeLimits
from rota.core.commands import CancelRun, SubmitRun
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Epoch
from rota.core.model import Graph, TaskSpec
from rota.core.questions import GetRun, ListRuns, RunsPage, RunView
from rota.core.records import Batch, Run, Story
from rota.core.story import read_story
from rota.ports import Candidate, CommitUnknown, Fenced, StoreRefused
from rota.stores.memory import MemoryStore

TENANT = "t"
LIMITS = TimeLimits()
PATIENCE_S = 20

Hook = Callable[..., Awaitable[None]]


async def nothing(*_: object) -> None:
    """No trouble."""


class Trying(MemoryStore):
    """A memory store that asks a hook before it does anything; what the hook raises is what the store raises."""

    def __init__(self) -> None:
        super().__init__()
        self.before_elect: Hook = nothing
        self.before_load: Hook = nothing
        self.before_commit: Hook = nothing
        self.after_commit: Hook = nothing
        self.before_release: Hook = nothing
        self.releases: list[Epoch] = []

    async def elect(self, who: str) -> Epoch | None:
        await self.before_elect()
        return await super().elect(who)

    async def load(self, epoch: Epoch) -> Any:
        await self.before_load()
        async for record in super().load(epoch):
            yield record

    async def commit(self, epoch: Epoch, batch: Batch) -> None:
        await self.before_commit(batch)
        await super().commit(epoch, batch)
        await self.after_commit(batch)

    async def release(self, epoch: Epoch) -> None:
        await self.before_release()
        self.releases.append(epoch)
        await super().release(epoch)


class Clock:
    """Real time, and as much more as a test adds."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return 1_000_000_000 + self.ahead_ms + round(asyncio.get_running_loop().time() * 1000)


class Bench:
    """A driver, its store, and what it told."""

    def __init__(self, store: Trying | None = None) -> None:
        self.store = store or Trying()
        self.clock = Clock()
        self.said: list[Tell | Escalate] = []
        self.spoke = asyncio.Event()
        self.driver = CoordinatorDriver(self.store, LIMITS, self.clock, who=Candidate("a test"), listener=self._hear)

    def _hear(self, said: Tell | Escalate) -> None:
        self.said.append(said)
        self.spoke.set()

    async def leads(self) -> None:
        """Until it leads again, which it tells; `played` is not patient for ever."""
        while not self.driver.is_leader:
            self.spoke.clear()
            await self.spoke.wait()

    async def reign(self) -> CoordinatorDriver:
        self.driver.start()
        assert await self.driver.reigns()
        return self.driver

    def told(self, what: str) -> bool:
        return any(isinstance(said, Tell) and said.what == what for said in self.said)


def submit(run: str, **fields: Any) -> SubmitRun:
    graph = Graph(name="g", tasks=(TaskSpec(id="only"),))
    return SubmitRun(tenant=TENANT, command_id=f"submit-{run}", run=run, graph=graph, **fields)


def played(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await play()

    asyncio.run(bounded())


async def raise_once(store: Trying, hook: str, error: Exception) -> None:
    """Have the store raise once, at that point."""

    async def trouble(*_: object) -> None:
        setattr(store, hook, nothing)
        raise error

    setattr(store, hook, trouble)


async def runs(driver: CoordinatorDriver) -> list[str]:
    page, _ = await driver.ask(ListRuns(tenant=TENANT))
    assert isinstance(page, RunsPage)
    return sorted(view.id for view in page.runs)


# Asking.


def test_commands_and_questions_are_answered():
    async def play() -> None:
        bench = Bench()
        driver = await bench.reign()
        assert (await driver.ask(submit("a")))[0] == "a"
        view, _ = await driver.ask(GetRun(tenant=TENANT, run="a"))
        assert isinstance(view, RunView)
        with pytest.raises(Refused, match=r"run\.unknown"):
            await driver.ask(GetRun(tenant=TENANT, run="b"))
        await driver.stop()

    played(play)


def test_everything_asked_in_one_pass_shares_a_commit():
    async def play() -> None:
        bench = Bench()
        driver = await bench.reign()
        batches: list[Batch] = []

        async def note(batch: Batch) -> None:
            batches.append(batch)

        bench.store.before_commit = note
        await asyncio.gather(*(driver.ask(submit(f"r{number}")) for number in range(50)))
        assert len(batches) <= 2
        assert sum(isinstance(record, Run) for batch in batches for record in batch.puts) >= 50
        await driver.stop()

    played(play)


def test_before_it_leads_it_says_that_nobody_does():
    async def play() -> None:
        driver = Bench().driver
        with pytest.raises(Unavailable, match=r"leader\.none"):
            await driver.ask(submit("a"))
        await driver.stop()

    played(play)


def test_whoever_stops_waiting_for_an_answer_disturbs_nobody():
    async def play() -> None:
        bench = Bench()
        driver = await bench.reign()
        gate = asyncio.Event()
        begun = asyncio.Event()

        async def slow(_: Batch) -> None:
            begun.set()
            await gate.wait()

        bench.store.before_commit = slow
        asking = asyncio.create_task(driver.ask(submit("a")))
        await begun.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        gate.set()
        assert await runs(driver) == ["a"], "it was carried out all the same"
        await driver.stop()

    played(play)


# Stores that fail.


def test_an_unavailable_store_is_tried_again_and_the_answer_waits():
    async def play() -> None:
        bench = Bench()
        driver = await bench.reign()
        await raise_once(bench.store, "before_commit", Unavailable("store.full", "the disk is full."))
        assert (await driver.ask(submit("a")))[0] == "a"
        assert bench.told("commit.retry")
        assert driver.is_leader
        await driver.stop()

    played(play)


@pytest.mark.parametrize("error", [CommitUnknown("who knows"), OSError("the cable"), Fenced("another")])
def test_a_commit_of_unknown_outcome_costs_memory_and_no_data(error: Exception):
    async def play() -> None:
        bench = Bench()
        driver = await bench.reign()
        await driver.ask(submit("before"))
        await raise_once(bench.store, "before_commit", error)
        with pytest.raises(Unavailable, match=r"leader\.none"):
            await driver.ask(submit("a"))
        assert bench.told("step_down")
        bench.clock.ahead_ms += 1_000
        await bench.leads()
        assert await runs(driver) == ["before"]
        assert (await driver.ask(submit("a")))[0] == "a", "asked again under the same id it is carried out once"
        await driver.stop()

    played(play)


def test_a_commit_that_happened_though_nobody_said_so_is_not_repeated():
    async def play() -> None:
        bench = Bench()
        driver = await bench.reign()
        await raise_once(bench.store, "after_commit", CommitUnknown("the answer was lost"))
        with pytest.raises(Unavailable):
            await driver.ask(submit("a"))
        bench.clock.ahead_ms += 1_000
        await bench.leads()
        assert await runs(driver) == ["a"]
        assert (await driver.ask(submit("a")))[0] == "a"
        await driver.stop()

    played(play)


def test_a_batch_that_the_store_refuses_refuses_only_its_culprit():
    async def play() -> None:
        bench = Bench()
        driver = await bench.reign()

        async def picky(batch: Batch) -> None:
            if any(isinstance(record, Run) and record.id == "bad" for record in batch.puts):
                raise StoreRefused("not this one")

        bench.store.before_commit = picky
        answers = await asyncio.gather(
            *(driver.ask(submit(run)) for run in ("good", "bad", "fine")), return_exceptions=True
        )
        assert not isinstance(answers[0], BaseException)
        assert isinstance(answers[1], Refused)
        assert answers[1].code == "store.refused"
        assert await runs(driver) == ["fine", "good"]
        await driver.stop()

    played(play)


def test_an_election_that_fails_says_why_and_is_held_again():
    async def play() -> None:
        bench = Bench()
        await raise_once(bench.store, "before_elect", Unavailable("store.full", "no space."))
        bench.driver.start()
        with pytest.raises(Unavailable, match=r"store\.full: no space"):
            await bench.driver.reigns()
        bench.clock.ahead_ms += 2_000
        await bench.leads()
        assert await bench.driver.reigns()
        await bench.driver.stop()

    played(play)


def test_records_that_cannot_be_read_are_told_and_not_waited_for():
    async def play() -> None:
        bench = Bench()
        await raise_once(bench.store, "before_load", OSError("bad sector"))
        bench.driver.start()
        with pytest.raises(Unavailable, match=r"store\.unavailable: OSError: bad sector"):
            await bench.driver.reigns()
        await bench.driver.stop()

    played(play)


def test_a_second_coordinator_does_not_lead():
    async def play() -> None:
        store = Trying()
        first, second = Bench(store), Bench(store)
        await first.reign()
        second.driver.start()
        assert not await second.driver.reigns()
        await second.driver.stop()
        assert store.releases == [], "what was never won is not given back"
        await first.driver.stop()
        assert store.releases == [1]

    played(play)


def test_housekeeping_that_fails_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.control.driver.TIDY_EVERY_S", 0.01)

    async def play() -> None:
        bench = Bench()
        tries: list[int] = []
        went_on = asyncio.Event()

        async def tidy(*_: object) -> int:
            tries.append(1)
            if len(tries) == 1:
                raise OSError("later")
            if len(tries) == 3:
                went_on.set()
            return 0

        bench.store.tidy = tidy
        await bench.reign()
        await went_on.wait()
        assert bench.told("tidy.failed")
        await bench.driver.stop()

    played(play)


# Stopping.


def test_stopping_lets_a_commit_end_and_frees_the_lock():
    async def play() -> None:
        bench = Bench()
        driver = await bench.reign()
        gate = asyncio.Event()

        begun = asyncio.Event()

        async def slow(_: Batch) -> None:
            begun.set()
            await gate.wait()

        bench.store.before_commit = slow
        asking = asyncio.create_task(driver.ask(submit("a")))
        await begun.wait()
        stopping = asyncio.create_task(driver.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        gate.set()
        await stopping
        with pytest.raises(Unavailable, match=r"leader\.none: .*stopped"):
            await asking
        with pytest.raises(Unavailable, match=r"leader\.none: .*stopped"):
            await driver.ask(submit("b"))
        again = Bench(bench.store)
        bench.store.before_commit = nothing
        await again.reign()
        assert await runs(again.driver) == ["a"], "what was being written is there"
        await again.driver.stop()

    played(play)


@pytest.mark.parametrize("hook", ["before_elect", "before_load"])
def test_stopping_during_an_election_leaves_no_lock_behind(hook: str):
    async def play() -> None:
        bench = Bench()
        gate = asyncio.Event()
        begun = asyncio.Event()

        async def slow(*_: object) -> None:
            begun.set()
            await gate.wait()

        setattr(bench.store, hook, slow)
        bench.driver.start()
        await begun.wait()
        stopping = asyncio.create_task(bench.driver.stop())
        await asyncio.sleep(0)
        gate.set()
        await stopping
        setattr(bench.store, hook, nothing)
        again = Bench(bench.store)
        await again.reign()
        await again.driver.stop()

    played(play)


def test_stopping_before_starting_and_twice_is_fine():
    async def play() -> None:
        bench = Bench()
        await bench.driver.stop()
        await bench.driver.stop()
        started = Bench()
        await started.reign()
        await started.driver.stop()
        await started.driver.stop()

    played(play)


def test_a_lock_that_cannot_be_given_back_is_told_and_does_not_stop_the_stopping():
    async def play() -> None:
        bench = Bench()
        await bench.reign()

        async def stuck() -> None:
            raise OSError("no way")

        bench.store.before_release = stuck
        await bench.driver.stop()
        assert bench.told("release.failed")

    played(play)


# Watching.


def test_watchers_are_told_what_became_durable_and_when_that_is_not_known_any_more():
    async def play() -> None:
        bench = Bench()
        driver = await bench.reign()
        heard: list[list[Story] | None] = []
        driver.watch(heard.append)
        await driver.ask(submit("a"))
        names = [
            type(change).__name__ for stories in heard if stories for part in stories for change in read_story(part)
        ]
        assert names[0] == "RunSubmitted"
        await raise_once(bench.store, "after_commit", CommitUnknown("the answer was lost"))
        with pytest.raises(Unavailable):
            await driver.ask(submit("b"))
        assert heard[-1] is None, "what it wrote last was not told"
        count = len(heard)
        bench.clock.ahead_ms += 1_000
        await bench.leads()
        await driver.ask(submit("c"))
        assert len(heard) == count, "whoever was lost has to begin anew"
        end = driver.watch(heard.append)
        end()
        await driver.ask(submit("d"))
        assert len(heard) == count
        driver.watch(heard.append)
        await driver.stop()
        assert heard[count:] == [None]

    played(play)


# Errors of ours.


def test_an_error_of_ours_stops_it_and_tells_everybody(monkeypatch: pytest.MonkeyPatch):
    async def play() -> None:
        bench = Bench()
        driver = await bench.reign()
        await driver.ask(submit("a"))
        frames: list[object] = []
        heard: list[object] = []
        driver.open_stream(frames.append)
        driver.watch(heard.append)

        def broken(*_: object) -> list[Any]:
            raise KeyError("ours")

        monkeypatch.setattr(driver.machine, "handle_all", broken)
        with pytest.raises(Unavailable, match=r"leader\.none: .*KeyError: 'ours'"):
            await driver.ask(CancelRun(tenant=TENANT, command_id="c", run="a"))
        assert isinstance(driver.failed, KeyError)
        assert (frames, heard) == ([None], [None])
        assert bench.told("coordinator.failed")
        with pytest.raises(KeyError):
            await driver.reigns()
        await driver.stop()
        again = Bench(bench.store)
        await again.reign()
        assert await runs(again.driver) == ["a"]
        await again.driver.stop()

    played(play)


def test_a_listener_that_fails_does_not_stop_the_coordinator():
    async def play() -> None:
        bench = Bench()
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

        def broken(_: object) -> None:
            raise ValueError("not ours")

        driver = CoordinatorDriver(bench.store, LIMITS, bench.clock, who=Candidate("a test"), listener=broken)
        driver.start()
        assert await driver.reigns()
        assert (await driver.ask(submit("a")))[0] == "a"
        assert [str(complaint["exception"]) for complaint in complaints][:1] == ["not ours"]
        await driver.stop()

    played(play)


def test_frames_on_a_stream_that_was_closed_are_not_heard():
    async def play() -> None:
        bench = Bench()
        driver = await bench.reign()
        told: list[object] = []
        stream = driver.open_stream(told.append)
        driver.close_stream(stream)
        driver.close_stream(stream)
        driver.hear(stream, None)  # pyright: ignore[reportArgumentType] - it is not looked at
        assert await runs(driver) == []
        await driver.stop()
        assert told == [], "who hung up is told nothing"

    played(play)
