"""Benchmarks of the core and its loop."""

import gc
import time
import tracemalloc
from collections.abc import Iterator

from bench.rig import Rig, Row, Stopwatch
from rota.core.bounds import TimeLimits
from rota.core.changes import AttemptEnded, Change, LeaseGranted
from rota.core.commands import RegisterWorker, SubmitRun
from rota.core.decide import decide
from rota.core.evolve import evolve
from rota.core.model import Capacity, Graph, PropertyRule, Queue, TaskSpec
from rota.core.place import place
from rota.core.presence import heard_from
from rota.core.state import State
from rota.core.states import SUCCESS


def flat(tasks: int, name: str = "g") -> Graph:
    """A graph of independent tasks."""
    return Graph(name=name, tasks=tuple(TaskSpec(id=f"t{number}") for number in range(tasks)))


def layered(tasks: int, width: int = 100) -> Graph:
    """A graph of layers: each task waits for two of the layer before."""
    specs: list[TaskSpec] = []
    for number in range(tasks):
        layer, place_in_layer = divmod(number, width)
        ups = (
            ()
            if not layer
            else (
                f"t{(layer - 1) * width + place_in_layer}",
                f"t{(layer - 1) * width + (place_in_layer + 1) % width}",
            )
        )
        specs.append(TaskSpec(id=f"t{number}", upstream=ups))
    return Graph(name="layers", tasks=tuple(specs))


def place_and_launch() -> Iterator[Row]:
    """10,000 tasks on 100 workers: submitted, placed, durable, sent."""
    rig = Rig(100, 100)
    graph = flat(10_000)
    with Stopwatch() as watch:
        rig.submit(0, graph)
        rig.rest()
    assert len(rig.offers) == 10_000, f"only {len(rig.offers)} were launched"
    yield Row(
        "10,000 tasks placed and launched on 100 workers",
        round(watch.cpu_s, 3),
        "s",
        0.35,
        "lower",
        watch.cpu_s * 100,
        "CPU seconds from submission to the last start frame, memory store",
    )


def lifecycles() -> Iterator[Row]:
    """Submit, assign, start, complete."""
    count = 20_000
    rig = Rig(100, 100)
    graph = flat(count)
    with Stopwatch() as watch:
        rig.submit(0, graph)
        done = rig.finish_all()
    assert done == count, f"{done} of {count} were done"
    yield Row(
        "task lifecycles, one run", round(count / watch.cpu_s), "tasks/s", 20_000, "higher", watch.cpu_s / count * 1e6
    )
    rig = Rig(100, 100)
    one = flat(1, "one")
    with Stopwatch() as watch:
        for first in range(0, count, 500):
            rig.submit_many(first, 500, one)
        done = rig.finish_all()
    assert done == count, f"{done} of {count} were done"
    yield Row(
        "task lifecycles, one-task runs",
        round(count / watch.cpu_s),
        "tasks/s",
        20_000,
        "higher",
        watch.cpu_s / count * 1e6,
    )


def large_graph() -> Iterator[Row]:
    """One graph of 100,000 tasks against one of 1,000."""

    def cost(tasks: int) -> tuple[float, list[float]]:
        rig = Rig(20, 50)
        graph = layered(tasks)
        rig.pauses.clear()
        with Stopwatch() as watch:
            rig.submit(0, graph)
            done = rig.finish_all()
        assert done == tasks, f"{done} of {tasks} were done"
        return watch.cpu_s / tasks * 1e6, sorted(rig.pauses)

    small = min(cost(1_000)[0] for _ in range(5))
    large, pauses = cost(100_000)
    yield Row(
        "100,000-task graph, cost per task against a 1,000-task graph",
        round(large / small, 2),
        "ratio",
        1.5,
        "lower",
        large,
        f"{small:.1f} and {large:.1f} CPU µs per task",
    )
    p99 = pauses[int(len(pauses) * 0.99)] * 1000
    yield Row(
        "100,000-task graph, loop pause p99",
        round(p99, 2),
        "ms",
        20,
        "lower",
        0.0,
        f"longest {pauses[-1] * 1000:.0f} ms: the submission itself, where the graph is checked and laid out",
    )


