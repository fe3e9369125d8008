"""Which runs there are, live ones and those in history, as if they were in one list."""

import asyncio
from collections.abc import Iterable

from msgspec import structs

from rota.client.deploying import Deploying
from rota.client.given import states_of
from rota.client.paging import Place, is_after
from rota.core import records
from rota.core.bounds import HISTORY_PAGE_MAX, INTEGER_MAX, TASKS_PER_SLICE
from rota.core.errors import Refused
from rota.core.graph import LiveGraph, check_number
from rota.core.history import Ended, GetEnded, GetGraph, HistoryQuery, Page
from rota.core.ids import GraphDigest, RunId
from rota.core.model import Graph, Pairs
from rota.core.questions import GetRun, ListRuns, RunsPage, RunView, is_meant, view_run
from rota.core.states import RunState

# How many runs of history are looked through for one page of those that somebody looks for by words.
LOOKED_THROUGH_MAX = 1_000
LOOKED_THROUGH_AT_ONCE = 200


class Listing(Deploying):
    """The part of a client that lists runs."""

    async def runs(
        self,
        *,
        name: str = "",
        states: Iterable[str] = (),
        labels: Pairs = (),
        limit: int = 100,
        history: bool = True,
    ) -> list[RunView]:
        """Runs, the newest first: live ones, then those in history. `labels`: only those that have all of these."""
        check_number(limit, 1, INTEGER_MAX, "limit")
        wanted = tuple(states)
        found: list[RunView] = []
        place = ""
        while len(found) < limit:
            some = min(limit - len(found), HISTORY_PAGE_MAX)
            page = await self.runs_page(
                name=name, states=wanted, labels=labels, limit=some, after=place, history=history
            )
            found += page.runs
            place = page.next
            if not place:
                break
        return found

    async def runs_page(
        self,
        *,
        name: str = "",
        states: Iterable[str] = (),
        labels: Pairs = (),
        limit: int = 100,
        after: str = "",
        history: bool = True,
        kind: str = "",
        find: str = "",
    ) -> RunsPage:
        """Some runs, after where an earlier page ended. One that moves to history meanwhile may be seen twice.

        `find`: those that somebody means by these words. In history so many are looked through for them that a page
        may have fewer than there are, and says where to go on.
        """
        wanted = states_of(RunState, states, "run")
        place = Place.read(after)
        found: list[RunView] = []
        if not place.is_past:
            question = ListRuns(
                tenant=self.line.tenant, name=name, states=wanted, labels=labels, limit=limit, kind=kind, find=find
            )
            page = await self._live_page(question, place)
            found += page.runs
            if page.next or not history:
                return page
            place = Place(is_past=True)
        if len(found) == limit:
            return RunsPage(tuple(found), place.write())
        query = HistoryQuery(
            tenant=self.line.tenant,
            name=name,
            kind=kind,
            states=wanted,
            labels=labels,
            limit=limit - len(found),
            after=place.past,
        )
        past = await self._look_through(query, find)
        for row in past.runs:
            view = await self.view_past(row)
            if view is not None:
                found.append(view)
        return RunsPage(tuple(found), Place(is_past=True, past=past.next).write() if past.next else "")

    async def _look_through(self, query: HistoryQuery, find: str) -> Page:
        """A page of history; of those that are looked for by words, as many as are among so many."""
        if not find:
            return await self.ask(query)
        found: list[records.Run] = []
        looked_at = 0
        while True:
            page: Page = await self.ask(structs.replace(query, limit=LOOKED_THROUGH_AT_ONCE))
            places = [place for place, row in enumerate(page.runs, 1) if is_meant(find, row)]
            wanted = query.limit - len(found)
            if len(places) > wanted:
                # The page ends with the last of them, and only the store knows what that place is called.
                page = await self.ask(structs.replace(query, limit=places[wanted - 1]))
            found += [row for row in page.runs if is_meant(find, row)]
            looked_at += len(page.runs)
            if not page.next or len(found) >= query.limit or looked_at >= LOOKED_THROUGH_MAX:
                return Page(tuple(found), page.next)
            query = structs.replace(query, after=page.next)

    async def _live_page(self, question: ListRuns, place: Place) -> RunsPage:
        """Live runs only."""
        if place.run and await self._lives(place):
            question = structs.replace(question, after=place.run)
        while True:
            page: RunsPage = await self.ask(question)
            # A run after which to go on may have moved to history; then those that are newer have been seen.
            found = tuple(view for view in page.runs if is_after(view, place))
            if found or not page.next:
                return RunsPage(found, Place.of(page.runs[-1]).write() if page.next else "")
            question = structs.replace(question, after=page.next)

    async def _lives(self, place: Place) -> bool:
        try:
            view: RunView = await self.ask(GetRun(tenant=self.line.tenant, run=RunId(place.run)))
        except Refused as refused:
            if refused.code != "run.unknown":
                raise
            return False
        return view.created_at == place.created_at

    async def graph(self, digest: str) -> LiveGraph:
        """A definition, laid out."""
        found: Graph = await self.ask(GetGraph(tenant=self.line.tenant, digest=GraphDigest(digest)))
        if len(found.tasks) <= TASKS_PER_SLICE:
            return LiveGraph(self.line.tenant, GraphDigest(digest), found)
        # In a thread, which takes turns with others on the loop.
        return await asyncio.to_thread(LiveGraph, self.line.tenant, GraphDigest(digest), found)

    async def graph_of(self, ended: Ended) -> LiveGraph:
        """The definition of a run in history, with what the run grew by."""
        graph = await self.graph(ended.run.graph)
        for growth in ended.growths:
            graph = graph.grown(growth)
        return graph

    async def view_past(self, row: records.Run) -> RunView | None:
        """A run of history that was listed; None if it is gone meanwhile."""
        ended: Ended | None = await self.ask(GetEnded(tenant=row.tenant, run=row.id, created_at=row.created_at))
        return await self.view_ended(ended) if ended is not None else None

    async def view_ended(self, ended: Ended) -> RunView:
        """A run of history, as its readers see it."""
        return view_run(ended.run, await self.graph_of(ended), ended.tasks)
