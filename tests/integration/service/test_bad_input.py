"""Whatever comes to a port, whoever calls with what: a clear refusal there, few lines here, and work goes on."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rota
from rota.core.errors import Refused, Unavailable
from rota.wire.channels import FRAME_BYTES_MAX, SYNC, TALK
from rota.wire.large_requests import REQUEST_BYTES_MAX
from rota.wire.streams import open_stream
from tests.integration.deadlines import until
from tests.integration.far import shout
from tests.integration.service import tasks
from tests.integration.service.stage import SHORT_LEASE_S, Stage, open_stage, until_task
from tests.unit.client.ways import place_at

pytestmark = pytest.mark.full

PATIENCE_S = 60
REFUSED = 3
CLIENT, WORKER = "client-secret", "worker-secret"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with open_stage(tmp_path, lease_s=SHORT_LEASE_S) as one:
        yield one
        for process in one.processes:
            said = process.said()
            assert "Traceback" not in said
            assert "secret" not in said


class Undisturbed:
    """A task that runs while something else happens, and must not notice."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.client = stage.client()
        self.run = self.client.submit(tasks.held, {"folder": str(folder)})
        until(lambda: tasks.lines(folder), "the task to begin")
        task = until_task(self.client, self.run.id, "held", "running")
        self.fence, self.worker = task.fence, task.worker

    def check(self) -> None:
        """It goes on, and other work too; it is finished under the lease it began with."""
        other = self.client.submit(tasks.step, {"folder": str(self.folder)})
        assert other.wait(PATIENCE_S).state == "success"
        (self.folder / "go").touch()
        assert self.run.wait(PATIENCE_S).state == "success"
        (task,) = self.run.tasks()
        assert (task.fence, task.attempt, task.interruptions) == (self.fence, 1, 0)
        assert len(tasks.lines(self.folder, tasks.BEGAN, "held")) == 1


GARBAGE: dict[str, bytes] = {
    "nothing": b"",
    "noise": bytes(range(256)) * 4_000,
    "a page": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "half a head": b"GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nX-",
    "a head without end": b"GET / HTTP/1.1\r\n" + b"X-Long: " + b"y" * 200_000,
    "a length that lies": b"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n{}",
    "the other protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 5_000,
    "a handshake": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "something for somebody else": b"EHLO example.org\r\nMAIL FROM:<x@example.org>\r\n",
}


def test_garbage_on_the_ports_disturbs_nobody(stage: Stage, tmp_path: Path):
    server = stage.start_server()
    stage.start_worker("one")
    work = Undisturbed(stage, tmp_path)
    for port in (stage.grpc_port, stage.http_port):
        for content in GARBAGE.values():
            for _ in range(5):
                shout(port, content)
    assert stage.get("/healthz").status_code == 200
    work.check()
    lines = server.said().splitlines()
    assert len(lines) < 20, "whoever shouts does not fill the journal"


async def say(url: str, method: str, content: bytes) -> Refused | Unavailable:
    """Why the coordinator hung up on whoever said this."""
    stream = await open_stream(place_at(url), method, WORKER if method == SYNC else CLIENT)
    over: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    waiting = [content]

    def end(trouble: Any) -> None:
        if not over.done():
            over.set_result(trouble)

    stream.start(lambda: waiting.pop() if waiting else None, lambda heard: None, end)
    stream.wake()
    async with asyncio.timeout(PATIENCE_S):
        trouble = await over
    await stream.closed()
    return trouble


@pytest.fixture
def guarded(stage: Stage) -> Stage:
    """A service with tokens, and a worker."""
    return guard(stage)


def guard(stage: Stage) -> Stage:
    stage.token = CLIENT
    stage.start_server(env={"ROTA_COORDINATOR_BEARER_TOKENS": f"admin:{CLIENT},worker:{WORKER}"})
    stage.start_worker("one", env={"ROTA_EXECUTOR_TASK_BEARER_TOKEN": WORKER})
    return stage


def test_a_message_that_is_too_large_ends_its_stream_and_no_other(tmp_path: Path):
    with open_stage(tmp_path, lease_s=30) as stage:
        guard(stage)
        work = Undisturbed(stage, tmp_path)
        for method, size in ((TALK, REQUEST_BYTES_MAX + 100), (SYNC, FRAME_BYTES_MAX + 100)):
            trouble = stage.call(say(stage.url, method, bytes(size)))
            assert isinstance(trouble, Refused), trouble
            assert trouble.code == "field.size"
        work.check()
        assert stage.processes[0].said().count("field.size") == 1, "a line for what gRPC did not cut off"


def test_messages_that_mean_nothing_end_their_stream_and_no_other(guarded: Stage, tmp_path: Path):
    (server, _worker) = guarded.processes
    work = Undisturbed(guarded, tmp_path)
    nonsense = [b"\xc1", b"", b"\x93\x01\x02", msgspec.msgpack.encode({"tenant": 5}), b"\x91" * 5_000]
    for method in (TALK, SYNC):
        for content in nonsense * 10:
            trouble = guarded.call(say(guarded.url, method, content))
            assert isinstance(trouble, Refused), (method, content[:10], trouble)
            assert trouble.code == "field.type"
    work.check()
    written = [json.loads(line)["at"] for line in server.said().splitlines() if '"what":"grpc"' in line]
    instants = [datetime.fromisoformat(at) for at in written]
    # Ten in a second and one that says how many more; any second touches two that are counted.
    for first, later in zip(instants, instants[22:], strict=False):
        assert later - first >= timedelta(seconds=1)


