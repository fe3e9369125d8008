"""A statement that somebody typed, as a run of two tasks: one answers, the other looks at the first rows.

Whoever makes the run needs no engine, and whoever lets it through can tell that it is nothing else.
"""

from collections.abc import Mapping
from typing import Any

from rota.core.ids import TaskId
from rota.core.model import QUERIES_QUEUE, Graph, RetryPolicy, TaskSpec
from rota.wire.queries import QUERY
from rota.wire.work import PYTHON, OutputOf, ParamOf, PythonWork, encode_work, plain

# The parameter that is the statement, and the tasks.
SQL = "sql"
ANSWER, PREVIEW = "answer", "preview"
# What a worker is asked for that can answer: the engine, of a version.
ENGINE = "datafusion"
# Of each task, and of those that the first one goes on as, from when it starts: nobody is to blame for having waited.
TIMEOUT_MS = 10 * 60_000


def asking_graph(engine: str, tables: Mapping[str, str]) -> Graph:
    """The graph of a statement over these tables, for workers with this version of the engine."""
    asked = PythonWork(function="rota.kinds.query.asking:ask", args=(ParamOf(SQL), plain(dict(tables))), may_grow=True)
    looked = PythonWork(function="rota.kinds.query.asking:preview", args=(OutputOf(ANSWER),))
    given: dict[str, Any] = {
        "kind": PYTHON,
        "queue": QUERIES_QUEUE,
        "requires": ((ENGINE, engine),),
        "retry": RetryPolicy(retries=0),
        "timeout_ms": TIMEOUT_MS,
    }
    tasks = (
        TaskSpec(id=TaskId(ANSWER), work=encode_work(asked), **given),
        TaskSpec(
            id=TaskId(PREVIEW),
            work=encode_work(looked),
            upstream=(TaskId(ANSWER),),
            inputs=(TaskId(ANSWER),),
            **given,
        ),
    )
    return Graph(name=QUERY, kind=QUERY, tasks=tasks)


def is_asking(graph: Graph, tables: Mapping[str, str]) -> bool:
    """Whether a graph is that of a statement over these very tables, whatever it says."""
    engine = next((value for spec in graph.tasks for name, value in spec.requires if name == ENGINE), "")
    return graph == asking_graph(engine, tables)
