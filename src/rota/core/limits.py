"""Pools: limits on what runs at once, per key, and per minute.

Usage is a sum over live leases: `evolve` adds when a lease begins and subtracts when it ends, and `validate` adds it up
again. There is no release to forget. Rates are token buckets; after an election they start empty, so that a change of
leader never lets more through than the limit says.
"""

from rota.core.ids import Millis
from rota.core.model import Pool, PoolNeed
from rota.core.reasons import Reason, reason
from rota.core.spans import show_span

MINUTE_MS = 60_000

PoolKey = tuple[str, str]


class Usage:
    """What live leases take from one pool."""

    __slots__ = ("by_key", "taken", "tokens", "tokens_at")

    def __init__(self, now: Millis) -> None:
        self.taken = 0
        self.by_key: dict[str, int] = {}
        # Tokens are counted in milliseconds of rate, so that integers suffice: one start costs a minute's worth
        # divided by `starts_per_minute`.
        self.tokens = 0
        self.tokens_at = now

    def take(self, need: PoolNeed) -> None:
        """A lease begins."""
        self.taken += need.amount
        if need.key:
            self.by_key[need.key] = self.by_key.get(need.key, 0) + need.amount

    def give_back(self, need: PoolNeed) -> None:
        """A lease ended."""
        self.taken -= need.amount
        assert self.taken >= 0, "a pool was given back more than was taken"
        if need.key:
            left = self.by_key[need.key] - need.amount
            if left:
                self.by_key[need.key] = left
            else:
                del self.by_key[need.key]

    def spend(self, pool: Pool, now: Millis) -> None:
        """A start uses up one token."""
        if pool.starts_per_minute:
            self.tokens = available_tokens(pool, self, now) - MINUTE_MS
            self.tokens_at = now


def available_tokens(pool: Pool, usage: Usage, now: Millis) -> int:
    """Tokens at `now`: what is left plus what has dripped in, never more than the burst."""
    dripped = max(0, now - usage.tokens_at) * pool.starts_per_minute
    return min(pool.burst * MINUTE_MS, usage.tokens + dripped)


def next_token_at(pool: Pool, usage: Usage, now: Millis) -> Millis:
    """When the next start will be allowed."""
    missing = MINUTE_MS - available_tokens(pool, usage, now)
    return now if missing <= 0 else now + -(-missing // pool.starts_per_minute)


def is_too_small(need: PoolNeed, pool: Pool) -> bool:
    """Whether a pool could never give what a task needs, however empty it was."""
    return bool(pool.slots and need.amount > pool.slots) or bool(
        pool.slots_per_key and need.key and need.amount > pool.slots_per_key
    )


def pool_reasons(need: PoolNeed, pool: Pool | None, usage: Usage | None, now: Millis) -> tuple[Reason, ...]:
    """Why a pool does not let a task start; nothing means it does."""
    if pool is None:
        return (reason("pool.gone", f"pool {need.pool} does not exist any more", pool=need.pool),)
    if is_too_small(need, pool):
        text = f"pool {pool.name} has {size_of(pool)}, {need.amount} needed: this can never start"
        return (reason("pool.too_small", text, pool=pool.name, needs=need.amount),)
    taken = usage.taken if usage is not None else 0
    found: list[Reason] = []
    if pool.slots and taken + need.amount > pool.slots:
        text = f"pool {pool.name} has {taken} of {pool.slots} taken, {need.amount} needed"
        found.append(reason("pool.full", text, pool=pool.name))
    if pool.slots_per_key and need.key:
        here = usage.by_key.get(need.key, 0) if usage is not None else 0
        if here + need.amount > pool.slots_per_key:
            text = f"pool {pool.name} has {here} of {pool.slots_per_key} taken for key {need.key}"
            found.append(reason("pool.full", text, pool=pool.name, key=need.key))
    if pool.starts_per_minute and usage is not None and available_tokens(pool, usage, now) < MINUTE_MS:
        at = next_token_at(pool, usage, now)
        text = f"pool {pool.name} allows the next start in {show_span(at - now)}"
        found.append(reason("pool.rate", text, pool=pool.name))
    return tuple(found)


def size_of(pool: Pool) -> str:
    """A pool's slots, in words."""
    in_all = f"{pool.slots} slots" if pool.slots else "no limit in all"
    return f"{in_all}, {pool.slots_per_key} for one key" if pool.slots_per_key else in_all
