"""Claims over HTTP: who gets what, who may speak of it, and what is refused.

Cases of facts/agh.md, section 9, that are about these surfaces:

| case | test |
|---|---|
| 28 | test_wakes: test_a_wake_leaves_the_item_to_whoever_claims_it |
| 29, 30 | test_two_processes: test_what_an_agent_held_when_it_was_killed_is_claimed_by_another |
| 31 | test_ending_a_session_gives_back_at_once_what_it_held |
| 32 | test_a_session_is_given_only_what_it_fits |
| 33 | test_of_five_claimers_of_one_item_one_wins |
| 34 | test_twelve_claimers_of_three_items_each_get_a_different_one_or_none |
| 35 | test_of_release_complete_and_fail_at_once_one_counts |
| 36 | test_a_second_claim_beyond_the_limit_is_refused, test_a_claim_is_only_its_holders |
| 37 | test_renewing_sets_the_end_anew |
| 38 | core: tests/unit/core/test_claims.py |
| 39 | test_a_session_is_given_only_what_it_fits |
| 40 | test_scheduler: test_nobody_claims_while_everything_is_paused, test_items: a paused item … is part of it |
| 41 | test_items: an item waits for approval, test_parked: a parked item is not claimable |
| 42, 43 | nothing is projected twice here; tests/unit/kinds/agent |
| 44 | test_a_claim_is_only_its_holders, test_claim_tokens |
| 45 | test_items: the same key makes one item |
| 46 | test_attempts_that_fail_use_up_the_item |
| 47 | test_items: an operator releases fails and retries; test_parked |
| 48 | test_items: an item waits until what it depends on has succeeded |
| 49 | test_scheduler: draining; there are no hooks |
"""

import asyncio
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from rota.wire.sessions import ClaimWork, RegisterSession
from tests.integration.agents.stage import TOKENS, Agents, bearer, open_stage
from tests.integration.deadlines import until
from tests.integration.http_stage import gate_of


@pytest.fixture(scope="module")
def here() -> Iterator[Agents]:
    with open_stage() as agents:
        yield agents


@pytest.fixture(scope="module")
def guarded() -> Iterator[Agents]:
    with open_stage(gate=gate_of(TOKENS)) as agents:
        yield agents


def test_of_five_claimers_of_one_item_one_wins(here: Agents) -> None:
    for number in range(5):
        here.register(f"five-{number}", workspace="five")
    item = here.submit(workspace="five")
    with ThreadPoolExecutor(5) as pool:
        found: list[Any] = list(pool.map(here.claim, [f"five-{number}" for number in range(5)]))
    (won,) = [claims for claims in found if claims]
    assert won[0]["item"] == item


def test_twelve_claimers_of_three_items_each_get_a_different_one_or_none(here: Agents) -> None:
    for number in range(12):
        here.register(f"twelve-{number}", workspace="twelve")
    items = {here.submit(workspace="twelve") for _ in range(3)}
    with ThreadPoolExecutor(12) as pool:
        found: list[Any] = list(pool.map(here.claim, [f"twelve-{number}" for number in range(12)]))
    claimed = [claims[0] for claims in found if claims]
    assert sorted(claim["item"] for claim in claimed) == sorted(items)
    assert len({claim["fence"] for claim in claimed}) == 3 and len({claim["token"] for claim in claimed}) == 3


def test_the_most_urgent_comes_first_then_what_prefers_the_session_then_the_oldest(here: Agents) -> None:
    here.register("order", workspace="order", capabilities=["python"], limit=5)
    old = here.submit(workspace="order")
    preferred = here.submit(workspace="order", prefers=["python"])
    urgent = here.submit(workspace="order", priority="urgent")
    low = here.submit(workspace="order", priority="low")
    assert here.claim("order", priority="high", limit=5)[0]["item"] == urgent
    found = [here.claim("order")[0]["item"] for _ in range(3)]
    assert found == [preferred, old, low]


