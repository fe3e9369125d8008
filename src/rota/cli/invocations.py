"""Builds as `rota builds` shows them: invocations of build tools, and the actions of one."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from rota.client.blocking import BlockingClient
from rota.core.questions import RunView
from rota.core.states import RUN_TERMINAL
from rota.wire.builds import BUILD, result_of

TASK = "action"
# What belongs to no invocation: its client did not say.
NOBODY = "-"
RUNS_MAX = 10_000


class Invocation(Struct):
    """What a client asked for in one go."""

    invocation: str
    actions: int = 0
    states: dict[str, int] = {}
    created_at: int = 0
    ended_at: int = 0


class Action(Struct, kw_only=True):
    """One action of it. `exit` is its own exit code, empty if it has none; `why` are the reasons why it waits."""

    run: str
    target: str
    mnemonic: str
    state: str
    exit: str
    worker: str
    created_at: int
    took_ms: int
    why: list[str]


def find_invocations(rota: BlockingClient) -> list[Invocation]:
    """Invocations, the newest first."""
    return list(_gather(rota.runs(name=BUILD, limit=RUNS_MAX)))


def find_actions(rota: BlockingClient, invocation: str) -> list[Action]:
    """The actions of those whose id begins like this, the oldest first."""
    # Whoever gives all of it need not be shown what else there is.
    exact = rota.runs(name=BUILD, labels=(("invocation", invocation),), limit=RUNS_MAX)
    views = exact or rota.runs(name=BUILD, limit=RUNS_MAX)
    wanted = [view for view in views if _invocation(view).startswith(invocation)]
    return [_action(rota, view) for view in reversed(wanted)]


def _gather(views: Iterable[RunView]) -> Iterable[Invocation]:
    """Invocations, the newest first."""
    found: dict[str, list[RunView]] = {}
    for view in views:
        found.setdefault(_invocation(view), []).append(view)
    for invocation, runs in found.items():
        is_over = all(view.state in RUN_TERMINAL for view in runs)
        yield Invocation(
            invocation,
            len(runs),
            dict(Counter(str(view.state) for view in runs)),
            min(view.created_at for view in runs),
            max(view.ended_at for view in runs) if is_over else 0,
        )


def _invocation(view: RunView) -> str:
    return dict(view.labels).get("invocation", NOBODY)


def _action(rota: BlockingClient, view: RunView) -> Action:
    labels = dict(view.labels)
    one = rota.run(view.id)
    task = next(iter(one.tasks()), None)
    result = result_of(task)
    why = [] if view.state in RUN_TERMINAL else [f"{each.code}: {each.text}" for each in one.why(TASK)]
    return Action(
        run=view.id,
        target=labels.get("target", ""),
        mnemonic=labels.get("mnemonic", ""),
        state=str(view.state if task is None or view.state in RUN_TERMINAL else task.state),
        exit="" if result is None else result.message if result.status else str(result.exit_code),
        worker=result.worker if result is not None else task.worker if task is not None else "",
        created_at=view.created_at,
        took_ms=view.ended_at - view.created_at if view.ended_at else 0,
        why=why if task is None or not task.error else [*why, task.error.strip()],
    )
