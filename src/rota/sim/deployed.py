"""Workflows that users of the simulated world deploy: versions of a graph, a calendar, and what they do about runs."""

from collections.abc import Callable
from random import Random

import msgspec
from msgspec import Struct

from rota.core.calendar import ScheduleSpec
from rota.core.commands import (
    CancelRun,
    ClearTasks,
    ClientCommand,
    DeployWorkflow,
    LoseOutputs,
    Mark,
    MarkTasks,
    MoveRun,
    NoteTask,
    PauseRun,
    RetryTasks,
    StartBackfill,
    SubmitRun,
)
from rota.core.ids import CommandId, Millis, RunId, ScheduleId, TaskId
from rota.core.model import FailureClass, Graph, Param, ParamType, RetryPolicy, TaskSpec
from rota.core.records import Run
from rota.core.trigger import TriggerRule
from rota.sim.scripts import Script, write_script
from rota.sim.workload import TENANTS, TIMEOUT_MS, draw_spec
from rota.sim.world import START_AT

_pack = msgspec.msgpack.encode
SIZE = Param(name="size", type=ParamType.INTEGER, default=_pack(1), most=9)
AT = Param(name="at", type=ParamType.DATETIME, defaults_to_logical_date=True)
ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata")
MINUTE_MS: Millis = 60_000
TAKES_MS = (5, 50, 400, 2_000)

Specs = tuple[TaskSpec, ...]


class Deployed(Struct):
    """A workflow: the graphs that it is at one time or another, the last of which has the content of the first."""

    tenant: str
    name: str
    versions: tuple[Graph, ...]
    schedule: ScheduleSpec | None


def _task(chance: Random, name: str, above: str = "", **script: object) -> TaskSpec:
    work = write_script(msgspec.structs.replace(Script(chance.choice(TAKES_MS)), **script))
    return TaskSpec(
        id=TaskId(name), work=work, upstream=tuple(map(TaskId, (above,) if above else ())), timeout_ms=TIMEOUT_MS
    )


def _branch(chance: Random) -> Specs:
    """A task that decides which of those after it are skipped, by rules that would let them run."""
    skips = chance.choice((("left",), ("right",), ("left", "right")))
    rules = (TriggerRule.ALL_SUCCESS, TriggerRule.ALL_DONE, TriggerRule.NONE_FAILED)
    sides = (
        TaskSpec(
            id=TaskId(name),
            upstream=(TaskId("pick"),),
            trigger_rule=chance.choice(rules),
            width=chance.choice((1, 1, 2)),
            work=write_script(Script(chance.choice(TAKES_MS))),
        )
        for name in ("left", "right")
    )
    join = TaskSpec(
        id=TaskId("join"),
        upstream=(TaskId("left"), TaskId("right")),
        trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
        work=write_script(Script(50)),
    )
    return (_task(chance, "pick", skips=skips), *sides, join, _task(chance, "last", "join"))


def _past(chance: Random) -> Specs:
    """Runs that follow each other task by task, and now and then one that fails and holds up the rest."""
    load = TaskSpec(
        id=TaskId("load"),
        upstream=tuple(map(TaskId, chance.choice(((), ("prepare",))))),
        depends_on_past=True,
        work=write_script(Script(chance.choice(TAKES_MS), fails=chance.choice((0, 0, 1)))),
        retry=RetryPolicy(retries=chance.choice((0, 0, 1)), delay_ms=300),
    )
    return (_task(chance, "prepare"), load, _task(chance, "publish", "load"))


def _sensor(chance: Random) -> Specs:
    """Work that looks, goes away and comes back, as one task or with more after it."""
    wait = _task(chance, "wait", reschedules=chance.randint(2, 4))
    return (wait,) if chance.random() < 0.4 else (wait, _task(chance, "go", "wait"))


def _alone(chance: Random) -> Specs:
    """One task, which lives inside its run's row; with or without a past."""
    failure = chance.choice((FailureClass.USER, FailureClass.FATAL))
    work = write_script(Script(chance.choice(TAKES_MS), fails=chance.choice((0, 1)), failure=failure))
    return (TaskSpec(id=TaskId("load"), depends_on_past=chance.random() < 0.5, work=work),)


def _mixed(chance: Random) -> Specs:
    """Every rule, pool and requirement, with short work: calendars make more of it than one worker could do."""
    names = ["first", "second", "third"]
    specs = [draw_spec(chance, name, names[:position]) for position, name in enumerate(names)]
    fails = chance.choice((0, 0, 1))
    work = write_script(Script(chance.choice(TAKES_MS), fails=fails))
    return tuple(msgspec.structs.replace(spec, work=work) for spec in specs)


SHAPES: tuple[Callable[[Random], Specs], ...] = (_branch, _past, _past, _sensor, _alone, _mixed)


