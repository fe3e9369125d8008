"""Deciding about runs: submit, start, stop, pause, grow, lose outputs."""

from difflib import get_close_matches

from rota.core import commands as cm
from rota.core.bounds import (
    AFTER_MAX,
    ID_CHARS_MAX,
    LABEL_CHARS_MAX,
    LABEL_NAME_CHARS_MAX,
    LABELS_MAX,
    OUTPUT_LOSSES_MAX,
    PARAMS_BYTES_MAX,
    WAITERS_MAX,
)
from rota.core.calendar import AT_MAX, check_zone
from rota.core.changes import (
    Change,
    GraphPut,
    LeaseReturned,
    PendingSet,
    RunApproved,
    RunEnded,
    RunPaused,
    RunStarted,
    RunStopping,
    RunSubmitted,
    RunUnblocked,
    TasksReset,
    TasksScheduled,
    TasksSettled,
)
from rota.core.decide.decision import AT_CAP, Decision, clean_text, find_all, find_run, run_of_timer
from rota.core.demand import Signature, read_demand
from rota.core.errors import Refused, Unavailable
from rota.core.graph import check_graph, check_id, check_number, check_size, check_text, graph_digest
from rota.core.growing import check_growth
from rota.core.ids import GraphDigest, Millis, RunId, ScheduleId
from rota.core.limits import is_too_small, size_of
from rota.core.live import LiveRun
from rota.core.model import Approval, Graph, Pairs, TaskSpec
from rota.core.params import check_declared, check_params, fill_logical_dates, zone_of
from rota.core.plan import Cascade
from rota.core.prepared_graph import distinct_needs
from rota.core.records import Growth, Run, Schedule, Slice, Version, Workflow
from rota.core.relations import PARENTS_MAX
from rota.core.state import State
from rota.core.states import (
    CANCELLED,
    LEASED,
    QUEUED,
    RUN_TERMINAL,
    SCHEDULED,
    SUCCESS,
    TERMINAL,
    UP_FOR_RETRY,
    RunState,
)


def submit(state: State, command: cm.SubmitRun, now: Millis) -> Decision:
    """A run is accepted whole or refused whole; its graph is stored with it if it is new. Or it joins another run."""
    check_id(command.run, "run")
    check_size(command.params, PARAMS_BYTES_MAX, "params")
    check_text(command.parent, "parent")
    there = state.runs.get((command.tenant, command.run))
    if there is not None:
        # One that has ended keeps its id until it is in history.
        text = f"there is a run {command.run!r} already: it is {there.row.state}"
        raise Refused("run.exists", text, "Choose another id.", path="run")
    if (command.tenant, command.run) in state.touched.archives:
        raise Unavailable("run.busy", f"an earlier run {command.run!r} is moving to history", retry_after_ms=100)
    check_number(command.logical_at, 0, AT_MAX, "logical_at")
    check_text(command.merge, "merge")
    check_text(command.share, "share")
    check_labels(command.labels)
    joined = _find_merged(state, command)
    if joined is not None:
        return Decision([], answer=joined.row.id)
    changes: list[Change] = []
    digest, version, params = command.digest, 0, command.params
    if command.workflow:
        digest, version, params = _of_workflow(state, command, now)
    elif command.version:
        raise Refused("field.value", "only a workflow has versions", "Name the workflow.", path="version")
    elif command.declared:
        check_declared(command.declared)
        check_zone(command.zone)
        about = command.logical_at or now
        params = check_params(command.declared, command.params, logical_at=about, zone=command.zone)
    digest = use_graph(state, command.tenant, command.graph, digest, now, changes)
    known = state.graphs.get((command.tenant, digest))
    if known is not None:
        # Checked when it was new; what its pools have may have changed since.
        for position in known.pooled:
            check_needs(state, command.tenant, known.specs[position], f"graph.tasks[{position}]")
    graph = command.graph or state.graphs[(command.tenant, digest)].graph
    row = Run(
        tenant=command.tenant,
        id=command.run,
        graph=digest,
        name=graph.name,
        kind=graph.kind,
        priority=command.priority,
        created_at=now,
        params=params,
        slot_at=command.logical_at,
        parent=command.parent,
        command_id=command.command_id,
        version=version,
        merge=command.merge,
        labels=command.labels,
        share=command.share,
        after=_check_after(state, command),
        approval=Approval.PENDING if command.needs_approval else Approval.NONE,
        deadline_at=_check_deadline(command, now),
    )
    _check_parents(state, row)
    changes.append(RunSubmitted(row))
    is_free = not (row.after or command.needs_approval or state.is_held(row))
    if is_plain(graph) and not graph.max_active_runs and is_free:
        # One task without a cap has nothing to wait for and nothing to plan.
        row.state = RunState.RUNNING
        row.started_at = now
        changes.append(TasksScheduled(command.tenant, command.run, (0,), now))
    return Decision(changes, answer=command.run)


