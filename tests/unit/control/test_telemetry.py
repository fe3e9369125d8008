"""Metrics: every one of them changes in some scenario, counters outlive a reign, labels are bounded."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from rota import Rota
from rota.control import telemetry as module
from rota.control.driver import CoordinatorDriver
from rota.control.events import Commit, Escalate, Tell
from rota.control.recorder import Recorder, RecorderFeed
from rota.control.tally import GRAPHS_SHOWN_MAX, OTHER_GRAPHS
from rota.control.telemetry import METRICS, Telemetry
from rota.core import commands as cm
from rota.core.bounds import REFUSED_REPORTS_TOLD_MAX, TimeLimits
from rota.core.calendar import ScheduleSpec
from rota.core.decide.timers import THRESHOLDS
from rota.core.errors import Unavailable
from rota.core.model import Graph, Pool, PoolNeed, Queue, RetryPolicy, TaskSpec
from rota.ports import Candidate
from rota.stores.memory import MemoryStore
from rota.wire.metrics import AUTH_CAUSES, OTHER, REQUESTS_SHOWN_MAX
from rota.wire.standings import StreamsView, StreamView
from rota.wire.stream_metrics import STREAM_METRICS
from tests.unit.control.stage import TENANT, UNKNOWN, Speaker, Stage, reigning

SUCCESS = cm.Outcome.SUCCESS
_SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$", re.MULTILINE)

Values = dict[str, float]


class Counting:
    """A recorder that counts what it is told as the metrics do."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.away_s: list[float] = []

    def record_scheduler_decision(self, decision: str) -> None:
        self.counts["rota_scheduler_decisions_total", decision] += 1

    def record_task_transition(self, here: str, there: str, graph: str) -> None:
        self.counts["rota_transitions_total", here, there, graph] += 1

    def record_undispatchable(self, reason: str) -> None:
        self.counts["rota_undispatchable_tasks_total", reason] += 1

    def record_scheduler_step_down(self, reason: str) -> None:
        self.counts["rota_step_downs_total", reason] += 1

    def observe_scheduler_reacquire(self, seconds: float) -> None:
        self.away_s.append(seconds)

    def check(self, telemetry: Telemetry) -> None:
        """Whether it was told what the metrics show, and nothing else."""
        names = {name for name, *_ in self.counts}
        shown: Counter[tuple[str, ...]] = Counter()
        for family in telemetry.collect():
            for sample in family.samples:
                if sample.name in names and sample.value:
                    shown[sample.name, *sample.labels.values()] += int(sample.value)
        assert shown == self.counts


class Watched:
    """A stage with its metrics, and a recorder that has to be told the same while one coordinator leads."""

    def __init__(self, stage: Stage | None = None) -> None:
        self.telemetry = Telemetry()
        self.stage = stage or reigning()
        self.telemetry.attach(self.stage.coordinator, lambda: self.stage.now)
        self.recorder = Counting()
        self.stage.on_turn = RecorderFeed(self.recorder, self.stage.coordinator).turned
        self._loop = self.stage.coordinator.loop

    def values(self) -> Values:
        """Every sample, by its name and labels as they are on the wire."""
        if self._loop is not None and self._loop is self.stage.coordinator.loop:
            self.recorder.check(self.telemetry)
        content, kind = self.telemetry.render()
        assert kind.startswith("text/plain")
        found = _SAMPLE.finditer(content.decode())
        return {f"{each['name']}{{{each['labels'] or ''}}}": float(each["value"]) for each in found}

    def value(self, name: str, **labels: str) -> float:
        text = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
        return self.values().get(f"{name}{{{text}}}", 0.0)


def working(**spec: Any) -> tuple[Watched, Speaker, Any]:
    """A worker that has begun the only task of a run."""
    watched = Watched()
    worker = Speaker(watched.stage).join()
    watched.stage.submit("r", TaskSpec(id="x", **spec))
    offer = worker.take()
    worker.start(offer)
    return watched, worker, offer


# One scenario for each metric: it plays, and what it gives back has to have changed.


