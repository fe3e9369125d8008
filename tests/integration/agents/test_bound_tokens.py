"""Tokens of agents that are bound to workspaces and agent names: everything they may ask, and nothing beyond."""

from collections.abc import Iterator
from typing import Any

import pytest

from rota.api.auth import NEEDS, Role
from rota.api.tokens import read_tokens
from rota.core.errors import Refused
from rota.wire import sessions as ss
from tests.integration.agents.stage import Agents, bearer, open_stage
from tests.integration.http_stage import gate_of, read_events

BOUND, FREE, OWN, NONE = "bound-secret", "free-secret", "agents-secret", "none-secret"
TOKENS = (
    f"agent+*;workspaces=docs+web;agents=reviewer:{BOUND}\nagent+*:{FREE}\n"
    f"agent+*;agents=reviewer:{OWN}\nagent;workspaces=-:{NONE}\nwriter:writer-secret\nadmin:admin-secret"
)
# workspace, agent, whether the bound token may have a session there.
PLACES = [
    ("docs", "reviewer", True),
    ("web", "reviewer", True),
    ("docs", "writer", False),
    ("docs", "", False),
    ("other", "reviewer", False),
    ("", "reviewer", False),
    ("-", "reviewer", False),
    ("doc", "reviewer", False),
    ("docs+web", "reviewer", False),
    ("*", "reviewer", False),
]


@pytest.fixture(scope="module")
def agents() -> Iterator[Agents]:
    with open_stage(gate=gate_of(TOKENS)) as one:
        yield one


def as_(agents: Agents, secret: str) -> Agents:
    agents.headers = bearer(secret)
    return agents


@pytest.mark.parametrize(("workspace", "agent", "is_inside"), PLACES)
def test_a_session_is_opened_only_inside(agents: Agents, workspace: str, agent: str, is_inside: bool) -> None:
    name = f"open-{workspace}-{agent}"
    body = {"session": name, "workspace": workspace, "agent": agent}
    if is_inside:
        assert as_(agents, BOUND).post("sessions", body, 201)["session"] == name
        return
    response = agents.stage.http.post("/api/v1/sessions", json=body, headers=bearer(BOUND))
    expected = "auth.scope" if response.status_code == 403 else "field.value"
    assert response.json()["code"] == expected
    assert response.status_code in ((403,) if workspace not in ("-", "*") else (403, 422))
    assert name not in [each["session"] for each in as_(agents, FREE).get("sessions")["sessions"]]


@pytest.mark.parametrize(
    ("secret", "workspace", "agent", "status"),
    [
        (OWN, "anything", "reviewer", 201),
        (OWN, "anything", "writer", 403),
        (OWN, "", "", 403),
        (NONE, "", "anybody", 201),
        (NONE, "docs", "", 403),
    ],
)
def test_one_binding_leaves_the_other_open(
    agents: Agents, secret: str, workspace: str, agent: str, status: int
) -> None:
    as_(agents, secret).post(
        "sessions", {"session": f"{secret}-{workspace}-{agent}", "workspace": workspace, "agent": agent}, status
    )


def item(agents: Agents, workspace: str, **about: Any) -> str:
    return as_(agents, "writer-secret").submit(workspace=workspace, **about)


def test_work_inside_is_claimed_seen_and_reported(agents: Agents) -> None:
    wanted = item(agents, "docs")
    as_(agents, BOUND).register("works", workspace="docs", agent="reviewer")
    assert [line["run"] for line in agents.get("scheduler/backlog")["backlog"]] == [wanted]
    (claim,) = agents.claim("works", item=wanted)
    agents.finish("works", claim, "renew", 200)
    assert agents.get(f"work/{wanted}")["session"] == "works"
    agents.finish("works", claim, result=1)
    assert agents.get(f"work/{wanted}")["state"] == "success"


def test_items_outside_are_not_seen_whether_they_exist_or_not(agents: Agents) -> None:
    there = item(agents, "other")
    reserved = item(agents, "docs", owner="pool:writer")
    run = as_(agents, "writer-secret").post(
        "runs", {"graph": {"name": "g", "tasks": [{"id": "a", "command": {"shell": "true"}}]}}, 201
    )["id"]
    as_(agents, BOUND)
    for name in (there, reserved, run, "nothing"):
        for path in (f"work/{name}", f"runs/{name}", f"runs/{name}/tasks", f"runs/{name}/events"):
            assert agents.get(path, 403)["code"] == "auth.scope", path
    seen = [line["run"] for line in agents.get("scheduler/backlog")["backlog"]]
    assert not {there, reserved} & set(seen)
    assert agents.get("scheduler/backlog?workspace=other", 403)["code"] == "auth.scope"
    as_(agents, FREE)
    assert {there, reserved} <= {line["run"] for line in agents.get("scheduler/backlog")["backlog"]}


def test_sessions_outside_are_not_listed_and_not_used(agents: Agents) -> None:
    as_(agents, FREE).register("elsewhere", workspace="other", agent="reviewer")
    agents.register("same", workspace="docs", agent="reviewer")
    as_(agents, BOUND)
    listed = {each["session"] for each in agents.get("sessions")["sessions"]}
    assert "same" in listed and "elsewhere" not in listed
    asked: list[tuple[str, str, Any]] = [
        ("POST", "beat", {}),
        ("POST", "claims", {}),
        ("POST", "claims", {"wait_ms": 10}),
        ("POST", "claims/x/renew", {"fence": "1", "token": "t"}),
        ("POST", "claims/x/complete", {"fence": "1", "token": "t"}),
        ("POST", "claims/x/fail", {"fence": "1", "token": "t", "error": "e"}),
        ("POST", "claims/x/release", {"fence": "1", "token": "t"}),
        ("GET", "wakes", None),
        ("DELETE", "", None),
    ]
    for method, path, body in asked:
        refused = agents.ask(method, f"sessions/elsewhere/{path}".rstrip("/"), body, 403)
        assert refused["code"] == "auth.scope", path


