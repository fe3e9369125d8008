"""`rota run FILE.py`: run a graph of a Python file, and watch it.

With a coordinator and a worker in this process, unless another coordinator is named.
"""

import argparse
import importlib.util
import json
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from rota.app import Rota
from rota.cli import EXIT_FAILED, Terminated
from rota.cli.progress import Progress
from rota.cli.reaching import add_place, again, elsewhere, folder_of
from rota.cli.showing import add_json, put, put_json, say, show_counts, show_span
from rota.client.blocking import BlockingRun
from rota.core.errors import Refused
from rota.core.model import PriorityClass
from rota.core.questions import RunView, TaskView
from rota.core.states import FAILED, RunState
from rota.kinds.workflow.authoring import WorkflowFunction
from rota.wire.scripts import SCRIPT
from rota.wire.views import as_plain


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "file", metavar="FILE.py[:GRAPH]", nargs="?", help="the file, and which of its graphs if it has several"
    )
    what.add_argument("--resume", metavar="RUN", default="", help="go on with a run that was interrupted")
    parser.add_argument(
        "--param", action="append", type=_param, default=[], metavar="NAME=VALUE", help="a parameter; JSON, or text"
    )
    parser.add_argument("--id", default="", help="the run's id (default: the graph's name and some letters)")
    parser.add_argument("--slots", type=_slots, metavar="N", help="how many tasks at once (default: one per processor)")
    parser.add_argument("--threads", action="store_true", help="run Python tasks in threads of this process")
    parser.add_argument("--priority", default="normal", choices=list(PriorityClass), help="how urgent it is")
    add_place(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Submit, watch, and say how it went."""
    with ExitStack() as stack:
        # What the file and its tasks print is not our data.
        stack.enter_context(redirect_stdout(sys.stderr))
        graph = None if options.resume else _find_workflow(options.file)
        stack.enter_context(_ends_in_order())
        rota = stack.enter_context(_open(options))
        if graph is None:
            one = rota.run(options.resume)
        else:
            one = rota.submit(graph, dict(options.param), run=options.id, priority=options.priority)
        say(f"run {one.id} of {one.status().name}, {_where(options)}")
        try:
            view = watch(one)
        except KeyboardInterrupt:
            if elsewhere(options):
                say(f"run {one.id} goes on there. To look at it again, or to end it:")
            else:
                say(f"stopping; run {one.id} is kept. What it has done is not done again:")
            say(f"  rota run --resume {one.id} {again(options)}")
            say(f"  rota cancel {one.id} {again(options)}")
            raise
        tasks = one.tasks()
    return _tell(view, tasks, options)


def _open(options: argparse.Namespace) -> Rota:
    url = elsewhere(options)
    if not url:
        return Rota.embedded(folder_of(options), slots=options.slots, threads=options.threads)
    if options.slots is not None or options.threads:
        text = f"--slots and --threads are about a worker here, and the work is done by those of {url}"
        raise Refused("field.value", text, "Leave them out, or name a folder with --data.", path="--slots")
    return Rota.connect(url)


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


def _find_workflow(said: str) -> WorkflowFunction:
    file, _, name = (said, "", "") if Path(said).exists() else said.partition(":")
    path = Path(file)
    with _explained(path):
        graph = load_workflow(path, name)
        graph.build()
        return graph


@contextmanager
def _explained(path: Path) -> Generator[None]:
    """An error in the user's file is shown from there on: what led to it is ours."""
    try:
        yield
    except Refused:
        raise
    except (Exception, SystemExit) as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != str(path.resolve()):
            trace = trace.tb_next
        shown = "".join(traceback.format_exception(type(error), error, trace)).rstrip()
        say(shown)
        what = f"{path} cannot be used: {type(error).__name__}: {error}."
        raise Refused("field.value", what, "Its error is above.", path="FILE") from None


def watch(one: BlockingRun) -> RunView:
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


def _tell(view: RunView, tasks: list[TaskView], options: argparse.Namespace) -> int:
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
                put(f"{each.id}: {json.dumps(shown, ensure_ascii=False, default=str)}")
    return 0 if view.state is RunState.SUCCESS else EXIT_FAILED


def load_workflow(path: Path, name: str) -> WorkflowFunction:
    """The graph in a file. The file is loaded as a module of its own, so `if __name__ == "__main__"` is not run."""
    if not path.is_file():
        raise Refused("field.value", f"there is no file {path}", "Give the path of a Python file.", path="FILE")
    spec = importlib.util.spec_from_file_location(SCRIPT, path.resolve())
    if spec is None or spec.loader is None:
        raise Refused("field.value", f"{path} cannot be loaded as Python", path="FILE")
    module = importlib.util.module_from_spec(spec)
    sys.modules[SCRIPT] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[SCRIPT]
        raise
    found = {key: value for key, value in vars(module).items() if isinstance(value, WorkflowFunction)}
    if name:
        found = {key: value for key, value in found.items() if name in (key, value.name)}
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        what = f"{path} has no workflow {name!r}" if name else f"{path} has no workflow"
        raise Refused("graph.empty", what, "Decorate a function with @rota.workflow.", path="FILE")
    names = ", ".join(found)
    raise Refused("field.value", f"{path} has several workflows: {names}", f"Say which: {path}:{next(iter(found))}.")


def _param(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _slots(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least one task must be able to run")
    return number
