"""A stream on a real service: its task on one worker, its rounds on all of them; and whoever of them is killed."""

import os
import random
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from rota.client.blocking import BlockingRun
from rota.kinds.query.streams.manifests import Manifest
from tests.integration.deadlines import PATIENCE_S, until
from tests.integration.queries import stream_program as program
from tests.integration.queries.test_streams_that_are_killed import check, newest
from tests.integration.service.stage import Process, Stage, open_stage

pytestmark = pytest.mark.full

WORKERS = ("one", "two")


class Service:
    """A coordinator and two workers that are started again when they are killed."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._server = stage.start_server()
        self._workers: dict[str, Process] = {name: stage.start_worker(name, slots=2) for name in WORKERS}
        self._frozen: list[int] = []

    def kill(self, *names: str) -> None:
        """Kill processes of these names at once, and start others in their place."""
        for name in names:
            (self._server if name == "server" else self._workers[name]).kill()
        if "server" in names:
            self._server = self._stage.start_server()
        for name in names:
            if name != "server":
                self._workers[name] = self._stage.start_worker(name, slots=2)

    def freeze(self, name: str) -> None:
        """Stop a worker in its tracks, and all that it has started: none of them will know that a lease has ended."""
        worker = self._workers[name]
        worker.freeze()
        self._frozen = [worker.pid, *worker.descendants()]
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on, as rivals of whoever has taken over."""
        self._send(signal.SIGCONT)
        self._frozen = []

    def _send(self, number: int) -> None:
        for pid in self._frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def driver(stream: BlockingRun) -> str:
    """The worker that has the stream's task; "" if none has. One that was interrupted too often is sent on."""
    (task,) = stream.tasks()
    if task.state == "needs_attention":
        stream.resolve(task.id)
    return task.worker if task.state == "running" else ""


@pytest.mark.parametrize(
    ("kills", "rows_max"),
    [pytest.param(4, 120, id="some"), pytest.param(24, 25, id="many", marks=pytest.mark.long)],
)
def test_nothing_is_lost_or_seen_twice_whichever_service_is_killed(tmp_path: Path, kills: int, rows_max: int) -> None:
    (tmp_path / "in").mkdir()
    rows = program.make_rows(tmp_path / "in")
    chance, pause = random.Random(kills), threading.Event()
    with open_stage(tmp_path, {"PYTHONPATH": str(Path(__file__).parents[3])}) as stage:
        service, client = Service(stage), stage.client()
        given = {"folder": str(tmp_path), "url": stage.url, "rows_max": rows_max}
        stream = client.submit(program.driven, given, run="clicks")
        killed = 0
        incarnations: dict[int, None] = {}
        is_rival = False
        while killed < kills:
            before = newest(tmp_path)

            def has_come_further(before: Manifest = before, is_rival: bool = is_rival) -> bool:
                driver(stream)
                last = newest(tmp_path)
                return last.incarnation > before.incarnation if is_rival else last.position > before.position

            until(has_come_further, "a round", 2 * PATIENCE_S)
            service.thaw()
            incarnations[newest(tmp_path).incarnation] = None
            assert not newest(tmp_path).is_final, "there are more rounds than kills"
            # Whatever it is at.
            pause.wait(chance.random() * 0.1)
            at_it = until(lambda: driver(stream), "somebody to have the stream", 2 * PATIENCE_S)
            other = next(name for name in WORKERS if name != at_it)
            is_rival = killed % 4 == 1
            match killed % 4:
                case 0:
                    service.kill(at_it)
                case 1:
                    # Its task goes on elsewhere; then the process that had it goes on, too.
                    service.freeze(at_it)
                case 2:
                    service.kill("server", other)
                case _:
                    service.kill("server", at_it)
            killed += 1
        service.thaw()

        def is_over() -> bool:
            driver(stream)
            return newest(tmp_path).is_final

        until(is_over, "the stream's end", 4 * PATIENCE_S)
        assert stream.result() >= killed
        rounds = [view for view in client.runs(limit=1_000) if view.parent == "clicks"]
        assert len(stream.tasks()) == 1, "the stream's own run never grows"
    check(tmp_path, rows)
    assert len(incarnations) >= kills // 2, "many of them got to rounds of their own"
    assert len(rounds) >= killed
