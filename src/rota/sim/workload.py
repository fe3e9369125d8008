"""What users of the simulated world do: random graphs of every shape, and nearly all the commands there are."""

from random import Random

from rota.core.calendar import ScheduleSpec
from rota.core.commands import (
    CancelRun,
    ClearTasks,
    ClientCommand,
    DrainWorker,
    EndQuarantine,
    ForgetWorker,
    GrowRun,
    LoseOutputs,
    Outcome,
    PauseRun,
    PutPool,
    PutQueue,
    PutSchedule,
    PutTenant,
    SteerStream,
    SubmitRun,
)
from rota.core.ids import CommandId, RunId, ScheduleId, TaskId, WorkerId
from rota.core.model import (
    AGENT_PROPERTIES,
    Capacity,
    FailureClass,
    Graph,
    Pool,
    PoolNeed,
    PriorityClass,
    PropertyRule,
    Queue,
    RetryPolicy,
    TaskSpec,
    Unservable,
)
from rota.core.trigger import TriggerRule
from rota.sim.scripts import Script, write_script

TENANTS = ("ada", "bob")
# Twice the longest script: only what hangs, or stands still with its worker, comes to it.
TIMEOUT_MS = 40_000
# Likewise, and sooner: what hangs in a queue that minds.
UNHEARD_MS = 30_000
WORKSPACES = ("docs", "code")
PROPERTIES = (("cpu_count", PropertyRule.MINIMUM), ("os", PropertyRule.EXACT), ("image", PropertyRule.PRIORITY))


def definitions(tenant: str) -> list[ClientCommand]:
    """Queues and pools that every world has."""
    agents = Queue(tenant=tenant, name="agents", pull=True, properties=AGENT_PROPERTIES)
    builds = Queue(
        tenant=tenant,
        name="builds",
        properties=PROPERTIES,
        unservable=Unservable.FAIL,
        unservable_ms=12_000,
        retain_completed_for_ms=15_000,
        worker_timeout_ms=3_000,
        max_action_executing_timeout_ms=UNHEARD_MS,
        max_job_retries=2,
    )
    pools = (
        Pool(tenant=tenant, name="db", slots=2),
        Pool(tenant=tenant, name="keyed", slots=4, slots_per_key=1),
        Pool(tenant=tenant, name="rate", starts_per_minute=600, burst=3),
    )
    queues: list[ClientCommand] = [
        PutQueue(tenant=tenant, command_id=CommandId(f"queue {queue.name}"), queue=queue) for queue in (agents, builds)
    ]
    return queues + [PutPool(tenant=tenant, command_id=CommandId(f"pool {pool.name}"), pool=pool) for pool in pools]


def draw_capacity(chance: Random, number: int) -> Capacity:
    """What one push worker is. The first can run everything, so that nothing is impossible unless it is meant to be."""
    os = "linux" if number == 0 or chance.random() < 0.8 else "macos"
    properties = (
        ("cpu_count", str(4 if number == 0 else chance.randint(1, 4))),
        ("os", os),
        ("image", f"i{number % 2}"),
    )
    return Capacity(slots=chance.randint(2, 4), properties=properties)


def draw_session(chance: Random, number: int) -> Capacity:
    """What one agent session is. The first has every workspace; some are given up late when they fall silent."""
    workspaces = WORKSPACES if number == 0 else chance.choice((WORKSPACES, WORKSPACES[:1], WORKSPACES[1:], ()))
    return Capacity(
        slots=1,
        pull=True,
        queues=("agents",),
        properties=tuple(("workspace", name) for name in workspaces),
        silence_ms=chance.choice((0, 0, 90_000)),
    )


def draw_script(chance: Random) -> Script:
    """What an attempt does."""
    kind = chance.random()
    takes_ms = chance.choice((5, 50, 400, 2_000, 7_000, 20_000))
    if kind < 0.6:
        return Script(takes_ms)
    if kind < 0.62:
        return Script(200, kills=True)
    if kind < 0.64:
        return Script(takes_ms, hangs=1)
    if kind < 0.8:
        failure = chance.choice((FailureClass.USER, FailureClass.TIMEOUT, FailureClass.INTERNAL, FailureClass.FATAL))
        return Script(takes_ms, fails=chance.randint(1, 3), failure=failure)
    if kind < 0.9:
        return Script(takes_ms, reschedules=chance.randint(1, 2))
    return Script(takes_ms, ends=Outcome.SKIPPED)


