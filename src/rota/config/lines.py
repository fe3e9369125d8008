"""Where in a TOML file a key stands, so that whoever is told of a mistake finds it."""

import re
from collections.abc import Callable, Iterator

from rota.core.errors import Refused

# Where something stands in a file, by its path; and the refusal of a path that nobody knows.
Where = Callable[[str], str]
Unknown = Callable[[str, str, list[str]], Refused]

_HEADER = re.compile(r"\s*(?P<open>\[\[?)(?P<name>[^\[\]]+)\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*(?P<key>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def lines_of(text: str) -> dict[str, int]:
    """The line of every table and key, by its path. The parser gives none; text that spans lines may hide some.

    The tables of a list have numbers: `schedulers[0].name`.
    """
    found: dict[str, int] = {}
    counts: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.fullmatch(line)
        key = _KEY.match(line)
        if header:
            name = _plain(header["name"])
            if header["open"] == "[[":
                found.setdefault(name, number)
                counts[name] = counts.get(name, -1) + 1
            table = _numbered(name, counts)
            for path in _ways(table):
                found.setdefault(path, number)
        elif key:
            name = _plain(key["key"])
            for path in _ways(name):
                found.setdefault(f"{table}.{path}" if table else path, number)
    return found


def _plain(name: str) -> str:
    return ".".join(part.strip("\"'") for part in _PART.findall(name))


def _numbered(name: str, counts: dict[str, int]) -> str:
    """A table below a list belongs to the newest of the list's tables."""
    path, plain = "", ""
    for part in name.split("."):
        plain = f"{plain}.{part}" if plain else part
        path = f"{path}.{part}" if path else part
        if plain in counts:
            path = f"{path}[{counts[plain]}]"
    return path


def _ways(path: str) -> Iterator[str]:
    """A path and the tables on the way to it."""
    parts = path.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])
