"""docs/parity.md names modules that exist, variables as they are, each state once, and every symbol of its sources."""

import re
from pathlib import Path

import pytest
from msgspec import structs

from rota.config import SETTINGS
from rota.config.schedulers import Simple
from rota.control.recorder import Recorder
from rota.control.telemetry import METRICS
from rota.core.states import PHASES, TaskState
from rota.kinds import agent
from rota.kinds.agent.snapshots import SUMMED

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "parity.md").read_text(encoding="utf-8")


# Every name that a source document has: types, functions, methods, members, variables, keys and values.
NAMES = {
    "The scheduler page": """
krishiv-scheduler Pending Assigned Running Completed Failed Cancelled
KRISHIV_COORDINATOR KRISHIV_COORDINATOR_BEARER_TOKEN KRISHIV_COORDINATOR_BEARER_TOKENS
KRISHIV_COORDINATOR_BEARER_TOKEN_FILE KRISHIV_COORDINATOR_AUTH_RELOAD_INTERVAL_SECS KRISHIV_EXECUTOR_TASK_BEARER_TOKEN
KRISHIV_MAX_TASK_RETRIES KRISHIV_HEARTBEAT_TIMEOUT_SECS
""",
    "The architecture page": """
Session.sql() session.dataframe() SqlEngine krishiv-plan LogicalPlan PhysicalPlan ExecutionRuntime.accept_plan()
Coordinator.submit_job() ExecutorTaskRunner Session SessionContext InMemoryCatalog KrishivCatalog
KRISHIV_COORDINATOR_BEARER_TOKEN KRISHIV_COORDINATOR_BEARER_TOKENS KRISHIV_COORDINATOR_BEARER_TOKEN_FILE
KRISHIV_COORDINATOR_AUTH_RELOAD_INTERVAL_SECS KRISHIV_EXECUTOR_TASK_BEARER_TOKEN
""",
    "The scheduler package": """
LockID CanTransition CanTransitionDagRun FinalizeRun IsAgentLost IsDispatchLost IsOrphaned
AgentLostCandidate TaskInstanceID DagRunID DagID TaskID LastHeartbeat
DispatchLostReapStore ListStaleQueuedCandidates MarkTaskDispatchLost Dispatcher Dispatch
HeartbeatReapStore ListAgentLostCandidates MarkTaskAgentLost InlineRunner Start
Leader NewLeader HoldsLock Release TryAcquire PlannedTransition To PlanRun ReapCandidate RunID LastActivity
ReapStore ListReapCandidates ReapRun Recorder
RecordSchedulerDecision RecordTaskTransition RecordUndispatchable RecordSchedulerStepDown ObserveSchedulerReacquire
RunState TenantID State Tasks States Tries MaxTries EndedAt RetryDelaySeconds Now
ScheduledDAG Schedule LastLogical StartDate Catchup MaxActiveRuns
Scheduler NewScheduler ClearSteppingDown Heartbeat MarkSteppingDown RecordReacquireSince Run SetAgentLostThreshold
SetDispatchLostThreshold SetDispatcher SetInlineRunner SetLeading SetOrphanThreshold SetRecorder SetStepTimeout Step
SteppingDown StaleQueuedCandidate QueuedAt
Store ActiveRuns MaterializeTasks ApplyTransition ResetForRetry SetRunState ScheduledDAGs CreateScheduledRun SetTaskNote
TriggerDecision DecisionWait DecisionSchedule DecisionSkip DecisionUpstreamFailed EvaluateTriggerRule
""",
    "The schedulers page": """
name <type> simple supported_platform_properties retain_completed_for_s client_action_timeout_s worker_timeout_s
max_action_executing_timeout_s max_job_retries allocation_strategy worker_match_logging_interval_s experimental_backend
minimum exact priority ignore
""",
    "The mechanical scheduler": """
BatchWaker WakeMany CycleResult PendingRuns ActiveRuns SessionsScanned RecoveredLeases WakeAttempts WakeSucceeded
WakeFailed NoMatchRuns RecentlyNotified UnclaimableRuns Paused StarvedRuns SpawnRequested NeedsAttention SelectedRunIDs
NoMatchRunIDs RecoveredRunIDs StarvedRunIDs SpawnRequestedRunIDs NeedsAttentionRunIDs
EscalationActor EmitRunStarved RequestWorkerSpawn MarkRunNeedsAttention Option
WithActor WithClock WithEscalationActor WithInterval WithLogger WithPauseStore WithStarvationAge WithStarvationStore
WithStarvationThresholds WithSweepLimit WithSweepReason WithWakeCooldown WithWakeReason
PauseStore GetSchedulerPause RebuildResult ClearedWakeKeys RebuiltAt RunSnapshot
Scheduler New Rebuild RunOnce Shutdown Start Stats Cycles Rebuilds RecoveryErrors LastCycleAt LastRebuildAt
LastRecoveryError LastWakeError
SessionSnapshot ID AgentName WorkspaceID Channel Type State Prompting Capabilities CreatedAt SessionSource Sessions
StarvationStore LoadRunStarvation ListRunStarvation UpsertRunStarvation ClearRunStarvation
StarvationThresholds FanOutAfter SpawnAfter EventAfter NeedsAttentionAfter MinQueuedAge DefaultStarvationThresholds
TaskSource GetRunStatus RecoverExpiredRunLeases WakeTarget Work Session Reason Waker Wake
ErrStopped ErrSpawnUnresolvable
""",
}