def decisions() -> Values:
    watched = Watched()
    watched.stage.submit("r")
    watched.stage.submit("r", command_id="another")
    assert watched.value("rota_decisions_total", command="SubmitRun", outcome="refused") == 1
    return {"rota_decisions_total": watched.value("rota_decisions_total", command="SubmitRun", outcome="decided")}


def transitions() -> Values:
    watched, worker, offer = working()
    worker.succeed(offer)
    steps = ["none", "scheduled", "queued", "assigned", "running", "success"]
    for here, there in pairwise(steps):
        assert watched.value("rota_transitions_total", **{"from": here, "to": there, "graph": "g"}) == 1
    return {"rota_transitions_total": sum(v for k, v in watched.values().items() if "transitions" in k) - 4}


def scheduler_decisions() -> Values:
    """A run of its schedule, a retry, a failure that is passed on, a lost start, and a run that has to wait."""
    watched = Watched()
    stage = watched.stage
    failing = TaskSpec(id="x", retry=RetryPolicy(retries=1, delay_ms=0))
    graph = Graph(name="g", tasks=(failing, TaskSpec(id="y", upstream=("x",))), max_active_runs=1)
    schedule = ScheduleSpec(cron="* * * * *")
    stage.ask(cm.DeployWorkflow(tenant=TENANT, command_id="d", graph=graph, schedule=schedule))
    stage.advance(60_000)
    stage.ask(cm.SubmitRun(tenant=TENANT, command_id="s", run="another", workflow="g"))

    def decided(decision: str) -> float:
        return watched.value("rota_scheduler_decisions_total", decision=decision)

    assert (decided("create_run"), decided("max_active_runs_cap")) == (1, 1)
    worker = Speaker(stage).join()
    for _ in range(2):
        (offer,) = worker.held.values()
        worker.report(offer, cm.Outcome.FAILED)
    assert [decided(each) for each in ("up_for_retry", "retry", "failed", "upstream_failed")] == [1, 1, 1, 1]
    assert (decided("scheduled"), decided("queued"), decided("assigned")) == (2, 3, 3)
    stage.advance(stage.limits.dispatch_ms)
    assert (decided("agent_lost"), decided("run_error"), decided("starved"), decided("orphan_reaped")) == (0, 0, 0, 0)
    return {"rota_scheduler_decisions_total": decided("dispatch_lost")}


def one_question(*_: object) -> Iterator[cm.Command]:
    yield cm.Tick(tenant="", kind="rate", key=())


def an_error(*_: object) -> Iterator[cm.Command]:
    raise RuntimeError("an error of ours")
    yield


def steps() -> Values:
    watched = Watched()
    stage, agenda = watched.stage, watched.stage.loop.agenda
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rota.control.agenda.PHASES", (an_error, one_question))
        stage.loop.state.set_timer(stage.now, "step")
        stage.rest()
        patch.setattr("rota.control.agenda.PHASES", (one_question,))
        agenda.begin(stage.loop.state, stage.now)
        agenda.begin(stage.loop.state, stage.now)
    stage.now += 1_000
    while agenda:
        agenda.take(stage.now)
    passes = [watched.value("rota_steps_total", outcome=outcome) for outcome in ("failed", "late", "done")]
    assert passes == [1, 1, 1]
    return {"rota_steps_total": passes[0], "rota_step_seconds": watched.value("rota_step_seconds")}


def interruptions() -> Values:
    watched, _, _ = working()
    stage = watched.stage
    stage.advance(stage.limits.lease_ms + stage.limits.dispatch_ms)
    return {"rota_interruptions_total": watched.value("rota_interruptions_total")}


def stale_reports() -> Values:
    watched, worker, offer = working()
    stage = watched.stage
    stage.advance(stage.limits.lease_ms + stage.limits.dispatch_ms)
    for _ in range(REFUSED_REPORTS_TOLD_MAX + 1):
        worker.say(reports=(worker.word(offer, SUCCESS),), count=0, checksum=0)
    counted = watched.value("rota_stale_reports_total", cause="old_fence")
    assert counted == REFUSED_REPORTS_TOLD_MAX + 1, "also those that are too many to be told"
    return {"rota_stale_reports_total": 1}


