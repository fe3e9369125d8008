"""Metrics of one front end: what was counted where it happened, and how things stand when somebody asks."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric as Family

from rota.api.reapi.calls import Traffic
from rota.api.reapi.desks import Desks
from rota.api.reapi.ongoing import Stage
from rota.api.reapi.results import Results
from rota.ports import Content
from rota.wire.metrics import Calls, Labelled, Metric

# docs/reference/metrics.md is checked against this table. Calls are counted as a coordinator counts its own.
METRICS: tuple[Metric, ...] = (
    Metric("rota_build_bytes_total", "counter", ("direction",), "Bytes of messages, before compression."),
    Metric("rota_build_cache_lookups_total", "counter", ("outcome",), "Questions to the action cache."),
    Metric("rota_build_actions", "gauge", ("stage",), "Actions under way."),
    Metric("rota_build_operations", "gauge", (), "Clients that listen for the end of an action."),
    Metric("rota_content_entries", "gauge", (), "Contents that are kept."),
    Metric("rota_content_bytes", "gauge", (), "Their bytes on the disk."),
    Metric("rota_content_limit_bytes", "gauge", (), "How many there may be."),
    Metric("rota_content_evictions_total", "counter", (), "Contents that went to make room."),
)
_BY_NAME = {metric.name: metric for metric in METRICS}
_STAGES = {Stage.QUEUED: "queued", Stage.EXECUTING: "executing"}


class FrontEndTelemetry:
    """What one front end has done. To be used in its event loop only."""

    def __init__(self, calls: Calls, traffic: Traffic, desks: Desks, results: Results, content: Content) -> None:
        self._calls = calls
        self._traffic = traffic
        self._desks = desks
        self._results = results
        self._content = content
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def render(self) -> tuple[bytes, str]:
        """All metrics as text, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4

    def describe(self) -> list[Family]:
        """Nothing: the registry looks when somebody asks."""
        return []

    def collect(self) -> Iterator[Family]:
        """Every metric; for the registry."""
        yield from self._calls.families()
        for name, values in self._values().items():
            yield _BY_NAME[name].family(values)

    def _values(self) -> dict[str, Labelled]:
        traffic, held = self._traffic, self._content.held()
        actions: dict[tuple[str, ...], float] = {(word,): 0 for word in _STAGES.values()}
        listening = 0
        for ongoing in self._desks.under_way():
            actions[_STAGES[ongoing.stage],] += 1
            listening += sum(each.streams for each in ongoing.operations.values())
        return {
            "rota_build_bytes_total": {("received",): traffic.received, ("sent",): traffic.sent},
            "rota_build_cache_lookups_total": {(outcome,): n for outcome, n in self._results.lookups.items()},
            "rota_build_actions": actions,
            "rota_build_operations": {(): listening},
            "rota_content_entries": {(): held.entries},
            "rota_content_bytes": {(): held.bytes},
            "rota_content_limit_bytes": {(): held.bytes_max},
            "rota_content_evictions_total": {(): held.evicted},
        }
