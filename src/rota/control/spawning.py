"""Whether somebody is started for work that nobody could have, and by which spawner.

Only what would fit is started: the offer of a spawner is judged by the predicate that judges workers. How many live at
once, how often there is another try for the same requirements, and how long a spawner rests whose children end badly,
are bounded here. The ladder asks again in every cycle, so what is put off now is not forgotten.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct, structs

from rota.core.demand import Demand, Signature, lasting_reasons, property_values, score
from rota.core.ids import Millis
from rota.core.model import Capacity

HOUR_MS = 3_600_000
REST_MS_MAX = 600_000
FORGET_MS = 60_000
# Requirements are remembered for an hour after the last start. More at once are a mistake that must not fill memory.
SIGNATURES_MAX = 10_000


class Terms(Struct, frozen=True, kw_only=True):
    """What one spawner may do. The cooldown is between two starts for the same requirements."""

    alive_max: int
    cooldown_ms: Millis
    starts_per_hour: int


class Outcome(StrEnum):
    """What came of asking for somebody."""

    STARTED = "started"
    FAILED = "failed"
    UNRESOLVABLE = "unresolvable"
    DEFERRED = "deferred"


class _Account:
    """How one spawner stands. `failures` are those since a child last ended well."""

    __slots__ = ("alive", "failures", "rests_until", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.alive = 0
        self.failures = 0
        self.rests_until: Millis = 0


class Spawning:
    """The accounts of all spawners of a service."""

    def __init__(self, terms: Mapping[str, Terms]) -> None:
        self._accounts = {name: _Account(each) for name, each in terms.items()}
        self._starts: dict[Signature, list[Millis]] = {}
        self._forgets_at: Millis = 0

    def choose(self, demand: Demand, offers: Iterable[tuple[str, Capacity]], now: Millis) -> str | Outcome:
        """The spawner that is to start somebody, which counts as started from now on; or why none is.

        Of those that could, the one that has most of what is preferred; then in the order of the settings.
        """
        fitting = [(name, capacity) for name, capacity in offers if not lasting_reasons(demand, capacity)]
        if not fitting:
            return Outcome.UNRESOLVABLE
        signature = _alike(demand.signature)
        if now >= self._forgets_at:
            self._forget(now)
        starts = _of_the_hour(self._starts.get(signature, []), now)
        ready = [(name, capacity) for name, capacity in fitting if self._may_start(name, starts, now)]
        if not ready or len(self._starts) >= SIGNATURES_MAX:
            return Outcome.DEFERRED
        name = max(ready, key=lambda offer: score(demand, property_values(offer[1])))[0]
        self._starts[signature] = [*starts, now]
        self._accounts[name].alive += 1
        return name

    def ended(self, name: str, now: Millis, *, well: bool) -> None:
        """A child has ended, or could not be started. After bad ends a spawner rests, each time twice as long."""
        account = self._accounts[name]
        account.alive -= 1
        account.failures = 0 if well else account.failures + 1
        if not well:
            rest_ms = account.terms.cooldown_ms << min(account.failures, 16)
            account.rests_until = now + min(rest_ms, REST_MS_MAX)

    def _may_start(self, name: str, starts: list[Millis], now: Millis) -> bool:
        account = self._accounts[name]
        terms = account.terms
        is_cool = not starts or now - starts[-1] >= terms.cooldown_ms
        is_within = account.alive < terms.alive_max and len(starts) < terms.starts_per_hour
        return is_cool and is_within and now >= account.rests_until

    def _forget(self, now: Millis) -> None:
        """Let go of requirements that nobody was started for in an hour. There may be many, so not at each look."""
        self._starts = {signature: starts for signature, starts in self._starts.items() if _of_the_hour(starts, now)}
        self._forgets_at = now + FORGET_MS


def _of_the_hour(starts: list[Millis], now: Millis) -> list[Millis]:
    return [at for at in starts if now - at < HOUR_MS]


def _alike(signature: Signature) -> Signature:
    """Pools and the worker to avoid do not tell apart what a spawner would start."""
    return structs.replace(signature, pools=(), avoid=())
