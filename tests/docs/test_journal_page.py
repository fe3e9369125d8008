"""The page about the journal names every event in the code, how loud each is, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from rota.app.journal import LEVELS

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| `([\w.]+)` \| (\w+) \| (.+) \| (.+) \|$", re.MULTILINE)


def told_in(path: Path) -> Iterator[str]:
    """The events that a module tells: what stands first in each `Tell` of the control plane."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = [each.name for node in imports if node.module == "rota.control.events" for each in node.names]
    for node in ast.walk(tree) if "Tell" in names else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Tell":
            first = node.args[0]
            assert isinstance(first, ast.Constant), f"{path}:{node.lineno}: the event must be written out to be found"
            yield str(first.value)


def events() -> set[str]:
    # What the journal makes of the ladder's cycles, and of too many sorts of lines.
    own = {"other", "starved", "task.starved"}
    return own.union(*(told_in(path) for path in (ROOT / "src" / "rota").rglob("*.py")))


def test_every_event_in_the_code_has_a_level():
    assert events() == set(LEVELS)


def test_the_page_has_one_row_for_each_event_with_its_level():
    page = (ROOT / "docs" / "reference" / "journal.md").read_text(encoding="utf-8")
    rows = _ROW.findall(page)
    assert {name: level for name, level, _, _ in rows} == {name: level.value for name, level in LEVELS.items()}
    assert [name for name, *_ in rows] == sorted(LEVELS), "in alphabetical order"
