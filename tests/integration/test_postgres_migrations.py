"""Schemas of older versions: changed by who holds the lock, in the moment in which it begins to reign."""

import asyncio

import psycopg
import pytest

from rota.core.errors import Refused, Unavailable
from rota.core.records import Workflow
from rota.ports import Candidate, Fenced
from rota.stores.postgres.schema import STEPS, Step
from tests.contract.before import ended_before, plain_json, without_later
from tests.contract.bench import assert_same, batch, disk_of
from tests.contract.records import filled
from tests.contract.samples import a_one_task_run, a_run, one_of_each, rows_of, story_of
from tests.contract.store_history import tidy
from tests.integration.postgres_stage import a_batch, elected, opened, played, runs_in, twin
from tests.servers.postgres import shared_server

pytestmark = pytest.mark.full

LATEST = STEPS[-1].number
NEWER = (
    *STEPS,
    # The views for people depend on the table; they must not be in the way.
    Step(LATEST + 1, "notes", ("CREATE TABLE note (text text)", "ALTER TABLE run ALTER COLUMN reason TYPE varchar")),
    Step(LATEST + 2, "more", ("ALTER TABLE note ADD COLUMN at bigint",)),
)
BROKEN = (*NEWER, Step(LATEST + 3, "a mistake", ("ALTER TABLE no_such_table ADD COLUMN at bigint",)))


def version_of(schema: str) -> str:
    ((version,),) = shared_server().execute(f"SELECT value FROM {schema}.meta WHERE name = 'version'")  # noqa: S608 - a name of our own
    return str(version)


def has_notes(schema: str) -> bool:
    return shared_server().execute("SELECT to_regclass(%(name)s)::text", name=f"{schema}.note") != [(None,)]


@played
async def test_an_older_schema_is_brought_up_to_date_by_the_first_election_and_keeps_everything() -> None:
    async with opened() as old:
        await old.commit(await elected(old), batch(one_of_each()))
        await old.close()
        async with opened(schema=old.schema, lock_id=old.lock.lock_id, steps=NEWER) as new:
            assert await new.identity()
            assert version_of(old.schema) == str(LATEST), "changed by somebody who only looked"
            epoch = await elected(new)
            assert version_of(old.schema) == str(LATEST + 2)
            assert has_notes(old.schema)
            assert_same(disk_of([record async for record in new.load(epoch)]), disk_of(one_of_each()))
            await new.commit(epoch, a_batch("r"))


@played
async def test_nothing_is_changed_under_a_leader_that_holds_the_lock() -> None:
    async with opened() as old, opened(schema=old.schema, lock_id=old.lock.lock_id, steps=NEWER) as new:
        epoch = await elected(old)
        assert await new.elect(Candidate("newer")) is None
        await new.leader()
        assert version_of(old.schema) == str(LATEST)
        await old.commit(epoch, a_batch("r"))


@played
async def test_an_old_leader_that_lost_the_lock_is_fenced_from_the_moment_of_the_change() -> None:
    async with opened() as old, opened(schema=old.schema, lock_id=old.lock.lock_id, steps=NEWER) as new:
        epoch = await elected(old)
        await old.release(epoch)
        await old.commit(epoch, a_batch("still in order"))
        later = await elected(new)
        with pytest.raises(Fenced):
            await old.commit(epoch, a_batch("late"))
        with pytest.raises(Refused) as refused:
            await new.release(later)
            await old.elect(Candidate("older"))
        assert refused.value.code == "store.newer"
        assert "newer Rota" in refused.value.hint
        assert await new.elect(Candidate("newer")), "the lock was given back by who could not use it"


@played
async def test_a_newer_schema_is_refused_by_whoever_looks_and_left_untouched() -> None:
    async with opened(steps=NEWER) as new:
        await new.commit(await elected(new), a_batch("r"))
        await new.close()
        async with opened(schema=new.schema, lock_id=new.lock.lock_id) as old:
            for call in (old.elect(Candidate("older")), old.identity(), old.leader()):
                with pytest.raises(Refused) as refused:
                    await call
                assert refused.value.code == "store.newer"
        again = twin(new, steps=NEWER)
        try:
            assert await runs_in(again, await elected(again)) == ["r"]
        finally:
            await again.close()


@played
async def test_a_change_that_fails_leaves_the_old_version_and_a_free_lock() -> None:
    async with opened() as old, opened(schema=old.schema, lock_id=old.lock.lock_id, steps=BROKEN) as broken:
        epoch = await elected(old)
        await old.release(epoch)
        with pytest.raises((Refused, Unavailable)):
            await broken.elect(Candidate("broken"))
        assert version_of(old.schema) == str(LATEST)
        assert not has_notes(old.schema)
        await old.commit(epoch, a_batch("still in order"))
        assert await runs_in(old, await elected(old)) == ["still in order"]


