"""The reference tables name everything there is and nothing else, and give the numbers that are used."""

import re
from pathlib import Path

import msgspec
import pytest

from rota.core import bounds
from rota.core.errors import CODES
from rota.core.reasons import REASON_CODES
from rota.core.trigger import TriggerRule
from rota.kinds.workflow.template_fields import TEMPLATED

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"

SRC = Path(__file__).parents[2] / "src" / "rota"

_ROW = re.compile(r"^\| `(?P<name>[\w.]+)` \|(?P<rest>.*)\|$", re.MULTILINE)


def rows(text: str) -> list[tuple[str, list[str]]]:
    """The rows of a page's tables whose first cell is one name, with their other cells."""
    return [(row["name"], [cell.strip() for cell in row["rest"].split("|")]) for row in _ROW.finditer(text)]


def page(name: str) -> list[tuple[str, list[str]]]:
    return rows((REFERENCE / name).read_text(encoding="utf-8"))


def limits() -> dict[str, int]:
    """Every constant of the module and every field of the time limits, with its value."""
    constants = {name: value for name, value in vars(bounds).items() if name.isupper() and isinstance(value, int)}
    return {**constants, **msgspec.structs.asdict(bounds.TimeLimits())}


@pytest.mark.parametrize(
    ("document", "names"),
    [("errors.md", list(CODES)), ("reasons.md", list(REASON_CODES)), ("limits.md", list(limits()))],
)
def test_a_table_has_one_row_for_each_name_and_no_other(document: str, names: list[str]) -> None:
    assert names, "there is something to document"
    assert sorted(name for name, _ in page(document)) == sorted(names)


def test_the_guide_has_one_row_for_each_trigger_rule() -> None:
    guide = (REFERENCE.parent / "guides" / "workflows.md").read_text(encoding="utf-8")
    section = guide.partition("\n## Trigger rules\n")[2].partition("\n## ")[0]
    assert sorted(name for name, _ in rows(section)) == sorted(TriggerRule)


def test_the_guide_lists_the_fields_that_may_be_templates() -> None:
    guide = (REFERENCE.parent / "guides" / "workflows.md").read_text(encoding="utf-8")
    section = guide.partition("\n## Templates\n")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `([@\w.]+)` \| (.+) \|$", section, re.MULTILINE)
    assert {way: tuple(re.findall(r"`(\w+)`", fields)) for way, fields in told} == TEMPLATED


@pytest.mark.parametrize("document", ["errors.md", "reasons.md", "limits.md"])
def test_every_row_is_filled_in(document: str) -> None:
    assert [name for name, cells in page(document) if not all(cells)] == []


def test_the_limits_page_gives_the_values_in_use() -> None:
    told = {name: int(cells[0].replace(",", "")) for name, cells in page("limits.md")}
    assert told == limits()


def test_every_error_code_is_raised_somewhere_or_marked_as_reserved() -> None:
    source = [path for path in SRC.rglob("*.py") if path.name != "errors.py"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in source)
    unused = [code for code in CODES if f'"{code}"' not in text]
    assert unused == [name for name, cells in page("errors.md") if cells[0] == "reserved"]


def test_a_row_that_is_missing_or_empty_is_noticed() -> None:
    text = "| code | meaning |\n|---|---|\n| `a.b` | said |\n| `a.c` | |\nnot a row: `a.d`\n"
    assert rows(text) == [("a.b", ["said"]), ("a.c", [""])]
