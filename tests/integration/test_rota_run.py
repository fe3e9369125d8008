"""`rota run` as people start it: files good and bad, parameters, Ctrl-C, SIGTERM, a closed pipe, a terminal."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.cli import main
from rota.core.changes import RELEASED
from tests.integration.deadlines import until, until_there

ROTA = str(Path(sys.executable).with_name("rota"))

GOOD = """
import rota

@rota.task
def double(number: int) -> int:
    print("doubling", number)
    return 2 * number

@rota.task
def shout(number: int, word: str) -> str:
    return f"{word} {number}!"

@rota.workflow
def good(number: int = 4, word: str = "hello"):
    shout(double(number), word)

if __name__ == "__main__":
    raise SystemExit("rota run does not run the main part")
"""

SLOW = """
import os, pathlib, rota

def note(what):
    with open(pathlib.Path(__file__).parent / "effects", "a") as file:
        file.write(what + "\\n")

@rota.task
def first():
    note("first")

@rota.task
def second(before):
    note("second began")
    while not (pathlib.Path(__file__).parent / "go").exists():
        os.sched_yield()
    note("second")

@rota.workflow
def slow():
    second(first())
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "slow.py").write_text(SLOW)
    return tmp_path


def effects(folder: Path) -> list[str]:
    path = folder / "effects"
    return path.read_text().splitlines() if path.exists() else []


