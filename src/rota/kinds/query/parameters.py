"""Parameters of statements: `$1`, `$name`, and `?`, which stands for the next number."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rota.core.errors import Refused

# Texts, quoted names and comments, in which a question mark is only that; and then the mark itself.
_PIECES = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\?|\$\w+", re.DOTALL)

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
    """The parameters of a statement without question marks, each once, as they come."""
    return tuple(dict.fromkeys(piece[1:] for piece in _PIECES.findall(sql) if piece[0] == "$"))


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
