"""What a task's `work` and `result` bytes hold: calls, commands, requests, and the values they pass on.

The coordinator never looks inside. A worker reads the envelope and never unpickles; only the process that runs the
user's code, or the program that asked for the result, opens a pickled value.
"""

from typing import Any

import msgspec
from msgspec import Struct

from rota.core.ids import BlobRef

PYTHON = "python"
COMMAND = "command"
HTTP = "http"

# A value larger than this goes to the blobs, and only its reference travels.
INLINE_BYTES_MAX = 4_096


class Value(Struct, frozen=True, array_like=True, tag="value"):
    """One value: `plain` is MessagePack and safe to read anywhere, `pickle` is for those who trust who wrote it."""

    encoding: str
    content: bytes


class StoredValue(Struct, frozen=True, array_like=True, tag="stored"):
    """A value that was too large to travel."""

    encoding: str
    ref: BlobRef


AnyValue = Value | StoredValue


class OutputOf(Struct, frozen=True, array_like=True, tag="output"):
    """An argument that is the output of another task of the run; of a group, the list of its outputs."""

    task: str


class ParamOf(Struct, frozen=True, array_like=True, tag="param"):
    """An argument that is one of the run's parameters."""

    name: str


class ListOf(Struct, frozen=True, array_like=True, tag="list"):
    """An argument that is a list, or a tuple, with outputs or parameters among its items."""

    items: "tuple[Argument, ...]"
    is_tuple: bool = False


class DictOf(Struct, frozen=True, array_like=True, tag="dict"):
    """An argument that is a dictionary with outputs or parameters among its values."""

    items: "tuple[tuple[Value, Argument], ...]"


Argument = Value | OutputOf | ParamOf | ListOf | DictOf


class PythonWork(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Call a function: by its name (`module:qualname`), or, if it has none that another process can import, pickled.

    `path` is a folder to import from, and `file` the script that `module` stands for when it was run by its path.
    `script` is the program that wrote a function of a module down: values of its classes may be among the inputs.
    """

    function: str = ""
    pickled: bytes = b""
    path: str = ""
    file: str = ""
    script: str = ""
    args: tuple[Argument, ...] = ()
    kwargs: tuple[tuple[str, Argument], ...] = ()


class CommandWork(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Run a program. `shell` is a line for /bin/sh; otherwise `argv` is run as it is."""

    argv: tuple[str, ...] = ()
    shell: str = ""
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    # Exit codes that mean "skipped" rather than failed, as Airflow's bash operator has them.
    skip_codes: tuple[int, ...] = (99,)


class HttpWork(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Send a request. A status that is not among those accepted is a failure; `rota.wire.web` checks the rest."""

    method: str = "GET"
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    accepted: tuple[int, ...] = (200, 201, 202, 204)
    timeout_ms: int = 60_000


_encode = msgspec.msgpack.Encoder().encode
_decode_value = msgspec.msgpack.Decoder(AnyValue).decode


def encode_work(work: PythonWork | CommandWork | HttpWork) -> bytes:
    """The bytes of a task's `work`."""
    return _encode(work)


def decode_python(work: bytes) -> PythonWork:
    """The call in a task's `work`."""
    return msgspec.msgpack.decode(work, type=PythonWork)


def decode_command(work: bytes) -> CommandWork:
    """The command in a task's `work`."""
    return msgspec.msgpack.decode(work, type=CommandWork)


def decode_http(work: bytes) -> HttpWork:
    """The request in a task's `work`."""
    return msgspec.msgpack.decode(work, type=HttpWork)


def encode_value(value: AnyValue) -> bytes:
    """A value as a task's `result` carries it."""
    return _encode(value)


def decode_value(result: bytes) -> AnyValue:
    """The envelope of a value; what is in it is not opened."""
    return _decode_value(result)


def plain(value: Any) -> Value:
    """A plain value (None, booleans, numbers, text, bytes, lists, dictionaries) as it travels."""
    return Value("plain", _encode(value))
