"""People who deploy workflows, run them, and look after runs that did not go as they should have."""

from collections.abc import Callable

from rota.core.commands import (
    CancelBackfill,
    ClientCommand,
    DropWorkflow,
    MoveRun,
    PauseRun,
    PauseWorkflow,
    StartBackfill,
)
from rota.core.ids import CommandId, Millis
from rota.core.records import Run, Workflow
from rota.core.states import RUN_TERMINAL
from rota.sim.deployed import Deployed, deploy, draw_backfill, draw_remedy, draw_trigger, draw_workflow
from rota.sim.stage import Stage

Send = Callable[[ClientCommand, Millis], None]
# How long a paused run is given to come to rest before it is moved.
MOVING_MS: Millis = 3_000
# How often each is done, of all that is done with a workflow.
ACTS = ("trigger",) * 4 + ("deploy",) * 3 + ("pause", "resume", "drop") + ("backfill",) * 2 + ("cancel",)


class Authors:
    """Whoever has workflows. `send` asks for something until it is answered."""

    def __init__(self, stage: Stage, send: Send) -> None:
        self.stage = stage
        self.world = stage.world
        self.send = send
        self._backfills: dict[str, list[StartBackfill]] = {}

    def plan(self) -> None:
        """Draw what is deployed, and when something is done with it."""
        mix, chance = self.stage.mix, self.world.chance("workflows")
        for number in range(mix.workflows):
            deployed = draw_workflow(chance, number)
            begin_ms = 1_000 + chance.randrange(3_000)
            self.send(deploy(deployed, f"deploy {number}", 0, scheduled=True), begin_ms)
            # A second version while there are runs of the first, whatever else is done.
            second_ms = begin_ms + 3_000 + chance.randrange(mix.storm_ms // 3)
            self.send(deploy(deployed, f"deploy {number} again", 1, scheduled=True), second_ms)
            for part in range(chance.randint(4, 7)):
                delay_ms = begin_ms + 500 + chance.randrange(mix.storm_ms)
                self.world.after(delay_ms, self._act, deployed, f"{number}.{part}")
        for number in range(mix.remedies):
            self.world.after(6_000 + chance.randrange(mix.storm_ms), self._mend, number)

    def _act(self, deployed: Deployed, word: str) -> None:
        chance = self.world.chance("authors")
        tenant, name = deployed.tenant, deployed.name
        started = self._backfills.setdefault(name, [])
        match chance.choice(ACTS):
            case "trigger":
                self.send(draw_trigger(chance, deployed, word), 0)
            case "deploy":
                version = chance.randrange(len(deployed.versions))
                self.send(deploy(deployed, f"deploy {word}", version, scheduled=chance.random() < 0.8), 0)
            case "pause":
                self.send(PauseWorkflow(tenant=tenant, command_id=CommandId(f"pause {word}"), workflow=name), 0)
            case "resume":
                self.send(
                    PauseWorkflow(tenant=tenant, command_id=CommandId(f"resume {word}"), workflow=name, paused=False), 0
                )
            case "drop":
                self.send(DropWorkflow(tenant=tenant, command_id=CommandId(f"drop {word}"), workflow=name), 0)
                again = deploy(deployed, f"deploy {word}", chance.randrange(len(deployed.versions)), scheduled=True)
                self.send(again, chance.choice((0, 1_000, 4_000)))
            case "backfill":
                started.append(draw_backfill(chance, deployed, word))
                self.send(started[-1], 0)
            case _ if started:
                backfill = chance.choice(started).backfill
                self.send(CancelBackfill(tenant=tenant, command_id=CommandId(f"cancel {word}"), backfill=backfill), 0)
            case _:
                pass

    def _mend(self, number: int) -> None:
        """Do something about a run, perhaps about one that is in history."""
        chance, disk = self.world.chance("remedies"), self.stage.store.disk
        live = [record for record in disk.records.values() if isinstance(record, Run)]
        past = [ended.run for ended in disk.history]
        runs = past if past and chance.random() < 0.5 else live or past
        deployed = [run for run in runs if run.version]
        row = chance.choice(deployed or runs) if runs else None
        graph = disk.graph(row.tenant, row.graph) if row is not None else None
        if row is not None and graph is not None:
            workflow = disk.records.get(("Workflow", row.tenant, row.name)) if row.version else None
            versions = workflow.versions if isinstance(workflow, Workflow) else ()
            others = [version.number for version in versions if version.graph != row.graph]
            remedy = draw_remedy(chance, number, row, graph, others)
            is_at_work = isinstance(remedy, MoveRun) and row.state not in RUN_TERMINAL
            if is_at_work:
                # Nothing of it may be at work when it moves; and it is to go on afterwards.
                self.send(PauseRun(tenant=row.tenant, command_id=CommandId(f"hold {number}"), run=row.id), 0)
                resume = PauseRun(tenant=row.tenant, command_id=CommandId(f"let go {number}"), run=row.id, paused=False)
                self.send(resume, MOVING_MS + chance.choice((0, 1_000)))
            self.send(remedy, MOVING_MS if is_at_work else 0)
