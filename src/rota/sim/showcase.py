"""A scene for people: one workflow, two coordinators, three workers, and trouble at known moments."""

from collections.abc import Iterator

from rota.core.commands import SubmitRun
from rota.core.graph import LiveGraph
from rota.core.ids import CommandId, GraphDigest, Millis, RunId, RunKey, TaskId
from rota.core.model import Graph, PoolNeed, RetryPolicy, TaskSpec
from rota.core.story import story_lines
from rota.core.trigger import TriggerRule
from rota.sim.faults import FAST, Mix
from rota.sim.scene import Scene
from rota.sim.scripts import Script, write_script
from rota.sim.world import START_AT

RUN: RunKey = ("ada", RunId("nightly"))


def _graph() -> Graph:
    def work(takes_ms: Millis, fails: int = 0) -> bytes:
        return write_script(Script(takes_ms, fails=fails))

    stubborn = RetryPolicy(retries=2, delay_ms=500)
    return Graph(
        name="nightly",
        tasks=(
            TaskSpec(id=TaskId("extract"), work=work(1_500), width=3, pools=(PoolNeed("db"),)),
            TaskSpec(id=TaskId("transform"), work=work(9_000), upstream=(TaskId("extract"),)),
            TaskSpec(id=TaskId("flaky"), work=work(800, fails=1), upstream=(TaskId("extract"),), retry=stubborn),
            TaskSpec(id=TaskId("load"), work=work(1_000), upstream=(TaskId("transform"), TaskId("flaky"))),
            TaskSpec(
                id=TaskId("report"),
                work=work(300),
                upstream=(TaskId("load"),),
                trigger_rule=TriggerRule.ALL_DONE,
            ),
        ),
    )


class Showcase:
    """Plays the scene and tells it."""

    def __init__(self) -> None:
        mix = Mix(limits=FAST, coordinators=2, push_workers=3, pull_workers=0, runs=1, storm_ms=1_000)
        self.scene = Scene(2_026, mix)
        self.notes: list[str] = []
        self.succeeded = False

    def play(self) -> Iterator[str]:
        """What happens, line by line."""
        scene = self.scene
        world = scene.world
        yield "A simulated cluster: 2 coordinators, 3 workers, virtual time, the real scheduling code."
        yield "Graph nightly: extract[0..2] (at most 2 at once) -> transform, flaky -> load -> report"
        submission = SubmitRun(tenant=RUN[0], command_id=CommandId("nightly"), run=RunId(RUN[1]), graph=_graph())
        world.after(3_000, scene.clients.submit, submission)
        world.after(7_000, self._kill_leader)
        world.after(11_000, self._kill_worker)
        world.run_until(START_AT + 60_000)
        names = LiveGraph(RUN[0], GraphDigest(""), _graph())
        told = [*story_lines(scene.stage.store.disk.stories[RUN], START_AT, names.task_id), *self.notes]
        yield from sorted(told, key=lambda line: line[:10])
        state = scene.ledger.runs[RUN]
        self.succeeded = state == "success"
        yield f"The run ended as {state}: one outcome per attempt, and no retry was spent on the crashes."
        yield "Next: rota sim --seeds 200 runs random worlds; docs/map.md shows how it is built."

    def _kill_leader(self) -> None:
        for node in self.scene.stage.coordinators:
            if node.alive and node.machine.loop is not None:
                self.notes.append(
                    f"   7.000 s  -- {node.name} is killed; the other one takes over, running work goes on"
                )
                node.crash()
                self.scene.world.after(5_000, node.restart)
                return

    def _kill_worker(self) -> None:
        for worker in self.scene.stage.push:
            if worker.running:
                self.notes.append(
                    f"  11.000 s  -- worker {worker.name} is killed with its work; its lease must run out first"
                )
                worker.crash()
                return
