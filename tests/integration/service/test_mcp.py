"""Agents over MCP: a client of the `mcp` package speaks with `rota mcp`, which speaks with a real coordinator."""

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client

import rota
from tests.integration.deadlines import until
from tests.integration.service.stage import Stage, open_stage

PATIENCE_S = 60
AGENT = "the-token-of-the-agent"
ADMIN = "the-token-of-everybody-else"

Answer = dict[str, Any]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("mcp")) as one:
        one.start_server()
        yield one


class Agent:
    """The other side of `rota mcp`, and everything that it was told."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.heard: list[str] = []

    async def call(self, tool: str, /, **given: Any) -> Answer:
        result = await self.session.call_tool(tool, given)
        self.heard.append(result.model_dump_json())
        assert not result.is_error, result.content
        assert result.structured_content is not None
        return result.structured_content

    async def refused(self, tool: str, /, **given: Any) -> str:
        result = await self.session.call_tool(tool, given)
        self.heard.append(result.model_dump_json())
        assert result.is_error
        return " ".join(block.text for block in result.content if block.type == "text")


@asynccontextmanager
async def agent(stage: Stage, *words: str, env: dict[str, str] | None = None) -> AsyncIterator[Agent]:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "rota", "mcp", *words],
        env={**stage.env, "ROTA_COORDINATOR": stage.url, **(env or {})},
        cwd=str(stage.folder),
    )
    async with stdio_client(server) as (reading, writing), ClientSession(reading, writing) as session:
        await session.initialize()
        yield Agent(session)


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        with anyio.fail_after(PATIENCE_S):
            await scenario()

    anyio.run(within)


def submit(stage: Stage, title: str, **more: Any) -> str:
    return stage.client().submit_work(title, **more).id


def tokens_in(stage: Stage) -> Iterator[bytes]:
    for path in stage.folder.rglob("*"):
        if path.is_file():
            yield path.read_bytes()


def test_a_full_cycle(stage: Stage):
    first = submit(stage, "paint the fence", payload={"colour": "green"}, workspace="w1", requires=["paint"])

    async def scenario() -> None:
        async with agent(stage, "--workspace=w1", "--capability=paint", "--agent=painter", "--session=p1") as one:
            seen = await one.call("list_backlog", workspace="w1")
            assert [line["item"] for line in seen["items"]] == [first]
            claimed = await one.call("claim_work", wait_s=10)
            assert (claimed["item"], claimed["title"], claimed["payload"]) == (
                first,
                "paint the fence",
                {"colour": "green"},
            )
            assert (claimed["attempt"], int(claimed["fence"]) > 0, claimed["lease_ends_in_s"] > 200) == (1, True, True)
            assert "lease.held" in await one.refused("claim_work")
            mine = await one.call("my_work")
            assert (mine["session"], [each["item"] for each in mine["items"]]) == ("p1", [first])
            await one.call("report_progress", item=first, note="half green")
            shown = await one.call("why", item=first)
            assert (shown["state"], shown["session"], shown["note"]) == ("running", "p1", "half green")
            assert (await one.call("renew_work", item=first, minutes=1))["lease_ends_in_s"] <= 60
            assert "field.value" in await one.refused("renew_work", item=first, minutes=60)
            await one.call("complete_work", item=first, result={"litres": 3})
            ended = await one.call("why", item=first)
            assert (ended["state"], ended["result"], ended["reasons"]) == ("success", {"litres": 3}, [])
            assert (await one.call("my_work"))["items"] == []

    play(scenario)
    assert stage.client().item(first).result() == {"litres": 3}


@pytest.mark.full
def test_failing_releasing_and_finding_nothing(stage: Stage):
    async def scenario() -> None:
        async with agent(stage, "--workspace=w2") as one:
            assert (await one.call("claim_work"))["item"] is None
            item = (await one.call("submit_work", title="guess", max_attempts=1))["item"]
            assert (await one.call("claim_work", wait_s=10))["item"] == item
            await one.call("release_work", item=item)
            again = await one.call("claim_work", item=item, wait_s=10)
            assert again["attempt"] == 1, "it cost nothing"
            assert "field.value" in await one.refused("fail_work", item=item, error=" ")
            await one.call("fail_work", item=item, error="nobody knows")
            ended = await one.call("why", item=item)
            assert (ended["state"], ended["error"]) == ("failed", "nobody knows")

    play(scenario)


def test_every_refusal_has_a_code_and_says_what_to_do(stage: Stage):
    async def scenario() -> None:
        async with agent(stage, "--workspace=w3") as one:
            for tool, more in (
                ("renew_work", {}),
                ("complete_work", {}),
                ("release_work", {}),
                ("fail_work", {"error": "x"}),
                ("report_progress", {"note": "x"}),
            ):
                text = await one.refused(tool, item="work-nobody", **more)
                assert "lease.none" in text
                assert "Claim an item" in text
            assert "run.unknown" in await one.refused("why", item="work-nobody")
            assert "field.value" in await one.refused("submit_work", title="x", requires=["a b"])
            assert "field.value" in await one.refused("claim_work", least_priority="soonish")
            assert "field.size" in await one.refused("submit_work", title="x", payload="y" * 100_000)
            await one.refused("claim_work", wait_s=-1)
            await one.refused("no_such_tool")

    play(scenario)


@pytest.mark.full
def test_an_item_that_was_taken_away_is_not_the_agents_any_more(stage: Stage):
    item = submit(stage, "borrowed", workspace="w4")

    async def scenario() -> None:
        async with agent(stage, "--workspace=w4") as one:
            assert (await one.call("claim_work", wait_s=10))["item"] == item
            await anyio.to_thread.run_sync(lambda: stage.client().item(item).cancel())
            assert "lease." in await one.refused("complete_work", item=item, result=1)
            assert (await one.call("my_work"))["items"] == []

    play(scenario)


@pytest.mark.full
def test_why_tells_of_work_that_nobody_could_do(stage: Stage):
    item = submit(stage, "cook", workspace="w5", requires=["cook"])

    async def scenario() -> None:
        async with agent(stage, "--workspace=w5") as one:
            assert (await one.call("claim_work"))["item"] is None
            reasons = (await one.call("why", item=item))["reasons"]
            assert reasons
            assert "cook" in json.dumps(reasons)

    play(scenario)


def test_every_tool_says_when_to_use_it(stage: Stage):
    async def scenario() -> None:
        async with agent(stage) as one:
            tools = (await one.session.list_tools()).tools
            assert len(tools) == 10
            for tool in tools:
                assert len(tool.description or "") > 100, tool.name
                for name, field in tool.input_schema.get("properties", {}).items():
                    assert field.get("description"), f"{tool.name}: {name}"

    play(scenario)


def sessions(client: rota.Rota) -> list[str]:
    return [line.session for line in client.sessions()]


@pytest.mark.full
def test_the_session_lives_and_ends_with_the_process(stage: Stage):
    client = stage.client()
    item = submit(stage, "left behind", workspace="w6")

    async def scenario() -> None:
        async with agent(stage, "--workspace=w6", "--session=s6") as one:
            assert "s6" in await anyio.to_thread.run_sync(sessions, client)
            assert (await one.call("claim_work", wait_s=10))["item"] == item

    play(scenario)
    assert "s6" not in sessions(client)
    until(lambda: client.item(item).status().state == "queued", "the item to be given back")


@pytest.mark.full
def test_a_signal_ends_it_in_order(stage: Stage):
    client = stage.client()
    process = subprocess.Popen(
        [sys.executable, "-m", "rota", "mcp", "--session=s8"],
        env={**stage.env, "ROTA_COORDINATOR": stage.url},
        cwd=stage.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        until(lambda: "s8" in sessions(client), "the session to be there")
        process.terminate()
        # Nobody has hung up: its input is still open.
        assert process.wait(PATIENCE_S) == 0
        assert process.communicate()[0] == b""
        assert "s8" not in sessions(client)
    finally:
        process.kill()


@pytest.mark.full
def test_who_it_is_may_stand_in_the_environment(stage: Stage):
    item = submit(stage, "for the one", workspace="w7", requires=["a", "b"], owner="pool:reader")
    env = {"ROTA_WORKSPACE": "w7", "ROTA_CAPABILITIES": "a, b", "ROTA_AGENT": "reader", "ROTA_SESSION": "s7"}

    async def scenario() -> None:
        async with agent(stage, env=env) as one:
            assert (await one.call("claim_work", wait_s=10))["item"] == item

    play(scenario)


@pytest.mark.full
def test_no_token_is_ever_told_or_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    heard: list[str] = []
    with open_stage(tmp_path) as stage:
        stage.token = ADMIN
        stage.start_server(env={"ROTA_COORDINATOR_BEARER_TOKENS": f"admin:{ADMIN},agent+paint:{AGENT}"})
        item = submit(stage, "paint", requires=["paint"])

        async def scenario() -> None:
            env = {"ROTA_COORDINATOR_BEARER_TOKEN": AGENT}
            async with agent(stage, "--capability=paint", env=env) as one:
                heard.extend(one.heard)
                one.heard = heard
                assert (await one.call("claim_work", wait_s=10))["item"] == item
                await one.call("my_work")
                await one.call("report_progress", item=item, note="an agent may say how far it is")
                await one.refused("claim_work")
                assert "auth.role" in await one.refused("submit_work", title="more")
                await one.call("complete_work", item=item)
                await one.refused("complete_work", item=item)

        play(scenario)
        said = "".join(heard)
        assert "token" not in re.sub(r"\b(your|a) token\b", "", said).lower()
        for secret in (AGENT, ADMIN):
            assert secret not in said
        assert not any(AGENT.encode() in content for content in tokens_in(stage))


@pytest.mark.full
def test_a_session_that_its_token_does_not_allow_is_not_begun(tmp_path: Path):
    with open_stage(tmp_path) as stage:
        stage.start_server(env={"ROTA_COORDINATOR_BEARER_TOKENS": f"admin:{ADMIN},agent+paint:{AGENT}"})
        stage.env["ROTA_COORDINATOR_BEARER_TOKEN"] = AGENT
        ended = stage.run_command("mcp", "--capability=cook")
        assert (ended.returncode, ended.stdout) == (3, b"")
        assert b"auth.capability" in ended.stderr
        assert AGENT.encode() not in ended.stderr


@pytest.mark.full
def test_a_token_that_is_bound_to_a_workspace_works_there_and_nowhere_else(tmp_path: Path):
    with open_stage(tmp_path) as stage:
        stage.token = ADMIN
        entry = f"agent+*;workspaces=docs;agents=reviewer:{AGENT}"
        stage.start_server(env={"ROTA_COORDINATOR_BEARER_TOKENS": f"admin:{ADMIN},{entry}"})
        inside, outside = submit(stage, "in", workspace="docs"), submit(stage, "out", workspace="other")
        stage.env["ROTA_COORDINATOR_BEARER_TOKEN"] = AGENT
        for words in (("--workspace=other", "--agent=reviewer"), ("--workspace=docs", "--agent=writer"), ()):
            ended = stage.run_command("mcp", *words)
            assert (ended.returncode, ended.stdout) == (3, b"")
            assert b"auth.scope" in ended.stderr

        async def scenario() -> None:
            async with agent(stage, "--workspace=docs", "--agent=reviewer") as one:
                assert [each["item"] for each in (await one.call("list_backlog"))["items"]] == [inside]
                assert "auth.scope" in await one.refused("list_backlog", workspace="other")
                assert "auth.scope" in await one.refused("why", item=outside)
                assert (await one.call("why", item=inside))["state"] == "queued"
                assert (await one.call("claim_work", wait_s=10))["item"] == inside
                await one.call("complete_work", item=inside)
                assert (await one.call("why", item=inside))["state"] == "success"

        play(scenario)
