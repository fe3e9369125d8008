"""What one reign has decided, counted. Nothing is decided by these numbers; `telemetry` shows them."""

from rota.core.commands import Command, Report, StartRuns, Tick
from rota.core.decide import Decision
from rota.core.decide.decision import AT_CAP
from rota.core.decide.leases import Judgement
from rota.core.ladder import Tier
from rota.core.state import GraphMoves, State
from rota.core.states import (
    ASSIGNED,
    CANCELLED,
    FAILED,
    NEEDS_ATTENTION,
    QUEUED,
    SCHEDULED,
    SKIPPED,
    UP_FOR_RESCHEDULE,
    UP_FOR_RETRY,
    UPSTREAM_FAILED,
)

# Graphs whose moves are counted by name; those of all others are counted together.
GRAPHS_SHOWN_MAX = 200
OTHER_GRAPHS = "other"
# Moves of tasks that count as decisions of the scheduler, by where they lead; and those that lead back to work.
MOVED_TO: tuple[str, ...] = (
    SCHEDULED,
    QUEUED,
    ASSIGNED,
    SKIPPED,
    UPSTREAM_FAILED,
    UP_FOR_RETRY,
    UP_FOR_RESCHEDULE,
    FAILED,
    CANCELLED,
    NEEDS_ATTENTION,
)
AGAIN: dict[str, str] = {UP_FOR_RETRY: "retry", UP_FOR_RESCHEDULE: "reschedule"}
_IN_ORDER = frozenset({Judgement.ACCEPTED, Judgement.DUPLICATE})


class Tally:
    """Counts that the loop keeps in passing."""

    def __init__(self) -> None:
        self.by_command: dict[tuple[type[Command], str], int] = {}
        # Reports that spoke for no live lease, by cause; also those that are too many to be written down.
        self.stale_reports: dict[str, int] = {}
        # How often a run or a slot found as many active runs as there may be.
        self.at_cap = 0
        # How often a task reached each tier of the starvation ladder.
        self.tiers: dict[str, int] = {}
        # Moves of tasks of the last turn, and of all turns with a bounded number of names.
        self.moved: GraphMoves = {}
        self.moves: GraphMoves = {}
        self._graphs: dict[str, None] = {}

    def decided(self, command: Command, decision: Decision) -> None:
        """A command was decided, with or without a change."""
        self._count(command, "decided")
        if isinstance(command, Report) and decision.answer not in _IN_ORDER:
            self.stale_reports[decision.answer] = self.stale_reports.get(decision.answer, 0) + 1
        elif decision.answer == AT_CAP and isinstance(command, StartRuns | Tick):
            self.at_cap += 1

    def refused(self, command: Command) -> None:
        """A command was refused."""
        self._count(command, "refused")

    def starved(self, tier: Tier) -> None:
        """A task has reached a tier."""
        self.tiers[tier.name.lower()] = self.tiers.get(tier.name.lower(), 0) + 1

    def turned(self, state: State) -> None:
        """A turn is over: take the moves that it made."""
        self.moved, state.moved = state.moved, {}
        graphs, moves = self._graphs, self.moves
        for (graph, here, there), count in self.moved.items():
            if len(graphs) < GRAPHS_SHOWN_MAX:
                graphs[graph] = None
            key = (graph if graph in graphs else OTHER_GRAPHS, here, there)
            moves[key] = moves.get(key, 0) + count

    def decisions(self, state: State) -> dict[str, int]:
        """Decisions by sort: where tasks were moved to, and what is no move of a task."""
        found = dict.fromkeys((*MOVED_TO, *AGAIN.values()), 0)
        for (here, there), count in state.moves.items():
            if there in MOVED_TO:
                found[AGAIN.get(here, there) if there is SCHEDULED else there] += count
        found.update(state.decided, max_active_runs_cap=self.at_cap)
        return found

    def _count(self, command: Command, outcome: str) -> None:
        key = (type(command), outcome)
        self.by_command[key] = self.by_command.get(key, 0) + 1
