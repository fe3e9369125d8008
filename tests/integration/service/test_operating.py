"""Without a worker runs wait and say why; what rota.toml defines is in force, can be changed, and is audited."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import rota
from tests.integration.deadlines import until
from tests.integration.service import tasks
from tests.integration.service.commands import told
from tests.integration.service.stage import Stage, open_stage, until_task

pytestmark = pytest.mark.full

PATIENCE_S = 60
TOKEN = "operator-secret"

SETTINGS = """\
[pools.db]
slots = 1

[queues.heavy]
properties = { gpu_count = "minimum" }
unservable = "fail"

[queues.slow]
tenant = "acme"

[tenants.acme]
weight = 3
"""


@rota.workflow
def pair(folder: str):
    tasks.step.override(id="second")(folder) << tasks.step.override(id="first")(folder)


def test_without_a_worker_runs_advance_as_far_as_they_can_and_say_why(tmp_path: Path):
    with open_stage(tmp_path) as stage:
        server = stage.start_server()
        client = stage.client()
        run = client.submit(pair, {"folder": str(tmp_path)}, run="waiting")
        first = until_task(client, "waiting", "first", "queued")
        assert run.status().state == "running"
        assert (first.phase, first.attempt) == ("pending", 0)
        (reason,) = run.why("first")
        assert reason.code == "worker.none_registered"
        assert "worker.none_registered: " in told(stage, "why", "waiting", "first")
        assert "upstream.waiting: " in told(stage, "why", "waiting", "second")
        said = json.loads(told(stage, "why", "waiting", "first", "--json"))
        assert [each["code"] for each in said["reasons"]] == ["worker.none_registered"]
        assert told(stage, "workers", "--json").strip() == "[]"

        server.signal(15)
        assert server.ended() == 0
        stage.start_up("--slots=2")
        assert run.wait(PATIENCE_S).state == "success"
        assert [line.task for line in tasks.lines(tmp_path, tasks.DONE)] == ["first", "second"]
        assert "has ended: success" in told(stage, "why", "waiting", "first")


def test_a_worker_that_comes_later_does_what_was_waiting_for_one(tmp_path: Path):
    with open_stage(tmp_path) as stage:
        stage.start_server()
        client = stage.client()
        run = client.submit(pair, {"folder": str(tmp_path)}, run="waiting")
        until_task(client, "waiting", "first", "queued")
        stage.start_worker("late")
        assert run.wait(PATIENCE_S).state == "success"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A service with definitions in its file, and an operator with a token for everything."""
    (tmp_path / "rota.toml").write_text(SETTINGS)
    with open_stage(tmp_path, {"ROTA_COORDINATOR_BEARER_TOKENS": f"admin@*:{TOKEN},worker:worker-secret"}) as one:
        one.env["ROTA_COORDINATOR_BEARER_TOKEN"] = one.token = TOKEN
        one.start_server()
        yield one


def audits(stage: Stage) -> list[dict[str, Any]]:
    """Who asked for what, the newest first."""
    return json.loads(told(stage, "audit", "--json"))


def slots(stage: Stage) -> int:
    (pool,) = json.loads(told(stage, "pools", "--json"))
    return pool["slots"]


def test_what_the_file_defines_is_in_force_from_the_start(stage: Stage, tmp_path: Path):
    @rota.workflow
    def limited(folder: str):
        tasks.held.override(id="one", pool={"db": 1})(folder)
        tasks.held.override(id="two", pool={"db": 1})(folder)

    assert slots(stage) == 1
    (queue,) = json.loads(told(stage, "queues", "--json"))
    assert (queue["name"], queue["unservable"]) == ("heavy", "fail")
    assert {"tenant": "acme", "weight": 3} in json.loads(told(stage, "tenants", "--json"))
    stage.start_worker("one", env={"ROTA_EXECUTOR_TASK_BEARER_TOKEN": "worker-secret"})
    client = stage.client()
    run = client.submit(limited, {"folder": str(tmp_path)}, run="limited")
    until(lambda: tasks.lines(tmp_path), "one of them to begin")
    (begun,) = tasks.lines(tmp_path)
    (reason,) = run.why("two" if begun.task == "one" else "one")
    assert reason.code == "pool.full"

    told(stage, "pools", "set", "db", "--slots", "2")
    until(lambda: len(tasks.lines(tmp_path, tasks.BEGAN)) == 2, "the other to begin, since there is room now")
    (tmp_path / "go").touch()
    assert run.wait(PATIENCE_S).state == "success"


