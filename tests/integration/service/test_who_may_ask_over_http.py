"""Who may do what over HTTP: every endpoint by every role, for one's own tenant and another's, through the real gate.

What is expected stands here, by hand; the endpoints have their own table.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.http_stage import Stage, gate_of, shell, staged

OWN, OTHER, ANY = "own", "other", "*"
ROLES = ("reader", "writer", "admin", "worker", "agent")
READS, WRITES, RULES, CLAIMS = ("reader", "writer", "admin", "agent"), ("writer", "admin"), ("admin",), ("agent",)
# Both tenants have a run of this name. What would change it is asked for another, which does not exist.
API = "/api/v1"
WORK = f"{API}/work"
RUN = "/api/v1/runs/r"
TASK = f"{RUN}/tasks/t"

# Method, path as the document has it, path that is called, who may, and enough of a body.
ENDPOINTS: list[tuple[str, str, str, tuple[str, ...], Any]] = [
    ("POST", "/api/v1/runs", "/api/v1/runs", WRITES, {"digest": "0" * 64}),
    ("GET", "/api/v1/runs", "/api/v1/runs", READS, None),
    ("GET", "/api/v1/runs/{run}", RUN, READS, None),
    ("POST", "/api/v1/runs/{run}/cancel", f"{RUN}x/cancel", WRITES, {}),
    ("POST", "/api/v1/runs/{run}/pause", f"{RUN}x/pause", WRITES, {}),
    ("POST", "/api/v1/runs/{run}/resume", f"{RUN}x/resume", WRITES, {}),
    ("POST", "/api/v1/runs/{run}/clear", f"{RUN}x/clear", WRITES, {"tasks": ["t"]}),
    ("POST", "/api/v1/runs/{run}/mark", f"{RUN}x/mark", WRITES, {"tasks": ["t"], "to": "failed"}),
    ("POST", "/api/v1/runs/{run}/retry", f"{RUN}x/retry", WRITES, {}),
    ("POST", "/api/v1/runs/{run}/move", f"{RUN}x/move", WRITES, {}),
    ("GET", "/api/v1/runs/{run}/story", f"{RUN}/story", READS, None),
    ("GET", "/api/v1/runs/{run}/tasks", f"{RUN}/tasks", READS, None),
    ("GET", "/api/v1/runs/{run}/tasks/{task}", TASK, READS, None),
    ("POST", "/api/v1/runs/{run}/tasks/{task}/resolve", f"{TASK}/resolve", WRITES, {}),
    ("PUT", "/api/v1/runs/{run}/note", f"{RUN}x/note", WRITES, {"note": "n"}),
    ("PUT", "/api/v1/runs/{run}/tasks/{task}/note", f"{RUN}x/tasks/t/note", WRITES, {"note": "n"}),
    ("GET", "/api/v1/runs/{run}/tasks/{task}/why", f"{TASK}/why", READS, None),
    ("GET", "/api/v1/runs/{run}/tasks/{task}/logs", f"{TASK}/logs", READS, None),
    ("GET", "/api/v1/runs/{run}/tasks/{task}/result", f"{TASK}/result", READS, None),
    ("GET", "/api/v1/runs/{run}/events", f"{RUN}/events", READS, None),
    ("GET", "/api/v1/events", "/api/v1/events", READS, None),
    ("PUT", "/api/v1/bundles/{sha256}", "/api/v1/bundles/x", WRITES, {}),
    ("POST", "/api/v1/workflows", "/api/v1/workflows", WRITES, {"graph": {"name": "w", "tasks": []}}),
    ("GET", "/api/v1/workflows", "/api/v1/workflows", READS, None),
    ("GET", "/api/v1/workflows/{workflow}", "/api/v1/workflows/x", READS, None),
    ("PATCH", "/api/v1/workflows/{workflow}", "/api/v1/workflows/x", WRITES, {"paused": True}),
    ("DELETE", "/api/v1/workflows/{workflow}", "/api/v1/workflows/x", WRITES, None),
    ("POST", "/api/v1/workflows/{workflow}/runs", "/api/v1/workflows/x/runs", WRITES, {}),
    (
        "POST",
        "/api/v1/backfills",
        "/api/v1/backfills",
        WRITES,
        {"workflow": "x", "start": "2026-01-01", "end": "2026-01-02"},
    ),
    ("GET", "/api/v1/backfills", "/api/v1/backfills", READS, None),
    ("DELETE", "/api/v1/backfills/{backfill}", "/api/v1/backfills/x", WRITES, None),
    ("GET", "/api/v1/workers", "/api/v1/workers", READS, None),
    ("POST", "/api/v1/workers/{worker}/drain", "/api/v1/workers/x/drain", RULES, {}),
    ("POST", "/api/v1/workers/{worker}/undrain", "/api/v1/workers/x/undrain", RULES, {}),
    ("POST", "/api/v1/workers/{worker}/unquarantine", "/api/v1/workers/x/unquarantine", RULES, {}),
    ("DELETE", "/api/v1/workers/{worker}", "/api/v1/workers/x", RULES, None),
    ("GET", "/api/v1/streams", f"{API}/streams", READS, None),
    ("GET", "/api/v1/streams/{stream}", f"{API}/streams/x", READS, None),
    ("POST", "/api/v1/streams/{stream}/pause", f"{API}/streams/x/pause", WRITES, {}),
    ("POST", "/api/v1/streams/{stream}/resume", f"{API}/streams/x/resume", WRITES, {}),
    ("POST", "/api/v1/streams/{stream}/savepoint", f"{API}/streams/x/savepoint", WRITES, {"name": "n"}),
    ("POST", "/api/v1/streams/{stream}/restore", f"{API}/streams/x/restore", WRITES, {"round": "1"}),
    ("GET", "/api/v1/queues", "/api/v1/queues", READS, None),
    ("GET", "/api/v1/queues/{queue}", "/api/v1/queues/x", READS, None),
    ("PUT", "/api/v1/queues/{queue}", "/api/v1/queues/x", RULES, {}),
    ("GET", "/api/v1/pools", "/api/v1/pools", READS, None),
    ("GET", "/api/v1/pools/{pool}", "/api/v1/pools/x", READS, None),
    ("PUT", "/api/v1/pools/{pool}", "/api/v1/pools/x", RULES, {"slots": 1}),
    ("DELETE", "/api/v1/pools/{pool}", "/api/v1/pools/y", RULES, None),
    ("POST", "/api/v1/work", f"{API}/work", WRITES, {"title": ""}),
    ("GET", "/api/v1/work", f"{API}/work", READS, None),
    ("POST", f"{WORK}/bulk", f"{WORK}/bulk", WRITES, {"action": "release", "items": []}),
    ("GET", f"{WORK}/{{item}}", f"{WORK}/x", READS, None),
    *[
        ("POST", f"{WORK}/{{item}}/{verb}", f"{WORK}/x/{verb}", WRITES, {})
        for verb in ["approve", "reject", "cancel", "pause", "resume", "release", "fail", "retry", "requeue", "resolve"]
    ],
    ("POST", "/api/v1/sessions", f"{API}/sessions", CLAIMS, {"session": "x", "limit": -1}),
    ("GET", "/api/v1/sessions", f"{API}/sessions", READS, None),
    ("POST", "/api/v1/sessions/{session}/beat", f"{API}/sessions/x/beat", CLAIMS, {}),
    ("DELETE", "/api/v1/sessions/{session}", f"{API}/sessions/x", CLAIMS, None),
    ("GET", "/api/v1/sessions/{session}/wakes", f"{API}/sessions/x/wakes", CLAIMS, None),
    ("POST", "/api/v1/sessions/{session}/claims", f"{API}/sessions/x/claims", CLAIMS, {}),
    *[
        (
            "POST",
            f"/api/v1/sessions/{{session}}/claims/{{item}}/{verb}",
            f"{API}/sessions/x/claims/i/{verb}",
            CLAIMS,
            {"fence": "1", "token": "t", **({"error": "e"} if verb == "fail" else {})},
        )
        for verb in ("renew", "complete", "fail", "release")
    ],
    ("GET", "/api/v1/scheduler", f"{API}/scheduler", READS, None),
    ("GET", "/api/v1/scheduler/backlog", f"{API}/scheduler/backlog", READS, None),
    ("POST", "/api/v1/scheduler/pause", f"{API}/scheduler/pause", RULES, {"workspace": "w"}),
    ("POST", "/api/v1/scheduler/resume", f"{API}/scheduler/resume", RULES, {"workspace": "w"}),
    ("POST", "/api/v1/scheduler/drain", f"{API}/scheduler/drain", RULES, {"timeout_ms": -1}),
    ("GET", "/api/v1/audit", "/api/v1/audit", RULES, None),
    ("GET", "/api/v1/openapi.json", "/api/v1/openapi.json", READS, None),
]
# About all tenants, whichever one says it speaks for.
SHARES: list[tuple[str, str, str, tuple[str, ...], Any]] = [
    ("GET", "/api/v1/tenants", "/api/v1/tenants", RULES, None),
    ("PUT", "/api/v1/tenants/{tenant}", f"/api/v1/tenants/{OWN}", RULES, {"weight": 1}),
]
PROBES = ["/healthz", "/readyz", "/leaderz"]


def token(role: str, tenant: str) -> str:
    return f"{role}-of-{'any' if tenant == ANY else tenant}"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    entries = [f"{role}@{tenant}:{token(role, tenant)}" for role in ROLES for tenant in (OWN, OTHER, ANY)]
    with staged(gate=gate_of("\n".join(entries), [])) as one:
        for tenant in (OWN, OTHER):
            body = {"graph": {"name": "g", "tasks": [shell("t", f"echo {tenant}")]}, "run": "r"}
            headers = {"Authorization": f"Bearer {token('writer', tenant)}"}
            one.post("runs", body, 201, headers=headers)
        yield one


def verdict(
    stage: Stage, method: str, path: str, given: str | None, tenant: str | None = None, body: Any = None
) -> tuple[int, str]:
    """`in` and the status, or the code with which the gate refused."""
    headers = {"Authorization": f"Bearer {given}"} if given is not None else {}
    if tenant is not None:
        headers["Rota-Tenant"] = tenant
    with stage.http.stream(method, path, headers=headers, json=body) as response:
        if response.headers.get("content-type") != "application/problem+json":
            assert response.status_code in (200, 201, 204)
            return response.status_code, "in"
        response.read()
    code = response.json()["code"]
    if not code.startswith("auth."):
        assert response.status_code in (404, 409, 415, 422), response.text
        return response.status_code, "in"
    return response.status_code, code


def test_every_endpoint_there_is_stands_in_this_table(stage: Stage):
    listed = {f"{method} {path}" for method, path, *_ in (*ENDPOINTS, *SHARES)}
    listed |= {f"GET {path}" for path in (*PROBES, "/metrics")}
    assert {endpoint.name for endpoint in stage.endpoints} == listed


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("home", [OWN, ANY])
def test_every_endpoint_is_for_those_it_is_meant_for(stage: Stage, role: str, home: str):
    for method, name, path, roles, body in ENDPOINTS:
        for tenant in (None, OWN, OTHER):
            expected = "in" if role in roles else "auth.role"
            if home == OWN and tenant == OTHER:
                expected = "auth.tenant"
            status, found = verdict(stage, method, path, token(role, home), tenant, body)
            assert found == expected, f"{method} {name} for {tenant}"
            assert expected == "in" or status == 403


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("home", [OWN, ANY])
def test_shares_of_all_tenants_are_for_an_admin_of_any(stage: Stage, role: str, home: str):
    for method, name, path, roles, body in SHARES:
        for tenant in (None, OWN, OTHER):
            expected = "auth.role" if role not in roles else "auth.tenant" if home == OWN else "in"
            status, found = verdict(stage, method, path, token(role, home), tenant, body)
            assert found == expected, f"{method} {name}"
            assert expected == "in" or status == 403


@pytest.mark.parametrize(
    ("role", "home", "may"),
    [
        ("reader", OWN, False),
        ("writer", OWN, False),
        ("admin", OWN, True),
        ("worker", OWN, False),
        ("reader", ANY, True),
        ("writer", ANY, True),
        ("admin", ANY, True),
        ("worker", ANY, False),
    ],
)
def test_metrics_are_for_readers_of_any_tenant_and_for_admins(stage: Stage, role: str, home: str, may: bool):
    _, found = verdict(stage, "GET", "/metrics", token(role, home))
    assert found == ("in" if may else "auth.role")


def test_nobody_comes_in_without_a_token_or_with_a_wrong_one(stage: Stage):
    everything = [*ENDPOINTS, *SHARES, ("GET", "/metrics", "/metrics", READS, None)]
    for method, name, path, _, body in everything:
        for tenant in (None, OWN):
            assert verdict(stage, method, path, None, tenant, body) == (401, "auth.missing"), name
            for wrong in ("wrong", token("admin", OWN)[:-1], token("admin", OWN) + "x"):
                assert verdict(stage, method, path, wrong, tenant, body) == (401, "auth.wrong"), name


def test_probes_are_for_everybody(stage: Stage):
    for path in PROBES:
        for given in (None, "wrong", *(token(role, OWN) for role in ROLES)):
            assert verdict(stage, "GET", path, given) == (200, "in")


def test_what_one_tenant_sees_is_its_own(stage: Stage):
    def seen(given: str, tenant: str | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {given}"} | ({"Rota-Tenant": tenant} if tenant else {})
        return stage.http.get(RUN, headers=headers)

    assert seen(token("reader", OWN)).json()["tenant"] == OWN
    assert seen(token("reader", OTHER)).json()["tenant"] == OTHER
    assert seen(token("reader", ANY), OTHER).json()["tenant"] == OTHER
    refused = seen(token("reader", ANY))
    assert refused.status_code == 404, "it speaks for `default`, which has no such run"
