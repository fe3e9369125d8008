"""Everything that must always hold, recomputed from scratch and compared. For people and tests, not for the engine."""

import msgspec

from rota.core.buckets import Bucket
from rota.core.ids import Millis
from rota.core.limits import Usage
from rota.core.live import LiveRun
from rota.core.plan import past_of, waits_for_past
from rota.core.relations import lineage_order
from rota.core.snapshot import RunSnapshot, SnapshotTask, plan_run
from rota.core.state import State
from rota.core.states import (
    BAD,
    LEASED,
    NONE,
    QUEUED,
    RUN_TERMINAL,
    TERMINAL,
    UP_FOR_RETRY,
    UPSTREAM_FAILED,
    RunState,
)
from rota.core.why import explain


def validate(state: State, now: Millis) -> list[str]:
    """Every broken invariant, as a sentence; an empty list means all hold."""
    broken: list[str] = []
    _check_leases(state, broken)
    _check_usage(state, broken)
    _check_workers(state, broken)
    _check_index(state, broken)
    for run in state.runs.values():
        _check_run(state, run, broken)
        _check_reasons(state, run, now, broken)
    _check_run_counts(state, broken)
    _check_keys(state, broken)
    _check_relations(state, broken)
    return broken


def _check_leases(state: State, broken: list[str]) -> None:
    leased = 0
    for run in state.runs.values():
        for task in run.tasks.values():
            if task.state in LEASED:
                leased += 1
                lease = state.leases.get(task.fence)
                if lease is None or lease.task is not task:
                    broken.append(f"{run.key}/{task.idx} is {task.state} without a lease")
            elif task.fence:
                broken.append(f"{run.key}/{task.idx} is {task.state} and still has fence {task.fence}")
    if leased != len(state.leases):
        broken.append(f"{len(state.leases)} leases for {leased} leased tasks")
    _check_revoked(state, broken)
    for fence, lease in state.leases.items():
        if lease.fence != fence or lease.worker.leases.get(fence) is not lease:
            broken.append(f"lease {fence} is not listed by its worker")
        if fence >= state.next_fence():
            broken.append(f"lease {fence} has a fence that was not issued yet")


def _check_revoked(state: State, broken: list[str]) -> None:
    """Revoked leases are known to their tasks, which store them, and to their workers."""
    stored = {row.fence: task for run in state.runs.values() for task in run.tasks.values() for row in task.revoked}
    if sorted(stored) != sorted(state.revoked):
        broken.append(f"tasks have the revoked leases {sorted(stored)}, {sorted(state.revoked)} count")
    for fence, lease in state.revoked.items():
        if lease.worker.revoked.get(fence) is not lease or stored.get(fence) is not lease.task:
            broken.append(f"the revoked lease {fence} is not listed by its worker or its task")


def _check_usage(state: State, broken: list[str]) -> None:
    summed: dict[tuple[str, str], Usage] = {}
    for lease in (*state.leases.values(), *state.revoked.values()):
        tenant = lease.run.row.tenant
        for need in lease.bucket.demand.signature.pools:
            summed.setdefault((tenant, need.pool), Usage(0)).take(need)
    for key in {**state.usage, **summed}:
        usage, expected = state.usage.get(key) or Usage(0), summed.get(key) or Usage(0)
        if (usage.taken, usage.by_key) != (expected.taken, expected.by_key):
            broken.append(f"pool {key} counts {usage.taken}, its leases add up to {expected.taken}")


def _check_workers(state: State, broken: list[str]) -> None:
    for worker in state.workers.values():
        slots = worker.row.capacity.slots - len(worker.leases) - len(worker.revoked)
        if worker.slots_free != slots:
            broken.append(f"worker {worker.key} has {worker.slots_free} slots free, should be {slots}")
        free = dict(worker.totals)
        for lease in (*worker.leases.values(), *worker.revoked.values()):
            for name, need in lease.bucket.demand.minimum:
                if name in free:
                    free[name] -= need
        if free != worker.free:
            broken.append(f"worker {worker.key} has {worker.free} free, should be {free}")
        shape = worker.shape
        parked = shape is not None and any(worker.key in group for group in shape.idle.values())
        should = worker.slots_free > 0 and worker.present and not worker.row.draining
        if parked != should:
            broken.append(f"worker {worker.key} is {'' if parked else 'not '}among the idle")


