"""Work items: small runs for agents that wait for each other, for a person, for a pause to end, or only so long."""

from random import Random

from rota.core.commands import ApproveRun, ClientCommand, PauseRun, PauseScheduler, ReleaseTasks, SubmitRun
from rota.core.ids import CommandId, Millis, RunId, TaskId
from rota.core.model import Graph, Pairs, PriorityClass, RetryPolicy, TaskSpec
from rota.sim.scripts import Script, write_script
from rota.sim.workload import TENANTS, TIMEOUT_MS, WORKSPACES, draw_script

BURST_MS: Millis = 12_000
SCOPES = ("", "workspace=docs", "workspace=code")


def draw_items(chance: Random, number: int, start_at: Millis) -> list[tuple[Millis, ClientCommand]]:
    """What is asked for in one burst, and when. `start_at` is when it begins, by the world's clock."""
    tenant = TENANTS[number % len(TENANTS)]
    asked: list[tuple[Millis, ClientCommand]] = []
    names: list[str] = []
    for part in range(chance.randint(4, 12)):
        name = f"item-{number}.{part}"
        asked += _item(chance, tenant, name, names, start_at)
        names.append(name)
    for part in range(chance.randint(0, 2)):
        scope = chance.choice(SCOPES)
        at = chance.randrange(BURST_MS)
        for order, paused in enumerate((True, False)):
            pause = PauseScheduler(
                tenant=tenant, command_id=CommandId(f"pause {number}.{part}.{order}"), scope=scope, paused=paused
            )
            asked.append((at + order * chance.randint(500, 8_000), pause))
    return asked


def _item(
    chance: Random, tenant: str, name: str, before: list[str], start_at: Millis
) -> list[tuple[Millis, ClientCommand]]:
    """One item, and what people do about it."""
    at = chance.randrange(BURST_MS)
    needs_approval = chance.random() < 0.2
    asked: list[tuple[Millis, ClientCommand]] = [
        (
            at,
            SubmitRun(
                tenant=tenant,
                command_id=CommandId(f"submit {name}"),
                run=RunId(name),
                graph=_graph(chance),
                labels=(("title", name),),
                priority=chance.choice(list(PriorityClass)),
                after=tuple(map(RunId, tuple(other for other in before[-3:] if chance.random() < 0.3))),
                # Some name one that is not there yet, or themselves.
                parent=RunId(
                    chance.choice((*before, *before, name, f"{name}0", "item-0.1")) if chance.random() < 0.3 else ""
                ),
                needs_approval=needs_approval,
                deadline_at=start_at + 60_000 + chance.randrange(60_000) if chance.random() < 0.1 else 0,
            ),
        )
    ]
    if needs_approval and chance.random() < 0.8:
        word = ApproveRun(
            tenant=tenant, command_id=CommandId(f"word {name}"), run=RunId(name), approved=chance.random() < 0.8
        )
        asked.append((at + chance.randrange(8_000), word))
    if chance.random() < 0.2:
        asked.append(
            (
                at + chance.randrange(8_000),
                ReleaseTasks(tenant=tenant, command_id=CommandId(f"back {name}"), run=RunId(name)),
            )
        )
    if chance.random() < 0.2:
        for order, paused in enumerate((True, False)):
            pause = PauseRun(
                tenant=tenant, command_id=CommandId(f"hold {name} {order}"), run=RunId(name), paused=paused
            )
            asked.append((at + order * chance.randint(500, 8_000), pause))
    return asked


def _graph(chance: Random) -> Graph:
    script = Script(chance.choice((5, 400, 2_000))) if chance.random() < 0.7 else draw_script(chance)
    requires: Pairs = (("workspace", chance.choice(WORKSPACES)),) if chance.random() < 0.7 else ()
    task = TaskSpec(
        id=TaskId("work"),
        queue="agents",
        work=write_script(script),
        timeout_ms=TIMEOUT_MS,
        requires=requires,
        retry=RetryPolicy(retries=chance.choice((0, 2))),
    )
    return Graph(name="work", kind="agent", tasks=(task,))
