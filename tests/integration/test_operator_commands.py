"""`rota workers`, `queues`, `pools`, `tenants`, `audit`: what an operator sees and changes, and who did."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.cli import EXIT_REFUSED, EXIT_USAGE
from tests.integration.deadlines import until
from tests.integration.typing_commands import Say, data, saying


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that is held here, with a worker."""
    with rota.Rota.embedded(tmp_path / "data", slots=3, threads=True) as one:
        until(lambda: [each for each in one.workers() if each.present], "the worker to register")
        yield tmp_path / "data"


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], folder: Path) -> Say:
    return saying(capsys, folder)


def test_pools_are_set_seen_and_dropped(say: Say):
    assert "no pools" in say("pools")[2]
    code, out, _ = say("pools", "set", "db", "--slots", 4, "--per-key", 2, "--per-minute", 60)
    assert code == 0
    assert out.splitlines()[1].split() == ["db", "0", "4", "2", "60"]
    (view,) = data(say("pools", "--json"))
    assert (view["slots"], view["taken"]) == (4, 0)
    assert say("pools", "set", "db", "--per-key", 1)[1].splitlines()[1].split() == ["db", "0", "4", "1", "60"]
    assert say("pools", "drop", "db")[0] == 0
    assert data(say("pools", "--json")) == []
    assert say("pools", "drop", "db")[0] == EXIT_REFUSED


def test_queues_are_set_and_seen(say: Say):
    code, out, _ = say("queues", "set", "gpu", "--property", "gpu_count=minimum", "--unservable", "fail")
    assert code == 0
    assert out.splitlines()[1].split() == ["gpu", "least_recently_used", "fail", "push", "gpu_count=minimum"]
    code, out, _ = say("queues", "set", "gpu", "--property", "arch=exact", "--allocation", "most_recently_used")
    assert out.splitlines()[1].split(maxsplit=4) == [
        "gpu",
        "most_recently_used",
        "fail",
        "push",
        "gpu_count=minimum, arch=exact",
    ]
    say("queues", "set", "gpu", "--max-job-retries", 0, "--worker-match-logging-interval-ms", -1)
    (queue,) = json.loads(say("queues", "--json")[1])
    kept = ("max_job_retries", "worker_match_logging_interval_ms", "unservable", "unservable_ms")
    assert [queue[name] for name in kept] == [0, -1, "fail", 60_000]
    code, _, err = say("queues", "set", "gpu", "--property", "gpu_count=most")
    assert code == EXIT_REFUSED
    assert "properties" in err


def test_tenants_get_their_weights(say: Say):
    assert say("tenants", "set", "acme", "--weight", 7)[0] == 0
    assert {"tenant": "acme", "weight": 7} in data(say("tenants", "--json"))
    assert say("tenants", "set", "acme", "--weight", 0)[0] == EXIT_REFUSED


def test_a_worker_is_drained_and_given_work_again(say: Say):
    (worker,) = data(say("workers", "--json"))
    code, out, _ = say("workers", "drain", worker["id"])
    assert code == 0
    assert out.splitlines()[1].split()[1] == "draining"
    assert say("workers", "undrain", worker["id"])[1].splitlines()[1].split()[1] == "present"
    code, _, err = say("workers", "drain", "nobody")
    assert code == EXIT_REFUSED
    assert "worker.unknown" in err


def test_who_asked_for_what_is_told_the_newest_first(say: Say):
    say("pools", "set", "a", "--slots", 1)
    say("tenants", "set", "acme", "--weight", 2)
    say("pools", "drop", "a")
    audits = data(say("audit", "--json"))
    assert [(each["actor"], each["command"]) for each in audits] == [("local", "DropPool"), ("local", "PutPool")]
    assert "DropPool" in say("audit", "--limit", 1)[1]


@pytest.mark.parametrize("words", [("pools", "set"), ("queues", "set"), ("tenants", "set"), ("workers", "drain")])
def test_a_verb_without_its_name_says_how_it_is_used(say: Say, words: tuple[str, ...]):
    code, _, err = say(*words)
    assert code == EXIT_USAGE
    assert err.startswith(f"usage: rota {words[0]}")
