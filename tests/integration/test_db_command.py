"""`rota db`: what it prints, what it refuses, and that a copy can be worked with."""

import json
import shutil
from pathlib import Path

import pytest

from rota.cli import main
from rota.core.records import Batch, GraphRecord, Run, Task
from rota.core.states import RunState, TaskState
from rota.stores.sqlite import SqliteDisk, care
from tests.contract.bench import assert_same, disk_of
from tests.contract.samples import a_run, rows_of, story_of
from tests.integration.test_sqlite_folder import end, holding
from tests.integration.test_sqlite_reading import ONE, graph_digest
from tests.integration.test_sqlite_trouble import damaged
from tests.integration.writer import elected

Printed = pytest.CaptureFixture[str]


def filled_folder(folder: Path, runs: int = 3) -> SqliteDisk:
    disk = SqliteDisk(folder)
    epoch = elected(disk)
    digest = graph_digest(ONE)
    made = [
        Run("t", f"r{n}", digest, "mail", state=RunState.RUNNING, solo=Task("t", f"r{n}", 0, TaskState.QUEUED))
        for n in range(runs)
    ]
    disk.commit(epoch, Batch([GraphRecord("t", digest, ONE), *made], [], [], []))
    return disk


def test_a_copy_is_made_while_another_process_works_and_can_be_opened(tmp_path: Path, capsys: Printed):
    folder, copy, restored = tmp_path / "data", tmp_path / "copy.db", tmp_path / "restored"
    disk = filled_folder(folder)
    live = disk_of(disk.load(1))
    assert main(["db", "backup", str(copy), "--data", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"file": str(copy), "bytes": copy.stat().st_size}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "data"], "nothing else is left lying about"
    disk.commit(1, Batch([a_run().run], [], [], []))
    disk.close()
    restored.mkdir()
    shutil.copy(copy, restored / "rota.db")
    again = SqliteDisk(restored)
    epoch = elected(again)
    assert epoch > 1 + care.EPOCHS_AHEAD, "no fence is issued twice, whatever was granted after the copy"
    assert_same(disk_of(again.load(epoch)), live)
    again.close()


def test_a_copy_replaces_a_file_only_when_told_to(tmp_path: Path, capsys: Printed):
    filled_folder(tmp_path / "data").close()
    target = tmp_path / "copy.db"
    target.write_text("precious", encoding="utf-8")
    assert main(["db", "backup", str(target), "--data", str(tmp_path / "data")]) == 3
    assert target.read_text(encoding="utf-8") == "precious"
    said = capsys.readouterr()
    assert said.out == ""
    assert "--force" in said.err
    assert main(["db", "backup", str(target), "--data", str(tmp_path / "data"), "--force"]) == 0
    assert target.read_bytes().startswith(b"SQLite format 3")
    assert main(["db", "backup", str(tmp_path / "no" / "copy.db"), "--data", str(tmp_path / "data")]) == 3


def test_a_sound_folder_is_said_to_be_sound(tmp_path: Path, capsys: Printed):
    disk = filled_folder(tmp_path)
    assert main(["db", "check", "--data", str(tmp_path), "--json"]) == 0
    disk.close()
    said = json.loads(capsys.readouterr().out)
    assert said["faults"] == []
    assert said["rows"]["run"] == 3
    assert main(["db", "check", "--data", str(tmp_path)]) == 0
    assert "nothing wrong" in capsys.readouterr().out


@pytest.mark.parametrize("at", [0.25, 0.5, 0.75])
def test_damage_is_found_and_the_way_out_is_told(tmp_path: Path, capsys: Printed, at: float):
    damaged(tmp_path, at)
    code = main(["db", "check", "--data", str(tmp_path)])
    said = capsys.readouterr()
    assert code in (1, 3), said
    assert "rota db backup" in said.err


def test_rows_that_belong_nowhere_and_rules_that_are_broken_are_found(tmp_path: Path, capsys: Printed):
    disk = filled_folder(tmp_path)
    disk.commit(1, Batch(rows_of(a_run()), [], [("t", "r")], story_of()))
    disk.writer.execute("DELETE FROM history_run WHERE id = 'r'")
    disk.writer.execute("UPDATE run SET solo_fence = 7 WHERE id = 'r1'")
    disk.close()
    assert main(["db", "check", "--data", str(tmp_path), "--json"]) == 1
    faults = json.loads(capsys.readouterr().out)["faults"]
    assert any("task rows" in fault for fault in faults)
    assert any("story rows" in fault for fault in faults)
    assert any("still has fence 7" in fault for fault in faults)


def test_space_is_given_back_by_whoever_has_the_folder_for_itself(tmp_path: Path, capsys: Printed):
    disk = filled_folder(tmp_path, runs=2_000)
    disk.commit(1, Batch([], [], [("t", f"r{n}") for n in range(2_000)], []))
    while disk.tidy(1, 1, 0):
        pass
    disk.close()
    assert main(["db", "vacuum", "--data", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["bytes_after"] < said["bytes_before"]
    process = holding(tmp_path)
    assert main(["db", "vacuum", "--data", str(tmp_path)]) == 3
    assert str(process.pid) in capsys.readouterr().err
    end(process)
    assert main(["db", "check", "--data", str(tmp_path)]) == 0


@pytest.mark.parametrize("verb", [["check"], ["vacuum"], ["backup", "copy.db"]])
def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path, capsys: Printed, verb: list[str]):
    assert main(["db", *verb, "--data", str(tmp_path / "none")]) == 3
    assert "--data" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("words", [["db"], ["db", "polish"], ["db", "backup"]])
def test_wrong_usage_is_told_apart(words: list[str], capsys: Printed):
    with pytest.raises(SystemExit) as end_of_it:
        main(words)
    assert end_of_it.value.code == 2
