"""Every way in which an etcd is not the one that was meant, or not as it should be: said clearly, nothing changed."""

import asyncio
import http.server
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from rota.config import ClientTls, Secret
from rota.core.errors import Refused, Unavailable
from rota.core.records import Receipt, Task
from rota.ports import Fenced
from rota.stores.blobs import MARK, open_blobs
from rota.stores.etcd import EtcdStore
from rota.stores.etcd.address import read_url
from rota.stores.etcd.keys import SNAPSHOTS
from rota.stores.etcd.opening import FORMAT
from rota.wire.channels import grpc
from tests.contract.bench import batch
from tests.contract.samples import one_of_each
from tests.integration.deadlines import until
from tests.integration.etcd_stage import EAGER, FOREVER, ME, RIVAL, Model, staged
from tests.servers.etcd import EtcdServer, etcd_server, shared_server
from tests.servers.ports import free_port

pytestmark = pytest.mark.full

PASSWORD = "correct horse"


def refusal(url: str, **options: Any) -> Refused | Unavailable:
    """Why a store at that place cannot be elected."""

    async def run() -> Refused | Unavailable:
        store = EtcdStore(url, open_blobs("memory:"), term_ms=1_000, **options)
        try:
            with pytest.raises((Refused, Unavailable)) as raised:
                await store.elect(ME)
            return raised.value
        finally:
            await store.close()

    return asyncio.run(run())


def works(url: str, **options: Any) -> None:
    """A store at that place can be used."""

    async def run() -> None:
        store = EtcdStore(url, open_blobs("memory:"), **options)
        epoch = await store.elect(ME)
        assert epoch is not None
        await store.commit(epoch, batch(one_of_each()))
        assert len([record async for record in store.load(epoch)]) == len(one_of_each())
        assert await store.holds(epoch)
        assert await store.tidy(epoch, 0, FOREVER) == 0
        await store.close()

    asyncio.run(run())


# Addresses.


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:2379",
        "etcd:127.0.0.1",
        "etcd://",
        "etcd://host:port/x",
        "etcd://host:2379,/x",
        "etcd://:secret@host/x",
        "etcd://user:secret@ho st/x",
        "etcd://host/a?b=c",
    ],
)
def test_an_address_that_cannot_be_meant_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(Refused) as refused:
        EtcdStore(url, open_blobs("memory:"))
    assert refused.value.code == "config.value"
    assert "secret" not in str(refused.value)


def test_an_address_may_have_several_hosts_a_user_and_a_prefix_or_none_of_these() -> None:
    full = read_url("etcd://u%40x:p%2Fw@a:1,[::1]:2,c/team/rota/")
    assert full.hosts == ("a:1", "[::1]:2", "c:2379")
    assert (full.user, full.password.reveal(), full.prefix) == ("u@x", "p/w", "team/rota")
    assert full.shown == "etcd://a:1,[::1]:2,c:2379/team/rota"
    assert "p/w" not in repr(full)
    bare = read_url("etcds://host")
    assert (bare.hosts, bare.prefix, bare.user) == (("host:2379",), "rota", "")
    assert bare.tls is not None


def test_certificates_without_tls_are_refused() -> None:
    with pytest.raises(Refused, match=r"tls\.files"):
        EtcdStore("etcd://host", open_blobs("memory:"), tls=ClientTls())


# What answers is not what was meant.


def test_nobody_answers() -> None:
    said = refusal(f"etcd://127.0.0.1:{free_port()}")
    assert (type(said), said.code) == (Unavailable, "store.unavailable")
    assert "refused" in said.reason


@contextmanager
def web_server() -> Iterator[int]:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_what_answers_is_not_etcd() -> None:
    with web_server() as port:
        said = refusal(f"etcd://127.0.0.1:{port}")
    assert said.code in ("store.foreign", "store.unavailable")
    assert str(port) in said.reason


def test_a_server_of_grpc_that_is_not_etcd_is_named_as_such() -> None:
    async def run() -> None:
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        store = EtcdStore(f"etcd://127.0.0.1:{port}", open_blobs("memory:"))
        with pytest.raises(Refused) as refused:
            await store.elect(ME)
        assert refused.value.code == "store.foreign"
        assert "not etcd" in refused.value.reason
        await store.close()
        await server.stop(None)

    asyncio.run(run())


