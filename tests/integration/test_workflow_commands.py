"""`rota deploy` and what may be done with what was deployed: what they print, text or JSON, and exit codes."""

import json
import os
import re
import textwrap
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import rota
from rota.cli import main
from tests.integration.deadlines import until

FLOWS = """
    import pathlib, rota

    @rota.task(retries=3, retry_delay=3_600)
    def shaky(folder):
        if not (pathlib.Path(folder) / "mended").exists():
            raise ValueError("not yet")
        return "done"

    @rota.task
    def after(got):
        print("after", got)
        return got

    @rota.workflow(schedule="@daily", timezone="Europe/Berlin", paused=False)
    def daily(folder: str = "", number: int = 1):
        \"\"\"Runs every day.

        Second line.
        \"\"\"
        after(shaky(folder))

    @rota.workflow
    def quick(word: str = "hello"):
        after(word)
    """

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def flows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("flows")
    (root / "flows.py").write_text(textwrap.dedent(FLOWS))
    return root


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def say(data: Path, capfd: pytest.CaptureFixture[str]) -> Say:
    def run(*words: object) -> tuple[int, str, str]:
        code = main([*(str(word) for word in words), "--data", str(data)])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def held(data: Path, flows: Path) -> Iterator[rota.Rota]:
    """Somebody holds the folder, with a worker, and has deployed the flows."""
    with rota.Rota.embedded(data, slots=2) as one:
        one.deploy(flows)
        yield one


def read(say: Say, *words: object) -> Any:
    code, out, err = say(*words, "--json")
    assert code == 0, err
    return json.loads(out)


def test_deploying_says_what_is_new_and_what_is_unchanged(say: Say, flows: Path):
    code, out, _ = say("deploy", flows)
    assert code == 0
    assert out.splitlines() == [
        "daily: version 1, new; 2 tasks, flows.py:15",
        "quick: version 1, new; 1 task, flows.py:23",
    ]
    code, out, _ = say("deploy", flows / "flows.py")
    assert (code, "daily: version 1, unchanged" in out) == (0, True)
    assert [each["is_new"] for each in read(say, "deploy", flows)["deployed"]] == [False, False]


