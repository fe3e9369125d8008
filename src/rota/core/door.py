"""The door: from what somebody sent to a struct of ours, or to a refusal that names the field.

Shape is checked here, once: types, unknown fields, unknown words. What the words mean is checked where they are
decided.
"""

from typing import Any

import msgspec

from rota.core import commands as cm
from rota.core.errors import Refused

ClientRequest = (
    cm.SubmitRun
    | cm.CancelRun
    | cm.PauseRun
    | cm.ClearTasks
    | cm.MarkTasks
    | cm.RetryTasks
    | cm.ReleaseTasks
    | cm.NoteTask
    | cm.MoveRun
    | cm.GrowRun
    | cm.ResolveTask
    | cm.LoseOutputs
    | cm.PutQueue
    | cm.PutPool
    | cm.DropPool
    | cm.PutTenant
    | cm.PutSchedule
    | cm.DropSchedule
    | cm.DeployWorkflow
    | cm.PauseWorkflow
    | cm.DropWorkflow
    | cm.StartBackfill
    | cm.CancelBackfill
    | cm.DrainWorker
    | cm.EndQuarantine
    | cm.ForgetWorker
    | cm.ApproveRun
    | cm.PauseScheduler
    | cm.SteerStream
    | cm.ClaimTask
)


def check_shape(value: Any, kind: Any) -> Any:
    """A value of plain types as a struct of ours. Nothing is guessed and nothing is ignored."""
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
