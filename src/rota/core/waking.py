"""Chooses which idle agent sessions to notify of work that waits to be claimed. Grants nothing.

An event stirs a few buckets. Those are compared with the claims that wait and with a few idle sessions, the longest
idle first, so the cost does not depend on how many there are. Each sweep stirs all buckets and compares all sessions.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import islice
from operator import attrgetter

from rota.core.audience import Session
from rota.core.buckets import Age, Bucket
from rota.core.commands import ClaimTask
from rota.core.cycle import View, Waiting, Wake, cycle
from rota.core.ids import Millis, WorkerKey
from rota.core.live import LiveWorker, WaitingClaim
from rota.core.model import CLASS_WEIGHT
from rota.core.order import CLASSES
from rota.core.place import is_held
from rota.core.presence import idle_sessions, is_idle
from rota.core.state import State

# How many idle sessions, and as many tasks, of one bucket are looked at when something happened to it.
FEW = 64
# How many tasks of one bucket a sweep looks at: no more sessions than that could be told in one cycle. And how many
# sessions with claims that wait are looked at for the few that wait for such a task.
MANY = 1_000
# The claims of one session that wait at the same time. Of more the oldest is told only in its session's turn.
WAITING_CLAIMS_MAX = 64
# Whoever listens for wakes is heard of more often than this.
ATTENTIVE_MS = 10_000


def stir_all(state: State, now: Millis) -> None:
    """Look at everything once more, and forget wakes that do not matter any more."""
    for bucket in state.index.buckets.values():
        if bucket.live and bucket.demand.pull:
            state.index.stirred[bucket] = None
    state.wakes.forget_until(now - state.wake_settings.remembered_ms)


def wakes(state: State, now: Millis, *, everybody: bool = False) -> tuple[Wake, ...]:
    """Whom to tell of what, for the buckets that something happened to. Each is looked at once."""
    stirred, state.index.stirred = state.index.stirred, {}
    waiting: list[Waiting] = []
    sessions: dict[WorkerKey, Session] = {}
    for bucket in stirred:
        if not bucket.live or (state.index.may_be_held(bucket) and is_held(state, bucket, now)):
            continue
        first = list(_first(state, bucket, MANY if everybody else FEW))
        found = list(_everybody(bucket, now)) if everybody else _few(bucket, first, now)
        if any(session.idle for session in found):
            sessions.update({session.key: session for session in found})
            waiting += first
    if not waiting:
        return ()
    view = View(
        waiting=waiting,
        sessions=list(sessions.values()),
        woken=state.wakes.woken,
        settings=state.wake_settings,
    )
    return cycle(view, now).wakes


def wait_for_work(worker: LiveWorker, command: ClaimTask, now: Millis) -> None:
    """A claim found nothing and waits: the worker is told of the next task that the claim asks for."""
    until = now + command.wait_ms
    claim = WaitingClaim(until=until, least=command.least, where=command.where, run=command.run)
    worker.claims.pop(command.command_id, None)
    worker.claims[command.command_id] = claim
    if len(worker.claims) > WAITING_CLAIMS_MAX:
        del worker.claims[next(iter(worker.claims))]
    if worker.shape is not None:
        worker.shape.claimants.pop(worker.key, None)
        worker.shape.claimants[worker.key] = worker


def found_nothing(state: State, worker: LiveWorker, now: Millis) -> None:
    """A claim found nothing. What pools held back is told anew when they open: a wake for it could not be followed."""
    for bucket in worker.shape.waiting if worker.shape is not None else ():
        if bucket.demand.signature.pools:
            is_held(state, bucket, now)


def stop_waiting(worker: LiveWorker, claim: str | None = None) -> None:
    """The worker was woken; or only one of its claims, by its command id, has ended or was withdrawn."""
    if claim is None:
        worker.claims.clear()
    else:
        worker.claims.pop(claim, None)
    if not worker.claims and worker.shape is not None:
        worker.shape.claimants.pop(worker.key, None)


def woke(state: State, wake: Wake, now: Millis) -> LiveWorker | None:
    """Remember that a session was told of a task. It goes to the end of the line of those that are idle.

    Claims that wait are used up by the wake: each looks again, and waits anew if it finds nothing.
    """
    worker = state.workers.get(wake.session)
    if worker is not None:
        stop_waiting(worker)
        state.wakes.note(wake.item, wake.session, now)
        state.decided["wake"] += 1
        state.uses += 1
        worker.used = state.uses
        if worker.shape is not None:
            worker.shape.park(worker)
    return worker


def _session(worker: LiveWorker, now: Millis, *, idle: bool) -> Session:
    return Session(
        key=worker.key,
        capacity=worker.row.capacity,
        values=worker.values,
        created_at=worker.row.registered_at,
        idle=idle,
        totals=worker.totals,
        claims=tuple(claim for claim in worker.claims.values() if claim.until > now),
    )


def _few(bucket: Bucket, first: list[Waiting], now: Millis) -> list[Session]:
    """Some idle sessions that suit a bucket: those whose claims wait for one of its first tasks, and those that were
    heard of just now, if any, because they will listen.
    """
    requires = bucket.demand.signature.requires
    runs = {item.key[1]: item for item in first}
    heaviest = max(first, key=attrgetter("weight"), default=None)

    def is_asked_for(worker: LiveWorker) -> bool:
        wanted = ((claim, runs.get(claim.run) if claim.run else heaviest) for claim in worker.claims.values())
        return any(item is not None and claim.accepts(item.key, requires, item.weight) for claim, item in wanted)

    looked_at = islice(_claimants(bucket, now), MANY)
    asking = list(islice((worker for worker in looked_at if is_asked_for(worker)), FEW))
    attentive = (worker for worker in idle_sessions(bucket, now) if now - worker.seen_at <= ATTENTIVE_MS)
    found = list(islice(attentive, FEW)) or list(islice(idle_sessions(bucket, now), FEW))
    return [_session(worker, now, idle=True) for worker in {one.key: one for one in (*asking, *found)}.values()]


def _claimants(bucket: Bucket, now: Millis) -> Iterator[LiveWorker]:
    """Idle sessions that suit a bucket and whose claims wait, the longest wait first. Claims that are over go."""
    for _, shape in bucket.shapes:
        for worker in list(shape.claimants.values()):
            for name in [name for name, claim in worker.claims.items() if claim.until <= now]:
                stop_waiting(worker, name)
            if worker.claims and is_idle(worker, now):
                yield worker


def _everybody(bucket: Bucket, now: Millis) -> Iterator[Session]:
    for _, shape in bucket.shapes:
        for worker in shape.workers.values():
            yield _session(worker, now, idle=is_idle(worker, now))


def _first(state: State, bucket: Bucket, most: int) -> Iterator[Waiting]:
    """The first tasks of a bucket in the order of claims, one for each run: a run is what a session is told of."""
    told: dict[tuple[str, str], None] = {}
    for priority in CLASSES:
        for entry in in_order(bucket.ages.get(priority, ())):
            if len(told) >= most:
                return
            eligible_at, _, _, run, idx = entry
            if run.key not in told and state.index.is_waiting(bucket, entry):
                told[run.key] = None
                yield Waiting(
                    key=run.key,
                    demand=bucket.demand,
                    weight=CLASS_WEIGHT[priority],
                    eligible_since=state.claimable_since(bucket, run, idx, eligible_at),
                    opened_at=bucket.opened_at,
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
