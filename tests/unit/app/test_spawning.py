"""Children from their start to their end: what is told and counted, whose time is over, what a stop leaves behind."""

import asyncio
from collections.abc import Callable, Coroutine

from rota.app.spawning import LEAVE_S, STOP_S, Nursery
from rota.config.spawners import SpawnerSettings
from rota.control.events import Escalate, Tell
from rota.core.ladder import Tier
from rota.core.model import Capacity
from rota.kinds.agent.matching import capacity_of, demand_of, requires_of
from rota.ports import Wanted
from tests.integration.deadlines import until_so

DEMAND = demand_of(requires_of(requires=("paint",)))


class Child:
    """One that goes on until it is stopped, or is said to have ended."""

    about = (("pid", "1"),)

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.how = ""
        self.stopped: list[float] = []

    async def ended(self) -> str:
        await self.over.wait()
        return self.how

    async def stop(self, patience_s: float) -> None:
        self.stopped.append(patience_s)
        self.over.set()


class Painters:
    """A spawner of such children."""

    name = "painters"

    def __init__(self) -> None:
        self.children: list[Child] = []
        self.trouble: OSError | None = None

    def offer(self, wanted: Wanted) -> Capacity:
        return capacity_of("", capabilities=("paint",))

    async def start(self, wanted: Wanted) -> Child:
        if self.trouble is not None:
            raise self.trouble
        self.children.append(Child())
        return self.children[-1]


class Scene:
    """A nursery, and what it says."""

    def __init__(self, **settings: float) -> None:
        self.now = 0
        self.spawner = Painters()
        self.told: list[Tell] = []
        self.counts: list[str] = []
        spawner = SpawnerSettings(name="painters", **{"lifetime_s": 0, **settings})  # type: ignore[arg-type] - shorter than a setting may be
        self.nursery = Nursery([(self.spawner, spawner)], lambda: self.now, self.hear, self.counts.append)

    def hear(self, said: Tell | Escalate) -> None:
        assert isinstance(said, Tell)
        self.told.append(said)

    def ask(self) -> None:
        self.nursery.heard(Escalate("default", "item", 0, Tier.SPAWN, demand=DEMAND))

    async def until_told(self, what: str) -> dict[str, str]:
        await until_so(lambda: any(said.what == what for said in self.told), f"{what} to be told")
        return dict(next(said.about for said in self.told if said.what == what))


def play(scenario: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(scenario())


def test_a_child_is_told_of_at_its_start_and_at_its_end():
    async def scenario() -> None:
        scene = Scene()
        scene.ask()
        assert (await scene.until_told("spawner.started"))["run"] == "item"
        (child,) = scene.spawner.children
        child.how = "ended with code 3"
        child.over.set()
        assert (await scene.until_told("spawner.ended"))["how"] == "ended with code 3"
        scene.ask()
        assert scene.counts == ["started", "deferred"], "its spawner rests"

    play(scenario)


def test_whose_time_is_over_is_asked_to_end_and_has_done_nothing_wrong():
    async def scenario() -> None:
        scene = Scene(lifetime_s=0.01, cooldown_s=0)
        scene.ask()
        assert (await scene.until_told("spawner.ended"))["how"] == "well"
        assert scene.spawner.children[0].stopped == [LEAVE_S]
        scene.ask()
        assert len(scene.counts) < 2, "another one may be started"
        await scene.nursery.stop()

    play(scenario)


def test_one_that_cannot_be_started_is_told_and_its_spawner_rests():
    async def scenario() -> None:
        scene = Scene()
        scene.spawner.trouble = FileNotFoundError(2, "no such file", "painter")
        scene.ask()
        assert "painter" in (await scene.until_told("spawner.failed"))["error"]
        scene.ask()
        assert scene.counts == ["failed", "deferred"]

    play(scenario)


def test_a_stop_ends_everybody_and_nobody_is_started_after_it():
    async def scenario() -> None:
        scene = Scene()
        scene.ask()
        await scene.until_told("spawner.started")
        await scene.nursery.stop()
        assert scene.spawner.children[0].stopped == [STOP_S]
        scene.now = 10_000_000
        scene.ask()
        assert scene.counts == ["started"]

    play(scenario)


def test_tiers_that_ask_for_nobody_start_nobody():
    async def scenario() -> None:
        scene = Scene()
        scene.nursery.heard(Escalate("default", "item", 0, Tier.FAN_OUT))
        assert scene.counts == []

    play(scenario)
