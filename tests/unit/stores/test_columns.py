"""Columns are made from records, and the tables on disk have every one of them."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from rota.core.records import Story
from rota.stores.sql.columns import ALONE, AUDIT, GROWTH, RUN, TASK, columns_of, pack_story, unpack_stories
from rota.stores.sql.schema import (
    AGENTS,
    BUILDS,
    FEEDS,
    IDLE_TIME,
    REVOKED_LEASES,
    TABLES,
    TENANTS_AND_AUDITS,
    VIEWS,
    WORKFLOWS,
)

TABLE_OF = {
    **{name: table.columns for name, table, _ in ALONE.values()},
    "run": ("run_no", *RUN.columns, "told"),
    "history_run": ("run_no", *RUN.columns, "told", "moved", "going"),
    "task": TASK.columns,
    "history_task": TASK.columns,
    "growth": GROWTH.columns,
    "history_growth": GROWTH.columns,
    "audit": ("no", *AUDIT.columns),
    "history_graph": ("tenant", "digest", "graph", "put_at"),
}


@pytest.fixture
def database():
    connection = sqlite3.connect(":memory:")
    for text in (*TABLES, *TENANTS_AND_AUDITS, *WORKFLOWS, *BUILDS, *AGENTS, *FEEDS, *IDLE_TIME, *REVOKED_LEASES):
        connection.execute(text)
    yield connection
    connection.close()


def columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f"PRAGMA table_info({table})")]


@pytest.mark.parametrize("table", TABLE_OF)
def test_a_table_has_the_columns_of_its_record_and_no_others(database: sqlite3.Connection, table: str):
    assert sorted(columns(database, table)) == sorted(TABLE_OF[table]), (
        "a field that was added to a record needs a migration"
    )


@pytest.mark.parametrize("table", ["task", "growth", "graph"])
def test_a_row_moves_to_history_as_it_is(database: sqlite3.Connection, table: str):
    """Whoever moves rows says no names of columns: they are in the same order on both sides."""
    assert columns(database, table) == columns(database, f"history_{table}")


def test_every_column_has_a_type(database: sqlite3.Connection):
    names = [row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    kinds = {
        row[2] for name in names if name != "sqlite_sequence" for row in database.execute(f"PRAGMA table_info({name})")
    }
    assert kinds == {"TEXT", "INTEGER", "BLOB"}


def test_the_views_can_be_made_and_asked_by_a_plain_sqlite(database: sqlite3.Connection):
    for name, text in VIEWS.items():
        database.execute(f"CREATE VIEW {name} AS {text}")
        assert database.execute(f"SELECT * FROM {name}").fetchall() == []  # noqa: S608 - a name of ours


def test_a_field_of_a_type_that_has_no_column_is_an_error_that_names_it():
    class Odd(Struct):
        tenant: str
        share: float = 0.5

    with pytest.raises(TypeError, match="share"):
        columns_of(Odd)


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=300))))
def test_stories_inside_a_run_come_back(parts: list[tuple[int, int, bytes]]):
    told = b"".join(pack_story(Story("t", "r", 1, *part)) for part in parts)
    assert list(unpack_stories(told)) == parts
