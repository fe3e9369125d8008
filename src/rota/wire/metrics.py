"""Metrics in Prometheus' words: what one is, how numbers become one, and calls, which every process counts alike."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

# Combinations of labels that are counted apart, however many somebody makes up.
REQUESTS_SHOWN_MAX = 500
OTHER = "other"
AUTH_CAUSES = ("auth.missing", "auth.wrong", "auth.role", "auth.tenant")

Labelled = Mapping[tuple[str, ...], float]


class Metric(Struct, frozen=True):
    """One metric: its name on the wire, its sort, its labels, and what it says."""

    name: str
    sort: str
    labels: tuple[str, ...]
    what: str

    def family(self, values: Labelled) -> Family:
        """It with its values, as a registry wants it. A histogram is one by itself."""
        sort = CounterMetricFamily if self.sort == "counter" else GaugeMetricFamily
        family = sort(self.name, self.what, labels=self.labels)
        for labels, value in values.items():
            family.add_metric(labels, value)
        return family


AUTH_REFUSALS = Metric("rota_auth_refusals_total", "counter", ("cause",), "Calls that were not let in.")
REQUESTS = Metric("rota_requests_total", "counter", ("surface", "method", "code"), "Calls that were answered.")
# docs/reference/metrics.md is checked against these tables.
CALLS: Iterable[Metric] = (AUTH_REFUSALS, REQUESTS)


class Calls:
    """What became of calls, whichever way they came in."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, ...], float] = {}
        self._auth: dict[tuple[str, ...], float] = {(cause,): 0 for cause in AUTH_CAUSES}

    def request(self, surface: str, method: str, code: str | int) -> None:
        """A call was answered. `method` is the name of a route or a procedure, never a path that somebody typed."""
        key = (surface, method, str(code))
        if key not in self._requests and len(self._requests) >= REQUESTS_SHOWN_MAX:
            key = (surface, OTHER, OTHER)
        self._requests[key] = self._requests.get(key, 0) + 1

    def auth_refused(self, cause: str) -> None:
        """A call was not let in; `cause` is the code of the refusal."""
        key = (cause if cause in AUTH_CAUSES else OTHER,)
        self._auth[key] = self._auth.get(key, 0) + 1

    def families(self) -> Iterator[Family]:
        """Both, for a registry."""
        yield REQUESTS.family(self._requests)
        yield AUTH_REFUSALS.family(self._auth)
