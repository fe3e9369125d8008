"""Logs of tasks on another machine: readable while they run, and not lost with their worker."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rota
from tests.integration.deadlines import is_running, until
from tests.integration.service.stage import Stage, open_stage, until_present, until_task

pytestmark = pytest.mark.full

MIDDLE = "under fence"


def talk(folder: Path) -> Any:
    """A graph of one command that says a word, and the next one as soon as there is a file for it."""

    def until_there(name: str) -> str:
        return f"while [ ! -e {folder}/{name} ]; do sleep 0.02; done"

    @rota.workflow
    def talking():
        line = f"echo first; {until_there('middle')}; echo {MIDDLE} $ROTA_FENCE; {until_there('last')}; echo last"
        rota.command(line, id="talk")

    return talking


def begin(stage: Stage) -> rota.Rota:
    """A coordinator and a task that has said its first word."""
    stage.start_server()
    client = stage.client()
    client.submit(talk(stage.folder), run="one")
    return client


def test_a_log_is_shown_while_its_task_runs_elsewhere(tmp_path: Path):
    with open_stage(tmp_path) as stage:
        client = begin(stage)
        stage.start_worker("far")
        shown = tmp_path / "shown"
        with shown.open("wb") as file:
            words = ["logs", "--follow", f"--coordinator={stage.url}", "one", "talk"]
            reader = subprocess.Popen([sys.executable, "-m", "rota", *words], stdout=file, env=stage.env, cwd=tmp_path)
        try:
            until(lambda: shown.read_text() == "first\n", "the first word to be shown")
            running = until_task(client, "one", "talk", "running")
            (tmp_path / "middle").touch()
            middle = f"first\n{MIDDLE} {running.fence}\n"
            until(lambda: shown.read_text() == middle, "the next word to be shown")
            assert client.run("one").tasks() == [running]
            (tmp_path / "last").touch()
            assert reader.wait(30) == 0
            assert shown.read_text() == f"{middle}last\n"
        finally:
            reader.kill()
            reader.wait()


def test_what_a_killed_worker_had_not_shipped_is_shipped_by_the_next_one_of_its_folder(tmp_path: Path):
    with open_stage(tmp_path) as stage:
        client = begin(stage)
        worker = stage.start_worker("far")
        until_present(client, "far")
        running = until_task(client, "one", "talk", "running")
        until(lambda: said_in(worker.folder, b"first"), "the first word to be in the worker's folder")
        worker.freeze()
        (tmp_path / "middle").touch()
        middle = f"{MIDDLE} {running.fence}\n".encode()
        until(lambda: said_in(worker.folder, middle), "the next word to be in the worker's folder")
        family = worker.descendants()
        worker.kill()
        until(lambda: not any(map(is_running, family)), "what it had started to end")
        client.run("one").cancel()
        assert middle not in b"".join(client.run("one").logs("talk"))
        stage.start_worker("far")
        until(lambda: b"".join(client.run("one").logs("talk")) == b"first\n" + middle, "what was left to be shipped")
        until(lambda: not said_in(worker.folder, middle), "what was shipped to be removed")


def said_in(folder: Path, words: bytes) -> bool:
    """Whether a log that lies in a worker's folder has these words."""
    return any(words in path.read_bytes() for path in folder.rglob("*.log"))
