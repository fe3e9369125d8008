"""Workflows over HTTP: bundles are put, workflows deployed, triggered, paused, backfilled and taken away."""

import os
import re
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from rota.wire.bundles import BundleFile, pack_bundle
from tests.integration.deadlines import until
from tests.integration.http_stage import PATIENCE_S, Stage, shell, staged

FILES = pack_bundle(
    (BundleFile("say.sh", b"#!/bin/sh\ncat words.txt\n", is_executable=True), BundleFile("words.txt", b"hi"))
)
ROOT = Path(__file__).parents[2]
ZIP = {"Content-Type": "application/zip"}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as one:
        yield one


def put(stage: Stage, content: bytes = FILES, digest: str = "", status: int = 200, **headers: str) -> Any:
    path = f"bundles/{digest or sha256(content).hexdigest()}"
    return stage.ask("PUT", path, status, content=content, headers={**ZIP, **headers})


def deploy(stage: Stage, name: str, status: int = 200, line: str = "echo done", **more: Any) -> Any:
    graph = {"name": name, "tasks": [shell("t", line)], **more.pop("graph", {})}
    return stage.post("workflows", {"graph": graph, **more}, status)


def ended(stage: Stage, run: str) -> Any:
    until(lambda: stage.get(f"runs/{run}")["ended_at"], "the run to end", PATIENCE_S)
    return stage.get(f"runs/{run}")


def test_a_bundle_is_put_and_its_files_are_found_by_a_command(stage: Stage):
    bundle = put(stage)
    assert put(stage) == bundle
    view = deploy(stage, "bundled", line="./say.sh", graph={"bundle": bundle})
    assert (view["name"], view["version"], view["tasks"]) == ("bundled", 1, 1)
    run = stage.post("workflows/bundled/runs", {}, 201)
    assert ended(stage, run["id"])["state"] == "success"
    assert stage.get(f"runs/{run['id']}/tasks/t/result") == "hi"


def test_the_example_of_the_reference_works_as_it_stands(stage: Stage, tmp_path: Path):
    text = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    (example,) = [block for block in re.findall(r"^```\n(.*?)^```", text, re.M | re.S) if "/bundles/" in block]
    files = (BundleFile("load.sh", b"#!/bin/sh\necho loaded\n", is_executable=True),)
    (tmp_path / "etl.zip").write_bytes(pack_bundle(files))
    env = {**os.environ, "ROTA": f"http://127.0.0.1:{stage.port}"}
    subprocess.run(["bash", "-ec", example], cwd=tmp_path, env=env, check=True, timeout=PATIENCE_S)
    (run,) = stage.get("runs?name=etl")["runs"]
    assert ended(stage, run["id"])["state"] == "success"
    assert stage.get(f"runs/{run['id']}/tasks/load/result") == "loaded"
    stage.ask("DELETE", "workflows/etl", 204)


@pytest.mark.parametrize("name", ["etl.py", "/etl", "./etl"])
def test_a_workflow_that_could_not_be_run_by_its_name_is_refused(stage: Stage, name: str):
    problem = deploy(stage, name, 422)
    assert (problem["code"], problem["path"]) == ("field.value", "graph.name")
    assert repr(name) in problem["detail"]


def test_what_is_no_bundle_is_refused(stage: Stage):
    assert put(stage, digest="0" * 64, status=422)["code"] == "bundle.digest"
    assert put(stage, digest="..%2Fx", status=422)["code"] == "bundle.digest"
    assert put(stage, b"this is not a zip", status=422)["code"] == "bundle.bad"
    assert put(stage, status=415, **{"Content-Type": "application/json"})["code"] == "http.media_type"
    missing = {"name": f"default/.bundles/{'0' * 64}.zip", "size": 10, "sha256": "0" * 64}
    assert deploy(stage, "missing", 422, graph={"bundle": missing})["code"] == "bundle.unknown"
    theirs = {**put(stage), "name": f"other/.bundles/{sha256(FILES).hexdigest()}.zip"}
    assert deploy(stage, "theirs", 422, graph={"bundle": theirs})["code"] == "bundle.unknown"


