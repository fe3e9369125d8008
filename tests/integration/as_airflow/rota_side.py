"""Run described workflows with Rota: the real core and the real runner, in waves as Airflow's `dag.test()` runs them.

Everything that can run is a wave. Its attempts end in an order in which what Airflow looks at once means the same here:
decisions first, then failures, successes and skips.
"""

from contextlib import nullcontext
from typing import Any

import rota
from rota.core.changes import LeaseGranted
from rota.core.commands import Outcome
from rota.core.decide.leases import Offer, offer_of
from rota.core.invariants import validate
from rota.core.model import FailureClass
from rota.core.states import RUN_TERMINAL, TERMINAL
from rota.kinds.workflow.authoring import WorkflowFunction
from rota.wire.values import pack
from rota.wire.work import Value, decode_python, encode_value
from rota.worker.runners.calls import Call, Done, perform
from rota.worker.runners.outcomes import context_of
from tests.integration.as_airflow.descriptions import DECIDING, Description, TaskDescription, ancestors, outcome, value
from tests.unit.core.world import World

WAVES_MAX = 100


def attempt(described: TaskDescription, element: Any = None) -> Any:
    """One attempt of a task."""
    here = rota.context()
    match outcome(described, here.attempt, here.map_index):
        case "fail":
            raise ValueError("as described")
        case "fatal":
            raise rota.Fail("as described")
        case "skip":
            raise rota.Skip("as described")
        case _:
            return value(described, element)


def build(described: Description) -> WorkflowFunction:
    """The workflow."""

    def written() -> None:
        made: dict[str, Any] = {}
        groups: dict[str, Any] = {}
        tasks = described["tasks"]
        number = 0
        while number < len(tasks):
            group = tasks[number]["id"].rpartition(".")[0]
            with rota.task_group(group) if group else nullcontext() as opened:
                groups[group] = opened
                while number < len(tasks) and tasks[number]["id"].rpartition(".")[0] == group:
                    made[tasks[number]["id"]] = build_task(tasks[number], made)
                    number += 1
        for each in tasks:
            here = made[each["id"]]
            here.after(*(made[up] for up in each["up"]))
            if each["is_teardown"]:
                here.as_teardown(setups=[made[up] for up in each["setups"]], on_failure_fail_run=each["counts"])
            elif each["is_setup"]:
                here.as_setup()
        for each in tasks:
            for group in each["up_groups"]:
                groups[group] >> made[each["id"]]

    return rota.workflow(name=described["name"])(written)


def build_task(each: TaskDescription, made: dict[str, Any]) -> Any:
    options: dict[str, Any] = {"id": each["id"].rpartition(".")[2], "retries": each["retries"], "retry_delay": 0}
    if not each["is_teardown"]:
        options["trigger_rule"] = each["rule"]
    if each["kind"] == "short_direct":
        options["ignore_downstream_trigger_rules"] = False
    decorate = {
        "plain": rota.task,
        "branch": rota.task.branch,
        "short": rota.task.short_circuit,
        "short_direct": rota.task.short_circuit,
    }[each["kind"]]

    def body(x: Any = 0, y: Any = 0) -> Any:
        return attempt(each, x)

    decorated = decorate(**options)(body)
    if each["over"] is None:
        return decorated()
    lists = [each["over"]["items"]] if "items" in each["over"] else [made[name] for name in each["over"]["outputs"]]
    return decorated.expand(**dict(zip("xy", lists, strict=False)))


def run(described: Description) -> dict[str, Any]:
    """Run it, and say how it went; `overtaking` are tasks that started before a branch above them decided."""
    workflow = build(described)
    graph, functions = workflow.build(), workflow.functions()
    kinds = {each["id"]: each["kind"] for each in described["tasks"]}
    world = World()
    world.worker(slots=1_000)
    live = world.submit(graph)

    def rank(entry: tuple[LeaseGranted, Offer, Done]) -> int:
        _, offer, done = entry
        if kinds.get(offer.task_id) in DECIDING and done.outcome == "success":
            return 0
        return {"failed": 1, "success": 2, "skipped": 3}[done.outcome]

    deciding = {
        each["id"]: [name for name in ancestors(each, described["tasks"]) if kinds[name] in DECIDING]
        for each in described["tasks"]
    }
    overtaking: dict[str, None] = {}
    for _ in range(WAVES_MAX):
        ended: list[tuple[LeaseGranted, Offer, Done]] = []
        for granted in world.turn():
            offer = offer_of(world.state.leases[granted.fence])
            name = offer.task_id.partition("[")[0]
            if any(world.task(decider).state not in TERMINAL for decider in deciding.get(name, ())):
                overtaking[name] = None
            ended.append((granted, offer, call(offer, functions.get(name))))
        for granted, _, done in sorted(ended, key=rank):
            result = None if done.content is None else encode_value(Value(done.encoding, done.content))
            failure = FailureClass(done.failure)
            told = {"result": result, "error": done.error, "expands": done.expands, "skips": done.skips}
            world.report(granted, Outcome(done.outcome), failure=failure, **told)
            world.follow_up()
        assert validate(world.state, world.now) == []
        if live.row.state in RUN_TERMINAL:
            break
        world.advance(1)
    states: dict[str, dict[str, str]] = {}
    for name, state in world.states().items():
        task, _, index = name.partition("[")
        states.setdefault(task, {})[index.rstrip("]") or "-1"] = state
    return {"state": str(live.row.state), "tasks": states, "overtaking": list(overtaking)}


def call(offer: Offer, function: Any) -> Done:
    """What a worker makes of an attempt."""
    work = decode_python(offer.work)
    return perform(
        Call(work, context_of(offer, work.zone, None), offer.inputs, never, pack, owns_process=False, function=function)
    )


def never(stored: object) -> Any:
    raise AssertionError(f"no value is stored elsewhere: {stored}")