def draw_workflow(chance: Random, number: int) -> Deployed:
    """One workflow. Its second version has a task more, or less; its third may be something else altogether."""
    name, cap = f"flow{number}", chance.choice((0, 0, 1, 2))
    tasks = chance.choice(SHAPES)(chance)
    other = (
        tasks[:-1]
        if len(tasks) > 1 and chance.random() < 0.5
        else (*tasks, _task(chance, "extra", next(task.id for task in tasks)))
    )
    third = chance.choice((tasks, chance.choice(SHAPES)(chance)))
    versions = tuple(Graph(name=name, tasks=specs, max_active_runs=cap) for specs in (tasks, other, third, tasks))
    return Deployed(chance.choice(TENANTS), name, versions, _draw_calendar(chance))


def _draw_calendar(chance: Random) -> ScheduleSpec | None:
    """None, an interval or a cron expression; what it has to catch up with began before the world did."""
    kind = chance.random()
    if kind < 0.25:
        return None
    catch_up = chance.random() < 0.6
    cap = chance.choice((0, 1, 2))
    if kind < 0.7:
        every_ms = chance.choice((7_000, 15_000))
        return ScheduleSpec(every_ms=every_ms, start_at=START_AT - 20_000, catch_up=catch_up, max_active_runs=cap)
    start_at = START_AT - 3 * MINUTE_MS
    zone = chance.choice(ZONES)
    return ScheduleSpec(cron="* * * * *", zone=zone, start_at=start_at, catch_up=catch_up, max_active_runs=cap)


def deploy(deployed: Deployed, command_id: str, version: int, *, scheduled: bool) -> DeployWorkflow:
    """Make one of its graphs the present one."""
    return DeployWorkflow(
        tenant=deployed.tenant,
        command_id=CommandId(command_id),
        graph=deployed.versions[version],
        params=(SIZE, AT),
        schedule=deployed.schedule if scheduled else None,
    )


def draw_trigger(chance: Random, deployed: Deployed, word: str) -> SubmitRun:
    """A run by hand: about now or about some other minute, with parameters that are right, wrong or left out."""
    right, wrong = (b"", _pack({"size": 5})), (_pack({"size": "large"}), _pack({"colour": 1}))
    params = chance.choice(wrong if chance.random() < 0.15 else right)
    return SubmitRun(
        # Somebody asks by hand, which is audited.
        actor="somebody",
        tenant=deployed.tenant,
        command_id=CommandId(f"trigger {word}"),
        run=RunId(f"{deployed.name}-{word}"),
        workflow=deployed.name,
        version=chance.choice((0, 0, 0, 0, 1, 2)),
        logical_at=chance.choice((0, 0, START_AT - chance.randrange(10) * MINUTE_MS)),
        params=params,
    )


def draw_backfill(chance: Random, deployed: Deployed, word: str) -> StartBackfill:
    """A few slots of the past, some of which the calendar itself may have made too."""
    spec = deployed.schedule
    step_ms = spec.every_ms if spec is not None and spec.every_ms else MINUTE_MS
    end_at = START_AT - chance.randrange(2) * step_ms
    return StartBackfill(
        tenant=deployed.tenant,
        command_id=CommandId(f"backfill {word}"),
        backfill=ScheduleId(f"back-{deployed.name}-{word}"),
        workflow=deployed.name,
        start_at=end_at - chance.randint(1, 4) * step_ms,
        end_at=end_at,
        max_active_runs=chance.choice((1, 1, 2)),
    )


def draw_remedy(chance: Random, number: int, row: Run, graph: Graph, others: list[int]) -> ClientCommand:
    """What a person does about a run that did not go as it should have; `others` are versions it could be moved to."""
    tenant, name, run = row.tenant, f"remedy {number}", row.id
    task = chance.choice(graph.tasks).id
    kind = chance.randrange(14 if others else 9)
    if kind == 0:
        # About the whole run, every other time.
        about = task if number % 2 else ""
        return NoteTask(
            tenant=tenant, command_id=CommandId(name), run=run, task=TaskId(about), note=f"see ticket {number}\0"
        )
    if kind == 1:
        return RetryTasks(tenant=tenant, command_id=CommandId(name), run=run, tasks=chance.choice(((), (task,))))
    if kind == 2:
        return ClearTasks(tenant=tenant, command_id=CommandId(name), run=run, only_failed=chance.random() < 0.5)
    if kind == 3:
        downstream = chance.random() < 0.5
        return ClearTasks(tenant=tenant, command_id=CommandId(name), run=run, tasks=(task,), downstream=downstream)
    if kind in (4, 5):
        return MarkTasks(
            tenant=tenant, command_id=CommandId(name), run=run, tasks=(task,), to=chance.choice(list(Mark))
        )
    if kind == 6:
        return CancelRun(tenant=tenant, command_id=CommandId(name), run=run)
    if kind == 7:
        return PauseRun(tenant=tenant, command_id=CommandId(name), run=run)
    if kind == 8:
        return LoseOutputs(tenant=tenant, command_id=CommandId(name), run=run, tasks=(task,))
    return MoveRun(tenant=tenant, command_id=CommandId(name), run=run, version=chance.choice(others))
