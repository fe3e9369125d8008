"""The door: from untrusted bytes to a command, or to a refusal that names the field.

Shape is checked here, once: types, unknown fields, unknown words. What the words mean is checked where they are
decided.
"""

from typing import Any

import msgspec

from rota.core import commands as cm
from rota.core.errors import Refused

COMMAND_BYTES_MAX = 64 * 1024 * 1024

ClientRequest = (
    cm.SubmitRun
    | cm.CancelRun
    | cm.PauseRun
    | cm.ClearTasks
    | cm.GrowRun
    | cm.ResolveTask
    | cm.LoseOutputs
    | cm.PutQueue
    | cm.PutPool
    | cm.DropPool
    | cm.PutTenant
    | cm.PutSchedule
    | cm.DropSchedule
    | cm.DrainWorker
    | cm.ForgetWorker
    | cm.ClaimTask
)

_json = msgspec.json.Decoder(ClientRequest)


def read_command(content: bytes) -> cm.ClientCommand:
    """A client's command from JSON; `type` says which. Nothing is guessed and nothing is ignored."""
    if len(content) > COMMAND_BYTES_MAX:
        raise Refused(
            "field.size", f"a command of {len(content)} bytes is too large", f"Send at most {COMMAND_BYTES_MAX}."
        )
    try:
        return _json.decode(content)
    except msgspec.ValidationError as error:
        raise refusal(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused("field.type", f"this is not JSON: {error}") from None
    except RecursionError:
        raise Refused("field.type", "this is nested too deeply") from None


def check_shape(value: Any, kind: type[msgspec.Struct]) -> Any:
    """A value of plain types as a struct of ours, with the same checks."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise refusal(str(error)) from None


def refusal(text: str) -> Refused:
    """What msgspec found wrong, `Expected x - at `$.path``, as a refusal; the path becomes ours."""
    reason, _, where = text.rpartition(" - at ")
    if not (where.startswith("`$") and where.endswith("`") and where.count("`") == 2):
        reason, where = text, ""
    path = where.strip("`").removeprefix("$").removeprefix(".")
    return Refused(
        "field.type", reason[:1].lower() + reason[1:500], "See the reference for the fields there are.", path=path
    )
