"""Every error code that the source raises or asks about is in the table: a wrong one would only show when raised."""

import ast
from collections.abc import Iterator
from pathlib import Path

from rota.core.errors import CODES

SRC = Path(__file__).parents[2] / "src" / "rota"


def codes_in(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name(id="Refused" | "Unavailable"), args=[ast.Constant(value=str(code)), *_]):
                yield node.lineno, code
            case ast.Compare(
                left=ast.Attribute(value=ast.Name(id="refused" | "unavailable"), attr="code"),
                comparators=[ast.Constant(value=str(code))],
            ):
                yield node.lineno, code
            case _:
                pass


def test_every_code_in_the_source_is_in_the_table():
    used = [(path, line, code) for path in sorted(SRC.rglob("*.py")) for line, code in codes_in(path.read_text())]
    assert len(used) > 50, "codes are found"
    assert [f"{path}:{line}: {code}" for path, line, code in used if code not in CODES] == []


def test_a_code_that_is_misspelt_is_noticed():
    text = 'raise Refused("no.such", "x")\nif refused.code != "nor.this":\n    pass\n'
    assert list(codes_in(text)) == [(1, "no.such"), (2, "nor.this")]
