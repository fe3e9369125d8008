"""Parameters of statements: `$1`, `$name`, and `?`, which stands for the next number."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from rota.core.errors import Refused

# Texts, quoted names and comments, in which a question mark is only that; and then the mark itself.
_PIECES = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\?|\$\w+", re.DOTALL)

# What comes before a word of a statement. It is never read in another way: many comments would be read in very many.
_BEFORE = r"(?>\s+|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*+"
_PREPARE = re.compile(rf"{_BEFORE}prepare\b", re.IGNORECASE | re.DOTALL)
_NAMING = re.compile(rf"{_BEFORE}(?:prepare|deallocate)\b", re.IGNORECASE | re.DOTALL)
_CREATING = re.compile(rf"{_BEFORE}create\b", re.IGNORECASE | re.DOTALL)
_STATEMENT_NAME = re.compile(
    rf"{_BEFORE}(?P<verb>prepare|execute|deallocate)\b(?:(?<=deallocate){_BEFORE}prepare\b(?={_BEFORE}[\"`\w]))?"
    rf"{_BEFORE}(?P<name>\"(?:[^\"]|\"\")*\"|`[^`]*`|\w+)",
    re.IGNORECASE | re.DOTALL,
)
_OF_PREPARED = re.compile(rf"{_BEFORE}(?:prepare|execute|deallocate)\b", re.IGNORECASE | re.DOTALL)

Given = Sequence[Any] | Mapping[str, Any]


def numbered(sql: str) -> str:
    """The statement with `$1`, `$2` in place of its question marks. Raises Refused if it has both."""
    count = 0
    named = names_in(sql)

    def number(found: re.Match[str]) -> str:
        nonlocal count
        if found.group() != "?":
            return found.group()
        if named:
            text = f"the statement has ? and ${named[0]}, and it is not clear which value is for which"
            raise Refused("query.parameter", text, "Write all of them in one way.", path="sql")
        count += 1
        return f"${count}"

    return _PIECES.sub(number, sql)


def names_in(sql: str) -> tuple[str, ...]:
    """The parameters of a statement without question marks, each once, as they come.

    Those of a statement that PREPARE names are given a value by EXECUTE.
    """
    if _PREPARE.match(sql):
        return ()
    return tuple(dict.fromkeys(piece[1:] for piece in _PIECES.findall(sql) if piece[0] == "$"))


def is_of_prepared(sql: str) -> bool:
    """Whether a statement is PREPARE, EXECUTE or DEALLOCATE."""
    return _OF_PREPARED.match(sql) is not None


class StatementName(Struct, frozen=True):
    """What a PREPARE, EXECUTE or DEALLOCATE does, and the name in it; `before` and `after` are the rest of the text."""

    verb: str
    name: str
    before: str
    after: str


def statement_name(sql: str) -> StatementName | None:
    """The name of a prepared statement in a statement about one; None if it cannot be read."""
    found = _STATEMENT_NAME.match(sql)
    if found is None:
        return None
    written = found["name"]
    # As the engine has it: in small letters, unless it is in quotes.
    name = written[1:-1].replace('""', '"') if written[0] in '"`' else written.lower()
    return StatementName(found["verb"].lower(), name, sql[: found.start("name")], sql[found.end("name") :])


def is_create(sql: str) -> bool:
    """Whether a statement is one of the CREATE statements."""
    return _CREATING.match(sql) is not None


def names_statement(sql: str) -> bool:
    """Whether a statement is PREPARE or DEALLOCATE: it has no rows, and is carried out when it is planned."""
    return _NAMING.match(sql) is not None


def values_of(sql: str, given: Given) -> dict[str, Any]:
    """What each parameter of a statement is given. Raises Refused for one too many or too few."""
    wanted = names_in(sql)
    if isinstance(given, Mapping):
        values = {str(name): value for name, value in given.items()}
    else:
        values = {str(number): value for number, value in enumerate(given, 1)}
    missing = [name for name in wanted if name not in values]
    if missing:
        text = f"the statement has the parameters {_listed(wanted)}, and nothing is given for {_listed(missing)}"
        raise Refused("query.parameter", text, "Give a value for each.", path="params")
    extra = [name for name in values if name not in wanted]
    if extra:
        text = f"a value is given for {_listed(extra)}, and the statement has {_listed(wanted) or 'no parameters'}"
        raise Refused("query.parameter", text, "Leave it out, or name it in the statement.", path="params")
    return values


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"${name}" for name in names)
