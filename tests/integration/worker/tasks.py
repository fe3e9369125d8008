"""What the tests have run: functions that behave, and functions that misbehave in every way there is."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import rota
from rota.worker.supervisor import trees

CALLS: list[int] = []


def add(left: object, right: object) -> object:
    return left + right


async def add_soon(left: int, right: int) -> int:
    return left + right


def pid() -> int:
    return os.getpid()


def environment() -> dict[str, str]:
    return dict(os.environ)


def everything_readable() -> str:
    """What a curious function finds in its own process: variables, arguments, open files."""
    files = [str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    return "\n".join([Path("/proc/self/environ").read_text(), Path("/proc/self/cmdline").read_text(), *files])


def about_me() -> dict[str, object]:
    me = rota.context()
    known: list[int] = []
    thread = threading.Thread(target=lambda: known.append(rota.context().fence))
    thread.start()
    thread.join()
    return {
        "tenant": me.tenant,
        "run": me.run,
        "task": me.task,
        "attempt": me.attempt,
        "fence": me.fence,
        "params": me.params,
        "deadline_at": me.deadline_at,
        "fence_in_thread": known[0],
    }


def skip() -> None:
    raise rota.Skip("nothing new today")


def fail() -> None:
    raise rota.Fail("account closed")


def reschedule(delay: float) -> None:
    raise rota.Reschedule(delay)


def divide(left: int, right: int) -> float:
    return left / right


def divide_and_explain(right: int) -> float:
    try:
        return divide(1, right)
    except ZeroDivisionError as error:
        raise ValueError("no good divisor") from error


def recurse() -> None:
    recurse()


def exit_with(code: int) -> None:
    sys.exit(code)


def exit_hard(code: int) -> None:
    print("the last words")
    os._exit(code)


def segfault() -> None:
    ctypes.string_at(0)


def kill_myself(number: int) -> None:
    os.kill(os.getpid(), number)
    signal.pause()


def exhaust_memory() -> int:
    held = []
    while True:
        held.append(bytearray(16 * 1024 * 1024))


def grow(size: int) -> int:
    CALLS.append(1)
    globals()["_kept"] = bytearray(os.urandom(1024) * (size // 1024))
    return os.getpid()


def printed(megabytes: int) -> str:
    line = "x" * 1023 + "\n"
    for _ in range(megabytes):
        sys.stdout.write(line * 1024)
    return "done"


def print_both() -> None:
    print("to stdout")
    print("to stderr", file=sys.stderr)
    os.system("echo from a child")  # noqa: S605 - its output belongs to the log too
    sys.stdout.write("no newline")


def large(size: int) -> bytes:
    return bytes(size)


def large_tuple(size: int) -> tuple[bytes, int]:
    return bytes(size), size


def length(value: bytes | str) -> int:
    return len(value)


def lock() -> object:
    return threading.Lock()


def generator() -> Iterator[int]:
    yield 1


def close_stdout() -> None:
    os.close(1)
    print("to nobody")


def close_everything() -> None:
    os.closerange(3, 256)


def write_garbage(size: int) -> int:
    """Find the connection to the worker, and say something of one's own."""
    for file in Path("/proc/self/fd").iterdir():
        if file.is_symlink() and str(file.readlink()).startswith("socket:"):
            os.write(int(file.name), size.to_bytes(4, "big") + b"\xff" * 100)
    signal.pause()
    return 0


def leave_alarm() -> int:
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    return os.getpid()


def outlive_alarm() -> int:
    """Wait longer than the alarm would have taken."""
    threading.Event().wait(0.4)
    return os.getpid()


def replace_streams() -> int:
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - leaving it open is the misbehaviour
    return os.getpid()


def change_everything() -> int:
    os.chdir("/")
    os.environ["LEFT_BEHIND"] = "yes"
    del os.environ["PATH"]
    return os.getpid()


def where_am_i() -> list[object]:
    return [os.getpid(), str(Path.cwd()), os.environ.get("LEFT_BEHIND"), os.environ.get("PATH")]


def leave_thread() -> int:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return os.getpid()


def leave_process() -> int:
    subprocess.Popen(["sleep", "1000"])
    return os.getpid()


def fork_and_return_twice() -> int:
    os.fork()
    return os.getpid()


def hang() -> None:
    signal.pause()


def tell_and_hang(fifo: str) -> None:
    """Say that the function runs, and never return."""
    _tell(fifo)
    signal.pause()


def ignore_signals(fifo: str) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _tell(fifo)
    while True:
        signal.pause()


def family(fifo: str, and_hang: bool = True) -> None:
    """Descendants of every sort: children, a session of its own, daemons forked twice, programs, a detached shell."""
    ready = [_fork(_linger), _fork(_linger, new_session=True), _daemon(), _daemon(with_child=True)]
    for argv in (["sleep", "1000"], ["setsid", "sleep", "1000"]):
        subprocess.Popen(argv)
    shell = subprocess.Popen(["sh", "-c", "(setsid sleep 1000 &); echo ready; sleep 1000"], stdout=subprocess.PIPE)
    assert shell.stdout is not None
    shell.stdout.readline()
    for pipe in ready:
        os.read(pipe, 1)
    _tell(fifo)
    if and_hang:
        signal.pause()