def test_a_prefix_that_holds_something_else_is_left_alone() -> None:
    server = shared_server()
    for key in ("config/setting", "state/format"):
        url = server.url()
        prefix = url.rpartition("/")[2]
        server.control("put", f"{prefix}/{key}", "mine")
        said = refusal(url)
        assert said.code == "store.foreign"
        assert server.control("get", "--prefix", f"{prefix}/").split() == [f"{prefix}/{key}", "mine"]


def test_a_prefix_that_begins_like_another_is_another() -> None:
    url = shared_server().url()
    for prefix in ("a", "a0", "a-beside", "b/a"):
        works(f"{url}-{prefix}")


def test_what_a_newer_version_has_written_is_refused_also_when_it_comes_later() -> None:
    async def run() -> None:
        server = shared_server()
        async with staged() as stage:
            store, epoch = await stage.reign()
            await store.release(epoch)
            server.control("put", f"{stage.url.rpartition('/')[2]}/state/format", f"rota-etcd {FORMAT + 1}")
            for each in (store, stage.open()):
                with pytest.raises(Refused) as refused:
                    await each.elect(ME)
                assert refused.value.code == "store.newer"

    asyncio.run(run())


# Users and passwords.


@contextmanager
def guarded() -> Iterator[EtcdServer]:
    """A server that asks who calls: `root` may do everything, `rota` what a store needs, `guest` nothing."""
    with etcd_server() as server:
        for user in ("root", "rota", "guest"):
            server.control("user", "add", f"{user}:{PASSWORD}")
        server.control("role", "add", "store")
        server.control("role", "grant-permission", "--prefix=true", "store", "readwrite", "mine/")
        server.control("user", "grant-role", "rota", "store")
        server.control("role", "add", "root")
        server.control("user", "grant-role", "root", "root")
        server.control("auth", "enable")
        yield server


def _answered(said: Refused | Unavailable) -> Refused | Unavailable | None:
    return said if said.code != "store.unavailable" else None


def test_users_passwords_and_permissions() -> None:
    with guarded() as server:
        quoted = PASSWORD.replace(" ", "%20")
        works(server.url("mine", f"rota:{quoted}@"))
        for who, hint in (
            ("", "user:password@"),
            ("rota:wrong%20battery@", "Correct the address"),
            ("nobody:wrong%20battery@", "Correct the address"),
            (f"guest:{quoted}@", "grant-permission"),
        ):
            # Checking a password may take a busy machine longer than it is waited for.
            said = until(lambda who=who: _answered(refusal(server.url("mine", who))), "the store to answer")
            assert said.code == "store.denied", who
            assert hint in str(said), who
            assert "battery" not in str(said)
            assert "horse" not in str(said)

        async def run() -> None:
            store = EtcdStore(server.url("mine", f"rota:{quoted}@"), open_blobs("memory:"))
            assert await store.leader() is None
            # A token that has run out is replaced.
            store.client._token = "expired.1"
            assert await store.leader() is None
            await store.close()

        asyncio.run(run())


def test_a_user_where_nobody_is_asked_for_one_is_refused() -> None:
    said = refusal(shared_server().url(who="rota:secret@"))
    assert said.code == "store.denied"
    assert "secret" not in str(said)


# Certificates.


@contextmanager
def secured(folder: Path, name: str) -> Iterator[tuple[EtcdServer, bytes]]:
    """A server with a certificate for a name, and the authority that made it."""
    authority = trustme.CA()
    cert = authority.issue_cert(name)
    cert.private_key_pem.write_to_path(folder / "key.pem")
    cert.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    options = ("--cert-file", str(folder / "cert.pem"), "--key-file", str(folder / "key.pem"))
    with etcd_server(*options, scheme="https") as server:
        yield server, authority.cert_pem.bytes()


def test_a_certificate_is_checked(tmp_path: Path) -> None:
    with secured(tmp_path, "127.0.0.1") as (server, authority):
        works(server.url(scheme="etcds"), tls=ClientTls(authority))
        said = refusal(server.url(scheme="etcds"), tls=ClientTls(trustme.CA().cert_pem.bytes()))
        assert said.code == "tls.handshake"
        said = refusal(server.url())
        assert said.code in ("store.unavailable", "tls.handshake")


