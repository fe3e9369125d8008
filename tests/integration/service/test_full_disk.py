"""A disk that fills up under a coordinator: what runs keeps its leases, nothing new is taken, nothing is lost."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from rota.app.remote import open_line
from rota.client.runs import Client
from rota.control.trouble import RETRY_COMMIT_MS
from rota.core.errors import Unavailable
from tests.integration.deadlines import is_running, until
from tests.integration.service import tasks
from tests.integration.service.stage import SHORT_LEASE_S, open_stage, until_present, until_task

pytestmark = pytest.mark.full

DISK_MB = 24
# Who has had no answer for so long is taken for waiting.
UNANSWERED_S = 2.0
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", path], check=True, capture_output=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True, capture_output=True)


def fill(disk: Path) -> Path:
    """Take every byte that is left."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for piece in (b"x" * (1 << 20), b"x" * 4_096, b"x"):
            try:
                while file.write(piece) == len(piece):
                    pass
            except OSError:
                continue
    return filler


async def refusal(url: str, folder: Path) -> Unavailable:
    """What a submission is answered that nobody can write down.

    The first one that finds the disk full is kept and tried again, so it is not answered at all.
    """
    line = await open_line(url, "default")
    client = Client(line, patience_s=0)
    try:
        for number in count():
            try:
                async with asyncio.timeout(UNANSWERED_S):
                    await client.submit(tasks.step, {"folder": str(folder)}, run=f"full-{number}")
            except TimeoutError:
                continue
            except Unavailable as unavailable:
                return unavailable
        raise AssertionError("it counts for ever")
    finally:
        await line.close()


def begun(folder: Path) -> list[tasks.Line]:
    return tasks.lines(folder, tasks.BEGAN, "held")


@needs_root
def test_on_a_full_disk_leases_are_kept_submissions_refused_and_nothing_is_lost(tmp_path: Path, disk: Path):
    with open_stage(tmp_path, lease_s=SHORT_LEASE_S) as stage:
        server = stage.start_server(folder=disk / "server")
        stage.start_worker("one", slots=1)
        client = stage.client()
        until_present(client, "one")
        client.submit(tasks.held, {"folder": str(tmp_path)}, run="before")
        until(lambda: begun(tmp_path), "the task to begin")
        running = until_task(client, "before", "held", "running")
        filler = fill(disk)
        assert stage.call(refusal(stage.url, tmp_path)).code == "store.full"
        # The commit is tried again at growing intervals; after so many of them a lease would be over.
        tries = next(n for n in count(1) if sum(RETRY_COMMIT_MS[:n]) > stage.lease_ms)
        until(lambda: server.said().count("commit.retry") > tries, "the disk to be full for longer than a lease")
        assert sum(stage.metric("rota_leases").values()) == 1
        assert is_running(begun(tmp_path)[0].pid)
        # What ends meanwhile is kept by its worker until it can be written down.
        (tmp_path / "go").touch()
        until(lambda: tasks.lines(tmp_path, tasks.DONE, "held"), "the task to be done")
        filler.unlink()
        assert client.run("before").result(timeout_s=30) == running.fence
        assert [line.fence for line in begun(tmp_path)] == [running.fence]
        assert client.submit(tasks.step, {"folder": str(tmp_path)}, run="after").wait(30).state == "success"
