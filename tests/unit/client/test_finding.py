"""Runs of history that are looked for by words: none is missed, none is shown twice, and nobody looks for ever."""

import asyncio
from typing import Any

import pytest

from rota.client import listing
from rota.client.listing import Listing
from rota.core.history import HistoryQuery, Page
from rota.core.questions import ListRuns, RunsPage, RunView
from rota.core.records import Run
from tests.unit.ui.views import run_view


class Past:
    """A line to a store of runs that have ended, numbered from the newest."""

    tenant = "t"

    def __init__(self, count: int) -> None:
        self.rows = [_row(number) for number in range(count)]
        self.asked = 0

    async def ask(self, request: Any) -> Any:
        if isinstance(request, ListRuns):
            return RunsPage(())
        assert isinstance(request, HistoryQuery)
        self.asked += 1
        first = int(request.after or 0)
        some = self.rows[first : first + request.limit]
        after = first + len(some)
        return Page(tuple(some), str(after) if after < len(self.rows) else "")

    def watch(self, run: str) -> Any:
        raise AssertionError("nothing is watched")


def _row(number: int) -> Run:
    return Run("t", f"run-{number:04d}", "0" * 64, "etl" if number % 3 else "nightly", created_at=number + 1)


class Finding(Listing):
    async def view_past(self, row: Run) -> RunView:
        return run_view(id=row.id, name=row.name, created_at=row.created_at)


def pages(line: Past, find: str, limit: int) -> list[list[str]]:
    async def read() -> list[list[str]]:
        client = Finding(line)
        found: list[list[str]] = []
        after = ""
        while True:
            page = await client.runs_page(find=find, limit=limit, after=after)
            found.append([view.id for view in page.runs])
            after = page.next
            if not after:
                return found

    return asyncio.run(read())


@pytest.mark.parametrize("limit", [1, 7, 25, 500])
@pytest.mark.parametrize("find", ["nightly", "run-00", "run-0399", "nothing"])
def test_every_run_that_is_meant_is_on_one_page(find: str, limit: int):
    line = Past(400)
    wanted = [row.id for row in line.rows if find in row.id or find in row.name]
    found = pages(line, find, limit)
    assert [id for page in found for id in page] == wanted
    assert all(len(page) <= limit for page in found)


def test_a_page_looks_through_so_many_and_says_where_to_go_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listing, "LOOKED_THROUGH_MAX", 400)
    line = Past(1_000)
    found = pages(line, "run-0999", 5)
    assert found == [[], [], ["run-0999"]]
    assert line.asked == 5