def _check_index(state: State, broken: list[str]) -> None:
    expected: dict[Bucket, int] = {}
    queued = 0
    for run in state.runs.values():
        if not run.is_runnable:
            continue
        for task in run.tasks.values():
            if task.state is QUEUED:
                queued += 1
                bucket = state.bucket_of(run, task)
                expected[bucket] = expected.get(bucket, 0) + 1
    if queued != state.index.queued:
        broken.append(f"the index holds {state.index.queued} tasks, {queued} are queued")
    for bucket in state.index.buckets.values():
        found = sum(1 for _ in bucket.tasks())
        if not bucket.live == found == expected.get(bucket, 0):
            broken.append(f"bucket {bucket.demand.signature} says {bucket.live}, holds {found}")
        ages = [entry for kept in bucket.ages.values() for entry in kept if state.index.is_waiting(bucket, entry)]
        if len({(entry[3].number, entry[4]) for entry in ages}) != len(ages) or len(ages) != bucket.live:
            broken.append(f"bucket {bucket.demand.signature} remembers {len(ages)} ages of {bucket.live} tasks")
        if sum(bucket.waiting.values()) != bucket.live:
            broken.append(f"bucket {bucket.demand.signature} miscounts its classes")


def _check_run(state: State, run: LiveRun, broken: list[str]) -> None:
    graph = run.graph
    ended = sum(task.state in TERMINAL for task in run.tasks.values())
    moving = sum(task.state not in TERMINAL and task.state is not NONE for task in run.tasks.values())
    if (run.ended, run.moving) != (ended, moving):
        broken.append(f"{run.key} counts {run.ended} ended, {run.moving} moving; it is {ended}, {moving}")
    if run.leased != sum((task.state in LEASED) + len(task.revoked) for task in run.tasks.values()):
        broken.append(f"{run.key} miscounts its leases")
    bad = sum(task.state in BAD and graph.leaf[graph.node(idx)] for idx, task in run.tasks.items())
    if run.leaf_bad != bad:
        broken.append(f"{run.key} counts {run.leaf_bad} last tasks that failed, there are {bad}")
    blocked = sum(task.state is UPSTREAM_FAILED for task in run.tasks.values())
    if run.blocked != blocked:
        broken.append(f"{run.key} counts {run.blocked} tasks that failed upstream, there are {blocked}")
    if run.row.state in RUN_TERMINAL and moving:
        broken.append(f"{run.key} has ended with {moving} tasks moving")
    if graph.has_edges:
        _check_countdowns(run, broken)
    forced: dict[int, int] = {}
    for task in run.tasks.values():
        for node in (graph.index[name] for name in task.skips):
            forced[node] = forced.get(node, 0) + 1
    if forced != run.forced:
        broken.append(f"{run.key} counts {run.forced} decisions to skip, there are {forced}")
    _check_neighbours(state, run, broken)
    _check_grown(run, broken)
    if run.row.state is RunState.RUNNING and not run.row.pending and run.row.stopping is None:
        _check_plan(state, run, broken)
        is_looked_at = run.key in state.continues or ("past", *run.key) in state.armed
        if not (moving or run.row.fault or is_looked_at or waits_for_past(run)):
            broken.append(f"{run.key} is running and nothing in it moves")


def _check_grown(run: LiveRun, broken: list[str]) -> None:
    """What a task went on as is waited for by it alone, and what was let go, or made another width, does nothing."""
    graph = run.graph
    left = [run.tasks[idx] for idx in graph.retired if idx in run.tasks]
    broken += [
        f"{run.key}/{task.idx} is {task.state}, and is not of the run any more"
        for task in left
        if task.state is not NONE
    ]
    for node, stages in graph.fed.items():
        if graph.downs[stages[-1]] != [node] or any(graph.specs[up].id not in graph.index for up in graph.ups[node]):
            broken.append(f"{run.key} node {graph.specs[node].id} does not wait for what it went on as")


