"""Deciding about leases: reports and returns. Those who claim have a module of their own.

Time decides when we stop waiting for a worker; the fence alone decides whose answer counts. A report that does not name
the live lease, by its holder, in its incarnation, changes nothing and is told which of these it was.
"""

from enum import StrEnum
from hmac import compare_digest

from msgspec import Struct

from rota.core import commands as cm
from rota.core.bounds import (
    DELAY_MS_MAX,
    GROWTH_TASKS_MAX,
    INTEGER_MAX,
    INTERRUPTIONS_MAX,
    NAMES_PER_COMMAND_MAX,
    NO_ROOM_MS,
    REFUSED_REPORTS_TOLD_MAX,
    RESULT_BYTES_MAX,
    TASKS_PER_GRAPH_MAX,
)
from rota.core.changes import (
    RELEASED,
    AttemptEnded,
    AttemptStarted,
    Change,
    LeaseGranted,
    LeaseReturned,
    ReportRefused,
    RevokedLeaseEnded,
    RunEnded,
    TasksReset,
    WorkerQuarantined,
)
from rota.core.decide.decision import Decision, clean_text, find_task
from rota.core.decide.growing import go_on
from rota.core.decide.runs import remake
from rota.core.errors import Refused, headline
from rota.core.graph import LiveGraph, below_of, check_number, check_size
from rota.core.ids import NO_FENCE, BlobRef, Fence, Millis, RunId, TaskId, derive, fence_epoch
from rota.core.live import Lease, LiveRun, LiveWorker
from rota.core.model import FailureClass, Pairs
from rota.core.plan import Cascade
from rota.core.records import Growth, Task
from rota.core.retry import may_retry, retry_delay_ms
from rota.core.state import State
from rota.core.states import (
    ASSIGNED,
    FAILED,
    NEEDS_ATTENTION,
    NONE,
    QUEUED,
    SKIPPED,
    SUCCESS,
    TERMINAL,
    UP_FOR_RESCHEDULE,
    UP_FOR_RETRY,
    RunState,
    TaskState,
)

STRIKES_MAX = 5
REMAKE_LOOK_MS = 1_000
# How long claimed work that was lost twice rests; twice as long each further time.
REDELIVER_MS = 5_000
REDELIVER_MS_MAX = 300_000
OVERRAN = "ran beyond its limit of"
UNHEARD = "nothing was said about it for"


