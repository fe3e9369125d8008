"""The lock of elections: whose it is, and what takes it away."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from rota.config.settings import LOCK_ID
from rota.core.errors import Refused, Unavailable
from rota.ports import Candidate, Fenced
from rota.stores.postgres import AdvisoryLock, PostgresStore
from rota.stores.postgres.address import Address
from tests.integration.postgres_stage import a_batch, elected, eventually, opened, played, runs_in, twin
from tests.servers.postgres import postgres_server, shared_server
from tests.servers.postgres_pooler import pooled
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.full

TERM_MS = 800


def lock_of(number: int, url: str = "", term_ms: int = 60_000) -> AdvisoryLock:
    return AdvisoryLock(Address(url or shared_server().url(), "a test"), "a_test", number, term_ms)


@pytest.fixture
def line() -> Iterator[Proxy]:
    """A way to the server that can be stopped and made slow."""
    with Proxy(f"127.0.0.1:{shared_server().port}") as proxy:
        yield proxy


def end_session(pid: int) -> None:
    shared_server().execute("SELECT pg_terminate_backend(%(pid)s)", pid=pid)


@played
async def test_one_session_at_a_time_holds_it_and_only_its_holder_says_so() -> None:
    first, second = lock_of(77), lock_of(77)
    try:
        assert not await first.holds_lock()
        assert await first.try_acquire()
        assert not await first.try_acquire(), "a lock that is held is held against its holder too"
        assert not await second.try_acquire()
        assert await first.holds_lock()
        assert not await second.holds_lock()
        await second.release()
        assert await first.holds_lock(), "given back by somebody who did not hold it"
        await first.release()
        assert not await first.holds_lock()
        assert await second.try_acquire()
    finally:
        first.session.close()
        second.session.close()


@pytest.mark.parametrize("number", [LOCK_ID, 0, 1 << 40 | 7, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -1])
@played
async def test_any_number_of_64_bits_is_seen_in_pg_locks_by_its_halves(number: int) -> None:
    url = shared_server().new_database()
    lock = lock_of(number, url)
    try:
        assert await lock.try_acquire()
        assert await lock.holds_lock()
        ((upper, lower),) = shared_server().execute(
            "SELECT classid::bigint, objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1", url
        )
        assert (int(str(upper)) << 32 | int(str(lower))) == number % (1 << 64)
    finally:
        lock.session.close()


def test_the_number_in_the_guide_is_the_one_that_is_used() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "storage.md").read_text(encoding="utf-8")
    assert f"`0x{LOCK_ID:X}`" in guide
    assert f"`classid` {LOCK_ID >> 32}" in guide
    assert f"objid = {LOCK_ID & 0xFFFFFFFF}" in guide


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(Refused, match="64 bits"):
        lock_of(1 << 64)


@played
async def test_a_session_that_was_ended_holds_nothing_and_the_next_one_neither() -> None:
    async with opened() as store, opened(schema=store.schema, lock_id=store.lock.lock_id) as rival:
        epoch = await elected(store)
        end_session(store.lock.pid)
        await eventually(lambda: lost(store, epoch))
        assert not await store.holds(epoch), "the session was replaced, and the new one holds nothing"
        later = await elected(rival)
        assert await rival.holds(later)
        assert not await store.holds(epoch)
        with pytest.raises(Fenced):
            await store.commit(epoch, a_batch("late"))


async def lost(store: PostgresStore, epoch: int) -> bool:
    """Whether a hold is over; an error says so too."""
    try:
        return not await store.holds(epoch)
    except Unavailable:
        return True


@played
async def test_a_holder_that_says_nothing_for_a_term_loses_it_by_the_servers_clock() -> None:
    async with opened(term_ms=TERM_MS) as store, opened(schema=store.schema, lock_id=store.lock.lock_id) as rival:
        epoch = await elected(store)
        began = time.monotonic()
        await elected(rival)
        assert time.monotonic() - began > TERM_MS / 1_000 * 0.7, "taken before its time was up"
        assert not await store.holds(epoch)


@played
async def test_a_holder_that_asks_in_time_keeps_it() -> None:
    async with opened(term_ms=TERM_MS) as store, opened(schema=store.schema, lock_id=store.lock.lock_id) as rival:
        epoch = await elected(store)
        give_up_at = time.monotonic() + 2 * TERM_MS / 1_000
        while time.monotonic() < give_up_at:
            assert await store.holds(epoch)
            assert await rival.elect(Candidate("rival")) is None
            await asyncio.sleep(TERM_MS / 4_000)


@played
async def test_a_process_that_was_stopped_loses_it_and_its_writes_are_refused_when_it_goes_on() -> None:
    async with opened() as rival:
        program = [sys.executable, "-m", "tests.integration.postgres_program"]
        args = [shared_server().url(), rival.schema, str(rival.lock.lock_id), str(TERM_MS)]
        process = await asyncio.create_subprocess_exec(*program, *args, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(30):
                assert (await process.stdout.readline()).split()[0] == b"elected"
                assert (await process.stdout.readline()).split() == [b"holds", b"True"]
                os.kill(process.pid, signal.SIGSTOP)
                stopped = time.monotonic()
                later = await elected(rival)
                assert time.monotonic() - stopped < TERM_MS / 1_000 + 3
                await rival.commit(later, a_batch("of the successor"))
                os.kill(process.pid, signal.SIGCONT)
                said = (await process.stdout.read()).split()
            assert said[-2:] == [b"commit", b"Fenced"], said
            assert await runs_in(rival, later) == ["of the successor"]
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


@played
async def test_a_lock_that_another_program_holds_is_refused_with_its_name() -> None:
    async with opened() as store:
        url = shared_server().url(application_name="payroll")
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
            await other.execute("SELECT pg_advisory_lock(%s)", (store.lock.lock_id,))
            with pytest.raises(Refused) as refused:
                await store.elect(Candidate("a test"))
            assert refused.value.code == "store.lock_taken"
            for part in ("'payroll'", str(other.info.backend_pid), "'rota'"):
                assert part in refused.value.reason
            assert "server.lock_id" in refused.value.hint
        assert await elected(store)


@played
async def test_two_rotas_of_one_database_need_numbers_of_their_own() -> None:
    async with opened() as store, opened(lock_id=store.lock.lock_id) as other:
        await elected(store)
        with pytest.raises(Refused, match="another Rota"):
            await other.elect(Candidate("a test"))


@played
async def test_through_a_pooler_there_is_no_lock_and_the_message_says_what_to_set() -> None:
    async with pooled(shared_server().url()) as url, opened(url) as store:
        with pytest.raises(Refused) as refused:
            await store.elect(Candidate("a test"))
        assert refused.value.path == "server.lock_url"
        assert "server.lock_url" in refused.value.hint


@played
async def test_everything_but_the_lock_goes_through_a_pooler() -> None:
    async with pooled(shared_server().url()) as url, opened(url, lock_url=shared_server().url()) as store:
        epoch = await elected(store)
        for number in range(7):
            await store.commit(epoch, a_batch(f"r{number}"))
            assert await store.holds(epoch)
        await store.commit(epoch, a_batch("r0"))
        assert await runs_in(store, epoch) == [f"r{number}" for number in range(7)]
        assert await store.tidy(epoch, 0, 0) == 0
        assert await store.leader() == Candidate("a test")


@played
async def test_a_lock_in_another_database_is_refused() -> None:
    elsewhere = shared_server().new_database()
    async with opened(lock_url=elsewhere) as store, opened(elsewhere, schema=store.schema) as other:
        await other.identity()
        with pytest.raises(Refused) as refused:
            await store.elect(Candidate("a test"))
        assert refused.value.code == "store.missing"
        assert "server.lock_url" in refused.value.hint


@played
async def test_a_stranger_that_holds_the_epoch_is_left_alone_and_named() -> None:
    async with opened() as store, opened(schema=store.schema, lock_id=store.lock.lock_id) as rival:
        await store.identity()
        url = shared_server().url(application_name="a curious person")
        async with await psycopg.AsyncConnection.connect(url) as person:
            await person.execute(f"SELECT * FROM {store.schema}.reign FOR SHARE")  # noqa: S608 - a name of our own
            with pytest.raises(Unavailable, match="a curious person"):
                await store.elect(Candidate("a test"))
            assert await rival.leader() is None, "the lock was given back"
            await person.rollback()
        assert await elected(rival)


@played
async def test_a_server_that_does_not_answer_is_noticed_within_a_term() -> None:
    with postgres_server() as server:
        async with opened(server=server, term_ms=TERM_MS) as store:
            epoch = await elected(store)
            server.pause()
            began = time.monotonic()
            try:
                with pytest.raises(Unavailable):
                    await store.holds(epoch)
                assert TERM_MS / 1_000 * 0.9 < time.monotonic() - began < TERM_MS / 1_000 * 1.5
            finally:
                server.resume()
            later = await elected(store)
            assert later > epoch
            assert await store.holds(later)


@played
async def test_an_answer_that_takes_most_of_a_term_costs_no_lock(line: Proxy) -> None:
    term_ms = 2_000
    async with (
        opened(url_at(line.port), term_ms=term_ms) as store,
        opened(schema=store.schema, lock_id=store.lock.lock_id) as rival,
    ):
        epoch = await elected(store)
        line.slow(term_ms * 0.35)
        assert await store.holds(epoch)
        line.heal()
        assert await rival.elect(Candidate("rival")) is None
        assert await store.holds(epoch)


@played
async def test_who_gives_up_while_a_question_is_open_ends_the_session(line: Proxy) -> None:
    async with opened(url_at(line.port), term_ms=TERM_MS) as store:
        epoch = await elected(store)
        line.hang()
        asked = asyncio.ensure_future(store.holds(epoch))
        await asyncio.sleep(0)
        began = time.monotonic()
        with pytest.raises(Unavailable):
            await store.release(epoch)
        assert time.monotonic() - began < TERM_MS / 1_000 * 0.7, "waited for an answer that nobody needs"
        with pytest.raises(Unavailable):
            await asked
        line.heal()
        assert await elected(store) > epoch


@played
async def test_a_host_that_says_nothing_leaves_time_for_the_next(line: Proxy) -> None:
    line.hang()
    async with opened(url_at(line.port, shared_server().port)) as store:
        began = time.monotonic()
        assert await store.elect(Candidate("a test"))
        assert time.monotonic() - began < 5, "an election is waited for as long as a term"


@played
async def test_hosts_that_all_say_nothing_are_given_up_on_in_time(line: Proxy) -> None:
    line.hang()
    async with opened(url_at(line.port, line.port), term_ms=TERM_MS) as store:
        began = time.monotonic()
        with pytest.raises(Unavailable, match=r"\b0\.2 s\b.*\b0\.2 s\b"):
            await store.elect(Candidate("a test"))
        assert time.monotonic() - began < TERM_MS / 1_000


def url_at(*ports: int) -> str:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return shared_server().url().replace(f"127.0.0.1:{shared_server().port}", hosts)


@played
async def test_a_follower_that_looks_again_and_again_has_one_session_for_it() -> None:
    async with opened() as store:
        await elected(store)
        follower = twin(store)
        try:
            waiting = asyncio.ensure_future(follower.vacancy())
            for _ in range(5):
                assert await follower.elect(Candidate("a follower")) is None
                await follower.leader()
            await eventually(lambda: has_sessions(store.schema, "lock", "lock", "watcher", "listener"))
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await eventually(lambda: has_sessions(store.schema, "lock", "lock", "watcher"))
        finally:
            await follower.close()


async def has_sessions(schema: str, *parts: str) -> bool:
    text = "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE %(name)s"
    found = shared_server().execute(text, name=f"rota:%:{schema}")
    return sorted(str(name) for (name,) in found) == sorted(f"rota:{part}:{schema}" for part in parts)


@played
async def test_a_coordinator_with_another_number_is_refused_and_deposes_nobody() -> None:
    async with opened() as store, opened(schema=store.schema) as other:
        epoch = await elected(store)
        assert store.lock.lock_id != other.lock.lock_id
        for _ in range(2):
            with pytest.raises(Refused) as refused:
                await other.elect(Candidate("with another number"))
            assert refused.value.path == "server.lock_id"
            assert f"{store.lock.lock_id:#x}" in refused.value.reason
            assert f"{other.lock.lock_id:#x}" in refused.value.reason
        assert await store.holds(epoch)
        await store.commit(epoch, a_batch("r"))
        await store.release(epoch)
        later = await elected(other)
        assert later > epoch, "whoever has gone is in nobody's way"
        with pytest.raises(Refused, match=r"server\.lock_id"):
            await store.elect(Candidate("with the number of before"))