# What the two pages say in sentences, by a few words of the row that is about it.
SENTENCES = {
    "The scheduler page": (
        "in-process in single-node mode",
        "a separate daemon",
        "owner of job state within an epoch",
        "accepts job submissions from sessions",
        "fragments jobs into tasks",
        "assigns them to executors",
        "tracks liveness, reassigns on failure",
        "issues epoch fences",
        "metadata in memory (dev) or etcd",
        "Flight/gRPC task-control connections",
        "each epoch has a monotone fence token",
        "executors include it in completion reports",
        "stale completions are rejected",
    ),
    "The architecture page": (
        "no separate engines for batch and streaming",
        "one active job coordinator per job",
        "shuffle, state, checkpoint, metadata, connectors behind APIs",
        "typed ids, fragments, errors and capability flags",
        "Scheduler → tasks",
        "dataflow operators",
        "checkpoints, connectors",
        "backed by a `SessionContext`",
        "the coordinator is the single owner of job state",
        "executors receive assignments",
        "retries may replay",
        "executors are stateless",
        "bearer tokens on coordinator and task-control gRPC",
    ),
}

# Rows in which something of theirs is not at one place here.
NOWHERE = ("the examples", "tenants")


def part_of(title: str) -> str:
    """A source's part of the page."""
    return TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_every_module_that_is_named_exists() -> None:
    named = set(re.findall(r"`(rota/[\w/]+(?:\.py)?)/?`", TEXT))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / "src" / name).exists()] == []


def test_the_variables_are_settings_with_these_defaults() -> None:
    known = {setting.env: setting for setting in SETTINGS}
    rows = [cells(line) for line in TEXT.splitlines() if line.startswith("| `ROTA_")]
    assert len(rows) == 8
    for name, default, path, meaning in rows:
        setting = known[name.strip("`")]
        assert (setting.path, meaning != "") == (path.strip("`"), True)
        assert ("–" if setting.default in ("", None) else str(setting.default)) == default


def test_the_lifecycle_has_each_state_in_its_phase() -> None:
    rows = [cells(line) for line in TEXT.splitlines() if re.match(r"\| [A-Z][a-z]+ \| `", line)]
    told = {
        TaskState(state): phase.strip("`") for _, phase, states, _ in rows for state in re.findall(r"`(\w+)`", states)
    }
    assert told == {state: phase.value for state, phase in PHASES.items()}


def rows_of(title: str) -> list[list[str]]:
    """The rows of a source's tables, without their heads."""
    lines = [cells(line) for line in part_of(title).splitlines() if line.startswith("| ")]
    return [row for row in lines if row[0] not in ("there", "variable")]


def names_in(text: str) -> set[str]:
    """What is set in code, with and without what it belongs to and what it is given."""
    found = {name.replace("ROTA_", "KRISHIV_") for name in re.findall(r"`([^`]+)`", text)}
    bare = {re.sub(r"\(.*\)$", "", name) for name in found}
    return found | bare | {name.rpartition(".")[2] for name in bare}


@pytest.mark.parametrize("title", NAMES)
def test_every_name_of_a_document_is_in_the_first_column_of_a_row(title: str) -> None:
    there = [row[0] for row in rows_of(title)]
    known = {name for cell in there for name in names_in(cell)} | set(there)
    if title == "The schedulers page":
        known |= names_in("\n".join(re.findall(r"^### .*$", part_of(title), re.MULTILINE)))
    if title == "The mechanical scheduler":
        known |= {"Option"} & names_in(part_of(title))
    assert [name for name in NAMES[title].split() if name not in known] == []
    assert [words for words in SENTENCES.get(title, ()) if not any(words in cell for cell in there)] == []


