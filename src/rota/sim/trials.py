"""Trials: runs that are made for one awkward question each, and are too rare to be left to chance."""

from collections.abc import Callable
from random import Random

import msgspec
from msgspec import Struct

from rota.core.commands import ClearTasks, Outcome, SubmitRun
from rota.core.ids import CommandId, Millis, RunId, TaskId
from rota.core.model import Expansion, FailureClass, Graph, PriorityClass, RetryPolicy, TaskSpec
from rota.core.trigger import TriggerRule
from rota.sim.faults import Mix
from rota.sim.scripts import Script, write_script
from rota.sim.workload import TENANTS, TIMEOUT_MS, draw_spec

EARLY_RULES = (TriggerRule.ONE_SUCCESS, TriggerRule.ONE_FAILED, TriggerRule.ONE_DONE)
BURST_MS: Millis = 1_500


class Trial(Struct):
    """Submissions, with their delays after the first; `again` asks for the id of the first once more."""

    submissions: list[tuple[Millis, SubmitRun]]
    again: SubmitRun | None = None


def draw_trial(chance: Random, number: int, mix: Mix) -> Trial:
    """One trial. Kinds that take longer than a storm with these limits are left to other seeds."""
    kinds: list[Callable[[Random, int, Mix], Trial]] = [_parked, _parked, _versions, _endless]
    if mix.limits.retain_ended_ms < mix.storm_ms:
        kinds.append(_reused)
    return chance.choice(kinds)(chance, number, mix)


def draw_growing(chance: Random, number: int) -> tuple[SubmitRun, ClearTasks]:
    """A run with a task that goes on as others, some of which fail, hang or lose what they were given.

    And a person who has something of it run again.
    """

    def part(above: str) -> tuple[int, bytes]:
        takes_ms = chance.choice((50, 400, 2_000))
        kind = chance.random()
        script = Script(takes_ms)
        if kind < 0.2:
            script = Script(takes_ms, fails=chance.choice((1, 2, 9)))
        elif kind < 0.3:
            script = Script(takes_ms, hangs=1)
        elif kind < 0.5 and above:
            script = Script(takes_ms, loses=(above, f"{above}[0]"))
        return chance.randint(1, 3), write_script(script)

    parts = [part(f"plan.part-{place - 1}" if place else "") for place in range(chance.randint(1, 3))]
    plan = Script(chance.choice((50, 400)), fails=chance.choice((0, 0, 1)), grows=tuple(parts))
    rule = chance.choice((TriggerRule.ALL_SUCCESS, TriggerRule.NONE_FAILED))
    is_alone = chance.random() < 0.3
    before = TaskSpec(id=TaskId("before"), work=write_script(Script(chance.choice((50, 2_000)))))
    after = TaskSpec(
        id=TaskId("after"),
        upstream=(TaskId("plan"),),
        inputs=(TaskId("plan"),),
        work=write_script(Script(50)),
    )
    tasks = (
        *(() if is_alone else (before,)),
        TaskSpec(
            id=TaskId("plan"),
            upstream=tuple(map(TaskId, () if is_alone else ("before",))),
            trigger_rule=rule,
            work=write_script(plan),
            retry=RetryPolicy(retries=2, delay_ms=300),
            timeout_ms=TIMEOUT_MS,
        ),
        *(() if is_alone else (after,)),
    )
    submission = SubmitRun(
        tenant=chance.choice(TENANTS),
        command_id=CommandId(f"growing {number}"),
        run=RunId(f"growing-{number}"),
        graph=Graph(name="growing", tasks=tasks),
        priority=chance.choice(list(PriorityClass)),
    )
    cleared = chance.choice(("plan", "plan.part-0") if is_alone else ("before", "before", "plan", "plan.part-0"))
    clearing = ClearTasks(
        tenant=submission.tenant,
        command_id=CommandId(f"growing {number} cleared"),
        run=submission.run,
        tasks=(TaskId(cleared),),
        downstream=chance.random() < 0.7,
        only_failed=chance.random() < 0.2,
    )
    return submission, clearing


