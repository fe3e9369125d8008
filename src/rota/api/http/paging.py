"""Pages of lists: how long they may be, where one ends, and the header that names the next."""

from typing import Any
from urllib.parse import urlencode

from rota.core.bounds import HISTORY_PAGE_MAX
from rota.core.errors import Refused
from rota.core.graph import check_number


def check_page(limit: int) -> None:
    """Refuse a page that is too long, or empty."""
    check_number(limit, 1, HISTORY_PAGE_MAX, "limit")


def is_number(text: str) -> bool:
    """Whether this is a number of ours as it is written: what is longer would not fit into 64 bits."""
    return text.isascii() and text.isdecimal() and len(text) < 19


def read_number(after: str) -> int:
    """Where a list that is counted goes on."""
    if not after:
        return 0
    if not is_number(after):
        hint = "Take it from `next` of the page before."
        raise Refused("field.value", f"{after[:40]!r} is not where a page ended", hint, path="after")
    return int(after)


def next_link(path: str, query: list[tuple[str, Any]]) -> dict[str, str]:
    """The header that names the next page; nothing if `after`, the last of the query, is empty."""
    if not query[-1][1]:
        return {}
    return {"Link": f'<{path}?{urlencode([pair for pair in query if pair[1]])}>; rel="next"'}
