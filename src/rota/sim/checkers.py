"""What must be true, checked from the outside: from commits as they become true, and from what nodes are seen to do.

Each checker cites the line of docs/protocol.md it guards. The model is fed by the stories of durable commits, in the
order in which they became true, so it knows nothing of any coordinator's memory. This module reads commits and judges
runs and tasks; leases and limits have modules of their own.
"""

from collections.abc import Callable, Iterable
from typing import Any

from rota.core import changes as ch
from rota.core.ids import Epoch, Millis, RunKey
from rota.core.ladder import is_ours
from rota.core.model import Pool, Queue
from rota.core.records import Batch, Run, Story, Task, Worker
from rota.core.states import (
    ASSIGNED,
    NEEDS_ATTENTION,
    NONE,
    QUEUED,
    RUN_TERMINAL,
    RUNNING,
    SCHEDULED,
    TERMINAL,
    UPSTREAM_FAILED,
    RunState,
    can_transition_run,
)
from rota.core.story import read_story
from rota.core.tags import tag_of
from rota.sim.broken import Broken
from rota.sim.claim_rules import ClaimRules
from rota.sim.faults import Mix
from rota.sim.growth_rules import GrowthRules
from rota.sim.item_rules import ItemRules
from rota.sim.lease_rules import LeaseRules
from rota.sim.limit_rules import LimitRules
from rota.sim.merge_rules import MergeRules
from rota.sim.models import Facts, Model
from rota.sim.schedule_rules import ScheduleRules
from rota.sim.words import check_words
from rota.sim.workflow_rules import WorkflowRules

# States of a task that has decided nothing.
UNDECIDED = (NONE, SCHEDULED, QUEUED, ASSIGNED, RUNNING)
# After how many cycles each tier of the ladder is reached.
TIERS = (2, 4, 6, 10)
# Commands that change neither the waiting work nor which sessions fit it.
QUIET = ("SubmitRun", "PutTenant", "NoteTask", "ClaimTask")
# The cause that is told of a task which a person lets wait no longer.
RETRIED_NOW = "retry now"
# Commands that change what a workflow or a calendar is.
REDEFINES = (
    "DeployWorkflow",
    "PauseWorkflow",
    "DropWorkflow",
    "PutSchedule",
    "DropSchedule",
    "StartBackfill",
    "CancelBackfill",
)