def test_there_is_a_list_of_names_for_every_document() -> None:
    assert re.findall(r"^## (.+)$", TEXT, re.MULTILINE) == list(NAMES)


@pytest.mark.parametrize("title", NAMES)
def test_every_row_says_where_it_is_here_and_promises_nothing(title: str) -> None:
    empty = [row[0] for row in rows_of(title) if row[0] not in NOWHERE and "`" not in row[1] and "`" not in row[2]]
    assert empty == []
    assert re.findall(r"to come|so far|\byet\b|in a later version", part_of(title)) == []  # wording


def test_every_key_of_the_schedulers_page_is_accounted_for_with_the_test_that_holds_it() -> None:
    part = part_of("The schedulers page")
    assert {"least_recently_used", "most_recently_used"} <= names_in(part)
    rows = [cells(line) for line in part.splitlines() if line.startswith("| ") and not line.startswith("| there")]
    usual = "tests/unit/config/test_schedulers.py"
    for row in rows:
        path = re.search(r"`(tests/[\w/]+\.py)`", row[-1])
        code = (ROOT / (path[1] if path else usual)).read_text(encoding="utf-8")
        names = re.findall(r"`(test_\w+)`", row[-1])
        assert names, row[0]
        assert [name for name in names if f"def {name}(" not in code] == []


def test_the_options_are_those_that_there_are() -> None:
    here = set(re.findall(r"`(with_\w+)`", part_of("The mechanical scheduler")))
    assert here == {name for name in agent.__all__ if name.startswith("with_")}


def test_a_recorder_has_the_five_methods_and_they_are_named() -> None:
    named = [
        name for name in NAMES["The scheduler package"].split() if name.startswith(("RecordS", "RecordT", "RecordU"))
    ]
    methods = {name for name in vars(Recorder) if name.startswith(("record_", "observe_"))}
    assert {snake(name) for name in (*named, "ObserveSchedulerReacquire")} == methods
    assert methods <= names_in(part_of("The scheduler package"))


def test_the_members_of_the_mechanical_scheduler_are_those_of_its_structs() -> None:
    rows = [cells(line) for line in part_of("The mechanical scheduler").splitlines() if line.startswith("| `")]
    told = {row[0].partition("`:")[0].strip("`"): re.findall(r"`(\w+)`", row[0].partition(":")[2]) for row in rows}
    for name, count in (("SessionSnapshot", 9), ("WakeTarget", 3), ("CycleResult", 20), ("RebuildResult", 5)):
        members = [field.name for field in structs.fields(getattr(agent, name))]
        assert ([snake(member) for member in told[name]], len(members)) == (members, count)
    ladder = [field.name for field in structs.fields(agent.StarvationThresholds)]
    assert [snake(member) for member in told["StarvationThresholds"]] == [name.removesuffix("_ms") for name in ladder]
    sums = [field.name for field in structs.fields(agent.Stats)]
    assert (len(sums), set(sums)) == (17, {*SUMMED, *(snake(member) for member in told["Stats"])})
    for name in ("TaskSource", "SessionSource", "Waker", "BatchWaker", "PauseStore", "StarvationStore"):
        assert all(hasattr(getattr(agent, name), snake(method)) for method in told[name])


def snake(name: str) -> str:
    """A name of theirs as it is written here."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.replace("IDs", "Ids").replace("ID", "Id")).lower()


def test_the_defaults_of_the_schedulers_page_are_those_of_a_scheduler() -> None:
    part = TEXT.partition("### `simple`\n")[2].partition("###")[0]
    told = {row[0].strip("`"): row[1].strip("`") for row in map(cells, part.splitlines()) if len(row) == 6}
    known = {field.name: field.default for field in structs.fields(Simple) if field.name in told}
    assert {name: str(default) for name, default in known.items() if told[name] != "–"} == {
        name: default for name, default in told.items() if default not in ("–", "default", "---")
    }


def test_what_is_named_beside_a_module_is_in_it() -> None:
    named = re.findall(r"`(rota/[\w/]+\.py)`((?:, `[\w.]+`)+)", TEXT)
    assert len(named) > 40
    for path, names in named:
        code = (ROOT / "src" / path).read_text(encoding="utf-8")
        for name in re.findall(r"[\w.]+", names):
            assert re.search(rf"\b{name.rpartition('.')[2]}\b", code), f"{path} has no {name}"


def test_metrics_and_settings_that_are_named_exist() -> None:
    metrics = {metric.name for metric in METRICS}
    assert set(re.findall(r"`(rota_\w+)`", TEXT)) <= metrics
    assert set(re.findall(r"`(server\.\w+)`", TEXT)) <= {setting.path for setting in SETTINGS}
