"""The history checker: what clients were told, what the work did and what the store says must be one story.

`judge` looks at all three and gives a report: figures, and violations with the story of what they are about. The rules
are in `tests.rig.rules`; a violation is named after its rule.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import get_args

from msgspec import Struct

from rota.core.changes import AttemptEnded, LeaseReturned
from rota.core.door import ClientRequest
from rota.core.ids import Fence, fence_epoch
from tests.rig.journal import DONE, Attempt, Disturbance, Try
from tests.rig.rules import History, Violation, conclusions, violations

# What is written before it is answered. A leader that was cut off goes on answering reads for up to a term.
_COMMANDS = frozenset(kind.__name__ for kind in get_args(ClientRequest))
# Part of how graphs travel: the client sends the graph itself then.
_EXPECTED = ("graph.unknown",)
SHOWN_MAX = 10


class Gap(Struct, frozen=True):
    """How long after a disturbance the first command was carried out that was sent after it; None: none was."""

    what: str
    at_ns: int
    ms: float | None


class Report(Struct, frozen=True, kw_only=True):
    """Figures of a campaign, and what is wrong."""

    runs: int
    run_states: dict[str, int]
    # Attempts that began, and what became of them.
    attempts: int
    outcomes: int
    # Began, and was done again: its lease ended without an outcome.
    rerun: int
    # Of these, how many had done their work.
    in_vain: int
    # Ran when something was disturbed, and counted in the end, or did not.
    kept: int
    interrupted: int
    epochs: int
    # What calls were told in the end, and what single requests were told on the way, by code.
    call_errors: dict[str, int]
    try_errors: dict[str, int]
    gaps: tuple[Gap, ...]
    violations: tuple[Violation, ...]

    @property
    def gap_ms_max(self) -> float | None:
        """The longest gap; None if there is none, or one that never closed."""
        found = [gap.ms for gap in self.gaps]
        return None if not found or None in found else max(ms for ms in found if ms is not None)

    def must_hold(self) -> "Report":
        """This report, if nothing is wrong. Raises AssertionError."""
        if self.violations:
            shown = "\n".join(map(str, self.violations[:SHOWN_MAX]))
            raise AssertionError(f"{len(self.violations)} violations\n{shown}\n{self}")
        return self

    def __str__(self) -> str:
        gaps = [f"{gap.what}: {'never' if gap.ms is None else f'{gap.ms:.0f} ms'}" for gap in self.gaps]
        return "\n".join(
            [
                f"runs {self.runs} ({_counts(self.run_states)}), epochs {self.epochs}",
                f"attempts {self.attempts}, outcomes {self.outcomes}, done again {self.rerun} ({self.in_vain} in vain)",
                f"running when disturbed: {self.kept} kept, {self.interrupted} interrupted",
                f"errors of calls: {_counts(self.call_errors)}; of requests: {_counts(self.try_errors)}",
                f"gaps: {'; '.join(gaps) or 'none'}",
                f"violations: {_counts(Counter(each.rule for each in self.violations))}",
            ]
        )


def judge(history: History) -> Report:
    """Hold a history to every rule, and count what it cost."""
    ledger = history.ledger
    concluded = conclusions(ledger)
    again = [each for each in history.attempts if isinstance(concluded.get(each.fence), LeaseReturned)]
    kept, interrupted = _across(history.attempts, history.disturbances, concluded)
    return Report(
        runs=len(ledger.runs),
        run_states=dict(Counter(str(run.state) for run in ledger.runs)),
        attempts=len(history.attempts),
        outcomes=sum(isinstance(each, AttemptEnded) for each in concluded.values()),
        rerun=len(again),
        in_vain=sum(each.outcome == DONE for each in again),
        kept=kept,
        interrupted=interrupted,
        epochs=len({fence_epoch(grant.change.fence) for grant in ledger.grants()}),
        call_errors=dict(Counter(call.code for call in history.calls if call.code)),
        try_errors=dict(Counter(each.code for each in history.tries if each.code and each.code not in _EXPECTED)),
        gaps=gaps(history.disturbances, history.tries),
        violations=tuple(violations(history)),
    )


def _across(
    attempts: Iterable[Attempt],
    disturbances: Iterable[Disturbance],
    concluded: Mapping[Fence, AttemptEnded | LeaseReturned],
) -> tuple[int, int]:
    """How many attempts ran through a disturbance and counted, and how many did not."""
    instants = [each.at_ns for each in disturbances]
    kept = interrupted = 0
    for attempt in attempts:
        if any(attempt.began_ns < at <= attempt.seen_ns for at in instants):
            counts = isinstance(concluded.get(attempt.fence), AttemptEnded)
            kept += counts
            interrupted += not counts
    return kept, interrupted


def gaps(disturbances: Iterable[Disturbance], tries: Iterable[Try]) -> tuple[Gap, ...]:
    """How long nothing was carried out after each disturbance; no finer than clients try again."""
    done = sorted((each.began_ns, each.ended_ns) for each in tries if not each.code and each.what in _COMMANDS)
    return tuple(_gap(each, done) for each in disturbances)


def _gap(disturbance: Disturbance, done: list[tuple[int, int]]) -> Gap:
    first = bisect_left(done, (disturbance.at_ns, 0))
    ended_ns = min((ended for _, ended in done[first:]), default=None)
    return Gap(disturbance.what, disturbance.at_ns, None if ended_ns is None else (ended_ns - disturbance.at_ns) / 1e6)


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items())) or "none"


__all__ = ["Gap", "History", "Report", "Violation", "gaps", "judge"]
