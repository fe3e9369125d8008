"""One pass of the mechanical scheduler: who is woken for what, and what is done for work that nobody could have.

It decides and never claims: a wake is advice, and the session claims for itself. Four rules:

- One predicate. Who may be woken for an item is who could claim it (`rota.core.audience`).
- One target for a session in a cycle. Every item is given its first session before any is given a second, so what has
  starved takes only sessions that nothing else wanted.
- Advice is not repeated at once: not within the cooldown, and for what has starved not before it has waited twice as
  long. Each wake of an agent costs money.
- Busy is not starved. The ladder climbs while no live session could ever claim an item. One whose sessions are busy,
  or do not want it, waits and is never parked.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from rota.core.audience import Audience, Line, Session
from rota.core.demand import Demand
from rota.core.ids import Millis, RunKey, WorkerKey
from rota.core.ladder import Rung, Starvation, Thresholds, climb, may_climb

COOLDOWN_MS = 60_000
STARVE_MS = 120_000
# How many sessions one starved item may wake in a cycle, and how long at most until it wakes the same one again.
FAN_OUT_MAX = 5
BACKOFF_MS_MAX = 15 * 60_000

WakeKey = tuple[RunKey, WorkerKey]


class Waiting(Struct, frozen=True, kw_only=True):
    """An item that waits. What is paused or blocked is not claimable, and neither woken for nor moved on the ladder.

    `eligible_since` is when it last became claimable: time spent paused, blocked or at work is no waiting.
    """

    key: RunKey
    demand: Demand
    weight: int
    eligible_since: Millis
    claimable: bool = True
    starvation: Starvation | None = None


class CycleSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cooldown 0: advice may be repeated in every cycle. `starve_ms` 0: nothing is ever starved."""

    cooldown_ms: int = COOLDOWN_MS
    starve_ms: int = STARVE_MS
    fan_out_max: int = FAN_OUT_MAX
    backoff_ms_max: int = BACKOFF_MS_MAX
    thresholds: Thresholds = Thresholds()

    @property
    def remembered_ms(self) -> Millis:
        """After which time it does not matter any more that a session was woken for an item."""
        return max(self.cooldown_ms, self.backoff_ms_max) if self.cooldown_ms else 0


class View(Struct, frozen=True, kw_only=True):
    """All that a cycle looks at. `woken`: when a session was last woken for an item. Keys are unique."""

    waiting: Sequence[Waiting]
    sessions: Sequence[Session]
    woken: Mapping[WakeKey, Millis] = {}
    paused: bool = False
    settings: CycleSettings = CycleSettings()


class Wake(Struct, frozen=True):
    """Tell this session about this item."""

    item: RunKey
    session: WorkerKey


class LadderStep(Struct, frozen=True):
    """One item, one rung: its row is to be stored, and what the rung says to be done."""

    item: RunKey
    rung: Rung


class Plan(Struct, frozen=True, kw_only=True):
    """What a cycle came to; lists are in dispatch order.

    Each claimable item is woken for, or listed in `no_match` (no live session could ever claim it), or counted: as
    `recently_notified` (whoever is idle was told a short while ago) or `busy` (whoever could claim it is busy, or has
    another target). `starved` are those past the age that are not merely behind busy sessions.
    """

    paused: bool = False
    wakes: tuple[Wake, ...] = ()
    no_match: tuple[RunKey, ...] = ()
    starved: tuple[RunKey, ...] = ()
    steps: tuple[LadderStep, ...] = ()
    recently_notified: int = 0
    busy: int = 0
    unclaimable: int = 0


def cycle(view: View, now: Millis) -> Plan:
    """Decide one pass: wakes, no-match, starvation and the ladder. While paused nothing is decided at all."""
    if view.paused:
        return Plan(paused=True)
    claimable = [item for item in view.waiting if item.claimable]
    return _Pass(view, now, sorted(claimable, key=_turn)).plan(unclaimable=len(view.waiting) - len(claimable))


def _turn(item: Waiting) -> tuple[int, Millis, RunKey]:
    return (-item.weight, item.eligible_since, item.key)


class _Choice(Struct):
    """An item that is woken for, and whom it wakes."""

    item: Waiting
    line: Line
    late: bool
    sessions: list[WorkerKey]


class _Pass:
    """The scratch of one cycle. Demands are told apart by identity first: most items share theirs."""

    def __init__(self, view: View, now: Millis, ordered: list[Waiting]) -> None:
        self.view = view
        self.now = now
        self.ordered = ordered
        demands = {id(item.demand): item.demand for item in ordered}
        self.audience = Audience(view.sessions, demands.values())
        self.lines = {number: self.audience.line(demand) for number, demand in demands.items()}

    def plan(self, *, unclaimable: int) -> Plan:
        settings, now = self.view.settings, self.now
        chosen: list[_Choice] = []
        no_match: list[RunKey] = []
        starved: list[RunKey] = []
        steps: list[LadderStep] = []
        recently_notified = busy = 0
        for item in self.ordered:
            line = self.lines[id(item.demand)]
            late = settings.starve_ms > 0 and may_climb(item.eligible_since, now, settings.starve_ms)
            if not line.is_servable:
                no_match.append(item.key)
                if late:
                    starved.append(item.key)
                    steps.append(LadderStep(item.key, climb(item.starvation, now, settings.thresholds)))
                continue
            session, cooling = self._choose(item, line, late) if self.audience.free else (None, False)
            if session is None and not cooling:
                busy += 1
                continue
            if late:
                starved.append(item.key)
            if session is None:
                recently_notified += 1
            else:
                chosen.append(_Choice(item, line, late, [session]))
        self._fan_out(chosen)
        return Plan(
            wakes=tuple([Wake(choice.item.key, session) for choice in chosen for session in choice.sessions]),
            no_match=tuple(no_match),
            starved=tuple(starved),
            steps=tuple(steps),
            recently_notified=recently_notified,
            busy=busy,
            unclaimable=unclaimable,
        )

    def _fan_out(self, chosen: list[_Choice]) -> None:
        """Let starved items wake more sessions, out of those that nothing else was given."""
        for choice in chosen:
            while choice.late and self.audience.free and len(choice.sessions) < self.view.settings.fan_out_max:
                session, _ = self._choose(choice.item, choice.line, choice.late)
                if session is None:
                    break
                choice.sessions.append(session)

    def _choose(self, item: Waiting, line: Line, late: bool) -> tuple[WorkerKey | None, bool]:
        """The best session that is free for an item and was not woken for it lately, which is taken.

        And whether some were free, but had been woken lately.
        """
        audience, cooling = self.audience, False
        for tier in audience.tiers(line):
            free = tier & audience.free
            while one := free and audience.first(free, line):
                if not self._is_cooling(item, audience.key_of(one), late):
                    return audience.take(one), cooling
                cooling = True
                free ^= one
        return None, cooling

    def _is_cooling(self, item: Waiting, session: WorkerKey, late: bool) -> bool:
        woken_at = self.view.woken.get((item.key, session)) if self.view.woken else None
        return woken_at is not None and self.now - woken_at < quiet_ms(item, self.view.settings, self.now, late=late)


def quiet_ms(item: Waiting, settings: CycleSettings, now: Millis, *, late: bool) -> Millis:
    """How long a session is left alone about an item.

    For a starved one half its wait, within bounds: whoever did not want it is asked again when it has waited twice
    as long, not four times a minute.
    """
    if not late or not settings.cooldown_ms:
        return settings.cooldown_ms
    waited = now - item.eligible_since
    return max(settings.cooldown_ms, min(waited // 2, settings.backoff_ms_max))
