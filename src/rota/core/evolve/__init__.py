"""Applying changes to the state. Nothing here decides, and nothing here can fail.

One function per change, found by its type. A change is complete, so applying it needs no rule.
"""

from collections.abc import Callable
from typing import Any

from rota.core import changes as ch
from rota.core.evolve.definitions import (
    command_recorded,
    graph_dropped,
    graph_put,
    pause_put,
    pool_dropped,
    pool_put,
    queue_put,
    receipt_dropped,
    schedule_advanced,
    schedule_dropped,
    schedule_put,
    tenant_put,
)
from rota.core.evolve.leases import (
    attempt_ended,
    attempt_started,
    begin_lease,
    lease_granted,
    lease_returned,
    limit_lease,
    load_revoked,
    report_refused,
    revoked_lease_ended,
    token_replaced,
)
from rota.core.evolve.runs import (
    count_scheduled,
    lay_out,
    pending_set,
    run_approved,
    run_archived,
    run_ended,
    run_faulted,
    run_grew,
    run_moved,
    run_noted,
    run_paused,
    run_reopened,
    run_revived,
    run_started,
    run_stopping,
    run_submitted,
    run_unblocked,
    stand_in_line,
)
from rota.core.evolve.tasks import (
    task_amended,
    task_ended,
    task_marked,
    task_noted,
    task_requeued,
    task_starved,
    tasks_reset,
    tasks_scheduled,
    tasks_settled,
)
from rota.core.evolve.workers import worker_drained, worker_gone, worker_quarantined, worker_registered
from rota.core.evolve.workflows import workflow_put
from rota.core.state import State

__all__ = ["begin_lease", "count_scheduled", "evolve", "lay_out", "limit_lease", "load_revoked", "stand_in_line"]


def evolve(state: State, change: ch.Change) -> None:
    """Make the state what it is after `change`."""
    _APPLY[type(change)](state, change)


_APPLY: dict[type[ch.Change], Callable[[State, Any], None]] = {
    ch.RunSubmitted: run_submitted,
    ch.RunStarted: run_started,
    ch.RunEnded: run_ended,
    ch.RunReopened: run_reopened,
    ch.RunPaused: run_paused,
    ch.RunUnblocked: run_unblocked,
    ch.RunApproved: run_approved,
    ch.RunNoted: run_noted,
    ch.RunStopping: run_stopping,
    ch.RunFaulted: run_faulted,
    ch.RunGrew: run_grew,
    ch.PendingSet: pending_set,
    ch.RunArchived: run_archived,
    ch.RunRevived: run_revived,
    ch.RunMoved: run_moved,
    ch.TasksScheduled: tasks_scheduled,
    ch.TasksSettled: tasks_settled,
    ch.TasksReset: tasks_reset,
    ch.TaskRequeued: task_requeued,
    ch.TaskMarked: task_marked,
    ch.TaskNoted: task_noted,
    ch.TaskAmended: task_amended,
    ch.TaskEnded: task_ended,
    ch.TaskStarved: task_starved,
    ch.LeaseGranted: lease_granted,
    ch.TokenReplaced: token_replaced,
    ch.AttemptStarted: attempt_started,
    ch.AttemptEnded: attempt_ended,
    ch.LeaseReturned: lease_returned,
    ch.RevokedLeaseEnded: revoked_lease_ended,
    ch.ReportRefused: report_refused,
    ch.WorkerRegistered: worker_registered,
    ch.WorkerDrained: worker_drained,
    ch.WorkerQuarantined: worker_quarantined,
    ch.WorkerGone: worker_gone,
    ch.QueuePut: queue_put,
    ch.PoolPut: pool_put,
    ch.PoolDropped: pool_dropped,
    ch.TenantPut: tenant_put,
    ch.GraphPut: graph_put,
    ch.GraphDropped: graph_dropped,
    ch.SchedulePut: schedule_put,
    ch.ScheduleAdvanced: schedule_advanced,
    ch.ScheduleDropped: schedule_dropped,
    ch.WorkflowPut: workflow_put,
    ch.PausePut: pause_put,
    ch.CommandRecorded: command_recorded,
    ch.ReceiptDropped: receipt_dropped,
}