def _check_neighbours(state: State, run: LiveRun, broken: list[str]) -> None:
    if run.is_held != state.is_held(run.row):
        broken.append(f"{run.key} is{'' if run.is_held else ' not'} held, its workflow says otherwise")
    if not run.graph.past:
        if run.before is not None or run.after is not None:
            broken.append(f"{run.key} has neighbours, and no past")
        return
    others = [other for other in state.runs.values() if other.line == run.line and other.graph.past]
    mine = sorted(others, key=lineage_order)
    place = mine.index(run)
    before = mine[place - 1] if place else None
    after = mine[place + 1] if place + 1 < len(mine) else None
    if (run.before, run.after) != (before, after):
        broken.append(f"{run.key} has other neighbours than it should have")


def _check_relations(state: State, broken: list[str]) -> None:
    """Who is part of whom, and who waits for whom, is known at both ends."""
    parts: dict[tuple[str, str], list[str]] = {}
    waiters: dict[tuple[str, str], list[str]] = {}
    for run in state.runs.values():
        row = run.row
        if row.parent:
            parts.setdefault((row.tenant, row.parent), []).append(row.id)
        for name in row.after:
            if (row.tenant, name) not in state.runs:
                broken.append(f"{run.key} waits for {name}, which is gone")
            waiters.setdefault((row.tenant, name), []).append(row.id)
        if row.after and row.state is not RunState.QUEUED:
            broken.append(f"{run.key} is {row.state} and waits for {row.after}")
    if {key: sorted(run for _, run in found) for key, found in state.parts.items()} != {
        key: sorted(names) for key, names in parts.items()
    }:
        broken.append(f"parts of runs are {parts}, kept otherwise")
    broken += [
        f"{run.key} is waited for by others than it should be"
        for run in state.runs.values()
        if sorted(key[1] for key in run.waiters) != sorted(waiters.get(run.key, []))
    ]


def _check_countdowns(run: LiveRun, broken: list[str]) -> None:
    graph = run.graph
    assert run.success is not None and run.failed is not None, "a graph with edges has countdowns"
    assert run.skipped is not None and run.upstream_failed is not None, "a graph with edges has countdowns"
    for node, ups in enumerate(graph.ups):
        expected = _count_ends(run, ups)
        found = (run.success[node], run.failed[node], run.skipped[node], run.upstream_failed[node])
        if expected != found:
            broken.append(f"{run.key} node {graph.specs[node].id} counts {found}, should be {expected}")
    if list(run.sources) != list(graph.sources):
        broken.append(f"{run.key} counts the sources {list(run.sources)}, should be {list(graph.sources)}")
    for node, counts in run.sources.items():
        found = _count_ends(run, (node,))
        if tuple(counts) != found:
            broken.append(f"{run.key} source {graph.specs[node].id} counts {tuple(counts)}, should be {found}")


def _count_ends(run: LiveRun, nodes: tuple[int, ...]) -> tuple[int, int, int, int]:
    """How many tasks of these nodes ended in success, failure (or cancellation), skip and upstream failure."""
    states = [run.tasks[idx].state for node in nodes for idx in run.graph.tasks_of(node) if idx in run.tasks]
    return (
        sum(state == "success" for state in states),
        sum(state in ("failed", "cancelled") for state in states),
        sum(state == "skipped" for state in states),
        sum(state == "upstream_failed" for state in states),
    )


def snapshot_of(run: LiveRun) -> RunSnapshot | None:
    """A run as the snapshot planner reads it; None for runs it cannot express (groups of several tasks)."""
    graph = run.graph
    if graph.node_of is not None or graph.gone:
        return None
    tasks = tuple(
        SnapshotTask(
            id=spec.id,
            upstream=spec.upstream,
            trigger_rule=spec.trigger_rule,
            is_setup=spec.is_setup,
            is_teardown=spec.is_teardown,
            on_failure_fail_run=spec.on_failure_fail_run,
            over=(graph.specs[graph.over[node]].id,) if node in graph.over else (),
            is_empty=node in graph.hollow,
        )
        for node, spec in enumerate(graph.specs)
    )
    states = {graph.specs[idx].id: task.state for idx, task in run.tasks.items()}
    skips = {graph.specs[idx].id: task.skips for idx, task in run.tasks.items() if task.skips}
    return RunSnapshot(
        run_id=run.row.id,
        graph_id=run.row.name,
        tenant=run.row.tenant,
        state=run.row.state,
        tasks=tasks,
        states=states,
        skips=skips,
        held=tuple(graph.specs[node].id for node in graph.past if past_of(run, node)),
    )


