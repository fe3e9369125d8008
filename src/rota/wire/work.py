"""What a task's `work` and `result` bytes hold: calls, commands, requests, and the values they pass on.

The coordinator never looks inside. A worker reads the envelope and never unpickles; only the process that runs the
user's code, or the program that asked for the result, opens a pickled value.
"""

from collections.abc import Iterable
from typing import Any, Literal, TypeVar, cast

import msgspec
from msgspec import Struct, structs

from rota.core.bounds import RESULT_BYTES_MAX
from rota.core.errors import Refused
from rota.core.ids import BlobRef
from rota.core.model import TaskSpec

S = TypeVar("S")

# Variables of this prefix tell a program which attempt it is. A task's own `env` cannot set them.
RESERVED_PREFIX = "ROTA_"

PYTHON = "python"
COMMAND = "command"
HTTP = "http"

# A value larger than this goes to the blobs, and only its reference travels; what is left is for its envelope.
INLINE_BYTES_MAX = RESULT_BYTES_MAX - 64
# The same for values of which many travel together: the results of a mapped task, and what others are mapped over.
SHARED_BYTES_MAX = 4_096


class Value(Struct, frozen=True, array_like=True, tag="value"):
    """One value: `plain` is MessagePack and safe to read anywhere, `pickle` is for those who trust who wrote it.

    `arrow` and `arrow_batch` are a table and a record batch as Arrow's stream format has them.
    """

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
    """An argument that is one of the run's parameters; a date or an instant is read from its text."""

    name: str
    read: Literal["", "date", "datetime"] = ""


class TemplateOf(Struct, frozen=True, array_like=True, tag="template"):
    """An argument that is a text to be rendered where the code runs."""

    text: str


class ListOf(Struct, frozen=True, array_like=True, tag="list"):
    """An argument that is a list, or a tuple, with outputs, parameters or templates among its items."""

    items: "tuple[Argument, ...]"
    is_tuple: bool = False


class DictOf(Struct, frozen=True, array_like=True, tag="dict"):
    """An argument that is a dictionary with outputs, parameters or templates among its values."""

    items: "tuple[tuple[Value, Argument], ...]"


Argument = Value | OutputOf | ParamOf | TemplateOf | ListOf | DictOf


class Over(Struct, frozen=True, array_like=True):
    """What a mapped task is mapped over: of each list one element, in every combination, the last varying fastest.

    Or `rows`, a list of dictionaries of arguments, of which each task gets one.
    """

    each: tuple[tuple[str, Argument], ...] = ()
    rows: Argument | None = None


class Branches(Struct, frozen=True, array_like=True):
    """What a branch may choose: each name with the tasks directly after it that then stay; it skips the others.

    `unless` are the tasks that are skipped unless they stay; those of a condition all stay if it holds.
    """

    choices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    unless: tuple[str, ...] = ()
    is_condition: bool = False


class Sensor(Struct, frozen=True, array_like=True):
    """How a sensor waits: it is asked again and again until it says yes or patience ends."""

    poke_ms: int
    timeout_ms: int
    soft_fail: bool = False


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
    over: Over | None = None
    # Tasks that are mapped over what it gives, each with how many there are for one element.
    maps: tuple[tuple[str, int], ...] = ()
    branches: Branches | None = None
    sensor: Sensor | None = None
    # The parameter that is given the attempt's context.
    context: str = ""
    # What it gives is not the task's result, but what to run or to send.
    is_preparing: bool = False
    # Fields of the command that it prepares, beside what the function gives; those that it gives count more.
    fields: tuple[tuple[str, Argument], ...] = ()
    # Whether the task may go on as others (`Grown`), and is then what they give, put together.
    may_grow: bool = False
    # Where the days of the workflow begin.
    zone: str = "UTC"
    doc: str = ""


class Grown(Struct, frozen=True):
    """What a function returns whose task goes on as others. What the last of them gives are pieces of its result."""

    specs: tuple[TaskSpec, ...]


