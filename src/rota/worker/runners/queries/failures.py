"""What the engine's errors mean for an attempt: whose fault they are, and whether another try would help.

The engine comes to the same end with the same rows, so its errors are final. Only what is read over a network, and
functions of users, are tried again.

The texts are those of DataFusion 55; the code that stands first is one of `rota.core.errors`.
"""

import re
import traceback
from collections.abc import Sequence
from typing import Literal

from rota.core.errors import Refused
from rota.wire.stores import in_words, is_of_store, kind_of
from rota.worker.runners.queries.orders import Broke

_PYTHON = re.compile(
    r"PyErr \{ type: <class '([\w.]+)'>, value: (.*?), traceback: (?:Some\(\"(.*?)\"\)|None) \}", re.DOTALL
)
_FULL = re.compile(r"No space left on device|Disk quota exceeded|Too many open files|\(os error (?:28|122|24|23)\)")
# The first line of this table whose pattern is found says what it was. What comes of the data itself comes again.
_KINDS: tuple[tuple[str, Literal["user", "fatal", "out_of_memory"], str], ...] = (
    (r"Resources exhausted", "out_of_memory", "query.memory"),
    (r"Generic HTTP error", "user", "query.source"),
    (
        r"Parquet error|Object Store error|Object at location|No such file|Permission denied|Is a directory"
        r"|Csv error|Json error|Ipc error|Avro error|Requested range was invalid",
        "fatal",
        "query.source",
    ),
    (r"Cast error|Parser error|Divide by zero|[Oo]verflow|Invalid argument error", "fatal", "query.type"),
    (r"not implemented|not supported|Unsupported", "fatal", "query.unsupported"),
)
_PREFIXES = ("DataFusion error: ", "Execution error: ", "Arrow error: ", "External error: ")


def judge(error: BaseException, peers: Sequence[str] = ()) -> Broke:
    """What an error means that came out of the engine, or out of a function that it called.

    `peers` are read like buckets, and what one of them says now it need not say again.
    """
    text = str(error).strip()
    if isinstance(error, MemoryError):
        return Broke("out_of_memory", f"query.memory: Python has no memory left: {text or 'MemoryError'}")
    # Before all others: a function may say whatever it likes.
    if found := _PYTHON.search(text):
        return _by_function(found[1], found[2], found[3] or "")
    if _FULL.search(text):
        return Broke("no_room", f"this worker has no disk or files left: {text}")
    if type(error).__name__ == "PanicException":
        return Broke("fatal", f"query.failed: the engine panicked: {text}")
    if isinstance(error, Refused):
        return Broke("fatal", str(error))
    if is_of_store(text):
        # Who is not let in, or asks for what is not there, is told the same again.
        is_of_peer = any(url in text for url in peers)
        failure = "user" if is_of_peer or kind_of(text) in ("silent", "other") else "fatal"
        return Broke(failure, f"query.source: a bucket cannot be read: {in_words(text)}")
    for pattern, failure, code in _KINDS:
        if re.search(pattern, text):
            return Broke(failure, f"{code}: {_plain(text)}")
    if type(error) is Exception or isinstance(error, RuntimeError):
        return Broke("fatal", f"query.failed: {_plain(text)}")
    # None of the engine's: what we do around it.
    shown = "".join(traceback.format_exception(error)).strip()
    return Broke("internal", f"query.failed: {shown}")


def unreadable(error: BaseException) -> Broke:
    """What an error means that came while a plan was read: it comes again."""
    text = str(error).strip()
    if found := _PYTHON.search(text):
        return Broke("fatal", f"query.function_failed: a function of the query cannot be opened here: {found[2]}")
    return Broke("fatal", f"query.failed: its plan cannot be read by this engine: {text}")


def _by_function(kind: str, value: str, trace: str) -> Broke:
    shown = trace.replace("\\n", "\n").replace('\\"', '"').strip()
    said = f"query.function_failed: a function of the query raised {value}"
    if shown:
        said = f"{said}\n{shown}"
    return Broke("out_of_memory" if kind == "MemoryError" else "user", said)


def _plain(text: str) -> str:
    """A message without the names of the engine's own layers before it."""
    while True:
        for prefix in _PREFIXES:
            if text.startswith(prefix):
                text = text[len(prefix) :]
                break
        else:
            return text
