"""A fleet of real processes: so many `rota server`s and `rota worker`s, and everything that may be done to them.

Which store they share, and through which proxies, is said by settings: each server is asked for its own by its number.
What each says on stderr is kept in a file of its name. Whatever was started is gone at the end.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import rota
from tests.integration.deadlines import PATIENCE_S, until
from tests.integration.service.stage import Process
from tests.rig.journal import Disturbance, steady_ns
from tests.rig.skewed import set_day
from tests.servers.ports import free_ports

ROOT = Path(__file__).parents[2]
# A server that stands still takes connections and says nothing.
PROBE_S = 1.0
# What no process should ever say.
_TROUBLE = ("Traceback", '"coordinator.failed"', '"request.failed"', "stopped by an error of its own")

# What keeps a server from leading.
_KILLS = tuple(f"{verb} server-" for verb in ("kill", "freeze", "terminate", "cut", "hang"))

Settings = Mapping[str, Any]


def no_settings(number: int) -> Settings:
    """Only what every process has."""
    return {}


def as_toml(settings: Settings, definitions: str = "") -> str:
    """Settings by their paths (`server.store`) as a file of settings, with definitions as they are after them."""
    tables: dict[str, list[str]] = {}
    for path, value in settings.items():
        table, _, name = path.partition(".")
        tables.setdefault(table, []).append(f"{name} = {json.dumps(value)}")
    return "\n".join(f"[{table}]\n" + "\n".join(lines) + "\n" for table, lines in tables.items()) + definitions


class Member:
    """One process of the fleet. It may die and be started again, in the same folder and on the same ports."""

    def __init__(self, fleet: "Fleet", name: str, words: Sequence[str]) -> None:
        self.name = name
        self.folder = fleet.folder / name
        self._fleet = fleet
        self._words = words
        self.process: Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has been started and has not ended; one that stands still is running."""
        return self.process is not None and self.process.popen.poll() is None

    @property
    def pid(self) -> int:
        """Of the process that is, or was last."""
        return self._last.pid

    @property
    def _last(self) -> Process:
        assert self.process is not None, f"{self.name} was never started"
        return self.process

    def start(self, *, wait: bool = True) -> "Member":
        """Start it, or start it again; `wait`: until it says that it is ready."""
        assert not self.is_running, f"{self.name} is running"
        fleet = self._fleet
        self.process = Process(self.name, self.folder, self._command(), fleet.env, fleet.folder)
        if wait:
            self.process.until_ready()
        return self

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "rota", *self._words]

    def kill(self) -> None:
        """As `kill -9`; it does nothing any more when this returns."""
        self._disturb("kill")
        self._last.kill()

    def freeze(self) -> None:
        """As SIGSTOP: it stands still when this returns, until `thaw`."""
        self._disturb("freeze")
        self._last.freeze()

    def thaw(self) -> None:
        """As SIGCONT."""
        self._disturb("thaw")
        self._last.thaw()

    def terminate(self) -> None:
        """As SIGTERM: ask it to end in order. `ended` waits for that."""
        self._disturb("terminate")
        self._last.signal(signal.SIGTERM)

    def ended(self, patience_s: float = PATIENCE_S) -> int:
        """Its exit code, once it has ended."""
        return self._last.ended(patience_s)

    def said(self) -> str:
        """What it has said since it was started last."""
        return self._last.said()

    def until_said(self, text: str, patience_s: float = PATIENCE_S) -> str:
        """The first line with this in it."""
        return self._last.until_said(text, patience_s)

    def remove(self) -> None:
        """Nothing is left of it."""
        if self.process is not None:
            self.process.remove()

    def _disturb(self, what: str) -> None:
        self._fleet.disturb(f"{what} {self.name}")


