"""What is written down while the rig runs: by the work itself, and by those who asked for it.

All instants are of the machine's steady clock (`time.monotonic_ns`), which every process of one machine shares, and
which nobody sets. A rig is one machine: between two of them these numbers could not be compared.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import rota
from rota.client.line import Line as LineToCoordinator
from rota.client.watching import Watching
from rota.core.commands import ClientCommand
from rota.core.errors import Refused, Unavailable
from rota.core.questions import Question

BEGAN, TICK, DONE, FAILED = "began", "tick", "done", "failed"
FILE = "work.jsonl"
# How often work that takes a while says that it is still there.
TICK_S = 0.05


def steady_ns() -> int:
    """Now, by the clock that all of this is told in."""
    return time.monotonic_ns()


# By the work.


class Line(Struct, frozen=True):
    """What an attempt wrote at one moment. `phase` is one of the words above."""

    run: str
    task: str
    attempt: int
    fence: int
    pid: int
    phase: str
    at_ns: int


class Attempt(Struct, frozen=True, kw_only=True):
    """What one attempt has written, all of it. It ran from `began_ns` until `seen_ns` at least.

    `outcome` is `done`, `failed`, or empty if it was killed or still runs. `starts` is how often it began: once.
    """

    run: str
    task: str
    attempt: int
    fence: int
    pid: int
    began_ns: int
    seen_ns: int
    outcome: str = ""
    starts: int = 1


def note(folder: str | Path, phase: str) -> None:
    """Leave a line about the attempt that this is called in. One write is whole, whoever else writes."""
    this = rota.context()
    line = Line(this.run, this.task, this.attempt, this.fence, os.getpid(), phase, steady_ns())
    fd = os.open(Path(folder) / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, msgspec.json.encode(line) + b"\n")
    finally:
        os.close(fd)


@contextmanager
def told(folder: str | Path) -> Iterator[None]:
    """An attempt from its beginning to its end, with a line for each."""
    note(folder, BEGAN)
    try:
        yield
    except BaseException:
        note(folder, FAILED)
        raise
    note(folder, DONE)


def take(folder: str | Path, ms: int) -> None:
    """Take a while, with a line now and then, so that the lines tell until when an attempt lived that was killed."""
    until = steady_ns() + ms * 1_000_000
    pause = threading.Event()
    while (left_s := (until - steady_ns()) / 1e9) > 0:
        pause.wait(min(left_s, TICK_S))
        if left_s > TICK_S:
            note(folder, TICK)


def read_lines(folder: Path) -> list[Line]:
    """Every line, in the order in which they were written."""
    path = folder / FILE
    decoder = msgspec.json.Decoder(Line)
    if not path.exists():
        return []
    # One that is being written has no end yet.
    return [decoder.decode(text) for text in path.read_bytes().split(b"\n")[:-1]]


def read_attempts(folder: Path) -> list[Attempt]:
    """The same by attempts, in the order in which they began."""
    return attempts_of(read_lines(folder))


def attempts_of(lines: Iterable[Line]) -> list[Attempt]:
    """Lines put together: those of one task under one fence are one attempt."""
    found: dict[tuple[str, str, int], list[Line]] = {}
    for line in lines:
        found.setdefault((line.run, line.task, line.fence), []).append(line)
    return [_together(part) for part in found.values()]


def _together(lines: list[Line]) -> Attempt:
    first = lines[0]
    assert first.phase == BEGAN, f"an attempt that never began has written {first}"
    return Attempt(
        run=first.run,
        task=first.task,
        attempt=first.attempt,
        fence=first.fence,
        pid=first.pid,
        began_ns=first.at_ns,
        seen_ns=max(line.at_ns for line in lines),
        outcome=next((line.phase for line in lines if line.phase in (DONE, FAILED)), ""),
        starts=sum(line.phase == BEGAN for line in lines),
    )


# By those who asked.


class Call(Struct, frozen=True, kw_only=True):
    """What a program asked, with all the patience that its client has. `ended_ns` None: it never heard of it.

    `code` is the error that it was told in the end; empty if it was answered.
    """

    client: str
    what: str
    command_id: str = ""
    run: str = ""
    began_ns: int
    ended_ns: int | None = None
    answer: str = ""
    code: str = ""

    @property
    def is_acknowledged(self) -> bool:
        """Whether it was said to be done."""
        return self.ended_ns is not None and not self.code


class Try(Struct, frozen=True, kw_only=True):
    """One request of a client, as it went over the line; a call may take several."""

    client: str
    what: str
    began_ns: int
    ended_ns: int
    code: str = ""


class Disturbance(Struct, frozen=True):
    """What the test did to the fleet."""

    at_ns: int
    what: str


class Notebook:
    """What clients write down, each in a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self._tries: list[Try] = []

    def add(self, entry: Call | Try) -> None:
        """One more."""
        with self._lock:
            (self._calls if isinstance(entry, Call) else self._tries).append(entry)

    @property
    def calls(self) -> list[Call]:
        """What was asked."""
        with self._lock:
            return list(self._calls)

    @property
    def tries(self) -> list[Try]:
        """How often that took."""
        with self._lock:
            return list(self._tries)

    def codes(self) -> Counter[str]:
        """Errors over the line, by code."""
        return Counter(each.code for each in self.tries if each.code)


def code_of(error: BaseException) -> str:
    """What a client was told, as a code; the name of its type if it is none of ours."""
    return error.code if isinstance(error, Refused | Unavailable) else type(error).__name__


GIVEN_UP = "given-up"


class Tapped:
    """A line to a coordinator whose every request is written down."""

    def __init__(self, line: LineToCoordinator, client: str, notebook: Notebook) -> None:
        self._line = line
        self._client = client
        self._notebook = notebook

    @property
    def tenant(self) -> str:
        """For whom."""
        return self._line.tenant

    async def ask(self, request: ClientCommand | Question) -> Any:
        """See the protocol."""
        began_ns, code = steady_ns(), ""
        try:
            return await self._line.ask(request)
        except Exception as error:
            code = code_of(error)
            raise
        except BaseException:
            # Whoever asked does not want to know any more.
            code = GIVEN_UP
            raise
        finally:
            if code != GIVEN_UP:
                what = type(request).__name__
                self._notebook.add(
                    Try(client=self._client, what=what, began_ns=began_ns, ended_ns=steady_ns(), code=code)
                )

    def watch(self, run: str) -> Watching:
        """See the protocol."""
        return self._line.watch(run)
