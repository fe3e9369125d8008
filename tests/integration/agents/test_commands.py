"""`rota work`, `rota sessions`, `rota scheduler`: what people type, and what they read."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.cli import EXIT_FAILED, EXIT_REFUSED, main
from tests.integration.typing_commands import Say, data, saying


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with rota.Rota.embedded(tmp_path / "data", slots=0):
        yield tmp_path / "data"


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], folder: Path) -> Say:
    return saying(capsys, folder)


def test_an_item_goes_from_submission_to_completion(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--payload", '{"page": 1}', "--requires", "review,python", "--workspace", "docs", "--priority", "high")
    made = data(say("work", "submit", "Review it", *words, "--key", "k", "--json"))
    assert made["requires"] == ["python", "review"] and made["payload"] == {"page": 1}
    item = made["item"]
    assert say("work", "submit", "Review it", *words, "--key", "k")[1].strip() == item
    assert "worker.none_registered" in say("work", "show", item)[1]
    assert "Review it" in say("work", "list", "--workspace", "docs", "--state", "queued")[1]
    assert "nothing to claim" in say("work", "claim", "--session", "poor", "--workspace", "docs")[2]
    able = ("--workspace", "docs", "--capability", "review", "--capability", "python")
    (claim,) = data(say("work", "claim", "--session", "me", *able, "--json"))
    assert claim["item"] == item and claim["payload"] == {"page": 1}
    held = ("--session", "me", "--fence", claim["fence"])
    code, _, err = say("work", "renew", item, *held)
    assert code == EXIT_REFUSED and "ROTA_CLAIM_TOKEN" in err
    monkeypatch.setenv("ROTA_CLAIM_TOKEN", claim["token"])
    assert data(say("work", "renew", item, *held, "--lease", 100, "--json"))["expires_at"] > 0
    monkeypatch.setenv("ROTA_CLAIM_TOKEN", "forged")
    code, _, err = say("work", "complete", item, *held)
    assert code == EXIT_REFUSED and "lease.token" in err
    monkeypatch.setattr("sys.stdin", io.StringIO(claim["token"] + "\n"))
    done = say("work", "complete", item, *held, "--token-file", "-", "--result", '{"words": 3}')
    assert done[1] == f"{item} is success\n"
    assert data(say("work", "show", item, "--json"))["result"] == {"words": 3}


def test_people_approve_fail_retry_pause_and_cancel(say: Say) -> None:
    first = say("work", "submit", "first", "--approval", "manual")[1].strip()
    second = say("work", "submit", "second", "--approval", "manual")[1].strip()
    assert "approval?" in say("work", "list")[1]
    assert say("work", "approve", first)[1] == f"{first} is queued\n"
    assert say("work", "reject", second, "--reason", "no")[1] == f"{second} is cancelled\n"
    assert say("work", "fail", first, "--reason", "not needed")[1] == f"{first} is failed\n"
    assert say("work", "retry", first)[1] == f"{first} is queued\n"
    assert say("work", "pause", first)[1] == f"{first} is queued (paused)\n"
    assert say("work", "resume", first)[1] == f"{first} is queued\n"
    code, out, err = say("work", "cancel", first, "nobody")
    assert code == EXIT_FAILED and out == f"{first} is cancelled\n" and "nobody: run.unknown" in err
    rows = data((0, say("work", "release", first, "--json")[1], ""))
    assert rows[0]["done"] is False
    code, _, err = say("work", "requeue", first, "--requires", "x")
    assert code == EXIT_REFUSED


def test_sessions_are_listed_and_ended_and_what_they_hold_is_returned(say: Say) -> None:
    item = say("work", "submit", "t")[1].strip()
    data(say("work", "claim", "--session", "me", "--json"))
    assert [line["held"][0]["item"] for line in data(say("sessions", "list", "--json"))] == [item]
    assert "1/1" in say("sessions", "list")[1]
    assert say("sessions", "end", "me")[1] == "me has ended\n"
    assert say("work", "show", item, "--json")[1].count('"queued"') == 1
    assert data(say("sessions", "list", "--json")) == []


def test_the_scheduler_is_paused_drained_and_resumed(say: Say) -> None:
    say("work", "submit", "t", "--workspace", "w")
    assert data(say("scheduler", "status", "--json"))["queued"] == 1
    assert "workspace=w is paused" in say("scheduler", "pause", "--workspace", "w", "--reason", "lunch")[1]
    assert "scheduler.paused" in say("scheduler", "backlog")[1]
    assert data(say("scheduler", "backlog", "--no-paused", "--json")) == []
    say("scheduler", "resume", "--workspace", "w")
    data(say("work", "claim", "--session", "me", "--workspace", "w", "--json"))
    code, out, _ = say("scheduler", "drain", "--timeout", "0")
    assert code == EXIT_FAILED and "1 claim left" in out
    say("sessions", "end", "me")
    assert data(say("scheduler", "drain", "--json")) == {"held": 0, "drained": True, "timed_out": False}
    assert say("scheduler", "resume")[1].startswith("open")


@pytest.mark.parametrize("noun", ["work", "sessions", "scheduler"])
def test_help_has_examples(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([noun, "--help"])
    assert f"  rota {noun} " in capsys.readouterr().out
