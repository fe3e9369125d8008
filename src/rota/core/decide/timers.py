"""Deciding what a timer means when it comes up.

A timer only says "look again"; whether something is due is read from the state, so a late, early or repeated timer is
harmless.
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice

from msgspec import structs

from rota.core import commands as cm
from rota.core.bounds import RECEIPTS_KEPT_MS
from rota.core.buckets import Bucket
from rota.core.calendar import due_slots
from rota.core.changes import (
    Change,
    GraphDropped,
    ReceiptDropped,
    RunArchived,
    RunEnded,
    ScheduleAdvanced,
    ScheduleDropped,
    TaskEnded,
    TaskNoted,
    TaskRequeued,
    TaskStarved,
)
from rota.core.decide.decision import AT_CAP, Decision, find_lease, run_of_timer, spare_receipts, worker_of_timer
from rota.core.decide.leases import overran, returned, revoked_ended, went_unheard
from rota.core.decide.runs import continue_run, look_after, scheduled_run, stop_run
from rota.core.decide.workers import gone
from rota.core.ids import GraphDigest, Millis, RunId, ScheduleId
from rota.core.ladder import (
    FAILED_UNSERVED,
    NO_FIT,
    NO_FIT_CHARS_MAX,
    NOT_CLAIMED,
    PARKED,
    STILL_QUEUED,
    ClimbRule,
    StarvationCause,
    Thresholds,
    Tier,
    is_declined,
    may_climb,
    tier_of,
)
from rota.core.live import LiveRun
from rota.core.model import FailureClass, Unservable
from rota.core.pauses import pause_reasons
from rota.core.plan import DEADLOCK, Cascade
from rota.core.presence import idle_sessions, is_regrantable, silent_at
from rota.core.reap import (
    FELL_SILENT,
    LEASE_RAN_OUT,
    NEVER_ACKNOWLEDGED,
    ORPHANED,
    REGRANTED,
    WAS_FORGOTTEN,
    AgentCandidate,
    DispatchCandidate,
    RunCandidate,
    is_agent_lost,
    is_dispatch_lost,
    is_orphaned,
)
from rota.core.records import Task
from rota.core.spans import show_slot, show_span
from rota.core.state import State
from rota.core.states import (
    ASSIGNED,
    FAILED,
    NEEDS_ATTENTION,
    QUEUED,
    RUN_TERMINAL,
    UP_FOR_RESCHEDULE,
    UP_FOR_RETRY,
    RunState,
)
from rota.core.why import queued_reasons

SWEEP_TASKS_MAX = 200
SWEEP_ROUND_MAX = 20_000
SLOTS_PER_LOOK = 20
RECEIPTS_PER_LOOK = 100
THRESHOLDS = Thresholds()


def tick(state: State, command: cm.Tick, now: Millis) -> Decision:
    """What is due."""
    return TICKS[command.kind](state, command.key, now)


def due(state: State, key: tuple[object, ...], now: Millis) -> Decision:
    """A cooldown is over."""
    run = run_of_timer(state, key)
    task = run.tasks.get(int(str(key[2]))) if run is not None else None
    if run is None or task is None or task.state not in (UP_FOR_RETRY, UP_FOR_RESCHEDULE):
        return Decision([])
    if run.row.stopping is not None or task.due_at > now:
        return Decision([])
    cause = "retry" if task.state is UP_FOR_RETRY else "reschedule"
    return Decision([TaskRequeued(*run.key, task.idx, now, cause)])


def deadline(state: State, key: tuple[object, ...], now: Millis) -> Decision:
    """A run is out of time."""
    run = run_of_timer(state, key)
    if run is None or run.row.state in RUN_TERMINAL or run.row.stopping is not None:
        return Decision([])
    if not run.row.deadline_at or run.row.deadline_at > now:
        return Decision([])
    return Decision(stop_run(run, RunState.FAILED, "the run exceeded its time limit", now))


def archive(state: State, key: tuple[object, ...], now: Millis) -> Decision:
    """An ended run has been kept long enough."""
    run = run_of_timer(state, key)
    if run is None or run.row.state not in RUN_TERMINAL or run.is_kept:
        return Decision([])
    if run.leased:
        # Of its leases one that was revoked is not over yet.
        return Decision([], detail=now + state.limits.beat_ms)
    # Whoever took it out of history is given as long to say what for. So is whoever was about to in an earlier reign:
    # what was read there must not come true after the run has been back in between.
    at = max(run.row.ended_at, run.revived_at, state.born_at) + state.retain_ms(run)
    if now < at:
        return Decision([], detail=at)
    return Decision([RunArchived(*run.key, now), *spare_receipts(state, now)])


def watch_worker(state: State, key: tuple[object, ...], now: Millis) -> Decision:
    """Leases of one worker: expired, granted and never acknowledged, or to be granted to another while it is silent.

    Who claims work acknowledges by that.
    """
    worker = worker_of_timer(state, key)
    if worker is None:
        return Decision([])
    limits = state.limits
    clock = now - state.stalled_ms
    changes: list[Change] = []
    for lease in worker.leases.values():
        renewed_at = max(1, lease.expires_at - lease.task.lease_ms)
        about = (lease.run.row.id, lease.run.row.name, lease.run.graph.task_id(lease.task.idx), lease.task.attempt)
        silent = AgentCandidate(*about, renewed_at)
        unheard = DispatchCandidate(*about, max(1, lease.begun_at))
        if is_agent_lost(silent, clock, lease.task.lease_ms):
            cause = LEASE_RAN_OUT if worker.row.capacity.pull else FELL_SILENT
            changes.append(returned(lease, cause, now))
        elif (
            lease.task.state is ASSIGNED
            and lease.confirmed
            and not worker.row.capacity.pull
            and is_dispatch_lost(unheard, clock, limits.dispatch_ms)
        ):
            changes.append(returned(lease, NEVER_ACKNOWLEDGED, now))
        elif (
            is_regrantable(lease)
            and lease.confirmed
            and silent_at(lease) <= clock
            and state.index.has_other(lease.bucket, worker.key, now)
        ):
            changes.append(structs.replace(returned(lease, REGRANTED, now), revoked=True))
    changes += [revoked_ended(lease, now) for lease in worker.revoked.values() if lease.expires_at <= clock]
    return Decision(changes)


def watch_overrun(state: State, key: tuple[object, ...], now: Millis) -> Decision:
    """An attempt is beyond its time limit, or its worker has not said anything about it for too long.

    Its worker should have ended it; this is for workers that do not. What a task says of itself comes first: it may
    have no retries for that.
    """
    lease = find_lease(state, key)
    clock = now - state.stalled_ms
    if lease is not None and 0 < lease.overruns_at <= clock:
        return Decision(overran(state, lease, now))
    if lease is not None and 0 < lease.unheard_at <= clock:
        return Decision(went_unheard(state, lease, now))
    return Decision([])


def look_at_schedule(state: State, key: tuple[object, ...], now: Millis) -> Decision:
    """Make the runs of the slots that are due; cursor and runs commit together, so a slot fires once."""
    schedule = state.schedules.get((str(key[0]), ScheduleId(str(key[1]))))
    if schedule is None or schedule.paused:
        return Decision([])
    workflow = state.workflows.get((schedule.tenant, state.graphs[(schedule.tenant, schedule.graph)].graph.name))
    if schedule.version and workflow is not None and workflow.paused:
        return Decision([])
    graph = state.graphs[(schedule.tenant, schedule.graph)].graph
    active = state.scheduled_runs.get((schedule.tenant, schedule.id), 0)
    found = due_slots(schedule.spec, schedule.cursor, now, active, SLOTS_PER_LOOK)
    changes: list[Change] = []
    version = None if workflow is None else workflow.kept_version(schedule.version)
    for slot in found.run:
        wanted = name = RunId(f"{schedule.id}@{show_slot(slot)}")
        number = 1
        while (schedule.tenant, name) in state.runs or (schedule.tenant, name) in state.touched.archives:
            number += 1
            name = RunId(f"{wanted}+{number}")
        changes.append(scheduled_run(schedule, name, graph, version, slot, now))
    missed = sum(span.count for span in found.missed)
    if found.cursor != schedule.cursor and found.cursor is not None:
        changes.append(ScheduleAdvanced(schedule.tenant, schedule.id, found.cursor, len(found.run), missed))
    if schedule.backfill and not (changes or active or found.held) and found.next_at is None:
        # It has made all its runs, and they have ended.
        changes.append(ScheduleDropped(schedule.tenant, schedule.id, now))
    cap = schedule.spec.max_active_runs
    is_at_cap = cap and active + len(found.run) >= cap and found.held
    return Decision(changes, AT_CAP if is_at_cap else "", found.next_at)


def sweep(state: State, key: tuple[object, ...], now: Millis) -> Decision:  # noqa: ARG001 - one sweep for all
    """Which tasks climb the ladder in this cycle and the next ones: those that no worker can serve, and those that no
    session claims, as the rule of the ladder says. Each is decided by itself.

    A round lists everybody who has waited long enough; each sweep takes its share off it; the next round begins when
    it is used up. So whoever is listed climbs, however many there are.
    """
    starving = chain(_unserved(state, now), _unclaimed(state, now))
    return Decision([], detail=state.starving or list(islice(starving, SWEEP_ROUND_MAX)))


def _unserved(state: State, now: Millis) -> Iterator[tuple[str, RunId, int]]:
    for bucket in state.index.buckets.values():
        if not bucket.live or state.index.is_servable(bucket) or is_paused(state, bucket):
            continue
        patience_ms = _patience_ms(state, bucket)
        oldest = state.index.oldest(bucket)
        is_young = oldest is None or now - state.waits_since(bucket, oldest[0]) < patience_ms
        for run, task in islice(bucket.tasks(), SWEEP_TASKS_MAX if is_young else None):
            # One of which nothing has been said yet is told at once why it waits; of many alike some are enough.
            if not task.note or now - state.waits_since(bucket, task.eligible_at) >= patience_ms:
                yield (*run.key, task.idx)


def _unclaimed(state: State, now: Millis) -> Iterator[tuple[str, RunId, int]]:
    """Tasks that a session could claim and none does."""
    for run, task in unclaimed_tasks(state, now):
        yield (*run.key, task.idx)


def unclaimed_tasks(state: State, now: Millis) -> Iterator[tuple[LiveRun, Task]]:
    """Tasks that a session could claim and that climb because none does."""
    if state.wake_settings.rule is ClimbRule.QUEUED:
        buckets = [bucket for bucket in state.index.buckets.values() if bucket.live and bucket.demand.pull]
        candidates = chain.from_iterable(bucket.tasks() for bucket in buckets)
    else:
        # Only what a session was told of can have been declined.
        offered = [run for key in state.wakes.offered if (run := state.runs.get(key)) is not None]
        candidates = ((run, task) for run in offered for task in run.tasks.values())
    for run, task in candidates:
        if unclaimed_cause(state, run, task, now) is not None:
            yield run, task


def unclaimed_cause(state: State, run: LiveRun, task: Task, now: Millis) -> StarvationCause | None:
    """Why a task climbs that a session could claim: idle ones were told of it and none claimed it within the threshold,
    or, where the rule of the ladder counts that, it is still queued.
    """
    if task.state is not QUEUED or not run.is_runnable:
        return None
    bucket = state.bucket_of(run, task)
    if not bucket.demand.pull or state.queue_of(run, task).unservable is Unservable.FAIL:
        return None
    starve_ms = state.limits.starve_ms
    since = state.claimable_since(bucket, run, task.idx, task.eligible_at)
    if not may_climb(since, now, starve_ms) or state.hold_reasons(bucket, now):
        return None
    offered_at, claimed_at = state.wakes.offered.get(run.key), max(bucket.claimed_at, bucket.opened_at, since)
    if is_declined(offered_at, claimed_at, now, starve_ms) and next(idle_sessions(bucket, now), None) is not None:
        return StarvationCause.DECLINED
    if state.wake_settings.rule is ClimbRule.QUEUED and state.index.is_servable(bucket):
        return StarvationCause.QUEUED
    return None


def is_paused(state: State, bucket: Bucket) -> bool:
    """Whether nobody is given a bucket's tasks because somebody paused them."""
    return state.index.has_pauses and bool(pause_reasons(state.pauses, bucket.demand.signature))