class Server(Member):
    """A `rota server`."""

    def __init__(self, fleet: "Fleet", number: int, settings: Settings) -> None:
        self.number = number
        name = f"server-{number}"
        self.grpc_port, self.http_port = free_ports(2)
        given = {
            "server.data": str(fleet.folder / name),
            "server.listen": f"127.0.0.1:{self.grpc_port}",
            "server.http": f"127.0.0.1:{self.http_port}",
            "server.heartbeat_timeout_s": fleet.lease_s,
            **settings,
        }
        self._clock = fleet.folder / f"{name}.clock"
        set_day(self._clock, 0)
        file = fleet.folder / f"{name}.toml"
        file.write_text(as_toml(given, fleet.definitions), encoding="utf-8")
        super().__init__(fleet, name, ["server", f"--config={file}"])

    @property
    def url(self) -> str:
        """Where it is reached with gRPC."""
        return f"grpc://127.0.0.1:{self.grpc_port}"

    @property
    def http_url(self) -> str:
        """Where it is reached with HTTP."""
        return f"http://127.0.0.1:{self.http_port}"

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "tests.rig.skewed", str(self._clock), *self._words]

    def set_clock(self, ms: int) -> None:
        """Set its day: from now on it is wrong by so much. It stays so when it is started again."""
        self._disturb(f"set the clock by {ms} ms of")
        set_day(self._clock, ms)

    def get(self, path: str, timeout_s: float = PROBE_S) -> tuple[int, str] | None:
        """What HTTP answers, a status and a text; None if nobody does in time."""
        # Not a client of ours: this is asked every few milliseconds, and what it takes is part of what is measured.
        connection = HTTPConnection("127.0.0.1", self.http_port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()

    @property
    def leads(self) -> bool:
        """Whether it says that it leads."""
        return self._is_well("/leaderz")

    @property
    def is_ready(self) -> bool:
        """Whether it says that it is of use."""
        return self._is_well("/readyz")

    @property
    def follows(self) -> bool:
        """Whether it says that it is of use, and that another one leads."""
        answer = self.get("/readyz")
        return answer is not None and answer[0] == 200 and json.loads(answer[1])["role"] == "follower"

    def _is_well(self, path: str) -> bool:
        if not self.is_running:
            return False
        answer = self.get(path)
        return answer is not None and answer[0] == 200

    def metric(self, name: str) -> float | None:
        """A metric without labels; None if it is not shown."""
        answer = self.get("/metrics")
        lines = answer[1].splitlines() if answer is not None else []
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), None)


class Worker(Member):
    """A `rota worker`."""

    def __init__(self, fleet: "Fleet", number: int, coordinator: str, slots: int, settings: Settings) -> None:
        self.number = number
        name = f"worker-{number}"
        given = {
            "client.coordinator": coordinator,
            "worker.data": str(fleet.folder / name),
            "worker.name": name,
            "worker.slots": slots,
            **settings,
        }
        file = fleet.folder / f"{name}.toml"
        file.write_text(as_toml(given), encoding="utf-8")
        super().__init__(fleet, name, ["worker", f"--config={file}"])