def step_downs() -> Values:
    watched = Watched()
    watched.stage.withheld = (Commit,)
    watched.stage.submit("r")
    watched.stage.end_commit(UNKNOWN)
    return {"rota_step_downs_total": watched.value("rota_step_downs_total", reason="commit_unknown")}


def faults() -> Values:
    watched = Watched()

    def broken(*_: object) -> None:
        raise RuntimeError("an error of ours")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rota.control.loop.decide", broken)
        watched.stage.submit("r")
    return {"rota_faults_total": watched.value("rota_faults_total")}


def auth_refusals() -> Values:
    watched = Watched()
    watched.telemetry.auth_refused("auth.wrong")
    return {"rota_auth_refusals_total": watched.value("rota_auth_refusals_total", cause="auth.wrong")}


def requests() -> Values:
    watched = Watched()
    watched.telemetry.request("http", "GET /api/v1/runs", 200)
    labels = {"surface": "http", "method": "GET /api/v1/runs", "code": "200"}
    return {"rota_requests_total": watched.value("rota_requests_total", **labels)}


def undispatchable() -> Values:
    """Counted once for each time that a task is queued and no registered worker could run it."""
    watched = Watched()
    stage = watched.stage
    counted = "rota_undispatchable_tasks_total"
    stage.submit("r", TaskSpec(id="a"), TaskSpec(id="b"))
    assert watched.value(counted, reason="worker.none_registered") == 2
    Speaker(stage).join()
    stage.submit("s")
    stage.advance(10_000)
    assert watched.value(counted, reason="worker.none_match") == 0, "a task that waits its turn is not one of them"
    stage.submit("t", TaskSpec(id="a", requires=(("gpu_count", "1"),)))
    stage.advance(10_000)
    assert watched.value(counted, reason="worker.none_registered") == 2
    return {counted: watched.value(counted, reason="worker.none_match")}


def waiting() -> Values:
    watched = Watched()
    stage = watched.stage
    stage.ask(cm.PutPool(tenant=TENANT, command_id="p", pool=Pool(tenant=TENANT, name="db", slots=1)))
    need = (PoolNeed("db"),)
    stage.submit("r", TaskSpec(id="a", pools=need), TaskSpec(id="b", pools=need), TaskSpec(id="c"))
    assert watched.value("rota_waiting_tasks", reason="worker.none_registered") == 3
    Speaker(stage, slots=2).join()
    stage.rest()
    return {"rota_waiting_tasks": watched.value("rota_waiting_tasks", reason="pool.full")}


def queues() -> Values:
    watched = Watched()
    stage = watched.stage
    stage.ask(cm.PutQueue(tenant=TENANT, command_id="q", queue=Queue(tenant=TENANT, name="gpu")))
    assert watched.value("rota_queue_tasks", queue="gpu") == 0
    stage.submit("r", TaskSpec(id="a", queue="gpu"), TaskSpec(id="b", queue="gpu"))
    stage.advance(7_000)
    assert watched.value("rota_queue_oldest_seconds", queue="gpu") == 7
    assert watched.value("rota_queue_oldest_seconds", queue="default") == 0
    return {"rota_queue_tasks": watched.value("rota_queue_tasks", queue="gpu") - 1, "rota_queue_oldest_seconds": 1}


def leases() -> Values:
    watched, worker, offer = working()
    held = watched.value("rota_leases")
    worker.succeed(offer)
    assert watched.value("rota_leases") == 0
    return {"rota_leases": held}


def workers() -> Values:
    watched = Watched()
    stage = watched.stage
    one, two = Speaker(stage, "one").join(), Speaker(stage, "two", stream=2).join()
    assert watched.value("rota_workers", state="present") == 2
    one.hang_up()
    stage.ask(cm.DrainWorker(tenant=TENANT, command_id="d", worker=two.name))
    assert watched.value("rota_workers", state="draining") == 1
    return {"rota_workers": watched.value("rota_workers", state="away")}


