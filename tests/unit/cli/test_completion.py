"""Completion scripts in the shells they are for, as far as these are installed; bash always is."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import rota
from rota.cli import COMMANDS, main
from rota.cli.outline import Outline, outline
from rota.cli.scripts import SCRIPTS
from tests.servers.programs import find_program

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent


def run(shell: str, script: str) -> list[str]:
    program = find_program(shell, (), f"apt-get install {shell}")
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    plain = ["--norc"] if shell == "bash" else ["-f"] if shell == "zsh" else ["--no-config"]
    done = subprocess.run([program, *plain, "-c", script], capture_output=True, text=True, env=env, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


CASES = [
    (["ru"], {"run", "runs"}),
    (["runs", "--st"], {"--state"}),
    (["runs", "--state", "fa"], {"failed"}),
    (["runs", "--name", "x", "--state", "su"], {"success"}),
    (["work", "sub"], {"submit"}),
    (["work", "submit", "title", "--priority", "u"], {"urgent"}),
    (["pools", "s"], {"set"}),
    (["completion", ""], {"bash", "zsh", "fish"}),
    (["mark", "r", "t", "--s"], {"--success", "--skipped"}),
]


@pytest.mark.parametrize(("words", "found"), CASES, ids=lambda each: " ".join(each) if isinstance(each, list) else "")
def test_bash_completes_commands_verbs_options_and_choices(words: list[str], found: set[str], tmp_path: Path):
    script = tmp_path / "rota.bash"
    script.write_text(SCRIPTS["bash"](), encoding="utf-8")
    typed = " ".join(f"'{word}'" for word in ["rota", *words])
    asked = (
        f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _rota; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    assert set(run("bash", asked)) == found


@pytest.mark.parametrize(("words", "found"), CASES, ids=lambda each: " ".join(each) if isinstance(each, list) else "")
def test_fish_completes_them_too(words: list[str], found: set[str], tmp_path: Path):
    script = tmp_path / "rota.fish"
    script.write_text(SCRIPTS["fish"](), encoding="utf-8")
    lines = run("fish", f"source {script}; complete -C 'rota {' '.join(words)}'")
    assert {line.partition("\t")[0] for line in lines} == found


@pytest.mark.parametrize(("words", "found"), CASES, ids=lambda each: " ".join(each) if isinstance(each, list) else "")
def test_zsh_completes_them_too(words: list[str], found: set[str], tmp_path: Path):
    """Its own function is called, with what it would add printed instead: a real one needs a line editor."""
    script = tmp_path / "rota.zsh"
    script.write_text(SCRIPTS["zsh"](), encoding="utf-8")
    typed = " ".join(f"'{word}'" for word in ["rota", *words])
    asked = (
        f'compdef() {{ : }}; source {script}; compadd() {{ shift; print -l -- "$@" }}; _files() {{ : }};'
        f" words=({typed}); CURRENT={len(words) + 1}; _rota"
    )
    assert {line for line in run("zsh", asked) if line.startswith(words[-1])} == found


def test_names_are_asked_for_where_one_belongs(tmp_path: Path):
    """A run that is there is offered; a folder without data offers nothing and is no error."""
    script = tmp_path / "rota.bash"
    script.write_text(SCRIPTS["bash"](), encoding="utf-8")
    asked = (
        f'source {script}; rota() {{ echo "$*" >&3; echo etl-1 etl-2 other; }};'
        " COMP_WORDS=(rota cancel --data /d et); COMP_CWORD=4;"
        " { _rota; } 3>&1; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    assert run("bash", asked) == ["completion --names runs --line rota cancel --data /d et", "etl-1", "etl-2"]
    asked = f"rota completion --names runs --line 'rota cancel --data {tmp_path}/none \"et'; echo $?"
    assert run("bash", asked) == ["0"]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_every_command_is_in_every_script(shell: str):
    script = SCRIPTS[shell]()
    assert [name for name in COMMANDS if name not in script] == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with runs, two of which begin alike."""
    folder = tmp_path_factory.mktemp("tasks") / ".rota"

    @rota.workflow
    def work():
        for name in ("load", "load.orders", "report"):
            rota.command("echo", id=name)

    with rota.Rota.embedded(folder, threads=True) as one:
        for run in ("etl-1", "etl-2", "weekly-1"):
            one.submit(work, run=run).wait(60)
    return folder


TASKS = ["load", "load.orders", "report"]
WITH_TASKS = [leaf for each in outline() for leaf in each.leaves() if any("TASK" in word.names for word in leaf.places)]


@pytest.mark.parametrize("leaf", WITH_TASKS, ids=lambda leaf: leaf.name)
def test_tasks_of_the_run_are_offered_by_every_command_that_takes_one(
    folder: Path, leaf: Outline, capsys: pytest.CaptureFixture[str]
):
    """Whatever options stand between, with values that could be taken for a run."""

    def offered(*words: str) -> list[str]:
        line = shlex.join(["rota", leaf.name, "--data", str(folder), *words])
        assert main(["completion", "--names", "tasks", "--line", f"{line} "]) == 0
        return capsys.readouterr().out.split()

    kinds = [word.kind for word in leaf.places if word.names[0] in ("RUN", "TASK")]
    assert kinds == ["runs", "tasks"], "the scripts ask for tasks where one belongs"
    options = [(word.names[-1], *(("weekly-1",) if word.value else ())) for word in leaf.options]
    for option in [(), *(each for each in options if each[0] not in ("--data", "--coordinator"))]:
        assert offered(*option, "etl-1") == TASKS, option
        assert offered("etl-1", *option, "lo") == TASKS, option
    assert offered("week") == TASKS, "the beginning of an id is enough"
    assert offered("etl-") == offered("nothing") == offered() == []


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_shells_ask_for_tasks_behind_the_run(folder: Path, shell: str, tmp_path: Path):
    script = tmp_path / f"rota.{shell}"
    script.write_text(SCRIPTS[shell](), encoding="utf-8")
    words = ["rota", "logs", "--data", str(folder), "etl-1", "loa"]
    typed = " ".join(f"'{word}'" for word in words)
    if shell == "bash":
        asked = f"source {script}; COMP_WORDS=({typed}); COMP_CWORD=5; _rota; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    else:
        asked = (
            f'compdef() {{ : }}; source {script}; compadd() {{ shift; print -l -- "$@" }};'
            f" words=({typed}); CURRENT=6; _rota"
        )
    assert [line for line in run(shell, asked) if line.startswith("loa")] == ["load", "load.orders"]
