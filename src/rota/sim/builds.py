"""Builds: bursts of small runs of which many are the same, asked for by several clients at once."""

from random import Random

from rota.core.commands import CancelRun, ClearTasks, ClientCommand, SubmitRun
from rota.core.ids import CommandId, Millis, RunId, TaskId
from rota.core.model import Graph, PoolNeed, PriorityClass, RetryPolicy, TaskSpec
from rota.sim.scripts import Script, write_script
from rota.sim.workload import TENANTS, TIMEOUT_MS, draw_script

BURST_MS: Millis = 12_000
CLIENTS = 4


def draw_burst(chance: Random, number: int) -> list[tuple[Millis, ClientCommand]]:
    """What is asked for in one burst, and when: the same few actions by everybody, some given up, some run again."""
    tenant = TENANTS[number % len(TENANTS)]
    actions = [_action(chance, f"a{part}") for part in range(chance.randint(1, 3))]
    asked: list[tuple[Millis, ClientCommand]] = []
    for part in range(chance.randint(6, 14)):
        name = f"build-{number}.{part}"
        action = chance.randrange(len(actions))
        client = chance.randrange(CLIENTS)
        asked.append(
            (
                chance.randrange(BURST_MS),
                SubmitRun(
                    tenant=tenant,
                    command_id=CommandId(f"submit {name}"),
                    run=RunId(name),
                    graph=actions[action],
                    # Some ask for an action that must not be shared.
                    merge=f"action {action}" if chance.random() < 0.9 else "",
                    share=f"invocation {client}",
                    labels=(("invocation", str(client)), ("target", f"//{action}")),
                    priority=chance.choice((PriorityClass.NORMAL, PriorityClass.HIGH)),
                ),
            )
        )
        if chance.random() < 0.25:
            cancel = CancelRun(tenant=tenant, command_id=CommandId(f"cancel {name}"), run=RunId(name))
            asked.append((chance.randrange(BURST_MS), cancel))
        if chance.random() < 0.4:
            again = ClearTasks(tenant=tenant, command_id=CommandId(f"again {name}"), run=RunId(name))
            asked.append((chance.randrange(2 * BURST_MS), again))
    return asked


def _action(chance: Random, name: str) -> Graph:
    script = Script(chance.choice((5, 400, 2_000))) if chance.random() < 0.7 else draw_script(chance)
    task = TaskSpec(
        id=TaskId("action"),
        queue="builds",
        work=write_script(script),
        timeout_ms=TIMEOUT_MS,
        retry=RetryPolicy(retries=chance.choice((0, 1))),
        requires=(("os", "linux"),),
        pools=(PoolNeed("db"),) if name == "a2" else (),
    )
    return Graph(name=name, kind="build", tasks=(task,), regrant_when_silent=True)
