"""Tokens of a service do not reach the code that it runs: neither a worker's own, nor those of `rota up`."""

import os
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

import rota
from tests.integration.service.stage import Process, Stage, open_stage
from tests.integration.worker.snooped import LOOK_UP
from tests.integration.worker.stage import AS_NOBODY
from tests.integration.worker.tasks import snoop

pytestmark = pytest.mark.full

# Of this very process, so that others on this machine which run the same test are not found instead.
ADMIN, WORKER = f"admin-{token_hex(8)}", f"worker-{token_hex(8)}"
TOKENS = (ADMIN, WORKER)
SERVER = {"ROTA_COORDINATOR_BEARER_TOKENS": f"admin:{ADMIN}", "ROTA_EXECUTOR_TASK_BEARER_TOKEN": WORKER}
# Every other process on the machine too: the coordinator is not above its workers.
LOOK_AROUND = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'\n"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start workers as somebody else")


def curious(process: Process, *files: Path) -> Any:
    """A graph whose tasks look for secrets in all that is above them, up to a process, and in files."""

    @rota.workflow
    def looking():
        reading = "".join(f"cat {file}\n" for file in files)
        rota.command(reading + LOOK_AROUND + LOOK_UP.replace("{worker}", str(process.pid)), id="command")
        rota.task(snoop)(process.pid)

    return looking


def look(stage: Stage, process: Process, *files: Path) -> dict[str, str]:
    """What each of them found."""
    client = stage.client()
    run = client.submit(curious(process, *files), run="one")
    assert run.wait(60).state == "success", [task.error for task in run.tasks()]
    found = {"command": b"".join(run.logs("command")).decode(errors="replace"), "python": run.result("snoop")}
    for where, text in found.items():
        assert text.count("looking into") >= 3, "two halves of the supervisor, and the process with the tokens"
        assert f"looking into {process.pid}" in text
        for token in TOKENS:
            assert token not in text, where
    assert "Permission denied" in found["command"]
    assert "could trace" not in found["python"]
    return found


def assert_nowhere(folder: Path, but: Path | None = None) -> None:
    """No token is in any file that the service has written."""
    for path in folder.rglob("*"):
        if path.is_file() and path != but:
            content = path.read_bytes()
            for token in TOKENS:
                assert token.encode() not in content, path


def test_a_task_does_not_find_the_token_of_its_worker(tmp_path: Path):
    with open_stage(tmp_path) as stage:
        stage.start_server(env=SERVER)
        stage.token = ADMIN
        worker = stage.start_worker("one", env={"ROTA_EXECUTOR_TASK_BEARER_TOKEN": WORKER})
        look(stage, worker)
        assert_nowhere(tmp_path)


def test_a_task_does_not_find_the_tokens_of_rota_up(tmp_path: Path):
    with open_stage(tmp_path) as stage:
        up = stage.start_up(env=SERVER)
        stage.token = ADMIN
        look(stage, up)
        assert_nowhere(tmp_path)
    assert not list(tmp_path.rglob("rota.sock")), "a way in that asks for nothing"


@needs_root
def test_a_task_does_not_find_the_tokens_of_a_rota_up_that_is_not_root(folder: Path, open_python: str):
    """Nothing but its being hidden keeps others of the same user out of a process."""
    data = folder / "server"
    data.mkdir()
    os.chown(data, AS_NOBODY["user"], AS_NOBODY["group"])
    with open_stage(folder) as stage:
        stage.python, stage.who = open_python, AS_NOBODY
        up = stage.start_up(env=SERVER)
        stage.token = ADMIN
        found = look(stage, up)
        assert "Uid:\t65534\t65534\t65534\t65534" in found["command"]
        assert_nowhere(folder)


@needs_root
def test_a_task_of_another_user_cannot_read_the_file_that_its_workers_token_is_in(folder: Path, open_python: str):
    token = folder / "token"
    token.touch(0o600)
    token.write_text(WORKER)
    with open_stage(folder) as stage:
        stage.python = open_python
        stage.start_server(env=SERVER)
        stage.token = ADMIN
        env = {"ROTA_EXECUTOR_TASK_BEARER_TOKEN_FILE": str(token), "ROTA_WORKER_RUN_AS": "nobody"}
        worker = stage.start_worker("one", env=env)
        found = look(stage, worker, token)
        assert f"cat: {token}: Permission denied" in found["command"]
        assert "Uid:\t65534\t65534\t65534\t65534" in found["command"]
        assert_nowhere(folder, but=token)
