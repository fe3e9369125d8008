"""What a fleet keeps its records in: a real PostgreSQL or etcd of its own, reached directly or through a proxy."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from tests.rig.fleet import Settings
from tests.servers.etcd import EtcdMember, etcd_cluster, etcd_server
from tests.servers.postgres import PostgresServer, postgres_server
from tests.servers.proxy import Proxy

POSTGRES, ETCD = "postgres", "etcd"


class Part(Protocol):
    """A server, or a member of a cluster of them."""

    def restart(self) -> None:
        """Stop it, and start it again with the same data."""
        ...

    def pause(self) -> None:
        """Every process of it stands still."""
        ...

    def resume(self) -> None:
        """They go on."""
        ...


class Backing:
    """Servers with an empty store on them, and what may be done to all of them."""

    def __init__(self, name: str, url: str, folder: Path, parts: Sequence[Part]) -> None:
        self.name = name
        self.url = url
        self.blobs = folder / "blobs"
        self._parts = parts

    @property
    def target(self) -> str:
        """Where it is: `host:port`."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    def settings(self, proxy: Proxy | None = None) -> Settings:
        """What a server of the fleet needs to know; with a proxy it comes that way."""
        url = self.url if proxy is None else self.url.replace(self.target, proxy.address)
        return {"server.store": url, "server.blobs": str(self.blobs)}

    def restart(self) -> None:
        """Restart one after the other, as an upgrade does."""
        for part in self._parts:
            part.restart()

    def pause(self) -> None:
        """Everything stands still."""
        for part in self._parts:
            part.pause()

    def resume(self) -> None:
        """It goes on."""
        for part in self._parts:
            part.resume()


class PostgresBacking(Backing):
    """PostgreSQL, where there is room for other databases too."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        super().__init__(POSTGRES, server.new_database(), folder, [server])
        self.server = server


class EtcdMembers(Backing):
    """Three members of etcd: any one of them may be away."""

    def __init__(self, url: str, folder: Path, members: Sequence[EtcdMember]) -> None:
        super().__init__(ETCD, url, folder, members)
        self.members = members


@contextmanager
def open_postgres(folder: Path) -> Iterator[PostgresBacking]:
    """A PostgreSQL; nothing of it is left afterwards."""
    with postgres_server() as server:
        yield PostgresBacking(server, folder)


@contextmanager
def open_etcd(folder: Path) -> Iterator[Backing]:
    """An etcd of one member; nothing of it is left afterwards."""
    with etcd_server() as server:
        yield Backing(ETCD, server.url(), folder, server.members)


@contextmanager
def open_members(folder: Path) -> Iterator[EtcdMembers]:
    """An etcd of three members; nothing of it is left afterwards."""
    with etcd_cluster(3) as cluster:
        yield EtcdMembers(cluster.url(), folder, cluster.members)


OPENERS = {POSTGRES: open_postgres, ETCD: open_etcd}
