"""Workflows: versions, pauses, branches, the past, and runs that come back from history."""

from datetime import datetime

import msgspec

from rota.core import changes as ch
from rota.core.ids import Millis, RunKey
from rota.core.records import Batch, Run, Workflow
from rota.core.states import RUN_TERMINAL, SKIPPED, SUCCESS
from rota.sim.broken import Broken
from rota.sim.models import Model, TaskModel

WELL = (SUCCESS, SKIPPED)


class WorkflowRules:
    """P-VERSION, P-HOLD, P-BRANCH, P-PAST and P-REVIVE."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.workflows: dict[tuple[str, str], Workflow] = {}
        # What each number of a version stands for, since the workflow was last deployed for the first time.
        self.versions: dict[tuple[str, str], dict[int, str]] = {}
        self.forced: dict[RunKey, dict[int, tuple[str, ...]]] = {}
        self._paused: dict[tuple[str, str], None] = {}
        self._looked_back: list[tuple[RunKey, str]] = []

    # Commits.

    def commit_begins(self, batch: Batch) -> None:
        """Read what was deployed; the order inside one commit is not known, so what holds counts from the next on."""
        was_paused = {key: None for key, workflow in self.workflows.items() if workflow.paused}
        for record in batch.puts:
            if isinstance(record, Workflow):
                self._put(record)
        self._paused = {
            key: None
            for key in was_paused
            if key in self.workflows and self.workflows[key].paused and key[0] not in self.model.redefined
        }
        for tenant, run, created_at in batch.revives:
            if self.model.archived.pop((tenant, run), None) != created_at:
                raise Broken(f"P-REVIVE: {(tenant, run)} left a history in which it was not")
            self.model.unsettled[(tenant, run)] = None

    def _put(self, workflow: Workflow) -> None:
        """P-VERSION: a number stands for one content for ever, and a content that is kept has one number."""
        key = (workflow.tenant, workflow.name)
        if workflow.is_dropped:
            self.workflows.pop(key, None)
            return
        self.workflows[key] = workflow
        known = self.versions.setdefault(key, {})
        for version in workflow.versions:
            if known.setdefault(version.number, version.graph) != version.graph:
                raise Broken(f"P-VERSION: version {version.number} of {key} was given another content")
        numbers = {version.graph: version.number for version in workflow.versions}
        if len(numbers) != len(workflow.versions) or numbers.get(workflow.graph) != workflow.version:
            raise Broken(f"P-VERSION: {key} is at version {workflow.version}, of {workflow.versions}")

    def commit_ends(self, batch: Batch) -> None:
        """What can only be judged once all of a commit is known."""
        for run, name in self._looked_back:
            self._check_past(run, name)
        self._looked_back.clear()
        for tenant, run, created_at in batch.revives:
            if self.model.facts.times_in_history(tenant, run, created_at):
                raise Broken(f"P-REVIVE: {(tenant, run)} lives, and is in history too")
        for key in batch.archives:
            created_at = self.model.rows[key].created_at
            self.model.archived[key] = created_at
            if self.model.facts.times_in_history(*key, created_at) != 1:
                raise Broken(f"P-REVIVE: {key} is not in history once")
            self._check_kept(key)

    # Versions.

    def submitted(self, run: RunKey, row: Run) -> None:
        """P-VERSION: a run is of the version that it says, with parameters that were checked and completed."""
        self.forced.pop(run, None)
        if not row.version:
            return
        self._check_version(run, row.graph, row.version)
        params = msgspec.msgpack.decode(row.params)
        size, about = params.get("size"), datetime.fromisoformat(params.get("at", "1970-01-01T00:00:00+00:00"))
        if not isinstance(size, int):
            raise Broken(f"P-VERSION: {run} was accepted with size {size!r}")
        if round(about.timestamp() * 1_000) != (row.slot_at or row.created_at):
            raise Broken(f"P-VERSION: {run} of slot {row.slot_at} has the logical date {about}")

    def _check_version(self, run: RunKey, graph: str, version: int) -> None:
        found = self.versions.get(self.model.names[run], {}).get(version)
        if found != graph and run[0] not in self.model.redefined:
            raise Broken(f"P-VERSION: {run} is of version {version}, whose content is another")

    def moved(self, run: RunKey, change: ch.RunMoved) -> None:
        """P-PIN: a run gets another graph by being moved; what it has in common with the old one is kept."""
        model = self.model
        self._check_version(run, change.graph, change.version)
        old: dict[int, TaskModel] = {key[2]: task for key, task in model.tasks.items() if key[:2] == run}
        for idx in old:
            del model.tasks[(*run, idx)]
        for idx, new in change.tasks:
            model.tasks[(*run, new)] = old[idx]
        model.graphs[run], model.versions[run] = change.graph, change.version
        forced = self.forced.pop(run, {})
        self.forced[run] = {new: forced[idx] for idx, new in change.tasks if idx in forced}
        model.unsettled[run] = None
        model.facts.note("moved")

    # Pauses.

    def check_held(self, run: RunKey, what: str) -> None:
        """P-HOLD: no run of a paused workflow starts, and none of its tasks is granted."""
        if self._paused and self.model.versions[run] and self.model.names[run] in self._paused:
            raise Broken(f"P-HOLD: {run} {what} while its workflow was paused")

    # Branches.

    def branched(self, run: RunKey, change: ch.AttemptEnded) -> None:
        """A branch decided; what it decided holds until it is asked again."""
        if change.skips:
            self.forced.setdefault(run, {})[change.task] = change.skips
            self.model.facts.note("branched")

    def reset(self, run: RunKey, tasks: tuple[int, ...]) -> None:
        """Branches that are asked again have decided nothing."""
        forced = self.forced.get(run)
        if forced:
            for idx in tasks:
                forced.pop(idx, None)

    def scheduled(self, run: RunKey, idx: int) -> None:
        """P-BRANCH: what a branch decided against does not run. P-PAST: see `_check_past`."""
        spec = self.model.spec(run, idx)
        if spec is None:
            return
        if any(spec.id in skips for skips in self.forced.get(run, {}).values()):
            raise Broken(f"P-BRANCH: {run}/{spec.id} was scheduled although a branch decided against it")
        if spec.depends_on_past:
            self._looked_back.append((run, spec.id))

    # The past.

    def _place(self, run: RunKey) -> tuple[Millis, Millis, str]:
        row = self.model.rows[run]
        return row.slot_at or row.created_at, row.created_at, run[1]

    def _lineage(self, run: RunKey) -> list[RunKey]:
        """The runs of the same name that live, or did so before this commit, in the order of what they are about."""
        model, name = self.model, self.model.names[run]
        line = (name, model.rows[run].schedule)
        alike = [
            other
            for other, named in model.names.items()
            if (named, model.rows[other].schedule) == line and other not in model.archived
        ]
        return sorted((other for other in alike if model.has_past(other)), key=self._place)

    def _check_past(self, run: RunKey, name: str) -> None:
        """P-PAST: a task that depends on the past is not scheduled before it went well in the run before."""
        lineage = self._lineage(run)
        place = lineage.index(run) if run in lineage else 0
        earlier = lineage[:place]
        settled = [other for other in earlier if other not in self.model.unsettled]
        for before in (earlier[-1:], settled[-1:]):
            if all(self._went_well(other, name) for other in before):
                self.model.facts.note("past_looked_at")
                return
        raise Broken(f"P-PAST: {run}/{name} was scheduled before {earlier[-1]} had done its part")

    def _went_well(self, run: RunKey, name: str) -> bool:
        tasks = [(*run, idx) for idx in self.model.tasks_of(run, (name,))]
        return all(key in self.model.well or self.model.task(run, key[2]).state in WELL for key in tasks)

    def _check_kept(self, run: RunKey) -> None:
        """P-PAST: how a run went is not forgotten while the one after it has not ended."""
        if not self.model.has_past(run) or run in self.model.unsettled:
            return
        del self.model.archived[run]
        lineage = self._lineage(run)
        self.model.archived[run] = self.model.rows[run].created_at
        after = lineage[lineage.index(run) + 1 :][:1]
        if after and self.model.runs[after[0]] not in RUN_TERMINAL and after[0] not in self.model.unsettled:
            raise Broken(f"P-PAST: {run} went to history while {after[0]} depends on it")
