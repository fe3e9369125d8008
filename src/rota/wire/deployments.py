"""What compiling gives: workflows that may be deployed, and what is wrong with those that may not.

Compiling is done in a process of its own, which is asked with a `Job` and answers with a `Compilation` in MessagePack.
"""

import msgspec
from msgspec import Struct

from rota.core.calendar import ScheduleSpec
from rota.core.errors import Refused
from rota.core.model import Graph, Param, PriorityClass

# How long one file may take to load.
LOAD_S = 30.0


def names_a_file(said: str) -> bool:
    """Whether whoever runs this means a file, and not a workflow that is deployed."""
    return said.partition(":")[0].endswith(".py") or said.startswith((".", "/"))


def check_workflow_name(name: str) -> None:
    """Refuse the name of a workflow that nobody could run by it."""
    if names_a_file(name):
        text = f"a workflow cannot be called {name[:50]!r}: `rota run` would look for a file"
        raise Refused("field.value", text, "Do not begin with . or /, nor end in .py.", path="graph.name")


class Compiled(Struct, frozen=True, kw_only=True):
    """One workflow as it is deployed. `source` is where it is written: `file:line`, below the root of its bundle."""

    graph: Graph
    source: str
    params: tuple[Param, ...] = ()
    schedule: ScheduleSpec | None = None
    priority: PriorityClass = PriorityClass.NORMAL
    paused: bool | None = None
    doc: str = ""
    zone: str = ""
    # The files below the root that were loaded with it.
    loaded: tuple[str, ...] = ()
    # The digest of the files that it uses.
    code: str = ""


class Broken(Struct, frozen=True, kw_only=True):
    """A file, or one workflow of it, that cannot be deployed: where, why, and the author's part of what led there."""

    file: str
    error: str
    line: int = 0
    workflow: str = ""
    trace: str = ""

    @property
    def place(self) -> str:
        """Where it is, for people and editors."""
        return f"{self.file}:{self.line}" if self.line else self.file


class Compilation(Struct, frozen=True, kw_only=True):
    """What became of the files of a bundle."""

    workflows: tuple[Compiled, ...] = ()
    broken: tuple[Broken, ...] = ()


class Job(Struct, frozen=True, kw_only=True):
    """What a compiling process is asked: which files below `root`. `shown` is what the root is called to its author."""

    root: str
    shown: str
    files: tuple[str, ...]
    timeout_s: float
    memory_bytes_max: int


encode = msgspec.msgpack.Encoder().encode
decode_job = msgspec.msgpack.Decoder(Job).decode
decode_compilation = msgspec.msgpack.Decoder(Compilation).decode