class CommandWork(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Run a program. `shell` is a line for /bin/sh; otherwise `argv` is run as it is.

    With a `call`, that is made first, and what it gives says what to run: a line, words, or fields of this struct.
    """

    argv: tuple[str, ...] = ()
    shell: str = ""
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    # Exit codes that mean "skipped" rather than failed, as Airflow's bash operator has them.
    skip_codes: tuple[int, ...] = (99,)
    call: PythonWork | None = None
    doc: str = ""


class HttpWork(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Send a request. A status that is not among those accepted is a failure; `rota.wire.web` checks the rest.

    With a `call`, that is made first, and gives fields of this struct.
    """

    method: str = "GET"
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    accepted: tuple[int, ...] = (200, 201, 202, 204)
    timeout_ms: int = 60_000
    maps: tuple[tuple[str, int], ...] = ()
    call: PythonWork | None = None
    doc: str = ""


AnyWork = PythonWork | CommandWork | HttpWork


class Unprepared(Exception):
    """What a call gave is no command, or no request."""


_encode = msgspec.msgpack.Encoder().encode
_decode_value = msgspec.msgpack.Decoder(AnyValue).decode


def encode_work(work: AnyWork) -> bytes:
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


def prepared(**fields: Any) -> dict[str, Any]:
    """What a command or a request is made of, once its templates are rendered: called where user code runs."""
    return fields


def join_fields(given: Any, fields: dict[str, Any]) -> Any:
    """What a function gave for a command, with the fields beside it; what is no command is left for its refusal."""
    if not fields or not isinstance(given, str | list | dict):
        return given
    own: dict[str, Any] = cast(dict[str, Any], given) if isinstance(given, dict) else {"line": given}
    env: Any = own.get("env", {})
    if isinstance(env, dict):
        own = {**own, "env": {**fields.get("env", {}), **cast(dict[str, Any], env)}}
    return {**fields, **own}


def check_env(names: Iterable[str], path: str = "env") -> None:
    """Refuse variables of a task that Rota sets itself; a program could take them for its attempt's."""
    for name in names:
        if name.startswith(RESERVED_PREFIX):
            text = f"a task cannot set the variable {name[:100]}: names with {RESERVED_PREFIX} are Rota's own"
            raise Refused("field.reserved", text, "Choose another name.", path=f"{path}.{name[:100]}")


class _Command(Struct, forbid_unknown_fields=True):
    """A command as a call gives it; words and values may be numbers."""

    line: str | list[str | int | float]
    env: dict[str, str | int | float] = {}
    cwd: str = ""


def prepared_command(work: CommandWork, given: Any) -> CommandWork:
    """The command that its call gave: a line for the shell or a list of words, alone or with its surroundings."""
    if not isinstance(given, str | list | dict):
        raise Unprepared(f"a command is a text or a list of words, not {_kind_of(given)}")
    made = _converted(given if isinstance(given, dict) else {"line": given}, _Command)
    try:
        check_env(made.env)
    except Refused as refused:
        raise Unprepared(str(refused)) from None
    return structs.replace(
        work,
        shell=made.line if isinstance(made.line, str) else "",
        argv=() if isinstance(made.line, str) else tuple(map(str, made.line)),
        env=(*work.env, *((key, str(value)) for key, value in made.env.items())),
        cwd=made.cwd or work.cwd,
        call=None,
    )


class _Request(Struct, forbid_unknown_fields=True):
    """A request as a call gives it."""

    method: str
    url: str
    headers: dict[str, str | int | float] = {}
    body: bytes = b""
    accepted: tuple[int, ...] = ()


def prepared_request(work: HttpWork, given: Any) -> HttpWork:
    """The request that its call gave."""
    if not isinstance(given, dict):
        raise Unprepared(f"a request is what rota.Request(…) makes, not {_kind_of(given)}")
    made = _converted(given, _Request)
    return structs.replace(
        work,
        method=made.method,
        url=made.url,
        headers=tuple((name, str(value)) for name, value in made.headers.items()),
        body=made.body,
        accepted=made.accepted or work.accepted,
        call=None,
    )


def _converted(given: Any, kind: type[S]) -> S:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise Unprepared(str(error)) from None


def _kind_of(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
