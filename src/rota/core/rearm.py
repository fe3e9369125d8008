"""After a timer came up and was decided: what to look at next, and when. Memory only; loading sets timers anew."""

from rota.core.decide.decision import Detail, find_lease, worker_of_timer
from rota.core.decide.timers import SWEEP_TASKS_MAX
from rota.core.ids import Millis, RunId
from rota.core.presence import watch_again
from rota.core.state import State


def take_starving(state: State, found: list[tuple[str, RunId, int]]) -> list[tuple[str, RunId, int]]:
    """The share of one sweep; the rest of its round is left for the next ones."""
    state.starving = found[SWEEP_TASKS_MAX:]
    return found[:SWEEP_TASKS_MAX]


def rearm(state: State, kind: str, key: tuple[object, ...], detail: Detail, now: Millis) -> None:
    """Arm the next timer of a kind that repeats, or wake matching where time has changed what it would find."""
    if kind == "sweep":
        state.set_timer(now + state.limits.sweep_ms, "sweep")
        for found in take_starving(state, detail if isinstance(detail, list) else []):
            state.set_timer(now, "starved", *found)
    elif kind in ("schedule", "forget", "receipts", "archive") and isinstance(detail, int):
        state.set_timer(max(detail, now + 1), kind, *key)
    elif kind in ("worker", "rested"):
        worker = worker_of_timer(state, key)
        if worker is not None and kind == "worker":
            watch_again(state, worker, now)
        elif worker is not None:
            state.index.touch(worker, freed=True)
    elif kind == "overrun":
        lease = find_lease(state, key)
        if lease is not None and lease.limit_at > now - state.stalled_ms:
            state.set_timer(lease.limit_at + state.stalled_ms, kind, *key)
    elif kind in ("rate", "alone"):
        bucket = state.index.buckets.get(key[0])
        if bucket is not None and kind == "rate":
            state.open_bucket(bucket, now)
        elif bucket is not None:
            state.index.fresh[bucket] = None