def _check_after(state: State, command: cm.SubmitRun) -> tuple[RunId, ...]:
    """The runs that have to succeed first. One that has is not waited for; one that is not known is refused."""
    check_number(len(command.after), 0, AFTER_MAX, "after")
    left: list[RunId] = []
    for position, name in enumerate(dict.fromkeys(command.after)):
        run = state.runs.get((command.tenant, name))
        if run is None:
            hint = "Name one that has not ended, or has succeeded."
            raise Refused("run.unknown", f"there is no run {name[:100]!r} to wait for", hint, path=f"after[{position}]")
        if len(run.waiters) >= WAITERS_MAX:
            text = f"{len(run.waiters)} runs wait for {name!r} already"
            raise Refused("field.size", text, "Let them wait for one that waits for it.", path=f"after[{position}]")
        if run.row.state is not RunState.SUCCESS:
            left.append(name)
    return tuple(left)


def _check_deadline(command: cm.SubmitRun, now: Millis) -> Millis:
    if command.deadline_at:
        check_number(command.deadline_at, now + 1, AT_MAX, "deadline_at")
    return command.deadline_at


def _check_parents(state: State, row: Run) -> None:
    """A run is part of few others, one inside the other, and never of itself."""
    above = state.depth_above(row)
    if above is None:
        text = f"{row.id!r} would be part of itself"
        raise Refused("field.value", text, "Name another parent, or none.", path="parent")
    if above + state.depth_below((row.tenant, row.id)) >= PARENTS_MAX:
        text = f"{row.id!r} would be one of more than {PARENTS_MAX} runs, one inside the other"
        raise Refused("field.size", text, "Make it part of one further up.", path="parent")


def approve(state: State, command: cm.ApproveRun, now: Millis) -> Decision:
    """A person's word on a run. Saying the same twice changes nothing."""
    run = find_run(state, command.tenant, command.run, may_have_ended=True)
    approval = run.row.approval
    if approval is (Approval.APPROVED if command.approved else Approval.REJECTED):
        return Decision([], answer=command.run)
    if approval is not Approval.PENDING or run.row.state in RUN_TERMINAL:
        text = f"run {command.run!r} does not wait for approval: it is {run.row.state}, its approval {approval}"
        raise Refused("run.approval", text, path="run")
    reason = clean_text(command.reason)
    said = RunApproved(*run.key, command.approved, command.actor, reason, now)
    if command.approved:
        return Decision([said], answer=command.run)
    text = f"rejected by {command.actor or 'somebody'}" + (f": {reason}" if reason else "")
    return Decision([said, RunEnded(*run.key, RunState.CANCELLED, now, text)], answer=command.run)


def look_after(state: State, key: tuple[object, ...], now: Millis) -> Decision:
    """Runs that this one waits for may have succeeded. One that failed may be tried again, and is still waited for."""
    run = run_of_timer(state, key)
    if run is None or run.row.state is not RunState.QUEUED:
        return Decision([])
    tenant = run.row.tenant
    met = [name for name in run.row.after if state.runs[(tenant, name)].row.state is RunState.SUCCESS]
    return Decision([RunUnblocked(*run.key, name, now) for name in met])


def check_labels(labels: Pairs) -> None:
    """Few, short, and each name once."""
    check_number(len(labels), 0, LABELS_MAX, "labels")
    for position, (name, value) in enumerate(labels):
        path = f"labels[{position}]"
        if not name:
            raise Refused("field.value", "a label has no name", path=path)
        check_text(name, path, chars_max=LABEL_NAME_CHARS_MAX)
        check_text(value, path, chars_max=LABEL_CHARS_MAX)
    if len(dict(labels)) != len(labels):
        raise Refused("field.value", "a label is given twice", "Give each name once.", path="labels")


