"""What the store keeps: one struct per row, every field a column.

A record is the whole truth about its row after a commit; the store needs no rule of ours to apply it. A task has a
row from the moment it leaves `none`. The one task of a one-task run lives inside the run's row. Time of lease renewal
is not here: renewals are memory only (docs/protocol.md, P-LEASE).
"""

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from rota.core.calendar import ScheduleSpec
from rota.core.ids import (
    NO_FENCE,
    NO_RUN,
    NO_WORKER,
    CommandId,
    Fence,
    GraphDigest,
    Incarnation,
    Millis,
    RunId,
    RunKey,
    ScheduleId,
    TaskId,
    WorkerId,
)
from rota.core.model import (
    Approval,
    Capacity,
    FailureClass,
    Graph,
    Pairs,
    Param,
    Pool,
    PriorityClass,
    Queue,
    TaskSpec,
    Tenant,
)
from rota.core.states import RunState, TaskState


class RevokedLease(Struct, frozen=True, gc=False):
    """A lease that was taken from a silent worker before its end: until then it counts against limits."""

    fence: Fence
    worker_tenant: str
    worker: WorkerId
    lease_ms: int


class Task(Struct, gc=False):
    """One task of a run, with its lease when it has one."""

    tenant: str
    run: RunId
    idx: int
    state: TaskState = TaskState.NONE
    attempt: int = 0
    budget_from: int = 0
    interruptions: int = 0
    losses: int = 0
    fence: Fence = NO_FENCE
    done_fence: Fence = NO_FENCE
    worker_tenant: str = ""
    worker: WorkerId = NO_WORKER
    incarnation: Incarnation = Incarnation("")
    lease_ms: int = 0
    eligible_at: Millis = 0
    assigned_at: Millis = 0
    started_at: Millis = 0
    ended_at: Millis = 0
    due_at: Millis = 0
    failure: FailureClass | None = None
    error: str = ""
    result: bytes | None = None
    avoid_tenant: str = ""
    avoid: WorkerId = NO_WORKER
    requires: Pairs | None = None
    cycles: int = 0
    tier: int = 0
    # When it first started since it was last cleared: a sensor that comes back counts its patience from there.
    first_started_at: Millis = 0
    # Tasks that this one, a branch, decided to skip.
    skips: tuple[TaskId, ...] = ()
    # What a person, or the scheduler, has to say about it.
    note: str = ""
    # Whoever speaks for its lease has to know what this is the SHA-256 of; empty: nothing.
    token_hash: str = ""
    revoked: tuple[RevokedLease, ...] = ()


class Slice(Struct, frozen=True, gc=False):
    """Tasks that are already decided but not yet moved: the durable cursor of a cascade too long for one turn.

    To `none`, a range of nodes that are yet to be judged, in the order of judging; if it `overrules`, so are those of
    them that failed upstream before a branch left them out.
    """

    to: TaskState
    next: int
    end: int
    overrules: bool = False


class Run(Struct):
    """One instance of a graph."""

    tenant: str
    id: RunId
    graph: GraphDigest
    name: str
    kind: str = "workflow"
    state: RunState = RunState.QUEUED
    priority: PriorityClass = PriorityClass.NORMAL
    created_at: Millis = 0
    started_at: Millis = 0
    ended_at: Millis = 0
    deadline_at: Millis = 0
    params: bytes = b""
    schedule: ScheduleId = ScheduleId("")
    slot_at: Millis = 0
    parent: RunId = NO_RUN
    command_id: CommandId = CommandId("")
    paused: bool = False
    stopping: RunState | None = None
    pending: tuple[Slice, ...] = ()
    grown: int = 0
    reason: str = ""
    fault: str = ""
    story: int = 0
    solo: Task | None = None
    # The version of its workflow; 0 if its graph was submitted by itself.
    version: int = 0
    # Made by a backfill, whose own limit it is under, and not that of its graph.
    backfill: bool = False
    # While it has not ended, whoever submits a run with the same key joins this one. Empty: nobody does.
    merge: str = ""
    # What its submitter says of it, by name; for whoever looks for it.
    labels: Pairs = ()
    # Runs of a tenant with the same share take their turns as if they were one run. Empty: it is one by itself.
    share: str = ""
    # Runs that have to succeed before it starts; those that have are not listed any more.
    after: tuple[RunId, ...] = ()
    approval: Approval = Approval.NONE
    # How long it lay ended, in all, before it was opened again: no part of how long it took.
    idle_ms: Millis = 0


class Growth(Struct, frozen=True):
    """Tasks added to a living run, or the width of a task that was not known before (`expands`).

    A task that goes on as others waits for the last of them, and takes what it gives (`feeds`). Without tasks that is
    over: those that it went on as are never judged again, and their names are free.
    """

    tenant: str
    run: RunId
    number: int
    specs: tuple[TaskSpec, ...] = ()
    expands: TaskId = TaskId("")
    width: int = 0
    feeds: TaskId = TaskId("")


class GraphRecord(Struct, frozen=True):
    """A graph under its digest."""

    tenant: str
    digest: GraphDigest
    graph: Graph
    put_at: Millis = 0


class Worker(Struct):
    """A registered worker. Silence does not remove it: a worker that is absent for now is still a worker."""

    tenant: str
    id: WorkerId
    incarnation: Incarnation
    capacity: Capacity
    registered_at: Millis = 0
    draining: bool = False
    quarantined_until: Millis = 0
    gone_at: Millis = 0
    # Whose token registered it; only that one speaks for it. Empty: nobody's.
    owner: str = ""
    # Why it rests, while it does.
    quarantine_cause: str = ""


