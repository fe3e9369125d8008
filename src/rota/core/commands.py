"""What may be asked, in the imperative. Commands come from clients, workers and timers; `decide` answers them.

A mutating command of a client carries `command_id`, chosen by the caller, so that a retry after an unknown outcome is
answered and not repeated; and a `salt` from the shell, from which jitter is derived.
"""

from enum import StrEnum

from msgspec import Struct

from rota.core.bounds import BACKFILL_ACTIVE_RUNS
from rota.core.calendar import ScheduleSpec
from rota.core.ids import (
    NO_GRAPH,
    NO_RUN,
    CommandId,
    Fence,
    GraphDigest,
    Incarnation,
    Millis,
    RunId,
    ScheduleId,
    TaskId,
    WorkerId,
)
from rota.core.model import Capacity, FailureClass, Graph, Mood, Pairs, Param, Pool, PriorityClass, Queue, TaskSpec
from rota.core.records import Growth, Run, Task


class Command(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request."""

    tenant: str


class ClientCommand(Command, frozen=True, kw_only=True):
    """A request that changes something and may be retried. `actor` is who asked, as the way in found out."""

    command_id: CommandId
    salt: int = 0
    actor: str = ""


class SubmitRun(ClientCommand, frozen=True, kw_only=True, tag="SubmitRun"):
    """Make a run of a graph: given whole, by the digest of one that is known, or by the name of a workflow.

    `version` says which of the workflow's, if not the present one; `logical_at` is what the run is about, if not the
    present moment. While a run with the same `merge` has not ended no other is made: the answer is that one's id, and
    that it is another than `run` says that it was joined. Runs with the same `share` are charged as if they were one.
    `is_fresh`: the id was made up for this run, so it is not looked up in history. `declared` are the parameters
    of a graph that is not deployed, in time zone `zone`: the run gets their defaults where `params` has no value.
    """

    run: RunId
    is_fresh: bool = False
    graph: Graph | None = None
    digest: GraphDigest = NO_GRAPH
    workflow: str = ""
    version: int = 0
    logical_at: Millis = 0
    priority: PriorityClass = PriorityClass.NORMAL
    params: bytes = b""
    parent: RunId = NO_RUN
    merge: str = ""
    labels: Pairs = ()
    share: str = ""
    # Runs that have to succeed before this one starts.
    after: tuple[RunId, ...] = ()
    # Whether a person has to approve of it first.
    needs_approval: bool = False
    # When it fails if it has not ended; 0: never.
    deadline_at: Millis = 0
    declared: tuple[Param, ...] = ()
    zone: str = "UTC"


class ApproveRun(ClientCommand, frozen=True, kw_only=True, tag="ApproveRun"):
    """Let a run that waits for a person's word go on, or end it."""

    run: RunId
    approved: bool = True
    reason: str = ""


class CancelRun(ClientCommand, frozen=True, kw_only=True, tag="CancelRun"):
    """End a run and everything in it."""

    run: RunId
    reason: str = "cancelled on request"


class PauseRun(ClientCommand, frozen=True, kw_only=True, tag="PauseRun"):
    """Hold a run's waiting tasks back, or let them go on. Running attempts finish."""

    run: RunId
    paused: bool = True


class ClearTasks(ClientCommand, frozen=True, kw_only=True, tag="ClearTasks"):
    """Run tasks again that have ended, and by default everything after them, with a fresh budget.

    No names are all tasks. `only_failed` leaves out what ended well.
    """

    run: RunId
    tasks: tuple[TaskId, ...] = ()
    downstream: bool = True
    only_failed: bool = False


class Mark(StrEnum):
    """What a person may say that a task came to."""

    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"


class MarkTasks(ClientCommand, frozen=True, kw_only=True, tag="MarkTasks"):
    """Say what tasks came to, whatever they are doing. What failed because of them is judged again."""

    run: RunId
    tasks: tuple[TaskId, ...]
    to: Mark
    reason: str = ""


class RetryTasks(ClientCommand, frozen=True, kw_only=True, tag="RetryTasks"):
    """Do not let tasks wait any longer for their next try. No names are all that wait."""

    run: RunId
    tasks: tuple[TaskId, ...] = ()


class ReleaseTasks(ClientCommand, frozen=True, kw_only=True, tag="ReleaseTasks"):
    """Take tasks from whoever has them, at no cost, and let others have them. No names are all that are held."""

    run: RunId
    tasks: tuple[TaskId, ...] = ()
    reason: str = ""


class NoteTask(ClientCommand, frozen=True, kw_only=True, tag="NoteTask"):
    """Say something about a task, for whoever looks at it next; about the run if no task is named."""

    run: RunId
    task: TaskId
    note: str


class MoveRun(ClientCommand, frozen=True, kw_only=True, tag="MoveRun"):
    """Give a run another version of its workflow; 0 is the present one. What it has done is kept, task by task."""

    run: RunId
    version: int = 0


class ReviveRun(Command, frozen=True, kw_only=True, tag="ReviveRun"):
    """Take a run out of history: somebody wants to change something about it. The machines send this."""

    row: Run
    tasks: tuple[Task, ...]
    growths: tuple[Growth, ...]
    graph: Graph


class GrowRun(ClientCommand, frozen=True, kw_only=True, tag="GrowRun"):
    """Add tasks to a living run, or say how wide a task is that was defined without a width."""

    run: RunId
    specs: tuple[TaskSpec, ...] = ()
    expands: TaskId = TaskId("")
    width: int = 0


class Exit(StrEnum):
    """The ways out of needs_attention."""

    REQUEUE = "requeue"
    FAIL = "fail"
    CANCEL = "cancel"


class ResolveTask(ClientCommand, frozen=True, kw_only=True, tag="ResolveTask"):
    """Take a parked task out of needs_attention, at no cost; `requires` replaces what it asks for."""

    run: RunId
    task: TaskId
    exit: Exit = Exit.REQUEUE
    requires: Pairs | None = None


class LoseOutputs(ClientCommand, frozen=True, kw_only=True, tag="LoseOutputs"):
    """Say that the outputs of successful tasks are gone; they are made again."""

    run: RunId
    tasks: tuple[TaskId, ...]


class PutQueue(ClientCommand, frozen=True, kw_only=True, tag="PutQueue"):
    """Define a queue."""

    queue: Queue


class PutPool(ClientCommand, frozen=True, kw_only=True, tag="PutPool"):
    """Define a pool."""

    pool: Pool


class DropPool(ClientCommand, frozen=True, kw_only=True, tag="DropPool"):
    """Remove a pool."""

    name: str


class PutTenant(ClientCommand, frozen=True, kw_only=True, tag="PutTenant"):
    """Say how large a share the tenant has."""

    weight: int


class PutSchedule(ClientCommand, frozen=True, kw_only=True, tag="PutSchedule"):
    """Make runs of a graph by the calendar."""

    schedule: ScheduleId
    graph: Graph
    spec: ScheduleSpec
    priority: PriorityClass = PriorityClass.NORMAL
    paused: bool = False


class DeployWorkflow(ClientCommand, frozen=True, kw_only=True, tag="DeployWorkflow"):
    """Make a graph the present version of the workflow of its name, with its schedule; the same again changes nothing.

    Without a schedule it has none any more. `paused` None leaves that as it is. `zone` is the time zone of the
    workflow's dates: by default that of its schedule, or UTC. `code` is the digest of the files that the workflow uses:
    with the same code and otherwise the same graph, another bundle is no other version. Without it, it is one.
    """

    graph: Graph
    params: tuple[Param, ...] = ()
    schedule: ScheduleSpec | None = None
    priority: PriorityClass = PriorityClass.NORMAL
    paused: bool | None = None
    source: str = ""
    doc: str = ""
    zone: str = ""
    code: str = ""


class PauseWorkflow(ClientCommand, frozen=True, kw_only=True, tag="PauseWorkflow"):
    """Start no runs of a workflow and give no worker their tasks, or go on. Running attempts finish."""

    workflow: str
    paused: bool = True


class DropWorkflow(ClientCommand, frozen=True, kw_only=True, tag="DropWorkflow"):
    """Take a workflow away with its schedule; its runs go on."""

    workflow: str


class StartBackfill(ClientCommand, frozen=True, kw_only=True, tag="StartBackfill"):
    """Make runs for the slots of a workflow's schedule between two instants, both included, the oldest first.

    They are of class low, at most `max_active_runs` at once, and none of them counts against the workflow's own cap.
    """

    backfill: ScheduleId
    workflow: str
    start_at: Millis
    end_at: Millis
    max_active_runs: int = BACKFILL_ACTIVE_RUNS
    params: bytes = b""


class CancelBackfill(ClientCommand, frozen=True, kw_only=True, tag="CancelBackfill"):
    """Make no more runs of a backfill, and cancel those that have not ended."""

    backfill: ScheduleId


class DropSchedule(ClientCommand, frozen=True, kw_only=True, tag="DropSchedule"):
    """Make no more runs by this schedule."""

    schedule: ScheduleId


class DrainWorker(ClientCommand, frozen=True, kw_only=True, tag="DrainWorker"):
    """Give a worker no new work, or give it work again."""

    worker: WorkerId
    draining: bool = True


class EndQuarantine(ClientCommand, frozen=True, kw_only=True, tag="EndQuarantine"):
    """Give a worker work again that rests because too much failed on it."""

    worker: WorkerId


class ForgetWorker(ClientCommand, frozen=True, kw_only=True, tag="ForgetWorker"):
    """Strike a worker off the register; what it holds is returned unspent."""

    worker: WorkerId


class PauseScheduler(ClientCommand, frozen=True, kw_only=True, tag="PauseScheduler"):
    """Give nobody work of a scope, or go on; what runs goes on. Scopes are those of `Pause`."""

    scope: str = ""
    paused: bool = True
    reason: str = ""


class SteerStream(ClientCommand, frozen=True, kw_only=True, tag="SteerStream"):
    """Ask something of a stream that others run. It is only written down who asked; the way in carries it out.

    `verb`: `pause`, `resume`, `savepoint` or `restore`; `which` names the savepoint, or the round to go on from; `stop`
    ends the stream after its savepoint.
    """

    stream: str
    verb: str
    which: str = ""
    stop: bool = False


class ClaimTask(ClientCommand, frozen=True, kw_only=True, tag="ClaimTask"):
    """A pull worker asks for the best task it may have.

    `least` leaves out less urgent classes, `where` what does not have these requirements, `run` all but one run.
    `token_hash` is of a secret that the way in made up and gives to the worker with the lease. `wait_ms`: if there is
    no such task now, the caller waits for so long to be woken and asks again.
    """

    worker: WorkerId
    incarnation: Incarnation
    lease_ms: int = 5 * 60_000
    wait_ms: int = 0
    least: PriorityClass = PriorityClass.LOW
    where: Pairs = ()
    run: RunId = NO_RUN
    owner: str = ""
    token_hash: str = ""


class RegisterWorker(Command, frozen=True, kw_only=True, tag="RegisterWorker"):
    """A worker says who it is and what it can do."""

    worker: WorkerId
    incarnation: Incarnation
    capacity: Capacity
    owner: str = ""


class BeatWorker(Command, frozen=True, kw_only=True, tag="BeatWorker"):
    """A pull worker is alive, and says what it is up to. Memory only; the answer is what it holds."""

    worker: WorkerId
    incarnation: Incarnation
    mood: Mood | None = None
    owner: str = ""


class WithdrawClaim(Command, frozen=True, kw_only=True, tag="WithdrawClaim"):
    """The caller of a claim that waits has gone, or waits no longer. `claim` is the claim's command id. Memory only."""

    worker: WorkerId
    incarnation: Incarnation
    claim: str
    owner: str = ""


class LeaveWorker(Command, frozen=True, kw_only=True, tag="LeaveWorker"):
    """A pull worker is done: it is struck off, and what it holds is returned at once."""

    worker: WorkerId
    incarnation: Incarnation
    owner: str = ""


class Outcome(StrEnum):
    """What a worker may say of an attempt."""

    STARTED = "started"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"
    RESCHEDULE = "reschedule"
    RELEASED = "released"
    GREW = "grew"


class Report(Command, frozen=True, kw_only=True, tag="Report"):
    """A worker's word on an attempt it holds.

    `tenant`, `run` and `task` say which; `expands` gives the widths of tasks mapped over the result, `lost` the
    upstream tasks whose output was gone, and `skips` the tasks that a branch decided against. `grows` are the tasks as
    which one goes on that grew; it waits for the last of them, and is offered again with what that gave.
    """

    run: RunId
    task: int
    worker_tenant: str
    worker: WorkerId
    incarnation: Incarnation
    fence: Fence
    outcome: Outcome
    salt: int = 0
    result: bytes | None = None
    failure: FailureClass = FailureClass.USER
    error: str = ""
    resume_at: Millis = 0
    expands: tuple[tuple[TaskId, int], ...] = ()
    lost: tuple[TaskId, ...] = ()
    skips: tuple[TaskId, ...] = ()
    token_hash: str = ""
    grows: tuple[TaskSpec, ...] = ()


class ReturnLease(Command, frozen=True, kw_only=True, tag="ReturnLease"):
    """A lease ends without an outcome; the machines send this, never a client."""

    fence: Fence
    cause: str


class RenewLease(Command, frozen=True, kw_only=True, tag="RenewLease"):
    """A pull worker asks to keep its lease."""

    worker: WorkerId
    incarnation: Incarnation
    fence: Fence
    lease_ms: int = 5 * 60_000
    owner: str = ""
    token_hash: str = ""


class Tick(Command, frozen=True, kw_only=True, tag="Tick"):
    """A timer came up."""

    kind: str
    key: tuple[object, ...]
    salt: int = 0


class ContinueRun(Command, frozen=True, kw_only=True, tag="ContinueRun"):
    """Go on with a cascade that did not fit one turn."""

    run: RunId


class StartRuns(Command, frozen=True, kw_only=True, tag="StartRuns"):
    """Start runs of a graph that waited for its cap."""

    name: str
