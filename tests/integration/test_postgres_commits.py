"""What becomes of a commit when the line, the server or its disk fails: done, not done, or said to be unknown."""

import asyncio
import signal
import time

import pytest

from rota.core.errors import Unavailable
from rota.core.records import Run, Task
from rota.ports import Candidate, CommitUnknown, Fenced, StoreRefused
from rota.stores.postgres import PostgresStore
from rota.stores.postgres.session import CONNECT_S
from tests.contract.adapters import Pause
from tests.contract.bench import batch
from tests.integration.postgres_stage import a_batch, elected, opened, played, runs_in, twin
from tests.servers.postgres import PostgresServer, postgres_server, shared_server
from tests.servers.postgres_pause import Point, hold_commit

pytestmark = pytest.mark.full


async def cut() -> None:
    raise ConnectionResetError


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


def hold(store: PostgresStore, stand, at: Point = Point.COMPARED) -> None:
    store.writer.address = hold_commit(store, shared_server(), stand, at)


@played
async def test_a_commit_whose_answer_was_lost_is_unknown_and_on_the_disk() -> None:
    async with opened() as store:
        epoch = await elected(store)
        hold(store, cut, Point.ANSWERED)
        with pytest.raises(CommitUnknown):
            await store.commit(epoch, a_batch("r"))
        assert await runs_in(store, epoch) == ["r"]
        await store.commit(epoch, a_batch("after"))
        assert await runs_in(store, epoch) == ["after", "r"]


@played
async def test_a_commit_that_was_lost_on_its_way_is_unknown_too_and_not_on_the_disk() -> None:
    async with opened() as store:
        epoch = await elected(store)
        hold(store, cut, Point.COMPARED)
        with pytest.raises(CommitUnknown):
            await store.commit(epoch, a_batch("r"))
        assert await runs_in(store, epoch) == []


@played
async def test_a_commit_that_never_left_whole_was_not_written() -> None:
    async with opened() as store:
        epoch = await elected(store)
        hold(store, cut, Point.NOT_SENT)
        large = batch([Run("t", "large", "g", "n", params=bytes(40_000_000))])
        with pytest.raises(Unavailable):
            await store.commit(epoch, large)
        assert await runs_in(store, epoch) == []


@played
async def test_a_line_that_went_dead_is_noticed_by_the_clock() -> None:
    async with opened() as store:
        epoch = await elected(store)
        hold(store, wait_for_ever)
        store.writer.call_s = 0.5
        began = time.monotonic()
        with pytest.raises(CommitUnknown, match="did not answer"):
            await store.commit(epoch, a_batch("r"))
        assert time.monotonic() - began < 5
        # What hangs there is in the way of the next election, of the same coordinator too.
        await store.release(epoch)
        later = await elected(store)
        assert await runs_in(store, later) == []
        began = time.monotonic()
        with pytest.raises(Fenced):
            await store.commit(epoch, a_batch("late"))
        assert time.monotonic() - began < 2 * CONNECT_S, "there is no connection to be had, and the epoch tells all"


@played
async def test_a_paused_commit_is_ended_by_the_next_leader_and_told_that_it_was_overtaken() -> None:
    async with opened() as store:
        epoch = await elected(store)
        pause = Pause()
        hold(store, pause.stand)
        commit = asyncio.ensure_future(store.commit(epoch, a_batch("paused")))
        await pause.reached.wait()
        await store.release(epoch)
        rival = twin(store)
        try:
            began = time.monotonic()
            later = await rival.elect(Candidate("rival"))
            assert later is not None
            assert time.monotonic() - began < 3, "a failover does not wait for what is paused"
            assert await runs_in(rival, later) == []
            pause.resumed.set()
            with pytest.raises(Fenced):
                await commit
            assert await runs_in(rival, later) == []
        finally:
            await rival.close()


@played
async def test_a_session_that_somebody_ended_costs_a_commit_nothing_but_a_repetition() -> None:
    async with opened() as store:
        epoch = await elected(store)
        pause = Pause()
        hold(store, pause.stand)
        commit = asyncio.ensure_future(store.commit(epoch, a_batch("r")))
        await pause.reached.wait()
        text = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %(name)s"
        shared_server().execute(text, name=f"rota:writer:{store.schema}")
        pause.resumed.set()
        with pytest.raises(Unavailable):
            await commit
        assert await store.holds(epoch)
        await store.commit(epoch, a_batch("r"))
        assert await runs_in(store, epoch) == ["r"]