def draw_spec(chance: Random, name: str, above: list[str]) -> TaskSpec:
    """One node."""
    upstream = tuple(up for up in above if chance.random() < 0.35)[:4]
    pools: tuple[PoolNeed, ...] = ()
    if chance.random() < 0.3:
        pools = (
            chance.choice(
                (PoolNeed("db"), PoolNeed("keyed", 1, chance.choice("xyz")), PoolNeed("rate"), PoolNeed("db", 2))
            ),
        )
    queue = chance.choice(("default", "default", "default", "builds"))
    requires: tuple[tuple[str, str], ...] = ()
    if chance.random() < 0.4:
        requires = (("cpu_count", str(chance.randint(1, 3))),)
    if queue == "builds" and chance.random() < 0.5:
        requires += (("os", "linux"), ("image", "i1"))
    rule = chance.choice(list(TriggerRule)) if chance.random() < 0.3 else TriggerRule.ALL_SUCCESS
    loses = (upstream[0],) if upstream and chance.random() < 0.05 else ()
    script = Script(50, loses=loses) if loses else draw_script(chance)
    return TaskSpec(
        id=TaskId(name),
        work=write_script(script),
        timeout_ms=TIMEOUT_MS,
        upstream=tuple(map(TaskId, upstream)),
        trigger_rule=rule,
        width=1 if chance.random() < 0.85 else chance.randint(2, 4),
        queue=queue,
        requires=requires,
        pools=pools,
        priority=chance.randint(0, 2),
        retry=RetryPolicy(retries=chance.randint(0, 3), delay_ms=chance.choice((0, 300, 2_000))),
    )


def draw_graph(chance: Random, number: int, *, agents: bool) -> Graph:
    """One graph: a single task, a small DAG with every trigger rule, a mapped one, or work for agents."""
    shape = chance.random()
    if shape < 0.3:
        tasks = (draw_spec(chance, "only", []),)
    elif shape < 0.42 and agents:
        tasks = (
            TaskSpec(
                id=TaskId("ask"),
                queue="agents",
                work=write_script(draw_script(chance)),
                retry=RetryPolicy(retries=2),
                timeout_ms=TIMEOUT_MS,
            ),
        )
    elif shape < 0.55:
        width = chance.randint(0, 5)
        script = Script(50, expands=(("each", width),))
        tasks = (
            TaskSpec(id=TaskId("list"), work=write_script(script)),
            TaskSpec(
                id=TaskId("each"),
                width=0,
                upstream=(TaskId("list"),),
                work=write_script(draw_script(chance)),
                timeout_ms=TIMEOUT_MS,
            ),
            TaskSpec(
                id=TaskId("join"),
                upstream=(TaskId("each"),),
                trigger_rule=TriggerRule.ALL_DONE,
                work=write_script(Script(20)),
            ),
        )
    else:
        names: list[str] = []
        specs: list[TaskSpec] = []
        for position in range(chance.randint(2, 9)):
            specs.append(draw_spec(chance, f"t{position}", names))
            names.append(f"t{position}")
        tasks = tuple(specs)
        if chance.random() < 0.15:
            tasks = _with_setup(tasks)
    return Graph(
        name=f"g{number % 7}",
        tasks=tasks,
        max_active_runs=(0, 0, 0, 1, 2, 0, 3)[number % 7],
        max_active_tasks=(0, 2, 0, 0, 0, 3, 0)[number % 7],
        run_timeout_ms=chance.choice((0, 0, 0, 0, 25_000)),
    )


def _with_setup(tasks: tuple[TaskSpec, ...]) -> tuple[TaskSpec, ...]:
    setup = TaskSpec(id=TaskId("up"), is_setup=True, work=write_script(Script(20)))
    wired = [
        TaskSpec(
            id=task.id,
            work=task.work,
            upstream=(*task.upstream, TaskId("up")),
            trigger_rule=task.trigger_rule,
            timeout_ms=TIMEOUT_MS,
        )
        for task in tasks
    ]
    down = TaskSpec(
        id=TaskId("down"),
        is_teardown=True,
        upstream=(*(task.id for task in tasks), TaskId("up")),
        trigger_rule=TriggerRule.ALL_DONE_SETUP_SUCCESS,
        work=write_script(Script(20)),
    )
    return (setup, *wired, down)


