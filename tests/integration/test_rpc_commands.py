"""Commands about a coordinator elsewhere: `--coordinator`, or the variable for it."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota.cli import main
from tests.integration.far import ADMIN, Service, service

Say = Callable[..., tuple[int, str, str]]

PROGRAM = """
import rota

@rota.workflow
def hello():
    rota.command("echo hello", id="say")
"""


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("ROTA_COORDINATOR_BEARER_TOKEN", ADMIN)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    with service(tmp_path) as one:
        one.add_worker(lambda line: None)
        yield one


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def run(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_every_command_reaches_a_coordinator_elsewhere(far: Service, say: Say):
    there = ("--coordinator", far.url)
    code, _, told = say("run", "program.py", "--id", "one", *there)
    assert code == 0, told
    assert re.search(rf"^run one\b.*\bhello\b.* {far.url}$", told, re.MULTILINE)
    assert json.loads(say("runs", "--json", *there)[1])[0]["id"] == "one"
    assert "success" in say("tasks", "one", *there)[1]
    assert "has ended" in say("why", "one", "say", *there)[1]
    assert say("logs", "one", "say", *there)[1] == "hello\n"
    assert "success" in say("story", "one", *there)[1]
    assert say("cancel", "one", *there)[:2] == (0, "one: success\n")
    assert not Path(".rota").exists(), "nothing was made here"


def test_the_variable_counts_unless_a_folder_is_named(far: Service, say: Say, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROTA_COORDINATOR", far.url)
    assert say("runs") == (0, "", "no runs\n")
    code, _, told = say("runs", "--data", "here")
    assert (code, bool(re.search(r"store\.missing: .*\bhere\b", told))) == (3, True)


def test_one_place_is_named_and_not_two(far: Service, say: Say, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        say("runs", "--data", "here", "--coordinator", far.url)
    assert "not allowed with" in capsys.readouterr().err
    code, _, told = say("run", "program.py", "--slots", 2, "--coordinator", far.url)
    assert (code, bool(re.search(r"field\.value: .*\(at --slots\)", told))) == (3, True)


def test_trouble_is_one_line_and_an_exit_code(far: Service, say: Say, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROTA_COORDINATOR_BEARER_TOKEN", "wrong")
    code, out, told = say("runs", "--coordinator", far.url)
    assert (code, out, told.count("\n")) == (3, "", 1)
    assert told.startswith("rota: auth.wrong: ")
    code, _, told = say("runs", "--coordinator", "http://host")
    assert (code, bool(re.search(r"config\.value: .*\(at client\.coordinator\)", told))) == (3, True)
    monkeypatch.setenv("ROTA_COORDINATOR_BEARER_TOKEN", ADMIN)
    code, _, told = say("runs", "--coordinator", "grpc://localhost:1")
    assert (code, told.count("\n")) == (4, 1)
    assert re.match(r"rota: leader\.none: .*grpc://localhost:1\b", told)
