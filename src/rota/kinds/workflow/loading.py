"""Importing one file of a bundle, and what workflows are in it. User code runs here: in throw-away processes only."""

import importlib
import signal
import sys
import traceback
from pathlib import Path, PurePosixPath
from types import FrameType, ModuleType, TracebackType

from msgspec import structs

from rota.core.bounds import TEXT_CHARS_MAX
from rota.core.errors import Refused
from rota.core.model import Graph
from rota.kinds.workflow.authoring import WorkflowFunction
from rota.kinds.workflow.functions import LOCALS, bundle_root
from rota.kinds.workflow.places import RefusedAt
from rota.wire.deployments import Broken, Compilation, Compiled, Job

TRACE_CHARS_MAX = 8_000
_OURS = f"{Path(__file__).parents[2]}/"


class TooLong(BaseException):
    """The time for loading a file is over. It is raised wherever the file's code happens to be."""


def compile_file(job: Job, file: str) -> Compilation:
    """The workflows of a file, and what is wrong with those that cannot be deployed."""
    root = Path(job.root)
    begin = _Beginning(root, job.shown)
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, job.timeout_s)
    bundle_root.set(root)
    try:
        module = _import(root, file)
        found = _workflows_of(module)
    except BaseException as error:  # user code may raise anything, and must not stop the other files
        return Compilation(broken=(begin.broken(file, error, job.timeout_s),))
    compiled: list[Compiled] = []
    broken: list[Broken] = []
    for workflow in found:
        try:
            compiled.append(_compile(root, file, workflow))
        except BaseException as error:  # likewise, nor the other workflows of the file
            line = workflow.function.__code__.co_firstlineno
            broken.append(begin.broken(file, error, job.timeout_s, workflow.name, line))
    signal.setitimer(signal.ITIMER_REAL, 0)
    loaded = _loaded_files(root)
    return Compilation(workflows=tuple(structs.replace(each, loaded=loaded) for each in compiled), broken=tuple(broken))


def _loaded_files(root: Path) -> tuple[str, ...]:
    """The files below a root that modules were loaded from."""
    start = f"{root}/"
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return tuple(
        sorted({file.removeprefix(start) for file in files if isinstance(file, str) and file.startswith(start)})
    )


def _out_of_time(_number: int, _frame: FrameType | None) -> None:
    raise TooLong


def module_name(file: str) -> str:
    """The name by which a file is imported from the root of its bundle."""
    parts = PurePosixPath(file).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    name = ".".join(parts)
    if not parts or any("." in part for part in parts):
        text = f"{file} cannot be imported from the folder that is deployed"
        raise Refused("field.value", text, "Give it a name without dots, in a folder without dots.", path="file")
    if parts[0] in sys.stdlib_module_names or parts[0] in sys.modules:
        text = f"a module called {parts[0]!r} comes with Python or Rota, and is imported instead of {file}"
        raise Refused("field.value", text, "Rename it.", path="file")
    return name


def relative_hint(error: BaseException) -> str:
    """What to do about a file of a package that was loaded without its package; nothing for other errors."""
    if not isinstance(error, ImportError) or "relative import" not in str(error):
        return ""
    return ". Its package has no name here: deploy the folder that holds the package, as in `rota deploy FOLDER`"


def _import(root: Path, file: str) -> ModuleType:
    name = module_name(file)
    sys.path.insert(0, str(root))
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()
    return importlib.import_module(name)


def _workflows_of(module: ModuleType) -> list[WorkflowFunction]:
    """Those that are written in a module, and not those that it imports; each once."""
    found: dict[int, WorkflowFunction] = {}
    for value in vars(module).values():
        if isinstance(value, WorkflowFunction) and value.function.__module__ == module.__name__:
            found[id(value)] = value
    return list(found.values())


