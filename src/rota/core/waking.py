"""Whom to tell of work that waits to be claimed. The coordinator's use of `cycle`; nobody is given anything here.

What happens stirs a few buckets, and those are looked at with a few of the sessions that are idle, the longest idle
first: that is quick however many there are. Each sweep stirs all of them and looks at everybody.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import islice

from rota.core.audience import Session
from rota.core.buckets import Age, Bucket
from rota.core.cycle import CycleSettings, View, Waiting, Wake, cycle
from rota.core.ids import Millis, WorkerKey
from rota.core.live import LiveWorker
from rota.core.model import CLASS_WEIGHT, Mood
from rota.core.order import CLASSES
from rota.core.place import is_held
from rota.core.state import State

# How many idle sessions, and as many tasks, of one bucket are looked at when something happened to it.
FEW = 64
# How many tasks of one bucket a sweep looks at: no more sessions than that could be told in one cycle.
MANY = 1_000
# Whoever listens for wakes is heard of more often than this.
ATTENTIVE_MS = 10_000
SETTINGS = CycleSettings()


def stir_all(state: State, now: Millis) -> None:
    """Look at everything once more, and forget wakes that do not matter any more."""
    for bucket in state.index.buckets.values():
        if bucket.live and bucket.demand.pull:
            state.index.stirred[bucket] = None
    state.wakes.forget_until(now - SETTINGS.remembered_ms)


def wakes(state: State, now: Millis, *, everybody: bool = False) -> tuple[Wake, ...]:
    """Whom to tell of what, for the buckets that something happened to. Each is looked at once."""
    stirred, state.index.stirred = state.index.stirred, {}
    waiting: list[Waiting] = []
    sessions: dict[WorkerKey, Session] = {}
    for bucket in stirred:
        if not bucket.live or (state.index.may_be_held(bucket) and is_held(state, bucket, now)):
            continue
        found = list(_everybody(bucket, now)) if everybody else _few(bucket, now)
        if any(session.idle for session in found):
            sessions.update({session.key: session for session in found})
            waiting += _first(state, bucket, MANY if everybody else FEW)
    if not waiting:
        return ()
    view = View(waiting=waiting, sessions=list(sessions.values()), woken=state.wakes.woken, settings=SETTINGS)
    return cycle(view, now).wakes


def woke(state: State, wake: Wake, now: Millis) -> LiveWorker | None:
    """Remember that a session was told of a task. It goes to the end of the line of those that are idle."""
    worker = state.workers.get(wake.session)
    if worker is not None:
        state.wakes.note(wake.item, wake.session, now)
        state.decided["wake"] += 1
        state.uses += 1
        worker.used = state.uses
        if worker.shape is not None:
            worker.shape.park(worker)
    return worker


def is_idle(worker: LiveWorker, now: Millis) -> bool:
    """Whether a session could begin something new at once."""
    row = worker.row
    is_free = worker.present and worker.mood is Mood.IDLE and worker.slots_free > 0
    return is_free and not row.draining and row.quarantined_until <= now


def _session(worker: LiveWorker, *, idle: bool) -> Session:
    return Session(
        key=worker.key,
        capacity=worker.row.capacity,
        values=worker.values,
        created_at=worker.row.registered_at,
        idle=idle,
        totals=worker.totals,
    )


def _few(bucket: Bucket, now: Millis) -> list[Session]:
    """Some idle sessions that suit a bucket: those that were heard of just now, if any, because they will listen."""
    attentive = (worker for worker in _idle(bucket, now) if now - worker.seen_at <= ATTENTIVE_MS)
    found = list(islice(attentive, FEW)) or list(islice(_idle(bucket, now), FEW))
    return [_session(worker, idle=True) for worker in found]


def _idle(bucket: Bucket, now: Millis) -> Iterator[LiveWorker]:
    """Idle sessions that suit a bucket, what it prefers first, then the longest idle."""
    for _, shape in bucket.shapes:
        for group in shape.idle.values():
            for worker in group.values():
                if is_idle(worker, now):
                    yield worker


def _everybody(bucket: Bucket, now: Millis) -> Iterator[Session]:
    for _, shape in bucket.shapes:
        for worker in shape.workers.values():
            yield _session(worker, idle=is_idle(worker, now))


def _first(state: State, bucket: Bucket, most: int) -> Iterator[Waiting]:
    """The first tasks of a bucket in the order of claims, one for each run: a run is what a session is told of."""
    told: dict[tuple[str, str], None] = {}
    for priority in CLASSES:
        for entry in in_order(bucket.ages.get(priority, ())):
            if len(told) >= most:
                return
            eligible_at, _, _, run, _ = entry
            if run.key not in told and state.index.is_waiting(bucket, entry):
                told[run.key] = None
                yield Waiting(
                    key=run.key,
                    demand=bucket.demand,
                    weight=CLASS_WEIGHT[priority],
                    eligible_since=state.waits_since(bucket, eligible_at),
                )


def in_order(heap: Iterable[Age]) -> Iterator[Age]:
    """What is in a heap, the least first, as far as it is asked for; the heap is left as it is."""
    entries = heap if isinstance(heap, list) else list(heap)
    ahead: list[tuple[Age, int]] = [(entries[0], 0)] if entries else []
    while ahead:
        entry, place = heappop(ahead)
        yield entry
        for child in (2 * place + 1, 2 * place + 2):
            if child < len(entries):
                heappush(ahead, (entries[child], child))
