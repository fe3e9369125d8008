"""What one reign has decided, counted. Nothing is decided by these numbers; `telemetry` shows them."""

from rota.core.commands import Command, Report, StartRuns, Tick
from rota.core.decide import Decision
from rota.core.decide.decision import AT_CAP
from rota.core.decide.leases import Judgement
from rota.core.ladder import Tier

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

    def _count(self, command: Command, outcome: str) -> None:
        key = (type(command), outcome)
        self.by_command[key] = self.by_command.get(key, 0) + 1
