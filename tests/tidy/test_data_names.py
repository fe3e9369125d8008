"""Data has names of its own: a class can be renamed without touching what is stored or sent.

The lists below are the formats of Rota's data. A name may be added; one that is here is never changed or used again.
"""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec

import rota
from rota.core import changes as ch
from rota.core import commands as cm
from rota.core.question import Question
from rota.core.records import RECORD_NAMES
from rota.core.tags import tag_of
from rota.wire import requests

SOURCE = Path(rota.__file__).parent
NAMES = Path(__file__).with_name("data_names.txt")
TAGGED = (cm.Command, ch.Change, Question)


def leaves(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in base.__subclasses__():
        if each.__subclasses__():
            yield from leaves(each)
        elif each.__module__.startswith("rota."):
            yield each


def names() -> list[str]:
    """Every name that data has, by what it is of."""
    found = [f"{base.__name__.lower()} {tag_of(each)}" for base in TAGGED for each in leaves(base)]
    found += [f"request {tag_of(each)}" for each in (requests.Watch, requests.Forget)]
    found += [f"record {name}" for name in RECORD_NAMES.values()]
    return sorted(found)


def test_the_names_of_data_are_those_on_the_list() -> None:
    assert names() == NAMES.read_text().splitlines()


def test_every_request_has_a_literal_tag() -> None:
    assert [each for each in get_args(requests.RequestBody) if not tag_of(each)] == []


def test_no_tag_is_made_of_the_name_of_a_class() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{word.lineno}"
        for path in sorted(SOURCE.rglob("*.py"))
        for word in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(word, ast.keyword) and word.arg == "tag" and not _is_literal(word.value)
    ]
    assert found == []


def _is_literal(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def test_a_class_that_is_renamed_is_stored_as_before() -> None:
    """The module of changes is loaded once more with `LeaseGranted` under another name."""
    path = SOURCE / "core" / "changes.py"
    source = path.read_text(encoding="utf-8").replace("class LeaseGranted(", "class GrantRecorded(")
    source = source.replace("LeaseGranted\n", "GrantRecorded\n")
    spec = importlib.util.spec_from_loader("renamed_changes", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        exec(compile(source, "renamed_changes", "exec"), module.__dict__)  # noqa: S102 - our own source, with a name changed
        renamed = module.GrantRecorded
        was = ch.LeaseGranted(*range(len(ch.LeaseGranted.__struct_fields__)))  # pyright: ignore[reportArgumentType] - values do not matter
        now = renamed(*range(len(renamed.__struct_fields__)))
    finally:
        del sys.modules[spec.name]
    assert msgspec.msgpack.encode(now) == msgspec.msgpack.encode(was)
    assert tag_of(now) == "LeaseGranted"