def bomb(fifo: str, levels: int) -> None:
    """Doubles at every level; every second process has a session of its own. The last to arrive tells the test."""
    for level in range(levels):
        if os.fork() == 0 and level % 2:
            os.setsid()
    arrivals = os.open(f"{fifo}.arrivals", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.write(arrivals, b"x")
    if os.lseek(arrivals, 0, os.SEEK_CUR) == 2**levels:
        _tell(fifo)
    signal.pause()


def _tell(fifo: str) -> None:
    with open(fifo, "w") as file:  # noqa: PTH123 - a pipe, not a path
        file.write("ready")


def _linger(ready: int) -> None:
    os.write(ready, b"x")
    while True:
        signal.pause()


def _fork(then, *, new_session: bool = False) -> int:
    told, tell = os.pipe()
    if os.fork() == 0:
        if new_session:
            os.setsid()
        then(tell)
        os._exit(0)
    os.close(tell)
    return told


def _daemon(*, with_child: bool = False) -> int:
    told, tell = os.pipe()
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            if with_child and os.fork() == 0:
                os.setsid()
            _linger(tell)
        os._exit(0)
    os.close(tell)
    os.waitpid(first, 0)
    return told


def snoop(up_to: int) -> str:
    """Everything that a curious function finds in its own process and in those above it."""
    found = [str(dict(os.environ)), Path("/proc/self/environ").read_text(), Path("/proc/self/cmdline").read_text()]
    found += [str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    pid = os.getpid()
    while pid != up_to:
        pid = trees.parent_of(pid)
        found.append(f"looking into {pid}")
        for name in ("cmdline", "environ", "maps", "mem", "auxv"):
            with contextlib.suppress(OSError):
                found.append(Path(f"/proc/{pid}/{name}").read_bytes()[:1_000_000].decode(errors="replace"))
        for file in (f"/proc/{pid}/fd", f"/proc/{pid}/map_files"):
            with contextlib.suppress(OSError):
                found += [str(each.readlink()) for each in Path(file).iterdir()]
        found.append(_attached(pid))
        found.append(_copied(pid))
    return "\n".join(found)


def _attached(pid: int) -> str:
    """What comes of trying to trace a process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, 0, 0) == 0:
        libc.ptrace(17, pid, 0, 0)
        return f"could trace {pid}"
    return f"may not trace {pid}: {ctypes.get_errno()}"


def _copied(pid: int) -> str:
    """The environment, as it lies in a process's memory, through its own copy of `environ`."""
    try:
        with Path(f"/proc/{pid}/maps").open() as maps:
            places = [line.split()[0].split("-") for line in maps if "[stack]" in line]
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(int(places[0][0], 16))
            return memory.read(int(places[0][1], 16) - int(places[0][0], 16)).decode(errors="replace")
    except (OSError, IndexError):
        return "nothing in memory"


def wide(size: int) -> str:
    return "x" * size


def wait_to_be_asked(fifo: str, file: str) -> str:
    """Wait for a request to stop, and put things in order."""
    cancelled = rota.context().cancelled
    Path(fifo).write_bytes(b"ready")
    assert cancelled.wait(60)
    assert cancelled.is_set()
    Path(file).write_text("in order")
    print("put in order")
    return "too late to count"


def heard_or_not(file: str) -> None:
    """Say whether a request to stop would be heard here: an earlier attempt asked to hear of it."""
    Path(file).write_text(str(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL))


def ask_from_a_thread() -> str:
    found: list[str] = []

    def look() -> None:
        try:
            found.append(repr(rota.context().cancelled))
        except RuntimeError as error:
            found.append(str(error))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found[0]


def know(ctx: rota.Context) -> dict[str, object]:
    ctx.log.info("I am %s", ctx.task)
    return {
        "workflow": ctx.workflow,
        "version": ctx.version,
        "map_index": ctx.map_index,
        "logical_date": ctx.logical_date.isoformat(),
        "limited": ctx.remaining_s is not None and ctx.remaining_s <= 60,
    }


def echoed(*values: object, **named: object) -> list[object]:
    return [*values, *named.values()]


def words_of(word: str) -> list[str]:
    print("preparing")
    return ["echo", word, rota.context().task]


def no_words() -> object:
    return 5


def no_more() -> None:
    raise rota.Skip("nothing to run")


def a_request(url: str) -> rota.Request:
    return rota.Request("post", url, json={"asked": rota.context().run})


def arrow_table(rows: int) -> object:
    import pyarrow

    return pyarrow.table({"n": list(range(rows))})


def rows_of(table: object) -> list[object]:
    return [type(table).__name__, table.num_rows]


def echoed_one(value: object) -> object:
    return value


def listed(size: int) -> list[str]:
    return ["x" * size]


def know_cancelled() -> bool:
    return rota.context().cancelled.is_set()


class Unspeakable(Exception):
    """An exception that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def talk_and_end(how: str) -> None:
    """Print something that is not why it fails, then fail in one of many ways."""
    print("all is well")
    print("really", file=sys.stderr)
    sys.stdout.write("no newline, ")
    match how:
        case "raise":
            raise ValueError("too small")
        case "raise lines":
            raise ValueError("\n first of all\nall is well")
        case "raise long":
            raise ValueError("long " * 2_000)
        case "raise nothing":
            raise KeyError
        case "raise chained":
            divide_and_explain(0)
        case "raise group":
            raise ExceptionGroup("several", [ValueError("one"), TypeError("two")])
        case "raise noted":
            error = ValueError("too small")
            error.add_note("all is well")
            raise error
        case "raise syntax":
            compile("1 +", "typed.py", "exec")
        case "raise unspeakable":
            raise Unspeakable
        case "raise our own":
            raise rota.Fail("account closed\nall is well")
        case "assert":
            assert CALLS == [0], "not called"
        case "exit":
            sys.exit("all is well")
        case "exit hard":
            sys.stdout.flush()
            os._exit(3)
        case "without streams":
            sys.stdout = sys.stderr = None
            raise ValueError("too small")
        case "closed streams":
            sys.stdout.close()
            raise ValueError("too small")
        case "wait":
            threading.Event().wait()
        case _:
            sys.stdout.flush()
            os.kill(os.getpid(), int(how))
            signal.pause()
