"""From stages to a graph: each stage is a group of tasks of kind `query`."""

import platform
import sys

from rota.core.errors import Refused
from rota.core.model import QUERIES_QUEUE, Graph, Pairs, RetryPolicy, TaskSpec
from rota.kinds.query.plans import PhysicalPlan
from rota.kinds.query.stages import Stage
from rota.wire.plans.checking import engine_version
from rota.wire.queries import QUERY, Fragment, encode_fragment

GRAPH = "query"
# Failures of code are tried again as often as the service says; a query that is out of memory is cut finer instead.
RETRY = RetryPolicy(retries=-1, memory_retries=0)


def requirements() -> Pairs:
    """What a worker has to be: rows are spread by hash values, which every task has to compute alike."""
    return (
        ("cpu_arch", platform.machine()),
        ("datafusion", engine_version()),
        ("python", f"{sys.version_info.major}.{sys.version_info.minor}"),
    )


def graph_of(plan: PhysicalPlan, *, queue: str = QUERIES_QUEUE, timeout_ms: int = 0, compression: str = "") -> Graph:
    """The graph of a plan. `timeout_ms` is for the whole query."""
    needs = requirements()
    tasks = tuple(_task(stage, needs, queue, compression) for stage in plan.stages)
    return Graph(name=GRAPH, kind=QUERY, tasks=tasks, run_timeout_ms=timeout_ms)


def _task(stage: Stage, needs: Pairs, queue: str, compression: str) -> TaskSpec:
    raise NotImplementedError
