"""Runs that wait for others, for a person or for a pause to end, checked from commits."""

from rota.core import changes as ch
from rota.core.ids import Fence, RunKey
from rota.core.model import Approval
from rota.core.pauses import EVERYTHING, scope_of
from rota.core.records import Batch, Pause, Run
from rota.core.states import RUN_TERMINAL, RunState
from rota.sim.broken import Broken
from rota.sim.models import Model

Scope = tuple[str, str]


class ItemRules:
    """P-AFTER, P-APPROVAL, P-PAUSED, P-PART."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._succeeded: dict[RunKey, None] = {}
        self._approved: dict[RunKey, None] = {}
        self._paused: dict[Scope, None] = {}
        self._paused_runs: dict[RunKey, None] = {}
        # Of the present commit.
        self._started: list[RunKey] = []
        self._granted: list[tuple[RunKey, int, Fence]] = []

    def ended(self, run: RunKey, state: RunState) -> None:
        """A run has its result."""
        if state is RunState.SUCCESS:
            self._succeeded[run] = None

    def approved(self, run: RunKey, change: ch.RunApproved) -> None:
        """A person's word."""
        self.model.facts.note("approved" if change.approved else "rejected")
        if change.approved:
            self._approved[run] = None

    def unblocked(self, run: RunKey, change: ch.RunUnblocked) -> None:
        """A run that it waited for has succeeded, it is said."""
        self.model.facts.note("unblocked")
        if change.after not in self.model.rows[run].after:
            raise Broken(f"P-AFTER: {run} is said to have waited for {change.after}")

    def started(self, run: RunKey) -> None:
        """A run began; whether it might is seen when the commit is whole."""
        self._started.append(run)

    def granted(self, run: RunKey, task: int, fence: Fence) -> None:
        """A lease was granted; likewise."""
        self._granted.append((run, task, fence))

    def commit_ends(self, batch: Batch) -> None:
        """What holds before a commit and after it holds for all that is in it."""
        for run in self._started:
            self._check_start(run)
        paused = dict(self._paused)
        for record in batch.puts:
            if isinstance(record, Pause):
                scope = (record.tenant, record.scope)
                if record.paused:
                    self._paused[scope] = None
                else:
                    self._paused.pop(scope, None)
        # Within one commit it may have been lifted and put again, with something granted in between.
        touched = {audit.tenant: None for audit in batch.audits if audit.command in ("PauseScheduler", "PauseRun")}
        still = {scope: None for scope in paused if scope in self._paused and scope[0] not in touched}
        paused_runs = self._now_paused(batch)
        kept = {run: None for run in self._paused_runs if run in paused_runs and run[0] not in touched}
        for run, task, fence in self._granted:
            self._check_pause(run, task, fence, still)
            self._check_parts(run, fence, kept)
        self._paused_runs = paused_runs
        self._started.clear()
        self._granted.clear()

    def _check_start(self, run: RunKey) -> None:
        """P-AFTER: all that a run waits for has succeeded. P-APPROVAL: who needs a word has had it."""
        row = self.model.rows[run]
        missing = [name for name in row.after if (row.tenant, name) not in self._succeeded]
        if missing:
            raise Broken(f"P-AFTER: {run} started before {missing} had succeeded")
        if row.approval is Approval.PENDING and run not in self._approved:
            raise Broken(f"P-APPROVAL: {run} started without a word")

    def _check_pause(self, run: RunKey, task: int, fence: Fence, paused: dict[Scope, None]) -> None:
        """P-PAUSED: nobody is given what is paused."""
        spec = self.model.spec(run, task)
        if spec is None or not paused:
            return
        for scope in (EVERYTHING, *(scope_of(*pair) for pair in spec.requires)):
            if (run[0], scope) in paused:
                raise Broken(f"P-PAUSED: {run}/{task} was granted as {fence} while {scope or 'everything'} was paused")

    def _check_parts(self, run: RunKey, fence: Fence, paused: dict[RunKey, None]) -> None:
        """P-PART: nobody is given what is part of a paused run."""
        above = self.model.rows[run].parent
        for _ in range(20):
            key = (run[0], above)
            if not above or self.model.runs.get(key) in (None, *RUN_TERMINAL) or key in self.model.archived:
                return
            if key in paused:
                raise Broken(f"P-PART: {run} was granted {fence} while {above} was paused")
            above = self.model.rows[key].parent

    def _now_paused(self, batch: Batch) -> dict[RunKey, None]:
        found = dict(self._paused_runs)
        for record in batch.puts:
            if isinstance(record, Run):
                if record.paused and record.state not in RUN_TERMINAL:
                    found[(record.tenant, record.id)] = None
                else:
                    found.pop((record.tenant, record.id), None)
        return found
