"""What is refused when a store is opened or its database changes under it, and what the refusal says to do."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from rota.config.settings import LOCK_ID
from rota.core.errors import Refused, Unavailable
from rota.core.records import Run
from rota.ports import Candidate
from rota.stores.postgres import PostgresStore
from rota.stores.postgres.address import Address
from rota.stores.postgres.session import check_server
from tests.contract.bench import assert_same, batch, disk_of
from tests.integration.postgres_stage import a_batch, elected, opened, played, runs_in
from tests.servers.postgres import PostgresServer, postgres_server, replica_of, shared_server

pytestmark = pytest.mark.full

SECRET = "correct-horse"


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


async def refusal(store: PostgresStore) -> Refused:
    """What an election is refused with, and reading too. Nothing secret is in it."""
    with pytest.raises(Refused) as refused:
        await store.elect(Candidate("a test"))
    with pytest.raises(Refused) as again:
        await store.identity()
    assert again.value.code == refused.value.code
    assert refused.value.hint, "a refusal says what to do"
    for text in (str(refused.value), repr(refused.value), repr(store), str(store.address)):
        assert SECRET not in text
    return refused.value


@pytest.fixture(scope="module")
def secret_role() -> Iterator[None]:
    shared_server().execute(f"CREATE ROLE secret LOGIN PASSWORD '{SECRET}'")
    yield
    shared_server().execute("DROP ROLE secret")


@pytest.mark.usefixtures("secret_role")
@pytest.mark.parametrize("password", ["", f"{SECRET}-battery"])
@played
async def test_a_wrong_password_or_none_is_denied(password: str) -> None:
    async with opened(shared_server().url(user="secret", password=password)) as store:
        assert (await refusal(store)).code == "store.denied"


@pytest.mark.usefixtures("secret_role")
@played
async def test_who_may_not_make_a_schema_is_told_how_to_let_it() -> None:
    async with opened(shared_server().url(user="secret", password=SECRET)) as store:
        refused = await refusal(store)
        assert refused.code == "store.denied"
        assert "GRANT CREATE" in refused.hint
        shared_server().execute(f"CREATE SCHEMA {store.schema} AUTHORIZATION secret")
        try:
            epoch = await elected(store)
            await store.commit(epoch, a_batch("r"))
            assert await runs_in(store, epoch) == ["r"]
        finally:
            await store.close()
            shared_server().execute(f"DROP SCHEMA {store.schema} CASCADE")


@played
async def test_a_user_that_does_not_exist_is_denied() -> None:
    async with opened(shared_server().url(user="nobody_here")) as store:
        assert (await refusal(store)).code == "store.denied"


@played
async def test_a_database_that_does_not_exist_is_missing() -> None:
    async with opened(shared_server().url("no_such_database")) as store:
        refused = await refusal(store)
        assert refused.code == "store.missing"
        assert "createdb" in refused.hint


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://rota:{SECRET}@[nowhere/rota",
        f"mysql://rota:{SECRET}@localhost/rota",
        f"host=localhost password={SECRET} colour=blue",
        f"postgresql://rota:{SECRET}@localhost/rota?colour=blue",
    ],
)
def test_an_address_that_is_none_is_refused_without_repeating_it(url: str) -> None:
    for settings in ({"url": url}, {"url": "postgresql:///rota", "lock_url": url}):
        with pytest.raises(Refused) as refused:
            PostgresStore(**settings, lock_id=LOCK_ID)
        assert refused.value.code == "config.value"
        assert SECRET not in f"{refused.value} {refused.value!r} {refused.value.__cause__}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://me:{SECRET}@db.example:5433/rota", "postgresql://me@db.example:5433/rota"),
        (f"postgresql://me@db.example/rota?password={SECRET}", "postgresql://me@db.example/rota"),
        (f"host=a,b port=1,2 user=me dbname=rota password={SECRET}", "postgresql://me@a:1,b:2/rota"),
        ("postgresql://me@a,b:1/rota?port=7", "postgresql://me@a:7,b:7/rota"),
        (f"postgresql://me@db.example/rota?sslmode=require&sslpassword={SECRET}", "postgresql://me@db.example/rota"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    address = Address(url, "server.url")
    assert str(address) == shown
    assert SECRET not in repr(address)


@pytest.mark.parametrize("name", ["", "Rota", "a-b", 'r"; drop', "x" * 41, "1a", "ünder"])
def test_a_name_that_is_none_for_a_schema_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="schema"):
        PostgresStore("postgresql:///rota", schema=name, lock_id=LOCK_ID)


@played
async def test_a_server_that_is_not_there_is_unavailable() -> None:
    async with opened("postgresql://rota@127.0.0.1:1/rota") as store:
        with pytest.raises(Unavailable, match="refused"):
            await store.elect(Candidate("a test"))
    async with opened("postgresql://rota@no-such-host.invalid/rota") as store:
        with pytest.raises(Unavailable):
            await store.elect(Candidate("a test"))


@played
async def test_a_replica_can_only_be_read_and_is_refused() -> None:
    with postgres_server() as primary:
        async with opened(server=primary, schema="rota") as store:
            await elected(store)
        with replica_of(primary) as replica:
            async with opened(server=replica, schema="rota") as store:
                with pytest.raises(Refused) as refused:
                    await store.elect(Candidate("a test"))
                assert refused.value.code == "store.read_only"
                assert "primary" in refused.value.hint
                assert await store.leader() is None, "reading works"
            several = f"postgresql://rota@127.0.0.1:{replica.port},127.0.0.1:{primary.port}/postgres"
            async with opened(f"{several}?target_session_attrs=read-write", schema="rota") as store:
                assert await elected(store) == 2, "with both named, the primary is found"


@played
async def test_a_database_that_is_set_to_be_read_only_is_refused() -> None:
    url = shared_server().new_database()
    shared_server().execute(f"ALTER DATABASE {name_of(url)} SET default_transaction_read_only = on")
    async with opened(url) as store:
        assert (await refusal(store)).code == "store.read_only"


@played
async def test_a_database_that_cannot_hold_every_text_is_refused() -> None:
    shared_server().execute("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    async with opened(shared_server().url("ascii")) as store:
        refused = await refusal(store)
        assert refused.code == "store.engine"
        assert "UTF8" in refused.hint


def test_a_server_that_is_too_old_is_refused() -> None:
    address = Address("postgresql:///rota", "server.url")
    with pytest.raises(Refused, match="PostgreSQL 13, and Rota needs 14"):
        check_server(130_012, "UTF8", address)
    check_server(140_000, "UTF8", address)


@played
async def test_several_that_are_started_together_on_an_empty_database_make_one_schema() -> None:
    for _ in range(5):
        url = shared_server().new_database()
        async with opened(url) as one:
            others = [PostgresStore(url, schema=one.schema, lock_id=one.lock.lock_id) for _ in range(4)]
            stores = [one, *others]
            try:
                names = asyncio.gather(*[store.identity() for store in stores])
                epochs = await asyncio.gather(*[store.elect(Candidate("a test")) for store in others])
                assert len(set(await names)) == 1
                assert [epoch for epoch in epochs if epoch] == [1]
            finally:
                for store in others:
                    await store.close()


@played
async def test_what_somebody_built_on_a_view_is_left_alone_and_named() -> None:
    async with opened() as store:
        epoch = await elected(store)
        await store.release(epoch)
        shared_server().execute(f"CREATE VIEW public.theirs AS SELECT * FROM {store.schema}.failures")  # noqa: S608 - a name of our own
        try:
            await elected(store)
            await store.release(epoch + 1)
            shared_server().execute(f"UPDATE {store.schema}.meta SET value = 'another' WHERE name = 'routines'")  # noqa: S608 - a name of our own
            with pytest.raises(Refused, match="theirs"):
                await store.elect(Candidate("a test"))
        finally:
            shared_server().execute("DROP VIEW public.theirs")
        assert await elected(store) == 3


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[PostgresServer]:
    """A server whose certificate is for another host than the one it is reached at."""
    folder = tmp_path_factory.mktemp("tls")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued = authority.issue_cert("db.elsewhere.example")
    with postgres_server() as server:
        issued.cert_chain_pems[0].write_to_path(str(server.data / "server.crt"))
        issued.private_key_pem.write_to_path(str(server.data / "server.key"))
        server.own(server.data / "server.crt", server.data / "server.key")
        server.execute("ALTER SYSTEM SET ssl = on")
        server.restart()
        yield server


@played
async def test_a_certificate_for_another_host_or_of_another_authority_is_refused(
    tls: PostgresServer, authority: trustme.CA, tmp_path: Path
) -> None:
    trusted, unknown = tmp_path / "ca.pem", tmp_path / "other.pem"
    authority.cert_pem.write_to_path(str(trusted))
    trustme.CA().cert_pem.write_to_path(str(unknown))
    async with opened(tls.url(sslmode="verify-ca", sslrootcert=str(trusted))) as store:
        epoch = await elected(store)
        # Longer than one record of TLS, and of every length around one.
        runs = [Run("t", f"r{size}", "g", "n", params=bytes(size)) for size in range(8_000, 40_000, 97)]
        await store.commit(epoch, batch(runs))
        assert_same(disk_of([record async for record in store.load(epoch)]), disk_of(runs))
    for mode, known in (("verify-full", trusted), ("verify-ca", unknown), ("verify-full", tmp_path / "missing.pem")):
        async with opened(tls.url(sslmode=mode, sslrootcert=str(known))) as store:
            refused = await refusal(store)
            assert refused.code == "tls.handshake", refused


@played
async def test_a_server_without_tls_is_refused_where_tls_is_asked_for() -> None:
    async with opened(shared_server().url(sslmode="require")) as store:
        assert (await refusal(store)).code == "tls.handshake"


@played
async def test_tables_of_somebody_else_are_left_alone() -> None:
    async with opened() as store:
        shared_server().execute(f"CREATE SCHEMA {store.schema} CREATE TABLE task (theirs text)")
        refused = await refusal(store)
        assert refused.code == "store.foreign"
        assert "another database" in refused.hint
        text = "SELECT table_name FROM information_schema.tables WHERE table_schema = %(schema)s"
        assert shared_server().execute(text, schema=store.schema) == [("task",)], "nothing half-written"


@played
async def test_a_schema_that_was_removed_under_a_leader_is_missing_and_not_made_again() -> None:
    async with opened() as store:
        epoch = await elected(store)
        shared_server().execute(f"DROP SCHEMA {store.schema} CASCADE")
        with pytest.raises(Unavailable) as unavailable:
            await store.commit(epoch, a_batch("r"))
        assert unavailable.value.code == "store.missing"
        with pytest.raises(Refused) as refused:
            await runs_in(store, epoch)
        assert refused.value.code == "store.missing"
        await store.release(epoch)
        with pytest.raises(Refused) as refused:
            await store.elect(Candidate("a test"))
        assert refused.value.code == "store.missing"
        async with opened(schema=store.schema, lock_id=store.lock.lock_id) as again:
            assert await elected(again) == 1, "who comes anew makes it anew"
        with pytest.raises(Refused, match=r"store\.missing: .*\bserver\.lock_url\b"):
            await store.elect(Candidate("a test"))


@played
async def test_a_database_that_was_dropped_under_a_leader_is_missing() -> None:
    url = shared_server().new_database()
    async with opened(url) as store:
        epoch = await elected(store)
        await store.commit(epoch, a_batch("r"))
        shared_server().execute(f"DROP DATABASE {name_of(url)} WITH (FORCE)")
        with pytest.raises(Unavailable) as unavailable:
            await store.commit(epoch, a_batch("r"))
        assert unavailable.value.code == "store.missing"
        with pytest.raises(Refused) as refused:
            await store.elect(Candidate("a test"))
        assert refused.value.code == "store.missing"


@played
async def test_a_closed_store_says_so() -> None:
    async with opened() as store:
        epoch = await elected(store)
        await store.close()
        for call in (store.commit(epoch, a_batch("r")), store.leader(), store.vacancy(), store.elect(Candidate("x"))):
            with pytest.raises(Unavailable, match="closed"):
                await call
        assert not await store.holds(epoch)


DAMAGED = {
    "another program's table": "CREATE SCHEMA rota; CREATE TABLE rota.meta (a int)",
    "nothing in it": "CREATE SCHEMA rota; CREATE TABLE rota.meta (name text, value text)",
    "no version": "CREATE SCHEMA rota; CREATE TABLE rota.meta (name text, value text);"
    " INSERT INTO rota.meta VALUES ('version', 'abc')",
    "version nought": "CREATE SCHEMA rota; CREATE TABLE rota.meta (name text, value text);"
    " INSERT INTO rota.meta VALUES ('version', '0')",
}


@pytest.mark.parametrize("found", DAMAGED)
def test_a_table_that_is_not_ours_is_refused_and_left_as_it_is(found: str) -> None:
    url = shared_server().new_database()
    shared_server().execute(DAMAGED[found], url)

    async def play() -> None:
        store = PostgresStore(url, lock_id=LOCK_ID)
        try:
            for attempt in (store.look, store.identity, lambda: store.elect(Candidate("a test"))):
                with pytest.raises(Refused, match=r"store\.foreign"):
                    await attempt()
        finally:
            await store.close()

    asyncio.run(play())


def test_a_store_without_its_epoch_is_damaged() -> None:
    url = shared_server().new_database()

    async def play() -> None:
        store = PostgresStore(url, lock_id=LOCK_ID)
        try:
            await store.identity()
            shared_server().execute("DELETE FROM rota.reign", url)
            with pytest.raises(Refused, match=r"store\.corrupt.*Restore a backup"):
                await store.elect(Candidate("a test"))
        finally:
            await store.close()

    asyncio.run(play())
