"""The ladder with real processes: who could do what nobody can is started; what nobody ever could is parked."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.core.ladder import PARKED_UNSERVED
from rota.core.model import TaskSpec
from rota.wire.work import CommandWork, encode_work
from tests.integration.deadlines import is_running, until
from tests.integration.service.stage import Process, Stage, open_stage, worker_named

pytestmark = pytest.mark.full

AGENT = Path(__file__).parents[3] / "examples" / "agent" / "agent.py"
SECRET = "the-token-of-whom-is-started"
# A short lease: starving begins to count when workers of before have had half of one to come back.
LEASE_S = 12


def start(stage: Stage, spawners: str, *, sweep_s: int = 1, **env: str) -> Process:
    """Start a service with a short ladder. Six sweeps are the time that a started session has before parking."""
    ladder = f"[server]\nstarve_s = 1\nsweep_s = {sweep_s}\n"
    (stage.folder / "rota.toml").write_text(f"{ladder}\n{spawners}", encoding="utf-8")
    return stage.start_up("--slots=1", env=env)


def journal(process: Process, what: str) -> list[dict[str, str]]:
    lines = [json.loads(line) for line in process.said().splitlines() if line.startswith("{")]
    return [line for line in lines if line["what"] == what]


def agents(*command: str, **more: object) -> str:
    words = command or (sys.executable, str(AGENT), "--idle=2")
    fields = {"command": list(words), **more}
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    return "\n".join(["[spawners.helpers]", 'agent = "helper"', 'workspaces = ["*"]', "cooldown_s = 1", *lines])


def paint(client: rota.Rota, **more: Any) -> Any:
    return client.submit_work("paint it", {"text": "green green"}, requires=["paint"], **more)


def until_parked(item: Any) -> Any:
    def look() -> Any:
        view = item.status()
        return view if view.state == "needs_attention" else None

    return until(look, f"{item.id} to be parked", 60)


def test_an_item_that_nobody_can_do_gets_an_agent_that_does_it(tmp_path: Path):
    with open_stage(tmp_path, lease_s=LEASE_S) as stage:
        (tmp_path / "agent.token").write_text(SECRET, encoding="utf-8")
        stage.token = "the-token-of-the-client"
        table = agents(capabilities=["paint"], token_file=str(tmp_path / "agent.token"))
        tokens = f"admin:{stage.token},agent+paint:{SECRET}"
        process = start(stage, table, sweep_s=3, ROTA_COORDINATOR_BEARER_TOKENS=tokens)
        item = paint(stage.client(), workspace="docs")
        assert item.result(timeout_s=60) == {"green": 2}
        process.until_said("spawner.ended")
        # On a slow machine another one may be asked for before the first has come.
        started, ended = journal(process, "spawner.started")[0], journal(process, "spawner.ended")[0]
        assert (started["spawner"], started["run"], ended["how"]) == ("helpers", item.id, "well")
        assert stage.metric("rota_spawns_total")['outcome="started"'] >= 1
        assert SECRET not in process.said()
        assert started["session"] in Path(started["log"]).read_text()
        assert SECRET not in Path(started["log"]).read_text()


def test_what_nothing_fits_is_parked_with_its_reason_and_can_be_given_other_requirements(tmp_path: Path):
    with open_stage(tmp_path, lease_s=LEASE_S) as stage:
        process = start(stage, agents(capabilities=["paint"]))
        client = stage.client()
        items = [client.submit_work("cook", {"text": "soup"}, requires=["cook"]) for _ in range(3)]
        for item in items:
            view = until_parked(item)
            assert view.error.startswith(PARKED_UNSERVED)
            assert (item.why()[0].code, view.attempt) == ("attention.parked", 0)
        starved = journal(process, "task.starved")
        assert {line["run"] for line in starved} == {item.id for item in items}
        assert all(line["level"] == "warning" and "cook" in line["reason"] for line in starved)
        assert journal(process, "spawner.started") == []
        assert stage.metric("rota_starved_tasks_total")['tier="park"'] == 3
        assert stage.metric("rota_spawns_total")['outcome="unresolvable"'] > 0
        again, failed, cancelled = items
        failed.resolve("fail")
        cancelled.resolve("cancel")
        again.requeue(requires=["paint"])
        assert again.result(timeout_s=60) == {"soup": 1}
        attempts = [item.status().attempt for item in items]
        assert attempts == [1, 0, 0], "nothing was charged for being parked"
        assert failed.status().state == "failed"


def test_children_end_with_the_service_and_bad_ends_are_told(tmp_path: Path):
    with open_stage(tmp_path, lease_s=LEASE_S) as stage:
        words = ("sh", "-c", "sleep 600")
        process = start(stage, agents(*words, capabilities=["paint"]))
        paint(stage.client())
        process.until_said("spawner.started")

        def living() -> int | None:
            pids = [int(one["pid"]) for one in journal(process, "spawner.started")]
            return next(filter(is_running, pids), None)

        pid = until(living, "a child that lives")
        process.popen.terminate()
        assert process.ended() == 0
        assert pid is not None and not is_running(pid)


def test_children_end_with_a_service_that_is_killed(tmp_path: Path):
    with open_stage(tmp_path, lease_s=LEASE_S) as stage:
        process = start(stage, agents("sleep", "600", capabilities=["paint"]))
        paint(stage.client())
        process.until_said("spawner.started")
        started = journal(process, "spawner.started")[0]
        process.kill()
        until(lambda: not is_running(int(started["pid"])), "the child to end")


def test_agents_that_would_be_let_in_nowhere_are_refused_at_the_start(tmp_path: Path):
    (tmp_path / "rota.toml").write_text(agents(), encoding="utf-8")
    with open_stage(tmp_path, lease_s=LEASE_S) as stage:
        env = {"ROTA_COORDINATOR_BEARER_TOKENS": f"admin:{SECRET}"}
        words = ["server", "--listen=127.0.0.1:0", "--http="]
        process = stage.start("server", tmp_path, words, env, wait=False)
        assert process.ended() == 3
        assert "spawners.helpers.token_file" in process.said()
        assert SECRET not in process.said()


@pytest.mark.parametrize(("command", "what"), [("false", "spawner.ended"), ("/no/such/program", "spawner.failed")])
def test_whoever_ends_badly_is_told_and_the_climb_goes_on(tmp_path: Path, command: str, what: str):
    with open_stage(tmp_path, lease_s=LEASE_S) as stage:
        process = start(stage, agents(command, capabilities=["paint"]))
        item = paint(stage.client())
        process.until_said(what)
        assert journal(process, what)[0]["level"] == "warning"
        until_parked(item)


def test_a_task_that_no_worker_here_can_run_gets_a_worker(tmp_path: Path):
    table = '[spawners.more]\nproperties = { rack = "b7" }\ncooldown_s = 1\n[worker.properties]\nrack = "a1"\n'
    with open_stage(tmp_path, lease_s=LEASE_S) as stage:
        start(stage, table, sweep_s=3)
        client = stage.client()
        work = encode_work(CommandWork(shell="true"))
        run = client.submit(TaskSpec(id="t", kind="command", work=work, requires=(("rack", "b7"),)))
        worker = until(lambda: worker_named(client, "more-1"), "a worker to come", 60)
        assert ("rack", "b7") in worker.capacity.properties
        assert run.wait(60).state == "success"
        (settings,) = tmp_path.rglob("spawned/more-1/rota.json5")
        (remembered,) = tmp_path.rglob("spawned/more-1/worker/cluster")
        told = json.loads(settings.read_text())["worker"]["cluster"]
        assert told == remembered.read_text().strip(), "its coordinator has told it the cluster"