def _find_merged(state: State, command: cm.SubmitRun) -> LiveRun | None:
    """The run that a submission joins, if there is one.

    One that is being stopped is not joined: it was given up before this was asked for, and makes room in a few turns.
    """
    run = state.merging.get((command.tenant, command.merge)) if command.merge else None
    if run is not None and run.row.stopping is not None:
        text = f"run {run.row.id!r} with this key is being stopped"
        raise Unavailable("run.busy", text, retry_after_ms=100)
    return run


def is_plain(graph: Graph) -> bool:
    """Whether a graph is one task that waits for nothing."""
    if len(graph.tasks) != 1:
        return False
    spec = graph.tasks[0]
    return spec.width == 1 and not spec.depends_on_past and spec.expansion is None


def _of_workflow(state: State, command: cm.SubmitRun, now: Millis) -> tuple[GraphDigest, int, bytes]:
    """The graph, version and parameters of a run that is asked for by a workflow's name."""
    if command.graph is not None or command.digest:
        raise Refused("field.value", "a run is of a workflow, or of a graph", "Give one of them.", path="workflow")
    if command.declared:
        text = f"the parameters of workflow {command.workflow!r} were declared when it was deployed"
        raise Refused("field.value", text, "Leave them out.", path="declared")
    workflow = find_workflow(state, command.tenant, command.workflow)
    version = find_version(workflow, command.version)
    zone = zone_of(version, state.schedules.get((command.tenant, ScheduleId(workflow.name))))
    about = command.logical_at or now
    return version.graph, version.number, check_params(version.params, command.params, logical_at=about, zone=zone)


def find_workflow(state: State, tenant: str, name: str) -> Workflow:
    """A workflow by its name, or a refusal that names one that is spelt alike."""
    workflow = state.workflows.get((tenant, name))
    if workflow is None or workflow.is_dropped:
        names = [each.name for each in state.workflows.values() if each.tenant == tenant and not each.is_dropped]
        near = get_close_matches(name[:ID_CHARS_MAX], names, 1)
        hint = f"Did you mean {near[0]}?" if near else "Deploy it first: rota deploy PATH."
        raise Refused("workflow.unknown", f"there is no workflow {name!r}", hint, path="workflow")
    return workflow


def find_version(workflow: Workflow, number: int) -> Version:
    """A version of a workflow by its number; 0 is the present one."""
    number = number or workflow.version
    version = workflow.kept_version(number)
    if version is not None:
        return version
    kept = ", ".join(str(version.number) for version in workflow.versions)
    text = f"workflow {workflow.name!r} has no version {number}"
    raise Refused("workflow.unknown", text, f"Versions that are kept: {kept}.", path="version")


def use_graph(
    state: State, tenant: str, graph: Graph | None, digest: GraphDigest, now: Millis, changes: list[Change]
) -> GraphDigest:
    """The digest of a graph that is known or becomes known; a new one is checked here, once."""
    if graph is None:
        if (tenant, digest) not in state.graphs:
            raise Refused(
                "graph.unknown", f"no graph {digest[:12]!r} is known", "Send the graph itself.", path="digest"
            )
        return digest
    prepared = state.prepared_graph(tenant, graph)
    digest = prepared.live.digest if prepared is not None else graph_digest(graph)
    if (tenant, digest) not in state.graphs:
        if prepared is None:
            check_graph(graph)
        check_specs(state, tenant, graph.tasks, "graph.tasks", prepared.needs if prepared is not None else None)
        changes.append(GraphPut(tenant, digest, graph, now))
    return digest


def check_specs(
    state: State, tenant: str, specs: tuple[TaskSpec, ...], path: str, needs: list[int] | None = None
) -> None:
    """Queues and pools exist, and every requirement can be compared the way its queue says.

    `needs` are the positions to look at, if they are known: one for each thing that is asked for.
    """
    for position in distinct_needs(specs) if needs is None else needs:
        spec, here = specs[position], f"{path}[{position}]"
        queue = state.queue(tenant, spec.queue)
        if queue is None:
            raise Refused("queue.unknown", f"queue {spec.queue!r} does not exist", "Define it first.", path=here)
        check_needs(state, tenant, spec, here)
        read_demand(Signature(tenant, spec.queue, spec.kind, spec.requires), queue, path=f"{here}.requires")