class Judgement(StrEnum):
    """What became of a report. All but the first two leave everything as it was."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    UNKNOWN_RUN = "unknown_run"
    UNKNOWN_TASK = "unknown_task"
    UNKNOWN_FENCE = "unknown_fence"
    NOT_THE_HOLDER = "not_the_holder"
    OTHER_INCARNATION = "other_incarnation"
    WRONG_TOKEN = "wrong_token"  # noqa: S105 - what is wrong, not the token
    ALREADY_ENDED = "already_ended"
    OLD_EPOCH = "old_epoch"
    OLD_FENCE = "old_fence"
    OTHER_OUTCOME = "other_outcome"


class Input(Struct, frozen=True, array_like=True):
    """What an upstream gave: one result, or one for each task of a group; None where there was none.

    A task mapped over nothing has no results.
    """

    task: TaskId
    results: tuple[bytes | None, ...]
    # A group of one is a group still: who takes its output is given a list.
    is_group: bool = False
    # Whether it is what the task itself went on as.
    is_grown: bool = False


class Offer(Struct, frozen=True, omit_defaults=True):
    """A granted lease as its worker sees it. `map_index` is -1 for a task that is not one of a group."""

    tenant: str
    run: RunId
    task: int
    task_id: TaskId
    fence: Fence
    attempt: int
    kind: str
    work: bytes
    params: bytes
    timeout_ms: int
    lease_ms: int
    inputs: tuple[Input, ...] = ()
    # The graph's name, the workflow's version, and what the run is about.
    graph: str = ""
    version: int = 0
    logical_at: Millis = 0
    map_index: int = -1
    first_started_at: Millis = 0
    bundle: BlobRef | None = None
    # For those who claim: how often it was lost before, what was said of it, and when it fails.
    deliveries: int = 0
    labels: Pairs = ()
    deadline_at: Millis = 0


def judge_report(state: State, command: cm.Report) -> tuple[Judgement, Lease | None]:
    """Whether a report speaks for the live lease, and if not, why not."""
    run = state.runs.get((command.tenant, command.run))
    if run is None:
        return Judgement.UNKNOWN_RUN, None
    task = run.tasks.get(command.task)
    if task is None:
        return Judgement.UNKNOWN_TASK, None
    lease = state.leases.get(command.fence)
    if lease is not None and lease.task is task:
        if lease.worker.key != (command.worker_tenant, command.worker):
            return Judgement.NOT_THE_HOLDER, None
        if task.incarnation != command.incarnation:
            return Judgement.OTHER_INCARNATION, None
        if not is_token(task, command.token_hash):
            return Judgement.WRONG_TOKEN, None
        return Judgement.ACCEPTED, lease
    if command.fence == task.done_fence and command.fence != NO_FENCE:
        return Judgement.DUPLICATE if _repeats(task, command) else Judgement.OTHER_OUTCOME, None
    if command.fence >= state.next_fence():
        return Judgement.UNKNOWN_FENCE, None
    if task.state in TERMINAL:
        return Judgement.ALREADY_ENDED, None
    if fence_epoch(command.fence) < state.epoch:
        return Judgement.OLD_EPOCH, None
    return Judgement.OLD_FENCE, None


def _repeats(task: Task, command: cm.Report) -> bool:
    """Whether a report on the lease that ended last says what was recorded then.

    Compared with the task's record, so the answer is the same after a failover. Only a claimant (which has a token) is
    judged: a push worker repeats its unacknowledged reports as they were, and needs no verdict. A failure has an error
    text, and a release leaves none; a claimant's success is the only one with a result.
    """
    if not command.token_hash or command.outcome is cm.Outcome.STARTED:
        return True
    if task.state is SUCCESS:
        return command.outcome is cm.Outcome.SUCCESS and (command.result or None) == (task.result or None)
    if task.state in TERMINAL and task.state is not FAILED:
        return False
    if task.error:
        return command.outcome is cm.Outcome.FAILED and clean_text(command.error) == task.error
    return command.outcome is cm.Outcome.RELEASED


def is_token(task: Task, token_hash: str) -> bool:
    """Whether somebody knows the secret of a task's lease; compared in the same time whatever it says."""
    return compare_digest(task.token_hash.encode(), token_hash.encode(errors="replace"))


def report(state: State, command: cm.Report, now: Millis) -> Decision:
    """Take a worker's word on an attempt, if it is that worker's to give."""
    if command.result is not None:
        check_size(command.result, RESULT_BYTES_MAX, "result")
    for name, names in (("expands", command.expands), ("lost", command.lost), ("skips", command.skips)):
        check_number(len(names), 0, NAMES_PER_COMMAND_MAX, name)
    judgement, lease = judge_report(state, command)
    if lease is None:
        check_number(command.fence, 0, INTEGER_MAX, "fence")
        check_number(command.task, 0, TASKS_PER_GRAPH_MAX, "task")
        changes: list[Change] = []
        run = state.runs.get((command.tenant, command.run))
        if judgement is not Judgement.DUPLICATE and (run is None or run.told < REFUSED_REPORTS_TOLD_MAX):
            changes.append(
                ReportRefused(command.tenant, command.run, command.task, command.fence, judgement.value, now)
            )
        revoked = state.revoked.get(command.fence)
        is_holder = revoked is not None and revoked.worker.key == (command.worker_tenant, command.worker)
        if revoked is not None and is_holder and command.outcome is not cm.Outcome.STARTED:
            changes.append(revoked_ended(revoked, now))
        return Decision(changes, answer=judgement)
    if command.outcome is cm.Outcome.STARTED:
        if lease.task.state is not ASSIGNED:
            return Decision([], answer=Judgement.DUPLICATE)
        return Decision([AttemptStarted(*lease.run.key, lease.task.idx, lease.fence, now)], answer=judgement)
    return Decision(_end_attempt(state, command, lease, now), answer=judgement)