def test_a_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    with secured(tmp_path, "other.example") as (server, authority):
        said = refusal(server.url(scheme="etcds"), tls=ClientTls(authority))
        assert (type(said), said.code) == (Refused, "tls.handshake")
        assert "another name" in said.reason


def test_a_client_shows_its_certificate(tmp_path: Path) -> None:
    clients = trustme.CA()
    clients.cert_pem.write_to_path(tmp_path / "clients.pem")
    mine = clients.issue_cert("rota.example")
    with secured_for(tmp_path, clients) as (server, authority):
        key, cert = Secret(mine.private_key_pem.bytes().decode()), mine.cert_chain_pems[0].bytes()
        works(server.url(scheme="etcds"), tls=ClientTls(authority, cert, key))
        assert refusal(server.url(scheme="etcds"), tls=ClientTls(authority)).code == "store.unavailable"


@contextmanager
def secured_for(folder: Path, clients: trustme.CA) -> Iterator[tuple[EtcdServer, bytes]]:
    authority = trustme.CA()
    cert = authority.issue_cert("127.0.0.1")
    cert.private_key_pem.write_to_path(folder / "key.pem")
    cert.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    options = ["--cert-file", str(folder / "cert.pem"), "--key-file", str(folder / "key.pem")]
    options += ["--client-cert-auth", "--trusted-ca-file", str(folder / "clients.pem")]
    with etcd_server(*options, scheme="https") as server:
        yield server, authority.cert_pem.bytes()


# Keys and blobs that do not belong together.


def delete_keys(url: str) -> None:
    shared_server().control("del", "--prefix", f"{url.rpartition('/')[2]}/")


def test_keys_that_were_deleted_are_missed_and_nothing_begins_anew() -> None:
    async def run() -> None:
        async with staged() as stage:
            store, epoch = await stage.reign()
            await store.commit(epoch, batch(one_of_each()))
            rival = stage.open()
            await rival.identity()
            delete_keys(stage.url)
            asked: list[Callable[[], Awaitable[Any]]] = [
                lambda: store.commit(epoch, batch(one_of_each())),
                lambda: store.tidy(epoch, 0, FOREVER),
                lambda: listed(store, epoch),
                store.kept,
                lambda: rival.elect(RIVAL),
                lambda: stage.open().elect(RIVAL),
            ]
            for ask in asked:
                with pytest.raises(Refused) as refused:
                    await ask()
                assert refused.value.code == "store.missing"
            assert not await store.holds(epoch)
            prefix = stage.url.rpartition("/")[2]
            assert shared_server().control("get", "--prefix", f"{prefix}/") == "", "and nothing is put"

    asyncio.run(run())


async def listed(store: EtcdStore, epoch: int) -> list[object]:
    return [record async for record in store.load(epoch)]


def test_another_store_in_place_of_the_one_that_was_there_is_refused() -> None:
    async def run() -> None:
        async with staged() as stage:
            store, epoch = await stage.reign()
            await store.release(epoch)
            delete_keys(stage.url)
            other = EtcdStore(stage.url, open_blobs("memory:"))
            assert await other.identity() != await store.identity()
            with pytest.raises(Refused, match=r"store\.missing"):
                await store.elect(ME)
            await other.close()

    asyncio.run(run())


def test_an_epoch_that_fell_is_refused_by_whoever_has_seen_a_newer_one() -> None:
    async def run() -> None:
        async with staged(bounds=EAGER) as stage:
            store, epoch = await stage.reign()
            await store.commit(epoch, batch(one_of_each()))
            while await store.tidy(epoch, 0, FOREVER):
                pass
            await store.release(epoch)
            shared_server().control("put", f"{stage.url.rpartition('/')[2]}/state/epoch", "0")
            # One knows it from before, the other by the names of the blobs.
            for each in (store, stage.open()):
                with pytest.raises(Refused, match=r"store\.missing"):
                    await each.elect(ME)
            with pytest.raises(Fenced):
                await store.commit(epoch, batch())

    asyncio.run(run())