def test_parameters_and_schedules_are_deployed_and_shown(stage: Stage):
    params = [
        {"name": "day", "type": "date"},
        {"name": "size", "type": "string", "default": "small", "choices": ["small", "large"], "doc": "how much"},
        {"name": "note", "type": "string", "default": None, "nullable": True},
    ]
    deploy(stage, "shown", params=params, source="here.py:3", doc="Its purpose.")
    view = stage.get("workflows/shown")
    assert [(each["name"], each["required"], each["default"]) for each in view["params"]] == [
        ("day", True, None),
        ("size", False, "small"),
        ("note", False, None),
    ]
    assert view["params"][1]["choices"] == ["small", "large"]
    assert (view["schedule"], view["next_at"], view["source"], view["doc"]) == (
        None,
        None,
        "here.py:3",
        "Its purpose.",
    )
    assert "shown" in [each["name"] for each in stage.get("workflows")["workflows"]]
    for given in ({}, {"day": "2026-02-30"}, {"day": "2026-02-01", "size": "huge"}, {"day": "2026-02-01", "no": 1}):
        assert stage.post("workflows/shown/runs", {"params": given}, 422)["code"] == "field.value"
    run = stage.post("workflows/shown/runs", {"params": {"day": "2026-02-01"}, "logical_date": "2026-02-01"}, 201)
    assert run["params"] == {"day": "2026-02-01", "size": "small", "note": None}
    assert (run["version"], run["slot_at"]) == (1, 1_769_904_000_000)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"schedule": {"cron": "61 * * * *"}}, "schedule.cron"),
        ({"schedule": {"cron": "@daily", "zone": "Mars/Olympus"}}, "schedule.zone"),
        ({"schedule": {"cron": "@daily"}, "params": [{"name": "p"}]}, "field.value"),
        ({"schedule": {"cron": "@daily"}, "zone": "Asia/Tokyo"}, "field.value"),
        ({"zone": "Mars/Olympus"}, "schedule.zone"),
        ({"params": [{"name": "p", "type": "integer", "defaults_to_logical_date": True}]}, "field.value"),
        ({"params": [{"name": "p", "type": "integer", "default": "x"}]}, "field.value"),
        ({"graph": {"tasks": []}}, "graph.empty"),
        ({"graph": {"tasks": [shell("t", "true"), shell("t", "true")]}}, "graph.duplicate_id"),
        ({"doc": 3}, "field.type"),
        ({"shedule": None}, "field.type"),
    ],
)
def test_what_makes_no_sense_is_not_deployed(stage: Stage, body: dict[str, Any], code: str):
    assert deploy(stage, "nonsense", 422, **body)["code"] == code
    assert stage.get("workflows/nonsense", 404)["code"] == "workflow.unknown"


def test_a_parameter_defaults_to_the_logical_date_over_http(stage: Stage):
    day = {"name": "day", "type": "date", "defaults_to_logical_date": True}
    view = deploy(stage, "dated", params=[day], zone="America/New_York")
    (shown,) = view["params"]
    assert (shown["defaults_to_logical_date"], shown["required"], shown["default"]) == (True, False, None)
    assert view["zone"] == "America/New_York"
    # A date without a zone is in the workflow's, also if it has no schedule.
    run = stage.post("workflows/dated/runs", {"logical_date": "2026-02-01"}, 201)
    assert (run["params"], run["slot_at"]) == ({"day": "2026-02-01"}, 1_769_904_000_000 + 5 * 3_600_000)
    assert stage.post("workflows/dated/runs", {"params": {"day": "2020-02-29"}}, 201)["params"]["day"] == "2020-02-29"
    schedule = {"cron": "0 6 * * *", "zone": "Asia/Tokyo", "start_at": 0}
    deploy(stage, "dated daily", params=[day], schedule=schedule)
    stretch = {"workflow": "dated daily", "start": "2026-02-01", "end": "2026-02-02"}
    made = stage.post("backfills", stretch, 200)
    until(lambda: len(_of(stage, made["backfill"])) == 2, "the runs of the backfill", PATIENCE_S)
    assert sorted(run["params"]["day"] for run in _of(stage, made["backfill"])) == ["2026-02-01", "2026-02-02"]


def _of(stage: Stage, backfill: str) -> list[Any]:
    return [run for run in stage.get("runs?name=dated%20daily")["runs"] if run["id"].startswith(backfill)]


