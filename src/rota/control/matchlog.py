"""The match log: every so often, for each queue in which tasks wait that nobody takes, one line that says why.

The reasons are those of `rota why`, so the two cannot disagree. A line is bounded, however much waits.
"""

from heapq import nsmallest

from rota.control.events import Tell
from rota.core.bounds import MATCH_LOG_MS_LEAST
from rota.core.buckets import Bucket
from rota.core.ids import Millis
from rota.core.model import Queue
from rota.core.reasons import Reasons
from rota.core.state import State
from rota.core.why import bucket_reasons

TOLD_MAX = 5
LINE_CHARS_MAX = 2_000

QueueKey = tuple[str, str]


class MatchLog:
    """When what was last told of each queue."""

    def __init__(self) -> None:
        self._look_at: Millis = 0
        self._told_at: dict[QueueKey, Millis] = {}

    def lines(self, state: State, now: Millis) -> list[Tell]:
        """What is to be told now; nothing most of the time."""
        if now < self._look_at:
            return []
        self._look_at = now + MATCH_LOG_MS_LEAST
        waiting = _waiting(state)
        self._told_at = {key: at for key, at in self._told_at.items() if key in waiting}
        found: list[Tell] = []
        for key, buckets in waiting.items():
            queue = state.queue(*key) or Queue(tenant=key[0], name=key[1])
            interval_ms = queue.worker_match_logging_interval_ms
            if interval_ms < 0 or now - self._told_at.get(key, 0) < interval_ms:
                continue
            # What has not waited for that long may have been taken by the time somebody reads of it.
            left = [bucket for bucket in buckets if _age_ms(state, bucket, now) >= interval_ms]
            if left:
                self._told_at[key] = now
                found.append(_line(state, key, left, now))
        return found


def _waiting(state: State) -> dict[QueueKey, list[Bucket]]:
    found: dict[QueueKey, list[Bucket]] = {}
    if state.index.queued:
        for bucket in state.index.buckets.values():
            if bucket.live:
                signature = bucket.demand.signature
                found.setdefault((signature.tenant, signature.queue), []).append(bucket)
    return found


def _age_ms(state: State, bucket: Bucket, now: Millis) -> Millis:
    oldest = state.index.oldest(bucket)
    return now - oldest[0] if oldest is not None else -1


def _line(state: State, key: QueueKey, buckets: list[Bucket], now: Millis) -> Tell:
    few = ((*each, bucket) for bucket in buckets for each in state.index.oldest_few(bucket))
    oldest = nsmallest(TOLD_MAX, few, key=lambda each: each[:2])
    reasons: dict[Bucket, Reasons] = {}
    told: dict[str, list[str]] = {}
    for at, _, run, task, bucket in oldest:
        if bucket not in reasons:
            reasons[bucket] = bucket_reasons(state, bucket, now)
        why = "; ".join(f"{item.code}: {item.text}" for item in reasons[bucket])
        told.setdefault(why, []).append(f"{run.row.id}/{run.graph.task_id(task.idx)} ({(now - at) // 1000} s)")
    text = " | ".join(f"{', '.join(names)}: {why}" for why, names in told.items())
    about = (
        ("tenant", key[0]),
        ("queue", key[1]),
        ("waiting", str(sum(bucket.live for bucket in buckets))),
        ("oldest", text if len(text) <= LINE_CHARS_MAX else text[: LINE_CHARS_MAX - 1] + "…"),
    )
    return Tell("match", about)