def _patience_ms(state: State, bucket: Bucket) -> Millis:
    """How long a task of this bucket waits before its being unservable has consequences."""
    signature = bucket.demand.signature
    queue = state.queue(signature.tenant, signature.queue)
    return queue.unservable_ms if queue is not None and queue.unservable is Unservable.FAIL else state.limits.starve_ms


def starved(state: State, key: tuple[object, ...], now: Millis) -> Decision:
    """One task, one cycle: it climbs or fails, as its queue says. Before that the reason is noted on the task."""
    run = run_of_timer(state, key)
    task = run.tasks.get(int(str(key[2]))) if run is not None else None
    if run is None or task is None or task.state is not QUEUED or not run.is_runnable:
        return Decision([])
    bucket = state.bucket_of(run, task)
    cause = unclaimed_cause(state, run, task, now)
    if cause is not None:
        return Decision(_climb(state, run, task, now, cause))
    if state.index.is_servable(bucket) or is_paused(state, bucket):
        return Decision([])
    if not may_climb(state.waits_since(bucket, task.eligible_at), now, _patience_ms(state, bucket)):
        return Decision([] if task.note else [TaskNoted(*run.key, task.idx, _no_fit(state, run, task, now), now)])
    if state.queue_of(run, task).unservable is Unservable.FAIL:
        return Decision(_fail_unserved(state, run, task, now))
    return Decision(_climb(state, run, task, now, StarvationCause.UNSERVED))


