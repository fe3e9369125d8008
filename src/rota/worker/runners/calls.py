"""Calling a user's function, and what became of it. Used where user code runs: in warm processes and in threads."""

import importlib
import importlib.util
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CoroutineType, ModuleType, TracebackType
from typing import Any, Literal, cast

from msgspec import Struct

from rota.core.bounds import ERROR_CHARS_MAX
from rota.core.errors import headline
from rota.core.model import TaskSpec
from rota.running import Context, Entered, Fail, Loading, Request, Reschedule, Skip
from rota.wire.elements import Unforeseen
from rota.wire.scripts import SCRIPT
from rota.wire.templates import Unrendered
from rota.wire.values import Packed, Unserialisable, unpack
from rota.wire.work import Grown, PythonWork, join_fields
from rota.worker.runners.arguments import AnyInput, Arguments, Open, Uncallable
from rota.worker.runners.sequels import ask_again, put_together, skipped_by, widths

FUNCTIONS_KEPT_MAX = 256
FIRST_LINE_CHARS_MAX = 1_000
SPAWNED_MAIN = "__mp_main__"

Keep = Callable[[object, str], tuple[str, bytes | None]]

# Said before or after user code was called: where it was raised is nothing to users.
_WITHOUT_FRAMES = (Uncallable, Unforeseen, Unrendered, Unserialisable)

_STDLIB = Path(traceback.__file__).parent
_RUNNERS = f"{Path(__file__).parent}/"
# Frames on the way to user code that are not its own.
_OURS = (_RUNNERS, f"{_STDLIB}/asyncio/", f"{_STDLIB}/importlib/", "<frozen importlib")


class Done(Struct, array_like=True):
    """How a call ended. `content` is None where the bytes are in the result's file, or there are none."""

    fence: int
    outcome: Literal["success", "failed", "skipped", "reschedule", "grew"]
    encoding: str = ""
    content: bytes | None = None
    failure: Literal["user", "fatal", "out_of_memory"] = "user"
    error: str = ""
    resume_at: int = 0
    # How much the process has grown since it started, and whether it must not be used again.
    grown_bytes: int = 0
    is_spent: bool = False
    # What follows from what it gave: widths of tasks mapped over it, and tasks that a branch decided against.
    expands: tuple[tuple[str, int], ...] = ()
    skips: tuple[str, ...] = ()
    # The tasks that this one goes on as.
    grows: tuple[TaskSpec, ...] = ()


class Call(Struct):
    """One call to make."""

    work: PythonWork
    context: Context
    inputs: Sequence[AnyInput]
    open_stored: Open
    # Packs the result; may put it into a file.
    keep: Keep
    owns_process: bool
    # When the task was first started, in milliseconds since 1970; 0 if that is now.
    first_started_at: int = 0
    # What is called, where it is at hand and need not be found.
    function: Callable[..., Any] | None = None
    # Is given the whole traceback of a failure, where there is a log for it.
    log_failure: Callable[[str], None] = lambda _: None
    # Milliseconds since 1970; a trial has a clock of its own.
    now: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    def load_script(self) -> None:
        """Load the script whose classes the inputs may be made of."""
        _find_script(SCRIPT, self.work.script, self.owns_process)


def perform(call: Call) -> Done:
    """Call the function and say how it ended, whatever it does short of ending the process."""
    fence = call.context.fence
    with Entered(call.context, owns_process=call.owns_process):
        try:
            function = call.function or find_function(call.work, owns_process=call.owns_process)
            value = _called(call, function)
            if isinstance(value, Grown):
                return Done(fence, "grew", grows=value.specs)
            if call.work.sensor is not None and not value:
                raise ask_again(call.work.sensor, call.first_started_at, call.now())
            done = Done(fence, "success")
            if call.work.maps:
                done.expands = widths(call.work.maps, value)
            if call.work.branches is not None:
                done.skips = skipped_by(call.work.branches, value)
            what = f"task {call.context.task!r} ({name_of(call.work, function)})"
            done.encoding, done.content = call.keep(value, what)
            done.is_spent = isinstance(value, Packed) and value.is_spent
            return done
        except Skip as skipped:
            return Done(fence, "skipped", error=cut(str(skipped)))
        except Reschedule as again:
            return Done(fence, "reschedule", resume_at=again.resume_at(call.now()))
        except Fail as failed:
            if call.work.sensor is not None and call.work.sensor.soft_fail:
                return Done(fence, "skipped", error=cut(str(failed)))
            return _failed(call, failed)
        except BaseException as error:
            return _failed(call, error)


