"""Which faults a seed has. Each seed draws its own mix: whole families are on or off, and have a strength."""

from random import Random

from msgspec import Struct

from rota.core.bounds import TimeLimits
from rota.core.ids import Millis
from rota.core.ladder import ClimbRule


class Mix(Struct, kw_only=True):
    """How bad the weather is.

    Rates (`loss` to `reordering`, `slow_disk` to `commit_refused`, `babble`, `misdirected`) are per thousand
    messages, requests, commits, outcomes or dials; other numbers are how often something strikes; times are in
    milliseconds.
    """

    loss: int = 0
    duplication: int = 0
    reordering: int = 0
    delay_ms: Millis = 5
    partition: int = 0
    clog: int = 0
    drain: int = 0
    crash: int = 0
    pause: int = 0
    skew_ms: Millis = 0
    clock_step: int = 0
    slow_disk: int = 0
    commit_fails: int = 0
    commit_unknown: int = 0
    commit_refused: int = 0
    torn_restart: int = 0
    lock_lost: int = 0
    lying_worker: bool = False
    cloned_worker: bool = False
    babble: int = 0
    stuck_workers: int = 0
    vanish: int = 0
    trials: int = 0
    workflows: int = 0
    remedies: int = 0
    builds: int = 0
    items: int = 0
    lying_agents: int = 0
    misdirected: int = 0
    unwilling_agents: int = 0
    # Sessions beside the others that only listen, so that starved work has many to be told to.
    listeners: int = 0
    fan_out_max: int = 0
    climb_rule: ClimbRule = ClimbRule.UNSERVED
    limits: TimeLimits = TimeLimits()
    coordinators: int = 2
    push_workers: int = 3
    pull_workers: int = 1
    runs: int = 12
    slice_tasks: int = 1_000
    storm_ms: Millis = 60_000

    @property
    def is_timely(self) -> bool:
        """Whether workers can be expected to stop themselves in time: nothing freezes them or bends their clock."""
        return not (self.pause or self.clock_step)


FAST = TimeLimits(
    lease_ms=6_000,
    term_ms=1_000,
    settle_ms=3_000,
    dispatch_ms=2_000,
    sweep_ms=3_000,
    step_ms=20_000,
    orphan_ms=30_000,
    starve_ms=8_000,
    quarantine_ms=6_000,
    stall_ms=400,
    retain_ended_ms=10_000,
)


def draw_mix(chance: Random) -> Mix:
    """The weather of one seed."""

    def maybe(most: int, odds: float = 0.45) -> int:
        return chance.randint(1, most) if chance.random() < odds else 0

    mix = Mix(
        loss=maybe(150),
        duplication=maybe(150),
        reordering=maybe(200),
        delay_ms=chance.choice((1, 5, 20, 200)),
        partition=maybe(4),
        clog=maybe(4),
        drain=maybe(4),
        crash=maybe(4),
        pause=maybe(4),
        skew_ms=maybe(5_000, 0.3),
        clock_step=maybe(3, 0.25),
        slow_disk=maybe(300, 0.3),
        commit_fails=maybe(60, 0.3),
        commit_unknown=maybe(60, 0.35),
        commit_refused=maybe(20, 0.15),
        # Drawn from a wide range so that older seeds keep the rest of their weather.
        torn_restart=-(-maybe(500, 0.4) // 125),
        lock_lost=maybe(4),
        lying_worker=chance.random() < 0.15,
        cloned_worker=chance.random() < 0.15,
        limits=TimeLimits() if chance.random() < 0.25 else FAST,
        coordinators=chance.choice((1, 2, 2, 3)),
        push_workers=chance.randint(1, 5),
        pull_workers=chance.choice((0, 1, 2)),
        runs=chance.randint(4, 20),
        slice_tasks=chance.choice((2, 5, 1_000)),
        storm_ms=chance.choice((20_000, 40_000, 60_000)),
        # New kinds are drawn last, so that older seeds keep the rest of their weather.
        babble=maybe(300, 0.3),
        stuck_workers=maybe(4, 0.25),
        vanish=maybe(3, 0.4),
        trials=maybe(3, 0.6),
        workflows=maybe(2, 0.6),
        remedies=maybe(6, 0.75),
        builds=maybe(2, 0.5),
        items=maybe(2, 0.7),
        lying_agents=maybe(200, 0.3),
        misdirected=maybe(400, 0.3),
        unwilling_agents=maybe(1, 0.3),
    )
    # One draw for both, in ranges that leave the pinned seeds of mutants as they were.
    crowd = chance.random()
    if 0.44 <= crowd < 0.58:
        mix.listeners, mix.fan_out_max = 30, maybe(5, 0.2)
    elif 0.17 <= crowd < 0.30:
        mix.climb_rule = ClimbRule.QUEUED
    return mix


# What is no fault in itself: how much there is of everything, and by which clock.
SIZES = (
    "delay_ms",
    "limits",
    "coordinators",
    "push_workers",
    "pull_workers",
    "runs",
    "trials",
    "workflows",
    "remedies",
    "builds",
    "items",
    "listeners",
    "fan_out_max",
    "climb_rule",
    "slice_tasks",
    "storm_ms",
)

# Every kind of fault, by the name under which it is counted when it really happens.
FAULTS: tuple[str, ...] = tuple(name for name in Mix.__struct_fields__ if name not in SIZES)

# What shrinking tries to switch off, worst first.
SWITCHES: tuple[tuple[str, object], ...] = (
    ("commit_refused", 0),
    ("cloned_worker", False),
    ("lying_worker", False),
    ("lying_agents", 0),
    ("misdirected", 0),
    ("unwilling_agents", 0),
    ("babble", 0),
    ("stuck_workers", 0),
    ("vanish", 0),
    ("clock_step", 0),
    ("skew_ms", 0),
    ("pause", 0),
    ("crash", 0),
    ("torn_restart", 0),
    ("lock_lost", 0),
    ("commit_unknown", 0),
    ("commit_fails", 0),
    ("slow_disk", 0),
    ("partition", 0),
    ("clog", 0),
    ("drain", 0),
    ("loss", 0),
    ("duplication", 0),
    ("reordering", 0),
    ("slice_tasks", 1_000),
    ("pull_workers", 0),
    ("trials", 0),
    ("workflows", 0),
    ("remedies", 0),
    ("builds", 0),
    ("items", 0),
    ("listeners", 0),
    ("fan_out_max", 0),
    ("climb_rule", ClimbRule.UNSERVED),
)
