"""Names on the command line: the beginning of an id is enough, and a slip is answered with what was meant."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.cli import main, naming
from tests.integration import jobs
from tests.integration.deadlines import until
from tests.integration.typing_commands import Say, data, saying


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("names") / "data"
    with rota.Rota.embedded(folder, threads=True) as one:
        never = jobs.nothing.override(requires={"gpu_count": 8})
        for run in ("etl-aa1", "etl-ab2", "report-7"):
            made = one.submit(never, run=run)
            until(lambda made=made: made.tasks()[0].state == "queued", "the task to wait")
        one.put_pool("warehouse", 2)
        one.put_queue("builds")
        yield folder


@pytest.fixture
def say(folder: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    return saying(capsys, folder)


def test_as_much_of_an_id_as_no_other_has_is_enough(say: Say):
    code, out, err = say("tasks", "etl-ab", "--json")
    assert (code, err) == (0, "rota: etl-ab is etl-ab2\n")
    assert json.loads(out)[0]["run"] == "etl-ab2"
    assert data(say("why", "rep", "nothing", "--json"))["state"] == "queued"


def test_of_several_that_begin_alike_all_are_named(say: Say):
    code, out, err = say("cancel", "etl-")
    assert (code, out) == (3, "")
    assert re.match(r"rota: run\.unknown: .*'etl-'.*\b2\b", err)
    assert "etl-aa1" in err and "etl-ab2" in err


def test_an_id_that_is_whole_costs_no_other_question(say: Say, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> int:
        raise AssertionError("nobody should look for a name that was found")

    monkeypatch.setattr(naming, "mend", refuse)
    assert say("tasks", "etl-aa1")[0] == 0


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["tasks", "reprot-7"], "run.unknown: no run 'reprot-7'"),
        (["why", "etl-aa1", "nothin"], "Did you mean nothing?"),
        (["mark", "etl-aa1", "nothimg", "--failed"], "Did you mean nothing?"),
        (["pools", "drop", "warehose"], "Did you mean warehouse?"),
        (["workers", "drain", "loca"], "worker.unknown"),
        (["workflows", "x"], "workflow.unknown"),
        (["backfills", "cancel", "x"], "backfill.unknown"),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_what_was_meant(words: list[str], meant: str, say: Say):
    code, out, err = say(*words)
    assert (code, out) == (3, "")
    assert meant in err


def test_a_run_that_was_mistyped_is_suggested(say: Say):
    assert "Did you mean report-7?" in say("tasks", "reprot-7")[2]


def test_a_worker_and_a_workflow_that_were_mistyped_are_suggested(say: Say, tmp_path: Path):
    file = tmp_path / "nightly.py"
    file.write_text(
        "import rota\n\n@rota.workflow\ndef nightly():\n    rota.command('true', id='a')\n", encoding="utf-8"
    )
    say("deploy", str(file))
    assert "Did you mean nightly?" in say("workflows", "nigthly")[2]
    assert "Did you mean nightly?" in say("run", "nigthly")[2]
    assert re.fullmatch(r"no runs; .*\bnightly\b.*\n", say("runs", "--name", "nigthly")[2])
    (worker,) = data(say("workers", "--json"))
    assert f"Did you mean {worker['id']}?" in say("workers", "drain", worker["id"] + "x")[2]


def test_a_parked_task_is_let_out(say: Say, folder: Path):
    """`rota resolve` refuses what is not parked, by the rule of the coordinator."""
    code, _, err = say("resolve", "etl-aa1", "nothing", "--requeue")
    assert code == 3 and err.startswith("rota: task."), err


def test_names_that_nobody_can_be_asked_for_are_no_second_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["tasks", "x", "--data", str(tmp_path / "none")]) == 3
    assert capsys.readouterr().err.startswith("rota: store.missing")


def test_a_note_is_about_a_task_or_about_the_run(say: Say):
    assert say("note", "report-7", "nothing", "seen")[:2] == (0, "nothing: seen\n")
    assert say("note", "report-7", "kept for audit")[:2] == (0, "report-7: kept for audit\n")
    assert dict(data(say("note", "report-7", "", "--json"))["labels"]) == {}


def test_a_story_and_a_note_do_not_move_the_terminal(say: Say):
    code, out, err = say("note", "report-7", "nothing", "look\x1b[2J\x07 here\u202e\nand there")
    assert (code, err) == (0, "")
    assert out == "nothing: look [2J  here  and there\n"
    code, out, err = say("story", "report-7")
    assert code == 0
    assert "look [2J  here  and there" in out
    assert not set("\x1b\x07\u202e") & set(out + err)