def _failed(call: Call, error: BaseException) -> Done:
    """The failure that an exception is. Its traceback goes to the log."""
    fence = call.context.fence
    trace = str(error) if isinstance(error, _WITHOUT_FRAMES) else format_trace(error)
    call.log_failure(trace)
    match error:
        case Fail():
            return Done(fence, "failed", failure="fatal", error=cut(str(error) or "failed for good"))
        case _ if isinstance(error, _WITHOUT_FRAMES):
            return Done(fence, "failed", failure="fatal", error=cut(trace))
        case MemoryError():
            return Done(fence, "failed", failure="out_of_memory", error=describe(error, trace), is_spent=True)
        case SystemExit():
            code = 0 if error.code is None else error.code
            return Done(fence, "failed", error=cut(f"called sys.exit({code!r}); a task ends by returning"))
        case _:
            return Done(fence, "failed", error=describe(error, trace))


def _called(call: Call, function: Callable[..., Any]) -> Any:
    arguments = Arguments(call.work, call.context, call.inputs, call.open_stored, call.load_script)
    if arguments.is_grown:
        return put_together(arguments.pieces())
    args, kwargs = arguments.opened()
    value = function(*args, **kwargs)
    if isinstance(value, CoroutineType):
        value = _run_coroutine(cast("CoroutineType[Any, Any, Any]", value))
    if not call.work.is_preparing:
        return value
    return value.plain() if isinstance(value, Request) else join_fields(value, arguments.fields())


def _run_coroutine(coroutine: "CoroutineType[Any, Any, Any]") -> Any:
    import asyncio  # costs a tenth of a second, and most functions are not asynchronous

    return asyncio.run(coroutine)


# Functions.


_unpickled: dict[bytes, Callable[..., Any]] = {}
_scripts: dict[str, ModuleType] = {}
# Threads that need the same script wait for the one that loads it; a script may need another meanwhile.
_loading = threading.RLock()


def find_function(work: PythonWork, *, owns_process: bool = False) -> Callable[..., Any]:
    """The function to call. A named one is looked up each time, so that one which was redefined is the new one."""
    if work.pickled:
        if work.file:
            # What it uses of its script is meant by name.
            _find_script(work.function.partition(":")[0], work.file, owns_process)
        return _open_function(work)
    module_name, _, qualname = work.function.partition(":")
    found: Any = _find_module(module_name, work, owns_process)
    outer, is_inside, _ = qualname.partition(".<locals>.")
    for name in outer.split("."):
        found = getattr(found, name, None)
    if is_inside and hasattr(found, "__rota_inside__"):
        found = found.__rota_inside__(qualname)
    if found is None:
        raise Uncallable(f"there is no {qualname!r} in {_place(module_name, work)}; was it renamed or removed?")
    # Decorators such as ours leave the function they wrapped.
    found = getattr(found, "__rota_function__", found)
    if not callable(found):
        raise Uncallable(f"{work.function} is a {type(found).__name__} and cannot be called")
    return found


def name_of(work: PythonWork, function: object) -> str:
    """What to call a function in messages."""
    if work.file:
        return f"{Path(work.file).name}:{work.function.partition(':')[2]}"
    return work.function or str(getattr(function, "__qualname__", type(function).__qualname__))


def _place(module_name: str, work: PythonWork) -> str:
    return f"the script {work.file}" if work.file else f"the module {module_name}"


def _open_function(work: PythonWork) -> Callable[..., Any]:
    function = _unpickled.get(work.pickled)
    if function is None:
        _use_path(work.path or (str(Path(work.file).parent) if work.file else ""))
        try:
            function = cast("Callable[..., Any]", unpack("pickle", work.pickled, trusted=True))
        except Exception as error:
            raise Uncallable(f"its function could not be opened here: {type(error).__name__}: {error}") from error
        if len(_unpickled) >= FUNCTIONS_KEPT_MAX:
            _unpickled.clear()
        _unpickled[work.pickled] = function
    return function


