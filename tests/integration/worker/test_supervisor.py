"""Deaths at the top: of either half of the supervisor, of both, of the worker. Nothing of theirs lives on."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rota.core.model import FailureClass
from rota.wire.work import CommandWork
from rota.worker.supervisor import trees
from tests.integration.worker.stage import ROOT, Stage, children_of, ended, readable, staged, told, value_of


@pytest.mark.parametrize("half", ["outer", "inner", "both"])
def test_a_killed_supervisor_takes_everything_along_and_is_started_again(tmp_path: Path, half: str) -> None:
    @staged()
    async def play(stage: Stage) -> None:
        fifo, other = stage.fifo("one"), stage.fifo("two")
        attempt = asyncio.create_task(stage.call("family", fifo))
        command = asyncio.create_task(stage.sh(f"setsid sleep 1000 & echo -n ready > {other}; wait"))
        await told(fifo)
        await told(other)
        outer = stage.supervisor.pid
        (inner,) = children_of(outer)
        for pid in {"outer": (outer,), "inner": (inner,), "both": (outer, inner)}[half]:
            os.kill(pid, signal.SIGKILL)
        for over in (await attempt, await command):
            assert over.failure is FailureClass.INTERNAL
            assert "supervisor" in over.error
        assert stage.left() == []
        assert value_of(await stage.call("add", 1, 1)) == 2
        assert value_of(await stage.sh("echo again")) == "again"
        assert stage.supervisor.pid != outer

    play(tmp_path)


WORKER = """
import asyncio, sys
from pathlib import Path
from tests.integration.worker.stage import open_stage, told

async def main(folder: Path) -> None:
    async with open_stage(folder) as stage:
        fifo = stage.fifo()
        attempt = asyncio.create_task(stage.call("family", fifo))
        await told(fifo)
        sys.stdout.write(f"{stage.mark} {stage.supervisor.pid}\\n")
        sys.stdout.flush()
        await attempt

asyncio.run(main(Path(sys.argv[1])))
"""


@asynccontextmanager
async def worker_with_family(
    folder: Path, script: str, *args: str, files: tuple[int, ...] = ()
) -> AsyncIterator[tuple[int, str, int]]:
    """A worker whose attempt has started its family: its process, the mark of the family, the supervisor."""
    reader, writer = os.pipe()
    command = [sys.executable, "-c", script, str(folder), *args]
    worker = subprocess.Popen(command, cwd=ROOT, stdout=writer, stderr=subprocess.DEVNULL, pass_fds=files)
    os.close(writer)
    try:
        await readable(reader)
        mark, pid = os.read(reader, 1_024).decode().split()
        assert len(trees.marked(mark)) >= 9
        yield worker.pid, mark, int(pid)
    finally:
        worker.kill()
        worker.wait()
        os.close(reader)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_killed_worker(tmp_path: Path, number: int) -> None:
    async def play() -> None:
        async with worker_with_family(tmp_path, WORKER) as (worker, mark, outer):
            (inner,) = children_of(outer)
            os.kill(worker, number)
            await ended(worker)
            await ended(inner)
            assert trees.marked(mark) == []
            await ended(outer)

    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_copy_of_the_worker_does_not_keep_its_supervisor_alive(tmp_path: Path) -> None:
    """A fork inherits the link, so that its end alone would not show that the worker is gone."""
    reader, writer = os.pipe()
    forking = "if os.fork() == 0:\n            os.write(int(sys.argv[2]), b'x')\n            signal.pause()\n        "
    script = "import os, signal" + WORKER.replace("await attempt\n", forking + "await attempt\n")

    async def play() -> None:
        async with worker_with_family(tmp_path, script, str(writer), files=(writer,)) as (worker, mark, outer):
            await readable(reader)
            (copy,) = [child for child in children_of(worker) if child != outer]
            try:
                os.kill(worker, signal.SIGKILL)
                await ended(outer)
                assert trees.marked(mark) == []
            finally:
                os.kill(copy, signal.SIGKILL)

    asyncio.run(asyncio.wait_for(play(), 60))
    os.close(reader)
    os.close(writer)


@staged()
async def test_many_logs_and_deaths_at_once_are_told_apart(stage: Stage) -> None:
    offers = [
        stage.offer(work) for work in [CommandWork(shell=f"echo {number}; exit {number % 3}") for number in range(30)]
    ]
    overs = await asyncio.gather(*(stage.run(offer) for offer in offers))
    for number, (offer, over) in enumerate(zip(offers, overs, strict=True)):
        assert stage.log_of(offer) == f"{number}\n".encode()
        assert over.error == (f"exited with code {number % 3}\n{number}" if number % 3 else "")


def test_the_supervisor_imports_nothing_heavy() -> None:
    code = "import sys, rota.worker.supervisor.server, rota.worker.supervisor.__main__; print(*sys.modules)"

    async def play() -> list[str]:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
        return (await process.communicate())[0].decode().split()

    loaded = asyncio.run(play())
    heavy = ("asyncio", "msgspec", "grpc", "pathlib", "logging", "rota.core", "subprocess", "threading")
    assert [name for name in heavy if name in loaded] == []


@pytest.mark.parametrize(
    ("text", "count"), [("low 0\nhigh 1\noom 2\noom_kill 3\n", 3), ("under_oom 0\noom_kill 7\n", 7), ("oom 1\n", 0)]
)
def test_kills_for_lack_of_memory_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, count: int
) -> None:
    path = tmp_path / "memory.events"
    path.write_text(text)
    monkeypatch.setattr(trees, "_counters", [(str(tmp_path / "gone"), b"oom_kill"), (str(path), b"oom_kill")])
    assert trees.out_of_memory_kills() == count
