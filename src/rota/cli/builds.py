"""`rota builds`: invocations of build tools; `rota builds INVOCATION`: its actions, what each came to or waits for."""

import argparse
from collections import Counter
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from rota.cli.reaching import reach
from rota.cli.showing import finish, put, put_json, put_table, say, show_counts, show_span, show_time
from rota.client.blocking import BlockingClient
from rota.core.questions import RunView, TaskView
from rota.core.states import RUN_TERMINAL, SUCCESS
from rota.wire.builds import BUILD, BuildResult, decode_result

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


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("invocation", nargs="?", default="", metavar="INVOCATION", help="which one, or how it begins")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="how many invocations (default 20)")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """List them."""
    with reach(options) as rota:
        if options.invocation:
            # Whoever gives all of it need not be shown what else there is.
            exact = rota.runs(name=BUILD, labels=(("invocation", options.invocation),), limit=RUNS_MAX)
            views = exact or rota.runs(name=BUILD, limit=RUNS_MAX)
            wanted = [view for view in views if _invocation(view).startswith(options.invocation)]
            return _show_actions(options, [_action(rota, view) for view in reversed(wanted)])
        views = rota.runs(name=BUILD, limit=RUNS_MAX)
    found = list(_gather(views))[: options.limit]
    if options.json:
        put_json(found)
    elif not found:
        say("no builds")
    else:
        put_table(
            ("INVOCATION", "CREATED", "TOOK", "ACTIONS", ""),
            (
                (
                    each.invocation,
                    show_time(each.created_at),
                    show_span(each.ended_at - each.created_at) if each.ended_at else "",
                    str(each.actions),
                    show_counts(each.states),
                )
                for each in found
            ),
        )
    return 0


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
    result = _result(task)
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


def _result(task: TaskView | None) -> BuildResult | None:
    if task is None or task.state is not SUCCESS or task.result is None:
        return None
    try:
        return decode_result(task.result)
    except msgspec.MsgspecError:
        return None


def _show_actions(options: argparse.Namespace, actions: list[Action]) -> int:
    if options.json:
        put_json(actions)
        return 0
    if not actions:
        say(f"no actions of {options.invocation}; `rota builds` lists invocations")
        return 0
    put_table(
        ("RUN", "MNEMONIC", "TARGET", "STATE", "EXIT", "TOOK", "WORKER"),
        (
            (
                each.run,
                each.mnemonic,
                each.target,
                each.state,
                each.exit,
                show_span(each.took_ms) if each.took_ms else "",
                each.worker,
            )
            for each in actions
        ),
    )
    for each in actions:
        for reason in each.why:
            put(f"{each.run}: {reason}")
    say(f"what one printed: rota logs RUN {TASK}; why it waits: rota why RUN {TASK}; all of it: rota story RUN")
    return 0