def test_a_claim_that_waits_is_given_work_whose_lease_expired_though_it_was_told_of_it_before(here: Agents) -> None:
    here.register("told", workspace="back")
    item = here.submit(workspace="back")
    here.register("vanishes", workspace="back")
    assert [claim["item"] for claim in here.claim("vanishes", lease_ms=1_000)] == [item]
    (again,) = here.claim("told", wait_ms=20_000)
    assert (again["item"], again["deliveries"]) == (item, 1)


def test_a_session_is_given_only_what_it_fits(here: Agents) -> None:
    here.submit(workspace="fit-other")
    here.submit(workspace="fit", requires=["rust"])
    here.submit(workspace="fit", channel="c2")
    here.submit(workspace="fit", owner="pool:writer")
    here.submit(workspace="fit", owner="session:somebody")
    mine = here.submit(workspace="fit", owner="session:fit", channel="c1")
    here.register("fit", workspace="fit", channel="c1", agent="reviewer", capabilities=["python"], limit=9)
    assert [claim["item"] for claim in here.claim("fit", limit=9)] == [mine]
    assert here.claim("fit", workspace="fit-other", status=403)["code"] == "session.workspace"


def test_claims_for_several_come_in_one_answer(here: Agents) -> None:
    here.register("batch", workspace="batch", limit=10)
    items = [here.submit(workspace="batch") for _ in range(4)]
    assert [claim["item"] for claim in here.claim("batch", limit=10)] == items


def test_a_second_claim_beyond_the_limit_is_refused(here: Agents) -> None:
    here.register("limit", workspace="limit")
    first, second = here.submit(workspace="limit"), here.submit(workspace="limit")
    (claim,) = here.claim("limit")
    refused = here.claim("limit", status=409)
    assert refused["code"] == "lease.held" and first in refused["detail"]
    assert here.state(second) == "queued"
    here.finish("limit", claim, "release")
    assert len(here.claim("limit")) == 1


def test_a_repeated_claim_is_the_same_lease_under_a_new_token_and_the_old_one_is_void(here: Agents) -> None:
    here.register("again", workspace="again")
    here.submit(workspace="again")
    (first,) = here.claim("again", key="claim-again")
    (second,) = here.claim("again", key="claim-again")
    assert (first["item"], first["fence"]) == (second["item"], second["fence"])
    assert first["token"] != second["token"]
    assert here.finish("again", first, status=403)["code"] == "lease.token"
    here.finish("again", second)
    assert here.claim("again", status=409, key="claim-again")["code"] == "lease.expired"


def test_whoever_waits_for_work_is_given_it_as_soon_as_there_is_some(here: Agents) -> None:
    here.register("waits", workspace="waits")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(here.claim, "waits", wait_ms=30_000)
        item = here.submit(workspace="waits")
        (claim,) = waiting.result(30)
    assert claim["item"] == item
    here.finish("waits", claim)
    assert here.claim("waits", wait_ms=1) == []


def waiting_claims(here: Agents, session: str) -> int:
    """How many claims of a session wait at the coordinator."""

    def look() -> int:
        loop = here.stage.line.driver.machine.loop
        assert loop is not None
        return len(loop.state.workers[("default", session)].claims)

    return here.stage.call(look)


def until_waiting(here: Agents, session: str, count: int) -> None:
    until(lambda: waiting_claims(here, session) == count, f"{count} claims of {session} wait")


