"""`rota debug dump` of a real service: everything is in it that there is, and no secret, wherever one was planted."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

import rota
from tests.integration.service.commands import type_in
from tests.integration.service.stage import Stage, open_stage

# Secrets of this very process, each planted somewhere else.
PLANTED = {
    where: f"planted-{where}-{token_hex(6)}"
    for where in ("token", "worker", "reader", "env", "url", "param", "error", "query", "label")
}
TOKENS = f"admin@*:{PLANTED['token']}\nreader@default:{PLANTED['reader']}"
SERVER = {"ROTA_COORDINATOR_BEARER_TOKENS": TOKENS, "ROTA_EXECUTOR_TASK_BEARER_TOKEN": PLANTED["worker"]}
PARTS = {
    "about.json",
    "audit.json",
    "backfills.json",
    "doctor.json",
    "failures.json",
    "journal.jsonl",
    "metrics.txt",
    "missing.json",
    "overview.json",
    "pools.json",
    "process.json",
    "queues.json",
    "runs.json",
    "scheduler.json",
    "settings.json",
    "tasks.txt",
    "tenants.json",
    "threads.txt",
    "workers.json",
    "workflows.json",
}


@rota.workflow
def leaking(password: str = ""):
    rota.command("exit 3", id="fails")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("dumped"), env=SERVER) as one:
        one.start_up()
        one.token = PLANTED["token"]
        client = one.client()
        labels = {"team": "a", "api_key": PLANTED["label"]}
        client.submit(leaking, {"password": PLANTED["param"]}, run="leaks", labels=labels).wait(60)
        client.run("leaks").note("fails", f"token={PLANTED['error']}")
        client.put_pool("warehouse", 2)
        yield one


def dump(stage: Stage, file: Path, *words: str) -> dict[str, str]:
    """The files of a dump."""
    env = {
        "ROTA_COORDINATOR_BEARER_TOKEN": PLANTED["token"],
        "AWS_SECRET_ACCESS_KEY": PLANTED["env"],
        "ROTA_SERVER_STORE": f"postgresql://rota:{PLANTED['url']}@db.example.org/rota?password={PLANTED['query']}",
    }
    answer = type_in(stage, "debug", "dump", "--output", str(file), *words, env=env)
    assert answer.code == 0, answer.err
    with tarfile.open(file) as tar:
        members = {member.name.removeprefix("rota-debug/"): tar.extractfile(member) for member in tar}
        return {name: content.read().decode() for name, content in members.items() if content is not None}


def test_everything_is_in_it_and_no_secret(stage: Stage, tmp_path: Path):
    parts = dump(stage, tmp_path / "one.tar.gz")
    assert set(parts) == PARTS
    assert json.loads(parts["missing.json"]) == {}
    for where, secret in PLANTED.items():
        assert [name for name, text in parts.items() if secret in text] == [], where
    assert json.loads(parts["about.json"])["rota"] == rota.__version__
    assert json.loads(parts["process.json"])["role"] == "leader"
    assert [pool["name"] for pool in json.loads(parts["pools.json"])] == ["warehouse"]
    (failure,) = json.loads(parts["failures.json"])
    assert (failure["id"], failure["failed"][0]["id"]) == ("leaks", "fails")
    assert "exit" in failure["failed"][0]["error"]
    assert "rota_is_leader 1.0" in parts["metrics.txt"]
    assert json.loads(parts["journal.jsonl"].splitlines()[0])["what"] == "reign.began"
    assert "MainThread" in parts["threads.txt"]
    assert "rota/control" in parts["tasks.txt"]
    settings = {each["setting"]: each for each in json.loads(parts["settings.json"])}
    assert settings["server.store"]["value"].startswith("postgresql://…@db.example.org/rota")
    assert settings["auth.token"]["value"] == "(set)"


def test_it_is_for_its_owner_alone_and_says_what_it_holds(stage: Stage, tmp_path: Path):
    file = tmp_path / "two.tar.gz"
    file.write_text("was here before", encoding="utf-8")
    file.chmod(0o644)
    dump(stage, file)
    assert file.stat().st_mode & 0o777 == 0o600
    env = {"ROTA_COORDINATOR_BEARER_TOKEN": PLANTED["token"]}
    answer = type_in(stage, "debug", "dump", "--output", str(file), "--json", env=env)
    told = json.loads(answer.out)
    assert (told["file"], told["bytes"], told["missing"]) == (str(file), file.stat().st_size, {})


def test_what_a_reader_may_not_see_is_missing_and_named(stage: Stage, tmp_path: Path):
    file = tmp_path / "three.tar.gz"
    env = {"ROTA_COORDINATOR_BEARER_TOKEN": PLANTED["reader"]}
    answer = type_in(stage, "debug", "dump", "--output", str(file), "--json", env=env)
    assert answer.code == 0, answer.err
    missing = json.loads(answer.out)["missing"]
    inside = "process.json, journal.jsonl, metrics.txt, threads.txt, tasks.txt"
    assert sorted(missing) == ["audit.json", inside, "tenants.json"]
    assert all(why.startswith("auth.") for why in missing.values())
