"""Idempotency keys: every call that changes something, sent twice with one key, and then another one with that key."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import pytest

from tests.integration.http_stage import Stage, shell, staged


class Case(NamedTuple):
    """A call, and another one that the same key must not stand for; None if there is no other."""

    path: str
    body: Any = None
    other: Any = None
    other_path: str = ""


def a_run(stage: Stage, name: str, *tasks: dict[str, Any]) -> str:
    never = {"requires": {"gpu_count": "8"}}
    return stage.submit(*(tasks or (shell("a", **never),)), run=name)["id"]


def failed(stage: Stage, name: str) -> str:
    run = a_run(stage, name)
    stage.post(f"runs/{run}/mark", {"tasks": ["a"], "to": "failed"})
    return run


def deployed(stage: Stage, name: str) -> str:
    schedule = {"cron": "0 3 * * *"}
    stage.post("workflows", {"graph": {"name": name, "tasks": [shell("a")]}, "schedule": schedule, "paused": True})
    return name


def item(stage: Stage, **more: Any) -> str:
    return stage.post("work", {"title": "x", **more}, 201)["item"]


def session(stage: Stage, name: str) -> str:
    stage.post("sessions", {"session": name, "workspace": name}, 201)
    return name


def claimed(stage: Stage, name: str, verb: str, **more: Any) -> Case:
    made = item(stage, workspace=name)
    (held,) = stage.post(f"sessions/{session(stage, name)}/claims", {"item": made})["claims"]
    return Case(f"sessions/{name}/claims/{made}/{verb}", {"fence": held["fence"], "token": held["token"], **more})


def paused(stage: Stage, workspace: str) -> str:
    stage.post("scheduler/pause", {"workspace": workspace})
    return workspace


def worker(stage: Stage) -> str:
    return stage.get("workers")["workers"][0]["id"]


def pool(stage: Stage) -> str:
    stage.ask("PUT", "pools/gone", json={"slots": 1})
    return "gone"


def backfill(stage: Stage) -> str:
    body = {"workflow": deployed(stage, "past"), "start": "2026-01-01", "end": "2026-01-02"}
    return stage.post("backfills", body)["backfill"]


ZIP = b"PK\x05\x06" + bytes(18)
CASES: dict[str, Callable[[Stage], Case]] = {
    "POST /api/v1/runs": lambda s: Case(
        "runs", {"graph": {"name": "g", "tasks": [shell("a")]}}, {"graph": {"name": "g", "tasks": [shell("b")]}}
    ),
    "POST /api/v1/runs/{run}/cancel": lambda s: Case(f"runs/{a_run(s, 'c1')}/cancel", {"reason": "a"}, {"reason": "b"}),
    "POST /api/v1/runs/{run}/pause": lambda s: Case(
        f"runs/{a_run(s, 'p1')}/pause", {}, {}, f"runs/{a_run(s, 'p2')}/pause"
    ),
    "POST /api/v1/runs/{run}/clear": lambda s: Case(f"runs/{failed(s, 'cl')}/clear", {}, {"only_failed": True}),
    "POST /api/v1/runs/{run}/mark": lambda s: Case(
        f"runs/{a_run(s, 'm1')}/mark", {"tasks": ["a"], "to": "success"}, {"tasks": ["a"], "to": "failed"}
    ),
    "POST /api/v1/runs/{run}/retry": lambda s: Case(f"runs/{failed(s, 'rt')}/retry", {}, {"tasks": ["a"]}),
    "PUT /api/v1/runs/{run}/note": lambda s: Case(f"runs/{a_run(s, 'n2')}/note", {"note": "x"}, {"note": "y"}),
    "PUT /api/v1/runs/{run}/tasks/{task}/note": lambda s: Case(
        f"runs/{a_run(s, 'n1')}/tasks/a/note", {"note": "x"}, {"note": "y"}
    ),
    "POST /api/v1/workflows": lambda s: Case(
        "workflows",
        {"graph": {"name": "w1", "tasks": [shell("a")]}},
        {"graph": {"name": "w2", "tasks": [shell("a")]}},
    ),
    "PATCH /api/v1/workflows/{workflow}": lambda s: Case(
        f"workflows/{deployed(s, 'w3')}", {"paused": False}, {"paused": True}
    ),
    "POST /api/v1/workflows/{workflow}/runs": lambda s: Case(
        f"workflows/{deployed(s, 'w4')}/runs", {}, {"priority": "high"}
    ),
    "DELETE /api/v1/workflows/{workflow}": lambda s: Case(
        f"workflows/{deployed(s, 'w5')}", other_path=f"workflows/{deployed(s, 'w6')}"
    ),
    "POST /api/v1/backfills": lambda s: Case(
        "backfills",
        {"workflow": deployed(s, "w7"), "start": "2026-01-01", "end": "2026-01-02"},
        {"workflow": "w7", "start": "2026-01-01", "end": "2026-01-03"},
    ),
    "DELETE /api/v1/backfills/{backfill}": lambda s: Case(f"backfills/{backfill(s)}"),
    "POST /api/v1/work": lambda s: Case("work", {"title": "a"}, {"title": "b"}),
    "POST /api/v1/work/{item}/approve": lambda s: Case(
        f"work/{item(s, approval='manual')}/approve", {}, {}, f"work/{item(s, approval='manual')}/approve"
    ),
    "POST /api/v1/work/{item}/reject": lambda s: Case(
        f"work/{item(s, approval='manual')}/reject", {"reason": "a"}, {"reason": "b"}
    ),
    "POST /api/v1/work/{item}/cancel": lambda s: Case(f"work/{item(s)}/cancel", {"reason": "a"}, {"reason": "b"}),
    "POST /api/v1/work/{item}/pause": lambda s: Case(f"work/{item(s)}/pause", {}, {}, f"work/{item(s)}/pause"),
    "POST /api/v1/work/{item}/fail": lambda s: Case(f"work/{item(s)}/fail", {"reason": "a"}, {"reason": "b"}),
    "POST /api/v1/work/bulk": lambda s: Case(
        "work/bulk", {"action": "cancel", "items": [item(s)]}, {"action": "cancel", "items": [item(s)]}
    ),
    "POST /api/v1/scheduler/pause": lambda s: Case("scheduler/pause", {"workspace": "z"}, {"workspace": "zz"}),
    "POST /api/v1/scheduler/resume": lambda s: Case(
        "scheduler/resume", {"workspace": paused(s, "y")}, {"workspace": "yy"}
    ),
    "POST /api/v1/sessions": lambda s: Case("sessions", {"session": "s1"}),
    "POST /api/v1/sessions/{session}/beat": lambda s: Case(f"sessions/{session(s, 's2')}/beat", {}),
    "DELETE /api/v1/sessions/{session}": lambda s: Case(f"sessions/{session(s, 's3')}"),
    "POST /api/v1/sessions/{session}/claims/{item}/renew": lambda s: claimed(s, "s4", "renew"),
    "POST /api/v1/sessions/{session}/claims/{item}/complete": lambda s: claimed(s, "s5", "complete"),
    "POST /api/v1/sessions/{session}/claims/{item}/fail": lambda s: claimed(s, "s6", "fail", error="x"),
    "POST /api/v1/sessions/{session}/claims/{item}/release": lambda s: claimed(s, "s7", "release"),
    "POST /api/v1/workers/{worker}/drain": lambda s: Case(f"workers/{worker(s)}/drain", {}),
    "POST /api/v1/workers/{worker}/undrain": lambda s: Case(f"workers/{worker(s)}/undrain", {}),
    "POST /api/v1/workers/{worker}/unquarantine": lambda s: Case(f"workers/{worker(s)}/unquarantine", {}),
    "PUT /api/v1/queues/{queue}": lambda s: Case("queues/q1", {"pull": True}, {"pull": False}),
    "PUT /api/v1/pools/{pool}": lambda s: Case("pools/p1", {"slots": 1}, {"slots": 2}),
    "DELETE /api/v1/pools/{pool}": lambda s: Case(f"pools/{pool(s)}"),
    "PUT /api/v1/tenants/{tenant}": lambda s: Case("tenants/t1", {"weight": 3}, {"weight": 4}),
    "PUT /api/v1/bundles/{sha256}": lambda s: Case(f"bundles/{sha256(ZIP).hexdigest()}", ZIP),
}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged(threads=True) as one:
        yield one


# Where it is tested instead, or why it need not be.
ELSEWHERE = {
    "POST /api/v1/runs/{run}/resume": "as pause",
    "POST /api/v1/runs/{run}/move": "tests/integration/test_http_workflows.py",
    "POST /api/v1/runs/{run}/tasks/{task}/resolve": "as work items: tests/integration/agents/test_items.py",
    "POST /api/v1/work/{item}/resume": "as pause",
    "POST /api/v1/work/{item}/release": "as fail",
    "POST /api/v1/work/{item}/retry": "as runs",
    "POST /api/v1/work/{item}/requeue": "tests/integration/agents/test_items.py",
    "POST /api/v1/work/{item}/resolve": "likewise",
    "POST /api/v1/scheduler/drain": "as pause, and then only looks",
    "POST /api/v1/sessions/{session}/claims": "tests/integration/agents: a claim that is repeated gets another token",
    **{
        f"POST /api/v1/streams/{{stream}}/{verb}": "tests/integration/queries/test_streams_watched.py"
        for verb in ("pause", "resume", "savepoint", "restore")
    },
    "DELETE /api/v1/workers/{worker}": "tests/integration/test_http_fleet.py",
}


def test_every_call_that_changes_something_is_repeated_here_or_elsewhere(stage: Stage):
    assert {endpoint.name for endpoint in stage.endpoints if endpoint.is_command} == set(CASES) | set(ELSEWHERE)


@pytest.mark.parametrize("name", CASES)
def test_a_call_that_is_repeated_is_carried_out_once(stage: Stage, name: str):
    case = CASES[name](stage)
    method = name.partition(" ")[0]
    key = {"Idempotency-Key": f"key of {name}"}

    def send(path: str, body: Any) -> Any:
        content = {"content": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
        headers = {**key, "Content-Type": "application/zip"} if isinstance(body, bytes) else key
        return stage.http.request(method, f"/api/v1/{path}", headers=headers, **content)

    first = send(case.path, case.body)
    assert first.is_success, first.text
    audits = stage.get("audit")["audits"]
    again = send(case.path, case.body)
    assert (again.status_code, again.headers["idempotency-key"]) == (first.status_code, key["Idempotency-Key"])
    assert _lasting(again) == _lasting(first)
    assert stage.get("audit")["audits"] == audits, "it was carried out once"
    if case.other is not None or case.other_path:
        refused = send(case.other_path or case.path, case.other)
        assert (refused.status_code, refused.json()["code"]) == (409, "command.id_reused")


def _lasting(response: Any) -> Any:
    """What is answered, without what may have gone on since."""
    if not response.content:
        return None
    moving = ("as_of", "seen_at", "expires_at", "state", "story", "tasks", "next_at", "started_at", "ended_at")
    answer = response.json()
    if "run" in answer and isinstance(answer.get("tasks"), list):
        # What clearing runs again is worked out anew: of a repeat it is nothing any more.
        answer = answer["run"]
    return {name: value for name, value in answer.items() if name not in moving}