def test_commands_and_http_show_the_same_fields(stage: Stage, tmp_path: Path):
    stage.start_worker("one", env={"ROTA_EXECUTOR_TASK_BEARER_TOKEN": "worker-secret"})
    assert stage.client().submit(pair, {"folder": str(tmp_path)}, run="seen").wait(PATIENCE_S).state == "success"
    told(stage, "workers", "drain", "one")
    for words, path, field in (
        (["runs"], "runs", "runs"),
        (["tasks", "seen"], "runs/seen/tasks", "tasks"),
        (["why", "seen", "first"], "runs/seen/tasks/first/why", "reasons"),
        (["pools"], "pools", "pools"),
        (["queues"], "queues", "queues"),
        (["tenants"], "tenants", "tenants"),
        (["audit"], "audit", "audits"),
        (["workers"], "workers", "workers"),
    ):
        shown = json.loads(told(stage, *words, "--json"))
        if isinstance(shown, dict):
            shown = shown[field]
        answered = stage.get(f"/api/v1/{path}").json()[field]
        for each in (*shown, *answered):
            # When it was heard last moves on between the two.
            each.pop("seen_at", None)
        assert shown == answered, path


def test_definitions_are_changed_at_run_time_by_all_ways_and_the_file_wins_at_the_next_start(stage: Stage):
    assert {(audit["actor"], audit["command"]) for audit in audits(stage)} == {
        ("rota.toml", "PutPool"),
        ("rota.toml", "PutQueue"),
    }
    told(stage, "pools", "set", "db", "--slots", "5")
    told(stage, "queues", "set", "heavy", "--unservable", "ladder")
    told(stage, "tenants", "set", "acme", "--weight", "7")
    newest = audits(stage)[:2]
    assert [audit["command"] for audit in newest] == ["PutQueue", "PutPool"]
    assert all(audit["actor"].startswith("admin@*#") for audit in newest)
    assert slots(stage) == 5

    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{stage.http_port}/api/v1/", headers=headers) as http:
        assert http.put("pools/db", json={"slots": 6}).status_code == 200
        assert http.put("pools/web", json={"slots": 9}).status_code == 200
    changed = audits(stage)[:2]
    assert [audit["command"] for audit in changed] == ["PutPool", "PutPool"]
    assert {audit["actor"] for audit in changed} == {newest[0]["actor"]}, "the same caller, whichever the way"

    (server,) = stage.processes
    server.signal(15)
    assert server.ended() == 0
    stage.start_server()
    pools = {each["name"]: each["slots"] for each in json.loads(told(stage, "pools", "--json"))}
    assert pools == {"db": 1, "web": 9}, "the file wins where it says something"
    (queue,) = json.loads(told(stage, "queues", "--json"))
    assert queue["unservable"] == "fail"
    assert {"tenant": "acme", "weight": 3} in json.loads(told(stage, "tenants", "--json"))
    assert [audit["actor"] for audit in audits(stage)[:2]] == ["rota.toml", "rota.toml"]
    assert TOKEN not in json.dumps(audits(stage))


def test_whoever_has_the_folder_is_named_as_such(tmp_path: Path):
    with open_stage(tmp_path) as stage:
        server = stage.start_server()
        told(stage, "pools", "set", "near", "--slots=1", f"--data={server.folder}")
        told(stage, "pools", "set", "far", "--slots=1")
        assert [(audit["actor"], json.loads(audit["about"])["pool"]["name"]) for audit in audits(stage)] == [
            ("anyone", "far"),
            ("local", "near"),
        ]


def test_an_operator_drains_a_worker_and_gives_it_work_again(tmp_path: Path):
    with open_stage(tmp_path) as stage:
        stage.start_server()
        stage.start_worker("one")
        client = stage.client()
        told(stage, "workers", "drain", "one")
        run = client.submit(tasks.step, {"folder": str(tmp_path)}, run="kept-waiting")
        until_task(client, "kept-waiting", "step", "queued")
        assert re.search(r"worker\.busy: .*\bone: .*new work", told(stage, "why", "kept-waiting", "step"))
        told(stage, "workers", "undrain", "one")
        assert run.wait(PATIENCE_S).state == "success"
