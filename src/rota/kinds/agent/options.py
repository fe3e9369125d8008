"""What can be chosen about a mechanical scheduler, one function for each.

Values that cannot be meant stand for the usual ones: a blank reason, a negative limit. Zero has its own meaning where
it has one.
"""

import logging
from collections.abc import Callable
from typing import cast

from msgspec import Struct, field
from msgspec.structs import replace

from rota.core.cycle import COOLDOWN_MS, CycleSettings
from rota.core.errors import Refused
from rota.core.ids import Millis
from rota.core.ladder import ClimbRule
from rota.kinds.agent.clocks import SteadyClock
from rota.kinds.agent.snapshots import StarvationThresholds, default_starvation_thresholds
from rota.kinds.agent.sources import Actor, ActorKind, Clock, EscalationActor, PauseStore, StarvationStore

INTERVAL_MS = 15_000
SWEEP_LIMIT = 100
SWEEP_REASON = "scheduler_sweep"
WAKE_REASON = "pending_task_run"
LOGGER = "rota.agent.scheduler"


class Options(Struct, frozen=True, kw_only=True):
    """All choices. `starvation_age_ms` None: the age is that of the thresholds."""

    actor: Actor = Actor(ActorKind.DAEMON, "scheduler")
    clock: Clock = field(default_factory=SteadyClock)
    interval_ms: Millis = INTERVAL_MS
    wake_cooldown_ms: Millis = COOLDOWN_MS
    sweep_limit: int = SWEEP_LIMIT
    sweep_reason: str = SWEEP_REASON
    wake_reason: str = WAKE_REASON
    pause_store: PauseStore | None = None
    starvation_age_ms: Millis | None = None
    starvation_store: StarvationStore | None = None
    starvation_thresholds: StarvationThresholds = field(default_factory=default_starvation_thresholds)
    fan_out_max: int = 0
    climb_rule: ClimbRule = ClimbRule.UNSERVED
    escalation_actor: EscalationActor | None = None
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger(LOGGER))

    @property
    def settings(self) -> CycleSettings:
        """What of it concerns a cycle."""
        usual = default_starvation_thresholds().min_queued_age_ms
        age_ms = self.starvation_age_ms
        if age_ms is None:
            age_ms = self.starvation_thresholds.min_queued_age_ms
            age_ms = age_ms if age_ms > 0 else usual
        return CycleSettings(
            cooldown_ms=self.wake_cooldown_ms,
            starve_ms=age_ms,
            fan_out_max=self.fan_out_max,
            rule=self.climb_rule,
            thresholds=self.starvation_thresholds.as_ladder(),
        )


Option = Callable[[Options], Options]


def with_actor(actor: Actor) -> Option:
    """In whose name leases are recovered."""
    return lambda options: replace(options, actor=actor)


def with_clock(clock: Clock) -> Option:
    """Another clock."""
    return lambda options: replace(options, clock=clock)


def with_interval(interval_ms: Millis) -> Option:
    """How long from the end of one cycle of the loop to the next."""
    return lambda options: replace(options, interval_ms=interval_ms if interval_ms > 0 else INTERVAL_MS)


def with_wake_cooldown(cooldown_ms: Millis) -> Option:
    """For how long a session is not woken again for the same run. 0: it may be in every cycle."""
    return lambda options: replace(options, wake_cooldown_ms=cooldown_ms if cooldown_ms >= 0 else COOLDOWN_MS)


def with_sweep_limit(limit: int) -> Option:
    """How many expired leases a cycle recovers at most. 0: all."""
    return lambda options: replace(options, sweep_limit=limit if limit >= 0 else SWEEP_LIMIT)


def with_sweep_reason(reason: str) -> Option:
    """What is noted beside a recovered lease."""
    return lambda options: replace(options, sweep_reason=reason.strip() or SWEEP_REASON)


def with_wake_reason(reason: str) -> Option:
    """What a wake says it is about."""
    return lambda options: replace(options, wake_reason=reason.strip() or WAKE_REASON)


def with_pause_store(store: PauseStore) -> Option:
    """Where it is kept that nobody is to be woken. Leases are recovered all the same."""
    return lambda options: replace(options, pause_store=store)


def with_starvation_age(age_ms: Millis) -> Option:
    """From which wait on a run is starved, whatever the thresholds say. 0: never."""
    return lambda options: replace(options, starvation_age_ms=max(0, age_ms))


def with_starvation_store(store: StarvationStore) -> Option:
    """Where it is kept how far runs have climbed. Without it starved runs only wake more sessions."""
    return lambda options: replace(options, starvation_store=store)


def with_starvation_thresholds(thresholds: StarvationThresholds) -> Option:
    """Other tiers."""
    return lambda options: replace(options, starvation_thresholds=thresholds)


def with_fan_out_max(sessions: int) -> Option:
    """How many sessions a starved run wakes in a cycle at most. 0: every idle one that could claim it."""
    return lambda options: replace(options, fan_out_max=max(0, sessions))


def with_climb_rule(rule: ClimbRule) -> Option:
    """Which starved runs climb the ladder: `unserved` ones, or every one that is still `queued`."""
    return lambda options: replace(options, climb_rule=rule)


def with_escalation_actor(actor: EscalationActor) -> Option:
    """Who does what the ladder asks for."""
    return lambda options: replace(options, escalation_actor=actor)


def with_logger(logger: logging.Logger) -> Option:
    """Where it is told what happens."""
    return lambda options: replace(options, logger=logger)


def chosen(options: tuple[Option, ...]) -> Options:
    """The usual choices, changed by these in turn."""
    made = Options()
    for option in options:
        made = option(made)
    actor = cast("object", made.actor)
    if not isinstance(actor, Actor) or actor.kind not in tuple(ActorKind) or not actor.ref.strip():
        text = "leases are recovered in somebody's name, and this is nobody's"
        raise Refused("field.value", text, "Name a kind and a ref.", path="actor")
    return made