def test_a_file_with_one_graph_is_run_and_its_results_are_data(here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["run", "good.py", "--threads", "--id", "mine"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["double: 8", 'shout: "hello 8!"'], "and nothing that tasks printed"
    assert "doubling 4" in err
    lines = err.splitlines()
    assert any(re.fullmatch(r"run mine\b.*\bgood\b.* \.rota", line) for line in lines)
    assert any(line.endswith("double: success") for line in lines)
    assert lines[-1].startswith("success in ")
    assert (here / ".rota" / "rota.db").exists()


def test_parameters_are_json_or_text(here: Path, capsys: pytest.CaptureFixture[str]):
    words = ["run", "good.py", "--threads", "--json", "--param", "number=21", "--param", "word=oh dear"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["params"]) == ("success", {"number": 21, "word": "oh dear"})
    assert [task["result"] for task in told["tasks"]] == [42, "oh dear 42!"]
    assert all(isinstance(task["fence"], str) for task in told["tasks"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--param", "number"], r"--param: 'number' .*NAME=VALUE"),
        (["--param", "=4"], r"--param: '=4' .*NAME=VALUE"),
        (["--slots", "0"], "--slots: '0'"),
        (["--slots", "many"], "--slots: 'many'"),
        (["--priority", "soonish"], r"--priority: .*'soonish'.*urgent, high, normal, low"),
    ],
)
def test_words_that_make_no_sense_are_usage_errors(
    here: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as caught:
        main(["run", "good.py", *words])
    assert caught.value.code == 2
    assert re.search(said, capsys.readouterr().err)
    assert not (here / ".rota").exists()


def test_neither_a_file_nor_a_run_is_a_usage_error(here: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main(["run"])
    assert caught.value.code == 2
    assert "NAME|FILE.py[:NAME] --resume is required" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (None, ["nothing.py"], r"field\.value: .*\bnothing\.py \(at FILE\)"),
        (None, ["."], r"field\.value: .* \. \(at FILE\)"),
        ("x = 1\n", ["file.py"], r"graph\.empty: .*\bfile\.py\b.*\(at FILE\).*@rota\.workflow"),
        ("def broken(:\n", ["file.py"], r"\bfile\.py .*: SyntaxError: invalid syntax"),
        ("import no_such_module\n", ["file.py"], "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(3)\n", ["file.py"], r"\bfile\.py .*: SystemExit: 3"),
        (GOOD, ["file.py:other"], r"graph\.empty: .*\bfile\.py\b.*'other'"),
        (GOOD + GOOD.replace("def good(", "def better("), ["file.py"], r"\bfile\.py:good\b"),
        (GOOD.replace("double(number)", "double()"), ["file.py"], r"\btask 'double': .*'number'"),
        (GOOD, ["file.py", "--param", "nummer=4"], r"\bworkflow 'good': .*'nummer' \(at params\)"),
        (GOOD.replace("number: int = 4, ", "number, "), ["file.py"], "the parameter 'number' is missing"),
        ("import rota\n@rota.workflow\ndef g():\n    pass\n", ["file.py"], r"graph\.empty"),
        ("import rota\n@rota.task(retrys=1)\ndef f():\n    pass\n", ["file.py"], "'retries'"),
    ],
    ids=[
        "no file", "a folder", "no workflow", "syntax", "import", "exits", "no such workflow", "several", "arguments",
        "unknown parameter", "missing parameter", "no tasks", "unknown option",
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_run_is_refused_with_what_to_do(
    here: Path, text: str | None, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    if text is not None:
        (here / "file.py").write_text(text)
    assert main(["run", *words, "--threads"]) == 3
    out, err = capsys.readouterr()
    assert re.search(said, err)
    assert out == ""
    assert "cli/run.py" not in err, "what led to the error is ours"


def test_an_error_in_the_file_is_shown_where_it_is(here: Path, capsys: pytest.CaptureFixture[str]):
    (here / "file.py").write_text("def deep():\n    return 1 / 0\n\ndeep()\n")
    assert main(["run", "file.py"]) == 3
    err = capsys.readouterr().err
    assert 'file.py", line 4' in err
    assert 'file.py", line 2, in deep' in err


def test_one_of_several_graphs_is_named(here: Path, capsys: pytest.CaptureFixture[str]):
    (here / "two.py").write_text(GOOD + GOOD.replace("def good(", "def better("))
    assert main(["run", "two.py:better", "--threads"]) == 0
    assert re.search(r"^run \S+ .*\bbetter\b", capsys.readouterr().err, re.MULTILINE)


def test_a_run_that_fails_is_exit_code_1_with_its_error_and_the_next_commands(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    (here / "bad.py").write_text(GOOD.replace("return 2 * number", "raise KeyError('gone')"))
    assert main(["run", "bad.py", "--threads", "--id", "bad"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "KeyError: 'gone'" in err
    assert "  rota logs bad double --data .rota" in err
    assert "failed in " in err


def test_an_id_that_is_taken_is_refused(here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["run", "good.py", "--threads", "--id", "mine"]) == 0
    assert main(["run", "good.py", "--threads", "--id", "mine"]) == 3
    assert "run.exists" in capsys.readouterr().err


def test_resuming_a_run_that_does_not_exist_is_refused(here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["run", "--resume", "nobody"]) == 3
    assert "run.unknown" in capsys.readouterr().err


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([ROTA, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.full
@pytest.mark.parametrize(
    ("number", "code", "threads"),
    [(signal.SIGINT, 130, []), (signal.SIGTERM, 143, []), (signal.SIGINT, 130, ["--threads"])],
    ids=["Ctrl-C", "SIGTERM", "Ctrl-C with threads"],
)
def test_interrupted_the_run_is_kept_and_goes_on_later(here: Path, number: int, code: int, threads: list[str]):
    with started("run", "slow.py", "--id", "slow", *threads) as process:
        until(lambda: "second began" in effects(here), "the second task to begin")
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    assert out == ""
    assert re.search(r"^stopping\b.*\bslow\b", err, re.MULTILINE)
    assert "  rota run --resume slow --data .rota" in err
    assert "Traceback" not in err
    (here / "go").touch()
    resumed = subprocess.run([ROTA, "run", "--resume", "slow"], capture_output=True, text=True, check=True, timeout=60)
    assert "success in" in resumed.stderr
    assert effects(here) == ["first", "second began", "second began", "second"]
    told = subprocess.run([ROTA, "story", "slow", "second"], capture_output=True, text=True, check=True, timeout=60)
    assert RELEASED in told.stdout
    assert "attempt=2" not in told.stdout, "it cost no attempt"


def test_interrupted_twice_it_ends_at_once(here: Path):
    with started("run", "slow.py", "--id", "slow", "--threads") as process:
        until(lambda: "second began" in effects(here), "the second task to begin")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode != 0


def test_a_reader_that_has_seen_enough_is_no_error_of_ours(here: Path):
    line = f"{ROTA} run good.py --json --threads | head -c 1; {ROTA} runs --json | head -c 1"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "{["
    assert "Traceback" not in ended.stderr
    assert "Broken pipe" not in ended.stderr


def test_output_that_cannot_be_written_is_said(here: Path):
    assert main(["run", "good.py", "--threads"]) == 0
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([ROTA, "runs"], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert "No space left" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_on_a_terminal_progress_is_drawn(here: Path):
    mine, theirs = pty.openpty()
    with subprocess.Popen([ROTA, "run", "good.py", "--threads"], stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        drawn = _read_all(mine)
        assert process.wait(30) == 0
    os.close(mine)
    assert "✓ double" in drawn
    assert "\x1b[32msuccess\x1b[0m" in drawn
    assert "\x1b[2K" in drawn


def _read_all(fd: int) -> str:
    content = b""
    while True:
        try:
            piece = os.read(fd, 65_536)
        except OSError:
            break
        if not piece:
            break
        content += piece
    return content.decode()


@pytest.mark.full
def test_another_command_reaches_the_run_while_it_goes_on(here: Path):
    def rota(*words: str) -> str:
        ended = subprocess.run([ROTA, *words], capture_output=True, text=True, check=False, timeout=60)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    with started("run", "slow.py", "--id", "slow") as process:
        until(lambda: "second began" in effects(here), "the second task to begin")
        (told,) = json.loads(rota("runs", "--json"))
        assert (told["id"], told["state"]) == ("slow", "running")
        assert "attempt.running" in rota("why", "slow", "second")
        assert rota("logs", "slow", "second") == ""
        assert "slow: " in rota("cancel", "slow", "--reason", "enough")
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "cancelled in" in err
    assert "enough" in err
    assert json.loads(rota("runs", "--json"))[0]["reason"] == "enough"


def test_the_first_example_runs(here: Path):
    example = Path(__file__).parents[2] / "examples" / "first.py"
    ended = subprocess.run([ROTA, "run", str(example)], capture_output=True, text=True, check=True, timeout=60)
    assert 'report: "2026-11-16: 31"' in ended.stdout
    assert "why it waits: " in ended.stderr
    plain = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=True, timeout=60)
    assert plain.stdout == "2026-11-16: 31\n"
    until_there(here / ".rota" / "rota.db")
