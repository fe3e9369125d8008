"""`rota doctor` shows every setting with its source, judges it as a coordinator would, and never shows a secret."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from rota.cli import main
from rota.config import SETTINGS, fingerprint

Doctor = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """What it finds in an empty folder, without any variables but those that are given."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("ROTA_")]:
        monkeypatch.delenv(name)

    def run(*words: str, **env: str) -> tuple[int, dict[str, Any]]:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        code = main(["doctor", *words, "--json"])
        out = capsys.readouterr().out
        assert "hush" not in out
        assert main(["doctor", *words]) == code
        text = capsys.readouterr().out
        assert "hush" not in text
        return code, json.loads(out)

    return run


def values(said: dict[str, Any]) -> dict[str, tuple[object, str]]:
    return {each["setting"]: (each["value"], each["source"]) for each in said["settings"]}


def texts(said: dict[str, Any], what: str) -> list[tuple[str, str]]:
    return [(each["grade"], each["text"]) for each in said["findings"] if each["what"] == what]


def test_every_setting_is_shown_with_where_it_came_from(doctor: Doctor, tmp_path: Path):
    (tmp_path / "rota.toml").write_text("[server]\nkeep_days = 7\nblobs = 's3://me:hush@b/x'\n[pools.db]\nslots = 2\n")
    code, said = doctor("--data", "here", ROTA_WORKER_QUEUES="a,b", ROTA_COORDINATOR_BEARER_TOKEN="hush")
    found = values(said)
    assert code == 0
    assert [each.path for each in SETTINGS] == list(found)[: len(SETTINGS)]
    assert found["server.keep_days"] == (7, "rota.toml:2")
    assert found["server.blobs"] == ("s3://…@b/x", "rota.toml:3")
    assert found["server.data"] == ("here", "option")
    assert found["worker.queues"] == (["a", "b"], "ROTA_WORKER_QUEUES")
    assert found["server.listen"] == ("127.0.0.1:7433", "default")
    assert found["auth.token"] == ("(set)", "ROTA_COORDINATOR_BEARER_TOKEN")
    pool, source = found["pools.db"]
    assert isinstance(pool, dict)
    assert (pool["slots"], source) == (2, "rota.toml")


def test_a_file_that_is_wrong_is_a_finding(doctor: Doctor, tmp_path: Path):
    (tmp_path / "rota.toml").write_text("[server]\nlissten = 'x'\n")
    code, said = doctor()
    assert code == 1
    ((grade, text),) = texts(said, "settings")
    assert grade == "fail"
    assert re.search(r"'listen'.*\brota\.toml:2\b", text)
    assert texts(said, "disk"), "the rest is looked at all the same"


def test_tokens_are_shown_by_role_tenant_and_fingerprint(doctor: Doctor, tmp_path: Path):
    file = tmp_path / "tokens"
    file.write_text("writer@acme:hush-1")
    file.chmod(0o644)
    env = {"ROTA_COORDINATOR_BEARER_TOKEN_FILE": str(file), "ROTA_COORDINATOR_BEARER_TOKENS": "hush-2"}
    code, said = doctor(**env)
    assert code == 0
    listed, warned = texts(said, "tokens")
    assert listed == ("ok", f"admin@default#{fingerprint('hush-2')}, writer@acme#{fingerprint('hush-1')}")
    assert (warned[0], str(file) in warned[1]) == ("warn", True)


@pytest.mark.parametrize(
    ("env", "grade", "text"),
    [
        ({}, "ok", "not configured"),
        ({"ROTA_COORDINATOR_BEARER_TOKENS": ""}, "ok", "none"),
        ({"ROTA_COORDINATOR_BEARER_TOKENS": "hush:hush"}, "fail", "role"),
        ({"ROTA_COORDINATOR_BEARER_TOKEN_FILE": "gone"}, "fail", "No such file"),
    ],
)
def test_what_would_happen_to_callers_is_said(doctor: Doctor, env: dict[str, str], grade: str, text: str):
    code, said = doctor(**env)
    assert code == (1 if grade == "fail" else 0)
    ((found, words),) = texts(said, "tokens")
    assert found == grade
    assert text in words


def test_listening_to_other_machines_without_tokens_is_a_finding(doctor: Doctor):
    code, said = doctor(ROTA_SERVER_LISTEN="0.0.0.0:7433")
    ((grade, text),) = texts(said, "exposure")
    assert (code, grade, text.startswith("auth.exposed: 0.0.0.0:7433")) == (1, "fail", True)


def test_tokens_in_the_clear_and_misspelt_variables_are_warned_about(doctor: Doctor):
    code, said = doctor(
        ROTA_SERVER_LISTEN="0.0.0.0:7433", ROTA_COORDINATOR_BEARER_TOKENS="hush", ROTA_HEARTBEAT_TIMEOUT_SEC="3"
    )
    assert code == 0
    assert [grade for grade, _ in texts(said, "exposure")] == ["warn"]
    ((grade, text),) = texts(said, "environment")
    assert (grade, "ROTA_HEARTBEAT_TIMEOUT_SEC" in text) == ("warn", True)


def test_certificates_are_judged(doctor: Doctor, tmp_path: Path):
    issued = trustme.CA().issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    code, said = doctor(ROTA_TLS_CERT="cert.pem", ROTA_TLS_KEY="key.pem")
    assert (code, [grade for grade, _ in texts(said, "tls")]) == (0, ["ok"])
    code, said = doctor(ROTA_TLS_CLIENT_CA="gone.pem")
    assert (code, [grade for grade, _ in texts(said, "tls")]) == (1, ["fail"])


def test_the_engine_for_queries_is_named_and_tables_are_looked_for(doctor: Doctor, tmp_path: Path):
    (tmp_path / "here.csv").write_text("a\n1\n")
    text = '[queries.tables]\nhere = "here.csv"\ngone = "gone.csv"\nfar = "s3://bucket/far"\nsome = "*.csv"\n'
    (tmp_path / "rota.toml").write_text(text)
    code, said = doctor()
    (engine, gone) = texts(said, "queries")
    assert code == 0
    assert engine[0] == "ok"
    assert engine[1].startswith("datafusion ")
    assert gone[0] == "warn"
    assert re.search(r"'gone'.*\bgone\.csv\b.*\(at queries\.tables\.gone\)", gone[1])
