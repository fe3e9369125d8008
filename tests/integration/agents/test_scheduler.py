"""Pausing, draining and seeing all work that is claimed."""

import json
from collections.abc import Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest

from tests.integration.agents.stage import Agents, open_stage
from tests.integration.http_stage import PATIENCE_S


@pytest.fixture
def here() -> Iterator[Agents]:
    with open_stage() as agents:
        yield agents


def drain(here: Agents, **body: Any) -> "SimpleQueue[Any]":
    """The steps of draining as they come; None at the end."""
    steps: SimpleQueue[Any] = SimpleQueue()

    def read() -> None:
        with here.stage.http.stream("POST", "/api/v1/scheduler/drain", json=body) as response:
            assert response.status_code == 200
            for line in response.iter_lines():
                steps.put(json.loads(line))
        steps.put(None)

    Thread(target=read, daemon=True).start()
    return steps


def test_nobody_claims_while_everything_is_paused(here: Agents) -> None:
    here.register("s")
    item = here.submit()
    shown = here.post("scheduler/pause", {"reason": "upgrade"})
    assert shown["paused"] and shown["pauses"][0]["reason"] == "upgrade" and shown["queued"] == 1
    assert here.claim("s") == []
    (line,) = here.get("scheduler/backlog")["backlog"]
    assert line["paused"] and line["reasons"][0]["code"] == "scheduler.paused" and line["run"] == item
    assert not here.post("scheduler/resume")["paused"]
    assert [claim["item"] for claim in here.claim("s")] == [item]


def test_what_is_held_goes_on_while_everything_is_paused(here: Agents) -> None:
    here.register("s")
    here.submit()
    (claim,) = here.claim("s")
    here.post("scheduler/pause")
    path = f"sessions/s/claims/{claim['item']}/renew"
    here.post(path, {"fence": claim["fence"], "token": claim["token"]})
    here.finish("s", claim)


def test_draining_says_how_many_are_left_and_leaves_all_of_it_paused(here: Agents) -> None:
    here.register("s", limit=2)
    for _ in range(3):
        here.submit()
    first, second = here.claim("s", limit=2)
    steps = drain(here, timeout_s=PATIENCE_S, reason="upgrade")
    assert steps.get(timeout=PATIENCE_S) == {"held": 2, "drained": False, "timed_out": False}
    here.finish("s", first)
    assert steps.get(timeout=PATIENCE_S)["held"] == 1
    here.finish("s", second)
    assert steps.get(timeout=PATIENCE_S) == {"held": 0, "drained": True, "timed_out": False}
    assert steps.get(timeout=PATIENCE_S) is None
    assert here.get("scheduler")["paused"] and here.claim("s") == []


def test_draining_gives_up_when_its_time_is_over(here: Agents) -> None:
    here.register("s")
    here.submit()
    here.claim("s")
    steps = drain(here, timeout_s=0)
    assert steps.get(timeout=PATIENCE_S) == {"held": 1, "drained": False, "timed_out": True}
    assert here.post("scheduler/drain", {"timeout_s": -1}, 422)["path"] == "timeout_s"


def test_one_workspace_is_drained_while_the_others_go_on(here: Agents) -> None:
    here.register("a", workspace="a")
    here.register("b", workspace="b")
    here.submit(workspace="a")
    for _ in range(2):
        here.submit(workspace="b")
    here.claim("a")
    (claim,) = here.claim("b")
    steps = drain(here, workspace="b", timeout_s=PATIENCE_S)
    assert steps.get(timeout=PATIENCE_S)["held"] == 1
    here.finish("b", claim)
    assert steps.get(timeout=PATIENCE_S)["drained"]
    assert here.claim("b") == []
    here.submit(workspace="a")
    assert here.get("scheduler")["held"] == 1


def test_the_backlog_is_in_the_order_of_claims(here: Agents) -> None:
    low = here.submit(priority="low")
    old, new = here.submit(), here.submit()
    urgent = here.submit(priority="urgent")
    gated = here.submit(approval="manual")
    lines = here.get("scheduler/backlog")["backlog"]
    assert [line["run"] for line in lines] == [urgent, old, new, low, gated]
    assert len(here.get("scheduler/backlog?limit=2")["backlog"]) == 2
    assert here.get("scheduler/backlog?limit=501", 422)["path"] == "limit"


def test_a_parked_item_is_not_claimable_and_has_every_way_out(here: Agents) -> None:
    parked = {way: park(here, f"for-{way}") for way in ("requeue", "fail", "cancel", "change")}
    assert here.get("scheduler")["needs_attention"] == 4
    here.register("late", capabilities=[f"for-{way}" for way in parked])
    assert here.claim("late") == []
    assert here.post(f"work/{parked['fail']}/resolve", {"exit": "fail"})["state"] == "failed"
    assert here.post(f"work/{parked['cancel']}/resolve", {"exit": "cancel"})["state"] == "cancelled"
    back = here.post(f"work/{parked['requeue']}/requeue")
    assert back["state"] == "queued" and back["attempt"] == 0
    assert here.post(f"work/{parked['requeue']}/requeue", status=409)["code"] == "task.not_parked"
    odd = here.post(f"work/{parked['change']}/resolve", {"exit": "fail", "requires": ["x"]}, 422)
    assert odd["path"] == "exit"
    assert here.post(f"work/{parked['change']}/requeue", {"requires": ["a b"]}, 422)["path"] == "requires[0]"
    assert here.state(parked["change"]) == "needs_attention"
    changed = here.post(f"work/{parked['change']}/requeue", {"requires": ["other"], "owner": "pool:p"})
    assert changed["requires"] == ["other"] and changed["owner"] == "pool:p" and changed["state"] == "queued"
    here.register("other", agent="p", capabilities=["other"])
    assert [claim["item"] for claim in here.claim("other")] == [parked["change"]]


def park(here: Agents, capability: str) -> str:
    """An item that has been lost by everybody who had it."""
    item = here.submit(requires=[capability])
    for number in range(20):
        session = f"{capability}-{number}"
        here.register(session, capabilities=[capability])
        here.claim(session)
        here.ask("DELETE", f"sessions/{session}", status=204)
        state = here.state(item)
        if state == "needs_attention":
            return item
        if state == "up_for_reschedule":
            here.post(f"work/{item}/retry")
    raise AssertionError("an item that is lost again and again is parked")
