"""Workers, queues and pools over HTTP. Shapes are checked by the stage."""

from collections.abc import Iterator

import pytest

from tests.integration.deadlines import until
from tests.integration.http_stage import LONG, Stage, shell, staged


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged() as one:
        yield one


def test_a_worker_is_listed_drained_undrained_and_struck_off(stage: Stage):
    (worker,) = until(lambda: stage.get("workers")["workers"], "the worker to register")
    assert (worker["present"], worker["draining"], worker["capacity"]["slots"]) == (True, False, 4)
    path = f"workers/{worker['id']}"
    assert stage.post(f"{path}/drain")["draining"] is True
    made = stage.submit(shell("a"))
    codes = [each["code"] for each in stage.get(f"runs/{made['id']}/tasks/a/why")["reasons"]]
    assert any(code.startswith("worker.") for code in codes)
    assert stage.post(f"{path}/undrain")["draining"] is False
    assert stage.ended(made["id"]) == "success"
    assert stage.post(f"{path}/unquarantine")["quarantine_cause"] == ""
    stage.ask("DELETE", path, 204)
    for method, missing in (
        ("POST", "workers/nobody/drain"),
        ("POST", "workers/nobody/undrain"),
        ("POST", "workers/nobody/unquarantine"),
    ):
        assert stage.ask(method, missing, 404)["code"] == "worker.unknown"
    assert stage.ask("DELETE", "workers/nobody", 404)["code"] == "worker.unknown"


def test_a_queue_is_defined_read_and_changed(stage: Stage):
    assert stage.get("queues")["queues"] == []
    made = stage.ask("PUT", "queues/gpu%2Fbig", json={"properties": {"gpu_count": "minimum"}, "unservable": "fail"})
    assert (made["name"], made["properties"], made["unservable"]) == ("gpu/big", {"gpu_count": "minimum"}, "fail")
    assert stage.get("queues/gpu%2Fbig") == made
    assert stage.get("queues")["queues"] == [made]
    assert stage.ask("PUT", "queues/gpu%2Fbig", json={})["properties"] == {}
    assert stage.get("queues/none", 404)["code"] == "queue.unknown"
    wrong = stage.ask("PUT", "queues/x", 422, json={"properties": {"a": "most"}})
    assert wrong["code"] == "field.type"
    assert stage.ask("PUT", "queues/x", 422, json={"propertes": {}})["hint"] == "Did you mean properties?"
    assert stage.ask("PUT", "queues/x", 422, json={"worker_timeout_ms": -1})["code"] == "field.value"
    task = {**shell("a"), "queue": "nowhere"}
    body = {"graph": {"name": "g", "tasks": [task]}}
    assert stage.post("runs", body, 404)["code"] == "queue.unknown"


def test_a_pool_is_defined_used_changed_and_dropped(stage: Stage):
    made = stage.ask("PUT", "pools/db", json={"slots": 2})
    assert (made["name"], made["slots"], made["taken"]) == ("db", 2, 0)
    run = stage.submit(shell("a", LONG, pools=[{"pool": "db", "key": "k"}]))
    until(lambda: stage.get("pools/db")["taken"], "a slot to be taken")
    assert stage.get("pools/db")["by_key"] == {"k": 1}
    assert [pool["name"] for pool in stage.get("pools")["pools"]] == ["db"]
    assert stage.ask("PUT", "pools/db", json={"slots": 5, "starts_per_minute": 60})["slots"] == 5
    stage.post(f"runs/{run['id']}/cancel")
    stage.ended(run["id"])
    stage.ask("DELETE", "pools/db", 204)
    assert stage.ask("DELETE", "pools/db", 404)["code"] == "pool.unknown"
    assert stage.get("pools/db", 404)["code"] == "pool.unknown"
    assert stage.ask("PUT", "pools/x", 422, json={"slots": -1})["code"] == "field.value"
    assert stage.ask("PUT", "pools/x", 422, json={"slots": "2"})["path"] == "slots"


def test_a_repeated_command_is_answered_and_not_repeated(stage: Stage):
    key = {"Idempotency-Key": "drop-once"}
    stage.ask("PUT", "pools/db", json={"slots": 2})
    stage.ask("DELETE", "pools/db", 204, headers=key)
    stage.ask("PUT", "pools/db", json={"slots": 2})
    stage.ask("DELETE", "pools/db", 204, headers=key)
    assert stage.get("pools/db")["slots"] == 2, "the second time it was only answered"
    assert stage.ask("DELETE", "pools/other", 409, headers=key)["code"] == "command.id_reused"


def test_tenants_have_shares_and_audits_say_who_asked(stage: Stage):
    assert stage.ask("PUT", "tenants/big%2Fone", json={"weight": 7}) == {"tenant": "big/one", "weight": 7}
    assert {"tenant": "big/one", "weight": 7} in stage.get("tenants")["tenants"]
    assert stage.ask("PUT", "tenants/x", 422, json={"weight": 0})["code"] == "field.value"
    assert stage.ask("PUT", "tenants/x", 422, json={})["code"] == "field.type"
    for slots in (1, 2, 3):
        stage.ask("PUT", "pools/db", json={"slots": slots}, headers={"Idempotency-Key": f"put-{slots}"})
    seen: list[str] = []
    path = "/api/v1/audit?limit=2"
    while path:
        response = stage.http.get(path)
        stage.check_shape("GET", path, response)
        seen += [audit["command_id"] for audit in response.json()["audits"]]
        path = response.links["next"]["url"] if "next" in response.links else ""
    assert [each for each in seen if each.startswith("put-")] == ["put-3", "put-2", "put-1"]
    assert {audit["actor"] for audit in stage.get("audit")["audits"]} == {"anyone"}
    assert stage.get("audit?after=x", 422)["path"] == "after"
