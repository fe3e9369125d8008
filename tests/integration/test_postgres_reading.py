"""What a person with plain SQL finds in a database."""

from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

from rota.core.records import Key
from rota.stores.postgres import PostgresStore
from tests.contract.bench import batch
from tests.integration.postgres_stage import elected, opened, played, twin
from tests.integration.test_sqlite_reading import GRAPHS, NOW, RUNS, a_day
from tests.servers.postgres import shared_server

pytestmark = pytest.mark.full

# The query of the guide, and the same for the day on which the tests began.
TODAY = "select * from rota.failures where day = current_date"
FOREVER = 1 << 60


def ask(store: PostgresStore, text: str) -> list[dict[str, object]]:
    with psycopg.connect(shared_server().url(), row_factory=dict_row) as connection:
        return connection.execute(text.replace("rota.", f"{store.schema}.")).fetchall()  # pyright: ignore[reportArgumentType] - a test's own text


async def fill(store: PostgresStore, archived: tuple[str, ...] = (), drops: tuple[Key, ...] = (), tidied: int = 0):
    epoch = await elected(store)
    await store.commit(epoch, batch(a_day(NOW)))
    await store.commit(epoch, batch(archives=[("t", run) for run in archived]))
    await store.commit(epoch, batch(drops=drops))
    for _ in range(tidied):
        await store.tidy(epoch, 0, FOREVER)
    return epoch


@pytest.mark.parametrize(
    ("archived", "drops", "tidied"),
    [((), (), 0), (RUNS, (), 0), (RUNS, (), 3), (RUNS, GRAPHS, 3)],
    ids=["live", "ended", "moved", "long after"],
)
@played
async def test_what_failed_today_and_why(archived: tuple[str, ...], drops: tuple[Key, ...], tidied: int) -> None:
    async with opened() as store:
        await fill(store, archived, drops, tidied)
        day = datetime.fromtimestamp(NOW / 1_000, UTC).date()
        rows = ask(store, TODAY.replace("current_date", f"date '{day}'"))
        assert sorted((row["run"], row["task"], row["failure"], row["why"]) for row in rows if row["task"]) == [
            ("etl-1", "transform[1]", "user", "ValueError: no such column"),
            ("mail-1", "send", "user", "it's down"),
        ]
        assert [(row["run"], row["why"]) for row in rows if not row["task"]] == [("late", "deadline")]
        assert len(ask(store, TODAY)) in (0, len(rows)), "none if midnight has just passed"


@played
async def test_times_are_told_in_words_that_people_read() -> None:
    async with opened() as store:
        await fill(store)
        (run,) = ask(store, "SELECT * FROM rota.runs WHERE run = 'etl-1'")
        ended = run["ended"]
        assert isinstance(ended, datetime)
        assert ended.replace(tzinfo=UTC).timestamp() * 1_000 == pytest.approx(NOW, abs=1)
        assert run["seconds"] == 4
        assert run["live"] is True
        (task,) = ask(store, "SELECT * FROM rota.tasks WHERE task = 'extract'")
        assert task["state"] == "success"
        assert task["started"] is None


@played
async def test_definitions_in_history_go_with_the_last_run_that_needs_them() -> None:
    async with opened() as store:
        epoch = await fill(store, RUNS, GRAPHS, 3)
        assert len(ask(store, "SELECT * FROM rota.history_graph")) == 2
        while await store.tidy(epoch, NOW, 1_000):
            pass
        assert len(ask(store, "SELECT * FROM rota.history_graph")) == 2, "today's runs still need both"
        while await store.tidy(epoch, NOW, 0):
            pass
        assert ask(store, "SELECT * FROM rota.history_graph") == []
        assert ask(store, "SELECT * FROM rota.runs") == []


@played
async def test_a_row_that_somebody_spoiled_is_said_to_be_damage() -> None:
    async with opened() as store:
        epoch = await fill(store)
        shared_server().execute(f"UPDATE {store.schema}.run SET state = 'unheard of'")  # noqa: S608 - a name of our own
        with pytest.raises(Exception, match=r"store\.corrupt"):
            _ = [record async for record in store.load(epoch)]
        reader = twin(store)
        try:
            assert await reader.ended("t", "etl-1") is None, "and others can still be read"
        finally:
            await reader.close()


def test_the_query_of_the_guide_is_the_one_that_is_tested() -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "storage.md"
    assert TODAY in guide.read_text(encoding="utf-8")
