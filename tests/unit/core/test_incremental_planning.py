"""The live engine plans with countdowns; `rota.core.snapshot` plans from scratch. Both must say the same, always.

Random graphs (rules, setups, teardowns, groups, unknown widths) and random outcomes are driven through the engine.
After every step the engine's states must equal the last ones, plus what just happened, plus a plan from scratch.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import commands as cm
from rota.core.bounds import TimeLimits
from rota.core.changes import LeaseGranted
from rota.core.errors import Unavailable
from rota.core.graph import below_of
from rota.core.invariants import validate
from rota.core.live import LiveRun
from rota.core.model import Expansion, FailureClass, Graph, RetryPolicy, TaskSpec
from rota.core.plan import TASKS_FAILED, Cascade
from rota.core.snapshot import RunSnapshot, SnapshotTask, finalize_run, plan_run, with_transitions
from rota.core.states import (
    FAILED,
    LEASED,
    NONE,
    QUEUED,
    RUN_TERMINAL,
    SCHEDULED,
    SKIPPED,
    SUCCESS,
    TERMINAL,
    UP_FOR_RETRY,
    UPSTREAM_FAILED,
    RunState,
    TaskState,
)
from rota.core.trigger import TriggerRule
from tests.effort import examples
from tests.unit.core.world import World, derived, graph, short_slices, task, task_states

S = TaskState
RETRY_DELAY_S = 10
RETRY = RetryPolicy(retries=1, delay_ms=RETRY_DELAY_S * 1000, jitter=False)


# Translation: a node of width w is w tasks of the picture, and every edge is drawn out.


def names_of(run: LiveRun, node: int) -> list[str]:
    spec = run.graph.specs[node]
    return [f"{spec.id}#{number}" for number in range(run.graph.width[node])] or [f"{spec.id}#unknown"]


def all_names(run: LiveRun, specs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for spec in specs for name in names_of(run, run.graph.index[spec]))


def picture(run: LiveRun, now: int) -> RunSnapshot:
    """The run as the planner from scratch sees it. A node of unknown width is one task that has not begun."""
    laid_out = run.graph
    tasks: list[SnapshotTask] = []
    states: dict[str, TaskState] = {}
    tries: dict[str, int] = {}
    max_tries: dict[str, int] = {}
    ended_at: dict[str, int | None] = {}
    skips: dict[str, tuple[str, ...]] = {}
    for node, spec in enumerate(laid_out.specs):
        upstream = all_names(run, spec.upstream)
        over = spec.expansion.over if spec.expansion is not None else ""
        for number, name in enumerate(names_of(run, node)):
            tasks.append(
                SnapshotTask(
                    name,
                    upstream,
                    spec.trigger_rule,
                    spec.is_setup,
                    spec.is_teardown,
                    spec.on_failure_fail_run,
                    over=all_names(run, (over,)) if over else (),
                    is_empty=node in laid_out.hollow,
                )
            )
            row = run.tasks.get(laid_out.start[node] + number) if laid_out.width[node] else None
            if row is not None:
                states[name] = row.state
                tries[name] = row.attempt - row.budget_from
                max_tries[name] = spec.retry.retries + 1 if row.failure is not FailureClass.FATAL else 0
                ended_at[name] = row.ended_at
                skips[name] = all_names(run, row.skips)
    return RunSnapshot(
        run_id=run.row.id,
        graph_id=run.row.graph,
        tenant=run.row.tenant,
        tasks=tuple(tasks),
        state=run.row.state,
        states=states,
        tries=tries,
        max_tries=max_tries,
        ended_at=ended_at,
        retry_delay_s=dict.fromkeys((task.id for task in tasks), RETRY_DELAY_S),
        now=now,
        skips=skips,
    )


def coarse(states: dict[str, TaskState], run: LiveRun) -> dict[str, TaskState]:
    """What both planners must agree on: a task at work counts as queued, an unknown width as not begun."""
    found: dict[str, TaskState] = {}
    for node in range(len(run.graph.specs)):
        for name in names_of(run, node):
            state = states.get(name, NONE)
            if state in LEASED or state is SCHEDULED:
                state = QUEUED
            found[name] = NONE if name.endswith("#unknown") and state is QUEUED else state
    return found


def planned(before: RunSnapshot) -> dict[str, TaskState]:
    """The states after planning from scratch, to a fixed point."""
    here = before
    for _ in range(5):
        moves = plan_run(here)
        if not moves:
            return here.states
        here = with_transitions(here, moves)
    raise AssertionError("planning from scratch does not come to rest")


def assert_agrees(run: LiveRun, expected: dict[str, TaskState], now: int) -> None:
    actual = picture(run, now)
    assert coarse(actual.states, run) == coarse(expected, run)


def assert_ended_as_from_scratch(run: LiveRun, now: int) -> None:
    before = picture(run, now)
    running = RunSnapshot(
        run_id="r",
        graph_id="g",
        tenant="t",
        tasks=before.tasks,
        state=RunState.RUNNING,
        states=before.states,
        tries=before.tries,
        max_tries=before.max_tries,
        ended_at=before.ended_at,
        now=None,
        skips=before.skips,
    )
    unknown = [spec for node, spec in enumerate(run.graph.specs) if not run.graph.width[node]]
    if unknown and run.row.state is RunState.FAILED:
        assert "deadlock" in run.row.reason
        assert any(spec.expansion is None for spec in unknown), "only a client could have said how many these are"
        return
    state, done = finalize_run(running)
    assert done == (run.row.state in RUN_TERMINAL)
    if done:
        assert run.row.state is state
    if run.row.state is RunState.FAILED:
        assert_reason_names_tasks_that_failed(run)


def assert_reason_names_tasks_that_failed(run: LiveRun) -> None:
    assert run.row.reason.startswith(TASKS_FAILED)
    named = run.row.reason.removeprefix(TASKS_FAILED).split(", ")
    states = {run.graph.task_id(idx): task.state for idx, task in run.tasks.items()}
    failed = [name for name, state in states.items() if state is FAILED]
    by_rule = [name for name, state in states.items() if state is UPSTREAM_FAILED]
    assert named, "there is always a task to name"
    assert set(named) <= set(failed or by_rule)


# Graphs.


@st.composite
def graphs(draw: st.DrawFn, *, unknown_widths: bool = True, widths: int = 3, mapped: bool = False) -> Graph:
    """Random graphs; in `mapped` ones every task of unknown width is mapped over one of its upstreams."""
    count = draw(st.integers(1, 7))
    specs: list[TaskSpec] = []
    for number in range(count):
        upstream = draw(st.lists(st.integers(0, number - 1), max_size=3, unique=True)) if number else []
        role = draw(st.sampled_from(["plain", "plain", "plain", "setup", "teardown"]))
        least = 0 if unknown_widths and upstream else 1
        width = draw(st.sampled_from([1, 1, *range(least, widths + 1)] + [0] * (3 * mapped * (1 - least))))
        expansion = None
        if mapped and (not width or draw(st.booleans())):
            over = f"n{draw(st.sampled_from(upstream))}" if not width or (upstream and draw(st.booleans())) else ""
            expansion = Expansion(over, is_empty=width == 1 and draw(st.booleans()))
        specs.append(
            TaskSpec(
                id=f"n{number}",
                upstream=tuple(f"n{above}" for above in upstream),
                trigger_rule=draw(st.sampled_from(TriggerRule)),
                width=width,
                expansion=expansion,
                is_setup=role == "setup",
                is_teardown=role == "teardown",
                on_failure_fail_run=draw(st.booleans()),
                retry=RETRY if draw(st.integers(0, 3)) == 0 else RetryPolicy(),
            )
        )
    return graph(*draw(st.permutations(specs)))


def finish_one(
    world: World, run: LiveRun, granted: LeaseGranted, before: dict[str, TaskState], draw: st.DataObject, branches: bool
) -> dict[str, TaskState]:
    """One attempt ends; what planning from scratch makes of it and of the states before."""
    outcome = draw.draw(
        st.sampled_from([cm.Outcome.SUCCESS, cm.Outcome.SUCCESS, cm.Outcome.FAILED, cm.Outcome.SKIPPED])
    )
    node = run.graph.node(granted.task)
    expands: list[tuple[str, int]] = []
    skips: list[str] = []
    if outcome is cm.Outcome.SUCCESS:
        unknown = [down for down in run.graph.downs[node] if not run.graph.width[down]]
        # What is mapped over this very task is always told; what a client may tell, perhaps.
        told = [down for down in unknown if run.graph.over.get(down, node) == node]
        told = [down for down in told if down in run.graph.over or draw.draw(st.integers(0, 3))]
        expands = [(run.graph.specs[down].id, draw.draw(st.integers(0, 3))) for down in told]
        if branches and draw.draw(st.integers(0, 3)) == 0:
            below = [run.graph.specs[down].id for down in below_of(run.graph, [node])]
            skips = draw.draw(st.lists(st.sampled_from(below), unique=True, max_size=3)) if below else []
    name = names_of(run, node)[granted.task - run.graph.start[node]]
    world.report(granted, outcome, expands=tuple(expands), skips=tuple(skips))
    after = picture(run, world.now)
    before = dict(before)
    before[name] = {cm.Outcome.SUCCESS: SUCCESS, cm.Outcome.FAILED: FAILED, cm.Outcome.SKIPPED: SKIPPED}[outcome]
    facts = {entry.id for entry in after.tasks}
    states = {entry: state for entry, state in before.items() if entry in facts}
    return planned(
        RunSnapshot(
            run_id="r",
            graph_id="g",
            tenant="t",
            tasks=after.tasks,
            state=RunState.RUNNING,
            states=states,
            tries=after.tries,
            max_tries=after.max_tries,
            ended_at=after.ended_at,
            retry_delay_s=after.retry_delay_s,
            now=world.now,
            skips=after.skips,
        )
    )


def start_all(world: World) -> list[LeaseGranted]:
    """Place what can be placed, and start it."""
    granted = world.place()
    for one in granted:
        world.start(one)
    return granted


def drive(whole: Graph, data: st.DataObject, *, branches: bool = False) -> None:
    """Run a graph to its end, comparing after every step."""
    world = World()
    world.worker(slots=100)
    run = world.submit(whole)
    world.follow_up()
    # What is mapped over nothing may have its one task by now.
    empty = RunSnapshot(
        run_id="r", graph_id="g", tenant="t", tasks=picture(run, world.now).tasks, state=RunState.RUNNING, now=world.now
    )
    assert_agrees(run, planned(empty), world.now)
    held: list[LeaseGranted] = []
    for _ in range(60):
        held += start_all(world)
        before = picture(run, world.now).states
        if run.row.state in RUN_TERMINAL:
            break
        cooling = UP_FOR_RETRY in before.values()
        if held and not (cooling and data.draw(st.booleans())):
            granted = held.pop(data.draw(st.integers(0, len(held) - 1)))
            expected = finish_one(world, run, granted, before, data, branches)
            world.follow_up()
        else:
            world.now += RETRY_DELAY_S * 1000
            world.hear()
            expected = planned(picture(run, world.now))
            world.fire_due()
        assert_agrees(run, expected, world.now)
        assert_ended_as_from_scratch(run, world.now)
    else:
        raise AssertionError("the run does not end")


# Sixty graphs a test keep the folder quick; `make test-long` looks at thousands.
QUICK = examples(60)


@QUICK
@given(whole=graphs(unknown_widths=False), data=st.data())
def test_the_engine_agrees_with_planning_from_scratch_after_every_step(whole: Graph, data: st.DataObject):
    drive(whole, data)


@QUICK
@given(whole=graphs(), data=st.data())
def test_it_agrees_when_widths_become_known_on_the_way(whole: Graph, data: st.DataObject):
    drive(whole, data)


@QUICK
@given(whole=graphs(mapped=True), data=st.data())
def test_it_agrees_when_tasks_are_mapped_over_each_other_and_no_run_comes_to_a_standstill(
    whole: Graph, data: st.DataObject
):
    drive(whole, data)


@QUICK
@given(whole=graphs(mapped=True), data=st.data())
def test_it_agrees_when_any_task_may_leave_out_what_follows_it(whole: Graph, data: st.DataObject):
    drive(whole, data, branches=True)


@QUICK
@given(whole=graphs(unknown_widths=False, widths=5), data=st.data(), size=st.integers(1, 4))
def test_it_agrees_when_every_cascade_is_cut_into_short_slices(whole: Graph, data: st.DataObject, size: int):
    with short_slices(size):
        drive(whole, data)


# Disorder: slices continued late, tasks cleared, outputs lost. What must hold is the end, and rest before it.


def assert_at_rest(world: World, run: LiveRun) -> None:
    """Nothing is left undecided that a plan from scratch would decide."""
    now = picture(run, world.now)
    # Whoever waits for another try has passed its rule; an output that was lost since does not take that back.
    waiting = (TaskState.UP_FOR_RETRY, TaskState.UP_FOR_RESCHEDULE)
    states = {name: TaskState.RUNNING if state in waiting else state for name, state in now.states.items()}
    judged = RunSnapshot(
        run_id="r", graph_id="g", tenant="t", tasks=now.tasks, state=run.row.state, states=states, now=world.now
    )
    moves = [move for move in plan_run(judged) if not move.task_id.endswith("#unknown") and move.to is not NONE]
    moves = [move for move in moves if now.states.get(move.task_id, NONE) in (NONE, SCHEDULED)]
    assert moves == []
    assert run.ended == sum(state in TERMINAL for state in task_states(run).values())
    assert run.moving == sum(state is not NONE and state not in TERMINAL for state in task_states(run).values())


def disturb(world: World, run: LiveRun, data: st.DataObject) -> None:
    """A person clears tasks, or an output is lost."""
    names = [run.graph.task_id(idx) for idx, state in task_states(run).items() if state in TERMINAL]
    if not names:
        return
    name = data.draw(st.sampled_from(names))
    world.follow_up()
    if data.draw(st.booleans()):
        world.client(cm.ClearTasks, run="r", tasks=(name,), downstream=data.draw(st.booleans()))
    elif run.row.state is RunState.RUNNING:
        world.client(cm.LoseOutputs, run="r", tasks=(name,))


@QUICK
@given(whole=graphs(unknown_widths=False, widths=4), data=st.data(), size=st.sampled_from([1, 2, 3, 1_000]))
def test_a_run_comes_to_rest_and_to_an_end_whatever_is_cleared_or_lost(whole: Graph, data: st.DataObject, size: int):
    with short_slices(size):
        world = World(limits=TimeLimits(retain_ended_ms=10**9))
        world.worker(slots=100)
        run = world.submit(whole)
        held: list[LeaseGranted] = []
        for _ in range(25):
            if data.draw(st.booleans()):
                world.follow_up()
                assert_at_rest(world, run)
            held = [granted for granted in (*held, *start_all(world)) if granted.fence in world.state.leases]
            step = data.draw(st.integers(0, 5))
            if held and step < 4:
                granted = held.pop(data.draw(st.integers(0, len(held) - 1)))
                world.report(granted, data.draw(st.sampled_from([cm.Outcome.SUCCESS, cm.Outcome.FAILED])))
            elif step == 4:
                disturb(world, run, data)
            else:
                world.now += RETRY_DELAY_S * 1000
                world.hear()
                world.fire_due()
        end(world, run)


def end(world: World, run: LiveRun) -> None:
    """Everything still to do succeeds."""
    for _ in range(200):
        for granted in world.turn():
            world.succeed(granted)
        for fence, lease in list(world.state.leases.items()):
            world.do(
                cm.Report(
                    tenant="t",
                    run="r",
                    task=lease.task.idx,
                    worker_tenant="t",
                    worker="w",
                    incarnation=lease.task.incarnation,
                    fence=fence,
                    outcome=cm.Outcome.SUCCESS,
                )
            )
        world.follow_up()
        assert_at_rest(world, run)
        if run.row.state in RUN_TERMINAL:
            break
        world.now += RETRY_DELAY_S * 1000
        world.hear()
        world.fire_due()
    assert run.row.state in RUN_TERMINAL
    assert all(state in TERMINAL for state in task_states(run).values())
    assert_ended_as_from_scratch(run, world.now)


# Cases worth a sentence of their own.


def finish(world: World, outcomes: dict[str, cm.Outcome]) -> None:
    """Drive the run to rest; a task not named succeeds."""
    for _ in range(50):
        granted = world.turn()
        if not granted:
            return
        for one in granted:
            name = world.run().graph.specs[world.run().graph.node(one.task)].id
            world.report(one, outcomes.get(name, cm.Outcome.SUCCESS))


def test_a_far_failure_outweighs_a_near_skip_in_the_same_cascade():
    world = World()
    world.worker(slots=10)
    run = world.submit(
        graph(
            task("a"),
            task("near", "a", trigger_rule=TriggerRule.ALL_SKIPPED),
            task("x", "a"),
            task("far", "x"),
            task("last", "near", "far"),
        )
    )
    finish(world, {"a": cm.Outcome.FAILED})
    assert world.states() == {
        "a": "failed",
        "near": "skipped",
        "x": "upstream_failed",
        "far": "upstream_failed",
        "last": "upstream_failed",
    }
    assert run.row.state is RunState.FAILED


def test_a_teardown_runs_after_its_work_failed_whatever_rule_it_was_given():
    world = World()
    world.worker(slots=10)
    world.submit(
        graph(task("setup", is_setup=True), task("work", "setup"), task("clean", "setup", "work", is_teardown=True))
    )
    finish(world, {"work": cm.Outcome.FAILED})
    assert world.states() == {"setup": "success", "work": "failed", "clean": "success"}
    assert world.result() is RunState.FAILED


@pytest.mark.parametrize(("failing", "named"), [("make", "make"), ("make beside", "make"), ("work", "work")])
def test_a_run_whose_last_task_could_not_run_names_what_failed_it(failing: str, named: str):
    """However far above it is."""
    world = World()
    world.worker(slots=10)
    world.submit(
        graph(
            task("make"),
            task("beside"),
            task("work", "make"),
            task("more", "work"),
            task("report", "more"),
            task("clean", "work", "beside", trigger_rule=TriggerRule.ALL_DONE),
        )
    )
    finish(world, dict.fromkeys(failing.split(), cm.Outcome.FAILED))
    assert (world.states()["report"], world.states()["clean"]) == ("upstream_failed", "success")
    assert world.result() is RunState.FAILED
    reason = world.run().row.reason.removeprefix(TASKS_FAILED).split(", ")
    assert named in reason
    assert "clean" not in reason


def test_a_teardown_that_could_not_run_names_the_setup_that_failed():
    world = World()
    world.worker(slots=10)
    world.submit(
        graph(
            task("make", is_setup=True),
            task("work", "make"),
            task("drop", "make", "work", is_teardown=True, on_failure_fail_run=True),
            task("clean", "work", trigger_rule=TriggerRule.ALL_DONE),
        )
    )
    finish(world, {"make": cm.Outcome.FAILED})
    assert world.states()["clean"] == "success"
    assert world.run().row.reason == f"{TASKS_FAILED}make"


def test_in_a_graph_of_teardowns_only_the_last_of_them_decide():
    world = World()
    world.worker(slots=10)
    world.submit(graph(task("clean", is_teardown=True)))
    finish(world, {"clean": cm.Outcome.FAILED})
    assert world.result() is RunState.FAILED


@pytest.mark.parametrize("width", [0, 1, 2])
def test_tasks_keep_their_names_when_a_width_in_the_middle_becomes_known(width: int):
    world = World()
    world.worker(slots=10)
    run = world.submit(graph(task("a"), task("m", "a", width=0), task("b", "m", trigger_rule=TriggerRule.ALL_DONE)))
    (a,) = world.turn()
    world.succeed(a, expands=(("m", width),))
    tasks = [f"m[{number}]" for number in range(max(1, width))]
    assert [run.graph.task_id(idx) for idx in range(run.graph.total)] == ["a", "b", *tasks]
    finish(world, {})
    assert world.states()["b"] == "success"
    assert world.result() is RunState.SUCCESS


def test_a_node_that_was_decided_but_not_yet_moved_is_not_decided_twice():
    world = World()
    world.worker(slots=2)
    world.submit(
        graph(
            task("a", kind="one"),
            task("b", kind="one"),
            task("wide", "a", width=1_000),
            task("first", "a", "b", trigger_rule=TriggerRule.ONE_SUCCESS),
        )
    )
    a, b = world.turn()
    world.succeed(a)
    world.succeed(b)
    world.follow_up()
    assert world.states()["first"] == "queued"


def test_what_a_run_comes_to_does_not_depend_on_how_its_cascades_are_cut():
    """`last` has a skipped and a failed upstream; the skips alone fill the first slice."""
    found: list[dict[str, str]] = []
    for size in (2, 1_000):
        with short_slices(size):
            world = World()
            world.worker(slots=1)
            near = task("near", "a", width=2, trigger_rule=TriggerRule.ALL_SKIPPED)
            world.submit(graph(task("a"), near, task("wide", "a", width=2), task("last", "near", "wide")))
            finish(world, {"a": cm.Outcome.FAILED})
            found.append({**world.states(), "run": world.result().value})
    assert found[1]["last"] == "upstream_failed"
    assert found[0] == found[1]


def test_a_lost_output_waits_for_the_end_of_a_long_cascade():
    with short_slices(2):
        world = World()
        world.worker(slots=1)
        world.submit(graph(task("a"), task("b", "a", width=5)))
        (a,) = world.turn()
        world.succeed(a)
        with pytest.raises(Unavailable):
            world.client(cm.LoseOutputs, run="r", tasks=("a",))
        world.follow_up()
        world.client(cm.LoseOutputs, run="r", tasks=("a",))
        assert [world.states()[f"b[{number}]"] for number in range(5)] == ["none"] * 5


def test_clearing_waits_for_the_end_of_a_long_cascade():
    with short_slices(2):
        world = World()
        world.worker(slots=1)
        world.submit(graph(task("a"), task("b", "a", width=5)))
        (a,) = world.turn()
        world.fail(a)
        with pytest.raises(Unavailable):
            world.client(cm.ClearTasks, run="r", tasks=("a",))
        world.follow_up()
        world.client(cm.ClearTasks, run="r", tasks=("a",))
        assert [world.states()[f"b[{number}]"] for number in range(5)] == ["none"] * 5
        finish(world, {})
        assert world.result() is RunState.SUCCESS


def test_a_task_that_waits_for_its_retry_is_not_an_end():
    world = World()
    world.worker(slots=1)
    world.submit(graph(task("a", retry=RETRY), task("b", "a", trigger_rule=TriggerRule.ALL_DONE)))
    (a,) = world.turn()
    world.fail(a)
    assert world.task("a").state is UP_FOR_RETRY
    assert world.states()["b"] == "none"
    world.advance(RETRY_DELAY_S * 1000)
    assert world.states() == {"a": "queued", "b": "none"}


@pytest.mark.parametrize("beside", [(), ("other",)], ids=["its only upstream", "one of two"])
def test_a_task_mapped_over_a_group_does_not_look_at_the_whole_group_each_time_one_of_it_ends(
    beside: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    width = 100
    looked_at: list[int] = []
    state_of = Cascade._state

    def look(cascade: Cascade, idx: int) -> TaskState:
        looked_at.append(idx)
        return state_of(cascade, idx)

    monkeypatch.setattr(Cascade, "_state", look)
    world = World()
    world.worker("w", slots=width + 1)
    mapped = task("mapped", "source", *beside, width=0, expansion=Expansion("source"))
    world.submit(graph(task("source", width=width), *(task(name) for name in beside), mapped))
    granted = world.turn()
    for each in reversed(granted):
        is_last = each is granted[0]
        world.succeed(each, expands=(("mapped", width),) if is_last else ())
        assert validate(world.state, world.now) == []
    assert len(looked_at) <= 2 * width
    assert world.states()["mapped[99]"] == "queued"
    assert derived(world.restarted().state)["runs"] == derived(world.state)["runs"]
