"""Every command that prints data, typed once with `--json` at a coordinator that is there: the fields it prints.

They are promised to programs, so `json_fields.json` keeps them: what is missing there, or gone, is a decision. With
`ROTA_KEEP_FIELDS=1` this test writes the file anew.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import rota
from rota.cli import main
from rota.cli.outline import outline
from rota.wire.standings import Told, write_told
from tests.integration import jobs
from tests.integration.deadlines import until

FIELDS = Path(__file__).with_name("json_fields.json")
FILE = """import rota

@rota.task
def one():
    print("hello")
    return 1

@rota.workflow(schedule="@daily")
def daily():
    one()
"""
# What has fields of its own that programs read, one level further down.
INNER = ("overview", "pool", "run", "workflow")


def fields_of(value: Any) -> list[str]:
    """The fields of what was printed, or of the first of a list; nothing if the list is empty."""
    if isinstance(value, list):
        return fields_of(value[0]) if value else []
    if not isinstance(value, dict):
        return ["(a value)"]
    inner = [f"{name}.{each}" for name in INNER if isinstance(value.get(name), dict) for each in value[name]]
    return sorted([*value, *inner])


class Typist:
    """Types commands about one folder, and keeps what each printed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.printed: dict[str, Any] = {}

    def type(self, path: str, *words: str, code: int = 0, place: bool = True) -> Any:
        raw = BytesIO()
        out, err = TextIOWrapper(raw, encoding="utf-8", write_through=True), StringIO()
        where = ["--data", str(self.folder)] if place else []
        with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "stdout", out):
            assert main([*path.split(), *words, "--json", *where]) == code, err.getvalue()
        found = json.loads(raw.getvalue())
        self.printed.setdefault(path, found)
        return found


@pytest.fixture(scope="module")
def typist(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typist]:
    home = tmp_path_factory.mktemp("every")
    before = Path.cwd()
    os.chdir(home)
    try:
        with rota.Rota.embedded(home / "data", slots=2) as one:
            typist = Typist(home / "data")
            type_everything(typist, one, home)
            yield typist
    finally:
        os.chdir(before)


def type_everything(typist: Typist, one: rota.Rota, home: Path) -> None:
    say = typist.type
    (home / "daily.py").write_text(FILE, encoding="utf-8")
    say("deploy", "daily.py")
    say("workflows")
    say("run", "daily", "--id", "made", "--follow")
    say("test", "daily.py", place=False)
    say("backfill", "daily", "--from", "2026-01-01", "--to", "2026-01-03", "--id", "past")
    say("backfills")
    say("pause", "daily")
    say("resume", "daily")
    never = jobs.nothing.override(requires={"gpu_count": 8})
    stuck = one.submit(never, run="stuck", labels={"team": "a"})
    until(lambda: stuck.tasks()[0].state == "queued", "the task to wait")
    task = stuck.tasks()[0].id
    say("runs")
    say("tasks", "stuck")
    say("why", "stuck", task)
    say("story", "stuck")
    say("logs", "made", "one")
    say("note", "stuck", task, "seen")
    say("mark", "stuck", task, "--failed")
    say("clear", "stuck", "--dry-run")
    say("retry", "stuck")
    say("cancel", "stuck")
    say("move", "made")
    say("top")
    for noun, name, more in (
        ("pools", "p", ["--slots", "1"]),
        ("queues", "q", ["--pull"]),
        ("tenants", "t", ["--weight", "3"]),
    ):
        say(noun, "set", name, *more)
    say("workers")
    say("audit")
    say("token new", "--role", "reader", place=False)
    say("undeploy", "daily")
    say("sql", "select 1 as one", place=False)
    say("builds")
    work_everything(typist)
    stream_everything(typist)
    say("debug dump", "--output", str(home / "dump.tar.gz"))
    say("db check")
    say("db backup", str(home / "copy.db"))
    say("doctor")
    say("demo", place=False)
    say("sim", "--seeds", "1", place=False)
    (home / "builds").mkdir()
    say("frontend", "--check", "--data", str(home / "builds"), place=False)


def work_everything(typist: Typist) -> None:
    say = typist.type
    item = say("work submit", "Look at it", "--approval", "manual")["item"]
    say("work list")
    say("work show", item)
    say("work pause", item)
    say("work resume", item)
    say("work approve", item)
    claim = say("work claim", "--session", "me", "--limit", "1")[0]
    say("sessions")
    token = typist.folder.parent / "token"
    token.write_text(claim["token"], encoding="utf-8")
    held = [claim["item"], "--session", "me", "--fence", claim["fence"], "--token-file", str(token)]
    say("work renew", *held)
    say("work release", item)
    say("work fail", item, "--reason", "no")
    say("work retry", item)
    claim = say("work claim", "--session", "me")[0]
    token.write_text(claim["token"], encoding="utf-8")
    held = [claim["item"], "--session", "me", "--fence", claim["fence"], "--token-file", str(token)]
    say("work complete", *held)
    second = say("work submit", "Another", "--approval", "manual")["item"]
    say("work reject", second)
    third = say("work submit", "A third")["item"]
    say("work cancel", third)
    for verb in ("status", "pause", "resume", "drain", "backlog"):
        say(f"scheduler {verb}")


def stream_everything(typist: Typist) -> None:
    say, folder = typist.type, typist.folder / "streams" / "clicks"
    (folder / "rounds").mkdir(parents=True)
    (folder / "identity").write_text("abc", encoding="utf-8")
    write_told(folder, Told(told_at=1, round=3, restorable=(3,)))
    for words in (("list",), ("show", "clicks"), ("pause", "clicks"), ("resume", "clicks")):
        say(f"stream {words[0]}", *words[1:])
    say("stream savepoint", "clicks", "kept")
    say("stream restore", "clicks", "3")


# What needs more than a folder, and where it is typed instead.
ELSEWHERE = {
    "db vacuum": "tests/integration/test_db_command.py",
    "resolve": "needs a task that is parked: tests/integration/test_names_on_the_command_line.py",
    "work requeue": "likewise: tests/integration/agents/test_commands.py",
}


def test_every_command_that_prints_json_is_typed_here_or_elsewhere(typist: Typist):
    leaves = [leaf for each in outline() for leaf in each.leaves()]
    printing = {leaf.name for leaf in leaves if any("--json" in word.names for word in leaf.options)}
    assert printing == set(typist.printed) | set(ELSEWHERE)


def test_what_commands_print_has_the_fields_that_were_promised(typist: Typist):
    found = {path: fields_of(value) for path, value in sorted(typist.printed.items())}
    if os.environ.get("ROTA_KEEP_FIELDS"):
        FIELDS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    promised = json.loads(FIELDS.read_text(encoding="utf-8"))
    assert set(promised) == set(found)
    # A list may be empty: what it is about may have ended meanwhile.
    assert {path: found[path] or promised[path] for path in found} == promised