def _no_fit(state: State, run: LiveRun, task: Task, now: Millis) -> str:
    return f"{NO_FIT}{queued_reasons(state, run, task, now)[-1].text}"[:NO_FIT_CHARS_MAX]


def give_up(state: State, key: tuple[object, ...], now: Millis) -> Decision:
    """A task was parked in a queue in which nobody looks after such tasks: it fails, with what happened to it."""
    run = run_of_timer(state, key)
    task = run.tasks.get(int(str(key[2]))) if run is not None else None
    if run is None or task is None or task.state is not NEEDS_ATTENTION or run.row.stopping is not None:
        return Decision([])
    if run.row.pending or state.queue_of(run, task).unservable is not Unservable.FAIL:
        return Decision([])
    cascade = Cascade(run, now)
    cascade.task_ended(task.idx, FAILED)
    ended = TaskEnded(*run.key, task.idx, FAILED, now, FailureClass.INTERNAL, task.error)
    return Decision([ended, *cascade.settle()])


def _starved_note(state: State, run: LiveRun, task: Task, now: Millis, cause: StarvationCause) -> str:
    match cause:
        case StarvationCause.UNSERVED:
            return _no_fit(state, run, task, now)
        case StarvationCause.DECLINED:
            offered_ms = now - state.wakes.offered.get(run.key, now)
            return f"{NOT_CLAIMED}idle sessions have been told of it for {show_span(offered_ms)}"
        case StarvationCause.QUEUED:
            return f"{STILL_QUEUED}it has waited for {show_span(now - task.eligible_at)}"


