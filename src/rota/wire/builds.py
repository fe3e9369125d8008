"""What a build's run asks of a worker, and what its attempt gives back.

The graph says how an action is scheduled; which action it is stands in the run's params, so one graph serves all
actions with the same properties (docs/decisions/0014-builds.md).
"""

import msgspec
from msgspec import Struct

from rota.core.bounds import RESULT_BYTES_MAX
from rota.core.ids import Digest
from rota.core.questions import TaskView
from rota.core.states import FAILED, SUCCESS

BUILD = "build"
# How actions are walled off from their host: the property with which a worker says it, and what it says.
SANDBOX = "sandbox"
NONE, BUBBLEWRAP = "none", "bubblewrap"
# An ActionResult that is larger goes into the content; the rest of a result has to fit beside it.
INLINE_RESULT_BYTES_MAX = RESULT_BYTES_MAX - 4_096
MESSAGE_CHARS_MAX = 1_000
# How errors begin that the front end tells from others: what the client can mend, and what it asked for in vain.
MISSING_INPUTS = "missing inputs:"
INVALID_ACTION = "invalid action:"


class BuildWork(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which action to carry out; the params of its run."""

    instance: str
    action: Digest
    # Where the content is, `grpc://host:port`.
    content: str
    # The Action message if it is small, so that it need not be fetched.
    action_bytes: bytes = b""
    target: str = ""
    mnemonic: str = ""
    invocation: str = ""
    # As its client gave it: lower is sooner. So that it can be submitted again as it was.
    priority: int = 0


class BuildResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an action ended; the result of its attempt, whatever the action's exit code is."""

    # An ActionResult message, or where it is stored if it is larger than `INLINE_RESULT_BYTES_MAX`.
    result: bytes = b""
    stored: Digest | None = None
    # A code of google.rpc: 0; 4 (DEADLINE_EXCEEDED) with what there was when time was up; 3 (INVALID_ARGUMENT) if it
    # did something that an action must not do; 9 (FAILED_PRECONDITION) if an output is an absolute link.
    status: int = 0
    message: str = ""
    exit_code: int = 0
    worker: str = ""


_work = msgspec.msgpack.Decoder(BuildWork)
_result = msgspec.msgpack.Decoder(BuildResult)
encode_build = msgspec.msgpack.Encoder().encode


def decode_work(params: bytes) -> BuildWork:
    """The action that params name. Raises msgspec.MsgspecError."""
    return _work.decode(params)


def decode_result(result: bytes) -> BuildResult:
    """The result of an attempt. Raises msgspec.MsgspecError."""
    return _result.decode(result)


def result_of(task: TaskView | None) -> BuildResult | None:
    """What the task of an action came to, if it did and that can be read."""
    if task is None or task.state not in (SUCCESS, FAILED) or task.result is None:
        return None
    try:
        return decode_result(task.result)
    except msgspec.MsgspecError:
        return None
