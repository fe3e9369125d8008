"""`rota run NAME`: run a workflow that is deployed. `rota run FILE.py`: run one of a Python file, and watch it.

With a coordinator and a worker in this process, unless another coordinator is named or holds the data folder.
"""

import argparse
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli import EXIT_FAILED, Terminated
from rota.cli.choices import PRIORITIES
from rota.cli.files import find_workflow
from rota.cli.given import add_params, count, date, read_params
from rota.cli.progress import Progress
from rota.cli.reaching import add_place, again, elsewhere, folder_of
from rota.cli.showing import add_json, put, put_json, say, show_counts
from rota.core.errors import Refused
from rota.core.states import FAILED, RunState

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.client.blocking import BlockingRun
    from rota.core.questions import RunView, TaskView

EXAMPLES = """
  rota run etl.py     a file, with a coordinator and a worker in this process
  rota run etl.py:nightly --param day=2026-11-16
  rota run etl --date 2026-11-16 --follow     a workflow that is deployed
  rota run --resume etl-3f9a1c
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "what",
        metavar="NAME|FILE.py[:NAME]",
        nargs="?",
        default="",
        help="a deployed workflow; or a file, and which of its workflows if it has several",
    )
    what.add_argument("--resume", metavar="RUN", default="", help="go on with a run that was interrupted")
    add_params(parser)
    parser.add_argument("--date", type=date, metavar="DATE", help="what a deployed workflow's run is about")
    parser.add_argument("--version", type=count, metavar="N", help="which version of a deployed workflow")
    parser.add_argument("--follow", action="store_true", help="watch the run of a deployed workflow to its end")
    parser.add_argument("--id", default="", help="the run's id (default: the workflow's name and some letters)")
    parser.add_argument("--slots", type=count, metavar="N", help="how many tasks at once (default: one per processor)")
    parser.add_argument("--threads", action="store_true", help="run Python tasks in threads of this process")
    parser.add_argument("--priority", default="normal", choices=PRIORITIES, help="how urgent it is")
    add_place(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Submit, watch, and say how it went."""
    from rota.wire.deployments import names_a_file

    is_deployed = bool(options.what) and not (names_a_file(options.what) or Path(options.what).is_file())
    if not is_deployed and (options.date or options.version):
        text = "--date and --version are about a workflow that is deployed"
        raise Refused("field.value", text, "Deploy it first: rota deploy FILE.py.", path="--date")
    with ExitStack() as stack:
        # What the file and its tasks print is not our data.
        stack.enter_context(redirect_stdout(sys.stderr))
        workflow = find_workflow(options.what) if options.what and not is_deployed else None
        stack.enter_context(_ends_in_order())
        rota = stack.enter_context(_open(options, is_deployed=is_deployed))
        if workflow is not None:
            one = rota.submit(
                workflow, read_params(options.param, workflow.param_specs), run=options.id, priority=options.priority
            )
        elif is_deployed:
            one = rota.trigger(
                options.what,
                read_params(options.param, rota.workflow(options.what).workflow.params) if options.param else {},
                logical_date=options.date,
                version=options.version or 0,
                run=options.id,
                priority=options.priority,
            )
        else:
            one = rota.run(options.resume)
        began = one.status()
        version = f" version {began.version}" if began.version else ""
        say(f"run {one.id} of {began.name}{version}, {_where(options)}")
        # Where there is no other worker it would end with this process.
        view = None if is_deployed and not options.follow and not rota.is_host else _follow(one, rota, options)
        tasks = [] if view is None else one.tasks()
    return _tell_begun(began, options) if view is None else _tell(view, tasks, options)


def _follow(one: "BlockingRun", rota: "Rota", options: argparse.Namespace) -> "RunView":
    try:
        return watch(one)
    except KeyboardInterrupt:
        if not rota.is_host:
            say(f"run {one.id} goes on there. To look at it again, or to end it:")
        else:
            say(f"stopping; run {one.id} is kept. What it has done is not done again:")
        say(f"  rota run --resume {one.id} {again(options)}")
        say(f"  rota cancel {one.id} {again(options)}")
        raise


def _open(options: argparse.Namespace, *, is_deployed: bool) -> "Rota":
    from rota.app import Rota

    url = elsewhere(options)
    has_choices = options.slots is not None or options.threads
    if not url and is_deployed and not has_choices:
        return _open_folder(options)
    if not url:
        return Rota.embedded(folder_of(options), slots=options.slots, threads=options.threads)
    if has_choices:
        text = f"--slots and --threads are about a worker here, and the work is done by those of {url}"
        raise Refused("field.value", text, "Leave them out, or name a folder with --data.", path="--slots")
    return Rota.connect(url)


def _open_folder(options: argparse.Namespace) -> "Rota":
    """Whoever holds the folder; if nobody does, a coordinator and a worker here."""
    from rota.app import Rota

    rota = Rota.open(folder_of(options))
    if not rota.is_host:
        return rota
    rota.close()
    return Rota.embedded(folder_of(options))


def _tell_begun(view: "RunView", options: argparse.Namespace) -> int:
    from rota.wire.views import as_plain

    if options.json:
        put_json(as_plain(view))
    else:
        put(view.id)
        say(f"  rota tasks {view.id} {again(options)}")
    return 0


def _where(options: argparse.Namespace) -> str:
    return f"at {elsewhere(options)}" if elsewhere(options) else f"data in {folder_of(options)}"


@contextmanager
def _ends_in_order() -> Generator[None]:
    """SIGTERM is like Ctrl-C: work is handed back, and costs nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def watch(one: "BlockingRun") -> "RunView":
    """Draw what happens until the run has ended."""
    began = one.status()

    def explain(task: str) -> str:
        return "; ".join(reason.text for reason in one.why(task)) or "it does not wait any more"

    progress = Progress(one.tasks(), began.created_at, explain)
    progress.draw()
    for happening in one.events():
        progress.take(happening)
    progress.draw()
    return one.status()


def _tell(view: "RunView", tasks: "list[TaskView]", options: argparse.Namespace) -> int:
    from rota.core.spans import show_span
    from rota.wire.views import as_json, as_plain

    took = show_span(view.ended_at - view.created_at)
    say(f"{view.state} in {took}: {show_counts(view.tasks)}{'. ' + view.reason if view.reason else ''}")
    if view.state is not RunState.SUCCESS:
        failed = [each for each in tasks if each.state is FAILED]
        for each in failed[:3]:
            say(f"\n{each.id}: {each.error.strip()}")
        if failed:
            say(f"\n  rota logs {view.id} {failed[0].id} {again(options)}")
        say(f"  rota story {view.id} {again(options)}")
    if options.json:
        put_json({**as_plain(view), "tasks": [as_plain(each) for each in tasks]})
    else:
        for each in tasks:
            shown = as_plain(each)["result"] if each.result is not None else None
            if shown is not None:
                put(f"{each.id}: {as_json(shown)}")
    return 0 if view.state is RunState.SUCCESS else EXIT_FAILED