def check_needs(state: State, tenant: str, spec: TaskSpec, path: str) -> None:
    """Pools exist, and could give what is asked of them if nobody else took anything."""
    for position, need in enumerate(spec.pools):
        pool = state.pools.get((tenant, need.pool))
        if pool is None or need.pool.startswith("@"):
            hint = f"Define it first: rota pools set {need.pool} --slots N."
            raise Refused("pool.unknown", f"pool {need.pool!r} does not exist", hint, path=path)
        if is_too_small(need, pool):
            raise Refused(
                "pool.too_small",
                f"task {spec.id!r} needs {need.amount} of pool {need.pool!r}, which has {size_of(pool)}",
                "Ask for less, or make the pool larger first.",
                path=f"{path}.pools[{position}].amount",
            )


def start_runs(state: State, command: cm.StartRuns, now: Millis) -> Decision:
    """Start the oldest waiting run of a graph, if its cap has room. One at a time: each is a decision of its own."""
    name = (command.tenant, command.name)
    waiting = state.waiting_runs.get(name)
    if not waiting:
        return Decision([])
    # A run that is held after an error of ours does not hold up the others.
    key = next((key for key in waiting if not (state.runs[key].row.fault or state.runs[key].is_held)), None)
    if key is None:
        return Decision([])
    run = state.runs[key]
    # A backfill makes no more runs at once than it may; they wait for nobody else's.
    cap = 0 if run.row.backfill else run.graph.graph.max_active_runs
    if cap and state.active_runs.get(name, 0) >= cap:
        return Decision([], answer=AT_CAP)
    if run.graph.is_single and not run.row.started_at and not run.graph.past:
        return Decision([RunStarted(*key, now), TasksScheduled(*key, (0,), now)])
    cascade = Cascade(run, now)
    if run.row.started_at and not run.row.stopping:
        # A run that was opened again: whatever waits in it is judged anew.
        cascade.proceed()
        for node, fired in enumerate(run.fired):
            if not fired or node in run.reset:
                cascade.judge(node)
    else:
        cascade.start()
    return Decision([RunStarted(*key, now), *cascade.settle()])


def continue_run(state: State, command: cm.ContinueRun, now: Millis) -> Decision:
    """The next slice of a cascade that did not fit one turn."""
    run = state.runs.get((command.tenant, command.run))
    if run is None or not run.row.pending or run.row.state is not RunState.RUNNING:
        return Decision([])
    if run.row.stopping is not None:
        return Decision(stop_slice(run, now))
    cascade = Cascade(run, now)
    cascade.proceed()
    return Decision(cascade.settle())


def stop(state: State, command: cm.CancelRun, now: Millis) -> Decision:
    """Cancel a run. Cancelling twice, or after the end, changes nothing and is not an error."""
    run = find_run(state, command.tenant, command.run, may_have_ended=True)
    if run.row.state in RUN_TERMINAL or run.row.stopping is not None:
        return Decision([], answer=command.run)
    return Decision(stop_run(run, RunState.CANCELLED, clean_text(command.reason), now), answer=command.run)


def stop_run(run: LiveRun, to: RunState, reason: str, now: Millis) -> list[Change]:
    """End a run from outside; its tasks are cancelled in slices."""
    if run.row.state is RunState.QUEUED:
        return [RunEnded(*run.key, to, now, reason)]
    pending = (Slice(CANCELLED, 0, run.graph.total),)
    return [RunStopping(*run.key, to, now, reason), PendingSet(*run.key, pending)]


def stop_slice(run: LiveRun, now: Millis) -> list[Change]:
    """Cancel one slice of a stopping run's tasks, and end the run after the last."""
    piece = run.row.pending[0]
    end = min(piece.end, piece.next + Cascade.slice_tasks)
    changes: list[Change] = []
    settled: list[int] = []
    ended = run.ended
    for idx in range(piece.next, end):
        task = run.tasks.get(idx)
        if (task is not None and task.state in TERMINAL) or idx in run.graph.retired:
            continue
        ended += 1
        if task is not None and task.state in LEASED:
            changes.append(LeaseReturned(*run.key, idx, task.fence, CANCELLED, now, "run stopped", counted=False))
        else:
            settled.append(idx)
    if settled:
        changes.append(TasksSettled(*run.key, tuple(settled), CANCELLED, now))
    if end < piece.end:
        changes.append(PendingSet(*run.key, (Slice(CANCELLED, end, piece.end),)))
        return changes
    changes.append(PendingSet(*run.key, ()))
    assert ended == run.graph.to_end, "a stopped run has tasks that were not cancelled"
    assert run.row.stopping is not None, "only a stopping run has a slice of cancellations"
    changes.append(RunEnded(*run.key, run.row.stopping, now, run.row.reason))
    return changes


