"""The audit: everything that somebody asked for and that changed something, by whichever way it came in."""

import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import httpx
import pytest

import rota
from rota.api.desk import is_audited
from rota.cli import main
from rota.core import commands as cm
from rota.core.calendar import ScheduleSpec
from rota.core.model import Graph, Param, Pool, Queue, TaskSpec
from rota.wire.builds import BUILD
from rota.wire.queries import QUERY
from tests.integration.http_stage import gate_of, shell, staged
from tests.integration.service.stage import open_stage

TENANT = "default"
NEVER = TaskSpec(id="a", kind="command", work=b"", requires=(("gpu_count", "8"),))
GRAPH = Graph(name="g", tasks=(NEVER,))
CRON = ScheduleSpec(cron="0 3 * * *")


def kinds(of: type = cm.ClientCommand) -> Iterator[type]:
    for each in of.__subclasses__():
        yield each
        yield from kinds(each)


@pytest.fixture(scope="module")
def one() -> Iterator[rota.Rota]:
    with rota.Rota.embedded(slots=0) as one:
        yield one


def ask(one: rota.Rota, command: cm.ClientCommand) -> None:
    one._thread.call(one._rota.ask(command))


def a_run(one: rota.Rota, name: str) -> str:
    return one.submit(GRAPH, run=name).id


def failed(one: rota.Rota, name: str) -> str:
    one.run(a_run(one, name)).mark("a", to="failed")
    return name


def deployed(one: rota.Rota, name: str, **more: Any) -> str:
    graph = Graph(name=name, tasks=(NEVER,))
    params = (Param(name="p", default=b"\xc0"),)
    ask(one, cm.DeployWorkflow(tenant=TENANT, command_id=f"deploy-{name}", graph=graph, params=params, **more))
    return name


def gated(one: rota.Rota, name: str) -> str:
    ask(one, cm.SubmitRun(tenant=TENANT, command_id=name, run=name, graph=GRAPH, needs_approval=True))
    return name


def backfilled(one: rota.Rota, name: str) -> str:
    one.backfill(deployed(one, name, schedule=CRON), "2026-01-01", "2026-01-02", backfill=f"{name}-past")
    return f"{name}-past"


def scheduled(one: rota.Rota, name: str) -> str:
    ask(one, cm.PutSchedule(tenant=TENANT, command_id=f"put-{name}", schedule=name, graph=GRAPH, spec=CRON))
    return name


def held(one: rota.Rota, name: str) -> str:
    item = one.submit_work("x", workspace=name)
    session = one.agent_session(name, workspace=name)
    session.register()
    assert session.claim(item=item.id)
    return item.id


CASES: dict[type, Callable[[rota.Rota], dict[str, Any]]] = {
    cm.SubmitRun: lambda one: {"run": "submitted", "graph": GRAPH},
    cm.ApproveRun: lambda one: {"run": gated(one, "gated"), "approved": True},
    cm.CancelRun: lambda one: {"run": a_run(one, "cancelled")},
    cm.PauseRun: lambda one: {"run": a_run(one, "paused"), "paused": True},
    cm.ClearTasks: lambda one: {"run": failed(one, "cleared")},
    cm.MarkTasks: lambda one: {"run": a_run(one, "marked"), "tasks": ("a",), "to": cm.Mark.SUCCESS},
    cm.RetryTasks: lambda one: {"run": failed(one, "retried")},
    cm.ReleaseTasks: lambda one: {"run": held(one, "holder"), "tasks": ()},
    cm.NoteTask: lambda one: {"run": a_run(one, "noted"), "task": "a", "note": "x"},
    cm.MoveRun: lambda one: {"run": one.trigger(moved(one)).id, "version": 2},
    cm.PutQueue: lambda one: {"queue": Queue(tenant=TENANT, name="q")},
    cm.PutPool: lambda one: {"pool": Pool(tenant=TENANT, name="p", slots=1)},
    cm.DropPool: lambda one: {"name": pool(one, "dropped")},
    cm.PutTenant: lambda one: {"weight": 3},
    cm.PutSchedule: lambda one: {"schedule": "s", "graph": GRAPH, "spec": CRON},
    cm.DropSchedule: lambda one: {"schedule": scheduled(one, "gone")},
    cm.DeployWorkflow: lambda one: {"graph": Graph(name="w1", tasks=(NEVER,))},
    cm.PauseWorkflow: lambda one: {"workflow": deployed(one, "w2"), "paused": True},
    cm.DropWorkflow: lambda one: {"workflow": deployed(one, "w3")},
    cm.StartBackfill: lambda one: {
        "backfill": "b1",
        "workflow": deployed(one, "w4", schedule=CRON),
        "start_at": 1_767_225_600_000,
        "end_at": 1_767_312_000_000,
    },
    cm.CancelBackfill: lambda one: {"backfill": backfilled(one, "w5")},
    cm.DrainWorker: lambda one: {"worker": session(one, "drained"), "draining": True},
    cm.ForgetWorker: lambda one: {"worker": session(one, "forgotten")},
    # Of nobody else: the others claim, whatever their order.
    cm.PauseScheduler: lambda one: {"scope": "workspace=paused", "paused": True},
}
# What is not typed here, and why.
NOT_HERE = {
    cm.ClaimTask: "an agent's: its lease says who has it",
    cm.EndQuarantine: "needs a worker in quarantine: tests/unit/core/test_matching.py",
    cm.GrowRun: "a task's, or a program's about its own run",
    cm.ResolveTask: "needs a parked task, see tests/integration/agents/test_scheduler.py; audited as the others are",
    cm.LoseOutputs: "a worker's word about what it kept",
    cm.SteerStream: "needs a stream: tests/integration/queries/test_streams_watched.py",
}


