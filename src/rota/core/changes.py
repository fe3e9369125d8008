"""What may happen, in the past tense. `decide` produces changes, `evolve` applies them, the story tells them.

A change is complete: applying it needs no rule and cannot fail. Fields are only ever added at the end, because stories
outlive versions.
"""

from msgspec import Struct

from rota.core.ids import CommandId, Fence, GraphDigest, Incarnation, Millis, RunId, ScheduleId, TaskId, WorkerId
from rota.core.model import FailureClass, Graph, Pairs, Pool, Queue, Tenant
from rota.core.records import Audit, Growth, Pause, Receipt, Run, Schedule, Slice, Task, Worker, Workflow
from rota.core.states import RunState, TaskState


class Change(Struct, frozen=True, gc=False, array_like=True):
    """One thing that happened."""


class OfRun(Change, frozen=True):
    """A change that belongs to the story of one run."""

    tenant: str
    run: RunId


class RunSubmitted(Change, frozen=True, tag="RunSubmitted"):
    """A run was accepted; it waits to start, unless its row says that it runs."""

    row: Run


class RunStarted(OfRun, frozen=True, tag="RunStarted"):
    """A run began to schedule its tasks."""

    at: Millis


class RunEnded(OfRun, frozen=True, tag="RunEnded"):
    """A run reached its result."""

    state: RunState
    at: Millis
    reason: str


class RunReopened(OfRun, frozen=True, tag="RunReopened"):
    """An ended run has work again."""

    at: Millis


class RunPaused(OfRun, frozen=True, tag="RunPaused"):
    """A run was paused or resumed."""

    paused: bool
    at: Millis


class RunUnblocked(OfRun, frozen=True, tag="RunUnblocked"):
    """A run that this one waited for has succeeded."""

    after: RunId
    at: Millis


class RunApproved(OfRun, frozen=True, tag="RunApproved"):
    """A person approved of a run, or did not; then it has ended."""

    approved: bool
    actor: str
    reason: str
    at: Millis


class RunStopping(OfRun, frozen=True, tag="RunStopping"):
    """A run is being ended from outside: cancelled, or out of time."""

    state: RunState
    at: Millis
    reason: str


class RunFaulted(OfRun, frozen=True, tag="RunFaulted"):
    """Deciding for this run met an error of ours; the run is held and others go on."""

    at: Millis
    fault: str


class RunGrew(OfRun, frozen=True, tag="RunGrew"):
    """Tasks were added to a living run, or a width became known."""

    growth: Growth
    at: Millis


class PendingSet(OfRun, frozen=True, tag="PendingSet"):
    """What is left of a cascade that did not fit one turn."""

    pending: tuple[Slice, ...]


class RunArchived(OfRun, frozen=True, tag="RunArchived"):
    """An ended run moved to history."""

    at: Millis


class RunRevived(Change, frozen=True, tag="RunRevived"):
    """An ended run left history: somebody wants something of it."""

    row: Run
    tasks: tuple[Task, ...]
    growths: tuple[Growth, ...]
    at: Millis


class RunMoved(OfRun, frozen=True, tag="RunMoved"):
    """A run was given another version of its graph. `tasks` are pairs of the old and the new number of what is kept.

    `params` are its parameters, completed for the other version; None if they are as before.
    """

    graph: GraphDigest
    version: int
    growths: tuple[Growth, ...]
    tasks: tuple[tuple[int, int], ...]
    at: Millis
    params: bytes | None = None


class TasksScheduled(OfRun, frozen=True, tag="TasksScheduled"):
    """Tasks passed their trigger rule: scheduled, then queued."""

    tasks: tuple[int, ...]
    at: Millis


class TasksSettled(OfRun, frozen=True, tag="TasksSettled"):
    """Tasks ended without running: skipped, upstream_failed or cancelled."""

    tasks: tuple[int, ...]
    state: TaskState
    at: Millis


class TasksReset(OfRun, frozen=True, tag="TasksReset"):
    """Tasks went back to `none`: cleared by a person (with a fresh budget), or what they need was lost or changed."""

    tasks: tuple[int, ...]
    at: Millis
    cause: str
    fresh: bool


class TaskRequeued(OfRun, frozen=True, tag="TaskRequeued"):
    """A task that waited for its time, or for a person, is scheduled and queued again."""

    task: int
    at: Millis
    cause: str


class TaskMarked(OfRun, frozen=True, tag="TaskMarked"):
    """A person said what a task came to."""

    task: int
    state: TaskState
    at: Millis


class RunNoted(OfRun, frozen=True, tag="RunNoted"):
    """Something was said about a run."""

    note: str
    at: Millis


class TaskNoted(OfRun, frozen=True, tag="TaskNoted"):
    """Something was said about a task."""

    task: int
    note: str
    at: Millis


class TaskAmended(OfRun, frozen=True, tag="TaskAmended"):
    """A task was given other requirements."""

    task: int
    requires: Pairs | None
    at: Millis


class TaskEnded(OfRun, frozen=True, tag="TaskEnded"):
    """A task without a lease was ended or parked."""

    task: int
    state: TaskState
    at: Millis
    failure: FailureClass | None
    error: str