def _end_attempt(state: State, command: cm.Report, lease: Lease, now: Millis) -> list[Change]:
    run, task = lease.run, lease.task
    if command.outcome is cm.Outcome.RELEASED:
        return _released(command, lease, now)
    if command.outcome is cm.Outcome.RESCHEDULE:
        due_at = min(max(command.resume_at, now), now + DELAY_MS_MAX)
        return [_ended(run, task, UP_FOR_RESCHEDULE, now, due_at=due_at)]
    if command.outcome is cm.Outcome.FAILED:
        return _failed(state, command, lease, now)
    if command.outcome is cm.Outcome.GREW:
        return go_on(state, lease, command.grows, now)
    to = SUCCESS if command.outcome is cm.Outcome.SUCCESS else SKIPPED
    graph = run.graph
    skips = _skips(run, task, command.skips) if to is SUCCESS else ()
    # Why it was skipped is for people, like an error.
    error = clean_text(command.error) if to is SKIPPED else ""
    ended = _ended(run, task, to, now, result=command.result, error=error, skips=skips)
    if graph.is_single and not run.row.pending and run.row.stopping is None:
        return [ended, RunEnded(*run.key, RunState.SUCCESS, now, "")]
    if not graph.downs[graph.node(task.idx)] and run.moving > 1 and not command.expands:
        return [ended]
    cascade = Cascade(run, now)
    for name, width in command.expands if to is SUCCESS else ():
        _expand(cascade, name, width)
    cascade.task_ended(task.idx, to)
    cascade.force(skips)
    return [ended, *cascade.settle()]


def _released(command: cm.Report, lease: Lease, now: Millis) -> list[Change]:
    """A worker hands an attempt back unspent.

    One that says why has no room for it now, and rests, so that the two do not go round. The task may be what takes the
    room: it is given back only as often as it may be interrupted.
    """
    run, task, worker = lease.run, lease.task, lease.worker
    if not command.error or worker.row.capacity.pull:
        # Who claims may change its mind; why is for people, and no fault of the work or of the worker.
        cause = f"{RELEASED}: {clean_text(command.error)}" if command.error else RELEASED
        return [LeaseReturned(*run.key, task.idx, lease.fence, QUEUED, now, cause, counted=False)]
    rests_until = max(worker.row.quarantined_until, now + NO_ROOM_MS)
    return [
        returned(lease, f"{RELEASED}: {clean_text(command.error)}", now),
        WorkerQuarantined(*worker.key, rests_until, clean_text(command.error)),
    ]


def _skips(run: LiveRun, task: Task, names: tuple[TaskId, ...]) -> tuple[TaskId, ...]:
    """What a branch may decide to skip: only what comes after it, each once."""
    if not names:
        return ()
    graph = run.graph
    below = below_of(graph, [graph.node(task.idx)])
    return tuple(name for name in dict.fromkeys(names) if graph.index.get(name) in below)


def _expand(cascade: Cascade, name: TaskId, width: int) -> None:
    """Fill in the width of a mapped task; one mapped over nothing is a single task, which is not run."""
    run = cascade.run
    graph = cascade.graph
    node = graph.index.get(name)
    if node is None or (graph.width[node] and not _may_be_expanded_again(run, graph, node, width)):
        return
    check_number(width, 0, min(GROWTH_TASKS_MAX, TASKS_PER_GRAPH_MAX - graph.total), f"expands.{name}")
    cascade.grow(Growth(*run.key, run.row.grown + len(cascade.grows), (), name, width))


def _may_be_expanded_again(run: LiveRun, graph: LiveGraph, node: int, width: int) -> bool:
    """Whether a node has another width now than before, and everything in it was cleared since."""
    if width == graph.width[node] and node not in graph.hollow:
        return False
    if not width and node in graph.hollow:
        return False
    tasks = [run.tasks.get(idx) for idx in graph.tasks_of(node)]
    return all(task is None or task.state is NONE for task in tasks)


def _ended(
    run: LiveRun,
    task: Task,
    to: TaskState,
    now: Millis,
    *,
    result: bytes | None = None,
    failure: FailureClass | None = None,
    error: str = "",
    due_at: Millis = 0,
    skips: tuple[TaskId, ...] = (),
) -> AttemptEnded:
    return AttemptEnded(*run.key, task.idx, task.fence, to, now, result, failure, error, due_at, skips)


