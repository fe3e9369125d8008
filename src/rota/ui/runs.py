"""The page of all runs: live and ended, the newest first."""

from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from rota.core.questions import RunsPage
from rota.core.states import RunState
from rota.ui.live import Ear, keep_current
from rota.ui.reading import Memory, Reader
from rota.ui.rendering import Fragment, Renderer
from rota.ui.visits import Page, Visit, show
from rota.ui.words import command, live_url, runs_url

RUNS_SHOWN = 25
# Ages are counted by the browser; this is for runs that came to history meanwhile.
LOOK_EVERY_S = 30.0
FRAGMENTS = {"runs": "runs_table.html"}


class RunsFilter(Struct, frozen=True, kw_only=True):
    """Which runs; `after` is where the page before ended."""

    name: str = ""
    state: tuple[str, ...] = ()
    after: str = ""


class RunsPages:
    """The list, and what keeps it current."""

    def __init__(self, renderer: Renderer, memory: Memory) -> None:
        self._renderer = renderer
        self._memory = memory

    def pages(self) -> tuple[Page, ...]:
        """Where they are."""
        return (
            Page(path="/", serve=self.show, summary="The runs, the newest first", query=RunsFilter),
            Page(path="/live/", serve=self.live, summary="What changes in the list", query=RunsFilter),
        )

    async def show(self, visit: Visit) -> Response:
        """The list."""
        given = await self._read(visit)
        fragments = self._renderer.fragments(FRAGMENTS, given)
        return show(self._renderer.page("runs.html", fragments, {**given, "live": live_url(visit.url)}))

    async def live(self, visit: Visit) -> Response:
        """What changes in it."""
        # Before anything is said: an answer that has begun cannot become a refusal.
        await self._read(visit)

        async def look(_: object) -> list[Fragment]:
            return self._renderer.fragments(FRAGMENTS, await self._read(visit))

        async def events() -> AsyncIterator[bytes]:
            async with Ear(visit.client.line) as ear:
                async for piece in keep_current(ear, look, every_s=lambda: LOOK_EVERY_S):
                    yield piece

        return visit.stream(events())

    async def _read(self, visit: Visit) -> dict[str, Any]:
        query: RunsFilter = visit.query
        reader = Reader(visit.client, self._memory)
        page: RunsPage = await reader.runs_page(
            name=query.name, states=query.state, limit=RUNS_SHOWN, after=query.after
        )
        options = [word for state in query.state for word in ("--state", state)]
        return {
            "visit": visit,
            "query": query,
            "runs": page.runs,
            "next": runs_url(name=query.name, state=query.state, after=page.next) if page.next else "",
            "names": sorted({view.name for view in page.runs}),
            "choices": [_choice(query, state) for state in RunState],
            "cli": command("runs", *(("--name", query.name) if query.name else ()), *options),
        }


def _choice(query: RunsFilter, state: RunState) -> tuple[str, bool, str]:
    """A state, whether it is chosen, and where it is chosen or not any more."""
    is_chosen = state in query.state
    others = [each for each in query.state if each != state]
    chosen = others if is_chosen else [*others, str(state)]
    return str(state), is_chosen, runs_url(name=query.name, state=chosen)