def draw_submission(chance: Random, number: int, *, poison: bool, agents: bool) -> SubmitRun:
    """One run."""
    # Some graphs are run again and again; most are new.
    graph = (
        draw_graph(Random(7), 3, agents=False) if chance.random() < 0.25 else draw_graph(chance, number, agents=agents)
    )
    return SubmitRun(
        tenant=chance.choice(TENANTS),
        command_id=CommandId(f"submit {number}"),
        run=RunId(f"run-{number}"),
        graph=graph,
        priority=chance.choice(list(PriorityClass)),
        params=b"poison" if poison else b"",
    )


def draw_lure(chance: Random, number: int) -> SubmitRun:
    """A run with enough work for agents that one who means to vanish gets something to vanish with."""
    script = Script(chance.choice((400, 2_000, 7_000)))
    tasks = (
        TaskSpec(id=TaskId("ask"), queue="agents", width=3, work=write_script(script), retry=RetryPolicy(retries=1)),
    )
    return SubmitRun(
        tenant=chance.choice(TENANTS),
        command_id=CommandId(f"lure {number}"),
        run=RunId(f"lure-{number}"),
        graph=Graph(name="l", tasks=tasks),
    )


def draw_schedule(chance: Random, number: int) -> PutSchedule:
    """One schedule, often enough to matter within a storm."""
    spec = ScheduleSpec(
        every_ms=chance.choice((3_000, 7_000, 15_000)),
        catch_up=chance.random() < 0.5,
        max_active_runs=chance.choice((0, 1, 2)),
    )
    graph = Graph(name=f"s{number}", tasks=(TaskSpec(id=TaskId("only"), work=write_script(Script(200))),))
    return PutSchedule(
        tenant=chance.choice(TENANTS),
        command_id=CommandId(f"schedule {number}"),
        schedule=ScheduleId(f"sched-{number}"),
        graph=graph,
        spec=spec,
    )


def draw_meddling(chance: Random, number: int, submitted: list[SubmitRun], workers: int) -> ClientCommand | None:
    """Something a user does to a run that exists: most of it must be harmless, all of it must be answered."""
    if not submitted:
        return None
    target = chance.choice(submitted)
    tenant, run, name = target.tenant, target.run, f"meddle {number}"
    names = [task.id for task in target.graph.tasks] if target.graph is not None else []
    kind = chance.randrange(9)
    if kind == 0:
        return CancelRun(tenant=tenant, command_id=CommandId(name), run=run)
    if kind in (1, 2):
        return PauseRun(tenant=tenant, command_id=CommandId(name), run=run, paused=kind == 1)
    if kind == 3:
        tasks = (chance.choice(names),)
        return ClearTasks(
            tenant=tenant, command_id=CommandId(name), run=run, tasks=tasks, downstream=chance.random() < 0.7
        )
    if kind == 4:
        spec = TaskSpec(id=TaskId(f"grown{number}"), upstream=(chance.choice(names),), work=write_script(Script(50)))
        return GrowRun(tenant=tenant, command_id=CommandId(name), run=run, specs=(spec,))
    if kind == 5:
        return LoseOutputs(tenant=tenant, command_id=CommandId(name), run=run, tasks=(chance.choice(names),))
    if kind == 6:
        slots = chance.randint(1, 3)
        pool = Pool(tenant=tenant, name="db", slots=max(2, slots))
        return PutPool(tenant=tenant, command_id=CommandId(name), pool=pool)
    if kind == 7:
        weight = chance.randint(1, 5)
        if number % 2:
            return SteerStream(tenant=tenant, command_id=CommandId(name), stream="clicks", verb="pause")
        return PutTenant(tenant=tenant, command_id=CommandId(name), weight=weight)
    worker, wish = f"push{chance.randrange(workers)}", chance.random()
    if wish > 0.9:
        return ForgetWorker(tenant="shared", command_id=CommandId(name), worker=WorkerId(worker))
    if 0.45 < wish < 0.55:
        return EndQuarantine(tenant="shared", command_id=CommandId(name), worker=WorkerId(worker))
    return DrainWorker(tenant="shared", command_id=CommandId(name), worker=WorkerId(worker), draining=wish < 0.5)
