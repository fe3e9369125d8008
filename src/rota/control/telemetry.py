"""Metrics of one coordinator, in Prometheus' words.

What happens often is counted where it happens, in plain numbers. What only stands somewhere (depths, ages, reasons) is
looked up when somebody asks; the coordinator stands still meanwhile, so that reasons are worked out for some of them
only. Label values come from tables of ours, or are cut off after a fixed number of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nlargest

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric as Family

from rota.control.coordinator import Coordinator
from rota.control.leadership import Role
from rota.control.loop import Loop
from rota.control.tally import GRAPHS_SHOWN_MAX, OTHER_GRAPHS
from rota.core.buckets import Bucket
from rota.core.ids import Millis
from rota.core.overview import WORKER_STANDINGS, standing_of
from rota.core.records import Batch
from rota.core.state import DEFAULT_QUEUE, State
from rota.core.tags import tag_of
from rota.core.why import bucket_reasons
from rota.wire.metrics import CALLS, OTHER, Calls, Labelled, Metric
from rota.wire.standings import StreamsView
from rota.wire.stream_metrics import STREAM_METRICS, stream_families

QUEUES_SHOWN_MAX = 50
BUCKETS_EXPLAINED_MAX = 100

_TURN_S = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_REACQUIRE_S = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_COMMIT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_COMMIT_ROWS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000)


# docs/reference/metrics.md is checked against this table.
METRICS: tuple[Metric, ...] = (
    *CALLS,
    Metric("rota_decisions_total", "counter", ("command", "outcome"), "Commands that were decided or refused."),
    Metric("rota_scheduler_decisions_total", "counter", ("decision",), "What the scheduler decided, by sort."),
    Metric("rota_transitions_total", "counter", ("from", "to", "graph"), "Moves of tasks from one state to another."),
    Metric("rota_interruptions_total", "counter", (), "Attempts that had started and ended without an outcome."),
    Metric("rota_stale_reports_total", "counter", ("cause",), "Reports that spoke for no live lease."),
    Metric("rota_step_downs_total", "counter", ("reason",), "Reigns and campaigns that were given up."),
    Metric("rota_reacquire_seconds", "histogram", (), "How long this coordinator was without a reign between two."),
    Metric("rota_steps_total", "counter", ("outcome",), "Passes of the safety net over everything."),
    Metric("rota_step_seconds", "gauge", (), "How long the last pass of the safety net took, with what came between."),
    Metric("rota_starved_tasks_total", "counter", ("tier",), "Tasks that reached a tier of the starvation ladder."),
    Metric("rota_spawns_total", "counter", ("outcome",), "What came of asking spawners for somebody."),
    Metric("rota_faults_total", "counter", (), "Errors of the scheduler itself."),
    Metric(
        "rota_undispatchable_tasks_total", "counter", ("reason",), "Tasks that were queued and no worker could run."
    ),
    Metric("rota_waiting_tasks", "gauge", ("reason",), "Queued tasks by what they wait for."),
    Metric("rota_queue_tasks", "gauge", ("queue",), "Tasks that wait for a worker."),
    Metric("rota_queue_oldest_seconds", "gauge", ("queue",), "How long the oldest of them has waited."),
    Metric("rota_leases", "gauge", (), "Live leases."),
    Metric("rota_workers", "gauge", ("state",), "Registered workers."),
    Metric("rota_inbox_length", "gauge", (), "Commands and frames that wait for a turn."),
    Metric("rota_epoch", "gauge", (), "The epoch of this coordinator's reign; 0 when it has none."),
    Metric("rota_is_leader", "gauge", (), "1 if this coordinator leads."),
    Metric("rota_turn_seconds", "histogram", (), "How long one turn of the loop took."),
    Metric("rota_commit_seconds", "histogram", (), "How long one commit took."),
    Metric("rota_commit_rows", "histogram", (), "Records that one commit wrote, dropped or archived."),
    *STREAM_METRICS,
)
_BY_NAME = {metric.name: metric for metric in METRICS}


class Telemetry:
    """What one coordinator and the ways into it have done. To be used in the coordinator's event loop only."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        # The streams that are known, by tenant, as somebody else looks at them now and then.
        self.streams: Callable[[], Mapping[str, StreamsView]] = dict
        self._machine: Coordinator | None = None
        self._clock: Callable[[], Millis] = int
        # Of reigns that are over.
        self._past: dict[str, dict[tuple[str, ...], float]] = {}
        self._calls = Calls()
        self._spawns: dict[tuple[str, ...], float] = {}
        self._turn = self._histogram("rota_turn_seconds", _TURN_S)
        self._commit = self._histogram("rota_commit_seconds", _COMMIT_S)
        self._rows = self._histogram("rota_commit_rows", _COMMIT_ROWS)
        self._reacquire = self._histogram("rota_reacquire_seconds", _REACQUIRE_S)
        self.registry.register(self)

    def _histogram(self, name: str, buckets: Iterable[float]) -> Histogram:
        return Histogram(name, _BY_NAME[name].what, buckets=tuple(buckets), registry=self.registry)

    # What the driver tells.

    def attach(self, machine: Coordinator, clock: Callable[[], Millis]) -> None:
        """The coordinator that these metrics are about."""
        self._machine = machine
        self._clock = clock

    def turned(self, seconds: float) -> None:
        """The machine took a turn."""
        self._turn.observe(seconds)

    def committed(self, batch: Batch, seconds: float) -> None:
        """The store answered a commit, whatever it said."""
        self._commit.observe(seconds)
        self._rows.observe(len(batch.puts) + len(batch.drops) + len(batch.archives))

    def reacquired(self, seconds: float) -> None:
        """It leads again after having stepped down so long ago."""
        self._reacquire.observe(seconds)

    def keep(self, loop: Loop) -> None:
        """A reign is over; what it counted goes on counting."""
        for name, counts in _counts(loop).items():
            self._past[name] = self._sum(name, counts)

    def _sum(self, name: str, counts: Labelled) -> dict[tuple[str, ...], float]:
        return _sum(self._past.get(name, {}), counts, by_graph="graph" in _BY_NAME[name].labels)

    # What the ways in tell.

    def request(self, surface: str, method: str, code: str | int) -> None:
        """See `Calls`."""
        self._calls.request(surface, method, code)

    def auth_refused(self, cause: str) -> None:
        """See `Calls`."""
        self._calls.auth_refused(cause)

    # What spawners tell.

    def spawned(self, outcome: str) -> None:
        """Somebody was asked for who could do what nobody can."""
        self._spawns[outcome,] = self._spawns.get((outcome,), 0) + 1

    # What is asked of it.

    def render(self) -> tuple[bytes, str]:
        """All metrics as text, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4

    def describe(self) -> list[Family]:
        """Nothing: the registry must not look at the coordinator before somebody asks."""
        return []

    def collect(self) -> Iterator[Family]:
        """Every metric that is no histogram; for the registry."""
        machine = self._machine
        loop = machine.loop if machine is not None else None
        yield from self._calls.families()
        yield _family("rota_spawns_total", self._spawns)
        for name, counts in _counts(loop).items():
            yield _family(name, self._sum(name, counts))
        if machine is not None:
            leadership = machine.leadership
            downs = {(cause.value,): float(count) for cause, count in leadership.standing.step_downs.items()}
            yield _family("rota_step_downs_total", downs)
            yield _family("rota_epoch", {(): leadership.epoch})
            yield _family("rota_is_leader", {(): loop is not None and leadership.role is Role.LEADER})
        if loop is not None:
            yield _family("rota_inbox_length", {(): len(loop.inbox)})
            yield _family("rota_step_seconds", {(): loop.agenda.took_ms / 1000})
            yield from _standing(loop.state, self._clock())
            yield from stream_families(self.streams())


def _family(name: str, values: Labelled) -> Family:
    return _BY_NAME[name].family(values)


def _counts(loop: Loop | None) -> dict[str, Labelled]:
    """Everything one reign counts; without one, the names of it."""
    if loop is None:
        names = (
            "decisions",
            "scheduler_decisions",
            "transitions",
            "interruptions",
            "stale_reports",
            "steps",
            "starved_tasks",
            "undispatchable_tasks",
            "faults",
        )
        return {f"rota_{name}_total": {} for name in names}
    state, tally = loop.state, loop.tally
    return {
        "rota_decisions_total": {(tag_of(kind), out): n for (kind, out), n in tally.by_command.items()},
        "rota_scheduler_decisions_total": {(sort,): n for sort, n in tally.decisions(state).items()},
        "rota_transitions_total": {(here, there, graph): n for (graph, here, there), n in tally.moves.items()},
        "rota_interruptions_total": {(): state.interruptions},
        "rota_stale_reports_total": {(cause,): n for cause, n in tally.stale_reports.items()},
        "rota_steps_total": {(outcome,): n for outcome, n in loop.agenda.passes.items()},
        "rota_starved_tasks_total": {(tier,): n for tier, n in tally.tiers.items()},
        "rota_undispatchable_tasks_total": {(reason,): n for reason, n in state.undispatchable.items()},
        "rota_faults_total": {(): loop.faults},
    }


def _sum(past: Labelled, present: Labelled, *, by_graph: bool) -> dict[tuple[str, ...], float]:
    """What was counted in all reigns. Of graphs, which each reign names anew, only so many are named in all."""
    found: dict[tuple[str, ...], float] = {}
    graphs: dict[str, None] = {}
    for labels, count in (*past.items(), *present.items()):
        key = labels
        if by_graph:
            *moved, graph = labels
            if len(graphs) < GRAPHS_SHOWN_MAX:
                graphs[graph] = None
            key = (*moved, graph if graph in graphs else OTHER_GRAPHS)
        found[key] = found.get(key, 0) + count
    return found


def _standing(state: State, now: Millis) -> Iterator[Family]:
    """How things stand now. Cost: one look at each bucket and worker, and an explanation for some buckets."""
    yield _family("rota_leases", {(): len(state.leases)})
    workers: dict[tuple[str, ...], float] = {(word,): 0 for word in WORKER_STANDINGS}
    for worker in state.workers.values():
        if not worker.row.gone_at:
            workers[standing_of(worker, now),] += 1
    yield _family("rota_workers", workers)
    waiting = [bucket for bucket in state.index.buckets.values() if bucket.live]
    yield _family("rota_waiting_tasks", _by_reason(state, waiting, now))
    depths, ages = _by_queue(state, waiting, now)
    yield _family("rota_queue_tasks", depths)
    yield _family("rota_queue_oldest_seconds", ages)


def _by_reason(state: State, waiting: list[Bucket], now: Millis) -> Labelled:
    """Tasks by the first reason of their bucket. Of very many buckets only the fullest are explained."""
    found: dict[tuple[str, ...], float] = {}
    explained = nlargest(BUCKETS_EXPLAINED_MAX, waiting, key=lambda bucket: bucket.live)
    for bucket in explained:
        key = (bucket_reasons(state, bucket, now)[0].code,)
        found[key] = found.get(key, 0) + bucket.live
    if len(waiting) > len(explained):
        left = sum(bucket.live for bucket in waiting) - sum(bucket.live for bucket in explained)
        found[(OTHER,)] = left
    return found


def _by_queue(state: State, waiting: list[Bucket], now: Millis) -> tuple[Labelled, Labelled]:
    """Depth and age of queues, by name over all tenants; of very many queues only the fullest by name."""
    depths = dict.fromkeys((DEFAULT_QUEUE, *(name for _, name in state.queues)), 0)
    ages = dict.fromkeys(depths, 0.0)
    for bucket in waiting:
        name = bucket.demand.signature.queue
        depths[name] = depths.get(name, 0) + bucket.live
        oldest = state.index.oldest(bucket)
        waited_ms = now - oldest[0] if oldest is not None else 0
        ages[name] = max(ages.get(name, 0.0), waited_ms / 1000)
    shown = nlargest(QUEUES_SHOWN_MAX, depths, key=lambda name: depths[name])
    named = dict.fromkeys(shown)
    rest = [name for name in depths if name not in named]
    if rest:
        shown.append(OTHER)
        # A queue may have that very name; then it is shown with those that are not.
        depths[OTHER] = sum(depths[name] for name in dict.fromkeys((*rest, OTHER)) if name in depths)
        ages[OTHER] = max(ages[name] for name in dict.fromkeys((*rest, OTHER)) if name in ages)
    labelled = dict.fromkeys(shown)
    return {(name,): depths[name] for name in labelled}, {(name,): ages[name] for name in labelled}
