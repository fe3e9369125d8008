"""One pass of the mechanical scheduler: who is woken for what, and what is done for work that nobody could have.

It decides and never claims: a wake is advice, and the session claims for itself. Four rules:

- One predicate. Who may be woken for an item is who could claim it (`rota.core.audience`).
- One target for a session in a cycle. Every item is given its first session before any is given a second. An item that
  has starved is then told to every idle session that could claim it and has no other target; the number can be capped.
- Advice is not repeated at once: not within the cooldown, and for what has starved not before it has waited twice as
  long. Each wake of an agent costs money. A session whose claim waits for such work comes first and has no cooldown:
  it asked, and will claim.
- Busy is not starved. The ladder climbs while no live session could ever claim an item, and while idle sessions were
  woken for it and none claimed it within the threshold. One whose sessions are all busy waits and is never parked,
  unless the rule of the ladder (`ClimbRule`) counts every item that is still queued.
"""

from collections.abc import Sequence
from operator import attrgetter

from msgspec import Struct

from rota.core.audience import Audience, Line, Ranks, Session
from rota.core.demand import Demand
from rota.core.ids import Millis, RunKey, WorkerKey
from rota.core.ladder import ClimbRule, Rung, Starvation, StarvationCause, Thresholds, climb, is_declined
from rota.core.wakes import Offered, Woken

COOLDOWN_MS = 60_000
STARVE_MS = 120_000
# How long at most until a starved item wakes the same session again.
BACKOFF_MS_MAX = 15 * 60_000


class Waiting(Struct, frozen=True, kw_only=True, gc=False):
    """An item that waits. What is paused or blocked is not claimable, and neither woken for nor moved on the ladder.

    `eligible_since` is when it last became claimable: time spent paused, blocked or at work is no waiting.
    """

    key: RunKey
    demand: Demand
    weight: int
    eligible_since: Millis
    claimable: bool = True
    starvation: Starvation | None = None
    # When a pool that held it back opened. Wakes before that could not be followed, and do not count.
    opened_at: Millis = 0


class CycleSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cooldown 0: advice may be repeated in every cycle. `starve_ms` 0: nothing is ever starved.

    `fan_out_max` is how many sessions a starved item wakes in a cycle. 0: every idle one that could claim it.
    """

    cooldown_ms: int = COOLDOWN_MS
    starve_ms: int = STARVE_MS
    fan_out_max: int = 0
    rule: ClimbRule = ClimbRule.UNSERVED
    backoff_ms_max: int = BACKOFF_MS_MAX
    thresholds: Thresholds = Thresholds()

    @property
    def remembered_ms(self) -> Millis:
        """After which time it does not matter any more that a session was woken for an item."""
        return max(self.cooldown_ms, self.backoff_ms_max) if self.cooldown_ms else 0


class View(Struct, frozen=True, kw_only=True):
    """All that a cycle looks at. Keys are unique. `offered` says since when sessions have been told of an item."""

    waiting: Sequence[Waiting]
    sessions: Sequence[Session]
    woken: Woken = {}
    offered: Offered = {}
    paused: bool = False
    settings: CycleSettings = CycleSettings()


class Wake(Struct, frozen=True, gc=False):
    """Tell this session about this item."""

    item: RunKey
    session: WorkerKey


class LadderStep(Struct, frozen=True):
    """One item, one rung: its row is to be stored, and what the rung says to be done."""

    item: RunKey
    rung: Rung
    cause: StarvationCause


class Plan(Struct, frozen=True, kw_only=True):
    """What a cycle came to; lists are in dispatch order.

    Each claimable item is woken for, or listed in `no_match` (no live session could ever claim it), or counted: as
    `recently_notified` (whoever is idle was told a short while ago) or `busy` (whoever could claim it is busy, or has
    another target). `starved` are those past the age that are not merely behind busy sessions, or all of them under the
    rule `queued`; those that climb have a step.
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
    ordered = _in_turn(view.waiting)
    return _Pass(view, now, ordered).plan(unclaimable=len(view.waiting) - len(ordered))


def _in_turn(waiting: Sequence[Waiting]) -> list[Waiting]:
    """What may be claimed, in the order in which it is dispatched: weight, then since when, then key."""
    ordered = sorted([item for item in waiting if item.claimable], key=attrgetter("eligible_since", "key"))
    ordered.sort(key=attrgetter("weight"), reverse=True)  # leaves those of one weight as they are
    return ordered


class _Choice(Struct):
    """An item that is woken for, and whom it wakes."""

    item: Waiting
    line: Line
    cooling: Ranks
    sessions: list[WorkerKey]


