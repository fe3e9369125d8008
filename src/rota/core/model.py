"""What users define: graphs of tasks, queues, pools, and what workers say of themselves.

Definitions are immutable; a graph is known by the digest of its content. `rota.core.records` holds what happens to
them. Nothing here decides anything.
"""

from enum import StrEnum

from msgspec import Struct

from rota.core.ids import BlobRef, TaskId
from rota.core.trigger import TriggerRule

Pairs = tuple[tuple[str, str], ...]


# The label of a run that is what somebody had to say about it.
NOTE = "note"


def has_labels(labels: Pairs, wanted: Pairs) -> bool:
    """Whether something has all the labels that are asked for."""
    return all(label in labels for label in wanted)


class PriorityClass(StrEnum):
    """How urgent a run is. Classes are weights, not walls: a low run still moves while urgent ones wait."""

    URGENT = "urgent"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


CLASS_WEIGHT: dict[PriorityClass, int] = {
    PriorityClass.URGENT: 8,
    PriorityClass.HIGH: 4,
    PriorityClass.NORMAL: 2,
    PriorityClass.LOW: 1,
}


class FailureClass(StrEnum):
    """Why an attempt ended badly; each class has its own budget."""

    USER = "user"
    FATAL = "fatal"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    INTERNAL = "internal"
    # A service that the attempt depends on did not answer: tried again like `internal`, and no fault of the worker.
    UNAVAILABLE = "unavailable"
    INPUT_LOST = "input_lost"


class PropertyRule(StrEnum):
    """How a queue compares one property of tasks and workers."""

    MINIMUM = "minimum"
    EXACT = "exact"
    PRIORITY = "priority"
    IGNORE = "ignore"


class Allocation(StrEnum):
    """Which of the equally good workers gets the work."""

    LEAST_RECENTLY_USED = "least_recently_used"
    MOST_RECENTLY_USED = "most_recently_used"
    # The one that made most of what a task reads; else the one that has been idle longest.
    NEAREST_INPUTS = "nearest_inputs"


class Unservable(StrEnum):
    """What becomes of a task that no registered worker could ever run, or that was interrupted too often.

    On the ladder it ends up parked, for a person to decide; where programs wait for it, it should rather fail.
    """

    LADDER = "ladder"
    FAIL = "fail"


class RetryPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """How often and how soon to try again. Each failure class may have a number of its own.

    -1 retries are as many as whoever runs the service has set (`ROTA_MAX_TASK_RETRIES`). Without `internal_retries` the
    queue says how many there are (`max_job_retries`).
    """

    retries: int = 0
    timeout_retries: int | None = None
    memory_retries: int | None = None
    internal_retries: int | None = None
    delay_ms: int = 0
    multiplier: int = 1
    delay_ms_max: int = 3_600_000
    jitter: bool = True


class Approval(StrEnum):
    """Whether a run waits for a person's word, and what that was."""

    NONE = "none"
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"


class PoolNeed(Struct, frozen=True, forbid_unknown_fields=True):
    """What a task takes from a pool while its lease lives."""

    pool: str
    amount: int = 1
    key: str = ""


class Expansion(Struct, frozen=True, forbid_unknown_fields=True):
    """What a mapped task is mapped over. Its tasks are numbered, however many there are.

    `over` is the upstream whose output it is mapped over; empty for lists that are known beforehand. One that
    `is_empty` is mapped over an empty list: a single task stands for it, and is skipped instead of run.
    """

    over: TaskId = TaskId("")
    is_empty: bool = False


class TaskSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node of a graph: `width` tasks that share work, requirements and edges.

    An ordinary task has width 1. A stage or a mapped task has more, and its edges are still counted once for the whole
    group. Width 0 means "not known yet": the tasks appear when the run is told how many.
    """

    id: TaskId
    kind: str = "command"
    work: bytes = b""
    upstream: tuple[TaskId, ...] = ()
    # Which of the upstreams' results travel with an attempt.
    inputs: tuple[TaskId, ...] = ()
    trigger_rule: TriggerRule = TriggerRule.ALL_SUCCESS
    width: int = 1
    is_setup: bool = False
    is_teardown: bool = False
    on_failure_fail_run: bool = False
    queue: str = "default"
    requires: Pairs = ()
    pools: tuple[PoolNeed, ...] = ()
    priority: int = 0
    retry: RetryPolicy = RetryPolicy()
    timeout_ms: int = 0
    # Waits until the same task has succeeded, or was skipped, in the run before this one.
    depends_on_past: bool = False
    # Only of a mapped task.
    expansion: Expansion | None = None


class Graph(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An immutable definition. Zero means no limit."""

    name: str
    tasks: tuple[TaskSpec, ...]
    kind: str = "workflow"
    max_active_runs: int = 0
    max_active_tasks: int = 0
    run_timeout_ms: int = 0
    # Where the code of its tasks is; None if workers have it by other means.
    bundle: BlobRef | None = None
    # Another worker may have a task as soon as its own is silent for its queue's `worker_timeout_ms`; otherwise only
    # when the lease is over. For work that may run twice at once.
    regrant_when_silent: bool = False


