"""Workflows of a Python file, for commands that run it here: `FILE.py`, or `FILE.py:NAME` if it has several."""

import importlib.util
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli.showing import say
from rota.core.errors import Refused

if TYPE_CHECKING:
    from rota.kinds.workflow.authoring import WorkflowFunction


def find_workflow(said: str) -> "WorkflowFunction":
    """The workflow that was named, built; what is wrong with it is shown."""
    if not said:
        raise Refused("field.value", "the path is empty", "Name a Python file.", path="FILE")
    file, _, name = (said, "", "") if Path(said).exists() else said.partition(":")
    path = Path(file)
    with _explained(path):
        workflow = load_workflow(path, name)
        workflow.build()
        return workflow


@contextmanager
def _explained(path: Path) -> Generator[None]:
    """An error in the user's file is shown from there on: what led to it is ours."""
    import traceback

    from rota.kinds.workflow.loading import relative_hint

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
        what = f"{path} cannot be used: {type(error).__name__}: {error}{relative_hint(error)}."
        raise Refused("field.value", what, "Its error is above.", path="FILE") from None


def load_workflow(path: Path, name: str) -> "WorkflowFunction":
    """The workflow in a file. The file is loaded as a module of its own, so `if __name__ == "__main__"` is not run."""
    from rota.kinds.workflow.authoring import WorkflowFunction
    from rota.wire.scripts import SCRIPT

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
