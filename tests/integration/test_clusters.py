"""Two coordinators and a worker that belongs to one of them: the other gives it no work, whatever listens where."""

import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

import rota
from rota.app.hosting import Host
from rota.app.laborer import start_laborer
from rota.app.service import Service, start_service
from rota.client.threads import LoopThread
from rota.config import load_config
from rota.core.model import Capacity
from rota.stores.sqlite.care import backup
from rota.wire.frames import CoordinatorFrame, WorkerFrame
from rota.worker.driver import WorkerDriver
from tests.integration.deadlines import until
from tests.integration.test_rpc_worker import speak
from tests.refusals import refused

LEASE_S = 3
TOKEN = "the-token-of-the-worker"


@rota.workflow
def short() -> None:
    rota.command(["true"])


@rota.workflow
def long() -> None:
    rota.command(["sleep", "600"])


class Machine:
    """Services and workers in one process, each of which may be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.thread = LoopThread()
        self.parts: dict[str, AsyncExitStack] = {}

    def serve(self, name: str, listen: str = "127.0.0.1:0", env: dict[str, str] | None = None, **given: str) -> Service:
        """Start a coordinator with a store of its own."""
        there = {
            "server.data": str(self.folder / name),
            "server.listen": listen,
            "server.http": "",
            "server.heartbeat_timeout_s": LEASE_S,
            **{path.replace("__", "."): value for path, value in given.items()},
        }
        config = load_config(there, env or {})
        parts = self.parts[name] = AsyncExitStack()
        return self.thread.call(start_service(parts, config, with_worker=False))

    def work(self, name: str, url: str, env: dict[str, str] | None = None, cluster: str = "") -> WorkerDriver:
        """Start a worker. What it refuses is raised."""
        given = {"worker.data": str(self.folder / name), "worker.slots": 1, "client.coordinator": url}
        if cluster:
            given["worker.cluster"] = cluster
        config = load_config({**given, "server.heartbeat_timeout_s": LEASE_S}, env or {})
        parts = AsyncExitStack()
        try:
            driver = self.thread.call(start_laborer(parts, config))
        except BaseException:
            self.thread.call(parts.aclose())
            raise
        self.parts[name] = parts
        return driver

    def remembered(self, name: str) -> str:
        """The cluster that a worker's folder remembers."""
        file = self.folder / name / "cluster"
        return file.read_text().strip() if file.exists() else ""

    def stop(self, name: str) -> None:
        self.thread.call(self.parts.pop(name).aclose())

    def close(self) -> None:
        for name in list(reversed(self.parts)):
            self.stop(name)
        self.thread.stop()


@contextmanager
def machine_in(folder: Path) -> Iterator[Machine]:
    machine = Machine(folder)
    try:
        yield machine
    finally:
        machine.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with machine_in(tmp_path) as one:
        yield one


def workers_of(service: Service) -> list[str]:
    with rota.connect(service.grpc) as there:
        return [view.id for view in there.workers() if view.present]


def cluster_of(service: Service) -> str:
    host: Host = service.host
    return host.cluster


