"""What runs are to each other: part of another, waiting for another, next to another in time.

Part of the coordinator's memory (`State`), which only `evolve` changes.
"""

from abc import abstractmethod

from rota.core.bounds import TimeLimits
from rota.core.ids import Millis, RunId, RunKey
from rota.core.live import LiveRun
from rota.core.records import Run
from rota.core.states import RUN_TERMINAL

# How many runs one may be part of, one inside the other.
PARENTS_MAX = 8


class Relations:
    """The runs of a state, and their relations."""

    runs: dict[RunKey, LiveRun]
    # Of graphs whose runs depend on the past, the run that is about the latest moment.
    lineages: dict[tuple[str, str], LiveRun]
    # The runs that name another as their parent, by that one, whether or not it lives.
    parts: dict[RunKey, dict[RunKey, LiveRun]]
    limits: TimeLimits

    @abstractmethod
    def set_timer(self, at: Millis, kind: str, *key: object) -> None:
        """Look at something again."""

    def paused_above(self, row: Run) -> LiveRun | None:
        """The nearest paused run that a run is part of."""
        above = self.runs.get((row.tenant, row.parent)) if row.parent else None
        for _ in range(PARENTS_MAX):
            if above is None or (above.row.paused and above.row.state not in RUN_TERMINAL):
                return above
            above = self.runs.get((row.tenant, above.row.parent)) if above.row.parent else None
        return None

    def join_lineage(self, run: LiveRun) -> None:
        """Give a run its neighbours in time, if its graph's runs depend on the past."""
        if not run.graph.past:
            return
        name = run.line
        after, before = None, self.lineages.get(name)
        while before is not None and lineage_order(before) > lineage_order(run):
            after, before = before, before.before
        run.before, run.after = before, after
        if before is not None:
            before.after = run
        if after is not None:
            after.before = run
            self._look_back_again(after)
        else:
            self.lineages[name] = run

    def leave_lineage(self, run: LiveRun) -> None:
        """Take a run from between its neighbours."""
        name = run.line
        if run.before is not None:
            run.before.after = run.after
        if run.after is not None:
            run.after.before = run.before
            self._look_back_again(run.after)
        elif self.lineages.get(name) is run:
            if run.before is None:
                del self.lineages[name]
            else:
                self.lineages[name] = run.before
        run.before = run.after = None

    def _look_back_again(self, run: LiveRun) -> None:
        """A run has another one before it: what waits for the past is judged by that, and that one may be let go."""
        if run.row.state not in RUN_TERMINAL:
            self.set_timer(0, "past", *run.key)
        elif run.before is not None and run.before.row.state in RUN_TERMINAL:
            self.set_timer(run.before.row.ended_at + self.limits.retain_ended_ms, "archive", *run.before.key)

    def relate(self, run: LiveRun) -> None:
        """Have a run found by the one that it is part of, and by those that it waits for."""
        row = run.row
        if row.parent:
            self.parts.setdefault((row.tenant, row.parent), {})[run.key] = run
        for name in row.after:
            self.runs[(row.tenant, name)].await_end(run)

    def depth_above(self, row: Run) -> int | None:
        """How many runs a run is part of, one inside the other; None if it would be part of itself.

        A parent need not live, so it may come later than what is part of it.
        """
        name, depth = row.parent, 0
        while name and depth <= PARENTS_MAX:
            if name == row.id:
                return None
            depth += 1
            above = self.runs.get((row.tenant, name))
            name = above.row.parent if above is not None else ""
        return depth

    def depth_below(self, key: RunKey) -> int:
        """How many levels of runs are part of this one; it is not counted further than there may be."""
        level, depth = [key], 0
        while depth <= PARENTS_MAX:
            level = [part for one in level for part in self.parts.get(one, {})]
            if not level:
                break
            depth += 1
        return depth

    def leave_parent(self, run: LiveRun) -> None:
        """A run moved to history, and is part of nothing any more."""
        key = (run.row.tenant, run.row.parent)
        parts = self.parts.get(key, {})
        parts.pop(run.key, None)
        if not parts:
            self.parts.pop(key, None)

    def unrelate(self, run: LiveRun) -> None:
        """A run waits for nobody any more: it started, or has ended. Who was kept for it may go to history."""
        for name in run.row.after:
            self.stop_waiting(run, name)

    def stop_waiting(self, run: LiveRun, name: RunId) -> None:
        """A run does not wait for that one any more."""
        awaited = self.runs[(run.row.tenant, name)]
        del awaited.waiters[run.key]
        if not awaited.waiters and awaited.row.state in RUN_TERMINAL:
            self.set_timer(awaited.row.ended_at + self.limits.retain_ended_ms, "archive", *awaited.key)


def lineage_order(run: LiveRun) -> tuple[Millis, Millis, str]:
    """The order in which runs of a graph follow each other: what they are about, then when they were made."""
    return run.logical_at, run.row.created_at, run.row.id
