"""Where in a TOML file a key stands, so that whoever is told of a mistake finds it."""

import re
from collections.abc import Iterator

_HEADER = re.compile(r"\s*\[\[?(?P<name>[^\[\]]+)\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*(?P<key>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def lines_of(text: str) -> dict[str, int]:
    """The line of every table and key, by its path. The parser gives none; text that spans lines may hide some."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.fullmatch(line)
        key = _KEY.match(line)
        if header:
            table = _plain(header["name"])
            for path in _ways(table):
                found.setdefault(path, number)
        elif key:
            name = _plain(key["key"])
            for path in _ways(name):
                found.setdefault(f"{table}.{path}" if table else path, number)
    return found


def _plain(name: str) -> str:
    return ".".join(part.strip("\"'") for part in _PART.findall(name))


def _ways(path: str) -> Iterator[str]:
    """A path and the tables on the way to it."""
    parts = path.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])
