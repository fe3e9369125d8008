"""The operator who tidies up in the calm: what is held is let go, what is stuck for want of a person gets one."""

from collections.abc import Callable

from rota.control.loop import Loop
from rota.core.commands import (
    ApproveRun,
    CancelRun,
    ClearTasks,
    ClientCommand,
    DeployWorkflow,
    DrainWorker,
    Exit,
    Mark,
    MarkTasks,
    PauseRun,
    PauseScheduler,
    PauseWorkflow,
    ResolveTask,
    RetryTasks,
)
from rota.core.ids import CommandId, Millis
from rota.core.live import LiveRun
from rota.core.model import Approval, Unservable
from rota.core.plan import past_of
from rota.core.records import Pause, Run, Schedule, Workflow
from rota.core.states import NEEDS_ATTENTION, RUN_TERMINAL, RunState
from rota.sim.stage import Stage

TIDY_MS: Millis = 5_000
KILLERS = (Exit.FAIL, Exit.FAIL, Exit.CANCEL)
STARVED = (Exit.REQUEUE, Exit.REQUEUE, Exit.FAIL, Exit.CANCEL)


class Caretaker:
    """A patient operator. `send` asks for something until it is answered."""

    def __init__(self, stage: Stage, send: Callable[[ClientCommand, Millis], None]) -> None:
        self.stage = stage
        self.world = stage.world
        self.send = send
        self._tidied = 0

    def tidy_up(self) -> None:
        """Resume, undrain, decide about parked work and about runs that wait for one that failed; again and again."""
        for record in list(self.stage.store.disk.records.values()):
            match record:
                case Run() if record.state not in RUN_TERMINAL and record.paused:
                    name = self._next_id()
                    self.send(
                        PauseRun(tenant=record.tenant, command_id=CommandId(name), run=record.id, paused=False), 0
                    )
                case Workflow():
                    self._let_go(record)
                case Pause() if record.paused:
                    name = self._next_id()
                    resume = PauseScheduler(
                        tenant=record.tenant, command_id=CommandId(name), scope=record.scope, paused=False
                    )
                    self.send(resume, 0)
                case _:
                    pass
        for node in self.stage.coordinators:
            loop = node.machine.loop
            if loop is not None:
                self._decide_parked(loop)
                self._undrain(loop)
                for run in loop.state.runs.values():
                    self._mend_past(run)
                    self._let_start(loop, run)
        self.world.after(TIDY_MS, self.tidy_up)

    def _let_go(self, workflow: Workflow) -> None:
        """A workflow goes on, and its calendar ends: nothing new comes into a world that is to come to rest."""
        disk, tenant, name = self.stage.store.disk, workflow.tenant, workflow.name
        if workflow.paused:
            self.send(
                PauseWorkflow(tenant=tenant, command_id=CommandId(self._next_id()), workflow=name, paused=False), 0
            )
        graph = disk.graph(tenant, workflow.graph)
        if graph is not None and isinstance(disk.records.get(("Schedule", tenant, name)), Schedule):
            self.send(
                DeployWorkflow(
                    tenant=tenant, command_id=CommandId(self._next_id()), graph=graph, params=workflow.params
                ),
                0,
            )

    def _mend_past(self, run: LiveRun) -> None:
        """A run waits for the one before it. Whatever failed there is run again or called well; or this one goes on."""
        before, chance = run.before, self.world.chance("operator")
        node = next((node for node in run.graph.past if past_of(run, node)), None)
        if before is None or node is None or run.row.state is not RunState.RUNNING or chance.random() < 0.5:
            return
        tenant, name, task = run.row.tenant, self._next_id(), run.graph.specs[node].id
        never_ran = not before.row.started_at and before.row.state in RUN_TERMINAL
        waits_for_this = before.row.state is RunState.QUEUED and bool(before.graph.graph.max_active_runs)
        if never_ran or waits_for_this:
            # Nothing in it ever had a chance to go well, or it came late and waits for the room that this one takes.
            self.send(
                MarkTasks(tenant=tenant, command_id=CommandId(name), run=run.row.id, tasks=(task,), to=Mark.SUCCESS), 0
            )
        elif before.row.state in RUN_TERMINAL:
            retry = RetryTasks(tenant=tenant, command_id=CommandId(name), run=before.row.id)
            clear = ClearTasks(tenant=tenant, command_id=CommandId(name), run=before.row.id, only_failed=True)
            mark = MarkTasks(
                tenant=tenant, command_id=CommandId(name), run=before.row.id, tasks=(task,), to=Mark.SUCCESS
            )
            self.send(chance.choice((retry, clear, mark)), 0)

    def _let_start(self, loop: Loop, run: LiveRun) -> None:
        """A run waits for a person's word, or for one that failed: that is tried again, or this one given up."""
        chance, row = self.world.chance("operator"), run.row
        if not run.is_gated or row.state is not RunState.QUEUED or chance.random() < 0.5:
            return
        if row.approval is Approval.PENDING:
            self.send(ApproveRun(tenant=row.tenant, command_id=CommandId(self._next_id()), run=row.id), 0)
        for name in row.after:
            awaited = loop.state.runs[(row.tenant, name)].row
            if awaited.state in RUN_TERMINAL and awaited.state is not RunState.SUCCESS:
                retry = RetryTasks(tenant=row.tenant, command_id=CommandId(self._next_id()), run=name)
                give_up = CancelRun(tenant=row.tenant, command_id=CommandId(self._next_id()), run=row.id)
                self.send(retry if awaited.started_at and chance.random() < 0.5 else give_up, 0)

    def _decide_parked(self, loop: Loop) -> None:
        for run in loop.state.runs.values():
            for idx, task in run.tasks.items():
                if loop.state.queue_of(run, task).unservable is Unservable.FAIL:
                    # Nobody looks after builds.
                    continue
                # An operator is in no hurry, so that a parked task is seen to stay where it is.
                if task.state is NEEDS_ATTENTION and self.world.chance("operator").random() < 0.4:
                    # What kills its workers would do so again; what nobody can serve may be asked for less.
                    ways = KILLERS if "interrupted" in task.error else STARVED
                    way = self.world.chance("operator").choice(ways)
                    decision = ResolveTask(
                        tenant=run.row.tenant,
                        command_id=CommandId(self._next_id()),
                        run=run.row.id,
                        task=run.graph.task_id(idx),
                        exit=way,
                        requires=() if way is Exit.REQUEUE else None,
                    )
                    self.send(decision, 0)

    def _undrain(self, loop: Loop) -> None:
        for worker in loop.state.workers.values():
            if worker.row.draining:
                name = self._next_id()
                self.send(
                    DrainWorker(tenant="shared", command_id=CommandId(name), worker=worker.row.id, draining=False), 0
                )

    def _next_id(self) -> str:
        self._tidied += 1
        return f"operator {self._tidied}"
