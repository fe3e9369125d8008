"""What holds for every command: help with examples, `--json`, words that mean the same, and a quick start."""

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys

import pytest

from rota.api import auth
from rota.cli import COMMANDS, EXIT_CODES, EXIT_USAGE, THEMES, choices, main, make_parser
from rota.cli.outline import Outline, outline
from rota.cli.parsers import without_remark
from rota.client import items, scheduling
from rota.core import bounds, commands, model
from rota.wire import deployments, sessions
from rota.wire import items as wire_items

ALL = outline()
LEAVES = [leaf for each in ALL for leaf in each.leaves()]
# What prints no data, and why.
WITHOUT_JSON = {
    "up": "goes on until it is stopped",
    "server": "likewise",
    "worker": "likewise",
    "flight": "likewise",
    "mcp": "speaks a protocol of its own on stdout",
    "completion": "prints a program for a shell",
}
# What takes so long to import that help cannot wait for it.
HEAVY = ("apsw", "asyncio", "cloudpickle", "concurrent.futures", "datafusion", "grpc", "httpcore", "jinja2", "msgspec")
HEAVY += (
    "obstore",
    "prometheus_client",
    "psycopg",
    "pyarrow",
    "rota.api",
    "rota.client",
    "rota.config",
    "rota.control",
)
HEAVY += (
    "rota.core.model",
    "rota.sim",
    "rota.stores",
    "rota.wire",
    "rota.worker",
    "ssl",
    "starlette",
    "uvicorn",
    "uvloop",
)


def test_every_command_that_prints_data_prints_json():
    assert len(LEAVES) > 50
    has_json = {each.name: any("--json" in word.names for word in each.options) for each in LEAVES}
    prints_data = {each.name: each.path[0] not in WITHOUT_JSON for each in LEAVES}
    assert has_json == prints_data


def test_every_word_of_a_command_says_what_it_is():
    assert [each.name for each in LEAVES if not each.summary] == []
    assert [(each.name, word.names) for each in LEAVES for word in each.words if not word.help] == []


@pytest.mark.slow
def test_every_command_has_examples_that_can_be_typed():
    assert [each.name for each in LEAVES if not each.examples] == []
    wrong = [(each.name, line) for each in LEAVES for line in each.examples if not can_be_typed(each, line)]
    assert wrong == []


def can_be_typed(each: Outline, line: str) -> bool:
    words = shlex.split(without_remark(line).removeprefix("source <(").removesuffix(")"))
    words = words[words.index("rota") + 1 :]
    # Where its output goes is the shell's business.
    words = words[: words.index(">")] if ">" in words else words
    try:
        make_parser([each.path[0]]).parse_args(words)
    except SystemExit:
        return False
    return tuple(words[: len(each.path)]) == each.path


# Options of one name that take two sorts of value, and why.
TWO_SORTS = {
    "--param": "a value in a statement has no name",
    "--state": "states of runs and tasks are few; those of items are the same, and more",
}


def test_an_option_of_one_name_takes_the_same_sort_of_value_everywhere():
    seen: dict[str, set[str]] = {}
    for each in LEAVES:
        for word in each.options:
            for name in word.names:
                seen.setdefault(name, set()).add("choice" if word.choices else word.value)
    assert {name for name, values in seen.items() if len(values) > 1} == set(TWO_SORTS)


def test_a_coordinator_is_named_by_the_same_option_everywhere():
    urls = {name for each in LEAVES for word in each.options if word.value == "URL" for name in word.names}
    assert urls == {"--coordinator", "--store"}


def test_nouns_are_plural_and_verbs_are_not():
    lists = [name for name, (_, summary) in COMMANDS.items() if summary.startswith("list ")]
    assert [name for name in lists if not name.endswith("s")] == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (choices.PRIORITIES, model.PriorityClass),
        (choices.ALLOCATIONS, model.Allocation),
        (choices.UNSERVABLE, model.Unservable),
        (choices.PROPERTY_RULES, model.PropertyRule),
        (choices.MARKS, commands.Mark),
        (choices.TOKEN_ROLES, auth.TOKEN_ROLES),
        (choices.ITEM_PRIORITIES, wire_items.Priority),
        (choices.APPROVALS, wire_items.ApprovalPolicy),
        (choices.ITEM_ACTIONS, items.BULK_ACTIONS),
        ([choices.ITEM_ATTEMPTS], [wire_items.ATTEMPTS]),
        ([choices.CLAIM_LEASE_S * 1000], [sessions.LEASE_MS]),
        ([choices.DRAIN_S], [scheduling.DRAIN_S]),
        ([choices.LOAD_S], [deployments.LOAD_S]),
        ([choices.BACKFILL_ACTIVE_RUNS], [bounds.BACKFILL_ACTIVE_RUNS]),
    ],
)
def test_what_help_shows_is_what_is_meant(written: list[object], meant: list[object]):
    assert list(written) == list(meant)


def test_help_of_any_command_imports_nothing_that_takes_long():
    code = (
        "import json, sys\n"
        "from rota.cli import COMMANDS, make_parser\n"
        "make_parser(COMMANDS).format_help()\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert [name for name in loaded if any(name == each or name.startswith(f"{each}.") for each in HEAVY)] == []


def test_help_groups_commands_by_theme_and_says_what_exit_codes_mean():
    shown = make_parser([]).format_help()
    places = [shown.index(f"\n{theme}:\n") for theme in THEMES]
    assert places == sorted(places)
    assert all(f"\n  {name:<12}{summary}\n" in shown for name, (_, summary) in COMMANDS.items())
    assert all(meaning in shown for meaning in EXIT_CODES.values())
    assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["rns"], r"'rns'.* runs\b.* run\b"),
        (["rusn"], r"'rusn'.* run\b.* runs\b"),
        (["runs", "--jsno"], r"--jsno\b.* --json\b"),
        (["runs", "--state", "faild"], r"'faild'.* failed\b"),
        (["work", "sumbit"], r"'sumbit'.* submit\b"),
        (["pools", "sett", "x"], r"'sett'.* set\b"),
        (["work", "submit", "x", "--priority", "urgnt"], r"'urgnt'.* urgent\b"),
        (["runs", "--js"], r"--js\b"),
        (["cancel", "a", "b"], r"'b'"),
        (["zzzzzz"], r"'zzzzzz'.* rota --help"),
    ],
)
def test_a_slip_of_the_finger_is_answered_with_what_was_meant(words: list[str], meant: str):
    err = io.StringIO()
    with contextlib.redirect_stderr(err), pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == EXIT_USAGE
    assert re.search(meant, err.getvalue().splitlines()[-1]), err.getvalue()
