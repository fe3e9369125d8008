"""A service of real processes: `rota server`, `rota up` and `rota worker` in folders of their own, on free ports.

What they say on stderr is kept in a file each. Everything that was started is killed at the end, with what it started.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx

import rota
from rota.client.threads import LoopThread
from rota.core.questions import TaskView, WorkerView
from tests.integration.deadlines import PATIENCE_S, descendants, is_running, until

T = TypeVar("T")

READY = "rota: ready: "
# As long as where nobody says otherwise: with less, a busy machine makes a coordinator step down. Whoever waits for a
# lease to end takes `SHORT_LEASE_S`.
LEASE_S = 30
SHORT_LEASE_S = 3
_SAMPLE = re.compile(r"(?m)^(\w+)(?:\{(.*)\})? ([0-9.e+-]+)$")


class Process:
    """One `rota` process, what it says, and what may be done to it."""

    def __init__(
        self, name: str, folder: Path, command: Sequence[str], env: Mapping[str, str], home: Path, **who: Any
    ) -> None:
        """`folder` is where its data is, `home` where it is started and where what it says is kept; `who` runs it."""
        self.name = name
        self.folder = folder
        self._file = home / f"{name}.stderr"
        self._begins_at = self._file.stat().st_size if self._file.exists() else 0
        with self._file.open("ab") as stderr:
            self.popen = subprocess.Popen(
                command,
                cwd=home,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                **who,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def said(self) -> str:
        """What this process has said on stderr, without those of the same name before it."""
        return self._file.read_bytes()[self._begins_at :].decode(errors="replace")

    def until_said(self, text: str, patience_s: float = PATIENCE_S) -> str:
        """The first line with this in it."""

        def look() -> str:
            line = next((line for line in self.said().splitlines() if text in line), "")
            if not line and self.popen.poll() is not None:
                raise AssertionError(f"{self.name} ended with {self.popen.returncode}: {self.said()[-2_000:]}")
            return line

        try:
            return until(look, f"{self.name} to say {text!r}", patience_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; it said {self.said()[-2_000:]!r}") from None

    def until_ready(self) -> str:
        """What it says when it is ready."""
        return self.until_said(READY).removeprefix(READY)

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def freeze(self) -> None:
        """Stop it in its tracks; nothing of it runs until `thaw`. What it started runs on."""
        self.signal(signal.SIGSTOP)
        until(lambda: _state(self.pid) == "T", f"{self.name} to stand still")

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """As `kill -9` does. It can do nothing any more when this returns; what it started may take a moment."""
        self.popen.kill()
        self.popen.wait(PATIENCE_S)

    def ended(self, patience_s: float = PATIENCE_S) -> int:
        """Its exit code, once it has ended by itself."""
        try:
            return self.popen.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end; it said {self.said()[-2_000:]!r}") from None

    def descendants(self) -> list[int]:
        """What it has started, and what that has."""
        return descendants(self.pid)

    def remove(self) -> None:
        """Kill it, with all that it has started."""
        if self.popen.poll() is not None:
            return
        family = self.descendants()
        self.kill()
        try:
            until(lambda: not any(map(is_running, family)), f"what {self.name} had started to end")
        except AssertionError:
            for pid in family:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise


class Stage:
    """A coordinator, its workers and its callers, all in one folder."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None, *, lease_s: int = LEASE_S) -> None:
        """`env` is added to the environment of each process."""
        self.folder = folder
        self.lease_ms = lease_s * 1_000
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
        self.env = {**clean, "ROTA_HEARTBEAT_TIMEOUT_SECS": str(lease_s), **(env or {})}
        # The first server takes whatever port is free, and those after it the same.
        self.grpc_port = 0
        self.http_port = 0
        # With which interpreter processes are run, and as whom: what `Popen` takes.
        self.python = sys.executable
        self.who: dict[str, Any] = {}
        # What the coordinator's own clients present; a test with tokens sets it.
        self.token = ""
        self.processes: list[Process] = []
        self._clients: list[rota.Rota] = []
        self._thread: LoopThread | None = None

    # Processes.

    def start(
        self, name: str, folder: Path, words: Sequence[str], env: Mapping[str, str] | None = None, *, wait: bool = True
    ) -> Process:
        """Any `rota` command that goes on until it is told to stop; `wait`: until it says that it is ready."""
        command = [self.python, "-m", "rota", *words]
        process = Process(name, folder, command, {**self.env, **(env or {})}, self.folder, **self.who)
        self.processes.append(process)
        if wait:
            process.until_ready()
        return process

    def start_server(
        self, *more: str, env: Mapping[str, str] | None = None, folder: Path | None = None, command: str = "server"
    ) -> Process:
        """A coordinator; one that follows another has the same folder and ports."""
        data = folder or self.folder / "server"
        words = [
            command,
            f"--data={data}",
            f"--listen=127.0.0.1:{self.grpc_port}",
            f"--http=127.0.0.1:{self.http_port}",
            *more,
        ]
        process = self.start(command, data, words, env)
        grpc, http = re.findall(r"\w+://127\.0\.0\.1:(\d+)", process.until_ready())
        self.grpc_port, self.http_port = int(grpc), int(http)
        return process

    def start_up(self, *more: str, env: Mapping[str, str] | None = None) -> Process:
        """Everything in one process, as `rota up` does it."""
        return self.start_server(*more, env=env, command="up")

    def start_worker(
        self,
        name: str,
        *more: str,
        slots: int = 2,
        port: int = 0,
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> Process:
        """A worker in a folder of its own; `port` leads it elsewhere than straight to the coordinator."""
        data = folder or self.folder / name
        words = [
            "worker",
            f"--coordinator=grpc://127.0.0.1:{port or self.grpc_port}",
            f"--data={data}",
            f"--slots={slots}",
            *([] if folder else [f"--name={name}"]),
            *more,
        ]
        return self.start(name, data, words, env, wait=wait)

    def run_command(self, *words: str, timeout_s: float = PATIENCE_S) -> "subprocess.CompletedProcess[bytes]":
        """A command that ends by itself, such as `rota logs`, about this coordinator."""
        return subprocess.run(
            [sys.executable, "-m", "rota", *words],
            cwd=self.folder,
            env={**self.env, "ROTA_COORDINATOR": self.url},
            capture_output=True,
            check=False,
            timeout=timeout_s,
        )

    # Callers.

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.grpc_port}"

    def client(self) -> rota.Rota:
        """A client over gRPC, closed at the end. It may be used across restarts of the coordinator."""
        client = rota.connect(self.url, token=self.token)
        self._clients.append(client)
        return client

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in a loop that lives as long as the stage: what gRPC does last may come a moment later."""
        if self._thread is None:
            self._thread = LoopThread()
        return self._thread.call(work)

    def get(self, path: str) -> httpx.Response:
        """What HTTP answers."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return httpx.get(f"http://127.0.0.1:{self.http_port}{path}", headers=headers, timeout=PATIENCE_S)

    def metric(self, name: str) -> dict[str, float]:
        """The samples of a metric by their labels, as they are written."""
        text = self.get("/metrics").text
        return {labels: float(value) for found, labels, value in _SAMPLE.findall(text) if found == name}

    def close(self) -> None:
        """Leave nothing behind."""
        troubles: list[Exception] = []
        for client in self._clients:
            try:
                client.close()
            except Exception as trouble:
                troubles.append(trouble)
        for process in reversed(self.processes):
            try:
                process.remove()
            except Exception as trouble:
                troubles.append(trouble)
        if self._thread is not None:
            self._thread.stop()
        if troubles:
            raise ExceptionGroup("not everything could be ended", troubles)


@contextmanager
def open_stage(folder: Path, env: Mapping[str, str] | None = None, *, lease_s: int = LEASE_S) -> Iterator[Stage]:
    """A stage that leaves nothing behind."""
    stage = Stage(folder, env, lease_s=lease_s)
    try:
        yield stage
    finally:
        stage.close()


def until_task(client: rota.Rota, run: str, task: str, state: str) -> TaskView:
    """A task, once it is in this state."""

    def look() -> TaskView | None:
        (view,) = client.run(run).tasks(task)
        return view if view.state == state else None

    found = until(look, f"{run}/{task} to be {state}")
    assert found is not None
    return found


def worker_named(client: rota.Rota, name: str) -> WorkerView | None:
    """A worker as the coordinator knows it."""
    return next((worker for worker in client.workers() if worker.id == name), None)


def until_present(client: rota.Rota, *names: str) -> None:
    """Until these workers are there."""
    for name in names:

        def look(name: str = name) -> bool:
            worker = worker_named(client, name)
            return worker is not None and worker.present

        until(look, f"worker {name} to be there")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
