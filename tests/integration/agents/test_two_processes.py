"""Agents in processes of their own, one of which is killed; and a coordinator that is started again."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.integration.agents.stage import open_stage

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60

WORK = "/work"


@contextmanager
def program(*words: str, cwd: Path = ROOT) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", *words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    words = ("rota", "server", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    with program(*words, cwd=tmp_path) as server:
        assert server.stderr is not None
        ready = next(line for line in server.stderr if "ready:" in line)
        found = re.search(r"(http://\S+?);", ready)
        assert found is not None, ready
        yield found[1]


@contextmanager
def agent(url: str, session: str, *rest: str) -> Iterator["subprocess.Popen[str]"]:
    with program("tests.integration.agents.agent_program", url, session, *rest) as process:
        yield process


def until(process: "subprocess.Popen[str]", word: str) -> str:
    """The next line that begins with a word."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return line.strip()
    assert process.stderr is not None
    raise AssertionError(f"it ended before it said {word!r}: {process.stderr.read()}")


def test_what_an_agent_held_when_it_was_killed_is_claimed_by_another(url: str) -> None:
    with httpx.Client(base_url=f"{url}/api/v1", timeout=PATIENCE_S) as http, agent(url, "first") as first:
        until(first, "open")
        item = http.post("/work", json={"title": "t", "workspace": "w"}).json()["item"]
        until(first, "wake")
        _, held, fence, deliveries = until(first, "claimed").split()
        claim = json.loads(until(first, "{"))
        assert (held, deliveries) == (item, "0")
        with agent(url, "second", "complete") as second:
            until(second, "open")
            first.send_signal(signal.SIGKILL)
            first.wait(PATIENCE_S)
            until(second, "wake")
            _, held, newer, deliveries = until(second, "claimed").split()
            assert (held, deliveries) == (item, "1") and int(newer) > int(fence)
            assert until(second, "completed") == "completed 204"
        late = {"fence": fence, "token": claim["token"], "result": "late"}
        refused = http.post(f"/sessions/first/claims/{item}/complete", json=late)
        assert refused.status_code == 404 and claim["token"] not in refused.text
        assert http.get(f"work/{item}").json()["result"] == "second"
        told = [json.loads(line)["what"] for line in http.get(f"/runs/{item}/story").text.splitlines()]
        assert told.count("LeaseGranted") == 2 and told.count("AttemptEnded") == 1


def test_a_lease_outlives_a_restart_and_ends_when_its_session_stays_silent(tmp_path: Path) -> None:
    with open_stage(tmp_path) as here:
        here.register("before", workspace="w", silence_ms=2_000)
        item = here.submit(workspace="w")
        (claim,) = here.claim("before")
    with open_stage(tmp_path) as here:
        assert here.get(f"work/{item}")["session"] == "before"
        here.register("after", workspace="w")
        with here.wakes("after") as wakes:
            wakes.next("open")
            assert wakes.next("wake").value["item"] == item
        assert here.state(item) == "queued"
        (again,) = here.claim("after")
        assert again["item"] == item and int(again["fence"]) > int(claim["fence"])
        here.finish("after", again)


def test_a_session_that_goes_on_after_a_restart_keeps_what_it_holds(tmp_path: Path) -> None:
    with open_stage(tmp_path) as here:
        here.register("stays", workspace="w")
        item = here.submit(workspace="w")
        (claim,) = here.claim("stays")
    with open_stage(tmp_path) as here:
        assert here.post("sessions/stays/beat")["held"] == [claim["fence"]]
        here.finish("stays", claim, result=1)
        assert here.get(f"work/{item}")["result"] == 1
