"""Values in and out of bytes: plain MessagePack where that loses nothing, Arrow for its tables, a pickle for the rest.

Opening a pickle runs code that its author chose. `unpack` therefore refuses one unless its caller says that it trusts
the source: the process that runs the user's code does, and a client that trusts its coordinator.
"""

from pathlib import Path
from types import GeneratorType, NoneType
from typing import Any, cast

import msgspec
from msgspec import Struct

from rota.wire.work import INLINE_BYTES_MAX

PLAIN = "plain"
PICKLE = "pickle"
# A table, and a record batch, in Arrow's stream format.
ARROW = "arrow"
ARROW_BATCH = "arrow_batch"

# Beyond these a value is pickled without looking at the rest of it.
PLAIN_ELEMENTS_MAX = 100_000
PLAIN_DEPTH_MAX = 100

_INTEGER_MIN, _INTEGER_MAX = -(1 << 63), (1 << 64) - 1
_LEAVES = (NoneType, bool, float, str, bytes)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Unserialisable(Exception):
    """A value that cannot leave its process."""


class Unreadable(Exception):
    """A value that cannot be opened here."""


class Untrusted(Unreadable):
    """A pickle whose source is not trusted."""


class Packed(Struct, frozen=True):
    """What a function returns that has packed its value itself; None if the bytes are in the file for them.

    `is_spent`: something of it may still be at work in its process, which is then not used again.
    """

    encoding: str
    content: bytes | None
    is_spent: bool = False


def is_plain(value: object) -> bool:
    """Whether MessagePack gives back exactly this value: same types, nothing of a class of its own."""
    kind = type(value)
    if kind in _LEAVES:
        return True
    if kind is int:
        return _INTEGER_MIN <= cast(int, value) <= _INTEGER_MAX
    seen = 0
    level: list[object] = [value]
    for _ in range(PLAIN_DEPTH_MAX):
        below: list[object] = []
        for item in level:
            kind = type(item)
            if kind in _LEAVES:
                continue
            if kind is int:
                if not _INTEGER_MIN <= cast(int, item) <= _INTEGER_MAX:
                    return False
                continue
            if kind is not list and kind is not dict:
                return False
            held = cast(list[object] | dict[object, object], item)
            if seen + len(below) + len(held) > PLAIN_ELEMENTS_MAX:
                return False
            if isinstance(held, dict):
                if any(type(key) is not str for key in held):
                    return False
                below += held.values()
            else:
                below += held
        if not below:
            return True
        seen += len(below)
        level = below
    return False


def pack(value: object, what: str = "this program") -> tuple[str, bytes]:
    """A value's encoding and bytes. `what` is named in the error if it has none."""
    content = _plain(value)
    if content is not None:
        return PLAIN, content
    if encoding := _arrow_encoding(value):
        return encoding, _as_arrow(value)
    try:
        return PICKLE, _cloudpickle().dumps(value, protocol=5)
    except Exception as error:
        raise Unserialisable(_explain(value, what, error)) from error


def pack_or_spill(value: object, what: str, target: str, bytes_max: int = INLINE_BYTES_MAX) -> tuple[str, bytes | None]:
    """Like `pack`, but what is too large to travel is written to a file, without a second copy if that can be.

    None in place of the bytes says that they are in the file.
    """
    if isinstance(value, Packed):
        return value.encoding, value.content
    content = _plain(value)
    if content is not None:
        if len(content) <= bytes_max:
            return PLAIN, content
        Path(target).write_bytes(content)
        return PLAIN, None
    if encoding := _arrow_encoding(value):
        return encoding, _as_arrow(value, target, bytes_max)
    spill = _Spill(target, bytes_max)
    try:
        _cloudpickle().dump(value, spill, protocol=5)
    except OSError:
        raise
    except Exception as error:
        raise Unserialisable(_explain(value, what, error)) from error
    finally:
        spill.close()
    return PICKLE, spill.content()


def unpack(encoding: str, content: bytes | memoryview, *, trusted: bool = False) -> Any:
    """The value; of a pickle only if its source is `trusted`."""
    if encoding == PLAIN:
        return _decode(content)
    if encoding in (ARROW, ARROW_BATCH):
        return _from_arrow(encoding, _pyarrow().py_buffer(content))
    _check_encoding(encoding, trusted)
    import pickle

    return pickle.loads(content)  # noqa: S301 - the caller vouches for it