def _climb(state: State, run: LiveRun, task: Task, now: Millis, cause: StarvationCause) -> list[Change]:
    cycles = task.cycles + 1
    tier = tier_of(cycles, THRESHOLDS)
    # Looking for the nearest worker costs more than the rest of this, so it is done a few times and not each time.
    note = _starved_note(state, run, task, now, cause) if tier != task.tier or cycles == 1 else ""
    changes: list[Change] = [TaskStarved(*run.key, task.idx, cycles, int(tier), now, note)]
    if tier is Tier.PARK:
        text = f"{PARKED[cause]} for {(now - task.eligible_at) // 1000} s ({cycles} cycles)"
        changes.append(TaskEnded(*run.key, task.idx, NEEDS_ATTENTION, now, None, text))
    return changes


def _fail_unserved(state: State, run: LiveRun, task: Task, now: Millis) -> list[Change]:
    why = queued_reasons(state, run, task, now)[-1].text
    text = f"{FAILED_UNSERVED}: {why}; so it was for {(now - task.eligible_at) // 1000} s"
    cascade = Cascade(run, now)
    cascade.task_ended(task.idx, FAILED)
    return [TaskEnded(*run.key, task.idx, FAILED, now, FailureClass.FATAL, text), *cascade.settle()]


def review(state: State, key: tuple[object, ...], now: Millis) -> Decision:
    """Whatever a run is due that no timer or countdown has done: the part of the safety net that looks at one run."""
    run = run_of_timer(state, key)
    if run is None:
        return Decision([])
    if run.row.state in RUN_TERMINAL:
        return archive(state, key, now)
    if run.row.pending:
        return continue_run(state, cm.ContinueRun(tenant=run.row.tenant, run=run.row.id), now)
    late = deadline(state, key, now)
    if late.changes or not run.is_runnable:
        return late
    for idx, task in run.tasks.items():
        if task.due_at and task.due_at <= now:
            late.changes += due(state, (*key, idx), now).changes
        elif task.state is NEEDS_ATTENTION and not late.changes:
            # One at a time: what follows from an end must not be decided twice.
            late.changes += give_up(state, (*key, idx), now).changes
    return late if late.changes else replan(state, key, now)


def replan(state: State, key: tuple[object, ...], now: Millis) -> Decision:
    """Judge every node of a run again; finds nothing unless a countdown was wrong."""
    return Decision(_planned_anew(state, key, now)[0])