class ParamType(StrEnum):
    """What a value of a parameter is, in the words of JSON, and two kinds of text that are read."""

    ANY = "any"
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ARRAY = "array"
    OBJECT = "object"
    DATE = "date"
    DATETIME = "datetime"


class Param(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One parameter of a workflow's runs. Values are MessagePack.

    A run that gives no value gets `default`, or its own logical date if `defaults_to_logical_date`. A parameter with
    neither is required. `least` and `most` bound a number, or the length of a text or an array.
    """

    name: str
    type: ParamType = ParamType.ANY
    default: bytes | None = None
    nullable: bool = False
    choices: tuple[bytes, ...] = ()
    least: float | None = None
    most: float | None = None
    pattern: str = ""
    doc: str = ""
    defaults_to_logical_date: bool = False

    @property
    def is_required(self) -> bool:
        """Whether a run must give a value."""
        return self.default is None and not self.defaults_to_logical_date


class Queue(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named scheduling policy. What builds call a scheduler is one of these (`rota.config.schedulers`)."""

    tenant: str
    name: str
    properties: tuple[tuple[str, PropertyRule], ...] = ()
    allocation: Allocation = Allocation.LEAST_RECENTLY_USED
    # From when a silent worker is given no more work of this queue; 0: it always is.
    worker_timeout_ms: int = 15_000
    unservable: Unservable = Unservable.LADDER
    pull: bool = False
    # How long ended runs with tasks of this queue stay alive, if that is longer than for others.
    retain_completed_for_ms: int = 0
    # How long a build goes on that nobody asks for any more. Its front end sees to that.
    client_action_timeout_ms: int = 60_000
    # How long an attempt may run without a word about it from its worker; then it is tried again. 0: for ever.
    max_action_executing_timeout_ms: int = 0
    # How often a task is tried again that failed through no fault of its own, if it does not say so itself.
    max_job_retries: int = 3
    # How often it is told which tasks nobody takes, and why; -1: never.
    worker_match_logging_interval_ms: int = 60_000
    # How long a task waits that no registered worker could ever run, before it fails where `unservable` says so.
    unservable_ms: int = 60_000


class Pool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit on what runs at once: in all, per key, and per minute. Zero means no limit of that sort."""

    tenant: str
    name: str
    slots: int = 0
    slots_per_key: int = 0
    starts_per_minute: int = 0
    burst: int = 1


class Tenant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose work it is. Under load tenants are served in proportion to their weights."""

    tenant: str
    weight: int = 1


class Mood(StrEnum):
    """What a pull worker is up to: free for a wake, busy with somebody, or about to leave."""

    IDLE = "idle"
    PROMPTING = "prompting"
    STOPPING = "stopping"


class Capacity(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker says of itself.

    `properties` may name a value several times (an instruction set has many names). `tenants` and `queues` empty
    mean all.
    """

    slots: int = 1
    properties: Pairs = ()
    queues: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    pull: bool = False
    # After how long a silence a pull worker counts as dead; 0: after as long as a lease.
    silence_ms: int = 0


DEFAULT_QUEUE_PROPERTIES: tuple[tuple[str, PropertyRule], ...] = (
    ("cpu_count", PropertyRule.MINIMUM),
    ("gpu_count", PropertyRule.MINIMUM),
    ("memory_kb", PropertyRule.MINIMUM),
)

# Where work waits for agents' sessions, and how it is compared with them (`rota.kinds.agent.matching`). The queue is
# there without being defined, like the default one.
AGENTS_QUEUE = "agents"
AGENT_PROPERTIES: tuple[tuple[str, PropertyRule], ...] = (
    ("workspace", PropertyRule.EXACT),
    ("channel", PropertyRule.EXACT),
    ("agent", PropertyRule.EXACT),
    ("session", PropertyRule.EXACT),
    ("capability", PropertyRule.EXACT),
    ("prefers", PropertyRule.PRIORITY),
)

# Where stages of queries wait, and how they are compared with workers. A program waits for a query: what no worker
# could ever run fails instead of waiting for a person. This queue is there without being defined, too.
QUERIES_QUEUE = "queries"
QUERY_PROPERTIES: tuple[tuple[str, PropertyRule], ...] = (
    *DEFAULT_QUEUE_PROPERTIES,
    ("cpu_arch", PropertyRule.EXACT),
    ("datafusion", PropertyRule.EXACT),
    ("python", PropertyRule.EXACT),
)