def _compile(root: Path, file: str, workflow: WorkflowFunction) -> Compiled:
    graph = workflow.build()
    _check_names(workflow)
    _check_portable(root, graph)
    return Compiled(
        graph=graph,
        source=f"{file}:{workflow.function.__code__.co_firstlineno}",
        params=workflow.param_specs,
        schedule=workflow.schedule,
        priority=workflow.priority,
        paused=workflow.paused,
        doc=workflow.doc[:TEXT_CHARS_MAX],
        zone=workflow.zone,
    )


def _check_names(workflow: WorkflowFunction) -> None:
    """Refuse functions inside a workflow's that share a name: a worker could not tell them apart."""
    found: dict[str, object] = {}
    for id, function in workflow.functions().items():
        name = getattr(function, "__qualname__", "")
        if LOCALS in name and found.setdefault(name, function) is not function:
            text = f"task {id!r}: two functions are called {name}"
            raise Refused("field.value", text, "Write one with `def` in the module, and give it arguments.", path=id)


def _check_portable(root: Path, graph: Graph) -> None:
    """Refuse what has the place in it where it was compiled: no worker has that, and no two versions share it."""
    # By its name alone: a pickled path is in parts.
    place = root.name.encode()
    for spec in graph.tasks:
        if place in spec.work:
            text = f"an argument of task {spec.id!r} has a path of this machine in it, or code without a name"
            hint = "Work paths out inside the task, from __file__; define functions with `def` in the module."
            raise Refused("field.value", text, hint, path=f"tasks.{spec.id}")


class _Beginning:
    """Tells errors as the author of the files knows them: from their own first line on, under their own names."""

    def __init__(self, root: Path, shown: str) -> None:
        self._root = f"{root}/"
        self._shown = shown

    def broken(self, file: str, error: BaseException, timeout_s: float, workflow: str = "", line: int = 0) -> Broken:
        """What is wrong with a file, or with one workflow of it that begins at `line`."""
        place = self._place(error) or (file, line)
        if isinstance(error, TooLong):
            text = f"loading it took longer than {timeout_s:g} s"
        elif isinstance(error, RefusedAt):
            # Its place is told beside it.
            text = str(error.bare)
        elif isinstance(error, Refused):
            text = str(error)
        else:
            text = traceback.format_exception_only(error)[-1].strip() + relative_hint(error)
        return Broken(
            file=place[0],
            line=place[1],
            workflow=workflow,
            error=self._told(text),
            trace=self._told(self._trace(error)),
        )

    def _place(self, error: BaseException) -> tuple[str, int] | None:
        """The last line of the author's own that led to it."""
        if isinstance(error, SyntaxError) and (error.filename or "").startswith(self._root):
            return str(error.filename).removeprefix(self._root), error.lineno or 0
        if isinstance(error, RefusedAt) and error.place.startswith(self._root):
            written, _, line = error.place.removeprefix(self._root).rpartition(":")
            return written, int(line)
        found: tuple[str, int] | None = None
        for frame, line in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename.startswith(self._root):
                found = frame.f_code.co_filename.removeprefix(self._root), line
        return found

    def _trace(self, error: BaseException) -> str:
        """From the author's first frame on; nothing where there is none, and where Rota's own words are enough."""
        trace: TracebackType | None = error.__traceback__
        while trace is not None and not trace.tb_frame.f_code.co_filename.startswith(self._root):
            trace = trace.tb_next
        if trace is None and not isinstance(error, SyntaxError):
            return ""
        if isinstance(error, Refused | TooLong):
            # What it says is told beside, and what follows the author's last line is ours.
            frames = traceback.extract_tb(trace)
            while frames and not frames[-1].filename.startswith(self._root):
                frames.pop()
            shown = frames.format()
        else:
            told = traceback.TracebackException(type(error), error, trace)
            # An option that cannot be is an ordinary TypeError; how we found out is of no use to its author.
            while len(told.stack) > 1 and told.stack[-1].filename.startswith(_OURS):
                told.stack.pop()
            shown = list(told.format(chain=False))
        return "".join(shown).rstrip()[-TRACE_CHARS_MAX:]

    def _told(self, text: str) -> str:
        return text.replace(self._root, f"{self._shown}/" if self._shown else "")
