"""What an attempt did when, where its result says so: fetching inputs, running, uploading outputs.

Only actions of builds tell. Their instants are by the clock of the worker, which may be another than the coordinator's.
"""

from msgspec import MsgspecError, Struct

from rota.core.ids import Millis
from rota.core.questions import TaskView
from rota.wire.builds import BUILD, decode_result


class Phase(Struct, frozen=True):
    """A part of an attempt."""

    name: str
    start_at: Millis
    end_at: Millis


def phases_of(task: TaskView) -> tuple[Phase, ...]:
    """The phases of a task's last attempt, in order; nothing if they are not known."""
    if task.kind != BUILD or not task.result:
        return ()
    try:
        return _told(decode_result(task.result).result)
    except MsgspecError:
        return ()


def _told(result: bytes) -> tuple[Phase, ...]:
    """What an ActionResult tells. Its words come with `rota[build]`: who has not installed it, does without phases."""
    try:
        from google.protobuf.message import DecodeError

        from rota.wire.reapi.remote_execution_pb2 import ActionResult
    except ImportError:
        return ()
    try:
        told = ActionResult.FromString(result).execution_metadata
    except DecodeError:
        return ()
    marks = (
        ("fetch", told.input_fetch_start_timestamp, told.input_fetch_completed_timestamp),
        ("run", told.execution_start_timestamp, told.execution_completed_timestamp),
        ("upload", told.output_upload_start_timestamp, told.output_upload_completed_timestamp),
    )
    found = (Phase(name, start.ToMilliseconds(), end.ToMilliseconds()) for name, start, end in marks)
    return tuple(each for each in found if each.start_at and each.end_at >= each.start_at)
