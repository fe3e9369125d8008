"""Runs and tasks over HTTP, on a real port: every endpoint, and what each refuses. Shapes are checked by the stage."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

import rota
from rota.core.bounds import TimeLimits
from rota.core.errors import Refused
from rota.wire.work import StoredValue, decode_value
from tests.integration import jobs
from tests.integration.deadlines import until, until_there
from tests.integration.http_stage import LONG, Stage, shell, staged

# An ended run goes to history while somebody waits for it.
SHORT_MEMORY = TimeLimits(retain_ended_ms=3_000)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("http") / "data") as one:
        yield one


def test_a_run_of_commands_is_made_and_read(stage: Stage):
    made = stage.submit(
        shell("first", "echo one"),
        {"id": "second", "command": {"argv": ["/bin/sh", "-c", "echo $WHO"], "env": {"WHO": "me"}, "cwd": "/"}},
        params={"day": "monday", "n": [1, 2.5, None]},
        priority="high",
    )
    assert (made["name"], made["params"], made["priority"]) == ("g", {"day": "monday", "n": [1, 2.5, None]}, "high")
    assert stage.ended(made["id"]) == "success"
    seen = stage.get(f"runs/{made['id']}")
    assert (seen["state"], seen["tasks"], seen["total"]) == ("success", {"success": 2}, 2)
    tasks = stage.get(f"runs/{made['id']}/tasks")["tasks"]
    assert [(task["id"], task["result"]) for task in tasks] == [("first", "one"), ("second", "me")]
    assert all(isinstance(task["fence"], str) and int(task["fence"]) for task in tasks)
    assert stage.get(f"runs/{made['id']}/tasks/first") == tasks[0]


def test_the_answer_to_a_submission_says_where_the_run_is(stage: Stage):
    body = {"graph": {"name": "g", "tasks": [shell("a")]}, "run": "odd/id [1]"}
    response = stage.http.post("/api/v1/runs", json=body)
    assert response.status_code == 201
    assert response.headers["location"] == "/api/v1/runs/odd%2Fid%20%5B1%5D"
    assert stage.get(response.headers["location"])["id"] == "odd/id [1]"
    assert stage.get(response.headers["location"] + "/tasks/a")["run"] == "odd/id [1]"


def test_a_run_with_a_key_is_joined_and_found_by_its_labels(stage: Stage):
    graph = {"name": "merged", "tasks": [shell("a", LONG)]}
    body = {"graph": graph, "merge": "key", "labels": {"target": "//x", "kind": "a=b"}, "share": "s"}
    first = stage.http.post("/api/v1/runs", json={**body, "run": "merged-1"})
    second = stage.http.post("/api/v1/runs", json={**body, "run": "merged-2"})
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.headers["location"] == second.headers["location"]
    made = second.json()
    assert (made["id"], made["merge"], made["share"]) == ("merged-1", "key", "s")
    assert made["labels"] == {"target": "//x", "kind": "a=b"}

    def found(query: str) -> list[str]:
        return [run["id"] for run in stage.get(f"runs?{query}")["runs"]]

    assert found("label=target=//x&label=kind=a=b") == ["merged-1"]
    assert found("label=target=//y") == []
    assert stage.http.get("/api/v1/runs?label=target").json()["path"] == "label"
    stage.post("runs/merged-1/cancel", {})
    assert stage.ended("merged-1") == "cancelled"
    again = stage.http.post("/api/v1/runs", json={**body, "run": "merged-3"})
    assert (again.status_code, again.json()["id"]) == (201, "merged-3")
    stage.post("runs/merged-3/cancel", {})


def test_the_same_idempotency_key_makes_one_run(stage: Stage):
    key = {"Idempotency-Key": "once"}
    body = {"graph": {"name": "keyed", "tasks": [shell("a")]}}
    first = stage.post("runs", body, 201, headers=key)
    assert stage.post("runs", body, 201, headers=key)["id"] == first["id"]
    assert len(stage.get("runs?name=keyed")["runs"]) == 1
    other = stage.post("runs", {**body, "params": {"x": 1}}, 409, headers=key)
    assert other["code"] in ("command.id_reused", "run.exists")
    assert stage.post("runs", body, 422, headers={"Idempotency-Key": "k" * 300})["path"] == "Idempotency-Key"


def test_a_known_graph_is_named_by_its_digest(stage: Stage):
    first = stage.submit(shell("a"), name="known")
    again = stage.post("runs", {"digest": first["graph"]}, 201)
    assert (again["name"], again["graph"]) == ("known", first["graph"])
    assert again["id"].startswith("known-") and again["id"] != first["id"]
    assert stage.post("runs", {"digest": "0" * 64}, 404)["code"] == "graph.unknown"


def test_raw_work_is_taken_with_its_kind(stage: Stage):
    (spec,) = jobs.nothing.build().tasks
    raw = {"id": "a", "kind": "python", "work": msgspec.to_builtins(spec.work)}
    made = stage.submit(raw)
    assert stage.ended(made["id"]) == "success"
    assert stage.get(f"runs/{made['id']}/tasks/a")["kind"] == "python"


def test_a_request_is_sent_by_a_worker_under_its_policy(stage: Stage):
    request = {"url": f"http://127.0.0.1:{stage.port}/healthz", "method": "POST", "json": {"a": 1}}
    made = stage.submit({"id": "ask", "http": request})
    assert stage.ended(made["id"]) == "failed"
    task = stage.get(f"runs/{made['id']}/tasks/ask")
    assert (task["kind"], task["failure"]) == ("http", "fatal"), "loopback is not allowed unless a worker says so"


@pytest.mark.parametrize(
    ("body", "code", "path"),
    [
        ({}, "field.value", "graph"),
        ({"graph": {"name": "g", "tasks": []}, "digest": "d"}, "field.value", "graph"),
        ({"graph": {"name": "g", "tasks": []}}, "graph.empty", "graph.tasks"),
        ({"graph": {"name": "g"}}, "field.type", "graph"),
        ({"graph": {"name": "g", "tasks": [{"id": "a"}]}}, "field.value", "graph.tasks[0]"),
        ({"graph": {"name": "g", "tasks": [{**shell("a"), "work": "AA=="}]}}, "field.value", "graph.tasks[0]"),
        ({"graph": {"name": "g", "tasks": [{"id": "a", "work": "AA=="}]}}, "field.value", "graph.tasks[0].kind"),
        ({"graph": {"name": "g", "tasks": [{"id": "a", "work": "%"}]}}, "field.type", "graph.tasks[0].work"),
        ({"graph": {"name": "g", "tasks": [shell("a", kind="python")]}}, "field.value", "graph.tasks[0].kind"),
        ({"graph": {"name": "g", "tasks": [{"id": "a", "command": {}}]}}, "field.value", "graph.tasks[0].command"),
        ({"graph": {"name": "g", "tasks": [{"id": "a", "http": {}}]}}, "field.type", "graph.tasks[0].http"),
        (
            {"graph": {"name": "g", "tasks": [{"id": "a", "http": {"url": "ftp://x"}}]}},
            "field.value",
            "graph.tasks[0].http.url",
        ),
        (
            {"graph": {"name": "g", "tasks": [{"id": "a", "http": {"url": "http://x", "body": "AA==", "json": 1}}]}},
            "field.value",
            "graph.tasks[0].http",
        ),
        ({"graph": {"name": "g", "tasks": [shell("a", upstream=["b"])]}}, "graph.unknown_upstream", None),
        ({"graph": {"name": "g", "tasks": [shell("a", colour=1)]}}, "field.type", "graph.tasks[0].colour"),
        ({"graph": {"name": "g", "tasks": [shell("a")]}, "priority": "top"}, "field.type", "priority"),
        ({"graph": {"name": "g", "tasks": [shell("a")]}, "params": [1]}, "field.type", "params"),
        ({"graph": {"name": "g", "tasks": [shell("a")]}, "params": {"n": 2**70}}, "field.type", "params"),
    ],
)
def test_a_submission_that_is_wrong_says_where(stage: Stage, body: Any, code: str, path: str | None):
    problem = stage.post("runs", body, 422)
    assert problem["code"] == code
    assert path is None or problem["path"] == path


def test_runs_are_listed_in_pages_of_live_and_ended_ones(stage: Stage):
    made = [stage.submit(shell("a"), name="paged")["id"] for _ in range(5)]
    for run in made:
        stage.ended(run)
    seen: list[str] = []
    path = "/api/v1/runs?name=paged&limit=2&state=success&state=failed"
    while path:
        response = stage.http.get(path)
        page = response.json()
        assert len(page["runs"]) <= 2
        seen += [run["id"] for run in page["runs"]]
        path = response.links["next"]["url"] if "next" in response.links else ""
        assert bool(path) == bool(page["next"])
    assert seen == list(reversed(made))
    assert stage.get("runs?name=paged&state=cancelled")["runs"] == []


@pytest.mark.parametrize(
    ("query", "code", "hint"),
    [
        ("limt=1", "field.type", "Did you mean limit?"),
        ("limit=none", "field.type", ""),
        ("limit=0", "field.value", ""),
        ("limit=1&limit=2", "field.value", ""),
        ("limit=1000000", "field.value", ""),
        ("state=lost", "field.value", "queued"),
        ("after=zz", "field.value", "Take it from `next`"),
        ("after=7b7d00", "field.value", "Take it from `next`"),
    ],
)
def test_a_query_that_is_wrong_says_what(stage: Stage, query: str, code: str, hint: str):
    problem = stage.get(f"runs?{query}", 422)
    assert problem["code"] == code
    assert hint in problem["hint"]


def test_tasks_are_listed_in_pages_and_by_state(stage: Stage):
    made = stage.submit(shell("each", width=5), shell("bad", "exit 1"), run="wide/tasks")
    stage.ended(made["id"])
    seen: list[str] = []
    path = "/api/v1/runs/wide%2Ftasks/tasks?limit=2&state=success"
    while path:
        response = stage.http.get(path)
        seen += [task["id"] for task in response.json()["tasks"]]
        path = response.links["next"]["url"] if "next" in response.links else ""
    assert seen == [f"each[{number}]" for number in range(5)]
    tasks = stage.get("runs/wide%2Ftasks/tasks?state=failed")["tasks"]
    assert [(task["id"], task["failure"]) for task in tasks] == [("bad", "user")]
    assert stage.get("runs/wide%2Ftasks/tasks?after=x", 422)["path"] == "after"
    assert stage.get("runs/wide%2Ftasks/tasks?state=x", 422)["code"] == "field.value"
    assert "each[0]" in stage.get("runs/wide%2Ftasks/tasks/each", 404)["hint"]


def test_a_run_is_paused_resumed_cancelled_and_cleared(stage: Stage):
    made = stage.submit(shell("long", LONG), shell("next", upstream=["long"]))
    run = f"runs/{made['id']}"
    assert stage.post(f"{run}/pause")["paused"] is True
    assert stage.post(f"{run}/resume")["paused"] is False
    assert stage.post(f"{run}/cancel", {"reason": "enough"})["reason"] == "enough"
    assert stage.ended(made["id"]) == "cancelled"
    assert stage.post(f"{run}/pause", status=409)["code"] == "run.ended"
    assert stage.post(f"{run}/clear", {"task": "long"}, 422)["code"] == "field.type"
    assert stage.post(f"{run}/clear", {"dry_run": True})["tasks"] == ["long", "next"]
    assert stage.get(run)["state"] == "cancelled"
    assert stage.post(f"{run}/clear", {"tasks": ["none"]}, 404)["code"] == "task.unknown"
    assert stage.post(f"{run}/clear", {"tasks": ["long"], "downstream": False})["run"]["state"] in ("queued", "running")
    assert stage.http.post(f"/api/v1/{run}/cancel").status_code == 200, "a body may be left out where all of it may"


def test_what_is_not_there_is_not_found(stage: Stage):
    for path in ("", "/tasks", "/tasks/a", "/tasks/a/why", "/tasks/a/logs", "/tasks/a/result", "/story", "/events"):
        assert stage.get(f"runs/nobody{path}", 404)["code"] == "run.unknown", path
    for action in ("cancel", "pause", "resume", "tasks/a/resolve"):
        assert stage.post(f"runs/nobody/{action}", status=404)["code"] == "run.unknown", action
    made = stage.submit(shell("a"))
    for path in ("", "/why", "/logs", "/result"):
        assert stage.get(f"runs/{made['id']}/tasks/b{path}", 404)["code"] == "task.unknown", path
    assert stage.get(f"runs/{made['id']}/story?task=b", 404)["code"] == "task.unknown"
    assert stage.get("/api/v1/nothing", 404)["code"] == "http.path"
    assert stage.get("/api/v1/runs/", 404)["code"] == "http.path"


def test_why_says_what_a_task_waits_for(stage: Stage):
    made = stage.submit(shell("long", LONG), shell("next", upstream=["long"]))
    run = f"runs/{made['id']}"
    told = stage.get(f"{run}/tasks/next/why")
    assert (told["state"], [each["code"] for each in told["reasons"]]) == ("none", ["upstream.waiting"])
    assert told["reasons"][0]["about"]
    stage.post(f"{run}/cancel")
    stage.ended(made["id"])
    assert stage.get(f"{run}/tasks/next/why") == {"state": "cancelled", "reasons": []}


def test_a_parked_task_is_taken_out(stage: Stage):
    made = stage.submit(shell("a", requires={"cpu_count": "100000"}))
    run = f"runs/{made['id']}/tasks/a"
    assert stage.post(f"{run}/resolve", status=409)["code"] == "task.not_parked"
    assert stage.post(f"{run}/resolve", {"exit": "away"}, 422)["path"] == "exit"
    stage.post(f"runs/{made['id']}/cancel")
    with staged(limits=TimeLimits(sweep_ms=50, settle_ms=50, starve_ms=100)) as quick:
        quick.ask("PUT", "queues/big", json={"properties": {"cpu_count": "minimum"}})
        quick.submit(shell("a", requires={"cpu_count": "100000"}, queue="big"), run="starved")
        task = "runs/starved/tasks/a"
        until(lambda: quick.get(task)["state"] == "needs_attention", "the task to be parked")
        assert quick.post(f"{task}/resolve", {"exit": "fail"})["state"] == "failed"


def test_logs_are_read_and_followed(stage: Stage, tmp_path: Path):
    go = tmp_path / "go"
    line = f"echo begun; touch {tmp_path}/begun; while [ ! -e {go} ]; do sleep 0.05; done; echo done"
    made = stage.submit(shell("talk", line))
    path = f"/api/v1/runs/{made['id']}/tasks/talk/logs"
    until_there(tmp_path / "begun")
    with stage.http.stream("GET", f"{path}?follow=true") as response:
        assert response.headers["content-type"] == "text/plain; charset=utf-8"
        pieces = response.iter_text()
        text = next(pieces)
        assert text == "begun\n"
        go.touch()
        text += "".join(pieces)
    assert text == "begun\ndone\n"
    assert stage.http.get(path).text == "begun\ndone\n"
    assert stage.http.get(f"{path}?attempt=1").text == "begun\ndone\n"
    assert stage.get(f"{path.removeprefix('/api/v1/')}?attempt=7", 404)["code"] == "attempt.unknown"
    assert stage.get(f"{path}?attempt=-1", 422)["path"] == "attempt"
    assert stage.get(f"{path}?follow=perhaps", 422)["path"] == "follow"


def test_results_are_json_where_that_is_safe(stage: Stage):
    @rota.workflow
    def values():
        jobs.identity.override(id="plain")({"a": [1, None, "x"], "b": b"\xff"})
        jobs.point.override(id="pickled")(3)
        jobs.nothing.override(id="nothing")()
        jobs.fail.override(id="failed")("no")
        jobs.identity.override(id="large")("y" * 70_000)

    run = stage.rota.submit(values)
    run.wait(30)
    path = f"runs/{run.id}/tasks"
    assert stage.get(f"{path}/plain/result") == {"a": [1, None, "x"], "b": "/w=="}
    assert stage.get(f"{path}/nothing/result") is None
    assert stage.get(f"{path}/large/result") == "y" * 70_000
    refused = stage.get(f"{path}/pickled/result", 406)
    assert refused["code"] == "http.accept" and "Python client" in refused["hint"]
    assert stage.get(f"{path}/failed/result", 409)["code"] == "task.no_result"
    for name, value in (("plain", {"a": [1, None, "x"], "b": b"\xff"}), ("large", "y" * 70_000)):
        response = stage.http.get(f"/api/v1/{path}/{name}/result", headers={"Accept": "application/msgpack"})
        assert response.headers["content-type"] == "application/msgpack"
        assert msgspec.msgpack.decode(response.content) == value
    shown = stage.get(f"{path}/pickled")["result"]
    assert shown["encoding"] == "pickle"


def test_a_large_result_is_streamed_and_one_that_was_changed_breaks_off(stage: Stage):
    run = stage.rota.submit(jobs.blob, {"megabytes": 9})
    run.wait(30)
    path = f"/api/v1/runs/{run.id}/tasks/blob/result"
    assert "application/msgpack" in stage.get(path, 406)["hint"]
    packed = {"Accept": "application/msgpack"}
    with stage.http.stream("GET", path, headers=packed) as response:
        content = response.read()
    assert int(response.headers["content-length"]) == len(content)
    assert msgspec.msgpack.decode(content) == run.result()
    ref = run.tasks("blob")[0].result
    assert ref is not None
    value = decode_value(ref)
    assert isinstance(value, StoredValue)
    kept = stage.folder / "blobs" / value.ref.name
    kept.write_bytes(kept.read_bytes()[:-1] + b"x")
    with pytest.raises(httpx.RemoteProtocolError), stage.http.stream("GET", path, headers=packed) as response:
        response.read()
    kept.unlink()
    assert stage.get(path, 410, headers=packed)["code"] == "blob.lost"


def test_the_story_is_told_in_lines(stage: Stage):
    made = stage.submit(shell("a"), shell("b", upstream=["a"]))
    stage.ended(made["id"])
    response = stage.http.get(f"/api/v1/runs/{made['id']}/story")
    assert response.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert (lines[0]["what"], lines[-1]["what"], lines[-1]["state"]) == ("RunSubmitted", "RunEnded", "success")
    of_b = stage.http.get(f"/api/v1/runs/{made['id']}/story?task=b").text
    told = [json.loads(line) for line in of_b.splitlines()]
    assert {line["task"] for line in told} == {"b"}
    assert (told[-1]["what"], told[-1]["state"]) == ("AttemptEnded", "success")


def test_a_run_in_history_is_read_like_a_live_one(tmp_path: Path):
    with staged(tmp_path / "data", limits=SHORT_MEMORY) as stage:
        made = stage.submit(shell("a", "echo said"), shell("each", width=3), run="old")
        stage.ended("old")
        live = [stage.get(f"runs/old{path}") for path in ("", "/tasks", "/tasks/a", "/tasks/a/why", "/tasks/a/result")]
        until(lambda: not stage.rota.runs(history=False), "the run to move to history")
        ended = [stage.get(f"runs/old{path}") for path in ("", "/tasks", "/tasks/a", "/tasks/a/why", "/tasks/a/result")]
        assert {**live[0], "story": 0} == {**ended[0], "story": 0}, "only its story has grown"
        assert live[1:] == ended[1:]
        assert stage.http.get("/api/v1/runs/old/tasks/a/logs").text == "said\n"
        assert [run["id"] for run in stage.get("runs")["runs"]] == [made["id"]]
        paged = stage.get("runs/old/tasks?limit=3")
        assert (len(paged["tasks"]), paged["next"]) == (3, "3")
        assert [task["id"] for task in stage.get("runs/old/tasks?limit=3&after=3")["tasks"]] == ["each[2]"]


def test_a_page_goes_on_where_it_stopped_also_if_that_run_has_moved_to_history(tmp_path: Path):
    with staged(tmp_path / "data", limits=SHORT_MEMORY) as stage:
        for name, line in (("live", LONG), ("ended", "true")):
            stage.submit(shell("a", line), run=name)
        stage.ended("ended")
        first = stage.get("runs?limit=1")
        assert [run["id"] for run in first["runs"]] == ["ended"]
        until(lambda: len(stage.rota.runs(history=False)) == 1, "the run to move to history")
        second = stage.get(f"runs?limit=1&after={first['next']}")
        assert [run["id"] for run in second["runs"]] == ["live"]
        stage.post("runs/live/cancel")


def test_an_id_that_history_has_is_not_given_again_and_a_repetition_is_answered():
    with staged(limits=TimeLimits(retain_ended_ms=0)) as other:
        key = {"Idempotency-Key": "monday-1"}
        body = {"graph": {"name": "g", "tasks": [shell("a", "echo first")]}, "run": "monday"}
        other.post("runs", body, 201, headers=key)
        other.ended("monday")
        until(lambda: not other.rota.runs(history=False), "it to be in history")
        refused = other.post("runs", body, 409, headers={"Idempotency-Key": "monday-2"})
        assert refused["code"] == "run.exists"
        assert re.search(r"'monday'.*\bsuccess\b.*\bhistory\b", refused["detail"])
        assert other.post("runs", body, 201, headers=key)["id"] == "monday"
        mine = {**body, "params": {"other": 1}}
        assert other.post("runs", mine, 409, headers=key)["code"] == "command.id_reused"
        with pytest.raises(Refused, match=r"run\.exists"):
            other.rota.submit(jobs.nothing, run="monday")
        assert [view.id for view in other.rota.runs()] == ["monday"]