@played
async def test_a_change_that_takes_longer_than_a_term_is_told_of_and_not_begun_again() -> None:
    slow = (*STEPS, Step(LATEST + 1, "a long one", ("SELECT pg_sleep(2)",)))
    async with opened() as old, opened(schema=old.schema, lock_id=old.lock.lock_id, steps=slow, term_ms=800) as new:
        before = await elected(old)
        await old.release(before)
        epoch, said = None, list[str]()
        async with asyncio.timeout(30):
            while epoch is None:
                try:
                    epoch = await new.elect(Candidate("newer"))
                except Unavailable as away:
                    said.append(away.reason)
                    assert await old.elect(Candidate("older")) is None, "the lock was given back meanwhile"
        assert epoch == before + 1, "begun more than once"
        assert 2 <= len(said) <= 8
        assert f"version {LATEST + 1}" in said[0]
        assert await new.holds(epoch)
        await new.commit(epoch, a_batch("r"))


@played
async def test_a_change_of_which_nobody_hears_the_end_is_undone() -> None:
    slow = (*STEPS, Step(LATEST + 1, "a long one", ("CREATE TABLE note (text text)", "SELECT pg_sleep(2)")))
    async with opened() as old:
        await old.release(await elected(old))
        new = twin(old, steps=slow, term_ms=800)
        with pytest.raises(Unavailable, match="being brought"):
            await new.elect(Candidate("newer"))
        await new.close()
        await elected(old)
        assert not has_notes(old.schema)
        assert version_of(old.schema) == str(LATEST)


@played
async def test_routines_that_another_program_left_are_made_anew_by_the_next_leader() -> None:
    async with opened() as store:
        epoch = await elected(store)
        await store.commit(epoch, a_batch("before"))
        shared_server().execute(f"DROP FUNCTION {store.schema}.write")
        with pytest.raises(Unavailable):
            await store.commit(epoch, a_batch("meanwhile"))
        shared_server().execute(f"UPDATE {store.schema}.meta SET value = 'another' WHERE name = 'routines'")  # noqa: S608 - a name of our own
        await store.release(epoch)
        later = await elected(store)
        await store.commit(later, a_batch("after"))
        assert await runs_in(store, later) == ["after", "before"]


def make_older(schema: str, then: str, version: int) -> None:
    """A schema as a program of that version left it: its tables of then, with the rows of another schema."""
    server = shared_server()
    made = [text for step in STEPS if step.number <= version for text in step.statements]
    script = [f"CREATE SCHEMA {then}", f"SET search_path = {then}", *made]
    script.append(f"UPDATE meta SET value = '{version}' WHERE name = 'version'")  # noqa: S608 - a number of our own
    tables = (
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %(schema)s AND table_type LIKE %(t)s"
    )
    columns = (
        "SELECT column_name FROM information_schema.columns WHERE table_schema = %(schema)s AND table_name = %(t)s"
    )
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(";".join(script).encode())
    for (table,) in server.execute(tables, schema=then, t="BASE%"):
        if table not in ("meta", "reign"):
            names = ", ".join(str(name) for (name,) in server.execute(columns, schema=then, t=table))
            server.execute(f"INSERT INTO {then}.{table} ({names}) SELECT {names} FROM {schema}.{table}")  # noqa: S608 - names of our own
    for table, name in (
        ("graph", "graph"),
        ("history_graph", "graph"),
        ("growth", "specs"),
        ("history_growth", "specs"),
    ):
        for place, text in server.execute(f"SELECT ctid::text, {name}::text FROM {then}.{table}"):  # noqa: S608 - names of our own
            update = f"UPDATE {then}.{table} SET {name} = %(text)s::json WHERE ctid = %(place)s::tid"  # noqa: S608 - names of our own
            server.execute(update, text=plain_json(str(text)), place=place)


@pytest.mark.parametrize("slices", range(3))
@played
async def test_a_schema_of_the_first_version_learns_of_workflows_wherever_its_rows_are(slices: int) -> None:
    many, one = a_run(run="many"), a_one_task_run(run="one", start=20_000)
    live = [*one_of_each(40_000), *rows_of(a_run(run="live", start=60_000), a_one_task_run(run="l1", start=80_000))]
    told = [*story_of(many.run), *story_of(one.run)]
    async with opened() as now:
        epoch = await elected(now)
        await now.commit(epoch, batch([*live, *rows_of(many, one)], stories=told))
        await now.commit(epoch, batch(archives=[("t", "many"), ("t", "one")]))
        for _ in range(slices):
            await now.tidy(epoch, 0, 1 << 60)
        then = f"{now.schema}_then"
        make_older(now.schema, then, 1)
        async with opened(schema=then) as store:
            assert version_of(then) == "1"
            epoch = await elected(store)
            assert version_of(then) == str(LATEST)
            assert_same(disk_of([record async for record in store.load(epoch)]), disk_of(without_later(live)))
            past = [ended_before(many), ended_before(one)]
            assert [await store.ended("t", ended.run.id) for ended in past] == past
            # It goes on: what moves to history, and back, is as it was.
            await tidy(store, epoch)
            assert [await store.ended("t", ended.run.id) for ended in past] == past
            revives = [("t", ended.run.id, ended.run.created_at) for ended in past]
            await store.commit(epoch, batch([filled(Workflow)], revives=revives))
            expected = disk_of([*without_later(live), *rows_of(*past), filled(Workflow)])
            assert_same(disk_of([record async for record in store.load(epoch)]), expected)
            for ended in past:
                assert await store.stories("t", ended.run.id, ended.run.created_at) == story_of(ended.run)
