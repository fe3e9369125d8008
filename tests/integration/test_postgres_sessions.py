"""Sessions apart: what is slow in one does not hold up another, and nothing goes on that nobody waits for."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from rota.core.errors import Refused, Unavailable
from rota.core.history import HistoryQuery
from rota.ports import Candidate, Fenced
from rota.stores.postgres import PostgresStore
from rota.stores.postgres.address import Address
from rota.stores.postgres.reading import CHUNK
from rota.stores.postgres.session import Session, bounded
from rota.stores.postgres.store import CALL_S
from rota.stores.postgres.wire import Bound, Said, Wire
from tests.integration.postgres_stage import a_batch, elected, eventually, opened, played, twin
from tests.servers.postgres import shared_server
from tests.servers.postgres_pooler import pooled

pytestmark = pytest.mark.full

PAGE = HistoryQuery(tenant="t")


@asynccontextmanager
async def blocked(store: PostgresStore, table: str) -> AsyncIterator[None]:
    """Somebody else has a table for itself."""
    async with await psycopg.AsyncConnection.connect(shared_server().url()) as person:
        await person.execute(f"LOCK TABLE {store.schema}.{table} IN ACCESS EXCLUSIVE MODE")  # pyright: ignore[reportArgumentType] - a test's own text
        yield
        await person.rollback()


async def is_at_work(store: PostgresStore, part: str) -> bool:
    """Whether a statement of one session is under way."""
    text = "SELECT 1 FROM pg_stat_activity WHERE application_name = %(name)s AND state = 'active'"
    return bool(shared_server().execute(text, name=f"rota:{part}:{store.schema}"))


@played
async def test_whether_a_commit_was_overtaken_does_not_wait_for_a_page_of_history() -> None:
    async with opened() as store, opened(schema=store.schema, lock_id=store.lock.lock_id) as rival:
        epoch = await elected(store)
        await store.commit(epoch, a_batch("r"))
        async with blocked(store, "history_run"):
            page = asyncio.ensure_future(store.history(PAGE))
            await eventually(lambda: is_at_work(store, "reader"))
            async with asyncio.timeout(CALL_S / 3):
                assert await store.leader() == Candidate("a test")
                await store.release(epoch)
                await elected(rival)
                shared_server().execute(f"DROP FUNCTION {store.schema}.write")
                with pytest.raises(Fenced):
                    await store.commit(epoch, a_batch("late"))
            assert not page.done()
        assert (await page).runs == ()


@played
async def test_a_page_that_nobody_waits_for_any_more_is_ended_by_the_server() -> None:
    async with opened() as store:
        await elected(store)
        store.reader.call_s = 1.0
        async with blocked(store, "history_run"):
            with pytest.raises(Unavailable, match="statement timeout"):
                await store.history(PAGE)
            assert not await is_at_work(store, "reader")
        assert (await store.history(PAGE)).runs == ()


@played
async def test_a_session_that_writes_is_bounded_on_the_server() -> None:
    address = Address(shared_server().url(), "a test")
    session = Session(address, "rota:a test", 1.0, bounded(1.0))
    try:
        with pytest.raises(Said) as said:
            await session.run("SELECT pg_sleep(60)")
        assert said.value.sqlstate == "57014"
    finally:
        session.close()
    async with opened() as store:
        await store.commit(await elected(store), a_batch("r"))
        assert await settings_of(store) == [("14s", "10", "5", "3")]


@played
async def test_behind_a_pooler_nothing_is_settled_in_a_session_that_others_use() -> None:
    async with pooled(shared_server().url()) as url, opened(url, lock_url=shared_server().url()) as store:
        await store.commit(await elected(store), a_batch("r"))
        assert (await settings_of(store))[0][0] == "0"


async def settings_of(store: PostgresStore) -> list[tuple[Any, ...]]:
    names = ("statement_timeout", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count")
    return await store.writer.run(f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}")


@pytest.mark.parametrize("tenant", ["a\0b", "\ud800"], ids=["NUL", "half a character"])
@played
async def test_a_question_that_cannot_be_asked_costs_no_session(tenant: str) -> None:
    async with opened() as store:
        await elected(store)
        await store.history(PAGE)
        before = store.reader.wire
        for ask in (store.history(HistoryQuery(tenant=tenant)), store.graph(tenant, "d"), store.ended(tenant, "r")):
            with pytest.raises(Refused) as refused:
                await ask
            assert refused.value.code == "field.value"
        await store.history(PAGE)
        assert store.reader.wire is before


@played
async def test_what_is_kept_is_read_some_at_a_time() -> None:
    many = CHUNK * 2 + 1
    async with opened() as store:
        await store.commit(await elected(store), a_batch(*[f"r{number}" for number in range(many)]))
        at_once: list[int] = []

        class Counting(Wire):
            async def run(self, text: str, values: Sequence[Bound] = ()) -> list[tuple[Any, ...]]:
                rows = await super().run(text, values)
                at_once.append(len(rows))
                return rows

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("rota.stores.postgres.session.Wire", Counting)
            kept = await store.kept()
        assert len(kept.runs) == many
        assert max(at_once) == CHUNK, "a long answer is taken in one piece, and nobody else gets a turn meanwhile"


@played
async def test_a_sweep_is_on_a_session_of_its_own() -> None:
    async with opened() as store:
        await elected(store)
        other = twin(store)
        try:
            async with blocked(store, "history_task"):
                kept = asyncio.ensure_future(other.kept())
                await eventually(lambda: is_at_work(store, "sweeper"))
                async with asyncio.timeout(CALL_S / 3):
                    assert (await other.history(PAGE)).runs == ()
                assert not kept.done()
            assert (await kept).runs == frozenset()
        finally:
            await other.close()