def _check_plan(state: State, run: LiveRun, broken: list[str]) -> None:
    """Planning from scratch must find nothing that the countdowns missed."""
    snapshot = snapshot_of(run)
    if snapshot is None or run.row.fault or ("past", *run.key) in state.armed:
        return
    # When a retry is due is the timers' concern: until then the task is active, whatever became of its upstreams.
    states = {name: QUEUED if state is UP_FOR_RETRY else state for name, state in snapshot.states.items()}
    missed = plan_run(msgspec.structs.replace(snapshot, states=states))
    if missed:
        broken.append(f"{run.key}: planning from scratch would also do {missed[:3]}")


def _check_reasons(state: State, run: LiveRun, now: Millis, broken: list[str]) -> None:
    if run.row.state in RUN_TERMINAL:
        return
    for idx in range(min(run.graph.total, 1_000)):
        task = run.tasks.get(idx)
        has_ended = task is not None and task.state in TERMINAL
        if not has_ended and idx not in run.graph.retired and not explain(state, run, idx, now):
            broken.append(f"{run.key}/{idx} waits without a reason")


def _check_keys(state: State, broken: list[str]) -> None:
    """What runs share: a key by which they are joined, which one of them has, and an account."""
    merging: dict[tuple[str, str], LiveRun] = {}
    shares: dict[tuple[str, str, str], int] = {}
    for run in state.runs.values():
        row = run.row
        if row.merge and row.state not in RUN_TERMINAL:
            first = merging.setdefault((row.tenant, row.merge), run)
            if first is not run:
                broken.append(f"{run.key} and {first.key} have not ended and both have key {row.merge!r}")
        if row.share:
            key = (row.priority, row.tenant, row.share)
            shares[key] = shares.get(key, 0) + 1
            if state.books.shares.get(key) is not run.purse:
                broken.append(f"{run.key} is not charged on its share {row.share!r}")
    if merging != state.merging:
        broken.append(f"keys are {list(merging)}, kept are {list(state.merging)}")
    if shares != {key: purse.of_run.runs for key, purse in state.books.shares.items()}:
        broken.append(f"runs of shares are {shares}, counted otherwise")


def _check_run_counts(state: State, broken: list[str]) -> None:
    active: dict[tuple[str, str], int] = {}
    waiting: dict[tuple[str, str], int] = {}
    for run in state.runs.values():
        name = run.admission
        if run.row.state is RunState.RUNNING:
            active[name] = active.get(name, 0) + 1
        elif run.row.state is RunState.QUEUED and not run.is_gated:
            waiting[name] = waiting.get(name, 0) + 1
    if active != state.active_runs:
        broken.append(f"active runs are {active}, counted {state.active_runs}")
    scheduled: dict[tuple[str, str], int] = {}
    users: dict[tuple[str, str], int] = {}
    for run in state.runs.values():
        row = run.row
        users[(row.tenant, row.graph)] = users.get((row.tenant, row.graph), 0) + 1
        if row.schedule and row.state not in RUN_TERMINAL:
            scheduled[(row.tenant, row.schedule)] = scheduled.get((row.tenant, row.schedule), 0) + 1
        if row.command_id and state.by_command.get((row.tenant, row.command_id)) != run.key:
            broken.append(f"{run.key} is not found by its command")
    for schedule in state.schedules.values():
        users[(schedule.tenant, schedule.graph)] = users.get((schedule.tenant, schedule.graph), 0) + 1
    for workflow in state.workflows.values():
        for version in workflow.versions:
            users[(workflow.tenant, version.graph)] = users.get((workflow.tenant, version.graph), 0) + 1
    if scheduled != state.scheduled_runs:
        broken.append(f"runs of schedules are {scheduled}, counted {state.scheduled_runs}")
    for key, graph in state.graphs.items():
        if graph.users != users.get(key, 0):
            broken.append(f"graph {key} has {users.get(key, 0)} users, counted {graph.users}")
    if waiting != {name: len(keys) for name, keys in state.waiting_runs.items()}:
        broken.append(f"waiting runs are {waiting}, counted otherwise")
