"""`.rota` is found in the folders above: every command says there what it says in the folder that has it."""

import os
from pathlib import Path

import pytest

import rota
from rota.cli import main, reaching
from rota.cli.outline import outline
from rota.cli.server import note_data_above
from rota.config import load_config
from tests.integration import jobs
from tests.integration.test_folder_without_holder import READING


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data in `.rota`, and folders in it."""
    folder = tmp_path_factory.mktemp("project")
    with rota.Rota.embedded(folder / ".rota", threads=True) as one:
        one.submit(jobs.talk, run="chain").wait(60)
    (folder / "src" / "deep").mkdir(parents=True)
    return folder


def said(capsys: pytest.CaptureFixture[str], words: list[str]) -> tuple[int, str, str]:
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# What differs with the time of day is left out, and so is what names a task that this run has not.
COMPARED = [words for words in READING if words[0] not in ("top", "why") and "step" not in words]


@pytest.mark.parametrize("words", [*COMPARED, ["db", "check", "--json"]], ids=" ".join)
def test_a_command_says_the_same_in_every_folder_of_a_project(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
):
    monkeypatch.delenv("ROTA_COORDINATOR", raising=False)
    told: list[tuple[int, str, str]] = []
    for folder, place in ((project, "."), (project / "src", ".."), (project / "src" / "deep", "../..")):
        monkeypatch.chdir(folder)
        code, out, err = said(capsys, words)
        told.append((code, out.replace(f"{place}/.rota", ".rota"), err.replace(f"{place}/.rota", ".rota")))
    assert told[0][0] == 0
    assert told == [told[0]] * 3


def test_the_nearest_one_with_data_counts(project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(project / "src" / "deep")
    assert reaching.find_folder() == "../../.rota"
    (project / "src" / ".rota").mkdir()
    assert reaching.find_folder() == "../../.rota", "an empty one is no data folder"
    (project / "src" / ".rota" / "rota.db").touch()
    assert reaching.find_folder() == "../.rota"
    (project / "src" / ".rota" / "rota.db").unlink()
    (project / "src" / ".rota").rmdir()


def test_without_one_above_it_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert reaching.find_folder() == ".rota"


def test_one_above_that_belongs_to_somebody_else_is_not_opened(project: Path, monkeypatch: pytest.MonkeyPatch):
    """Opening a pickled result of theirs would run their code."""
    others = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: others)
    monkeypatch.chdir(project / "src")
    assert reaching.find_folder() == ".rota"
    monkeypatch.chdir(project)
    assert reaching.find_folder() == ".rota", "in its own folder it is named by being there"


def test_every_command_with_a_folder_finds_it_in_the_same_way():
    leaves = [leaf for each in outline() for leaf in each.leaves()]
    folders = {leaf.name: word.help for leaf in leaves for word in leaf.options if "--data" in word.names}
    others = {name for name, text in folders.items() if text != reaching.FOLDER_HELP}
    # Services are started where they are to be, two have folders of their own, and queries run here without one.
    assert others == {"up", "server", "frontend", "worker", "sql"}


def test_a_service_that_starts_below_a_folder_with_data_says_so(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    told: list[bool] = []
    for folder, options in ((project / "src", {}), (project, {}), (project / "src", {"server.data": "/elsewhere"})):
        monkeypatch.chdir(folder)
        note_data_above(load_config(options))
        told.append("../.rota" in capsys.readouterr().err)
    assert told == [True, False, False]
