"""Growth: a task that goes on as others waits for them, and what was let go does nothing any more."""

from rota.core import changes as ch
from rota.core.ids import RunKey
from rota.core.records import Growth
from rota.core.states import SKIPPED, SUCCESS
from rota.sim.broken import Broken
from rota.sim.models import Model


class GrowthRules:
    """P-GROW."""

    def __init__(self, model: Model) -> None:
        self.model = model
        # How many tasks a run has had; new ones are numbered from there.
        self._total: dict[RunKey, int] = {}
        # Of each task that went on as others all of those, and how many of them are its input.
        self._fed: dict[RunKey, dict[int, tuple[range, int]]] = {}
        self._gone: dict[RunKey, dict[int, None]] = {}

    def submitted(self, run: RunKey) -> None:
        """A new run has the tasks of its graph."""
        graph = self.model.graph(run)
        self._total[run] = sum(spec.width for spec in graph.tasks) if graph is not None else 0
        self._fed[run], self._gone[run] = {}, {}

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
        self._total[run] += (growth.width or 1) if growth.expands else sum(spec.width for spec in growth.specs)

    def scheduled(self, run: RunKey, idx: int) -> None:
        """P-GROW: what was let go does not run, and whoever went on as others runs again once the last are well."""
        if idx in self._gone[run]:
            raise Broken(f"P-GROW: {run}/{idx} was scheduled although it was let go")
        if idx not in self._fed[run]:
            return
        tasks, last = self._fed[run][idx]
        states = [self.model.task(run, part).state for part in tasks[-last:]]
        if any(state not in (SUCCESS, SKIPPED) for state in states):
            raise Broken(f"P-GROW: {run}/{idx} was scheduled before what it went on as was done: {states}")
        self.model.facts.note("put_together")
