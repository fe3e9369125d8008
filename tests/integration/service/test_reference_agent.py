"""The agent in examples/agent, as anybody would start it, with a real coordinator."""

import subprocess
import sys
from pathlib import Path

import pytest

import rota
from tests.integration.deadlines import PATIENCE_S, until
from tests.integration.service.stage import Process, Stage, open_stage

pytestmark = pytest.mark.full

EXAMPLE = Path(__file__).parents[3] / "examples" / "agent"


def start_agent(stage: Stage, *words: str) -> Process:
    command = [sys.executable, str(EXAMPLE / "agent.py"), "--capability=count", "--session=counter-1", *words]
    env = {**stage.env, "ROTA_COORDINATOR": stage.url}
    process = Process("agent", stage.folder, command, env, stage.folder)
    stage.processes.append(process)
    return process


def ask(stage: Stage, *words: str) -> str:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE / "ask.py"), *words],
        env={**stage.env, "ROTA_COORDINATOR": stage.url},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return ended.stdout


def is_there(client: rota.Rota) -> bool:
    return [line.session for line in client.sessions()] == ["counter-1"]


def test_it_does_what_was_there_before_it_and_what_comes_later_and_leaves_when_nothing_does(tmp_path: Path):
    with open_stage(tmp_path) as stage:
        stage.start_server()
        client = stage.client()
        early = client.submit_work("count", {"text": "a b a"}, requires=["count"])
        agent = start_agent(stage, "--idle=3")
        assert early.result(timeout_s=PATIENCE_S) == {"a": 2, "b": 1}
        assert "{'the': 2, 'fox': 1}" in ask(stage, "the", "fox", "the")
        bad = client.submit_work("count", requires=["count"], max_attempts=1)
        ended = bad.wait(PATIENCE_S)
        assert (ended.state, "payload" in ended.error) == ("failed", True)
        assert agent.ended() == 0
        assert not is_there(client)


def test_work_of_one_that_was_killed_is_with_others_again(tmp_path: Path):
    with open_stage(tmp_path) as stage:
        stage.start_server()
        client = stage.client()
        agent = start_agent(stage)
        until(lambda: is_there(client), "the agent to be there")
        agent.kill()
        item = client.submit_work("count", {"text": "a"}, requires=["count"])
        start_agent(stage, "--idle=5")
        assert item.result(timeout_s=PATIENCE_S) == {"a": 1}