def _planned_anew(state: State, key: tuple[object, ...], now: Millis) -> tuple[list[Change], RunEnded | None]:
    """What planning from scratch finds, and the end of a run for which it finds nothing: that is left to the reaper."""
    run = run_of_timer(state, key)
    if run is None or run.row.state is not RunState.RUNNING or not run.is_runnable or run.row.pending:
        return [], None
    cascade = Cascade(run, now, recount=True)
    for node in range(len(run.graph.specs)):
        cascade.judge(node)
    changes = cascade.settle()
    last = changes[-1] if changes else None
    if isinstance(last, RunEnded) and last.reason.startswith(DEADLOCK):
        return changes[:-1], last
    return changes, None


def look_back(state: State, key: tuple[object, ...], now: Millis) -> Decision:
    """Something about the run before this one changed: what waits for it is judged again."""
    run = run_of_timer(state, key)
    if run is None or run.row.state is not RunState.RUNNING or run.row.stopping is not None or run.row.pending:
        return Decision([])
    cascade = Cascade(run, now)
    for node in run.graph.past:
        cascade.judge(node)
    return Decision(cascade.settle())


def orphan(state: State, key: tuple[object, ...], now: Millis) -> Decision:
    """A run that nothing moves: planned once more, and failed when it has been quiet for long enough.

    A run that comes to a standstill in the course of events has failed there and then, as a deadlock. This is for one
    of which no event told.
    """
    changes, stuck = _planned_anew(state, key, now)
    if changes or stuck is None:
        return Decision(changes)
    run = state.runs[(stuck.tenant, stuck.run)]
    times = [max(task.eligible_at, task.ended_at) for task in run.tasks.values()]
    candidate = RunCandidate(run.row.id, run.row.name, max([run.row.started_at, *times]))
    if not is_orphaned(candidate, now, state.limits.orphan_ms):
        return Decision([])
    reason = stuck.reason.replace(DEADLOCK, ORPHANED, 1)
    return Decision([RunEnded(*run.key, RunState.FAILED, now, reason)])


def forget_worker(state: State, key: tuple[object, ...], now: Millis) -> Decision:
    """A worker has been away for so long that it no longer counts as registered."""
    worker = worker_of_timer(state, key)
    # A pull worker has no stream to lose: only its silence tells.
    if worker is None or (worker.present and not worker.row.capacity.pull):
        return Decision([])
    patience_ms = state.silence_of(worker)
    seen_at = worker.seen_at + state.stalled_ms - worker.stalled_ms
    if now - seen_at < patience_ms:
        return Decision([], detail=seen_at + patience_ms)
    return Decision(gone(worker, now, FELL_SILENT if worker.row.capacity.pull else WAS_FORGOTTEN))


def drop_graph(state: State, key: tuple[object, ...], now: Millis) -> Decision:  # noqa: ARG001 - use decides, not time
    """A graph nobody uses."""
    graph = state.graphs.get((str(key[0]), GraphDigest(str(key[1]))))
    if graph is None or graph.users:
        return Decision([])
    return Decision([GraphDropped(graph.tenant, graph.digest)])


def drop_receipts(state: State, key: tuple[object, ...], now: Millis) -> Decision:  # noqa: ARG001 - one timer for all
    """Answers that were kept long enough, the oldest first; and when to look at the next."""
    changes: list[Change] = []
    for receipt in state.receipts.values():
        if now - receipt.at < RECEIPTS_KEPT_MS or len(changes) == RECEIPTS_PER_LOOK:
            return Decision(changes, detail=receipt.at + RECEIPTS_KEPT_MS)
        changes.append(ReceiptDropped(receipt.tenant, receipt.command_id))
    return Decision(changes)


def nothing(state: State, key: tuple[object, ...], now: Millis) -> Decision:  # noqa: ARG001 - the loop acts on it
    """Timers that only wake matching."""
    return Decision([])


TICKS: dict[str, Callable[[State, tuple[object, ...], Millis], Decision]] = {
    "due": due,
    "deadline": deadline,
    "archive": archive,
    "worker": watch_worker,
    "overrun": watch_overrun,
    "schedule": look_at_schedule,
    "sweep": sweep,
    "starved": starved,
    "parked": give_up,
    "review": review,
    "replan": replan,
    "past": look_back,
    "after": look_after,
    "orphan": orphan,
    "forget": forget_worker,
    "graph": drop_graph,
    "receipts": drop_receipts,
    "rested": nothing,
    "rate": nothing,
    "alone": nothing,
    "step": nothing,
}
