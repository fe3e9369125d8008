"""Who may do what over HTTP: every endpoint by every role and tenant, probes, metrics, and pages of other sites."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from rota.api.auth import Role
from tests.integration.deadlines import until
from tests.integration.http_stage import Stage, gate_of, shell, staged

TOKENS = {
    "reader": (Role.READER, "default"),
    "writer": (Role.WRITER, "default"),
    "admin": (Role.ADMIN, "default"),
    "worker": (Role.WORKER, "*"),
    "reader-of-any": (Role.READER, "*"),
    "admin-of-any": (Role.ADMIN, "*"),
    "admin-of-other": (Role.ADMIN, "other"),
    "analyst": (Role.ANALYST, "default"),
    "agent": (Role.AGENT, "default"),
    "agent-of-any": (Role.AGENT, "*"),
    "agent-of-other": (Role.AGENT, "other"),
}
# Enough of a body for each endpoint that does not do without.
BODIES: dict[str, Any] = {
    "POST /api/v1/runs": {"digest": "0" * 64},
    "POST /api/v1/runs/{run}/clear": {"tasks": ["a"]},
    "PUT /api/v1/tenants/{tenant}": {"weight": 1},
}
NOBODY = "nobody"
COUNTED: list[str] = []


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    entries = (f"{role}@{tenant}:{token}" for token, (role, tenant) in TOKENS.items())
    with staged(gate=gate_of("\n".join(entries), COUNTED)) as one:
        yield one


def ask(stage: Stage, name: str, token: str | None, tenant: str | None = None) -> httpx.Response:
    """The head of the answer to one call of an endpoint, about things that do not exist."""
    method, _, path = name.partition(" ")
    for word in ("run", "task", "worker", "queue", "pool", "tenant"):
        path = path.replace(f"{{{word}}}", NOBODY)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if tenant is not None:
        headers["Rota-Tenant"] = tenant
    body = BODIES.get(name, {}) if method in ("POST", "PUT") else None
    with stage.http.stream(method, path, headers=headers, json=body) as response:
        if not response.headers["content-type" if response.status_code != 204 else "date"].startswith("text/event"):
            response.read()
    return response


def is_let_in(response: httpx.Response) -> bool:
    """Whether the refusal, if it is one, came from behind the gate."""
    if response.headers.get("content-type") != "application/problem+json":
        return True
    return not response.json()["code"].startswith("auth.")


def code_of(response: httpx.Response) -> str:
    return response.json()["code"]


def test_every_endpoint_is_for_those_it_says(stage: Stage):
    assert len(stage.endpoints) > 25
    for endpoint in stage.endpoints:
        for token, (role, tenant) in TOKENS.items():
            response = ask(stage, endpoint.name, token)
            may = endpoint.role is None or role.covers(endpoint.role)
            code = "auth.role"
            if endpoint.path == "/metrics":
                may = role is Role.ADMIN or (tenant == "*" and role.covers(Role.READER))
            elif endpoint.of_all_tenants and may and tenant != "*":
                may, code = False, "auth.tenant"
            assert is_let_in(response) == may, f"{endpoint.name} by {token}: {response.status_code}"
            if not may:
                assert (response.status_code, code_of(response)) == (403, code)


def test_every_endpoint_but_the_probes_needs_a_token_that_is_known(stage: Stage):
    for endpoint in stage.endpoints:
        if endpoint.role is None:
            assert endpoint.path in ("/healthz", "/readyz", "/leaderz")
            assert ask(stage, endpoint.name, None).status_code == 200
            continue
        for token, code in ((None, "auth.missing"), ("wrong", "auth.wrong")):
            response = ask(stage, endpoint.name, token)
            assert (response.status_code, code_of(response)) == (401, code), endpoint.name
            assert response.headers["www-authenticate"].startswith("Bearer")


def test_no_endpoint_speaks_for_another_tenant(stage: Stage):
    for endpoint in stage.endpoints:
        if endpoint.role is None or endpoint.of_all_tenants:
            continue
        role = "agent" if endpoint.role is Role.AGENT else "admin"
        response = ask(stage, endpoint.name, role, tenant="other")
        assert (response.status_code, code_of(response)) == (403, "auth.tenant"), endpoint.name
        assert is_let_in(ask(stage, endpoint.name, f"{role}-of-any", tenant="other")), endpoint.name
        assert is_let_in(ask(stage, endpoint.name, f"{role}-of-other", tenant="other")), endpoint.name


def test_the_tenant_comes_from_the_token_or_from_a_header_for_tokens_of_any(stage: Stage):
    def submit(token: str, run: str, **headers: str) -> str:
        body = {"graph": {"name": "g", "tasks": [shell("a")]}, "run": run}
        return stage.post("runs", body, 201, headers={"Authorization": token, **headers})["tenant"]

    assert submit("admin-of-other", "one") == "other"
    assert submit("admin", "two") == "default"
    assert submit("admin-of-any", "three") == "default"
    assert submit("admin-of-any", "four", **{"Rota-Tenant": "fourth"}) == "fourth"
    seen = stage.get("runs", headers={"Authorization": "admin-of-other"})["runs"]
    assert [run["id"] for run in seen] == ["one"]
    bad = stage.get("runs", 422, headers={"Authorization": "admin-of-any", "Rota-Tenant": "t" * 300})
    assert bad["path"] == "Rota-Tenant"


def test_refusals_by_role_are_counted_at_the_gate(stage: Stage):
    before = len(COUNTED)
    ask(stage, "DELETE /api/v1/pools/{pool}", "reader")
    ask(stage, "GET /metrics", "reader")
    assert COUNTED[before:] == ["auth.role", "auth.role"]


def test_metrics_are_given_and_requests_counted(stage: Stage):
    response = ask(stage, "GET /metrics", "admin")
    assert response.text == "rota_is_leader 1.0\n"
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    ask(stage, "GET /nothing/at/all", "admin")
    ask(stage, "GET /api/v1/runs/{run}", "admin")
    # They are counted when all of them is sent, which may be after all of it was read.
    told = ("GET /metrics", 200), ("other", 404), ("GET /api/v1/runs/{run}", 404)
    until(lambda: all(("http", *each) in stage.counts.seen for each in told), "all three to be counted")
    names = {endpoint.name for endpoint in stage.endpoints}
    assert {method for _, method, _ in stage.counts.seen} <= {*names, "other"}, "the label is bounded"


@pytest.fixture(scope="module")
def open_stage() -> Iterator[Stage]:
    with staged() as one:
        yield one


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_site_cannot_use_an_open_service(open_stage: Stage, headers: dict[str, str]):
    for method, path in (("POST", "runs"), ("POST", "runs/x/cancel"), ("PUT", "pools/x"), ("GET", "runs")):
        problem = open_stage.ask(method, path, 403, headers=headers)
        assert problem["code"] == "http.origin"
    assert open_stage.get("pools")["pools"] == []


def test_a_name_that_was_made_to_resolve_here_is_not_ours(open_stage: Stage):
    for host in ("evil.example", f"evil.example:{open_stage.port}", "127.0.0.1.evil.example", "10.0.0.1"):
        assert open_stage.get("runs", 421, headers={"Host": host})["code"] == "http.host"
        assert open_stage.get("/metrics", 421, headers={"Host": host})["code"] == "http.host"
        assert open_stage.http.get("/healthz", headers={"Host": host}).status_code == 200
    for host in ("localhost", f"localhost:{open_stage.port}", "127.0.0.1", "[::1]:80", "LOCALHOST"):
        open_stage.get("runs", headers={"Host": host})


def test_our_own_pages_and_programs_may_use_an_open_service(open_stage: Stage):
    own = f"http://127.0.0.1:{open_stage.port}"
    open_stage.get("runs", headers={"Origin": own, "Sec-Fetch-Site": "same-origin"})
    open_stage.get("runs", headers={"Sec-Fetch-Site": "none"})
    assert open_stage.http.get("/metrics").status_code == 200


def test_a_service_with_tokens_does_not_ask_where_a_page_is_from(stage: Stage):
    headers = {"Authorization": "reader", "Origin": "https://proxy.example", "Host": "proxy.example"}
    response = stage.http.get("/api/v1/runs", headers=headers)
    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers


def test_every_answer_has_the_headers_that_keep_browsers_honest(open_stage: Stage):
    for path in ("/api/v1/runs", "/nothing", "/healthz", "/api/v1/openapi.json"):
        headers = open_stage.http.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["cache-control"] == "no-store"
        assert headers["date"].endswith("GMT")
        assert "server" not in headers
    refused = open_stage.http.options("/api/v1/runs")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST, GET, HEAD")
