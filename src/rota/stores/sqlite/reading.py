"""What is read from the tables: live records, history, stories. Every reading sees one moment."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from rota.core.bounds import AUDITS_PER_PAGE_MAX, HISTORY_PAGE_MAX, INTEGER_MAX
from rota.core.errors import Refused
from rota.core.history import AuditsPage, Ended, HistoryQuery, ListAudits, Page
from rota.core.ids import Millis
from rota.core.model import Graph
from rota.core.records import GraphRecord, Growth, Record, Run, Story, Task
from rota.ports import Kept
from rota.stores.sql.columns import ALONE, AUDIT, GROWTH, RUN, TASK, Same, unpack_stories
from rota.stores.sqlite.connection import Connection

CHUNK = 2_000

_LIVE_RUNS = f"SELECT run_no, {RUN.listed} FROM run ORDER BY run_no"
_PARTS = {
    "task": (f"SELECT {TASK.listed} FROM task ORDER BY run_no, idx", TASK.read),
    "growth": (f"SELECT {GROWTH.listed} FROM growth ORDER BY run_no, number", GROWTH.read),
}
_ENDED = f"SELECT run_no, {RUN.listed} FROM history_run WHERE tenant = ? AND id = ?"
_OWN_TASKS = f"SELECT {TASK.listed} FROM {{}} WHERE run_no = ? ORDER BY idx"
_OWN_GROWTHS = f"SELECT {GROWTH.listed} FROM {{}} WHERE run_no = ? ORDER BY number"
_TELLS = (
    "SELECT run_no, told FROM run WHERE tenant = ?1 AND id = ?2 AND created_at = ?3"
    " UNION ALL SELECT run_no, told FROM history_run WHERE tenant = ?1 AND id = ?2 AND created_at = ?3 ORDER BY run_no"
)
_KEPT_FENCES = " UNION ALL ".join(
    (
        *(f"SELECT done_fence FROM {table} WHERE result IS NOT NULL" for table in ("task", "history_task")),
        *(f"SELECT solo_done_fence FROM {table} WHERE solo_result IS NOT NULL" for table in ("run", "history_run")),
    )
)
_KEPT_RUNS = "SELECT tenant, id FROM run UNION ALL SELECT tenant, id FROM history_run"
_AUDITS = f"SELECT no, {AUDIT.listed} FROM audit WHERE tenant = ? AND no < ? ORDER BY no DESC LIMIT ?"
_TOLD = "SELECT number, at, changes FROM story WHERE run_no = ? ORDER BY number"


def live_records(connection: Connection) -> Iterator[list[Record]]:
    """All live records, some at a time. The caller has begun a transaction and keeps it until the end."""
    same: Same = dict[str, str]().setdefault
    for name, table, _ in ALONE.values():
        read = table.read
        cursor = connection.execute(f"SELECT {table.listed} FROM {name}")
        while rows := _some(cursor):
            yield [read(row, same) for row in rows]
    runs: dict[int, tuple[str, str]] = {}
    cursor = connection.execute(_LIVE_RUNS)
    while rows := _some(cursor):
        made: list[Record] = []
        for row in rows:
            run: Run = RUN.read(row[1:], same)
            runs[row[0]] = (run.tenant, run.id)
            made.append(run)
        yield made
    for text, read in _PARTS.values():
        cursor = connection.execute(text)
        while rows := _some(cursor):
            # What the archiver has not moved yet belongs to a run that is not live.
            yield [read(row, *runs[row[0]], same) for row in rows if row[0] in runs]


def _some(cursor: Iterator[Any]) -> list[tuple[Any, ...]]:
    return list(islice(cursor, CHUNK))


def page_of(connection: Connection, query: HistoryQuery) -> Page:
    """One page of history: newest end first, and of the same instant the latest number."""
    clauses = ["tenant = ?"]
    values: list[str | int] = [query.tenant]
    for clause, value in (("name = ?", query.name), ("kind = ?", query.kind), ("ended_at >= ?", query.ended_from)):
        if value:
            clauses.append(clause)
            values.append(value)
    if query.ended_to:
        clauses.append("ended_at < ?")
        values.append(query.ended_to)
    if query.states:
        clauses.append(f"state IN ({', '.join('?' for _ in query.states)})")
        values.extend(state.value for state in query.states)
    if query.after:
        clauses.append("(ended_at, run_no) < (?, ?)")
        values.extend(_read_place(query.after))
    limit = max(1, min(query.limit, HISTORY_PAGE_MAX))
    text = (
        f"SELECT run_no, {RUN.listed} FROM history_run WHERE {' AND '.join(clauses)}"
        " ORDER BY ended_at DESC, run_no DESC LIMIT ?"
    )
    rows = list(connection.execute(text, (*values, limit + 1)))
    same: Same = dict[str, str]().setdefault
    runs: list[Run] = [RUN.read(row[1:], same) for row in rows[:limit]]
    return Page(tuple(runs), f"{runs[-1].ended_at}.{rows[limit - 1][0]}" if len(rows) > limit else "")


def _read_place(after: str) -> tuple[int, int]:
    ended_at, _, number = after.partition(".")
    try:
        return int(ended_at), int(number)
    except ValueError:
        raise Refused("field.value", f"{after!r} is not where a page of history ended", path="after") from None


def ended_run(connection: Connection, tenant: str, run: str, created_at: Millis) -> Ended | None:
    """One run of history with its parts, wherever they are at the moment."""
    text, values = _ENDED, [tenant, run]
    if created_at:
        text += " AND created_at = ?"
    rows = list(
        connection.execute(f"{text} ORDER BY run_no DESC LIMIT 1", (*values, created_at) if created_at else values)
    )
    if not rows:
        return None
    same: Same = dict[str, str]().setdefault
    number, found = rows[0][0], RUN.read(rows[0][1:], same)
    tasks: list[Task] = [
        TASK.read(row, tenant, run, same)
        for table in ("task", "history_task")
        for row in connection.execute(_OWN_TASKS.format(table), (number,))
    ]
    growths: list[Growth] = [
        GROWTH.read(row, tenant, run, same)
        for table in ("growth", "history_growth")
        for row in connection.execute(_OWN_GROWTHS.format(table), (number,))
    ]
    tasks.sort(key=lambda task: task.idx)
    growths.sort(key=lambda growth: growth.number)
    return Ended(found, tuple(tasks or ([found.solo] if found.solo else [])), tuple(growths))


def graph_of(connection: Connection, tenant: str, digest: str) -> Graph | None:
    """A definition, live or kept for the history."""
    table = ALONE[GraphRecord][1]
    same: Same = dict[str, str]().setdefault
    for name in ("graph", "history_graph"):
        text = f"SELECT {table.listed} FROM {name} WHERE tenant = ? AND digest = ?"
        for row in list(connection.execute(text, (tenant, digest))):
            found: GraphRecord = table.read(row, same)
            return found.graph
    return None


def kept(connection: Connection) -> Kept:
    """What is referred to, live or in history."""
    fences = frozenset(number for (number,) in connection.execute(_KEPT_FENCES))
    return Kept(fences, frozenset((tenant, run) for tenant, run in connection.execute(_KEPT_RUNS)))


def audits_of(connection: Connection, query: ListAudits) -> AuditsPage:
    """Who asked for what, the newest first."""
    limit = max(1, min(query.limit, AUDITS_PER_PAGE_MAX))
    rows = list(connection.execute(_AUDITS, (query.tenant, query.before or INTEGER_MAX, limit + 1)))
    same: Same = dict[str, str]().setdefault
    found = tuple(AUDIT.read(row[1:], same) for row in rows[:limit])
    return AuditsPage(found, rows[limit - 1][0] if len(rows) > limit else 0)


def stories_of(connection: Connection, tenant: str, run: str, created_at: Millis) -> list[Story]:
    """What is told about one run, in order."""
    return [
        Story(tenant, run, created_at, number, at, changes)
        for run_no, told in list(connection.execute(_TELLS, (tenant, run, created_at)))
        # By number: a story that came without its run's row is in a row of its own, wherever the others are.
        for number, at, changes in sorted((*unpack_stories(told), *connection.execute(_TOLD, (run_no,))))
    ]