def pause(state: State, command: cm.PauseRun, now: Millis) -> Decision:
    """Pausing twice changes nothing. Resuming also lets go of a run that was held after an error of ours."""
    run = find_run(state, command.tenant, command.run)
    if run.row.paused == command.paused and not run.row.fault:
        return Decision([], answer=command.run)
    return Decision([RunPaused(*run.key, command.paused, now)], answer=command.run)


def check_settled(run: LiveRun) -> None:
    """Tasks that are decided but not yet moved cannot be taken back; a few turns later there are none."""
    if run.row.pending:
        raise Unavailable("run.busy", f"run {run.row.id!r} is in the middle of a cascade", retry_after_ms=100)


def grow(state: State, command: cm.GrowRun, now: Millis) -> Decision:
    """Add tasks to a living run in one bounded change."""
    run = find_run(state, command.tenant, command.run)
    if run.row.stopping is not None:
        raise Refused("run.ended", f"run {command.run!r} is being stopped", path="run")
    growth = Growth(*run.key, run.row.grown, command.specs, command.expands, command.width)
    check_growth(run.graph, growth)
    check_specs(state, command.tenant, command.specs, "specs")
    cascade = Cascade(run, now)
    cascade.grow(growth)
    if run.row.state is RunState.QUEUED:
        return Decision(cascade.grows, answer=command.run)
    return Decision(cascade.settle(), answer=command.run)


def lose_outputs(state: State, command: cm.LoseOutputs, now: Millis) -> Decision:
    """Outputs are gone: their producers run again, and what only waited goes back to wait for them."""
    run = find_run(state, command.tenant, command.run)
    if run.row.stopping is not None or run.row.state is not RunState.RUNNING:
        return Decision([], answer=command.run)
    check_settled(run)
    lost = find_all(run, command.tasks)
    return Decision(remake(run, lost, (), now), answer=command.run)


def remake(run: LiveRun, lost: list[int], consumers: tuple[int, ...], now: Millis) -> list[Change]:
    """Reset producers of lost outputs, the tasks that found them gone, and whoever waits for them.

    A producer whose output was lost too often is not asked again: it fails, and its run with it.
    """
    producers = [idx for idx in lost if (task := run.tasks.get(idx)) is not None and task.state is SUCCESS]
    worn = dict.fromkeys(idx for idx in producers if run.tasks[idx].losses >= OUTPUT_LOSSES_MAX)
    producers = [idx for idx in producers if idx not in worn]
    waiting: dict[int, None] = dict.fromkeys(consumers)
    for node in {run.graph.node(idx): None for idx in (*producers, *worn)}:
        for down in run.graph.downs[node]:
            for idx in run.graph.tasks_of(down):
                task = run.tasks.get(idx)
                if task is not None and task.state in (SCHEDULED, QUEUED, UP_FOR_RETRY):
                    waiting[idx] = None
    reset = tuple(dict.fromkeys((*producers, *worn, *waiting)))
    if not reset:
        return []
    changes: list[Change] = [TasksReset(*run.key, reset, now, "output lost", fresh=False)]
    cascade = Cascade(run, now)
    for idx in reset:
        cascade.task_reset(idx)
    if worn:
        names = ", ".join(run.graph.task_id(idx) for idx in worn)
        reason = f"the output of {names} was lost {OUTPUT_LOSSES_MAX} times"
        return [*changes, *stop_run(run, RunState.FAILED, reason, now)]
    return [*changes, *cascade.settle()]


def scheduled_run(
    schedule: Schedule, run: RunId, graph: Graph, version: Version | None, slot_at: Millis, now: Millis
) -> RunSubmitted:
    """The run of one slot of a schedule; `version` is the workflow's, None if the schedule is not of a workflow."""
    params = schedule.params
    if version is not None:
        params = fill_logical_dates(version.params, params, slot_at, zone_of(version, schedule))
    return RunSubmitted(
        Run(
            tenant=schedule.tenant,
            id=run,
            graph=schedule.graph,
            name=graph.name,
            kind=graph.kind,
            priority=schedule.priority,
            created_at=now,
            params=params,
            schedule=schedule.id,
            slot_at=slot_at,
            version=schedule.version,
            backfill=schedule.backfill,
        )
    )
