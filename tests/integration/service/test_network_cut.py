"""The network between a worker and its coordinator is cut: for less than a lease, and for more."""

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from time import time_ns

import pytest

import rota
from rota.client.threads import LoopThread
from tests.integration.deadlines import is_running, until
from tests.integration.far import proxy
from tests.integration.service import tasks
from tests.integration.service.stage import open_stage, until_present, until_task, worker_named

pytestmark = pytest.mark.full

# Between the end of a worker's patience with a stream (half a lease) and its self-stop (0.8 of it) lie two seconds.
LEASE_S = 6


class Cable:
    """Between a worker and its coordinator. What is sent while it is cut arrives when it is mended, or never."""

    def __init__(self, port: int) -> None:
        self._thread = LoopThread()
        self._parts = AsyncExitStack()
        self.port, self._flows = self._thread.call(self._parts.enter_async_context(proxy(port)))

    def cut(self) -> None:
        self._thread.call(self._set(flows=False))

    def mend(self) -> None:
        self._thread.call(self._set(flows=True))

    async def _set(self, *, flows: bool) -> None:
        if flows:
            self._flows.set()
        else:
            self._flows.clear()

    def close(self) -> None:
        self._thread.call(self._parts.aclose())
        self._thread.stop()


@contextmanager
def cable_to(port: int) -> Iterator[Cable]:
    """A way to a port that can be cut."""
    cable = Cable(port)
    try:
        yield cable
    finally:
        cable.close()


def silent_for(client: rota.Rota, name: str) -> int:
    """For how many milliseconds the coordinator has not heard of a worker."""
    worker = worker_named(client, name)
    assert worker is not None
    return time_ns() // 1_000_000 - worker.seen_at


def test_work_goes_on_and_counts_when_the_network_was_cut_for_less_than_a_lease(tmp_path: Path):
    with open_stage(tmp_path, lease_s=LEASE_S) as stage:
        stage.start_server()
        with cable_to(stage.grpc_port) as cable:
            stage.start_worker("far", port=cable.port)
            client = stage.client()
            until_present(client, "far")
            client.submit(tasks.held, {"folder": str(tmp_path)}, run="one")
            until(lambda: tasks.lines(tmp_path, tasks.BEGAN), "the task to begin")
            running = until_task(client, "one", "held", "running")
            stage.start_worker("near")
            until_present(client, "near")
            cable.cut()
            # Two beats are missing: the coordinator could notice.
            until(lambda: silent_for(client, "far") > stage.lease_ms // 3, "the worker to be silent")
            (tmp_path / "go").touch()
            until(lambda: tasks.lines(tmp_path, tasks.DONE), "the task to be done while the network is cut")
            assert client.run("one").tasks() == [running]
            cable.mend()
            assert client.run("one").result(timeout_s=30) == running.fence
            assert len(tasks.lines(tmp_path, tasks.BEGAN)) == 1
            assert not [line for line in client.run("one").story() if "LeaseReturned" in line]


def test_a_worker_that_is_cut_off_for_longer_stops_its_work_before_another_begins_it(tmp_path: Path):
    with open_stage(tmp_path, lease_s=LEASE_S // 2) as stage:
        stage.start_server()
        with cable_to(stage.grpc_port) as cable:
            far = stage.start_worker("far", port=cable.port)
            client = stage.client()
            until_present(client, "far")
            client.submit(tasks.ticking, {"folder": str(tmp_path)}, run="one")
            until(lambda: tasks.lines(tmp_path, tasks.BEGAN), "the task to begin")
            first = until_task(client, "one", "ticking", "running")
            stage.start_worker("near")
            until_present(client, "near")
            cable.cut()
            until(lambda: len(tasks.lines(tmp_path, tasks.BEGAN)) == 2, "the task to begin again")
            second = until_task(client, "one", "ticking", "running")
            before, again = tasks.lines(tmp_path, tasks.BEGAN)
            assert not is_running(before.pid)
            assert (first.worker, second.worker, second.interruptions) == ("far", "near", 1)
            cable.mend()
            until_present(client, "far")
            known = worker_named(client, "far")
            assert known is not None
            assert known.leases == 0
            assert again.pid not in far.descendants()
            (tmp_path / "go").touch()
            assert client.run("one").result(timeout_s=30) == second.fence
            fences = [line.fence for line in tasks.lines(tmp_path)]
            assert fences == sorted(fences), "nothing of the first attempt comes after the beginning of the second"
            assert tasks.lines(tmp_path, tasks.TICK)[0].fence == first.fence
