"""Growth: a task that goes on as others waits for them, and what was let go does nothing any more.

A mapped task never keeps its run from ending, whatever becomes of the list.
"""

from rota.core import changes as ch
from rota.core.ids import RunKey
from rota.core.plan import DEADLOCK
from rota.core.records import Growth
from rota.core.states import SKIPPED, SUCCESS, TERMINAL
from rota.sim.broken import Broken
from rota.sim.models import Model


class GrowthRules:
    """P-GROW and P-MAPPED."""

    def __init__(self, model: Model) -> None:
        self.model = model
        # How many tasks a run has had; new ones are numbered from there.
        self._total: dict[RunKey, int] = {}
        # Of each task that went on as others all of those, and how many of them are its input.
        self._fed: dict[RunKey, dict[int, tuple[range, int]]] = {}
        self._gone: dict[RunKey, dict[int, None]] = {}
        # The tasks of those whose number was told in the course of the run, as it was told last.
        self._expanded: dict[RunKey, dict[str, range]] = {}

    def submitted(self, run: RunKey) -> None:
        """A new run has the tasks of its graph."""
        graph = self.model.graph(run)
        self._total[run] = sum(spec.width for spec in graph.tasks) if graph is not None else 0
        self._fed[run], self._gone[run], self._expanded[run] = {}, {}, {}

    def moved(self, run: RunKey, change: ch.RunMoved) -> None:
        """It has those of another graph."""
        self.submitted(run)
        for growth in change.growths:
            self._add(run, growth)

    def grew(self, run: RunKey, change: ch.RunGrew) -> None:
        """Tasks were added, or let go."""
        growth, before = change.growth, self._total[run]
        self._add(run, growth)
        if not growth.feeds:
            return
        (fed,) = self.model.tasks_of(run, (growth.feeds,))
        if growth.specs:
            self._fed[run][fed] = (range(before, self._total[run]), growth.specs[-1].width)
            self.model.facts.note("went_on")
        else:
            self._gone[run] |= dict.fromkeys(self._fed[run].pop(fed)[0])
            self.model.facts.note("planned_anew")

    def _add(self, run: RunKey, growth: Growth) -> None:
        before = self._total[run]
        self._total[run] += (growth.width or 1) if growth.expands else sum(spec.width for spec in growth.specs)
        if growth.expands:
            self._expanded[run][growth.expands] = range(before, self._total[run])

    def tasks_named(self, run: RunKey, name: str) -> list[int]:
        """The numbers of the tasks of this name, those that were told later included."""
        return list(self._expanded[run].get(name, self.model.tasks_of(run, (name,))))

    def ended(self, run: RunKey, change: ch.RunEnded) -> None:
        """P-MAPPED: a run does not come to a standstill because a list to map over was never made."""
        graph = self.model.graph(run)
        unknown = [spec for spec in graph.tasks if not spec.width] if graph is not None else []
        if not unknown or any(spec.expansion is None for spec in unknown):
            return
        if change.reason.startswith(DEADLOCK):
            raise Broken(f"P-MAPPED: {run} came to a standstill: {change.reason}")
        self.model.facts.note("mapped_run_ended")

    def scheduled(self, run: RunKey, idx: int) -> None:
        """P-GROW: what was let go does not run, and whoever went on as others runs again once the last are well."""
        if idx in self._gone[run]:
            raise Broken(f"P-GROW: {run}/{idx} was scheduled although it was let go")
        self._check_source(run, idx)
        if idx not in self._fed[run]:
            return
        tasks, last = self._fed[run][idx]
        states = [self.model.task(run, part).state for part in tasks[-last:]]
        if any(state not in (SUCCESS, SKIPPED) for state in states):
            raise Broken(f"P-GROW: {run}/{idx} was scheduled before what it went on as was done: {states}")
        self.model.facts.note("put_together")

    def _check_source(self, run: RunKey, idx: int) -> None:
        """P-MAPPED: a mapped task is scheduled when what it is mapped over has ended and gave something."""
        graph = self.model.graph(run)
        name = next((name for name, tasks in self._expanded[run].items() if idx in tasks), "")
        spec = next((spec for spec in graph.tasks if spec.id == name), None) if graph is not None else None
        if spec is None or spec.expansion is None or not spec.expansion.over:
            return
        states = [self.model.task(run, source).state for source in self.tasks_named(run, spec.expansion.over)]
        if SUCCESS not in states or any(state not in TERMINAL for state in states):
            raise Broken(f"P-MAPPED: {run}/{name} was scheduled while {spec.expansion.over} was {states}")
