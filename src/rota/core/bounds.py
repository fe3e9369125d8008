"""Every limit of the system, by name. A limit that is not here does not exist.

Sizes protect the coordinator's memory, counts protect the length of one turn, times form the ladder of
docs/protocol.md. `check_ladder` is run at start-up.
"""

from msgspec import Struct

from rota.core.errors import Refused

INTEGER_MAX = (1 << 63) - 1
ID_CHARS_MAX = 250
SCHEDULE_ID_CHARS_MAX = 200
TEXT_CHARS_MAX = 1_000
TASKS_PER_GRAPH_MAX = 1_000_000
# Nodes, each of which may stand for many tasks. A definition is encoded in one call, which nothing interrupts.
NODES_PER_GRAPH_MAX = 200_000
EDGES_PER_GRAPH_MAX = 5_000_000
SETUPS_PER_GRAPH_MAX = 100
NAMES_PER_COMMAND_MAX = 10_000
GROWTH_TASKS_MAX = 10_000
# A growth is checked in one turn, since it depends on the run as it is.
GROWTH_EDGES_MAX = 100_000
WORK_BYTES_MAX = 256 * 1024
# All that the tasks are to do as which one goes on: so many reports of it still fit into a message.
GROWN_BYTES_MAX = 192 * 1024
PARAMS_BYTES_MAX = 256 * 1024
RESULT_BYTES_MAX = 64 * 1024
PARAMS_MAX = 200
PATTERN_CHARS_MAX = 200
PATTERN_SUBJECT_CHARS_MAX = 100
NOTE_CHARS_MAX = 1_000
LABELS_MAX = 16
# How many runs one may wait for, and how many may wait for one.
AFTER_MAX = 32
WAITERS_MAX = 1_000
PAUSES_PER_TENANT_MAX = 1_000
LABEL_NAME_CHARS_MAX = 100
LABEL_CHARS_MAX = 500
# Versions of a workflow that are kept. A graph takes about 1 KB of memory for each of its tasks, so a large workflow
# keeps fewer: those before the newest ten only while all together have at most so many tasks, and so many bytes of
# declared parameters, which are written again with each deployment.
VERSIONS_KEPT_MAX = 100
VERSIONS_KEPT_MIN = 10
VERSIONS_TASKS_MAX = 2_000
VERSIONS_PARAMS_BYTES_MAX = 256 * 1024
REMEDY_TASKS_MAX = 100_000
BACKFILL_ACTIVE_RUNS = 4
BACKFILL_ACTIVE_RUNS_MAX = 100
ERROR_CHARS_MAX = 4_096
REQUIREMENTS_MAX = 32
POOLS_PER_TASK_MAX = 8
POOL_SLOTS_MAX = 1_000_000
RETRIES_MAX = 100
# Instead of a number of retries: as many as the service gives, and how many those are unless it says so.
SERVICE_RETRIES = -1
TASK_RETRIES = 3
PRIORITY_MAX = 1_000_000
TENANT_WEIGHT_MAX = 100
AUDIT_CHARS_MAX = 1_000
AUDITS_PER_PAGE_MAX = 1_000
DELAY_MS_MAX = 30 * 24 * 3_600_000
PROPERTY_VALUES_MAX = 256
CAPACITY_NAMES_MAX = 1_000
WORKER_SLOTS_MAX = 100_000
FAN_OUT_MAX = 100_000
LEASE_MS_MAX = 24 * 3_600_000
SILENCE_MS_LEAST = 1_000
BUNDLE_FILES_MAX = 10_000
BUNDLE_PACKED_BYTES_MAX = 50 * 1024 * 1024
BUNDLE_BYTES_MAX = 200 * 1024 * 1024

BEAT_MS_LEAST = 100
MATCH_LOG_MS_LEAST = 1_000
CHANGES_PER_COMMIT_MAX = 10_000
TASKS_PER_SLICE = 1_000
WORK_PER_TURN = 1_000
RECEIPTS_KEPT_MS = 3_600_000
HISTORY_KEPT_MS = 30 * 24 * 3_600_000
HISTORY_PAGE_MAX = 1_000
ROWS_PER_TIDY = 1_000
RECEIPTS_KEPT_MS_LEAST = 300_000
RECEIPTS_MAX = 20_000
REFUSED_REPORTS_TOLD_MAX = 8

INTERRUPTIONS_MAX = 5
# How long a worker rests that has handed something back because it has no room.
NO_ROOM_MS = 10_000
OUTPUT_LOSSES_MAX = 8
OVERDUE_MS = 10 * 60_000
OVERDUE_GRANTS = 20


def self_stop_after(lease_ms: int) -> int:
    """0.8 of a lease: what is left is the time it takes to kill, and the error of a clock."""
    return lease_ms * 8 // 10


class TimeLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ladder of time limits; docs/protocol.md derives each from the one above it."""

    lease_ms: int = 30_000
    beat_ms_max: int = 5_000
    term_ms: int = 5_000
    settle_ms: int = 15_000
    dispatch_ms: int = 10_000
    sweep_ms: int = 15_000
    step_ms: int = 60_000
    orphan_ms: int = 5 * 60_000
    starve_ms: int = 120_000
    forget_worker_ms: int = 24 * 3_600_000
    quarantine_ms: int = 60_000
    stall_ms: int = 1_000
    retain_ended_ms: int = 60_000

    @property
    def beat_ms(self) -> int:
        """How often a worker speaks; the coordinator tells it.

        Not less often with a longer lease: queues stop trusting a worker after fifteen seconds of silence.
        """
        return min(self.lease_ms // 6, self.beat_ms_max)

    @property
    def self_stop_ms(self) -> int:
        """When a worker that could not renew stops its own work, counted from the last frame it knows was heard."""
        return self_stop_after(self.lease_ms)

    @property
    def overrun_ms(self) -> int:
        """How long after an attempt's time limit its worker may still say so before the coordinator ends it."""
        return self.lease_ms


def check_ladder(limits: TimeLimits) -> None:
    """Refuse limits with which an old and a new coordinator could both believe in the same lease."""
    rungs = (
        ("lease_ms", limits.lease_ms >= 600, "a lease must last at least 600 ms"),
        ("term_ms", limits.term_ms >= 100, "a term must last at least 100 ms"),
        (
            "settle_ms",
            limits.term_ms + limits.settle_ms < limits.self_stop_ms,
            "term_ms + settle_ms must stay below 0.8 of lease_ms",
        ),
        (
            "term_ms",
            limits.term_ms + limits.self_stop_ms <= limits.lease_ms,
            "term_ms must not exceed 0.2 of lease_ms, or an old and a new holder could be at work together",
        ),
        ("dispatch_ms", limits.dispatch_ms < limits.lease_ms, "dispatch_ms must be shorter than lease_ms"),
        ("stall_ms", limits.stall_ms < limits.beat_ms, "stall_ms must be shorter than one beat"),
    )
    for name, holds, rule in rungs:
        if not holds:
            raise Refused("field.value", f"the ladder of time limits is broken: {rule}", path=f"limits.{name}")
