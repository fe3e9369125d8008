"""A task's own variables never replace those that Rota sets, wherever they are written."""

from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota.api.http.bodies import WORKS, CommandBody
from rota.core.errors import Refused
from rota.testing import run_workflow
from rota.wire.reapi import remote_execution_pb2 as rx
from rota.wire.work import CommandWork, PythonWork, Unprepared, prepared_command
from rota.worker.environment import of_attempt
from rota.worker.runners.builds.actions import read_command
from tests.integration.worker.stage import Stage, staged

# Those that are set today, and names that may be set one day.
NAMES = (
    "ROTA_FENCE",
    "ROTA_TENANT",
    "ROTA_RUN",
    "ROTA_TASK",
    "ROTA_ATTEMPT",
    "ROTA_BUNDLE",
    "ROTA_SUPERVISOR",
    "ROTA_X",
)
ALLOWED = ("ROTATION", "MY_ROTA_FENCE", "rota_fence", "ROTA")


def written_call(env: dict[str, str]) -> None:
    @rota.workflow
    def one() -> None:
        rota.command("true", env=env)

    one.build()


def written_template(env: dict[str, str]) -> None:
    @rota.workflow
    def one() -> None:
        rota.command("echo {{ ds }}", env=dict.fromkeys(env, "{{ ds }}"))

    one.build()


def written_task(env: dict[str, str]) -> None:
    @rota.task.command(env=env)
    def line() -> str:
        return "true"

    del line


def submitted(env: dict[str, str]) -> None:
    WORKS["command"](CommandBody(shell="true", env=env), "graph.tasks[0].command")


@pytest.mark.parametrize("write", [written_call, written_template, written_task, submitted])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_refused_where_it_is_written(write: Callable[[dict[str, str]], None], name: str) -> None:
    with pytest.raises(Refused) as refused:
        write({"A": "1", name: "2"})
    assert refused.value.code == "field.reserved"
    assert refused.value.path.endswith(f"env.{name}")


@pytest.mark.parametrize("write", [written_call, written_template, written_task, submitted])
@pytest.mark.parametrize("name", ALLOWED)
def test_other_names_are_free(write: Callable[[dict[str, str]], None], name: str) -> None:
    write({name: "1"})


@pytest.mark.parametrize("name", NAMES)
def test_a_function_that_returns_one_gives_no_command(name: str) -> None:
    with pytest.raises(Unprepared, match=r"field\.reserved"):
        prepared_command(CommandWork(call=PythonWork()), {"line": "true", "env": {"A": 1, name: 2}})
    assert prepared_command(CommandWork(), {"line": "true", "env": {"A": 1}}).env == (("A", "1"),)


def test_such_a_task_fails_with_the_code() -> None:
    @rota.task.command
    def line() -> dict[str, Any]:
        return {"line": "true", "env": {"ROTA_FENCE": "1"}}

    @rota.workflow
    def one() -> None:
        line()

    run = run_workflow(one)
    assert run.state == "failed"
    assert "field.reserved" in run.tasks["line"].error


@staged()
async def test_a_graph_that_was_not_checked_cannot_set_one_either_and_the_log_says_so(stage: Stage) -> None:
    env = (("A", "mine"), *((name, "forged") for name in NAMES))
    offer = stage.offer(CommandWork(shell="env", env=env))
    over = await stage.run(offer)
    assert over.error == ""
    lines = stage.log().decode().splitlines()
    (told,) = (line for line in lines if "field.reserved" in line)
    assert all(name in told for name in NAMES)
    found = dict(line.split("=", 1) for line in lines if line != told and "=" in line)
    assert found["A"] == "mine"
    assert {name: found[name] for name in of_attempt(offer)} == of_attempt(offer)
    assert "forged" not in found.values()


def test_an_action_of_a_build_has_the_variables_that_were_sent() -> None:
    """They are part of its digest, and Rota sets none there that they could replace."""
    variables = [rx.Command.EnvironmentVariable(name=name, value="sent") for name in NAMES]
    command = read_command(rx.Command(arguments=["x"], environment_variables=variables).SerializeToString())
    assert command.env == dict.fromkeys(NAMES, "sent")