def moved(one: rota.Rota) -> str:
    deployed(one, "w6")
    other = Graph(name="w6", tasks=(NEVER, TaskSpec(id="b", kind="command", work=b"")))
    ask(one, cm.DeployWorkflow(tenant=TENANT, command_id="deploy-w6-2", graph=other))
    return "w6"


def pool(one: rota.Rota, name: str) -> str:
    one.put_pool(name, 1)
    return name


def session(one: rota.Rota, name: str) -> str:
    one.agent_session(name).register()
    return name


def test_every_command_is_audited_here_or_has_a_reason_not_to_be():
    assert set(kinds()) == set(CASES) | set(NOT_HERE)


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_a_command_that_changed_something_is_audited_with_who_asked(one: rota.Rota, kind: type):
    fields = CASES[kind](one)
    if kind is cm.MoveRun:
        # It was made of the newest version already.
        fields["version"] = 1
    ask(one, kind(tenant=TENANT, command_id=f"one {kind.__name__}", **fields))
    found = {audit.command_id: audit for audit in one.audits(200)}
    audit = found[f"one {kind.__name__}"]
    assert (audit.command, audit.tenant) == (kind.__name__, TENANT)
    assert audit.actor


def test_actions_of_builds_and_queries_are_not_audited_one_by_one():
    def submitted(**more: Any) -> cm.SubmitRun:
        return cm.SubmitRun(tenant=TENANT, command_id="c", run="r", **more)

    assert is_audited(submitted(graph=GRAPH))
    assert is_audited(submitted(workflow="etl"))
    assert not is_audited(submitted(graph=Graph(name="g", tasks=(NEVER,), kind=QUERY)))
    assert not is_audited(submitted(graph=Graph(name="g", tasks=(NEVER,), kind=BUILD)))
    assert not is_audited(submitted(digest="d", merge="action"))


def test_whoever_asked_is_named_by_role_tenant_and_fingerprint_and_never_by_token():
    with staged(gate=gate_of("admin@*:secret-of-ada\nwriter@default:secret-of-bob")) as stage:
        stage.http.headers["Authorization"] = "Bearer secret-of-bob"
        stage.submit(shell("a", requires={"gpu_count": "8"}), run="r")
        stage.post("runs/r/cancel", {"reason": "x"})
        stage.http.headers["Authorization"] = "Bearer secret-of-ada"
        stage.ask("PUT", "pools/p", json={"slots": 1})
        audits = stage.get("audit")["audits"]
    assert [audit["command"] for audit in audits] == ["PutPool", "CancelRun", "SubmitRun"]
    assert audits[0]["actor"].startswith("admin@*#")
    assert audits[1]["actor"].startswith("writer@default#") and audits[1]["actor"] == audits[2]["actor"]
    assert "secret-of" not in str(audits)


def way_socket(stage: Any, name: str) -> None:
    with rota.Rota.open(stage.folder_of_server) as client:
        assert not client.is_host
        client.put_pool(name, 1)


def way_command_line(stage: Any, name: str) -> None:
    assert main(["pools", "set", name, "--slots", "1", "--data", str(stage.folder_of_server)]) == 0


def way_grpc(stage: Any, name: str) -> None:
    with rota.Rota.connect(stage.url) as client:
        client.put_pool(name, 1)


def way_http(stage: Any, name: str) -> None:
    httpx.put(f"{stage.http_url}/api/v1/pools/{name}", json={"slots": 1}).raise_for_status()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with open_stage(tmp_path_factory.mktemp("ways")) as stage:
        process = stage.start_up()
        said = process.until_ready()
        stage.folder_of_server = process.folder  # pyright: ignore[reportAttributeAccessIssue] - for the ways above
        stage.http_url = said.split(" and ")[1].split(";")[0]  # pyright: ignore[reportAttributeAccessIssue] - likewise
        yield stage


@pytest.mark.parametrize("way", [way_socket, way_command_line, way_grpc, way_http], ids=lambda way: way.__name__[4:])
def test_every_way_in_is_audited(service: Any, way: Callable[[Any, str], None]):
    with patch.dict(os.environ, service.env):
        way(service, way.__name__)
        with rota.Rota.connect(service.url) as client:
            found = [audit for audit in client.audits(10) if way.__name__ in audit.about]
    assert [(audit.command, bool(audit.actor)) for audit in found] == [("PutPool", True)]
