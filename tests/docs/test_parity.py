"""docs/parity.md names modules that exist, variables as they are, each state once, and every symbol of its sources."""

import re
from pathlib import Path

from msgspec import structs

from rota.config import SETTINGS
from rota.config.schedulers import Simple
from rota.control.telemetry import METRICS
from rota.core.states import PHASES, TaskState
from rota.kinds import agent
from rota.kinds.agent.snapshots import SUMMED

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "parity.md").read_text(encoding="utf-8")


# Everything that the scheduler package documents, with the methods of its interfaces.
PACKAGE = """
LockID CanTransition CanTransitionDagRun FinalizeRun IsAgentLost IsDispatchLost IsOrphaned AgentLostCandidate
DispatchLostReapStore ListStaleQueuedCandidates MarkTaskDispatchLost Dispatcher.Dispatch
HeartbeatReapStore ListAgentLostCandidates MarkTaskAgentLost InlineRunner.Start
Leader NewLeader HoldsLock Release TryAcquire
PlannedTransition PlanRun ReapCandidate ReapStore ListReapCandidates ReapRun
RecordSchedulerDecision RecordTaskTransition RecordUndispatchable RecordSchedulerStepDown ObserveSchedulerReacquire
RunState RunID DagID TenantID State Tasks States Tries MaxTries EndedAt RetryDelaySeconds Now
ScheduledDAG Schedule LastLogical StartDate Catchup MaxActiveRuns
Scheduler NewScheduler ClearSteppingDown Heartbeat MarkSteppingDown RecordReacquireSince Run SetAgentLostThreshold
SetDispatchLostThreshold SetDispatcher SetInlineRunner SetLeading SetOrphanThreshold SetRecorder SetStepTimeout Step
SteppingDown StaleQueuedCandidate
Store ActiveRuns MaterializeTasks ApplyTransition ResetForRetry SetRunState ScheduledDAGs CreateScheduledRun SetTaskNote
TriggerDecision DecisionWait DecisionSchedule DecisionSkip DecisionUpstreamFailed EvaluateTriggerRule
"""


# Every key and word of the schedulers page.
SCHEDULERS = """
name <type> supported_platform_properties retain_completed_for_s client_action_timeout_s worker_timeout_s
max_action_executing_timeout_s max_job_retries allocation_strategy least_recently_used most_recently_used
worker_match_logging_interval_s experimental_backend minimum exact priority ignore
"""


# Everything that the mechanical scheduler documents.
MECHANICAL = """
BatchWaker WakeMany CycleResult EscalationActor EmitRunStarved RequestWorkerSpawn MarkRunNeedsAttention Option
WithActor WithClock WithEscalationActor WithInterval WithLogger WithPauseStore WithStarvationAge WithStarvationStore
WithStarvationThresholds WithSweepLimit WithSweepReason WithWakeCooldown WithWakeReason
PauseStore GetSchedulerPause RebuildResult RunSnapshot Scheduler New Rebuild RunOnce Shutdown Start Stats
SessionSnapshot SessionSource Sessions StarvationStore LoadRunStarvation ListRunStarvation UpsertRunStarvation
ClearRunStarvation StarvationThresholds DefaultStarvationThresholds TaskSource PendingRuns ActiveRuns GetRunStatus
RecoverExpiredRunLeases WakeTarget Waker Wake ErrStopped ErrSpawnUnresolvable
"""


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


def test_every_symbol_of_the_scheduler_package_is_accounted_for() -> None:
    part = part_of("The scheduler package")
    assert [name for name in PACKAGE.split() if not re.search(rf"`(\w+\.)?{re.escape(name)}(\(\w*\))?`", part)] == []


def test_every_key_of_the_schedulers_page_is_accounted_for_with_the_test_that_holds_it() -> None:
    part = part_of("The schedulers page")
    assert [name for name in SCHEDULERS.split() if f"`{name}`" not in part] == []
    rows = [cells(line) for line in part.splitlines() if line.startswith("| ") and not line.startswith("| there")]
    usual = "tests/unit/config/test_schedulers.py"
    for row in rows:
        path = re.search(r"`(tests/[\w/]+\.py)`", row[-1])
        code = (ROOT / (path[1] if path else usual)).read_text(encoding="utf-8")
        names = re.findall(r"`(test_\w+)`", row[-1])
        assert names, row[0]
        assert [name for name in names if f"def {name}(" not in code] == []


def test_every_symbol_of_the_mechanical_scheduler_is_accounted_for() -> None:
    part = part_of("The mechanical scheduler")
    assert [name for name in MECHANICAL.split() if not re.search(rf"`{name}(\(\))?`", part)] == []
    here = set(re.findall(r"`(with_\w+)`", part))
    assert here == {name for name in agent.__all__ if name.startswith("with_")}


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
