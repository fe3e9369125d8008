"""What spawners start, and what those find around them: words, environment, secrets, ends."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from rota.config.spawners import SpawnerSettings
from rota.core.model import Capacity
from rota.kinds.agent.matching import capacity_of, demand_of, requires_of
from rota.ports import Wanted
from rota.worker.spawners import AgentSpawner, Surroundings, WorkerSpawner, workers
from rota.worker.spawners.processes import LOGS_KEPT
from tests.integration.deadlines import until_so

SECRET = "token-of-the-agent"
AROUND = {"PATH": os.environ["PATH"], "MODEL_KEY": "m", "ROTA_COORDINATOR_BEARER_TOKENS": "all-of-them", "OTHER": "o"}


def wanted(workspace: str = "", channel: str = "") -> Wanted:
    return Wanted("default", "item-1", demand_of(requires_of(workspace=workspace, channel=channel)))


def around(folder: Path) -> Surroundings:
    return Surroundings("grpc://127.0.0.1:7433", folder, AROUND, {"ROTA_CLIENT_CA": "ca.pem"})


def agents(folder: Path, *command: str, **more: object) -> AgentSpawner:
    settings = msgspec.convert({"name": "helpers", "command": command or ("true",), **more}, SpawnerSettings)
    return AgentSpawner(
        settings,
        around(folder),
        lambda workspace, channel: capacity_of("", workspace=workspace, channel=channel),
        lambda: SECRET,
    )


def test_placeholders_are_filled_in_once_and_braces_are_kept(tmp_path: Path):
    spawner = agents(tmp_path, "run", "--as={session}", "{{x}}", "{workspace}/{item}", workspaces=["*"])
    words = spawner.words(spawner.values(wanted(workspace="{agent}"), "s-1"))
    assert words == ["run", "--as=s-1", "{x}", "{agent}/item-1"]


def test_no_value_is_a_piece_of_a_program_for_a_shell(tmp_path: Path):
    spawner = agents(tmp_path, "echo {workspace} | cat", shell=True, workspaces=["*"])
    words = spawner.words(spawner.values(wanted(workspace="a; rm -rf b"), "s-1"))
    assert words == ["/bin/sh", "-c", "echo 'a; rm -rf b' | cat"]


def test_without_a_shell_nothing_is_one(tmp_path: Path):
    spawner = agents(tmp_path, "echo", "{workspace}", workspaces=["*"])
    assert spawner.words(spawner.values(wanted(workspace="$(id)"), "s-1")) == ["echo", "$(id)"]


def test_an_agent_is_told_who_it_is_and_gets_its_token_and_nobody_elses(tmp_path: Path):
    spawner = agents(tmp_path, agent="writer", capabilities=["a", "b"], env=["MODEL_KEY"])
    values = spawner.values(wanted(), "s-1")
    found = spawner.environment(values)
    assert found["ROTA_COORDINATOR_BEARER_TOKEN"] == SECRET
    assert (found["ROTA_SESSION"], found["ROTA_AGENT"], found["ROTA_CAPABILITIES"]) == ("s-1", "writer", "a,b")
    assert (found["ROTA_COORDINATOR"], found["ROTA_CLIENT_CA"]) == ("grpc://127.0.0.1:7433", "ca.pem")
    assert found["MODEL_KEY"] == "m"
    assert not {"OTHER", "ROTA_COORDINATOR_BEARER_TOKENS"} & set(found)
    assert SECRET not in " ".join((*spawner.words(values), *values.values()))


@pytest.mark.parametrize(
    ("workspaces", "asked", "place"),
    [
        ([], "", "-"),
        (["*"], "", "-"),
        (["*"], "docs", "docs"),
        (["docs", "site"], "site", "site"),
        (["docs", "site"], "other", "docs"),
        ([], "docs", "-"),
    ],
)
def test_an_agent_is_offered_where_the_work_is_if_its_spawner_goes_there(
    tmp_path: Path, workspaces: list[str], asked: str, place: str
):
    offered = agents(tmp_path, workspaces=workspaces).offer(wanted(workspace=asked))
    assert dict(offered.properties)["workspace"] == place


def test_what_an_agent_prints_is_in_a_file_and_its_end_is_told(tmp_path: Path):
    async def scenario() -> tuple[str, dict[str, str]]:
        child = await agents(tmp_path, "sh", "-c", "echo here is $ROTA_SESSION; exit 3").start(wanted())
        return await child.ended(), dict(child.about)

    how, about = asyncio.run(scenario())
    assert how == "ended with code 3"
    assert Path(about["log"]).read_text() == f"here is {about['session']}\n"
    assert Path(about["log"]).stat().st_mode & 0o077 == 0
    assert SECRET not in str(about)


def test_one_that_ended_well_has_nothing_to_tell(tmp_path: Path):
    async def scenario() -> str:
        return await (await agents(tmp_path, "true").start(wanted())).ended()

    assert asyncio.run(scenario()) == ""


def test_whoever_does_not_listen_is_ended_anyway_with_what_it_started(tmp_path: Path):
    async def scenario() -> str:
        child = await agents(tmp_path, "sh", "-c", "trap '' TERM; sleep 600 & echo ready; wait; wait").start(wanted())
        log = Path(dict(child.about)["log"])
        await until_so(lambda: "ready" in log.read_text(), "the child to be ready")
        await child.stop(0.05)
        return await child.ended()

    assert asyncio.run(scenario()) == "ended by SIGKILL"


def test_a_program_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        asyncio.run(agents(tmp_path, "/no/such/program").start(wanted()))


def test_old_logs_go(tmp_path: Path):
    for number in range(LOGS_KEPT + 5):
        path = tmp_path / f"helpers-{number}.log"
        path.touch()
        os.utime(path, (number, number))

    async def scenario() -> None:
        await (await agents(tmp_path, "true").start(wanted())).ended()

    asyncio.run(scenario())
    left = sorted(path.name for path in tmp_path.glob("*.log"))
    assert len(left) == LOGS_KEPT + 1
    assert "helpers-4.log" not in left


def test_workers_have_numbered_folders_and_their_token_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers, "COMMAND", ("true",))
    settings = SpawnerSettings(name="more", max_alive=2)
    table = {"slots": 3, "properties": {"rack": "b7"}}
    spawner = WorkerSpawner(
        settings, around(tmp_path), Capacity(slots=3), table, lambda: {"ROTA_EXECUTOR_TASK_BEARER_TOKEN": SECRET}
    )

    async def scenario() -> list[str]:
        first, second = await spawner.start(wanted()), await spawner.start(wanted())
        names = [dict(child.about)["worker"] for child in (first, second)]
        assert await first.ended() == ""
        third = await spawner.start(wanted())
        await second.ended()
        await third.ended()
        return [*names, dict(third.about)["worker"]]

    assert asyncio.run(scenario()) == ["more-1", "more-2", "more-1"]
    text = (tmp_path / "more-1" / "rota.json5").read_text()
    assert msgspec.json.decode(text) == {
        "worker": {**table, "name": "more-1", "data": str(tmp_path / "more-1" / "worker")}
    }
    assert SECRET not in text