class Fleet:
    """Servers, workers, and what was done to them. Use `open_fleet`."""

    def __init__(
        self, folder: Path, *, lease_s: int = 6, definitions: str = "", env: Mapping[str, str] | None = None
    ) -> None:
        """`definitions` are tables of pools, queues and tenants for each server's file; `env` is for every process."""
        self.folder = folder
        self.lease_s = lease_s
        self.definitions = definitions
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
        self.env = {**clean, "PYTHONPATH": str(ROOT), **(env or {})}
        self.servers: list[Server] = []
        self.workers: list[Worker] = []
        self.disturbances: list[Disturbance] = []

    # Who there is.

    @property
    def members(self) -> list[Member]:
        """Everybody."""
        return [*self.servers, *self.workers]

    @property
    def url(self) -> str:
        """Where clients and workers reach the fleet, whoever leads."""
        return ",".join(server.url for server in self.servers)

    def add_server(self, settings: Settings | None = None) -> Server:
        """One more, not started yet."""
        server = Server(self, len(self.servers) + 1, settings or {})
        self.servers.append(server)
        return server

    def add_worker(self, settings: Settings | None = None, *, slots: int = 4, coordinator: str = "") -> Worker:
        """One more, not started yet; `coordinator` leads it elsewhere, such as through a proxy."""
        worker = Worker(self, len(self.workers) + 1, coordinator or self.url, slots, settings or {})
        self.workers.append(worker)
        return worker

    def connect(self, **options: Any) -> rota.Rota:
        """A client, once somebody answers it."""

        def dial() -> rota.Rota | None:
            with suppress(rota.Unavailable):
                return rota.connect(self.url, **options)
            return None

        found = until(dial, "anybody to answer a client")
        assert found is not None
        return found

    # Who leads.

    def leaders(self) -> list[Server]:
        """Who says that it leads. For a moment that may be two; what they write is another question."""
        return [server for server in self.servers if server.leads]

    def until_leader(self, *, other_than: Server | None = None, patience_s: float = PATIENCE_S) -> Server:
        """Who leads, as soon as somebody does."""

        def look() -> Server | None:
            return next((server for server in self.servers if server is not other_than and server.leads), None)

        found = until(look, f"a server to lead{f' besides {other_than.name}' if other_than else ''}", patience_s)
        assert found is not None
        return found

    def until_ready(self, patience_s: float = PATIENCE_S) -> None:
        """Until every server that runs is of use, leading or following."""
        running = [server for server in self.servers if server.is_running]
        until(lambda: all(server.is_ready for server in running), "every server to be ready", patience_s)

    def restart_dead(self, *, wait: bool = True) -> list[Member]:
        """Start whoever has ended; who that was."""
        dead = [member for member in self.members if not member.is_running]
        for member in dead:
            self.disturbances.append(Disturbance(steady_ns(), f"restart {member.name}"))
            member.start(wait=wait)
        return dead

    # What happened.

    def disturb(self, what: str) -> None:
        """Write down what is being done to the fleet."""
        self.disturbances.append(Disturbance(steady_ns(), what))

    def kills(self) -> list[Disturbance]:
        """What was done to servers so that they could lead no more; of proxies, what was told with `disturb`."""
        return [each for each in self.disturbances if each.what.startswith(_KILLS)]

    def said(self) -> dict[str, str]:
        """What everybody has said on stderr, in all their lives."""
        return {path.stem: path.read_text(errors="replace") for path in sorted(self.folder.glob("*.stderr"))}

    def troubles(self) -> list[str]:
        """Lines of which there should be none."""
        return [
            f"{name}: {line}"
            for name, text in self.said().items()
            for line in text.splitlines()
            if any(word in line for word in _TROUBLE)
        ]

    def close(self) -> None:
        """Leave nothing behind; workers first, so that they do not wait for anybody."""
        troubles: list[Exception] = []
        for member in (*self.workers, *self.servers):
            try:
                member.remove()
            except Exception as trouble:
                troubles.append(trouble)
        if troubles:
            raise ExceptionGroup("not everything could be ended", troubles)


@contextmanager
def open_fleet(
    folder: Path,
    *,
    servers: int = 1,
    workers: int = 2,
    slots: int = 4,
    lease_s: int = 6,
    server_settings: Callable[[int], Settings] = no_settings,
    worker_settings: Callable[[int], Settings] = no_settings,
    definitions: str = "",
    env: Mapping[str, str] | None = None,
) -> Iterator[Fleet]:
    """A fleet that is up: everybody is ready and somebody leads. It leaves nothing behind.

    `server_settings(n)` are those of server n, from 1: `{"server.store": url}`, with another address for each where a
    proxy stands before the store.
    """
    fleet = Fleet(folder, lease_s=lease_s, definitions=definitions, env=env)
    try:
        for number in range(1, servers + 1):
            fleet.add_server(server_settings(number))
        for server in fleet.servers:
            server.start(wait=False)
        for server in fleet.servers:
            server.until_said("rota: ready: ")
        fleet.until_leader()
        for number in range(1, workers + 1):
            fleet.add_worker(worker_settings(number), slots=slots)
        for worker in fleet.workers:
            worker.start(wait=False)
        for worker in fleet.workers:
            worker.until_said("rota: ready: ")
        yield fleet
    finally:
        fleet.close()