def draw_sensor(chance: Random, number: int) -> SubmitRun:
    """A task that looks again a few times and then fails as often as it has retries: none of them may be missing."""
    retries = chance.randint(1, 2)
    script = Script(50, reschedules=chance.randint(1, 3), fails_late=retries)
    task = TaskSpec(id=TaskId("sensor"), work=write_script(script), retry=RetryPolicy(retries=retries, delay_ms=100))
    return SubmitRun(
        tenant=chance.choice(TENANTS),
        command_id=CommandId(f"sensor {number}"),
        run=RunId(f"sensor-{number}"),
        graph=Graph(name="sensor", tasks=(task,)),
    )


def draw_mapped(chance: Random, number: int) -> SubmitRun:
    """Tasks mapped over the output of one that may fail or be skipped, under every rule, and over each other.

    A branch beside it may leave them out, before or after it is known how many they are.
    """

    def script() -> Script:
        takes_ms = chance.choice((50, 400, 2_000))
        kind = chance.random()
        if kind < 0.25:
            return Script(takes_ms, fails=9, failure=chance.choice((FailureClass.FATAL, FailureClass.USER)))
        return Script(takes_ms, ends=Outcome.SKIPPED if kind < 0.5 else Outcome.SUCCESS)

    def rule() -> TriggerRule:
        return chance.choice((TriggerRule.ALL_SUCCESS, TriggerRule.ALL_DONE, *TriggerRule))

    width = chance.randint(0, 3)
    left_out = chance.choice(((), (), ("each",), ("every",)))
    tasks = (
        TaskSpec(
            id=TaskId("list"),
            work=write_script(msgspec.structs.replace(script(), expands=(("each", width), ("every", 2 * width)))),
            retry=RetryPolicy(retries=chance.randint(0, 1), delay_ms=300),
        ),
        TaskSpec(id=TaskId("pick"), work=write_script(Script(chance.choice((50, 2_000)), skips=left_out))),
        TaskSpec(
            id=TaskId("each"),
            width=0,
            upstream=(TaskId("list"), TaskId("pick")),
            trigger_rule=rule(),
            expansion=Expansion(TaskId("list")),
            work=write_script(script()),
        ),
        TaskSpec(
            id=TaskId("every"),
            width=0,
            upstream=(TaskId("each"), TaskId("pick")),
            trigger_rule=rule(),
            expansion=Expansion(TaskId("each")),
            work=write_script(script()),
        ),
        TaskSpec(
            id=TaskId("none"),
            upstream=(TaskId("every"),),
            trigger_rule=rule(),
            expansion=Expansion(is_empty=True),
        ),
        TaskSpec(
            id=TaskId("clean"),
            upstream=(TaskId("none"),),
            trigger_rule=TriggerRule.ALL_DONE,
            work=write_script(Script(20)),
        ),
    )
    return SubmitRun(
        tenant=chance.choice(TENANTS),
        command_id=CommandId(f"mapped {number}"),
        run=RunId(f"mapped-{number}"),
        graph=Graph(name="mapped", tasks=tasks),
        priority=chance.choice(list(PriorityClass)),
    )


def _submission(chance: Random, number: int, graph: Graph, word: str = "") -> SubmitRun:
    return SubmitRun(
        tenant=TENANTS[number % len(TENANTS)],
        command_id=CommandId(f"trial {number}{word}"),
        run=RunId(f"trial-{number}{word}"),
        graph=graph,
        priority=chance.choice(list(PriorityClass)),
    )