def test_every_reading_endpoint_that_is_not_about_work_is_refused(agents: Agents) -> None:
    open_to_all = {"/api/v1/openapi.json", "/healthz", "/readyz", "/leaderz"}
    allowed = {"/api/v1/sessions", "/api/v1/scheduler/backlog", "/api/v1/sessions/{session}/wakes", "/api/v1/workers"}
    wrong: list[str] = []
    asked = 0
    for endpoint in agents.stage.endpoints:
        if endpoint.method != "GET" or endpoint.path in open_to_all | allowed:
            continue
        path = endpoint.path
        for word in (
            "{run}",
            "{task}",
            "{item}",
            "{worker}",
            "{queue}",
            "{pool}",
            "{workflow}",
            "{backfill}",
            "{name}",
            "{stream}",
            "{tenant}",
        ):
            path = path.replace(word, "none")
        path = path.replace("{attempt}", "1").replace("{digest}", "0" * 64)
        with agents.stage.http.stream("GET", path, headers=bearer(BOUND)) as response:
            code = response.json()["code"] if response.status_code >= 400 and response.read() else ""
        asked += 1
        if code not in ("auth.scope", "auth.role"):
            wrong.append(f"{endpoint.path}: {response.status_code} {code}")
    assert wrong == []
    assert asked > 20
    for path in ("/", "/runs", "/work"):
        assert agents.stage.http.get(path, headers=bearer(BOUND)).json()["code"] == "auth.scope"
    signed = agents.stage.http.post("/sign-in", data={"token": BOUND})
    assert (signed.status_code, "set-cookie" in signed.headers) == (403, False)


def test_every_request_is_judged_at_the_desk(agents: Agents) -> None:
    """Also over gRPC and MCP, which ask the same desk."""
    who = gate_of(TOKENS).admit(BOUND)
    line = agents.stage.line
    wrong: list[str] = []
    for kind, need in NEEDS.items():
        if need is not Role.READER:
            continue
        fields = {"tenant": "default"}
        for name in kind.__struct_fields__:
            if name in ("run", "task", "workflow", "name", "stream", "digest"):
                fields[name] = "none"
        try:
            request = kind(**fields)
        except TypeError:
            continue
        try:
            agents.stage.rota._thread.call(line.desk.ask(who, request))
            wrong.append(kind.__name__)
        except Refused as refused:
            if refused.code != "auth.scope":
                wrong.append(f"{kind.__name__}: {refused.code}")
    assert set(wrong) == {"ListWorkers", "ListBacklog", "GetService", "GetGraph: graph.unknown"} & set(wrong)
    with pytest.raises(Refused) as refused:
        line.desk.watch(who, "default", "", lambda _: None)
    assert refused.value.code == "auth.scope"


def test_wakes_come_for_work_inside(agents: Agents) -> None:
    as_(agents, BOUND).register("wakes", workspace="web", agent="reviewer")
    with agents.stage.http.stream("GET", "/api/v1/sessions/wakes/wakes", headers=bearer(BOUND)) as response:
        assert response.status_code == 200
        assert next(read_events(response)).name == "open"


def test_a_session_from_before_the_binding_is_refused(agents: Agents) -> None:
    desk = agents.stage.line.desk
    free = gate_of(f"agent+*:{BOUND}").admit(BOUND)
    bound = gate_of(TOKENS).admit(BOUND)
    assert free.name == bound.name
    call = agents.stage.rota._thread.call

    call(desk.ask(free, ss.RegisterSession(tenant="default", session="old", workspace="other", agent="reviewer")))
    with pytest.raises(Refused) as refused:
        call(desk.ask(bound, ss.BeatSession(tenant="default", session="old")))
    assert refused.value.code == "auth.scope"


@pytest.mark.parametrize(
    "entry",
    [
        "reader;workspaces=docs:s",
        "agent;workspaces=:s",
        "agent;workspaces=a+:s",
        "agent;workspace=a:s",
        "agent;agents=a;agents=b:s",
        "agent;workspaces=*:s",
        "agent;workspaces=a b:s",
        "agent;:s",
        "worker;agents=a:s",
        ";workspaces=a:s",
        "agent;workspaces=a@b:s",
    ],
)
def test_a_binding_that_cannot_be_is_refused_at_the_start(entry: str) -> None:
    with pytest.raises(Refused) as refused:
        read_tokens(entry, "the file")
    assert refused.value.code == "config.value"


@pytest.mark.parametrize(
    ("entry", "workspaces", "agents"),
    [
        ("agent;workspaces=a:s", ("a",), ()),
        ("agent@acme+x;agents=b+c;workspaces=-:s", ("-",), ("b", "c")),
        ("agent+x:s", (), ()),
    ],
)
def test_a_binding_is_read(entry: str, workspaces: tuple[str, ...], agents: tuple[str, ...]) -> None:
    (found,) = read_tokens(entry, "the file")
    assert (found.principal.workspaces, found.principal.agents) == (workspaces, agents)