def _find_module(name: str, work: PythonWork, owns_process: bool) -> ModuleType:
    if work.file:
        return _find_script(name, work.file, owns_process)
    if name not in sys.modules:
        _use_path(work.path)
    try:
        # Also if it is there already: another thread may be in the middle of loading it, and is waited for.
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            where = f" in {work.path}" if work.path else ""
            raise Uncallable(f"there is no module {name!r}{where} on this worker") from error
        raise


def _find_script(name: str, file: str, owns_process: bool) -> ModuleType:
    """The module that a script is: itself where it is the running program, else loaded once without its main part."""
    with _loading:
        return _load_script(name, file, owns_process)


def _load_script(name: str, file: str, owns_process: bool) -> ModuleType:
    for known in (sys.modules.get("__main__"), sys.modules.get(name), _scripts.get(file)):
        if known is not None and getattr(known, "__file__", None) == file:
            # Also under the name by which values mean it.
            sys.modules.setdefault(name, known)
            return known
    if not Path(file).is_file():
        raise Uncallable(f"the script {file} does not exist on this worker")
    _use_path(str(Path(file).parent))
    # As multiprocessing names it: `if __name__ == "__main__":` must not run the program again.
    own_name = SPAWNED_MAIN if name == "__main__" else name
    spec = importlib.util.spec_from_file_location(own_name, file)
    if spec is None or spec.loader is None:
        raise Uncallable(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[own_name] = module
    try:
        with Loading(file):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[own_name]
        raise
    _scripts[file] = module
    if owns_process:
        # What the program pickled by name is found, and multiprocessing starts from the user's script, not from ours.
        _scripts.setdefault("", sys.modules["__main__"])
        sys.modules["__main__"] = module
    return module


def _use_path(path: str) -> None:
    if path and path not in sys.path:
        sys.path.insert(0, path)
        importlib.invalidate_caches()


# Errors.


def describe(error: BaseException, trace: str) -> str:
    """An exception as an attempt's error: what it is in the first line, and below its traceback if that says more."""
    kind = type(error)
    # As a traceback names it.
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    try:
        said = headline(str(error))
    except Exception:  # an exception whose own __str__ fails
        said = ""
    first = f"{module}{kind.__qualname__}{f': {said}' if said else ''}"
    return cut(first if trace == first else f"{first}\n\n{trace}")


def format_trace(error: BaseException) -> str:
    """A traceback for people: only the user's frames."""
    shown = traceback.TracebackException(type(error), error, _users_part(error.__traceback__), compact=True)
    _hide_ours(shown)
    try:
        return "".join(shown.format()).rstrip()
    except Exception:  # an exception whose own __str__ fails
        return f"{type(error).__name__}, which cannot be shown"


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """Without what leads to the user's first frame; nothing if there is no such frame."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return trace


def _hide_ours(shown: traceback.TracebackException) -> None:
    """The same for the exceptions that led to this one."""
    for cause in (shown.__cause__, shown.__context__):
        if cause is not None:
            kept = [frame for frame in cause.stack if not frame.filename.startswith(_RUNNERS)]
            cause.stack = traceback.StackSummary.from_list(kept)
            _hide_ours(cause)


def cut(text: str) -> str:
    """An error of at most the length that is kept: its first line, and the end of the rest.

    Half characters, which cannot travel, are spelled out.
    """
    text = text.encode(errors="backslashreplace").decode()
    if len(text) <= ERROR_CHARS_MAX:
        return text
    first, _, rest = text.partition("\n")
    if len(first) > FIRST_LINE_CHARS_MAX:
        first = f"{first[:FIRST_LINE_CHARS_MAX]}…"
    room = ERROR_CHARS_MAX - len(first) - 2
    return f"{first}\n{rest if len(rest) <= room + 1 else '…' + rest[-room:]}".rstrip()
