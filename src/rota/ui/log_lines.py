"""Lines of a log for the script of its page, as JSON: some of them, and the numbers of those that are searched for."""

from typing import Any

import msgspec
from msgspec import Struct
from starlette.responses import Response

from rota.ui.visits import PAGE_HEADERS, Page, Visit
from rota.wire.requests import ReadLogLines, SearchLog

_PATH = "/runs/{run}/tasks/{task}/log"


class LinesFilter(Struct, frozen=True, kw_only=True):
    """Which lines: `count` from line `first` on, or the last ones if that is 0. `log` is one of an attempt's logs."""

    attempt: int = 0
    log: str = ""
    first: int = 0
    count: int = 0


class SearchFilter(Struct, frozen=True, kw_only=True):
    """What is searched for from line `first` on: a text, or errors without one; `limit` is how many lines at most."""

    attempt: int = 0
    log: str = ""
    text: str = ""
    first: int = 1
    limit: int = 1


async def _lines(visit: Visit) -> Response:
    return await _answer(visit, ReadLogLines)


async def _search(visit: Visit) -> Response:
    return await _answer(visit, SearchLog)


async def _answer(visit: Visit, request: type[ReadLogLines | SearchLog]) -> Response:
    client = visit.client
    given: dict[str, Any] = {**visit.path, **msgspec.structs.asdict(visit.query)}
    answer = await client.ask(request(tenant=client.line.tenant, **given))
    return Response(msgspec.json.encode(answer), headers=PAGE_HEADERS, media_type="application/json")


LOG_LINE_PAGES = (
    Page(path=f"{_PATH}/lines", serve=_lines, summary="Lines of a log, as JSON", query=LinesFilter),
    Page(path=f"{_PATH}/search", serve=_search, summary="Where a text is in a log, as JSON", query=SearchFilter),
)
