"""What is asked of the tables, and what is made of the rows that come back, wherever the tables are.

Values are bound by number, `?1`; a store whose database writes `$1` puts that in its place.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from rota.core.bounds import INTEGER_MAX
from rota.core.history import AuditsPage, Ended, HistoryQuery, ListAudits, Page, read_place, write_place
from rota.core.ids import Millis, RunId
from rota.core.records import GraphRecord, Growth, Record, Run, Story, Task
from rota.stores.sql.columns import ALONE, AUDIT, GROWTH, RUN, TASK, Row, Same, unpack_stories

Asked = tuple[str, list[str | int]]

LIVE_RUNS = f"SELECT run_no, {RUN.listed} FROM run ORDER BY run_no"
LIVE_PARTS = (
    (f"SELECT {TASK.listed} FROM task ORDER BY run_no, idx", TASK.read),
    (f"SELECT {GROWTH.listed} FROM growth ORDER BY run_no, number", GROWTH.read),
)
LIVE_ALONE = tuple((f"SELECT {table.listed} FROM {name}", table.read) for name, table, _ in ALONE.values())
# The parts of one run, wherever they are at the moment.
OWN_TASKS = tuple(f"SELECT {TASK.listed} FROM {name} WHERE run_no = ?1" for name in ("task", "history_task"))
OWN_GROWTHS = tuple(f"SELECT {GROWTH.listed} FROM {name} WHERE run_no = ?1" for name in ("growth", "history_growth"))
GRAPHS = tuple(
    f"SELECT {ALONE[GraphRecord][1].listed} FROM {name} WHERE tenant = ?1 AND digest = ?2"
    for name in ("graph", "history_graph")
)
TELLS = (
    "SELECT run_no, told FROM run WHERE tenant = ?1 AND id = ?2 AND created_at = ?3"
    " UNION ALL SELECT run_no, told FROM history_run"
    " WHERE tenant = ?1 AND id = ?2 AND created_at = ?3 AND NOT going ORDER BY run_no"
)
TOLD = "SELECT number, at, changes FROM story WHERE run_no = ?1 ORDER BY number"
KEPT_FENCES = " UNION ALL ".join(
    (
        *(f"SELECT done_fence FROM {table} WHERE result IS NOT NULL" for table in ("task", "history_task")),
        *(f"SELECT solo_done_fence FROM {table} WHERE solo_result IS NOT NULL" for table in ("run", "history_run")),
    )
)
KEPT_RUNS = "SELECT tenant, id FROM run UNION ALL SELECT tenant, id FROM history_run"
# One after the other and not sorted: they are large.
KEPT_GRAPHS = "SELECT graph FROM graph UNION ALL SELECT graph FROM history_graph"
_AUDITS = f"SELECT no, {AUDIT.listed} FROM audit WHERE tenant = ?1 AND no < ?2 ORDER BY no DESC LIMIT ?3"
_ENDED = f"SELECT run_no, {RUN.listed} FROM history_run WHERE tenant = ?1 AND id = ?2 AND NOT going"


def nothing_shared() -> Same:
    """For one reading: keeps one copy of a text that many rows share."""
    return dict[str, str]().setdefault


# Live records.


def read_runs(rows: Iterable[Row], numbers: dict[int, tuple[str, str]], same: Same) -> list[Record]:
    """Live runs of rows that begin with their numbers, which are remembered."""
    made: list[Record] = []
    for row in rows:
        run: Run = RUN.read(row[1:], same)
        numbers[int(row[0] or 0)] = (run.tenant, run.id)
        made.append(run)
    return made


def read_parts(rows: Iterable[Any], read: Any, numbers: dict[int, tuple[str, str]], same: Same) -> list[Record]:
    """Live tasks or growths. What the archiver has not moved yet belongs to a run that is not live."""
    return [read(row, *numbers[row[0]], same) for row in rows if row[0] in numbers]


# History.


def ask_page(query: HistoryQuery) -> Asked:
    """One page of history, and one run more: newest end first, and of the same instant the latest number."""
    clauses = ["tenant = ?1", "NOT going"]
    values: list[str | int] = [query.tenant]

    def bind(value: str | int) -> str:
        values.append(value)
        return f"?{len(values)}"

    for column, value in (("name", query.name), ("kind", query.kind)):
        if value:
            clauses.append(f"{column} = {bind(value)}")
    if query.ended_from:
        clauses.append(f"ended_at >= {bind(query.ended_from)}")
    if query.ended_to:
        clauses.append(f"ended_at < {bind(query.ended_to)}")
    if query.states:
        clauses.append(f"state IN ({', '.join(bind(state.value) for state in query.states)})")
    for label in query.labels:
        # As it is written: inside a text a quotation mark has a backslash, so that a pair is found nowhere else.
        pair = bind(msgspec.json.encode(label).decode())
        clauses.append(f"replace(CAST(labels AS text), {pair}, '') <> CAST(labels AS text)")
    after = read_place(query.after)
    if after is not None:
        clauses.append(f"(ended_at, run_no) < ({bind(after[0])}, {bind(after[1])})")
    text = (
        f"SELECT run_no, {RUN.listed} FROM history_run WHERE {' AND '.join(clauses)}"
        f" ORDER BY ended_at DESC, run_no DESC LIMIT {bind(query.page_limit + 1)}"
    )
    return text, values


def read_page(query: HistoryQuery, rows: Sequence[Row]) -> Page:
    """The page."""
    limit, same = query.page_limit, nothing_shared()
    runs: list[Run] = [RUN.read(row[1:], same) for row in rows[:limit]]
    return Page(
        tuple(runs), write_place((runs[-1].ended_at, int(rows[limit - 1][0] or 0))) if len(rows) > limit else ""
    )


def ask_ended(tenant: str, run: RunId, created_at: Millis) -> Asked:
    """One run of history: the newest of its id, or the one that was created then."""
    values: list[str | int] = [tenant, run]
    if created_at:
        return f"{_ENDED} AND created_at = ?3 ORDER BY run_no DESC LIMIT 1", [*values, created_at]
    return f"{_ENDED} ORDER BY run_no DESC LIMIT 1", values


def read_ended(row: Row, tasks: Iterable[Row], growths: Iterable[Row]) -> Ended:
    """One run of history with its parts."""
    same = nothing_shared()
    run: Run = RUN.read(row[1:], same)
    own: list[Task] = [TASK.read(task, run.tenant, run.id, same) for task in tasks]
    grown: list[Growth] = [GROWTH.read(growth, run.tenant, run.id, same) for growth in growths]
    own.sort(key=lambda task: task.idx)
    grown.sort(key=lambda growth: growth.number)
    return Ended(run, tuple(own or ([run.solo] if run.solo else [])), tuple(grown))


def read_graph(row: Row) -> GraphRecord:
    """A definition."""
    return ALONE[GraphRecord][1].read(row, nothing_shared())


def read_stories(
    tenant: str, run: RunId, created_at: Millis, told: bytes, rows: Iterable[tuple[int, int, bytes]]
) -> list[Story]:
    """The story of one run, from its own row and from rows of the story's own.

    By number: a story that came without its run's row is in a row of its own, wherever the others are.
    """
    parts = sorted((*unpack_stories(told), *rows))
    return [Story(tenant, run, created_at, number, at, changes) for number, at, changes in parts]


# Audits.


def ask_audits(query: ListAudits) -> Asked:
    """Who asked for what, the newest first, and one more."""
    return _AUDITS, [query.tenant, query.before or INTEGER_MAX, query.page_limit + 1]


def read_audits(query: ListAudits, rows: Sequence[Any]) -> AuditsPage:
    """The page."""
    limit, same = query.page_limit, nothing_shared()
    found = tuple(AUDIT.read(row[1:], same) for row in rows[:limit])
    return AuditsPage(found, rows[limit - 1][0] if len(rows) > limit else 0)