def _parked(chance: Random, number: int, mix: Mix) -> Trial:
    """A producer that will be parked, under rules that do not wait for it.

    It kills whoever runs it, or asks for what no worker has. The latter takes a starvation ladder, so only where that
    is short.
    """
    starves = mix.limits.starve_ms < mix.storm_ms and chance.random() < 0.6
    parked_by_ms = 45_000 if starves else 15_000
    bad = chance.random() < 0.5
    failure = FailureClass.FATAL if bad else FailureClass.USER
    quick = Script(chance.choice((50, parked_by_ms, parked_by_ms)), fails=9 if bad else 0, failure=failure)
    tasks = (
        TaskSpec(
            id=TaskId("parked"),
            work=write_script(Script(200, kills=not starves)),
            requires=(("cpu_count", "64"),) if starves else (),
            width=chance.choice((1, 1, 2)),
        ),
        TaskSpec(id=TaskId("quick"), work=write_script(quick)),
        TaskSpec(
            id=TaskId("early"),
            upstream=(TaskId("parked"), TaskId("quick")),
            trigger_rule=chance.choice(EARLY_RULES),
            work=write_script(Script(chance.choice((50, 2_000)))),
        ),
        TaskSpec(
            id=TaskId("after"),
            upstream=(TaskId("early"),),
            trigger_rule=chance.choice(list(TriggerRule)),
            work=write_script(Script(50)),
        ),
        TaskSpec(
            id=TaskId("last"),
            upstream=(TaskId("parked"), TaskId("after")),
            trigger_rule=chance.choice((TriggerRule.ALL_DONE, *EARLY_RULES)),
            work=write_script(Script(50)),
        ),
    )
    return Trial([(0, _submission(chance, number, Graph(name="parked", tasks=tasks)))])


def _versions(chance: Random, number: int, mix: Mix) -> Trial:
    """Versions of one capped graph: the cap is the name's, whatever the tasks."""
    del mix
    cap = chance.randint(1, 2)
    versions = [
        Graph(
            name=f"versions{number}",
            max_active_runs=cap,
            tasks=tuple(
                TaskSpec(
                    id=TaskId(f"v{version}t{position}"),
                    upstream=tuple(map(TaskId, (f"v{version}t{position - 1}",) if position else ())),
                    work=write_script(Script(chance.choice((50, 400, 2_000)))),
                )
                for position in range(version + 1)
            ),
        )
        for version in range(3)
    ]
    return Trial(
        [
            (chance.randrange(BURST_MS), _submission(chance, number, chance.choice(versions), f".{part}"))
            for part in range(chance.randint(4, 6))
        ]
    )


def _endless(chance: Random, number: int, mix: Mix) -> Trial:
    """Work that never ends by itself: a task's time limit ends it, or its run's."""
    by_run = chance.random() < 0.4
    retry = RetryPolicy(retries=chance.randint(0, 2), timeout_retries=chance.choice((None, 0, 1)))
    tasks = (
        TaskSpec(
            id=TaskId("endless"),
            queue="agents" if mix.pull_workers and chance.random() < 0.3 else "default",
            work=write_script(Script(endless=True)),
            timeout_ms=0 if by_run else chance.choice((500, 3_000, 9_000)),
            retry=retry,
            width=chance.choice((1, 2)),
        ),
        draw_spec(chance, "beside", []),
        TaskSpec(
            id=TaskId("below"),
            upstream=(TaskId("endless"), TaskId("beside")),
            trigger_rule=chance.choice(list(TriggerRule)),
            work=write_script(Script(50)),
            # More than enough: a limit that is not reached changes nothing.
            timeout_ms=60_000,
        ),
    )
    timeout_ms = chance.choice((4_000, 12_000)) if by_run else 0
    return Trial([(0, _submission(chance, number, Graph(name="endless", tasks=tasks, run_timeout_ms=timeout_ms)))])


def _reused(chance: Random, number: int, mix: Mix) -> Trial:
    """A run id that is used again, for something else, once its first run is in history."""
    del mix
    first, second = (
        Graph(
            name=f"reused{life}", tasks=(*(draw_spec(chance, f"l{life}t{position}", []) for position in range(life)),)
        )
        for life in (1, chance.randint(1, 3))
    )
    submission = _submission(chance, number, first)
    return Trial([(0, submission)], again=_again(submission, second, f"trial {number} again"))


def _again(first: SubmitRun, graph: Graph, command_id: str) -> SubmitRun:
    return SubmitRun(
        tenant=first.tenant, command_id=CommandId(command_id), run=first.run, graph=graph, priority=first.priority
    )