def inbox() -> Values:
    watched = Watched()
    watched.stage.loop.inbox.append((1, Speaker(watched.stage).frame()))
    return {"rota_inbox_length": watched.value("rota_inbox_length")}


def reign() -> Values:
    watched = Watched(Stage())
    assert (watched.value("rota_epoch"), watched.value("rota_is_leader")) == (0, 0)
    watched.stage.wake()
    return {"rota_epoch": watched.value("rota_epoch"), "rota_is_leader": watched.value("rota_is_leader")}


def durations() -> Values:
    found: Values = {}

    async def play() -> None:
        telemetry = Telemetry()
        driver = CoordinatorDriver(
            MemoryStore(), TimeLimits(), lambda: 1_000_000, who=Candidate("a test"), telemetry=telemetry
        )
        driver.start()
        async with asyncio.timeout(20):
            assert await driver.reigns()
            await driver.ask(cm.PutPool(tenant=TENANT, command_id="p", pool=Pool(tenant=TENANT, name="db")))
            await driver.stop()
        text = telemetry.render()[0].decode()
        samples = {each["name"]: float(each["value"]) for each in _SAMPLE.finditer(text)}
        assert samples["rota_commit_rows_sum"] == 2, "the pool and the receipt"
        assert samples["rota_commit_seconds_sum"] > 0
        assert samples["rota_turn_seconds_sum"] > 0
        found.update({name.removesuffix("_count"): count for name, count in samples.items() if name.endswith("_count")})

    asyncio.run(play())
    assert found.pop("rota_turn_seconds") > 1
    assert found.pop("rota_reacquire_seconds") == 0, "a first election is no return"
    return {**found, "rota_turn_seconds": 1}


def reacquires() -> Values:
    watched = Watched()
    watched.telemetry.reacquired(2.0)
    assert watched.value("rota_reacquire_seconds_sum") == 2
    return {"rota_reacquire_seconds": watched.value("rota_reacquire_seconds_count")}


def starved() -> Values:
    watched = Watched()
    stage = watched.stage
    stage.submit("r")
    stage.advance(stage.limits.starve_ms + THRESHOLDS.fan_out * stage.limits.sweep_ms)
    return {"rota_starved_tasks_total": watched.value("rota_starved_tasks_total", tier="fan_out")}


def spawns() -> Values:
    watched = Watched()
    watched.telemetry.spawned("started")
    return {"rota_spawns_total": watched.value("rota_spawns_total", outcome="started")}


def streams() -> Values:
    watched, _, _ = working()
    view = StreamView(
        name="clicks",
        folder="/s/clicks",
        state="running",
        told_at=1_000,
        published_at=1_000,
        round=1,
        rows=1,
        late=1,
        lag_ms=1_000,
        state_rows=1,
        state_bytes=1,
        checkpoint_ms=1_000,
    )
    watched.telemetry.streams = lambda: {"acme": StreamsView(as_of=2_000, streams=(view,))}
    named = {metric.name for metric in STREAM_METRICS} - {"rota_streams", "rota_stream_set_aside_rows_total"}
    return {
        "rota_streams": watched.value("rota_streams", state="running"),
        "rota_stream_set_aside_rows_total": watched.value(
            "rota_stream_set_aside_rows_total", tenant="acme", stream="clicks", sort="late"
        ),
        **{name: watched.value(name, tenant="acme", stream="clicks") for name in sorted(named)},
    }


SCENARIOS: list[Callable[[], Values]] = [
    decisions,
    scheduler_decisions,
    transitions,
    steps,
    interruptions,
    stale_reports,
    step_downs,
    reacquires,
    faults,
    auth_refusals,
    requests,
    undispatchable,
    waiting,
    queues,
    leases,
    workers,
    inbox,
    reign,
    durations,
    starved,
    spawns,
    streams,
]


@pytest.mark.parametrize("play", SCENARIOS, ids=lambda play: play.__name__)
def test_a_metric_says_what_happened(play: Callable[[], Values]):
    assert set(play().values()) == {1}


def test_every_metric_has_a_scenario_in_which_it_changes():
    shown = [name for play in SCENARIOS for name in play()]
    assert sorted(shown) == sorted(metric.name for metric in METRICS)


