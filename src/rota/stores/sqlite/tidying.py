"""Housekeeping in bounded slices: finish migrations, move parts of ended runs, remove what is past retention.

Each slice is one transaction and looks at the tables anew, so that it may be stopped anywhere and done again.
"""

from collections.abc import Sequence

from rota.core.bounds import ROWS_PER_TIDY
from rota.core.ids import Millis
from rota.stores.sql.columns import Value
from rota.stores.sql.migrations import Migration, finish
from rota.stores.sqlite.connection import Connection

_UNMOVED = "SELECT run_no FROM history_run WHERE moved = 0 AND NOT going ORDER BY run_no LIMIT ?"
_MOVED = "UPDATE history_run SET moved = 1 WHERE run_no = ?"
# Without a list of tenants: hop from one to the next along the index.
_TENANTS = (
    "WITH RECURSIVE each (tenant) AS (SELECT min(tenant) FROM history_run UNION ALL"
    " SELECT (SELECT min(tenant) FROM history_run WHERE history_run.tenant > each.tenant) FROM each"
    " WHERE each.tenant IS NOT NULL) SELECT tenant FROM each WHERE tenant IS NOT NULL"
)
_FORGET_GRAPH = (
    "DELETE FROM history_graph WHERE tenant = ?1 AND digest = ?3"
    " AND NOT EXISTS (SELECT 1 FROM history_run WHERE tenant = ?1 AND name = ?2 AND graph = ?3)"
)
_EXPIRE_AUDITS = "DELETE FROM audit WHERE no IN (SELECT no FROM audit WHERE at <= ? ORDER BY at LIMIT ?)"
# A part's tables, live and ended, and what numbers it within its run.
_PARTS = (("task", "history_task", "idx"), ("growth", "history_growth", "number"))
_ALL_PARTS = (*[(table, key) for live, ended, key in _PARTS for table in (live, ended)], ("story", "number"))


# Most runs have one task and nothing of their own elsewhere: to ask here costs less than to delete nothing.
_REMOVED = (
    "SELECT run_no, tenant, name, graph, "
    + " OR ".join(
        f"EXISTS (SELECT 1 FROM {table} WHERE {table}.run_no = history_run.run_no)" for table, _ in _ALL_PARTS
    )
    + " FROM history_run"
)
_EXPIRED = f"{_REMOVED} WHERE tenant = ? AND ended_at <= ? ORDER BY ended_at, run_no LIMIT ?"
# A run of which a part was removed is nobody's any more. It is found by the index of those that are not moved.
_GOING = "UPDATE history_run SET going = 1, moved = 0 WHERE run_no = ?"
_HALF_GONE = f"{_REMOVED} WHERE moved = 0 AND going ORDER BY run_no LIMIT ?"


def tidy(connection: Connection, now: Millis, keep_ms: Millis, migrations: Sequence[Migration]) -> int:
    """One slice inside the caller's transaction; how many rows it moved, removed or rewrote."""
    rows = finish(connection, ROWS_PER_TIDY, migrations)
    if rows:
        return rows
    rows = _move(connection, ROWS_PER_TIDY)
    if rows < ROWS_PER_TIDY:
        rows += _expire(connection, now - keep_ms, ROWS_PER_TIDY - rows)
    if rows < ROWS_PER_TIDY:
        connection.execute(_EXPIRE_AUDITS, (now - keep_ms, ROWS_PER_TIDY - rows))
        rows += connection.changes()
    return rows


def _first(table: str, key: str) -> str:
    """The first rows of a run, as a condition."""
    return (
        f"run_no = ?1 AND {key} <= (SELECT max({key}) FROM"
        f" (SELECT {key} FROM {table} WHERE run_no = ?1 ORDER BY {key} LIMIT ?2))"
    )


def _move(connection: Connection, budget: int) -> int:
    done = 0
    for (number,) in list(connection.execute(_UNMOVED, (budget,))):
        for live, ended, key in _PARTS:
            first = _first(live, key)
            connection.execute(
                f"INSERT OR REPLACE INTO {ended} SELECT * FROM {live} WHERE {first}",
                (number, budget - done),
            )
            done += _delete(connection, live, key, number, budget - done)
            if done >= budget:
                return done
        connection.execute(_MOVED, (number,))
        done += 1
        if done >= budget:
            break
    return done


def _delete(connection: Connection, table: str, key: str, number: int, limit: int) -> int:
    connection.execute(f"DELETE FROM {table} WHERE {_first(table, key)}", (number, limit))
    return connection.changes()


def _expire(connection: Connection, before: Millis, budget: int) -> int:
    done = _remove(connection, _HALF_GONE, (), budget)
    for (tenant,) in list(connection.execute(_TENANTS)):
        if done >= budget:
            break
        done += _remove(connection, _EXPIRED, (tenant, before), budget - done)
    return done


def _remove(connection: Connection, asked: str, values: tuple[Value, ...], budget: int) -> int:
    """Remove runs with all that is their own, as many as there is room for."""
    done = 0
    gone: list[tuple[int]] = []
    graphs: dict[tuple[str, str, str], None] = {}
    for number, tenant, name, graph, has_parts in list(connection.execute(asked, (*values, budget))):
        if has_parts:
            done += _delete_parts(connection, number, budget - done)
        if done >= budget:
            connection.execute(_GOING, (number,))
            break
        gone.append((number,))
        graphs[(tenant, name, graph)] = None
        done += 1
    connection.executemany("DELETE FROM history_run WHERE run_no = ?", gone)
    connection.executemany(_FORGET_GRAPH, list(graphs))
    return done


def _delete_parts(connection: Connection, number: int, budget: int) -> int:
    done = 0
    for table, key in _ALL_PARTS:
        if done < budget:
            done += _delete(connection, table, key, number, budget - done)
    return done