def test_blobs_of_another_store_are_refused() -> None:
    async def run() -> None:
        async with staged(bounds=EAGER) as stage, staged() as other:
            store, epoch = await stage.reign()
            await store.commit(epoch, batch(one_of_each()))
            while await store.tidy(epoch, 0, FOREVER):
                pass
            await other.reign()
            for blobs in (other.blobs, open_blobs("memory:")):
                with pytest.raises(Refused) as refused:
                    await stage.open(blobs).elect(ME)
                assert refused.value.code == "blobs.elsewhere"
            # An empty etcd beside blobs that were somebody's.
            lost = EtcdStore(shared_server().url(), stage.blobs)
            with pytest.raises(Refused) as refused:
                await lost.elect(ME)
            assert refused.value.code == "store.missing"
            await lost.close()
            assert (await stage.blobs.read(MARK, 0, 100)).decode() == await store.identity()

    asyncio.run(run())


def test_an_election_that_comes_while_another_looks_is_not_taken_for_a_backup() -> None:
    async def run() -> None:
        async with staged(bounds=EAGER) as stage:
            store, epoch = await stage.reign()
            rival = stage.open(Meanwhile(stage.blobs, store, epoch))  # pyright: ignore[reportArgumentType] - passes on
            assert await rival.identity() == await store.identity()

    asyncio.run(run())


def test_who_comes_while_another_makes_the_store_is_not_taken_for_one_that_begins_anew() -> None:
    class Slow(Meanwhile):
        async def read(self, name: str, offset: int, size: int) -> Any:
            assert await self._store.identity()
            return await self._blobs.read(name, offset, size)

        async def list(self, prefix: str) -> Any:
            return await self._blobs.list(prefix)

    async def run() -> None:
        async with staged() as stage:
            first = stage.open()
            second = stage.open(Slow(stage.blobs, first, 0))  # pyright: ignore[reportArgumentType] - passes on
            assert await second.identity() == await first.identity()

    asyncio.run(run())


class Meanwhile:
    """Blobs that list snapshots only after another election and checkpoint."""

    def __init__(self, blobs: Any, store: EtcdStore, epoch: int) -> None:
        self._blobs = blobs
        self._store = store
        self._epoch = epoch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    async def list(self, prefix: str) -> Any:
        if prefix == SNAPSHOTS:
            await self._store.release(self._epoch)
            epoch = await self._store.elect(RIVAL)
            assert epoch is not None
            await self._store.commit(epoch, batch(one_of_each()))
            while await self._store.tidy(epoch, 0, FOREVER):
                pass
        return await self._blobs.list(prefix)


# Space.


def test_an_etcd_that_is_full_says_so_keeps_the_lock_and_goes_on_when_there_is_space() -> None:
    async def run() -> None:
        with etcd_server("--quota-backend-bytes", str(16 << 20)) as server:
            async with staged(server) as stage:
                store, epoch = await stage.reign()
                model = Model()
                with pytest.raises(Unavailable) as full:
                    for number in range(1_000):
                        written = batch([Receipt("t", f"c{number}", 0, os.urandom(250_000).hex(), number)])
                        await store.commit(epoch, written)
                        await model.commit(written)
                assert full.value.code == "store.full"
                assert "alarm disarm" in full.value.reason
                assert await store.holds(epoch), "the lease is kept on a full disk"
                await model.expect(store, epoch)
                server.member.options[1] = str(64 << 20)
                await asyncio.to_thread(server.restart)
                server.control("alarm", "disarm")
                written = batch(drops=[("Receipt", "t", f"c{number}") for number in range(0, 1_000, 2)])
                await store.commit(epoch, written)
                await model.commit(written)
                await model.expect(store, epoch)

    asyncio.run(run())


def test_an_etcd_that_takes_only_small_requests_is_refused_with_what_to_do() -> None:
    async def run() -> None:
        with etcd_server("--max-request-bytes", str(100_000)) as server:
            async with staged(server) as stage:
                store, epoch = await stage.reign()
                await store.commit(epoch, batch(one_of_each()))
                with pytest.raises(Exception, match="max-request-bytes"):
                    await store.commit(epoch, batch([Task("t", "r", 0, result=os.urandom(200_000))]))
                await store.commit(epoch, batch(one_of_each(40_000)))

    asyncio.run(run())
