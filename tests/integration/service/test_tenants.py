"""Two tenants on one service, each with its token: neither sees, reaches or works for the other."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import rota
from tests.integration.service import tasks
from tests.integration.service.commands import type_in
from tests.integration.service.stage import Stage, open_stage, until_present, until_task

pytestmark = pytest.mark.full

PATIENCE_S = 60
ACME, OTHER, ACMES_WORKER = "acme-secret", "other-secret", "worker-secret"
TOKENS = f"admin@acme:{ACME},admin@other:{OTHER},worker@acme:{ACMES_WORKER}"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with open_stage(tmp_path) as one:
        one.start_server(env={"ROTA_COORDINATOR_BEARER_TOKENS": TOKENS})
        yield one
        assert not any("secret" in process.said() for process in one.processes)


def connect(stage: Stage, token: str) -> rota.Rota:
    return rota.connect(stage.url, token=token)


def command(stage: Stage, token: str, *words: str) -> str:
    answer = type_in(stage, *words, env={"ROTA_COORDINATOR_BEARER_TOKEN": token})
    return answer.out if answer.code == 0 else answer.err


def test_a_worker_with_a_tenants_token_is_that_tenants_without_further_settings(stage: Stage, tmp_path: Path):
    stage.start_worker("one", env={"ROTA_EXECUTOR_TASK_BEARER_TOKEN": ACMES_WORKER})
    with connect(stage, ACME) as acme, connect(stage, OTHER) as other:
        until_present(acme, "one")
        waiting = other.submit(tasks.step, {"folder": str(tmp_path)}, run="same-name")
        run = acme.submit(tasks.step, {"folder": str(tmp_path)}, run="same-name")
        assert run.wait(PATIENCE_S).state == "success"
        (worker,) = acme.workers()
        assert (worker.tenant, worker.capacity.tenants) == ("acme", ("acme",))
        assert other.workers() == ()
        until_task(other, "same-name", "step", "queued")
        (reason,) = waiting.why("step")
        assert reason.code == "worker.none_match"
        assert reason.about == (), "another tenant's worker is not named"
        assert "one" not in reason.text.replace(";", " ").replace(":", " ").split()
        assert len(tasks.lines(tmp_path, tasks.BEGAN)) == 1, "nothing of the other tenant was begun"


def test_a_worker_that_wants_to_be_of_another_tenant_is_told_and_gets_nothing(stage: Stage, tmp_path: Path):
    for name, more in (
        ("settled-elsewhere", {"ROTA_CLIENT_TENANT": "other"}),
        ("works-for-another", {"ROTA_WORKER_TENANTS": "acme,other"}),
    ):
        worker = stage.start_worker(name, env={"ROTA_EXECUTOR_TASK_BEARER_TOKEN": ACMES_WORKER, **more})
        worker.until_said("auth.tenant: ")
        assert re.search(r"auth\.tenant: .*'acme'.*'other'", worker.said())
    with connect(stage, OTHER) as other, connect(stage, ACME) as acme:
        assert other.workers() == acme.workers() == ()


def test_a_tenants_token_speaks_for_that_tenant_on_every_way(stage: Stage, tmp_path: Path):
    with connect(stage, ACME) as acme:
        acme.submit(tasks.step, {"folder": str(tmp_path)}, run="acmes")
        acme.put_pool("acmes", 1)
    assert [run["id"] for run in json.loads(command(stage, ACME, "runs", "--json"))] == ["acmes"]
    assert json.loads(command(stage, OTHER, "runs", "--json")) == []
    assert "run.unknown" in command(stage, OTHER, "cancel", "acmes")
    assert json.loads(command(stage, OTHER, "pools", "--json")) == []
    assert "auth.tenant" in command(stage, ACME, "tenants"), "shares concern all tenants"
    audited = json.loads(command(stage, ACME, "audit", "--json"))
    assert audited
    assert all(audit["actor"].startswith("admin@acme#") for audit in audited)
    assert json.loads(command(stage, OTHER, "audit", "--json")) == []
    for token, runs in ((ACME, ["acmes"]), (OTHER, [])):
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{stage.http_port}/api/v1/", headers=headers) as http:
            assert [run["id"] for run in http.get("runs").json()["runs"]] == runs
            assert http.get("runs/acmes").status_code == (200 if runs else 404)
    with pytest.raises(rota.Refused, match=r"auth\.tenant"):
        rota.connect(stage.url, token=ACME, tenant="other")


def test_tokens_that_are_set_and_empty_let_nobody_in(tmp_path: Path):
    with open_stage(tmp_path) as stage:
        stage.start_server(env={"ROTA_COORDINATOR_BEARER_TOKENS": ""})
        for token, code in (("", "auth.missing"), ("any", "auth.wrong")):
            with pytest.raises(rota.Refused) as caught:
                connect(stage, token)
            assert caught.value.code == code
        assert stage.get("/api/v1/runs").status_code == 401
        assert stage.get("/healthz").status_code == 200
