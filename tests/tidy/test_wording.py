"""Tests compare codes, fields and names, not sentences: wording may change without a test noticing.

Where the wording itself is what is tested (a renderer, a formatter), the statement says so with a comment `# wording`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
_FOUR_WORDS = re.compile(r"(?:\b[A-Za-z][a-z']*[,;:.]? ){3}[A-Za-z][a-z']*")
_SMALL_WORD = re.compile(
    r"\b(?:a|an|and|are|at|be|been|but|by|can|cannot|could|for|from|had|has|have|if|in|into|is|it|its|may|must|no|not|of|on"
    r"|or|than|that|the|their|them|there|they|this|to|was|were|what|which|while|who|will|with)\b"
)
# Calls whose first argument is what something has to say.
_COMPARING = ("endswith", "startswith", "to_contain_text", "to_have_text", "until_said")
_SQL = re.compile(r"\s*(?:select|with|create|insert|update|delete|explain|copy|drop|alter|analyze)\b", re.IGNORECASE)


def is_sentence(text: str) -> bool:
    """Whether a text has four words of prose in a row."""
    runs = (found.group() for found in _FOUR_WORDS.finditer(text))
    return not _SQL.match(text) and any(_SMALL_WORD.search(run) for run in runs)


def sentences_compared(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each sentence with which a test compares something."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        for expected in (*_expected(node), *_expected_of_cases(node)):
            for each in ast.walk(expected):
                if isinstance(each, ast.Constant) and isinstance(each.value, str) and is_sentence(each.value):
                    place = expected if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else node
                    said = lines[getattr(place, "lineno", 1) - 1 : getattr(place, "end_lineno", 1)]
                    if not any("# wording" in line for line in said):
                        yield each.lineno, each.value


def _expected_of_cases(function: ast.AST) -> Iterator[ast.AST]:
    """What stands in the columns of a table of cases that the test compares with something."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    compared = {name for node in ast.walk(function) for name in _names_compared(node)}
    for call in function.decorator_list:
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "parametrize" and len(call.args) > 1:
            names, cases = call.args[0], call.args[1]
            columns = [each.value for each in ast.walk(names) if isinstance(each, ast.Constant)]
            columns = columns[0].replace(" ", "").split(",") if len(columns) == 1 else columns
            for case in getattr(cases, "elts", []):
                cells = case.args if isinstance(case, ast.Call) else getattr(case, "elts", [case])
                yield from (cell for name, cell in zip(columns, cells, strict=False) if name in compared)


def _names_compared(node: ast.AST) -> Iterator[str]:
    for expected in _expected(node):
        sides = [expected.left, *expected.comparators] if isinstance(expected, ast.Compare) else [expected]
        yield from (side.id for side in sides if isinstance(side, ast.Name))


def _expected(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Assert):
        yield from (each for each in ast.walk(node.test) if isinstance(each, ast.Compare))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "raises":
            yield from (each.value for each in node.keywords if each.arg == "match")
        elif node.func.attr in _COMPARING or getattr(node.func.value, "id", "") == "re":
            yield from node.args[:1]


@pytest.mark.slow
def test_no_test_compares_sentences() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}: {text[:100]!r}"
        for path in sorted(TESTS.rglob("*.py"))
        for line, text in dict(sentences_compared(path.read_text(encoding="utf-8"))).items()
    ]
    assert not found, "compare codes, fields or names instead:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "assert str(error) == 'the pool has no room left'",
        "assert 'is in none of the places' in text",
        "with pytest.raises(Refused, match='a value is given for one'): pass",
        "assert re.search('there is no such run', text)",
        "assert text.startswith('the pool has no room')",
        "@pytest.mark.parametrize(('x', 'said'), [(1, 'it is not a fence')])\ndef t(x, said):\n  assert said in f(x)",
    ],
)
def test_a_sentence_is_noticed(source: str) -> None:
    assert len(dict(sentences_compared(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "assert error.code == 'pool.too_small'",
        "assert text == 'the pool has no room left'  # wording",
        "assert is_it, 'the pool has no room left'",
        "assert 'select a from b where it is in c' in text",
        "assert row == 'etl extract load success'",
        "@pytest.mark.parametrize('text', ['it is not a fence'])\ndef test(text):\n  assert f(text) == 1",
    ],
)
def test_codes_names_and_wording_that_is_meant_are_left_alone(source: str) -> None:
    assert not list(sentences_compared(source))
