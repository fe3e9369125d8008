"""Spawners in a file: what is accepted, and what is refused with the place where it stands."""

from pathlib import Path

import pytest

from rota.config import load_config
from rota.config.spawners import SpawnerSettings
from rota.core.errors import Refused


def load(text: str, folder: Path) -> tuple[SpawnerSettings, ...]:
    path = folder / "rota.toml"
    path.write_text(text, encoding="utf-8")
    return load_config({}, {}, str(path)).spawners


def test_agents_and_workers_are_read_with_their_defaults(tmp_path: Path):
    text = """
[spawners.reviewers]
command = ["claude", "-p", "claim {item}"]
agent = "reviewer"
workspaces = ["*"]
capabilities = ["code.review"]

[spawners.more]
queues = ["gpu"]
properties = { gpu_count = 2 }
max_alive = 3
"""
    agents, workers = load(text, tmp_path)
    assert (agents.name, agents.agent, agents.max_alive, agents.cooldown_s) == ("reviewers", "reviewer", 1, 30)
    assert (workers.name, workers.command, workers.properties) == ("more", (), {"gpu_count": "2"})


def test_nothing_is_started_unless_the_file_says_so(tmp_path: Path):
    assert load("", tmp_path) == ()


@pytest.mark.parametrize(
    ("lines", "path", "word"),
    [
        ('command = ["x", "{token}"]', "spawners.a.command", "{session}"),
        ('command = ["x", "{"]', "spawners.a.command", "placeholder"),
        ('command = ["x", "y"]\nshell = true', "spawners.a.command", "one text"),
        ('command = ["x"]\nqueues = ["gpu"]', "spawners.a.queues", "agents"),
        ('agent = "writer"', "spawners.a.agent", "workers"),
        ("max_alive = 0", "spawners.a.max_alive", ">= 1"),
        ('cooldown_s = "soon"', "spawners.a.cooldown_s", "int"),
        ('command = ["x"]\nenv = ["A=b"]', "spawners.a.env", "variable"),
        ('command = ["x"]\nenv = ["ROTA_SERVER_STORE"]', "spawners.a.env", "own"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, lines: str, path: str, word: str):
    with pytest.raises(Refused) as caught:
        load(f"[spawners.a]\n{lines}\n", tmp_path)
    assert (caught.value.code, caught.value.path) == ("config.value", path)
    assert word in str(caught.value)
    assert "rota.toml:" in caught.value.hint


def test_a_key_that_does_not_exist_is_refused_with_the_nearest_one(tmp_path: Path):
    with pytest.raises(Refused, match="max_alive") as caught:
        load("[spawners.a]\nmax_alife = 1\n", tmp_path)
    assert caught.value.code == "config.unknown"


def test_a_token_in_the_file_is_refused(tmp_path: Path):
    with pytest.raises(Refused) as caught:
        load('[spawners.a]\ntoken = "s3cret"\n', tmp_path)
    assert caught.value.code == "config.secret"
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("text", ["spawners = 3\n", "[spawners]\na = 3\n"])
def test_spawners_are_tables(tmp_path: Path, text: str):
    with pytest.raises(Refused, match="table"):
        load(text, tmp_path)