def test_a_worker_that_starts_with_a_wrong_token_is_told_and_ends(guarded: Stage, tmp_path: Path):
    (server, _worker) = guarded.processes
    work = Undisturbed(guarded, tmp_path)
    for given, code in (("wrong-secret", "auth.wrong"), (CLIENT, "auth.role"), ("", "auth.missing")):
        env = {"ROTA_EXECUTOR_TASK_BEARER_TOKEN": given}
        other = guarded.start_worker(f"worker-{code.replace('.', '-')}", env=env, wait=False)
        if code == "auth.role":
            # It may ask what the service is, and then not come in as a worker.
            other.until_said(f'"cause":"{code}"')
            other.kill()
        else:
            assert other.ended() == REFUSED
        assert len([line for line in other.said().splitlines() if code in line]) == 1
        assert f'"cause":"{code}"' in server.until_said(f'"{code}"')
    work.check()


def test_a_queue_that_does_not_exist_is_refused_at_submission(stage: Stage, tmp_path: Path):
    stage.start_server()
    client = stage.client()
    with pytest.raises(rota.Refused, match=r"queue\.unknown: .*'nowhere'"):
        client.submit(tasks.step.override(queue="nowhere"), {"folder": str(tmp_path)})
    assert client.runs() == []


# Children of this suite that are not what they seem. Python imports such a module before anything else.


def disguised(folder: Path, program: str) -> dict[str, str]:
    """The environment of a process that runs this first."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(program)
    path = os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", ""))).rstrip(os.pathsep)
    return {"PYTHONPATH": path}


NEWER = "import rota.wire.channels as channels\nchannels.PROTOCOL = 7\n"


def test_callers_that_speak_a_newer_protocol_are_told_what_to_upgrade(stage: Stage, tmp_path: Path):
    server = stage.start_server()
    stage.start_worker("one")
    work = Undisturbed(stage, tmp_path)
    env = disguised(tmp_path / "newer", NEWER)
    told = "protocol.version: the caller speaks version 7 of the protocol, and this coordinator version 1"
    worker = stage.start_worker("newer-worker", env=env, wait=False)
    assert worker.ended() == REFUSED
    assert f"rota: {told}. Upgrade the coordinator" in worker.said()
    ended = subprocess.run(
        [sys.executable, "-m", "rota", "runs", f"--coordinator={stage.url}"],
        env={**stage.env, **env},
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (ended.returncode, ended.stdout) == (REFUSED, "")
    assert told in ended.stderr
    work.check()
    assert server.said().count("protocol.version") == 2, "a line for each"


SHIFTED = """\
import time
_ns, _s = time.time_ns, time.time
time.time_ns = lambda: _ns() + {hours} * 3_600_000_000_000
time.time = lambda: _s() + {hours} * 3_600
"""
CLIENT_PROGRAM = """\
import sys, time, rota
with rota.connect(sys.argv[1]) as client:
    @rota.workflow
    def spoken():
        rota.command("echo one; sleep 0.3; echo two", id="spoken")
    run = client.submit(spoken, run=sys.argv[2])
    heard = b"".join(run.logs("spoken", follow=True))
    print(heard.decode().split(), run.wait(60).state, [event.what for event in run.events()][-1], int(time.time()))
"""


@pytest.mark.long
def test_clocks_that_are_hours_off_disturb_neither_leases_nor_work(stage: Stage, tmp_path: Path):
    stage.start_server()
    disguises = {hours: disguised(tmp_path / f"shifted{hours}", SHIFTED.format(hours=hours)) for hours in (-5, 5)}
    for hours, env in disguises.items():
        stage.start_worker(f"worker{hours}", env=env, slots=1)
    works = [Undisturbed(stage, tmp_path / f"work{number}") for number in (1, 2)]
    assert {work.worker for work in works} == {"worker-5", "worker5"}
    stage.start_worker("right")
    program = tmp_path / "program.py"
    program.write_text(CLIENT_PROGRAM)
    for hours, env in disguises.items():
        ended = subprocess.run(
            [sys.executable, str(program), stage.url, f"client{hours}"],
            env={**stage.env, **env},
            cwd=tmp_path,
            capture_output=True,
            check=False,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ended.returncode == 0, ended.stderr
        heard, _, its_time = ended.stdout.strip().rpartition(" ")
        assert heard == "['one', 'two'] success RunEnded"
        assert abs(int(its_time) - time.time() - hours * 3_600) < 600, "its clock was indeed off"
    for work in works:
        (task,) = work.run.tasks()
        until(lambda task=task: time.time() * 1_000 > task.started_at + 1.5 * stage.lease_ms, "a lease to pass")
        work.check()
        (task,) = work.run.tasks()
        assert task.assigned_at <= task.started_at <= task.ended_at, "instants are the coordinator's"
        assert abs(task.ended_at - time.time() * 1_000) < 600_000