class TaskStarved(OfRun, frozen=True, tag="TaskStarved"):
    """A task that nobody can serve went one cycle further up the ladder. `note` is what to say about it, if new."""

    task: int
    cycles: int
    tier: int
    at: Millis
    note: str = ""


class LeaseGranted(OfRun, frozen=True, tag="LeaseGranted"):
    """A worker was given the right to one attempt."""

    task: int
    fence: Fence
    worker_tenant: str
    worker: WorkerId
    incarnation: Incarnation
    attempt: int
    at: Millis
    lease_ms: int
    overdue: bool = False
    token_hash: str = ""


class TokenReplaced(OfRun, frozen=True, tag="TokenReplaced"):
    """A claim was repeated: its lease is spoken for with another secret, and the former one is void."""

    task: int
    fence: Fence
    token_hash: str
    at: Millis


class AttemptStarted(OfRun, frozen=True, tag="AttemptStarted"):
    """The worker said that it started."""

    task: int
    fence: Fence
    at: Millis


class AttemptEnded(OfRun, frozen=True, tag="AttemptEnded"):
    """The one outcome of an attempt."""

    task: int
    fence: Fence
    state: TaskState
    at: Millis
    result: bytes | None
    failure: FailureClass | None
    error: str
    due_at: Millis
    skips: tuple[TaskId, ...] = ()


# The cause of a return that the worker itself reported; saying it twice is a repetition, not a mistake.
RELEASED = "released by its worker"


class LeaseReturned(OfRun, frozen=True, tag="LeaseReturned"):
    """A lease ended without an outcome: the attempt is returned unspent, or parked when that happened too often."""

    task: int
    fence: Fence
    state: TaskState
    at: Millis
    cause: str
    counted: bool
    # When it may be had again, if not at once: then it is up for reschedule.
    due_at: Millis = 0
    # Whether the lease counts against limits until its time is over: its worker may still be at work.
    revoked: bool = False


class RevokedLeaseEnded(OfRun, frozen=True, tag="RevokedLeaseEnded"):
    """The time of a revoked lease is over, or its worker is known to have stopped: it counts no longer."""

    task: int
    fence: Fence
    at: Millis


class ReportRefused(OfRun, frozen=True, tag="ReportRefused"):
    """A report that did not name the live lease; it changed nothing."""

    task: int
    fence: Fence
    cause: str
    at: Millis


class WorkerRegistered(Change, frozen=True, tag="WorkerRegistered"):
    """A worker joined, came back as a new incarnation, or described itself anew."""

    row: Worker


class WorkerDrained(Change, frozen=True, tag="WorkerDrained"):
    """A worker takes no new work, or takes it again."""

    tenant: str
    worker: WorkerId
    draining: bool


class WorkerQuarantined(Change, frozen=True, tag="WorkerQuarantined"):
    """A worker failed too often and rests until then; with 0 it rests no longer."""

    tenant: str
    worker: WorkerId
    until: Millis
    cause: str = ""


class WorkerGone(Change, frozen=True, tag="WorkerGone"):
    """A worker said good-bye or was silent for so long that it is no longer counted as registered."""

    tenant: str
    worker: WorkerId
    at: Millis


class QueuePut(Change, frozen=True, tag="QueuePut"):
    """A queue was defined."""

    queue: Queue


class PoolPut(Change, frozen=True, tag="PoolPut"):
    """A pool was defined."""

    pool: Pool
    at: Millis


class PoolDropped(Change, frozen=True, tag="PoolDropped"):
    """A pool was removed."""

    tenant: str
    name: str


class TenantPut(Change, frozen=True, tag="TenantPut"):
    """A tenant was given its share."""

    tenant: Tenant


class GraphPut(Change, frozen=True, tag="GraphPut"):
    """A definition was stored under its digest."""

    tenant: str
    digest: GraphDigest
    graph: Graph
    at: Millis


class GraphDropped(Change, frozen=True, tag="GraphDropped"):
    """A definition that nothing uses any more was removed."""

    tenant: str
    digest: GraphDigest


class SchedulePut(Change, frozen=True, tag="SchedulePut"):
    """A schedule was defined."""

    schedule: Schedule
    at: Millis


class ScheduleAdvanced(Change, frozen=True, tag="ScheduleAdvanced"):
    """A schedule's cursor moved: slots up to it were made into runs or recorded as missed."""

    tenant: str
    schedule: ScheduleId
    cursor: Millis
    fired: int
    missed: int


class ScheduleDropped(Change, frozen=True, tag="ScheduleDropped"):
    """A schedule was removed."""

    tenant: str
    schedule: ScheduleId
    at: Millis


class WorkflowPut(Change, frozen=True, tag="WorkflowPut"):
    """A workflow was deployed, paused or resumed."""

    workflow: Workflow
    at: Millis


class PausePut(Change, frozen=True, tag="PausePut"):
    """Work of a scope was paused or resumed."""

    pause: Pause


class CommandRecorded(Change, frozen=True, tag="CommandRecorded"):
    """A command was answered; a retry will get the same answer. `audit` says who asked for what, where that is kept.

    Of a submission it is the run itself that answers a retry, so there is no receipt.
    """

    receipt: Receipt | None
    audit: Audit | None = None


class ReceiptDropped(Change, frozen=True, tag="ReceiptDropped"):
    """An answer was kept long enough."""

    tenant: str
    command_id: CommandId