def unpack_file(encoding: str, path: Path, *, trusted: bool = False) -> Any:
    """The value in a file, without first holding all of its bytes."""
    if encoding == PLAIN:
        import mmap  # only large values come in files

        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _decode(content)
    if encoding in (ARROW, ARROW_BATCH):
        return _from_arrow(encoding, _pyarrow().memory_map(str(path)))
    _check_encoding(encoding, trusted)
    import pickle

    with path.open("rb") as file:
        return pickle.load(file)  # noqa: S301 - the caller vouches for it


def _check_encoding(encoding: str, trusted: bool) -> None:
    if encoding != PICKLE:
        raise Unreadable(f"a value is encoded as {encoding!r}, which this version of Rota does not know")
    if not trusted:
        raise Untrusted("a pickled value is opened only if its source is trusted")


def _arrow_encoding(value: object) -> str:
    """How a value travels if it is one of Arrow's; nothing is imported to find out."""
    kind = type(value)
    if kind.__module__ != "pyarrow.lib":
        return ""
    return {"Table": ARROW, "RecordBatch": ARROW_BATCH}.get(kind.__name__, "")


def _as_arrow(value: Any, target: str = "", bytes_max: int = 0) -> Any:
    """The bytes; None if there is a `target` and they were too many, and are there."""
    arrow = _pyarrow()
    is_large = bool(target) and value.nbytes > bytes_max // 2
    with arrow.OSFile(target, "wb") if is_large else arrow.BufferOutputStream() as sink:
        with arrow.ipc.new_stream(sink, value.schema) as stream:
            stream.write(value)
        if is_large:
            return None
        content = sink.getvalue().to_pybytes()
    if target and len(content) > bytes_max:
        Path(target).write_bytes(content)
        return None
    return content


def _from_arrow(encoding: str, source: Any) -> Any:
    with _pyarrow().ipc.open_stream(source) as stream:
        return stream.read_all() if encoding == ARROW else stream.read_next_batch()


def _pyarrow() -> Any:
    try:
        import pyarrow  # pyright: ignore[reportMissingTypeStubs]  # an extra, and half a second

        return pyarrow
    except ImportError:
        raise Unreadable("a value is an Arrow table, and pyarrow is not installed here") from None


def _cloudpickle() -> Any:
    import cloudpickle  # pyright: ignore[reportMissingTypeStubs]  # it has none; costs 30 ms, only for who needs it

    return cloudpickle


def _plain(value: object) -> bytes | None:
    if not is_plain(value):
        return None
    try:
        return _encode(value)
    except (OverflowError, RecursionError, UnicodeEncodeError, ValueError):
        # Half a surrogate pair, or more than 4 GB in one piece: a pickle can hold it.
        return None


def _explain(value: object, what: str, error: Exception) -> str:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    hint = "Return its content: numbers, text, bytes, lists, dictionaries, or objects that can be pickled."
    if isinstance(value, GeneratorType):
        hint = "Return list(…) of it."
    return (
        f"{what} gave a value of type {name}, which cannot be sent to another process "
        f"({type(error).__name__}: {error}). {hint} Leave connections, locks and open files inside the task."
    )


class _Spill:
    """A file for a pickler to write to: in memory while it is small, then on disk.

    A pickler hands over what is large without copying it: a `PickleBuffer` (arrays of NumPy, buffers of Arrow), whose
    items may be of any size and in any order of dimensions, as well as bytes.
    """

    def __init__(self, target: str, bytes_max: int) -> None:
        self._target = target
        self._bytes_max = bytes_max
        self._held = bytearray()
        self._file: Any = None

    def write(self, piece: Any) -> int:
        import pickle  # cloudpickle has loaded it

        # The raw bytes of a buffer, whatever its shape; anything else is bytes already.
        content = piece.raw() if isinstance(piece, pickle.PickleBuffer) else memoryview(piece)
        if self._file is None:
            if len(self._held) + content.nbytes <= self._bytes_max:
                self._held += content
                return content.nbytes
            self._file = Path(self._target).open("wb")  # noqa: SIM115 - closed by `close`
            self._file.write(self._held)
        return self._file.write(content)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def content(self) -> bytes | None:
        return None if self._file is not None else bytes(self._held)