def test_a_caller_that_has_gone_while_it_waited_is_given_nothing(here: Agents) -> None:
    for session in ("gone", "alive"):
        here.register(session, workspace="leaves")
    with socket.create_connection(("127.0.0.1", here.stage.port)) as connection:
        body = json.dumps({"wait_ms": 20_000}).encode()
        head = "POST /api/v1/sessions/gone/claims HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"
        connection.sendall("\r\n".join((*head, f"Content-Length: {len(body)}", "", "")).encode() + body)
        until_waiting(here, "gone", 1)
    until_waiting(here, "gone", 0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(here.claim, "alive", wait_ms=20_000)
        until_waiting(here, "alive", 1)
        item = here.submit(workspace="leaves")
        (claim,) = waiting.result(30)
    assert claim["item"] == item
    here.finish("alive", claim)


def test_a_claim_that_is_cancelled_waits_no_longer_and_its_repeat_does(here: Agents) -> None:
    """As gRPC and MCP do it when the stream ends or the call is cancelled."""
    line = here.stage.line
    here.stage.rota._thread.call(line.ask(RegisterSession(tenant="default", session="cancels", workspace="cancels")))
    request = ClaimWork(tenant="default", session="cancels", command_id="same", wait_ms=20_000)

    async def begin() -> Any:
        return asyncio.create_task(line.ask(request))

    first, second = (here.stage.rota._thread.call(begin()) for _ in range(2))
    until_waiting(here, "cancels", 1)
    here.stage.call(first.cancel)
    until(first.done, "the first has ended")
    here.stage.get("runs")
    assert waiting_claims(here, "cancels") == 1, "another caller waits in the same claim"
    here.stage.call(second.cancel)
    until_waiting(here, "cancels", 0)


def test_a_claim_is_repeated_after_a_wait(here: Agents) -> None:
    here.register("repeats", workspace="repeats")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(here.claim, "repeats", wait_ms=20_000, key="repeats")
        until_waiting(here, "repeats", 1)
        here.submit(workspace="repeats")
        (first,) = waiting.result(30)
    (again,) = here.claim("repeats", wait_ms=20_000, key="repeats")
    assert again["fence"] == first["fence"]
    here.finish("repeats", again)


def test_renewing_sets_the_end_anew(here: Agents) -> None:
    here.register("renew", workspace="renew")
    here.submit(workspace="renew")
    (claim,) = here.claim("renew", lease_ms=60_000)
    body = {"fence": claim["fence"], "lease_ms": 10_000}
    path = f"sessions/renew/claims/{claim['item']}/renew"
    shorter = here.post(path, body, Rota_Claim_Token=claim["token"])
    assert shorter["expires_at"] < claim["expires_at"]
    longer = here.post(path, {**body, "lease_ms": 60_000, "token": claim["token"]})
    assert longer["expires_at"] > shorter["expires_at"]
    for lease_ms in (-1, 0, 86_400_001):
        assert (
            here.post(path, {**body, "lease_ms": lease_ms}, 422, Rota_Claim_Token=claim["token"])["path"] == "lease_ms"
        )
    assert here.claim("renew", lease_ms=-5, status=422)["path"] == "lease_ms"


def test_of_release_complete_and_fail_at_once_one_counts(here: Agents) -> None:
    here.register("race", workspace="race")
    item = here.submit(workspace="race", max_attempts=1)
    (claim,) = here.claim("race")
    ways: list[tuple[str, dict[str, Any]]] = [("release", {}), ("complete", {"result": 1}), ("fail", {"error": "no"})]

    def finish(way: tuple[str, dict[str, Any]]) -> int:
        how, about = way
        body = {"fence": claim["fence"], "token": claim["token"], **about}
        return here.stage.http.post(f"/api/v1/sessions/race/claims/{item}/{how}", json=body).status_code

    with ThreadPoolExecutor(3) as pool:
        statuses = list(pool.map(finish, ways))
    assert statuses.count(204) == 1 and set(statuses) - {204} <= {403, 404, 409}
    how = ways[statuses.index(204)][0]
    assert here.state(item) == {"release": "queued", "complete": "success", "fail": "failed"}[how]
    assert here.finish("race", claim, "renew", 409)["code"] == "lease.lost"


def test_attempts_that_fail_use_up_the_item(here: Agents) -> None:
    here.register("attempts", workspace="attempts")
    item = here.submit(workspace="attempts", max_attempts=2)
    (claim,) = here.claim("attempts")
    assert here.finish("attempts", claim, "fail", 422, error="  ")["path"] == "error"
    here.finish("attempts", claim, "fail", error="no luck")
    assert here.state(item) == "up_for_retry"
    here.post(f"work/{item}/retry")
    (claim,) = here.claim("attempts")
    assert claim["attempt"] == 2
    here.finish("attempts", claim, "fail", error="again")
    ended = here.get(f"work/{item}")
    assert ended["state"] == "failed" and ended["error"] == "again"


def test_ending_a_session_gives_back_at_once_what_it_held(here: Agents) -> None:
    here.register("ends", workspace="ends")
    item = here.submit(workspace="ends")
    (claim,) = here.claim("ends")
    here.ask("DELETE", "sessions/ends", status=204)
    assert here.state(item) == "queued"
    assert here.finish("ends", claim, status=404)["code"] == "worker.unknown"
    here.register("follows", workspace="ends")
    (claim,) = here.claim("follows")
    assert claim["item"] == item and claim["deliveries"] == 1 and claim["attempt"] == 1


def test_sessions_are_listed_with_what_they_hold(here: Agents) -> None:
    here.register("shown", workspace="shown", agent="reviewer", capabilities=["b", "a"], session_type="system")
    item = here.submit(workspace="shown")
    (claim,) = here.claim("shown")
    assert here.post("sessions/shown/beat", {"mood": "prompting"})["held"] == [claim["fence"]]
    (line,) = [line for line in here.get("sessions")["sessions"] if line["session"] == "shown"]
    assert line["agent"] == "reviewer" and line["state"] == "prompting" and line["capabilities"] == ["a", "b"]
    assert line["held"] == [{"item": item, "fence": claim["fence"]}] and line["session_type"] == "system"


def test_a_session_is_only_its_tokens(guarded: Agents) -> None:
    guarded.headers = bearer("agent-secret")
    guarded.register("mine", workspace="w", capabilities=["write"])
    guarded.headers = bearer("writer-secret")
    guarded.submit(workspace="w")
    assert guarded.claim("mine", status=403)["code"] == "auth.role"
    guarded.headers = bearer("other-secret")
    for method, path, body in [
        ("POST", "sessions", {"session": "mine", "workspace": "w"}),
        ("POST", "sessions/mine/beat", {}),
        ("POST", "sessions/mine/claims", {}),
        ("GET", "sessions/mine/wakes", None),
        ("DELETE", "sessions/mine", None),
    ]:
        assert guarded.ask(method, path, body, 403)["code"] == "session.foreign", path
    guarded.headers = bearer("agent-secret")
    (claim,) = guarded.claim("mine")
    guarded.headers = bearer("other-secret")
    for how, about in (("renew", {}), ("complete", {}), ("fail", {"error": "x"}), ("release", {})):
        assert guarded.finish("mine", claim, how, 403, **about)["code"] == "session.foreign", how
    guarded.headers = bearer("agent-secret")
    guarded.finish("mine", claim)


def test_a_session_offers_only_what_its_token_allows(guarded: Agents) -> None:
    guarded.headers = bearer("other-secret")
    refused = guarded.post("sessions", {"session": "bold", "capabilities": ["write", "admin"]}, 403)
    assert refused["code"] == "auth.capability"
    guarded.register("modest", capabilities=["write"])
    assert [line["session"] for line in guarded.get("sessions")["sessions"] if line["session"] == "bold"] == []


def test_a_claim_is_only_its_holders(here: Agents) -> None:
    here.register("holder", workspace="hold")
    here.register("thief", workspace="hold")
    item = here.submit(workspace="hold")
    (claim,) = here.claim("holder")
    path = f"sessions/holder/claims/{item}/complete"
    forged = "A" * 43
    asked: list[tuple[str, dict[str, Any], int, str]] = [
        (path, {"fence": claim["fence"]}, 403, "lease.token"),
        (path, {"fence": claim["fence"], "token": forged}, 403, "lease.token"),
        (path, {"fence": str(int(claim["fence"]) + 1_000), "token": claim["token"]}, 404, "lease.none"),
        (path, {"fence": "x", "token": claim["token"]}, 422, "field.value"),
        (path, {"fence": "-1", "token": claim["token"]}, 422, "field.value"),
        (path.replace("holder", "thief"), {"fence": claim["fence"], "token": claim["token"]}, 403, "lease.foreign"),
        (path.replace("holder", "nobody"), {"fence": claim["fence"], "token": claim["token"]}, 404, "worker.unknown"),
        (path.replace(item, "nothing"), {"fence": claim["fence"], "token": claim["token"]}, 404, "lease.none"),
        (path, {"fence": claim["fence"], "token": claim["token"], "incarnation": "old"}, 404, "worker.unknown"),
        (path, {"fence": claim["fence"], "token": claim["token"], "result": "x" * 70_000}, 413, "field.size"),
    ]
    for where, body, status, code in asked:
        refused = here.post(where, body, status)
        assert refused["code"] == code, (where, body)
        assert claim["token"] not in json.dumps(refused)
    both = here.post(path, {"fence": claim["fence"], "token": claim["token"]}, 403, Rota_Claim_Token=forged)
    assert both["code"] == "lease.token"
    renew = here.post(path.replace("complete", "renew"), {"fence": claim["fence"], "token": forged}, 403)
    assert renew["code"] == "lease.token"
    assert here.state(item) == "running"
    here.finish("holder", claim)


def test_a_token_in_an_address_is_refused(here: Agents) -> None:
    here.register("url", workspace="url")
    item = here.submit(workspace="url")
    (claim,) = here.claim("url")
    path = f"sessions/url/claims/{item}/complete?token={claim['token']}"
    refused = here.post(path, {"fence": claim["fence"]}, 422)
    assert refused["path"] == "token" and claim["token"] not in json.dumps(refused)
    assert here.state(item) == "running"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"session": ""}, "session"),
        ({"session": "bad", "capabilities": ["a b"]}, "capabilities[0]"),
        ({"session": "bad", "capabilities": ["a,b"]}, "capabilities[0]"),
        ({"session": "bad", "capabilities": [""]}, "capabilities[0]"),
        ({"session": "bad", "limit": 0}, "capacity.slots"),
        ({"session": "bad", "silence_ms": -1}, "capacity.silence_ms"),
        ({"session": "bad", "silence_ms": 999}, "capacity.silence_ms"),
        ({"session": "bad", "workspace": "-"}, "workspace"),
        ({"session": " bad"}, "worker"),
    ],
)
def test_what_cannot_be_a_session_is_refused_and_leaves_nothing(here: Agents, body: dict[str, Any], path: str) -> None:
    response = here.stage.http.post("/api/v1/sessions", json=body)
    assert response.status_code in (400, 422) and response.json()["path"] == path
    assert "bad" not in {line["session"] for line in here.get("sessions")["sessions"]}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 101}, "limit"),
        ({"wait_ms": -1}, "wait_ms"),
        ({"wait_ms": 60_001}, "wait_ms"),
    ],
)
def test_what_cannot_be_a_claim_is_refused(here: Agents, body: dict[str, Any], path: str) -> None:
    here.register("claims", workspace="claims")
    assert here.post("sessions/claims/claims", body, 422)["path"] == path


def test_nobody_claims_without_a_session(here: Agents) -> None:
    assert here.claim("unheard-of", status=404)["code"] == "worker.unknown"
    response: httpx.Response = here.stage.http.post("/api/v1/sessions//claims", json={})
    assert response.json()["code"] == "http.path"