class _Pass:
    """The scratch of one cycle. Demands are told apart by identity: items that ask for the same mostly share theirs."""

    def __init__(self, view: View, now: Millis, ordered: list[Waiting]) -> None:
        self.view = view
        self.now = now
        self.ordered = ordered
        demands = {id(item.demand): item.demand for item in ordered}
        self.audience = Audience(view.sessions, demands.values())
        # Those that are idle now, whether or not they are given a target.
        self.idle = self.audience.free
        self.lines = {number: self.audience.line(demand) for number, demand in demands.items()}

    def plan(self, *, unclaimable: int) -> Plan:
        settings, now = self.view.settings, self.now
        starved_before = now - settings.starve_ms if settings.starve_ms > 0 else -1
        counts_queued = settings.rule is ClimbRule.QUEUED
        lines = self.lines
        chosen: list[_Choice] = []
        fanning: list[_Choice] = []
        no_match: list[RunKey] = []
        starved: list[RunKey] = []
        steps: list[LadderStep] = []
        recently_notified = busy = 0
        for item in self.ordered:
            line = lines[id(item.demand)]
            late = item.eligible_since <= starved_before
            if not line.is_servable:
                no_match.append(item.key)
                if late:
                    starved.append(item.key)
                    steps.append(self._step(item, StarvationCause.UNSERVED))
                continue
            is_idle = bool(line.suited & self.idle)
            climbs = late and counts_queued
            if late and is_idle and self._is_declined(item, line):
                climbs = True
                steps.append(self._step(item, StarvationCause.DECLINED))
            elif climbs:
                steps.append(self._step(item, StarvationCause.QUEUED))
            if not is_idle:
                busy += 1
                if climbs:
                    starved.append(item.key)
                continue
            cooling = self._cooling(item, late)
            session = self._choose(item, line, cooling)
            if session is not None:
                choice = _Choice(item, line, cooling, [session])
                chosen.append(choice)
                if late:
                    starved.append(item.key)
                    fanning.append(choice)
            elif cooling and self._is_held_back(line, cooling):
                recently_notified += 1
                if late:
                    starved.append(item.key)
            else:
                busy += 1
                if climbs:
                    starved.append(item.key)
        self._fan_out(fanning)
        return Plan(
            wakes=tuple([Wake(choice.item.key, session) for choice in chosen for session in choice.sessions]),
            no_match=tuple(no_match),
            starved=tuple(starved),
            steps=tuple(steps),
            recently_notified=recently_notified,
            busy=busy,
            unclaimable=unclaimable,
        )

    def _fan_out(self, starved: list[_Choice]) -> None:
        """Let starved items wake more sessions, out of those that nothing else was given."""
        cap = self.view.settings.fan_out_max
        for choice in starved:
            while self.audience.free and (not cap or len(choice.sessions) < cap):
                session = self._choose(choice.item, choice.line, choice.cooling)
                if session is None:
                    break
                choice.sessions.append(session)

    def _step(self, item: Waiting, cause: StarvationCause) -> LadderStep:
        return LadderStep(item.key, climb(item.starvation, self.now, self.view.settings.thresholds), cause)

    def _is_declined(self, item: Waiting, line: Line) -> bool:
        """Whether sessions that are idle and could claim an item were told of it, and none claimed it in time."""
        offered_at = self.view.offered.get(item.key)
        if not is_declined(offered_at, item.eligible_since, self.now, self.view.settings.starve_ms):
            return False
        return any(self.audience.first(tier & self.idle, line) for tier in self.audience.tiers(line))

    def _choose(self, item: Waiting, line: Line, cooling: Ranks) -> WorkerKey | None:
        """The best session that is free: one whose claim waits for this, else one that is not cooling. It is taken."""
        audience = self.audience
        if not line.suited & audience.free:
            return None
        asking = audience.free & audience.waiting
        for tier in audience.tiers(line) if asking else ():
            one = self._first_asking(item, line, tier & asking)
            if one:
                return audience.take(one)
        willing = audience.free & ~cooling
        for tier in audience.tiers(line):
            one = tier & willing and audience.first(tier & willing, line)
            if one:
                return audience.take(one)
        return None

    def _first_asking(self, item: Waiting, line: Line, among: Ranks) -> Ranks:
        """The first of these sessions whose claim waits for this item, as a set of one; or of none."""
        requires = item.demand.signature.requires
        while among:
            one = self.audience.first(among, line)
            if not one:
                return 0
            if any(claim.accepts(item.key, requires, item.weight) for claim in self.audience.claims_of(one)):
                return one
            # The predicate passed over those below.
            among &= ~((one << 1) - 1)
        return 0

    def _is_held_back(self, line: Line, cooling: Ranks) -> bool:
        """Whether there is somebody for the work who would only be told again too soon."""
        held = self.audience.free & cooling
        return any(self.audience.first(tier & held, line) for tier in self.audience.tiers(line))

    def _cooling(self, item: Waiting, late: bool) -> Ranks:
        """The sessions that were told about an item so lately that they are left alone."""
        woken = self.view.woken.get(item.key)
        if not woken:
            return 0
        before = self.now - quiet_ms(item, self.view.settings, self.now, late=late)
        # Sessions are told that a pool has opened in the turn in which it does.
        before = max(before, item.opened_at - 1)
        return self.audience.ranks_of([session for session, woken_at in woken.items() if woken_at > before])


def quiet_ms(item: Waiting, settings: CycleSettings, now: Millis, *, late: bool) -> Millis:
    """How long a session is left alone about an item.

    For a starved one half its wait, within bounds: whoever did not want it is asked again when it has waited twice
    as long, not four times a minute.
    """
    if not late or not settings.cooldown_ms:
        return settings.cooldown_ms
    waited = now - item.eligible_since
    return max(settings.cooldown_ms, min(waited // 2, settings.backoff_ms_max))
