"""`rota runs`, `tasks`, `why`, `story`, `logs`, `cancel`, `doctor`: what they print, text or JSON, exit codes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.cli import COMMANDS, main
from rota.core.questions import RunView, TaskView
from tests.integration import jobs
from tests.integration.deadlines import until

ROTA = str(Path(sys.executable).with_name("rota"))

Say = Callable[..., tuple[int, str, str]]


@rota.workflow
def mixed():
    jobs.talk()
    jobs.fail("no such column\x1b[2J")
    jobs.point(3)
    rota.command("printf 'one\\ntwo\\n'", id="lines")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of every sort of task, and a second run; nobody holds it."""
    folder = tmp_path_factory.mktemp("ended") / ".rota"
    with rota.Rota.embedded(folder, slots=2) as one:
        one.submit(mixed, run="first").wait(60)
        one.submit(jobs.identity, {"value": ["x", {"y": 1.5}]}, run="second").wait(60)
    return folder


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[tuple[Path, rota.Rota]]:
    """A folder that is held here, with a run of which one task can never start."""
    folder = tmp_path / "stuck"
    with rota.Rota.embedded(folder, threads=True) as one:
        run = one.submit(jobs.nothing.override(requires={"gpu_count": 8}), run="stuck")
        until(lambda: run.tasks()[0].state == "queued", "the task to wait")
        yield folder, one


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def run(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def data(say: Say, *words: object) -> Any:
    code, out, err = say(*words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_runs_are_found_by_their_labels_whoever_looks(stuck: tuple[Path, rota.Rota], say: Say):
    folder, one = stuck
    never = jobs.nothing.override(requires={"gpu_count": 8})
    first = one.submit(never, run="labelled", merge="k", labels={"target": "//x", "team": "a"}, share="s")
    second = one.submit(never, run="another", merge="k")
    assert (first.joined, second.joined, second.id) == (False, True, "labelled")
    found = data(say, "runs", "--label", "target=//x", "--label", "team=a", "--data", folder)
    assert [(run["id"], run["labels"]) for run in found] == [("labelled", {"target": "//x", "team": "a"})]
    assert data(say, "runs", "--label", "team=b", "--data", folder) == []
    with pytest.raises(SystemExit):
        say("runs", "--label", "team", "--data", folder)


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: rota {command}")
    assert COMMANDS[command][1].split(",")[0] in " ".join(out.split())


def test_help_lists_the_commands_and_nothing_is_usage(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    for name, (_, summary) in COMMANDS.items():
        assert name in out
        assert summary.split(",")[0] in " ".join(out.split())
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["nonsense"], ["runs", "--nonsense"], ["why", "only-a-run"], ["runs", "--state", "x"]]
)
def test_wrong_usage_is_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: rota" in captured.err


def test_the_program_itself_starts_and_says_its_version():
    told = subprocess.run([ROTA, "--version"], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == f"rota {rota.__version__}\n"
    module = [sys.executable, "-m", "rota.cli", "--version"]
    assert subprocess.run(module, capture_output=True, text=True, check=True, timeout=60).stdout == told.stdout


@pytest.mark.parametrize(
    "words", [["runs"], ["tasks", "x"], ["why", "x", "y"], ["story", "x"], ["logs", "x"], ["cancel", "x"]]
)
def test_without_data_commands_say_how_to_begin(tmp_path: Path, words: list[str], say: Say):
    code, out, err = say(*words, "--data", tmp_path / "none")
    assert (code, out) == (3, "")
    assert err.startswith("rota: store.missing: ")
    assert str(tmp_path / "none") in err
    assert "`rota run`" in err


@pytest.mark.parametrize(
    "words", [["tasks"], ["why", "y"], ["story"], ["logs"], ["logs", "y"], ["cancel"]], ids=" ".join
)
def test_an_unknown_run_is_exit_code_3(ended: Path, words: list[str], say: Say):
    code, out, err = say(words[0], "nobody", *words[1:], "--data", ended)
    assert (code, out) == (3, "")
    assert err.startswith("rota: run.unknown: no run 'nobody', neither live nor in history")


@pytest.mark.parametrize(
    "words", [["why", "first", "nobody"], ["story", "first", "nobody"], ["logs", "first", "nobody"]]
)
def test_an_unknown_task_is_exit_code_3(ended: Path, words: list[str], say: Say):
    code, out, err = say(*words, "--data", ended)
    assert (code, out) == (3, "")
    assert re.match(r"rota: task\.unknown: .*'first'.*'nobody'", err)


def test_runs_are_a_table_or_json(ended: Path, say: Say):
    code, out, err = say("runs", "--data", ended)
    assert (code, err) == (0, "")
    head, *rows = out.splitlines()
    assert head.split() == ["RUN", "GRAPH", "STATE", "CREATED", "TOOK", "TASKS"]
    assert [row.split()[:3] for row in rows] == [["second", "identity", "success"], ["first", "mixed", "failed"]]
    assert rows[1].endswith("1 failed, 3 success")
    told = data(say, "runs", "--data", ended)
    assert [each["id"] for each in told] == ["second", "first"]
    assert list(told[0]) == list(RunView.__struct_fields__)
    assert told[0]["params"] == {"value": ["x", {"y": 1.5}]}
    assert told[1]["tasks"] == {"failed": 1, "success": 3}


def test_runs_can_be_chosen(ended: Path, say: Say):
    assert [each["id"] for each in data(say, "runs", "--data", ended, "--name", "mixed")] == ["first"]
    assert [each["id"] for each in data(say, "runs", "--data", ended, "--state", "success")] == ["second"]
    assert [each["id"] for each in data(say, "runs", "--data", ended, "--limit", "1")] == ["second"]
    code, out, err = say("runs", "--data", ended, "--name", "other")
    assert (code, out, err) == (0, "", "no runs\n")
    assert data(say, "runs", "--data", ended, "--name", "other") == []
    assert say("runs", "--data", ended, "--limit", "0")[0] == 3


def test_tasks_are_a_table_or_json(ended: Path, say: Say):
    code, out, err = say("tasks", "first", "--data", ended)
    assert (code, err) == (0, "")
    head, *rows = out.splitlines()
    assert head.split() == ["TASK", "STATE", "ATTEMPT", "WORKER", "STARTED", "TOOK", "ERROR", "OR", "NOTE"]
    assert [row.split()[:3] for row in rows] == [
        ["talk", "success", "2"],
        ["fail", "failed", "1"],
        ["point", "success", "1"],
        ["lines", "success", "1"],
    ]
    assert "ValueError: no such column [2J" in rows[1], "nothing that a terminal would obey"
    told = data(say, "tasks", "first", "--data", ended)
    assert list(told[0]) == list(TaskView.__struct_fields__)
    assert told[0]["result"] == "said"
    assert told[1]["failure"] == "user"
    assert told[2]["result"].keys() == {"size", "encoding"}, "a pickle is named and not opened"
    assert told[3]["result"] == "two"
    assert [each["id"] for each in data(say, "tasks", "first", "--data", ended, "--state", "failed")] == ["fail"]


def test_why_of_a_task_that_has_ended_says_how(ended: Path, say: Say):
    code, out, _ = say("why", "first", "fail", "--data", ended)
    assert code == 0
    assert re.match(r"fail .*\bfailed: ValueError: .*\n\nTraceback", out)
    assert data(say, "why", "first", "fail", "--data", ended) == {"state": "failed", "reasons": []}
    assert re.fullmatch(r"talk\b.*\bsuccess\n", say("why", "first", "talk", "--data", ended)[1])


def test_why_of_a_task_that_waits_gives_reasons(stuck: tuple[Path, rota.Rota], say: Say):
    code, out, _ = say("why", "stuck", "nothing", "--data", stuck[0])
    assert code == 0
    assert out.startswith("worker.none_match: ")
    answer = data(say, "why", "stuck", "nothing", "--data", stuck[0])
    assert answer["state"] == "queued"
    (told,) = answer["reasons"]
    assert told.keys() == {"code", "text", "about"}
    assert told["code"] == "worker.none_match"


def test_the_story_is_told_in_lines(ended: Path, say: Say):
    code, out, _ = say("story", "first", "--data", ended)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].endswith("RunSubmitted")
    assert "RunEnded" in lines[-1]
    about = data(say, "story", "first", "lines", "--data", ended)
    assert [each["what"] for each in about] == ["TasksScheduled", "LeaseGranted", "AttemptStarted", "AttemptEnded"]
    assert {each["task"] for each in about} == {"lines"}
    assert all(isinstance(each["at"], int) for each in about)
    assert about[-1]["state"] == "success"
    assert about[1]["text"].startswith("lines  fence=")


def test_logs_are_shown_as_they_are(ended: Path, say: Say):
    assert say("logs", "first", "lines", "--data", ended) == (0, "one\ntwo\n", "")
    assert say("logs", "first", "talk", "--data", ended) == (0, "attempt 2 speaks\n", "")
    code, failed, _ = say("logs", "first", "talk", "--attempt", "1", "--data", ended)
    lines = failed.splitlines()
    assert (code, lines[0], lines[-1]) == (0, "attempt 1 speaks", "RuntimeError: once more")
    assert say("logs", "first", "lines", "-f", "--data", ended) == (0, "one\ntwo\n", "")
    assert data(say, "logs", "first", "lines", "--data", ended) == ["one", "two"]
    assert say("logs", "first", "point", "--data", ended) == (0, "", "")


@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_the_log_of_a_run_has_every_line_of_every_task(ended: Path, say: Say, follow: list[str]):
    """Compared with the logs of its attempts, one by one."""
    expected: dict[tuple[str, int], list[str]] = {}
    for each in data(say, "tasks", "first", "--data", ended):
        for attempt in range(1, each["attempt"] + 1):
            words = ("logs", "first", each["id"], "--attempt", attempt, "--data", ended)
            expected[each["id"], attempt] = data(say, *words)
    assert len(expected["talk", 1]) > len(expected["talk", 2]) == 1
    printed = data(say, "logs", "first", *follow, "--data", ended)
    keys = [(each["task"], each["attempt"]) for each in printed]
    found = {key: [each["line"] for each, its in zip(printed, keys, strict=True) if its == key] for key in expected}
    assert found == expected
    assert len(printed) == sum(map(len, expected.values()))
    code, out, err = say("logs", "first", *follow, "--data", ended)
    assert (code, err) == (0, "")
    names = [task if attempt == 1 else f"{task}#{attempt}" for task, attempt in keys]
    assert out.split("\n") == [*(f"{name} | {each['line']}" for name, each in zip(names, printed, strict=True)), ""]


def test_an_attempt_is_one_of_a_task(ended: Path, say: Say):
    code, out, err = say("logs", "first", "--attempt", "1", "--data", ended)
    assert (code, out, err.startswith("rota: field.value: ")) == (3, "", True)


def test_the_log_of_a_run_is_followed_from_another_process_to_its_end(tmp_path: Path):
    """Lines come while their tasks run, of later tasks and of second attempts, too; none is lost or torn."""
    go = tmp_path / "go"

    @rota.workflow
    def slow():
        first = rota.command(f"printf to; while [ ! -e {go} ]; do sleep 0.02; done; echo gether; echo two", id="first")
        line = "echo attempt $ROTA_ATTEMPT; [ $ROTA_ATTEMPT = 2 ]"
        first >> rota.command(line, id="again", retries=1, retry_delay=0)

    with rota.Rota.embedded(tmp_path / "data") as one:
        run = one.submit(slow, run="slow")
        command = [ROTA, "logs", "slow", "--follow", "--data", str(tmp_path / "data")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
            until(lambda: run.tasks("first")[0].state == "running", "it to run")
            go.touch()
            out, _ = follower.communicate(timeout=60)
    assert follower.returncode == 0
    assert out.splitlines() == ["first | together", "first | two", "again | attempt 1", "again#2 | attempt 2"]


@pytest.mark.parametrize("more", [[], ["--json"], ["--follow"]])
def test_an_attempt_that_there_was_not_is_said_to_be_none(ended: Path, say: Say, more: list[str]):
    code, out, err = say("logs", "first", "talk", "--attempt", "7", *more, "--data", ended)
    assert (code, out) == (3, "")
    assert re.search(r"attempt\.unknown: .*'talk'.*'first'.*\b2\b.*\b7\b", err)


def test_a_log_is_followed_from_another_process(tmp_path: Path):
    go = tmp_path / "go"

    @rota.workflow
    def slow():
        rota.command(f"echo one; while [ ! -e {go} ]; do sleep 0.02; done; echo two", id="lines")

    with rota.Rota.embedded(tmp_path / "data") as one:
        one.submit(slow, run="slow")
        command = [ROTA, "logs", "slow", "lines", "--follow", "--data", str(tmp_path / "data")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
            assert follower.stdout is not None
            assert follower.stdout.readline() == "one\n", "as soon as it is there"
            go.touch()
            assert follower.stdout.read() == "two\n"
        assert follower.returncode == 0


def test_cancelling_says_how_the_run_stands_and_may_be_repeated(stuck: tuple[Path, rota.Rota], say: Say):
    folder, one = stuck
    code, out, _ = say("cancel", "stuck", "--reason", "too heavy", "--data", folder)
    assert (code, out) == (0, "stuck: cancelled\n")
    assert one.run("stuck").status().reason == "too heavy"
    told = data(say, "cancel", "stuck", "--data", folder)
    assert (told["state"], told["reason"]) == ("cancelled", "too heavy")


def test_a_run_in_history_is_told_like_a_live_one(tmp_path: Path, say: Say):
    from rota.core.bounds import TimeLimits

    with rota.Rota.embedded(tmp_path, limits=TimeLimits(retain_ended_ms=0), slots=2) as one:
        one.submit(mixed, run="old").wait(60)
        until(lambda: one.runs() and not one.runs(history=False), "the run to move to history")
        assert one.run("old").result("lines") == "two"
        with pytest.raises(rota.Refused, match=r"task\.unknown"):
            one.run("old").result("nobody")
    assert [each["id"] for each in data(say, "runs", "--data", tmp_path)] == ["old"]
    assert [each["id"] for each in data(say, "tasks", "old", "--data", tmp_path)] == ["talk", "fail", "point", "lines"]
    assert say("logs", "old", "lines", "--data", tmp_path)[1] == "one\ntwo\n"
    assert re.fullmatch(r"talk\b.*\bsuccess\n", say("why", "old", "talk", "--data", tmp_path)[1])
    assert say("why", "old", "nobody", "--data", tmp_path)[0] == 3
    assert say("cancel", "old", "--data", tmp_path)[:2] == (0, "old: failed\n")
    assert data(say, "story", "old", "--data", tmp_path)[-1]["what"] == "RunArchived"


def test_a_folder_whose_holder_does_not_answer_is_exit_code_4(
    tmp_path: Path, say: Say, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rota.app.embedded.PATIENCE_S", 0.0)
    with rota.Rota.embedded(tmp_path, threads=True):
        (tmp_path / "rota.sock").unlink()
        code, out, err = say("runs", "--data", tmp_path)
    assert (code, out) == (4, "")
    assert re.match(rf"rota: leader\.none: .*{re.escape(str(tmp_path))}", err)


def test_an_interrupted_command_is_exit_code_130(ended: Path, say: Say, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rota.cli.runs.put_table", interrupt)
    assert say("runs", "--data", ended) == (130, "", "rota: interrupted\n")


def findings(say: Say, folder: Path) -> tuple[int, dict[str, tuple[str, str]]]:
    code, out, err = say("doctor", "--data", folder, "--json")
    assert err == ""
    return code, {each["what"]: (each["grade"], each["text"]) for each in json.loads(out)["findings"]}


def test_the_doctor_looks_at_a_folder_that_does_not_exist_yet(tmp_path: Path, say: Say):
    code, found = findings(say, tmp_path / "a" / "b" / "c")
    assert code == 0
    assert found["data"][0] == "ok"
    assert str(tmp_path / "a" / "b" / "c") in found["data"][1]
    assert {"version", "platform", "disk", "sync"} <= set(found)
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_looks_at_a_folder_in_use_and_at_one_that_is_free(tmp_path: Path, say: Say):
    with rota.Rota.embedded(tmp_path, threads=True):
        code, found = findings(say, tmp_path)
        assert code == 0
        assert found["holder"][1].startswith(f"held by process {os.getpid()} on ")
    code, found = findings(say, tmp_path)
    assert (found["holder"][0], f"process {os.getpid()}" in found["holder"][1]) == ("ok", False)
    assert found["database"][0] == "ok"
    code, out, _ = say("doctor", "--data", tmp_path)
    assert code == 0
    assert out.startswith("ok    install")


def test_the_doctor_finds_what_would_not_work(tmp_path: Path, say: Say):
    (tmp_path / "file").write_text("x")
    code, found = findings(say, tmp_path / "file")
    assert (code, found["data"][0]) == (1, "fail")
    (tmp_path / "rota.db").write_bytes(b"not a database " * 1000)
    code, found = findings(say, tmp_path)
    assert (code, found["database"][0]) == (1, "fail")
    assert "store.corrupt" in found["database"][1]
    code, found = findings(say, Path("/sys/kernel/rota"))
    assert (code, found["data"][0]) == (1, "fail")
    assert re.match(r"/sys/kernel\b.*\bPermission denied$", found["data"][1])
