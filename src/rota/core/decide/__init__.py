"""Commands become changes here and nowhere else.

`decide(state, command, now)` only reads. It answers with the complete list of changes, or refuses. Receipts make a
retry of a client's command answerable: the same id gets the same answer, the same id for something else is refused.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec

from rota.core import commands as cm
from rota.core.bounds import AUDIT_CHARS_MAX
from rota.core.changes import CommandRecorded
from rota.core.decide import claims, workflows
from rota.core.decide.decision import Decision, spare_receipts
from rota.core.decide.definitions import (
    drop_pool,
    drop_schedule,
    pause_scheduler,
    put_pool,
    put_queue,
    put_schedule,
    put_tenant,
    steer_stream,
)
from rota.core.decide.leases import report, return_lease
from rota.core.decide.remedies import clear, mark, move, put_note, release, resolve, retry, revive
from rota.core.decide.runs import approve, continue_run, grow, lose_outputs, pause, start_runs, stop, submit
from rota.core.decide.timers import tick
from rota.core.decide.workers import drain, end_quarantine, forget, register
from rota.core.errors import Refused
from rota.core.graph import check_id, graph_digest
from rota.core.ids import Millis
from rota.core.model import NOTE
from rota.core.params import read_params
from rota.core.records import Audit, Receipt, Run
from rota.core.state import State
from rota.core.tags import tag_of

__all__ = ["Decision", "decide"]

# Told by other fields, or as large as a caller likes.
_NOT_AUDITED = ("tenant", "command_id", "salt", "actor", "graph", "specs")
# Of a submission what it is of; what it was given may be a secret, and is shown to whoever may see the run.
_OF_SUBMISSION = ("run", "workflow", "version", "digest", "priority", "logical_at")

_encode = msgspec.msgpack.Encoder(order="deterministic").encode

DECIDERS: dict[type[cm.Command], Callable[[State, Any, Millis], Decision]] = {
    cm.SubmitRun: submit,
    cm.ApproveRun: approve,
    cm.CancelRun: stop,
    cm.PauseRun: pause,
    cm.ClearTasks: clear,
    cm.MarkTasks: mark,
    cm.RetryTasks: retry,
    cm.ReleaseTasks: release,
    cm.NoteTask: put_note,
    cm.MoveRun: move,
    cm.ReviveRun: revive,
    cm.GrowRun: grow,
    cm.ResolveTask: resolve,
    cm.LoseOutputs: lose_outputs,
    cm.PutQueue: put_queue,
    cm.PutPool: put_pool,
    cm.DropPool: drop_pool,
    cm.PutTenant: put_tenant,
    cm.PutSchedule: put_schedule,
    cm.DropSchedule: drop_schedule,
    cm.DeployWorkflow: workflows.deploy,
    cm.PauseWorkflow: workflows.pause,
    cm.DropWorkflow: workflows.drop,
    cm.StartBackfill: workflows.start_backfill,
    cm.CancelBackfill: workflows.cancel_backfill,
    cm.DrainWorker: drain,
    cm.EndQuarantine: end_quarantine,
    cm.ForgetWorker: forget,
    cm.PauseScheduler: pause_scheduler,
    cm.SteerStream: steer_stream,
    cm.ClaimTask: claims.claim,
    cm.RegisterWorker: register,
    cm.Report: report,
    cm.ReturnLease: return_lease,
    cm.RenewLease: claims.renew,
    cm.BeatWorker: claims.beat,
    cm.WithdrawClaim: claims.withdraw,
    cm.LeaveWorker: claims.leave,
    cm.Tick: tick,
    cm.ContinueRun: continue_run,
    cm.StartRuns: start_runs,
}


def decide(state: State, command: cm.Command, now: Millis) -> Decision:
    """What a command changes and what it is answered. Raises `Refused` when the caller must change something."""
    if not isinstance(command, cm.ClientCommand):
        return DECIDERS[type(command)](state, command, now)
    check_id(command.command_id, "command_id")
    check_id(command.tenant, "tenant")
    earlier = _earlier_answer(state, command, now)
    if earlier is not None:
        return earlier
    decision = DECIDERS[type(command)](state, command, now)
    # A submitted run carries the id of its command in its own row; it needs no receipt besides, unless it is another's.
    needs_receipt = not decision.changes if isinstance(command, cm.SubmitRun) else bool(decision.changes)
    if isinstance(command, cm.SteerStream):
        # What it asks for happens elsewhere, and may be asked for again after something else was.
        needs_receipt = True
    if isinstance(command, cm.ClaimTask) and not decision.answer:
        # It was given nothing, whatever else was decided on the way; the same id may ask again.
        needs_receipt = False
    if needs_receipt:
        receipt = Receipt(command.tenant, command.command_id, command_digest(command), decision.answer, now)
        decision.changes.append(CommandRecorded(receipt, _audit(command, now)))
        decision.changes += spare_receipts(state, now)
    elif isinstance(command, cm.SubmitRun) and command.actor:
        decision.changes.append(CommandRecorded(None, _audit(command, now)))
    return decision


def _audit(command: cm.ClientCommand, now: Millis) -> Audit | None:
    """Who asked for what. A claim is not audited: its lease says who has it. A submission is if it says who asked."""
    if isinstance(command, cm.ClaimTask) or (isinstance(command, cm.SubmitRun) and not command.actor):
        return None
    names = _OF_SUBMISSION if isinstance(command, cm.SubmitRun) else command.__struct_fields__
    told = {name: getattr(command, name) for name in names if name not in _NOT_AUDITED}
    if isinstance(command, cm.DeployWorkflow):
        told = {"workflow": command.graph.name, **told, "params": [param.name for param in command.params]}
    about = msgspec.json.encode(told).decode()
    return Audit(
        tenant=command.tenant,
        at=now,
        actor=command.actor,
        command=tag_of(command),
        about=about if len(about) <= AUDIT_CHARS_MAX else about[: AUDIT_CHARS_MAX - 1] + "…",
        command_id=command.command_id,
    )


def _earlier_answer(state: State, command: cm.ClientCommand, now: Millis) -> Decision | None:
    key = (command.tenant, command.command_id)
    run_key = state.by_command.get(key)
    if run_key is not None:
        if isinstance(command, cm.SubmitRun) and _is_same_submission(state.runs[run_key].row, command):
            return Decision([], answer=command.run, is_repeat=True)
        raise _reused(command)
    receipt = state.receipts.get(key)
    if receipt is None:
        return None
    if receipt.digest not in (0, command_digest(command)):
        raise _reused(command)
    if not receipt.digest and not (isinstance(command, cm.SubmitRun) and command.run == receipt.answer):
        raise _reused(command)
    if isinstance(command, cm.ClaimTask):
        return claims.claim_again(state, command, receipt, now)
    return Decision([], answer=receipt.answer, is_repeat=True)


def _is_same_submission(row: Run, command: cm.SubmitRun) -> bool:
    # Its key to be joined by may have gone to another run.
    # What it waits for, and its deadline, may have changed since.
    # What was said about the run since is not what was asked for.
    given, labels = (tuple(label for label in each if label[0] != NOTE) for each in (command.labels, row.labels))
    asked = (command.run, command.priority, command.parent, command.logical_at, given, command.share)
    if asked != (row.id, row.priority, row.parent, row.slot_at, labels, row.share):
        return False
    if row.merge not in (command.merge, ""):
        return False
    if command.workflow:
        # Its graph and the rest of its parameters were the workflow's at that time, which may have changed since; and
        # the run may have been moved to another version than was asked for.
        return _has_params(row, command) and command.workflow == row.name
    digest = graph_digest(command.graph) if command.graph is not None else command.digest
    if command.declared:
        return _has_params(row, command) and digest == row.graph
    return (digest, command.params) == (row.graph, row.params)


def _has_params(row: Run, command: cm.SubmitRun) -> bool:
    """Whether a run has the parameters that a command gives. Those that it leaves out have defaults in the run."""
    given, had = read_params(command.params), read_params(row.params)
    return all(name in had and had[name] == value for name, value in given.items())


def _reused(command: cm.ClientCommand) -> Refused:
    return Refused(
        "command.id_reused",
        f"command id {command.command_id!r} was used for another command",
        "Choose a new id for each command; repeat one only to repeat the same command.",
        path="command_id",
    )


def command_digest(command: cm.ClientCommand) -> int:
    """What a command asks, in 63 bits, without what the shell adds anew at each try."""
    anew: dict[str, object] = {"salt": 0, "actor": ""}
    if isinstance(command, cm.ClaimTask):
        # A claim that waits is asked again with the time that is left.
        anew |= {"token_hash": "", "wait_ms": 0}
    try:
        content = _encode(msgspec.structs.replace(command, **anew))
    except (OverflowError, UnicodeEncodeError) as error:
        raise Refused("field.value", f"the command cannot be written down: {error}") from None
    return 1 + int.from_bytes(blake2b(content, digest_size=8).digest(), "big") % (2**62)
