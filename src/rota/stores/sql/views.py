"""The views for people, once for every database: runs, tasks, and what failed. Nothing of ours reads them."""

from collections.abc import Callable

from msgspec import Struct

_TASK_SHOWN = (
    "state",
    "attempt",
    "worker",
    "fence",
    "done_fence",
    "eligible_at",
    "started_at",
    "ended_at",
    "due_at",
    "failure",
    "error",
    "interruptions",
    "note",
)


class Dialect(Struct, frozen=True):
    """What a database says in its own way."""

    # An instant of ours as a time that people read, and the day that it is in.
    time: Callable[[str], str]
    day: Callable[[str], str]
    # Whether a run is live.
    true: str
    false: str
    # The number of a run's one task.
    first: str
    # The nodes of a task's graph `g.graph`, each with `task_id`, its `width`, whether it `is_mapped`, and how many
    # tasks come `before` it.
    nodes: str
    graph_nodes: str


def views(speak: Dialect) -> dict[str, str]:
    """The text of each view, by its name, in the order in which they are made."""
    return {
        "runs": f"{_runs(speak, 'run', speak.true)}\nUNION ALL\n{_runs(speak, 'history_run', speak.false)}",
        "tasks": _tasks(speak),
        "failures": _FAILURES,
    }


# Tasks that failed or were given up on, and runs that failed for a reason of their own.
_FAILURES = """SELECT day, tenant, name, run, task, ended, attempt, worker,
    coalesce(failure, state) AS failure, error AS why
FROM tasks WHERE state IN ('failed', 'needs_attention')
UNION ALL
SELECT day, tenant, name, run, NULL, ended, NULL, NULL, state, why FROM runs
WHERE why <> '' AND (state = 'failed' OR live)"""


def _runs(speak: Dialect, table: str, live: str) -> str:
    time = speak.time
    return f"""SELECT run_no, {live} AS live, tenant, id AS run, name, kind, state, priority,
    {time("created_at")} AS created, {time("started_at")} AS started, {time("ended_at")} AS ended,
    CASE WHEN ended_at > 0 AND started_at > 0 THEN (ended_at - started_at - idle_ms) / 1000.0 END AS seconds,
    {speak.day("CASE WHEN ended_at > 0 THEN ended_at ELSE created_at END")} AS day,
    CASE WHEN fault <> '' THEN fault ELSE reason END AS why, schedule, parent, paused, graph,
    nullif(version, 0) AS version, backfill, labels
FROM {table}"""


def _tasks(speak: Dialect) -> str:
    time = speak.time
    return f"""SELECT run_no, tenant, run, name, coalesce({_task_name(speak)}, '#' || idx) AS task, idx, state, attempt,
    nullif(worker, '') AS worker, {time("eligible_at")} AS eligible, {time("started_at")} AS started,
    {time("ended_at")} AS ended, {time("due_at")} AS due,
    CASE WHEN ended_at > 0 AND started_at > 0 THEN (ended_at - started_at) / 1000.0 END AS seconds,
    {speak.day("nullif(ended_at, 0)")} AS day, failure, error, interruptions,
    CASE WHEN fence > 0 THEN (fence >> 40) || '.' || (fence & 1099511627775) END AS fence, nullif(note, '') AS note
FROM (
    {_parts("run", "task")} UNION ALL {_solos(speak, "run")}
    UNION ALL {_parts("history_run", "task")} UNION ALL {_parts("history_run", "history_task")}
    UNION ALL {_solos(speak, "history_run")}
) t"""


def _task_name(speak: Dialect) -> str:
    """Tasks are numbered through the graph, node after node; a mapped node, or one of another width, is a group."""
    return f"""(
    SELECT CASE WHEN width = 1 AND NOT is_mapped THEN task_id ELSE task_id || '[' || (t.idx - before) || ']' END
    FROM (
        SELECT {speak.nodes}
        FROM (
            SELECT graph FROM graph WHERE tenant = t.tenant AND digest = t.graph
            UNION ALL
            SELECT graph FROM history_graph WHERE tenant = t.tenant AND digest = t.graph
            LIMIT 1
        ) g, {speak.graph_nodes}
    ) nodes
    WHERE t.idx >= before AND t.idx < before + width
)"""


def _shown(of: str, prefix: str = "") -> str:
    return ", ".join(f"{of}.{prefix}{name} AS {name}" for name in _TASK_SHOWN)


def _parts(run: str, task: str) -> str:
    return (
        f"SELECT r.run_no, r.tenant, r.id AS run, r.name, r.graph, t.idx, {_shown('t')}"
        f" FROM {run} r JOIN {task} t USING (run_no)"
    )


def _solos(speak: Dialect, run: str) -> str:
    return (
        f"SELECT r.run_no, r.tenant, r.id AS run, r.name, r.graph, {speak.first} AS idx, {_shown('r', 'solo_')}"
        f" FROM {run} r WHERE r.solo_state IS NOT NULL"
    )