def _failed(state: State, command: cm.Report, lease: Lease, now: Millis) -> list[Change]:
    run, task = lease.run, lease.task
    error = clean_text(command.error)
    failure = command.failure
    if failure is FailureClass.INPUT_LOST:
        lost = [idx for name in command.lost if (idx := _find_lost(run, task, name)) is not None]
        if lost and run.row.pending and run.row.stopping is None:
            cause = "its input was lost while its run was busy"
            return [LeaseReturned(*run.key, task.idx, lease.fence, QUEUED, now, cause, counted=False)]
        if lost and run.row.stopping is None:
            if any(run.tasks[idx].state is SUCCESS for idx in lost) or Cascade(run, now).would_wait(task.idx):
                return remake(run, lost, (task.idx,), now)
            # It is being made again already; looking at once would go round until it is there.
            return [
                _ended(run, task, UP_FOR_RESCHEDULE, now, failure=failure, error=error, due_at=now + REMAKE_LOOK_MS)
            ]
        # Nobody could make that input again: waiting for it would go round for ever.
        failure = FailureClass.INTERNAL
    return _retried_or_failed(state, lease, failure, error, command.salt, now, command.result)


def _retried_or_failed(
    state: State,
    lease: Lease,
    failure: FailureClass,
    error: str,
    salt: int,
    now: Millis,
    result: bytes | None = None,
) -> list[Change]:
    """The attempt failed: another follows if its class of failure has one left, else what waits for it is told.

    The last one may have a result all the same, such as what a failed action of a build printed.
    A worker on which it is always something else rests for a while.
    """
    run, task, worker = lease.run, lease.task, lease.worker
    policy = run.graph.spec(task.idx).retry
    tries = task.attempt - task.budget_from
    changes: list[Change] = []
    of_queue = state.queue_of(run, task).max_job_retries
    if may_retry(policy, failure, tries, state.task_retries, of_queue):
        draw = derive(salt, run.row.id, task.idx, task.attempt)
        due_at = now + retry_delay_ms(policy, failure, tries, draw)
        changes.append(_ended(run, task, UP_FOR_RETRY, now, failure=failure, error=error, due_at=due_at))
    else:
        changes.append(_ended(run, task, FAILED, now, result=result, failure=failure, error=error))
        cascade = Cascade(run, now)
        cascade.task_ended(task.idx, FAILED)
        changes += cascade.settle()
    if failure is FailureClass.INTERNAL and worker.strikes + 1 >= STRIKES_MAX:
        last = f"{run.row.id}/{run.graph.task_id(task.idx)}"
        cause = f"{STRIKES_MAX} internal failures in a row, the last of {last}: {headline(error)}"
        changes.append(WorkerQuarantined(*worker.key, now + state.limits.quarantine_ms, clean_text(cause)))
    return changes


def overran(state: State, lease: Lease, now: Millis) -> list[Change]:
    """An attempt that went on beyond its time limit has failed, whatever its worker does about it."""
    timeout_ms = lease.run.graph.spec(lease.task.idx).timeout_ms
    text = f"{OVERRAN} {timeout_ms} ms, and worker {lease.worker.row.id} did not end it"
    return _retried_or_failed(state, lease, FailureClass.TIMEOUT, text, lease.fence, now)


def went_unheard(state: State, lease: Lease, now: Millis) -> list[Change]:
    """An attempt of which its worker has said nothing for too long is taken from it, and tried again elsewhere."""
    limit_ms = state.queue_of(lease.run, lease.task).max_action_executing_timeout_ms
    text = f"{UNHEARD} {limit_ms} ms by worker {lease.worker.row.id}, which is well"
    return _retried_or_failed(state, lease, FailureClass.INTERNAL, text, lease.fence, now)


def _find_lost(run: LiveRun, task: Task, name: TaskId) -> int | None:
    """The upstream that made a lost input, if it did make it."""
    try:
        idx = find_task(run, name)
    except Refused:
        return None
    producer = run.tasks.get(idx)
    if producer is None or run.graph.node(idx) not in run.graph.ups[run.graph.node(task.idx)]:
        return None
    # One that is not successful any more but not ended either is being made again already.
    return idx if producer.state is SUCCESS or producer.state not in TERMINAL else None