def dispatch() -> Iterator[Row]:
    """One decision with many queued, many signatures, many workers."""

    def cost(tasks: int, signatures: int, workers: int) -> float:
        state = State(1, TimeLimits(), 0)
        state.put_queue(Queue(tenant="t", name="q", properties=(("image", PropertyRule.EXACT),)))

        def do(command: object) -> None:
            for change in decide(state, command, 1).changes:  # type: ignore[arg-type] - commands only
                evolve(state, change)

        for number in range(workers):
            capacity = Capacity(slots=1, properties=(("image", f"i{number % signatures}"),))
            do(RegisterWorker(tenant="t", worker=f"w{number}", incarnation="1", capacity=capacity))
        specs = tuple(
            TaskSpec(id=f"t{number}", queue="q", requires=(("image", f"i{number}"),), width=tasks // signatures)
            for number in range(signatures)
        )
        do(SubmitRun(tenant="t", command_id="c", run="r", graph=Graph(name="g", tasks=specs)))
        _settle(state)
        running = _fill(state)
        decisions = min(2_000, tasks // 4)
        return _churn(state, running, decisions)

    small = min(cost(100, 10, 10) for _ in range(5))
    large = cost(100_000, 1_000, 10_000)
    yield Row(
        "dispatch decision: 100,000 queued, 1,000 signatures, 10,000 workers against 100, 10, 10",
        round(large / small, 2),
        "ratio",
        3,
        "lower",
        large,
        f"{small:.1f} and {large:.1f} CPU µs from the end of one attempt to the grant of the next",
    )


def _settle(state: State) -> None:
    from rota.core.commands import ContinueRun, StartRuns

    while state.starts or state.continues:
        if state.starts:
            tenant, name = next(iter(state.starts))
            decision = decide(state, StartRuns(tenant=tenant, name=name), 1)
        else:
            tenant, name = next(iter(state.continues))
            decision = decide(state, ContinueRun(tenant=tenant, run=name), 1)
        for change in decision.changes:
            evolve(state, change)
    for worker in state.workers.values():
        heard_from(state, worker, 1)


def _fill(state: State) -> list[LeaseGranted]:
    running: list[LeaseGranted] = []
    while (granted := _granted(place(state, 1))) is not None:
        evolve(state, granted)
        running.append(granted)
    return running


def _granted(placed: list[Change]) -> LeaseGranted | None:
    return next((change for change in placed if isinstance(change, LeaseGranted)), None)


def _churn(state: State, running: list[LeaseGranted], decisions: int) -> float:
    """End attempts one at a time; only the decision that follows is timed."""
    spent = 0.0
    gc.collect()
    gc.freeze()
    for number in range(decisions):
        granted = running[number % len(running)]
        key = (granted.tenant, granted.run)
        ended = AttemptEnded(*key, granted.task, granted.fence, SUCCESS, 2, None, None, "", 0)
        evolve(state, ended)
        began = time.process_time()
        placed = place(state, 2)
        spent += time.process_time() - began
        follower = _granted(placed)
        if follower is None:
            decisions = number
            break
        evolve(state, follower)
        running[number % len(running)] = follower
    gc.unfreeze()
    return spent / max(1, decisions) * 1e6


def memory() -> Iterator[Row]:
    """Memory per queued task at a million queued, in one-task runs and in one wide run."""
    for name, build in (("one run", _queue_wide), ("one-task runs", _queue_single)):
        tasks = 1_000_000 if name == "one run" else 200_000
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        began = time.process_time()
        state = build(tasks)
        spent = time.process_time() - began
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert state.index.queued == tasks, f"{state.index.queued} of {tasks} are queued"
        yield Row(
            f"memory per queued task, {name}",
            round(used / tasks),
            "bytes",
            1_500,
            "lower",
            spent / tasks * 1e6,
            f"{tasks:,} queued; time measured while memory is traced",
        )
        del state


def _queue_wide(tasks: int) -> State:
    state = State(1, TimeLimits(), 0)
    graph = Graph(name="g", tasks=(TaskSpec(id="t", width=tasks),))
    for change in decide(state, SubmitRun(tenant="t", command_id="c", run="r", graph=graph), 1).changes:
        evolve(state, change)
    _settle(state)
    state.touched = type(state.touched)()
    return state


def _queue_single(tasks: int) -> State:
    state = State(1, TimeLimits(), 0)
    graph = flat(1)
    for number in range(tasks):
        command = SubmitRun(tenant="t", command_id=f"c{number}", run=f"r{number}", graph=graph)
        for change in decide(state, command, 1).changes:
            evolve(state, change)
        if number % 1_000 == 0:
            _settle(state)
            state.touched = type(state.touched)()
    _settle(state)
    state.touched = type(state.touched)()
    return state
