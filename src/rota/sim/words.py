"""What is stored can be stored: text that every store can keep, within its bounds."""

import msgspec

from rota.core.bounds import ERROR_CHARS_MAX, RESULT_BYTES_MAX
from rota.core.records import Record, Run, Task
from rota.sim.broken import Broken

_encode = msgspec.msgpack.Encoder().encode


def check_words(record: Record) -> None:
    """P-WORDS: whatever a worker said, what is kept of it is text, without NUL, and no longer than it may be."""
    try:
        _encode(record)
    except (UnicodeEncodeError, OverflowError) as error:
        raise Broken(f"P-WORDS: a record that no store can keep: {error}") from None
    task = record.solo if isinstance(record, Run) else record
    if not isinstance(task, Task):
        return
    name = (task.tenant, task.run)
    if "\0" in task.error or len(task.error) > ERROR_CHARS_MAX:
        raise Broken(f"P-WORDS: {name}/{task.idx} keeps an error of {len(task.error)} characters, or one with NUL")
    if task.result is not None and len(task.result) > RESULT_BYTES_MAX:
        raise Broken(f"P-WORDS: {name}/{task.idx} keeps a result of {len(task.result)} bytes")