def test_an_empty_path_is_not_the_folder_one_is_in(
    say: Say, flows: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(flows)
    code, out, err = say("deploy", "")
    assert (code, out) == (3, "")
    assert re.search(r"field\.value: .*\(at PATH\).*`\.`", err)
    assert main(["test", ""]) == 3
    assert re.search(r"field\.value: .*\bempty \(at FILE\)", capfd.readouterr().err)
    with pytest.raises(SystemExit) as ended:
        say("run", "")
    assert ended.value.code == 2


def test_deploying_and_listing_count_the_same_tasks(say: Say, tmp_path: Path):
    text = """
        import rota

        @rota.task
        def each(x):
            return x

        @rota.workflow
        def wide():
            each.expand(x=[1, 2, 3])

        @rota.workflow
        def narrow():
            each(1)
        """
    (tmp_path / "wide.py").write_text(textwrap.dedent(text))
    _, out, _ = say("deploy", tmp_path / "wide.py")
    assert "; 3 tasks, wide.py" in out and "; 1 task, wide.py" in out
    assert {view["name"]: view["tasks"] for view in read(say, "workflows")} == {"wide": 3, "narrow": 1}


def test_a_file_of_a_package_is_told_what_to_deploy_instead(say: Say, tmp_path: Path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "words.py").write_text("WORD = 'hello'\n")
    flow = "import rota\nfrom .words import WORD\n\n@rota.task\ndef t():\n    return WORD\n"
    (package / "flow.py").write_text(f"{flow}\n@rota.workflow\ndef packed():\n    t()\n")
    for words in (("deploy", package / "flow.py"), ("deploy", package), ("run", package / "flow.py")):
        code, _, err = say(*words)
        assert (code, "`rota deploy FOLDER`" in err) == (3, True)
    assert say("deploy", tmp_path)[0] == 0


def test_what_is_broken_is_told_with_its_place_once(say: Say, tmp_path: Path):
    file = tmp_path / "large.py"
    file.write_text("import rota\n\n@rota.workflow\ndef large():\n    rota.command(['echo', 'x' * 300_000])\n")
    code, _, err = say("deploy", file)
    assert code == 3
    assert err.splitlines()[-1].startswith("  large.py:5: field.size: workflow 'large': 300")
    assert "large.py" not in err.splitlines()[-1].removeprefix("  large.py:5")


def test_what_is_broken_is_shown_with_its_place_and_refused(say: Say, flows: Path, tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "good.py").write_text((flows / "flows.py").read_text())
    (root / "bad.py").write_text("import rota\n\ndef f():\n    raise ValueError('no')\n\nf()\n")
    code, out, err = say("deploy", root, "--strict")
    assert (code, out) == (3, "")
    assert "rota: deploy.broken: 1 " in err
    assert f'File "{root}/bad.py", line 4, in f' in err
    assert err.splitlines()[-1] == "  bad.py:4: ValueError: no"
    assert read(say, "workflows") == []
    code, out, err = say("deploy", root, "--json")
    assert (code, [each["name"] for each in json.loads(out)["deployed"]]) == (3, ["daily", "quick"])
    assert json.loads(out)["broken"][0]["line"] == 4


@pytest.mark.parametrize(
    "words",
    [
        ["deploy", ".", "--timeout", "0"],
        ["deploy", ".", "--timeout", "soon"],
        ["deploy", ".", "--env", "NAME"],
        ["backfill", "daily", "--from", "2026-02-30", "--to", "2026-03-01"],
        ["backfill", "daily", "--from", "yesterday", "--to", "2026-03-01"],
        ["backfill", "daily", "--to", "2026-03-01"],
        ["backfill", "daily", "--from", "2026-02-01", "--to", "2026-03-01", "--max-active", "0"],
        ["run", "daily", "--date", "2026-13-01"],
        ["run", "daily", "--version", "0"],
        ["mark", "r", "t"],
        ["mark", "r", "t", "--success", "--failed"],
        ["pause"],
        ["pause", "daily", "--run", "r"],
        ["test"],
    ],
)
def test_words_that_make_no_sense_are_usage_errors(words: list[str], capfd: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert capfd.readouterr().out == ""


def test_workflows_are_listed_and_shown(say: Say, held: rota.Rota):
    code, out, _ = say("workflows")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["WORKFLOW", "VERSION", "SCHEDULE", "NEXT", "RUNS", "TASKS", "SOURCE"]
    assert lines[1][:4] == ["daily", "1", "@daily", "Europe/Berlin"]
    assert lines[2][:4] == ["quick", "1", "by", "hand"]
    code, out, _ = say("workflows", "daily")
    assert "daily, version 1, from flows.py:15" in out
    assert "  Second line." in out
    assert "  number: integer, default 1" in out
    assert out.count("  next: ") == 5
    shown = read(say, "workflows", "daily")
    assert shown["params"][1]["default"] == 1
    assert shown["next"][0] == shown["next_at"]
    assert say("workflows", "dayly")[0] == 3


def test_a_deployed_workflow_is_run_by_whoever_holds_the_folder(say: Say, held: rota.Rota):
    code, out, err = say("run", "quick", "--param", "word=bye")
    assert code == 0
    run = held.run(out.strip())
    assert run.result(timeout_s=60) == "bye"
    assert f"rota tasks {run.id} --data" in err
    code, out, err = say("run", "quick", "--follow", "--id", "followed")
    assert (code, out) == (0, 'after: "hello"\n')
    assert re.search(r"^run followed\b.*\bquick version 1\b", err, re.MULTILINE)
    assert read(say, "run", "quick")["version"] == 1
    for word in ("3", "true", "null", '"quoted"', "[1"):
        assert say("run", "quick", "--follow", "--param", f"word={word}")[1] == f"after: {json.dumps(word)}\n"
    code, _, err = say("run", "daily", "--param", "number=three")
    assert (code, "params.number" in err) == (3, True)
    assert say("run", "quack")[0] == 3
    assert say("run", "quick", "--version", "7")[0] == 3


def test_where_nobody_holds_the_folder_the_run_is_done_here(say: Say, flows: Path):
    say("deploy", flows)
    code, out, err = say("run", "quick", "--date", "2026-07-01")
    assert (code, out) == (0, 'after: "hello"\n'), err
    code, _, err = say("run", flows / "flows.py:quick", "--date", "2026-07-01")
    assert (code, bool(re.search(r"field\.value: .*\(at --date\)", err))) == (3, True)


def test_a_workflow_and_a_run_are_paused_and_resumed(say: Say, held: rota.Rota):
    assert read(say, "pause", "quick")["paused"]
    run = held.trigger("quick")
    assert run.status().started_at == 0
    assert say("resume", "quick")[:2] == (0, "quick: goes on\n")
    assert run.result(timeout_s=60) == "hello"
    long = held.trigger("daily", {"folder": "/nowhere"})
    assert say("pause", "--run", long.id)[:2] == (0, f"{long.id}: paused\n")
    assert long.status().paused
    assert not read(say, "resume", "--run", long.id)["paused"]
    assert say("undeploy", "quick")[0] == 0
    assert say("undeploy", "quick")[0] == 3


def test_a_failing_run_is_looked_at_noted_retried_cleared_and_marked(say: Say, held: rota.Rota, tmp_path: Path):
    run = held.trigger("daily", {"folder": str(tmp_path)})
    until(lambda: run.tasks("shaky")[0].state == "up_for_retry", "the task to wait for its next try")
    assert say("note", run.id, "shaky", "disk being mended")[:2] == (0, "shaky: disk being mended\n")
    (tmp_path / "mended").touch()
    assert say("retry", run.id, "shaky")[0] == 0
    assert run.result(timeout_s=60) == "done"
    assert read(say, "clear", run.id, "--failed", "--dry-run")["tasks"] == []
    code, out, err = say("clear", run.id, "after", "--dry-run")
    assert (code, out) == (0, "after\n")
    assert re.fullmatch(rf"1 task .*{run.id}\b.*\n", err)
    assert read(say, "clear", run.id, "shaky", "--only", "--dry-run")["tasks"] == ["shaky"]
    assert read(say, "clear", run.id)["tasks"] == ["shaky", "after"]
    assert run.result(timeout_s=60) == "done"
    assert run.tasks("after")[0].attempt == 2
    code, out, _ = say("mark", run.id, "after", "--failed")
    assert (code, out.startswith("after: failed")) == (0, True)
    assert run.wait(60).state == "failed"
    assert say("mark", run.id, "never", "--failed")[0] == 3


def test_a_run_is_moved_to_another_version(say: Say, held: rota.Rota, tmp_path: Path, flows: Path):
    run = held.trigger("daily", {"folder": str(tmp_path)})
    until(lambda: run.tasks("shaky")[0].state == "up_for_retry", "the task to wait for its next try")
    changed = tmp_path / "changed"
    changed.mkdir()
    (changed / "flows.py").write_text((flows / "flows.py").read_text().replace('return "done"', 'return "anew"'))
    say("deploy", changed)
    assert run.status().version == 1
    assert say("move", run.id)[:2] == (0, f"{run.id}: version 2\n")
    (tmp_path / "mended").touch()
    say("retry", run.id)
    assert run.result(timeout_s=60) == "anew"
    assert say("move", run.id, "--version", "9")[0] == 3
    code, out, err = say("clear", run.id, "--version", "1", "--dry-run")
    assert (code, out.splitlines()) == (0, ["shaky", "after"])
    assert re.search(r"\bversion 2\b", err)
    assert run.status().version == 2
    assert read(say, "clear", run.id, "--version", "1") == {
        "run": run.id,
        "tasks": ["shaky", "after"],
        "dry_run": False,
        "version": 1,
    }
    assert run.result(timeout_s=60) == "done"


def test_help_says_what_the_words_leave_out(capfd: pytest.CaptureFixture[str]):
    for words, said in (
        (["clear"], "everything after them is run again too"),
        (["clear"], "without it, also what ended well"),
        (["clear"], "which alone reopens a run that ended"),
        (["retry"], "all that failed for good or were cancelled"),
        (["mark"], "all tasks of a mapped one by its name"),
    ):
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        assert said in " ".join(capfd.readouterr().out.split())


def test_a_backfill_is_looked_at_begun_listed_and_ended(say: Say, held: rota.Rota, tmp_path: Path):
    stretch = ("--from", "2026-03-28", "--to", "2026-03-30")
    code, out, err = say("backfill", "daily", *stretch, "--dry-run")
    assert (code, out.splitlines()) == (
        0,
        ["2026-03-28T00:00:00+01:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"],
    )
    assert "3 slots of daily" in err
    assert held.runs() == []
    begun = read(
        say, "backfill", "daily", *stretch, "--max-active", "1", "--id", "again", "--param", f"folder={tmp_path}"
    )
    assert (begun["backfill"], begun["slots"]) == ("again", 3)
    until(lambda: len(held.runs(name="daily")) == 1, "its first run to be made")
    head, row = say("runs")[1].splitlines()
    assert "LOGICAL DATE" in head
    assert row.split()[:4] == ["again@2026-03-27T23:00Z", "daily", "running", "2026-03-27T23:00Z"]
    code, out, _ = say("backfills")
    assert out.splitlines()[1].split()[:3] == ["again", "daily", "1"]
    assert say("backfills", "cancel", "again")[:2] == (0, "again: cancelled\n")
    assert held.run(held.runs(name="daily")[0].id).wait(60).state == "cancelled"
    assert say("backfills", "cancel", "again")[0] == 3
    assert say("backfill", "quick", *stretch)[0] == 3


def test_a_backfill_that_is_only_looked_at_is_the_one_that_would_be_made(say: Say, held: rota.Rota, tmp_path: Path):
    tomorrow = (datetime.now(UTC) + timedelta(days=40)).date().isoformat()
    today = datetime.now(ZoneInfo("Europe/Berlin")).date()
    start = (today - timedelta(days=2)).isoformat()
    folder = f"folder={tmp_path}"
    looked = read(say, "backfill", "daily", "--from", start, "--to", tomorrow, "--dry-run")
    begun = read(say, "backfill", "daily", "--from", start, "--to", tomorrow, "--id", "b", "--param", folder)
    (view,) = held.backfills()
    assert looked["slots"] == begun["slots"] == view.made + view.left
    assert looked["slots"] in (3, 4), "up to now, and midnight may have come meanwhile"
    for name, stretch in (("daily", (tomorrow, tomorrow)), ("quick", (start, tomorrow))):
        words = ("backfill", name, "--from", stretch[0], "--to", stretch[1])
        assert say(*words, "--dry-run")[2] == say(*words)[2]
        assert say(*words, "--dry-run")[0] == 3
    say("backfills", "cancel", "b")


def test_a_workflow_is_tried_with_virtual_time(flows: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "mended").touch()
    file = f"{flows / 'flows.py'}:daily"
    assert main(["test", file, "--param", f"folder={tmp_path}", "--date", "2026-07-01"]) == 0
    assert main(["test", f"{flows / 'flows.py'}:quick", "--param", "word=3"]) == 0
    assert 'after: success: "3"' in capfd.readouterr().out
    assert main(["test", file, "--param", f"folder={tmp_path}"]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines() == ['shaky: success: "done"', 'after: success: "done"']
    assert "of virtual time: 2 success" in err
    # Hours of waiting take no time.
    assert main(["test", file, "--param", "folder=/nowhere", "--json"]) == 1
    tried = json.loads(capfd.readouterr().out)
    assert (tried["state"], tried["took_ms"] > 3_600_000) == ("failed", True)
    assert main(["test", str(flows / "flows.py")]) == 3
    assert "several workflows" in capfd.readouterr().err
    assert os.environ.get("ROTA_RUN") is None


def test_commands_give_a_run_its_logical_date(say: Say, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    text = """
        from datetime import date

        import rota

        @rota.task
        def show(day):
            return str(day)

        @rota.workflow(timezone="America/New_York")
        def dated(day: date = rota.logical_date()):
            show(day)
        """
    file = tmp_path / "dated.py"
    file.write_text(textwrap.dedent(text))
    read(say, "deploy", file)
    (param,) = read(say, "workflows", "dated")["params"]
    assert (param["defaults_to_logical_date"], param["required"]) == (True, False)
    assert "logical date" in say("workflows", "dated")[1]
    deployed = read(say, "run", "dated", "--date", "2026-11-16", "--follow")
    assert (deployed["params"], deployed["tasks"][0]["result"]) == ({"day": "2026-11-16"}, "2026-11-16")
    here = read(say, "run", file)
    about = datetime.fromtimestamp(here["created_at"] / 1_000, ZoneInfo("America/New_York"))
    assert here["params"] == {"day": about.date().isoformat()}
    assert main(["test", str(file), "--date", "2026-11-16", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["tasks"][0]["result"] == "2026-11-16"


def test_a_text_may_be_none_on_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    file = tmp_path / "flow.py"
    text = """
        import rota

        @rota.task
        def seen(word):
            return repr(word)

        @rota.workflow
        def g(word: str | None = "x"):
            seen(word)
        """
    file.write_text(textwrap.dedent(text))
    assert main(["test", str(file), "--param-json", "word=null"]) == 0
    assert capfd.readouterr().out == 'seen: success: "None"\n'
    assert main(["test", str(file), "--param", "word=null"]) == 0
    assert capfd.readouterr().out == "seen: success: \"'null'\"\n"
    with pytest.raises(SystemExit):
        main(["test", str(file), "--param-json", "word=nul"])
    assert "is not NAME=JSON" in capfd.readouterr().err


def test_a_test_names_functions_by_their_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    file = tmp_path / "flow.py"
    file.write_text("import rota, threading\n\n@rota.task\ndef t():\n    return threading.Lock()\n\n")
    with file.open("a") as out:
        out.write("@rota.workflow\ndef g():\n    t()\n")
    assert main(["test", str(file)]) == 1
    assert "task 't' (flow.py:t)" in capfd.readouterr().err


def test_a_number_without_end_is_null_in_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    file = tmp_path / "flow.py"
    file.write_text("import rota\n\n@rota.task\ndef t():\n    return [float('nan'), float('inf')]\n\n")
    with file.open("a") as out:
        out.write("@rota.workflow\ndef g():\n    t()\n")
    assert main(["test", str(file), "--json"]) == 0
    told = json.loads(capfd.readouterr().out, parse_constant=pytest.fail)
    assert told["tasks"][0]["result"] == [None, None]