class Ledger(Model):
    """Everything that has become durable, folded into a model of its own."""

    def __init__(self, facts: Facts, mix: Mix) -> None:
        super().__init__(facts, mix)
        self.limits = LimitRules(self)
        self.workflows = WorkflowRules(self)
        self.schedules = ScheduleRules(self)
        self.merges = MergeRules(self)
        self.items = ItemRules(self)
        self.growth = GrowthRules(self)
        self.claims = ClaimRules(self)
        self.leases = LeaseRules(self, self.limits, self.workflows, self.items)
        self.story_numbers: dict[RunKey, int] = {}
        self.lives: dict[RunKey, dict[Millis, None]] = {}
        self.acked: dict[RunKey, None] = {}
        self.ended_runs_at: dict[RunKey, Millis] = {}
        # Tenants of which the present commit stores a queue.
        self.requeued: dict[str, None] = {}
        self.changes = 0
        # How often each kind of change was told.
        self.told: dict[str, int] = {}
        self._started_now: list[RunKey] = []
        self._apply: dict[type, Callable[[RunKey, Any], None]] = {
            ch.RunSubmitted: self._submitted,
            ch.RunStarted: self._started_run,
            ch.RunEnded: self._ended_run,
            ch.RunReopened: self._reopened,
            ch.TasksScheduled: self._scheduled,
            ch.TasksSettled: self._settled,
            ch.TasksReset: self._reset,
            ch.TaskRequeued: self._requeued,
            ch.TaskEnded: self._ended_task,
            ch.LeaseGranted: self.leases.granted,
            ch.AttemptStarted: self.leases.started,
            ch.AttemptEnded: self.leases.ended,
            ch.LeaseReturned: self.leases.returned,
            ch.RevokedLeaseEnded: self.leases.revoked_ended,
            ch.RunPaused: self._paused,
            ch.RunStopping: self._stopping,
            ch.TaskStarved: self._starved,
            ch.TaskMarked: self._marked,
            ch.TaskNoted: self._noted,
            ch.RunMoved: self._moved,
            ch.TaskAmended: self._amended,
            ch.RunGrew: self.growth.grew,
            ch.RunApproved: self.items.approved,
            ch.RunUnblocked: self.items.unblocked,
        }

    # Commits.

    def committed(self, epoch: Epoch, batch: Batch) -> None:
        """P-COMMIT: epochs never go back on disk; a run keeps its graph; each run's story has no gap and no copy."""
        if epoch < self.epoch:
            raise Broken(f"P-COMMIT: epoch {epoch} wrote after {self.epoch}")
        self.epoch = epoch
        self._read_audits(batch)
        self.leases.commit_begins()
        self.workflows.commit_begins(batch)
        for record in batch.puts:
            if isinstance(record, Pool):
                self.limits.pools[(record.tenant, record.name)] = record
            elif isinstance(record, Worker):
                self.limits.capacity[record.id] = record.capacity.slots
        for story in batch.stories:
            self._tell(story)
        for record in batch.puts:
            check_words(record)
            self._compare(record)
        self.leases.commit_ends()
        for run in self._started_now:
            self.limits.check_active_runs(run)
        self._started_now.clear()
        for key in batch.archives:
            if self.runs.get(key) not in RUN_TERMINAL:
                raise Broken(f"P-END: run {key} was archived as {self.runs.get(key)}")
            self._check_retained(key)
        self.workflows.commit_ends(batch)
        self.schedules.commit_ends(batch)
        self.merges.commit_ends(batch, self.facts.now())
        self.items.commit_ends(batch)

    def _check_retained(self, run: RunKey) -> None:
        """P-RETAIN: an ended run stays for as long as its queues say, clocks permitting."""
        if self.mix.skew_ms or self.mix.clock_step or run not in self.ended_runs_at:
            return
        graph = self.graph(run)
        queues = [self.facts.queue(run[0], spec.queue) for spec in (graph.tasks if graph is not None else ())]
        usual_ms = self.mix.limits.retain_ended_ms
        retain_ms = max((queue.retain_completed_for_ms or usual_ms for queue in queues), default=usual_ms)
        stayed_ms = self.facts.now() - self.ended_runs_at[run]
        if stayed_ms < retain_ms:
            raise Broken(f"P-RETAIN: {run} was archived {stayed_ms} of {retain_ms} ms after its end")

    def _read_audits(self, batch: Batch) -> None:
        """Whose workflows and calendars somebody has just changed."""
        self.unsettled.clear()
        self.well.clear()
        self.requeued = {record.tenant: None for record in batch.puts if isinstance(record, Queue)}
        for audit in batch.audits:
            if audit.command not in QUIET:
                self.meddled_at[audit.tenant] = audit.at
        self.redefined = {audit.tenant: None for audit in batch.audits if audit.command in REDEFINES}
        self.dropped = {audit.tenant: None for audit in batch.audits if audit.command == "DropWorkflow"}

    def _tell(self, story: Story) -> None:
        key = (story.tenant, story.run)
        changes = read_story(story)
        first = changes[0]
        lives = self.lives.setdefault(key, {})
        if isinstance(first, ch.RunSubmitted):
            self.story_numbers[key] = 0
            if story.created_at in lives:
                raise Broken(f"P-STORY: two runs {key} were created at {story.created_at}")
            lives[story.created_at] = None
        if story.created_at != next(reversed(lives), 0):
            raise Broken(f"P-STORY: {key} tells of a run created at {story.created_at}, {list(lives)} are known")
        if story.number != self.story_numbers.get(key, 0):
            raise Broken(f"P-STORY: {key} tells part {story.number}, expected {self.story_numbers.get(key, 0)}")
        self.story_numbers[key] = story.number + 1
        for change in changes:
            kind, tag = type(change), tag_of(change)
            self.changes += 1
            self.told[tag] = self.told.get(tag, 0) + 1
            apply = self._apply.get(kind)
            if apply is not None:
                apply(key, change)

    def compare_all(self, records: Iterable[object]) -> None:
        """P-COMMIT: the disk changes by commits and by nothing else."""
        for record in records:
            self._compare(record)

    def _compare(self, record: object) -> None:
        """P-COMMIT: what is stored of a task is what its story says. P-PIN: a run keeps its graph."""
        if isinstance(record, Run):
            key = (record.tenant, record.id)
            if (self.graphs.get(key), self.versions.get(key)) != (record.graph, record.version):
                raise Broken(f"P-PIN: run {key} changed its graph")
            if key in self.archived:
                raise Broken(f"P-REVIVE: run {key} was written although it is in history")
        if isinstance(record, Run) and record.solo is not None:
            record = record.solo
        if isinstance(record, Task):
            model = self.task((record.tenant, record.run), record.idx)
            if (record.state, record.fence) != (model.state, model.fence):
                raise Broken(f"P-STORY: {record.run}/{record.idx} is stored as {record.state}, told as {model.state}")
            if sorted(row.fence for row in record.revoked) != sorted(model.revoked):
                raise Broken(f"P-REGRANT: {record.run}/{record.idx} is stored with other revoked leases than were told")
            if record.note != model.note:
                raise Broken(f"P-STORY: {record.run}/{record.idx} has the note {record.note!r}, told {model.note!r}")
            if record.skips and record.state in UNDECIDED:
                raise Broken(f"P-BRANCH: {record.run}/{record.idx} is {record.state} and has decided already")
            if record.first_started_at != model.first_started_at:
                raise Broken(f"P-POKE: {record.run}/{record.idx} first started at another time than was told")

    # Tasks.

    def _submitted(self, run: RunKey, change: ch.RunSubmitted) -> None:
        """P-SUBMIT: a run is made once."""
        row = change.row
        if self.runs.get(run) not in (None, *RUN_TERMINAL):
            raise Broken(f"P-SUBMIT: run {run} was submitted while it lived")
        if run in self.runs:
            self.facts.note("reused_id")
        for key in [key for key in self.tasks if key[:2] == run]:
            del self.tasks[key]
        self.runs[run] = row.state
        if row.state is RunState.RUNNING:
            self._started_now.append(run)
            self.items.started(run)
        self.names[run] = (row.tenant, row.name)
        self.graphs[run], self.versions[run] = row.graph, row.version
        self.rows[run] = row
        self.archived.pop(run, None)
        self.unsettled[run] = None
        self.held[run] = {}
        self._note_versions(run)
        self.workflows.submitted(run, row)
        self.growth.submitted(run)
        self.schedules.submitted(run, row)

    def _note_versions(self, run: RunKey) -> None:
        graph, name = self.graph(run), self.names[run]
        if (
            graph is not None
            and graph.max_active_runs
            and any(
                self.names[other] == name and self.graphs[other] != self.graphs[run]
                for other, state in self.runs.items()
                if state not in RUN_TERMINAL
            )
        ):
            self.facts.note("two_versions")

    def _run_to(self, run: RunKey, to: RunState) -> None:
        here = self.runs[run]
        if not can_transition_run(here, to):
            raise Broken(f"P-TABLE: run {run} went from {here} to {to}")
        self.runs[run] = to

    def _started_run(self, run: RunKey, change: ch.RunStarted) -> None:
        del change
        self.workflows.check_held(run, "started")
        self._run_to(run, RunState.RUNNING)
        self._started_now.append(run)
        self.items.started(run)

    def _ended_run(self, run: RunKey, change: ch.RunEnded) -> None:
        self._run_to(run, change.state)
        self.ended_runs_at[run] = change.at
        self.items.ended(run, change.state)
        self.growth.ended(run, change)
        self._check_left_out(run)

    def _check_left_out(self, run: RunKey) -> None:
        """P-BRANCH: what a branch decided against is not upstream_failed in the end."""
        for names in self.workflows.forced.get(run, {}).values():
            for name in names:
                if any(self.task(run, idx).state is UPSTREAM_FAILED for idx in self.growth.tasks_named(run, name)):
                    raise Broken(f"P-BRANCH: {run}/{name} is upstream_failed although a branch decided against it")

    def _reopened(self, run: RunKey, change: ch.RunReopened) -> None:
        del change
        self._run_to(run, RunState.QUEUED)
        self.held[run].pop("stopping", None)

    def _paused(self, run: RunKey, change: ch.RunPaused) -> None:
        if change.paused:
            self.held[run]["paused"] = None
        else:
            self.held[run].pop("paused", None)

    def _stopping(self, run: RunKey, change: ch.RunStopping) -> None:
        del change
        self.held[run]["stopping"] = None

    def _scheduled(self, run: RunKey, change: ch.TasksScheduled) -> None:
        for idx in change.tasks:
            self.move(run, idx, SCHEDULED, change.at)
            self.move(run, idx, QUEUED, change.at)
            self.workflows.scheduled(run, idx)
            self.growth.scheduled(run, idx)
            spec = self.spec(run, idx)
            if (
                spec is not None
                and spec.upstream
                and any(self.task(run, up).state is NEEDS_ATTENTION for up in self.tasks_of(run, spec.upstream))
            ):
                self.facts.note(f"{spec.trigger_rule}_past_parked")

    def _settled(self, run: RunKey, change: ch.TasksSettled) -> None:
        for idx in change.tasks:
            self.move(run, idx, change.state, change.at)

    def _reset(self, run: RunKey, change: ch.TasksReset) -> None:
        for idx in change.tasks:
            model = self.move(run, idx, NONE, change.at)
            model.first_started_at = 0
            model.forget_own_note()
            model.cycles = 0
            if change.fresh:
                model.tries = model.interrupted = 0
        self.workflows.reset(run, change.tasks)

    def _moved(self, run: RunKey, change: ch.RunMoved) -> None:
        self.workflows.moved(run, change)
        self.growth.moved(run, change)

    def _amended(self, run: RunKey, change: ch.TaskAmended) -> None:
        self.amended[(*run, change.task)] = None

    def _marked(self, run: RunKey, change: ch.TaskMarked) -> None:
        self.move(run, change.task, change.state, change.at, marked=True)

    def _noted(self, run: RunKey, change: ch.TaskNoted) -> None:
        self.task(run, change.task).note = change.note

    def _requeued(self, run: RunKey, change: ch.TaskRequeued) -> None:
        """P-COOL: nobody comes back before its time."""
        model = self.task(run, change.task)
        if model.state is NEEDS_ATTENTION:
            model.interrupted = model.cycles = 0
        elif change.at < model.due_at and change.cause != RETRIED_NOW:
            raise Broken(f"P-COOL: {run}/{change.task} came back {model.due_at - change.at} ms early")
        self.move(run, change.task, SCHEDULED, change.at)
        self.move(run, change.task, QUEUED, change.at)

    def _ended_task(self, run: RunKey, change: ch.TaskEnded) -> None:
        self.move(run, change.task, change.state, change.at)

    def _starved(self, run: RunKey, change: ch.TaskStarved) -> None:
        """P-LADDER: waiting behind busy workers is not starvation, unless the rule says so of work that is claimed. One
        cycle per sweep; each tier has its threshold.
        """
        spec, model = self.spec(run, change.task), self.task(run, change.task)
        is_servable = spec is not None and self.facts.is_servable(run[0], spec, change.at)
        is_unclaimed = self.claims.is_declined(run, change.at) or self.claims.is_still_queued(model, change.at)
        if is_servable and run[0] not in self.requeued and not is_unclaimed:
            raise Broken(f"P-LADDER: {run}/{change.task} climbed although a registered worker could run it")
        if is_servable:
            self.facts.note("unclaimed")
        if change.cycles != model.cycles + 1:
            raise Broken(f"P-LADDER: {run}/{change.task} is at cycle {change.cycles} after {model.cycles}")
        epoch, at = model.climbed_at
        if epoch == self.epoch and change.at - at < self.mix.limits.sweep_ms:
            raise Broken(f"P-LADDER: {run}/{change.task} climbed twice within {change.at - at} ms")
        if change.tier != sum(change.cycles >= reached for reached in TIERS):
            raise Broken(f"P-LADDER: {run}/{change.task} is at tier {change.tier} after {change.cycles} cycles")
        model.cycles, model.climbed_at = change.cycles, (self.epoch, change.at)
        if change.note and is_ours(model.note):
            model.note = change.note

    # The end.

    def unfinished(self) -> list[RunKey]:
        """Runs that have not ended."""
        return [run for run, state in self.runs.items() if state not in RUN_TERMINAL]

    def check_end(self) -> None:
        """P-END: when every run has ended nothing is held and nothing moves."""
        if self.live:
            raise Broken(f"P-END: leases outlive their runs: {list(self.live)[:3]}")
        for key, model in self.tasks.items():
            if model.state not in TERMINAL and model.state is not NONE:
                raise Broken(f"P-END: {key} is {model.state} in an ended run")