def test_a_repeated_call_is_carried_out_once(stage: Stage):
    deploy(stage, "repeated")
    key = {"Idempotency-Key": "the same"}
    first, second = (stage.post("workflows/repeated/runs", {}, 201, headers=key) for _ in range(2))
    assert first["id"] == second["id"]


def test_the_same_is_the_same_version_and_another_is_a_new_one(stage: Stage):
    assert [deploy(stage, "versioned", line=line)["version"] for line in ("true", "true", "false", "true")] == [
        1,
        1,
        2,
        1,
    ]
    run = stage.post("workflows/versioned/runs", {"version": 2}, 201)
    assert ended(stage, run["id"])["state"] == "failed"
    assert stage.post(f"runs/{run['id']}/move", {"version": 1})["version"] == 1
    cleared = stage.post(f"runs/{run['id']}/clear", {})
    assert cleared["tasks"] == ["t"]
    assert ended(stage, run["id"])["state"] == "success"
    assert stage.post(f"runs/{run['id']}/move", {"version": 7}, 404)["code"] == "workflow.unknown"


def test_a_workflow_is_paused_and_goes_on(stage: Stage):
    deploy(stage, "paused", paused=True)
    run = stage.post("workflows/paused/runs", {}, 201)
    assert run["started_at"] == 0
    assert not stage.ask("PATCH", "workflows/paused", json={"paused": False})["paused"]
    assert ended(stage, run["id"])["state"] == "success"
    assert stage.ask("PATCH", "workflows/none", 404, json={"paused": False})["code"] == "workflow.unknown"


def test_a_run_is_marked_retried_and_noted(stage: Stage):
    retry = {"retries": 5, "delay_ms": 3_600_000}
    body = {"graph": {"name": "stubborn", "tasks": [{**shell("t", "false"), "retry": retry}]}, "run": "stubborn"}
    stage.post("runs", body, 201)
    task = "runs/stubborn/tasks/t"
    until(lambda: stage.get(task)["state"] == "up_for_retry", "the task to wait", PATIENCE_S)
    assert stage.ask("PUT", f"{task}/note", json={"note": "ask Eve"})["note"] == "ask Eve"
    stage.post("runs/stubborn/retry", {})
    until(lambda: stage.get(task)["attempt"] == 2, "the task to be tried again", PATIENCE_S)
    assert stage.post("runs/stubborn/mark", {"tasks": ["t"], "to": "success"})["state"] in ("running", "success")
    assert ended(stage, "stubborn")["state"] == "success"
    assert stage.get(task)["note"] == "ask Eve"
    assert stage.post("runs/stubborn/mark", {"tasks": ["t"], "to": "fine"}, 422)["code"] == "field.type"
    assert stage.post("runs/stubborn/mark", {"tasks": ["u"], "to": "failed"}, 404)["code"] == "task.unknown"


def test_a_backfill_is_begun_listed_and_cancelled(stage: Stage):
    deploy(stage, "past", line="sleep 1000", schedule={"cron": "0 12 * * *", "zone": "Asia/Kolkata"})
    about = {"workflow": "past", "start": "2026-01-01", "end": "2026-01-05"}
    looked = stage.post("backfills", {**about, "dry_run": True})
    assert (looked["backfill"], looked["slots"], looked["first"][0]) == ("", 5, 1_767_249_000_000)
    key = {"Idempotency-Key": "once"}
    begun, again = (stage.post("backfills", {**about, "max_active_runs": 2}, headers=key) for _ in range(2))
    assert begun == again
    until(lambda: len(stage.get("runs?name=past")["runs"]) == 2, "two runs to be made", PATIENCE_S)
    (view,) = stage.get("backfills")["backfills"]
    assert (view["id"], view["made"], view["left"]) == (begun["backfill"], 2, 3)
    stage.ask("DELETE", f"backfills/{view['id']}", 204)
    for run in stage.get("runs?name=past")["runs"]:
        assert ended(stage, run["id"])["state"] == "cancelled"
    assert stage.ask("DELETE", f"backfills/{view['id']}", 404)["code"] == "backfill.unknown"
    assert stage.post("backfills", {**about, "start": "2026-02-30"}, 422)["code"] == "field.value"
    stage.ask("DELETE", "workflows/past", 204)
    assert stage.post("backfills", about, 404)["code"] == "workflow.unknown"