def test_a_worker_started_again_against_another_cluster_is_refused_until_it_is_moved(
    machine: Machine, capsys: pytest.CaptureFixture[str]
):
    one, two = machine.serve("one"), machine.serve("two")
    assert cluster_of(one) != cluster_of(two)
    machine.work("worker", one.grpc)
    assert machine.remembered("worker") == cluster_of(one)
    until(lambda: workers_of(one), "the worker to join")
    machine.stop("worker")
    left = machine.folder / "worker" / "logs" / "default" / "r" / "t" / "1-1.log"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("first")

    with rota.connect(two.grpc) as there:
        run = there.submit(short, run="r")
        with refused(
            "worker.cluster", cluster_of(one), cluster_of(two), two.grpc, str(machine.folder / "worker" / "cluster")
        ):
            machine.work("worker", two.grpc)
        assert there.workers() == ()
        assert machine.remembered("worker") == cluster_of(one)

        machine.work("worker", two.grpc, cluster=cluster_of(two))
        assert run.wait(30).state == "success"
    assert machine.remembered("worker") == cluster_of(two)
    aside = machine.folder / "worker" / f"logs-of-{cluster_of(one)}-1"
    assert (aside / "default" / "r" / "t" / "1-1.log").read_text() == "first"
    said = [msgspec.json.decode(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    joined = [line["cluster"] for line in said if line["what"] == "worker.joined"]
    assert joined == [cluster_of(one), cluster_of(two)], "each cluster is told once"
    assert [(line["from"], line["to"]) for line in said if line["what"] == "worker.moved"] == [
        (cluster_of(one), cluster_of(two))
    ]


def test_a_worker_that_is_told_its_cluster_joins_no_other_one(machine: Machine):
    one, two = machine.serve("one"), machine.serve("two")
    with refused("worker.cluster", cluster_of(one), cluster_of(two), path="worker.cluster"):
        machine.work("worker", two.grpc, cluster=cluster_of(one))
    assert machine.remembered("worker") == ""
    machine.work("worker", one.grpc, cluster=cluster_of(one))
    until(lambda: workers_of(one), "the worker to join")


def test_a_token_does_not_replace_the_cluster_that_is_remembered(machine: Machine):
    env = {"ROTA_EXECUTOR_TASK_BEARER_TOKEN": TOKEN}
    one, two = machine.serve("one", env=env), machine.serve("two", env=env)
    machine.work("worker", one.grpc, env=env)
    assert machine.remembered("worker") == cluster_of(one)
    machine.stop("worker")
    with refused("worker.cluster", cluster_of(one), cluster_of(two)):
        machine.work("worker", two.grpc, env=env)


@pytest.mark.parametrize("has_token", [True, False])
@pytest.mark.parametrize("named", ["own", "other", "none"])
def test_which_worker_is_let_in_over_grpc(machine: Machine, named: str, has_token: bool):
    """A worker of an older version names no cluster."""
    env = {"ROTA_EXECUTOR_TASK_BEARER_TOKEN": TOKEN} if has_token else {}
    one, two = machine.serve("one", env=env), machine.serve("two")
    cluster = {"own": cluster_of(one), "other": cluster_of(two), "none": ""}[named]
    greeting = WorkerFrame(
        tenant="default", worker="w", incarnation="1", epoch=0, number=0, capacity=Capacity(), cluster=cluster
    )
    (answer,) = machine.thread.call(speak(one.grpc, TOKEN if has_token else "", greeting))
    if named == "own" or (named == "none" and has_token):
        assert isinstance(answer, CoordinatorFrame)
        assert (answer.cluster, answer.code) == (cluster_of(one), "")
    else:
        assert answer.code == "worker.cluster"


def test_when_another_cluster_takes_over_the_port_the_lease_stops_the_work_and_nothing_else_is_taken(
    machine: Machine, capsys: pytest.CaptureFixture[str]
):
    one = machine.serve("one")
    listen = one.grpc.removeprefix("grpc://")
    worker = machine.work("worker", one.grpc)
    with rota.connect(one.grpc) as there:
        there.submit(long, run="long")
        until(lambda: worker.machine.held, "the attempt to begin")
    own = cluster_of(one)
    machine.stop("one")

    two = machine.serve("two", listen)
    with rota.connect(two.grpc) as there:
        run = there.submit(short, run="r")
        until(lambda: "worker.cluster" in worker.machine.refused, "the worker to be refused")
        until(lambda: not worker.machine.held and not worker.machine.dying, "the lease to stop the work")
        assert there.workers() == ()
        assert run.status().state == "running"
        assert not worker.machine.session
    machine.stop("two")

    again = machine.serve("one", listen)
    assert cluster_of(again) == own
    with rota.connect(again.grpc) as there:
        assert there.submit(short, run="r").wait(30).state == "success"
        there.run("long").cancel()
    said = [msgspec.json.decode(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    away = [line for line in said if line["what"] == "coordinator.away" and line["cause"] == "worker.cluster"]
    assert own in away[0]["error"]
    told = [line for line in said if line["what"] == "worker.refused"]
    assert told[0]["named"] == own, "the other coordinator says so too"


def test_a_restored_backup_is_the_same_cluster(machine: Machine, tmp_path: Path):
    own = cluster_of(machine.serve("one"))
    backup(tmp_path / "one", tmp_path / "saved.db")
    machine.stop("one")
    shutil.rmtree(tmp_path / "one")
    (tmp_path / "one").mkdir()
    (tmp_path / "saved.db").rename(tmp_path / "one" / "rota.db")
    assert cluster_of(machine.serve("one")) == own


def test_a_folder_of_an_older_version_keeps_the_identity_in_its_file(machine: Machine, tmp_path: Path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "home").write_text("6b1f2d\n")
    machine.serve("one")
    assert (tmp_path / "one" / "home").read_text() == "6b1f2d\n"
    assert (tmp_path / "one" / "blobs" / ".rota" / "home").read_text() == "6b1f2d"