def test_every_metric_is_on_the_wire_with_its_sort_and_no_other_is():
    watched, _, _ = working()
    text = watched.telemetry.render()[0].decode()
    typed = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    # The library adds when a histogram was made.
    typed = {name: sort for name, sort in typed.items() if not name.endswith("_created")}
    assert typed == {metric.name: metric.sort for metric in METRICS}


# Over time.


def test_counters_go_on_over_the_end_of_a_reign():
    async def play() -> None:
        telemetry = Telemetry()
        now = [1_000_000]
        driver = CoordinatorDriver(
            MemoryStore(), TimeLimits(), lambda: now[0], who=Candidate("a test"), telemetry=telemetry
        )
        driver.start()
        async with asyncio.timeout(20):
            assert await driver.reigns()
            put = cm.PutPool(tenant=TENANT, command_id="p", pool=Pool(tenant=TENANT, name="db"))
            await driver.ask(put)
            lost = asyncio.Event()
            driver.watch(lambda stories: lost.set() if stories is None else None)
            # The proof runs out: the coordinator steps down, and its memory is gone.
            now[0] += 3_600_000
            with pytest.raises(Exception, match=r"leader\.none"):
                await driver.ask(put)
            await lost.wait()
            text = telemetry.render()[0].decode()
            assert 'rota_decisions_total{command="PutPool",outcome="decided"} 1.0' in text
            assert "rota_is_leader 0.0" in text
            await driver.stop()

    asyncio.run(play())


# A recorder.