class Pause(Struct, frozen=True):
    """Nobody is given work of this scope: all of the tenant's if it is empty, or what has that one requirement.

    A scope is `name=value`, as in `workspace=docs`. One that was lifted is kept, because what waited meanwhile has
    not been waiting for a worker.
    """

    tenant: str
    scope: str
    paused: bool = True
    at: Millis = 0
    actor: str = ""
    reason: str = ""


class Schedule(Struct):
    """When runs of a graph are made. The cursor moves only by slots, never by manual runs."""

    tenant: str
    id: ScheduleId
    graph: GraphDigest
    spec: ScheduleSpec
    priority: PriorityClass = PriorityClass.NORMAL
    cursor: Millis | None = None
    fired: int = 0
    missed: int = 0
    paused: bool = False
    # What its runs are given, and which version of the workflow they are of.
    params: bytes = b""
    version: int = 0
    # Goes through slots of the past and is then over.
    backfill: bool = False


class Version(Struct, frozen=True):
    """A graph that a workflow was, or is, made of."""

    number: int
    graph: GraphDigest
    at: Millis = 0
    actor: str = ""
    params: tuple[Param, ...] = ()
    # The time zone of the workflow's dates; empty in versions deployed before this was stored.
    zone: str = ""
    # The digest of the code and the graph; empty if the deployment did not say which code the workflow uses.
    content: str = ""


class Workflow(Struct):
    """A deployed graph by its name: the version that new runs are made of, and what may be said of those runs.

    Its schedule, if it has one, is the Schedule of the same name. One that was taken away is remembered, and so is the
    schedule that it had: neither a number nor a slot is ever given twice.
    """

    tenant: str
    name: str
    version: int
    graph: GraphDigest
    # The newest last; as many as are kept.
    versions: tuple[Version, ...] = ()
    paused: bool = False
    source: str = ""
    doc: str = ""
    # The highest number that a version had.
    latest: int = 0
    is_dropped: bool = False
    # The calendar that was taken away, and how far it had been decided.
    spec: ScheduleSpec | None = None
    cursor: Millis | None = None

    @property
    def params(self) -> tuple[Param, ...]:
        """The parameters of its present version."""
        version = self.kept_version(self.version)
        return () if version is None else version.params

    def kept_version(self, number: int) -> Version | None:
        """A version by its number; None if it is not kept any more."""
        return next((each for each in self.versions if each.number == number), None)


class Receipt(Struct, frozen=True, gc=False):
    """What a command was answered, kept so that a retry is answered again and not carried out again."""

    tenant: str
    command_id: CommandId
    digest: int
    answer: str
    at: Millis


class Audit(Struct, frozen=True):
    """Who asked for what, of everything but claims, and runs that programs make by the thousand (builds, queries).

    Kept as long as history, and never in memory.
    """

    tenant: str
    at: Millis
    actor: str
    command: str
    # The rest of the command as JSON, as much as is kept of it.
    about: str
    command_id: CommandId


class Story(Struct, frozen=True):
    """What one commit changed about one run: the durable account that `rota story` reads.

    `created_at` is the run's: an id is free again once its run is in history, and the two must not share a story.
    """

    tenant: str
    run: RunId
    created_at: Millis
    number: int
    at: Millis
    changes: bytes


Record = Run | Task | Growth | GraphRecord | Worker | Queue | Pool | Tenant | Schedule | Workflow | Receipt | Pause
# The first part of their keys.
RECORD_NAMES: dict[type[Struct], str] = {
    Run: "Run",
    Task: "Task",
    Growth: "Growth",
    GraphRecord: "GraphRecord",
    Worker: "Worker",
    Queue: "Queue",
    Pool: "Pool",
    Tenant: "Tenant",
    Schedule: "Schedule",
    Workflow: "Workflow",
    Receipt: "Receipt",
    Pause: "Pause",
}
RECORD_TYPES = tuple(RECORD_NAMES)

Key = tuple[str | int, ...]

_KEY: dict[type, Callable[[Any], Key]] = {
    Run: lambda row: ("Run", row.tenant, row.id),
    Task: lambda row: ("Task", row.tenant, row.run, row.idx),
    Growth: lambda row: ("Growth", row.tenant, row.run, row.number),
    GraphRecord: lambda row: ("GraphRecord", row.tenant, row.digest),
    Worker: lambda row: ("Worker", row.tenant, row.id),
    Queue: lambda row: ("Queue", row.tenant, row.name),
    Pool: lambda row: ("Pool", row.tenant, row.name),
    Tenant: lambda row: ("Tenant", row.tenant),
    Schedule: lambda row: ("Schedule", row.tenant, row.id),
    Workflow: lambda row: ("Workflow", row.tenant, row.name),
    Receipt: lambda row: ("Receipt", row.tenant, row.command_id),
    Pause: lambda row: ("Pause", row.tenant, row.scope),
}


def key_of(record: Record) -> Key:
    """The key of a record: its table, then its tenant, then the rest."""
    return _KEY[type(record)](record)


Row = TypeVar("Row", bound=Struct)


def copy(record: Row) -> Row:
    """A copy of a record, by the struct's own way: `copy.copy` takes twice as long, and this is done for every row."""
    return record.__copy__()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType] - every msgspec struct has it


class Batch(Struct):
    """What one commit writes, all or nothing.

    `puts` are images of the records it touched, `drops` the keys it removes, `archives` the ended runs that move to
    history with their tasks, `stories` what happened to each run, `audits` who asked for it. `revives` are runs, by
    tenant, id and creation, that leave history with all that moved there with them, before anything else is written.
    """

    puts: list[Record]
    drops: list[Key]
    archives: list[RunKey]
    stories: list[Story]
    audits: list[Audit] = []
    revives: list[tuple[str, RunId, Millis]] = []