@played
async def test_a_session_that_ended_between_two_commits_is_not_noticed() -> None:
    async with opened() as store:
        epoch = await elected(store)
        for number in range(3):
            await store.commit(epoch, a_batch(f"r{number}"))
            # With a time limit it returns when the session is gone.
            text = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = %(name)s"
            shared_server().execute(text, name=f"rota:writer:{store.schema}")
        assert await runs_in(store, epoch) == ["r0", "r1", "r2"]


@pytest.fixture(scope="module")
def own():
    """A server that is stopped and started here."""
    with postgres_server({"wal_writer_delay": "10s"}) as server:
        yield server


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
@played
async def test_a_server_that_is_restarted_is_found_again(own: PostgresServer, how: signal.Signals) -> None:
    async with opened(server=own) as store:
        epoch = await elected(store)
        await store.commit(epoch, a_batch("before"))
        own.stop(how)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await store.commit(epoch, a_batch("meanwhile"))
            with pytest.raises(Unavailable):
                await store.leader()
        own.start()
        assert await store.leader() is None, "the lock went with its session"
        await store.commit(epoch, a_batch("after"))
        later = await elected(store)
        assert await runs_in(store, later) == ["after", "before"]


@played
async def test_what_is_acknowledged_survives_a_crash_whatever_the_server_is_set_to(own: PostgresServer) -> None:
    url = own.new_database()
    name = url.rpartition("/")[2]
    own.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    async with opened(url) as store:
        epoch = await elected(store)
        await store.commit(epoch, a_batch("r"))
        own.restart(signal.SIGQUIT)
        assert await runs_in(store, epoch) == ["r"]


@played
async def test_a_server_that_is_slow_delays_a_commit_and_loses_nothing(own: PostgresServer) -> None:
    async with opened(server=own) as store:
        epoch = await elected(store)
        await store.commit(epoch, a_batch("before"))
        own.pause()
        commit = asyncio.ensure_future(store.commit(epoch, a_batch("slow")))
        await asyncio.wait([commit], timeout=0.5)
        assert not commit.done()
        own.resume()
        await commit
        assert await runs_in(store, epoch) == ["before", "slow"]


def fail_with(store: PostgresStore, sqlstate: str) -> None:
    """The server itself raises this when a run is written."""
    text = f"CREATE FUNCTION {store.schema}.fail() RETURNS trigger LANGUAGE plpgsql AS"
    text += f" $$BEGIN RAISE EXCEPTION 'as asked' USING ERRCODE = '{sqlstate}'; END$$"
    shared_server().execute(text)
    trigger = f"CREATE TRIGGER fail BEFORE INSERT ON {store.schema}.run EXECUTE FUNCTION {store.schema}.fail()"
    shared_server().execute(trigger)


@pytest.mark.parametrize(
    ("sqlstate", "code"),
    [
        ("53100", "store.full"),
        ("25006", "store.read_only"),
        ("XX001", "store.corrupt"),
        ("42501", "store.denied"),
        ("40P01", "store.unavailable"),
        ("57014", "store.unavailable"),
    ],
)
@played
async def test_trouble_of_the_servers_is_unavailable_by_its_name(sqlstate: str, code: str) -> None:
    async with opened() as store:
        epoch = await elected(store)
        fail_with(store, sqlstate)
        with pytest.raises(Unavailable) as unavailable:
            await store.commit(epoch, a_batch("r"))
        assert unavailable.value.code == code
        shared_server().execute(f"DROP TRIGGER fail ON {store.schema}.run")
        await store.commit(epoch, a_batch("r"))
        assert await runs_in(store, epoch) == ["r"]


@played
async def test_what_no_column_holds_is_refused_and_the_next_commit_is_not() -> None:
    async with opened() as store:
        epoch = await elected(store)
        odd = [
            Run("t", "nul", "g", "a \0 b"),
            Run("t", "half", "g", "\ud83d"),
            Run("t", "large", "g", "n", story=1 << 63),
            Run("t", "larger", "g", "n", story=1 << 70),
            Run("t", "".join(map(chr, range(0x4E00, 0x4E00 + 2_000))), "g", "n"),  # a key that fits no page of an index
            Task("t", "no such run", 0),
        ]
        for record in odd:
            with pytest.raises(StoreRefused):
                await store.commit(epoch, batch([Run("t", "beside", "g", "n"), record]))
        await store.commit(epoch, a_batch("r"))
        assert await runs_in(store, epoch) == ["r"]


@played
async def test_when_no_more_sessions_are_let_in_it_is_unavailable() -> None:
    shared_server().execute("CREATE ROLE lonely LOGIN CONNECTION LIMIT 0")
    try:
        async with opened(shared_server().url(user="lonely")) as store:
            with pytest.raises(Unavailable, match="too many connections"):
                await store.elect(Candidate("a test"))
    finally:
        shared_server().execute("DROP ROLE lonely")
