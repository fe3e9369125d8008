"""What a fleet keeps its records in: a real PostgreSQL or etcd of its own, reached directly or through a proxy."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.rig.fleet import Settings
from tests.servers.etcd import EtcdCluster, EtcdServer, etcd_cluster, etcd_server
from tests.servers.postgres import PostgresServer, postgres_server
from tests.servers.proxy import Proxy


class Backing(ABC):
    """A server with an empty store on it, and what may be done to it."""

    name: str
    # How long after its holder's death the lock may take to be free, beside the term.
    slack_s: float

    def __init__(self, url: str, blobs: Path) -> None:
        self.url = url
        self.blobs = blobs

    @property
    def target(self) -> str:
        """Where it is: `host:port`."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    def settings(self, proxy: Proxy | None = None) -> Settings:
        """What a server of the fleet needs to know; with a proxy it comes that way."""
        url = self.url if proxy is None else self.url.replace(self.target, proxy.address)
        return {"server.store": url, "server.blobs": str(self.blobs)}

    @abstractmethod
    def restart(self) -> None:
        """Stop it, and start it again with the same data."""

    @abstractmethod
    def pause(self) -> None:
        """Every process of it stands still."""

    @abstractmethod
    def resume(self) -> None:
        """They go on."""


class PostgresBacking(Backing):
    """PostgreSQL."""

    name = "postgres"
    slack_s = 2.0

    def __init__(self, server: PostgresServer, blobs: Path) -> None:
        super().__init__(server.new_database(), blobs)
        self.server = server

    def restart(self) -> None:
        """See `Backing`."""
        self.server.restart()

    def pause(self) -> None:
        """See `Backing`."""
        self.server.pause()

    def resume(self) -> None:
        """See `Backing`."""
        self.server.resume()


class EtcdBacking(Backing):
    """One member of etcd."""

    name = "etcd"
    slack_s = 4.0

    def __init__(self, server: EtcdServer, blobs: Path) -> None:
        super().__init__(server.url(), blobs)
        self.server = server

    def restart(self) -> None:
        """See `Backing`."""
        self.server.restart()

    def pause(self) -> None:
        """See `Backing`."""
        self.server.pause()

    def resume(self) -> None:
        """See `Backing`."""
        self.server.resume()


class EtcdClusterBacking(Backing):
    """Three members of etcd: any one of them may be away."""

    name = "etcd-cluster"
    slack_s = 4.0

    def __init__(self, cluster: EtcdCluster, blobs: Path) -> None:
        super().__init__(cluster.url(), blobs)
        self.members = cluster.members

    def restart(self) -> None:
        """One member after the other, as an upgrade does."""
        for member in self.members:
            member.restart()

    def pause(self) -> None:
        """See `Backing`."""
        for member in self.members:
            member.pause()

    def resume(self) -> None:
        """See `Backing`."""
        for member in self.members:
            member.resume()


@contextmanager
def open_backing(name: str, folder: Path) -> Iterator[Backing]:
    """A server of that name; nothing of it is left afterwards."""
    if name == PostgresBacking.name:
        with postgres_server() as postgres:
            yield PostgresBacking(postgres, folder / "blobs")
    elif name == EtcdClusterBacking.name:
        with etcd_cluster(3) as cluster:
            yield EtcdClusterBacking(cluster, folder / "blobs")
    else:
        with etcd_server() as etcd:
            yield EtcdBacking(etcd, folder / "blobs")