class Led:
    """A driver with a clock that can be put forward, its metrics and a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self.ahead_ms = 0
        self.told: list[Tell | Escalate] = []
        self.spoke = asyncio.Event()
        self.telemetry = Telemetry()
        self.driver = CoordinatorDriver(
            MemoryStore(),
            TimeLimits(),
            lambda: 1_000_000 + self.ahead_ms + round(asyncio.get_running_loop().time() * 1000),
            who=Candidate("a test"),
            telemetry=self.telemetry,
            listener=self._hear,
        )
        self.driver.set_recorder(recorder)

    def _hear(self, told: Tell | Escalate) -> None:
        self.told.append(told)
        self.spoke.set()

    async def submit(self, run: str) -> None:
        graph = Graph(name=f"graph of {run}", tasks=(TaskSpec(id="x"),))
        await self.driver.ask(cm.SubmitRun(tenant=TENANT, command_id=run, run=run, graph=graph))

    async def step_down(self) -> None:
        """The proof of leadership runs out; then this coordinator is elected again."""
        self.ahead_ms += 3_600_000
        with pytest.raises(Unavailable):
            await self.submit("lost")
        self.ahead_ms += 3_600_000
        while not self.driver.is_leader:
            self.spoke.clear()
            await self.spoke.wait()


def test_a_recorder_is_told_what_the_metrics_show_over_several_reigns() -> None:
    async def play() -> None:
        recorder = Counting()
        led = Led(recorder)
        led.driver.start()
        async with asyncio.timeout(20):
            assert await led.driver.reigns()
            for number in range(3):
                await led.submit(f"run{number}")
                await led.step_down()
            recorder.check(led.telemetry)
            moved = {key[1:] for key in recorder.counts if key[0] == "rota_transitions_total"}
            assert moved >= {("none", "scheduled", f"graph of run{number}") for number in range(3)}
            assert recorder.counts["rota_undispatchable_tasks_total", "worker.none_registered"] == 3
            assert (len(recorder.away_s), recorder.counts["rota_step_downs_total", "not_proven"]) == (3, 3)
            led.driver.set_recorder(None)
            before = recorder.counts.copy()
            await led.submit("after")
            assert recorder.counts == before
            await led.driver.stop()

    asyncio.run(play())


def test_a_recorder_that_raises_is_detached_and_the_coordinator_goes_on() -> None:
    class Raising(Counting):
        def record_task_transition(self, here: str, there: str, graph: str) -> None:
            raise RuntimeError("full")

    async def play() -> None:
        led = Led(Raising())
        led.driver.start()
        async with asyncio.timeout(20):
            assert await led.driver.reigns()
            await led.submit("one")
            await led.submit("two")
            assert led.driver.failed is None
            await led.driver.stop()
        assert [told.what for told in led.told if isinstance(told, Tell)].count("recorder.failed") == 1

    asyncio.run(play())


def test_an_embedded_rota_takes_a_recorder() -> None:
    recorder = Counting()
    with Rota.embedded(slots=0, recorder=recorder) as rota:
        rota.submit(Graph(name="g", tasks=(TaskSpec(id="x"),)))
    assert recorder.counts["rota_transitions_total", "none", "scheduled", "g"] == 1


# Bounds.


def test_requests_of_endless_kinds_are_shown_together():
    watched = Watched()
    for number in range(REQUESTS_SHOWN_MAX + 50):
        watched.telemetry.request("http", f"GET /{number}", 200)
    watched.telemetry.request("http", "GET /0", 200)
    shown = [name for name in watched.values() if name.startswith("rota_requests_total")]
    assert len(shown) == REQUESTS_SHOWN_MAX + 1
    assert watched.value("rota_requests_total", surface="http", method=OTHER, code=OTHER) == 50
    assert watched.value("rota_requests_total", surface="http", method="GET /0", code="200") == 2


def test_moves_of_endless_graphs_are_shown_together_also_over_several_reigns() -> None:
    watched = Watched()
    stage = watched.stage
    for number in range(GRAPHS_SHOWN_MAX + 20):
        stage.submit(f"r{number}", name=f"g{number}")
    watched.recorder.counts.clear()  # the recorder is told every name
    labels = {"from": "scheduled", "to": "queued"}
    for _ in range(3):
        assert watched.value("rota_transitions_total", graph=OTHER_GRAPHS, **labels) >= 20
        shown = [name for name in watched.values() if name.startswith("rota_transitions_total")]
        assert len({re.search(r'graph="(\w+)"', name)[1] for name in shown}) == GRAPHS_SHOWN_MAX + 1
        watched.telemetry.keep(stage.loop)
    assert watched.value("rota_transitions_total", graph="g0", **labels) == 4
    assert OTHER_GRAPHS == OTHER


def test_a_cause_that_nobody_knows_is_other():
    watched = Watched()
    watched.telemetry.auth_refused("made up")
    assert watched.value("rota_auth_refusals_total", cause=OTHER) == 1
    assert {f'rota_auth_refusals_total{{cause="{cause}"}}' for cause in AUTH_CAUSES} < set(watched.values())


def test_only_the_fullest_queues_are_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "QUEUES_SHOWN_MAX", 2)
    watched = Watched()
    stage = watched.stage
    for number, name in enumerate(("a", "b", "c", OTHER)):
        stage.ask(cm.PutQueue(tenant=TENANT, command_id=name, queue=Queue(tenant=TENANT, name=name)))
        stage.submit(f"r-{name}", *(TaskSpec(id=f"t{task}", queue=name) for task in range(4 - number)))
    stage.advance(3_000)
    shown = {name: value for name, value in watched.values().items() if name.startswith("rota_queue_")}
    assert shown == {
        'rota_queue_tasks{queue="a"}': 4,
        'rota_queue_tasks{queue="b"}': 3,
        'rota_queue_tasks{queue="other"}': 3,
        'rota_queue_oldest_seconds{queue="a"}': 3,
        'rota_queue_oldest_seconds{queue="b"}': 3,
        'rota_queue_oldest_seconds{queue="other"}': 3,
    }


def test_only_the_fullest_buckets_are_explained(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "BUCKETS_EXPLAINED_MAX", 2)
    watched = Watched()
    for number in range(5):
        tasks = (TaskSpec(id=f"t{task}", requires=(("rack", f"{number}"),)) for task in range(5 - number))
        watched.stage.submit(f"r{number}", *tasks)
    assert watched.value("rota_waiting_tasks", reason="worker.none_registered") == 9
    assert watched.value("rota_waiting_tasks", reason=OTHER) == 6
