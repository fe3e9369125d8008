"""A page that is read as a whole, shown, and kept current: one function reads it, templates say how it looks."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct, structs
from starlette.responses import Response

from rota.ui.live import Ear, keep_current
from rota.ui.rendering import Fragment, Renderer
from rota.ui.visits import NoQuery, Page, Visit, show
from rota.ui.words import live_url

# Workers, pools and people come and go without a word about a run.
LOOK_EVERY_S = 5.0

Read = Callable[[Visit], Awaitable[dict[str, Any]]]


class Listed(Struct, frozen=True, kw_only=True):
    """One such page: what `read` gives is for its template and its fragments."""

    path: str
    summary: str
    template: str
    fragments: Mapping[str, str]
    read: Read
    query: type[Struct] = NoQuery
    every_s: float = LOOK_EVERY_S

    def pages(self, renderer: Renderer) -> tuple[Page, Page]:
        """The page, and what keeps it current."""

        async def serve(visit: Visit) -> Response:
            given = {"visit": visit, **await self.read(visit)}
            fragments = renderer.fragments(self.fragments, given)
            return show(renderer.page(self.template, fragments, {**given, "live": live_url(visit.url)}))

        async def look(visit: Visit) -> list[Fragment]:
            return renderer.fragments(self.fragments, {"visit": visit, **await self.read(visit)})

        async def live(visit: Visit) -> Response:
            # Before anything is said: an answer that has begun cannot become a refusal.
            await self.read(visit)

            clock = asyncio.get_running_loop().time
            began = clock()

            async def look_again(_: object) -> list[Fragment]:
                return await look(structs.replace(visit, now=visit.now + round((clock() - began) * 1000)))

            async def events() -> AsyncIterator[bytes]:
                async with Ear(visit.client.line) as ear:
                    async for piece in keep_current(ear, look_again, every_s=lambda: self.every_s):
                        yield piece

            return visit.stream(events())

        return (
            Page(path=self.path, serve=serve, summary=self.summary, query=self.query),
            Page(path=f"/live{self.path}", serve=live, summary=f"What changes of: {self.summary}", query=self.query),
        )


class Paged(Struct, frozen=True):
    """Some rows of many, from the number `first` on."""

    rows: list[Any]
    first: int
    total: int

    @property
    def last(self) -> int:
        """The number after the last that is shown."""
        return self.first + len(self.rows)


def paged(rows: list[Any], first: int, most: int) -> Paged:
    """A page of them; the last one, if there are fewer."""
    first = max(0, min(first, (len(rows) - 1) // most * most if rows else 0))
    return Paged(rows[first : first + most], first, len(rows))