def return_lease(state: State, command: cm.ReturnLease, now: Millis) -> Decision:
    """A lease ends without an outcome: the worker is lost, drained, deposed, or never got it."""
    lease, revoked = state.leases.get(command.fence), state.revoked.get(command.fence)
    if revoked is not None:
        return Decision([revoked_ended(revoked, now)])
    return Decision([]) if lease is None else Decision([returned(lease, command.cause, now)])


def revoked_ended(lease: Lease, now: Millis) -> RevokedLeaseEnded:
    """A revoked lease counts no longer: its time is over, or its worker holds it no more."""
    return RevokedLeaseEnded(*lease.run.key, lease.task.idx, lease.fence, now)


def returned(lease: Lease, cause: str, now: Millis) -> LeaseReturned:
    """The attempt is returned unspent. An interruption of started work is counted, and parked after too many.

    What was claimed and lost more than once is not offered again at once: it may be what ends those who claim it.
    """
    run, task = lease.run, lease.task
    counted = task.state is not ASSIGNED
    if counted and task.interruptions + 1 >= INTERRUPTIONS_MAX:
        text = f"{cause}; interrupted {INTERRUPTIONS_MAX} times, last on worker {lease.worker.row.id}"
        return LeaseReturned(*run.key, task.idx, lease.fence, NEEDS_ATTENTION, now, text, counted=True)
    if counted and task.interruptions and lease.worker.row.capacity.pull:
        due_at = now + min(REDELIVER_MS << (task.interruptions - 1), REDELIVER_MS_MAX)
        return LeaseReturned(
            *run.key, task.idx, lease.fence, UP_FOR_RESCHEDULE, now, cause, counted=True, due_at=due_at
        )
    return LeaseReturned(*run.key, task.idx, lease.fence, QUEUED, now, cause, counted=counted)


def send_back(run: LiveRun, task: Task, now: Millis) -> list[Change]:
    """What becomes of a task whose turn it is and that must not start: its upstreams were cleared or marked since.

    Nothing if it may start. Whoever cleared them may have left it alone because it was at work then.
    """
    if not run.mended:
        return []
    cascade = Cascade(run, now)
    if cascade.may_start(task.idx):
        return []
    cascade.task_reset(task.idx)
    return [TasksReset(*run.key, (task.idx,), now, "what it waits for has changed", fresh=False), *cascade.settle()]


def grant(
    state: State,
    run: LiveRun,
    task: Task,
    worker: LiveWorker,
    lease_ms: int,
    now: Millis,
    *,
    overdue: bool = False,
    token_hash: str = "",
) -> LeaseGranted:
    """A new lease with a new fence; the fence of a lease never changes."""
    return LeaseGranted(
        *run.key,
        task.idx,
        state.next_fence(),
        *worker.key,
        worker.row.incarnation,
        task.attempt + 1,
        now,
        lease_ms,
        overdue,
        token_hash,
    )


def offer_of(lease: Lease) -> Offer:
    """What a worker needs to know to run an attempt."""
    run, task = lease.run, lease.task
    graph, row = run.graph, run.row
    node = graph.node(task.idx)
    spec = graph.specs[node]
    return Offer(
        row.tenant,
        row.id,
        task.idx,
        graph.task_id(task.idx),
        lease.fence,
        task.attempt,
        spec.kind,
        spec.work,
        row.params,
        spec.timeout_ms,
        task.lease_ms,
        tuple(_input_of(run, node, name) for name in spec.inputs) if spec.inputs else (),
        row.name,
        row.version,
        row.slot_at or row.created_at,
        task.idx - graph.start[node] if graph.is_group(node) else -1,
        task.first_started_at,
        graph.graph.bundle,
        task.interruptions,
        # Whoever is assigned its work has no use for these.
        row.labels if lease.worker.row.capacity.pull else (),
        row.deadline_at if lease.worker.row.capacity.pull else 0,
    )


def _input_of(run: LiveRun, taker: int, name: TaskId) -> Input:
    graph = run.graph
    node = graph.index[name]
    tasks = (run.tasks.get(idx) for idx in (graph.tasks_of(node) if node not in graph.hollow else ()))
    results = tuple(None if task is None else task.result for task in tasks)
    return Input(name, results, graph.is_group(node), node in graph.fed.get(taker, ()))
