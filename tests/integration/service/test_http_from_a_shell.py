"""The service as somebody with a shell and curl uses it: what the reference and the guide show works when pasted."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.deadlines import until
from tests.integration.http_stage import read_events
from tests.integration.service.commands import told
from tests.integration.service.stage import Stage, open_stage

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60
_BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("shell")) as one:
        one.start_up("--slots=2")
        yield one


def blocks(document: str) -> list[str]:
    return _BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))


class Shell:
    """As much of a shell and of curl as the examples use."""

    def __init__(self, stage: Stage, today: Path) -> None:
        self.variables = {"ROTA": f"http://127.0.0.1:{stage.http_port}", "RUN": ""}
        self._today = str(today)

    def commands(self, block: str) -> list[str]:
        """One for each curl, without what is set before."""
        _, *found = re.split(r"^curl ", block.replace("/tmp/today", self._today), flags=re.MULTILINE)
        return [f"curl {text}" for text in found]

    def run(self, line: str) -> httpx.Response:
        """What curl would have got."""
        for name, value in self.variables.items():
            line = line.replace(f"${name}", value)
        words = shlex.split(line)
        assert words.pop(0) == "curl"
        method, url, headers, content = "", "", {}, None
        while words:
            match words.pop(0):
                case "-s" | "-sN":
                    pass
                case "-X":
                    method = words.pop(0)
                case "-H":
                    name, _, value = words.pop(0).partition(": ")
                    headers[name] = value
                case "-d":
                    content = words.pop(0).encode()
                case word:
                    assert not url, f"two addresses in {line!r}"
                    url = word
        method = method or ("POST" if content is not None else "GET")
        return httpx.request(method, url, headers=headers, content=content, timeout=PATIENCE_S)


def test_the_examples_of_the_reference_work_when_they_are_pasted(stage: Stage, tmp_path: Path):
    shell = Shell(stage, tmp_path / "today")
    submit, listed, why, logs, events, pool = shell.commands(blocks("docs/reference/http.md")[0])

    made = shell.run(submit)
    assert made.status_code == 201, made.text
    assert made.json()["name"] == "nightly"
    shell.variables["RUN"] = made.json()["id"]
    again = shell.run(submit)
    assert again.json()["id"] == made.json()["id"], "the same key is the same submission"

    page = shell.run(listed).json()
    assert set(page) == {"runs", "next"}
    followed = shell.run(logs)
    assert followed.headers["content-type"].startswith("text/plain")
    assert followed.text.strip() == (tmp_path / "today").read_text().strip()
    happened = list(read_events(shell.run(events)))
    assert happened[-1].name == "end"
    assert happened[-1].value["state"] == "success"
    assert {event.value["task"] for event in happened[:-1]} == {None, "extract", "load"}
    assert shell.run(why).json() == {"state": "success", "reasons": []}
    defined = shell.run(pool).json()
    assert (defined["name"], defined["slots"]) == ("db", 3)


def test_trouble_looks_as_the_reference_shows_it(stage: Stage):
    shown = json.loads(blocks("docs/reference/http.md")[2])
    response = stage.get("/api/v1/runs/x")
    assert response.status_code == shown["status"]
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json() == shown


def test_a_shell_user_can_do_everything_from_submission_to_result(stage: Stage, tmp_path: Path):
    go = tmp_path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.02; done"
    with httpx.Client(base_url=f"http://127.0.0.1:{stage.http_port}/api/v1/", timeout=PATIENCE_S) as http:

        def tasks(run: str) -> dict[str, str]:
            return {task["id"]: task["state"] for task in http.get(f"runs/{run}/tasks").json()["tasks"]}

        graph = {
            "name": "walk",
            "tasks": [
                {"id": "first", "command": {"shell": f"echo begun; {wait}; echo done"}},
                {"id": "second", "command": {"argv": ["echo", "two"]}, "upstream": ["first"]},
            ],
        }
        assert http.post("runs", json={"graph": graph, "run": "walk"}).status_code == 201
        until(lambda: tasks("walk")["first"] == "running", "the first task to run")
        (reason,) = http.get("runs/walk/tasks/second/why").json()["reasons"]
        assert reason["code"] == "upstream.waiting"
        assert http.get("runs/walk").json()["state"] == "running"
        assert [run["id"] for run in http.get("runs?state=running").json()["runs"]] == ["walk"]
        assert http.post("runs/walk/pause", json={}).json()["paused"]
        go.touch()
        until(lambda: tasks("walk")["first"] == "success", "what runs to finish")
        assert tasks("walk")["second"] == "queued"
        assert not http.post("runs/walk/resume", json={}).json()["paused"]
        until(lambda: http.get("runs/walk").json()["state"] == "success", "the run to end")
        assert http.get("runs/walk/tasks/second/result").json() == "two"
        assert http.get("runs/walk/tasks/first/logs").text == "begun\ndone\n"
        assert json.loads(http.get("runs/walk/story").text.splitlines()[-1])["what"] == "RunEnded"
        assert http.post("runs/walk/clear", json={"tasks": ["second"]}).status_code == 200
        until(lambda: http.get("runs/walk").json()["state"] == "success", "the run to end again")
        (worker,) = http.get("workers").json()["workers"]
        assert worker["present"]
        assert http.get("queues/nowhere").json()["code"] == "queue.unknown"
        unknown = http.post(
            "runs", json={"graph": {**graph, "tasks": [{**graph["tasks"][1], "upstream": [], "queue": "nowhere"}]}}
        )
        assert (unknown.status_code, unknown.json()["code"]) == (404, "queue.unknown")


def test_every_probe_and_the_metrics_answer(stage: Stage):
    for path in ("/healthz", "/readyz", "/leaderz"):
        said = stage.get(path).json()
        assert (said["status"], said["role"]) == ("ok", "leader")
    assert stage.metric("rota_is_leader") == {"": 1.0}
    assert stage.get("/api/v1/openapi.json").json()["openapi"].startswith("3.")


def test_the_operators_commands_of_the_guide_work(stage: Stage):
    block = next(block for block in blocks("docs/guides/service.md") if "rota pools set" in block)
    (worker,) = stage.get("/api/v1/workers").json()["workers"]
    for line in block.replace("build-7", worker["id"]).splitlines():
        program, *words = shlex.split(line)
        assert program == "rota"
        printed = told(stage, *words)
    assert "PutPool" in printed
    assert "DrainWorker" in printed
    told(stage, "workers", "undrain", worker["id"])
