"""What is read from the tables: live records, history, stories. Every reading sees one moment."""

from collections.abc import AsyncIterator
from typing import Any

from rota.core.history import AuditsPage, Ended, HistoryQuery, ListAudits, Page
from rota.core.ids import Epoch, Fence, GraphDigest, Millis, RunId, RunKey
from rota.core.model import Graph
from rota.core.records import Record, Story
from rota.ports import Fenced, Kept
from rota.stores.bundled import bundle_in_json
from rota.stores.postgres.session import statement_ms
from rota.stores.postgres.wire import Bound, Wire
from rota.stores.sql import questions

CHUNK = 2_000
# Each may be of megabytes.
GRAPHS_AT_ONCE = 50


class Tables:
    """Readings of one schema. Each is given a connection that is nobody else's meanwhile."""

    def __init__(self, schema: str) -> None:
        self._schema = schema

    async def begin(self, wire: Wire, call_s: float) -> None:
        """Begin a transaction that sees one moment and finds the tables by their names.

        What takes longer than anybody waits for it is ended by the server.
        """
        await wire.script(
            f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL search_path = {self._schema};"
            f" SET LOCAL statement_timeout = {statement_ms(call_s)}"
        )

    async def end(self, wire: Wire) -> None:
        """The moment is over."""
        await wire.run("COMMIT")

    async def _rows(self, wire: Wire, text: str, values: tuple[Bound, ...] | list[str | int]) -> list[Any]:
        return await wire.run(text.replace("?", "$"), values)

    async def live(self, wire: Wire, epoch: Epoch) -> AsyncIterator[list[Record]]:
        """All live records, some at a time, for the reigning epoch only."""
        ((reigns,),) = await wire.run("SELECT epoch FROM reign")
        if epoch != reigns or epoch <= 0:
            raise Fenced(f"epoch {epoch} has passed; {reigns} reigns")
        same = questions.nothing_shared()
        for text, read in questions.LIVE_ALONE:
            async for rows in self._chunks(wire, text):
                yield [read(row, same) for row in rows]
        numbers: dict[int, tuple[str, str]] = {}
        async for rows in self._chunks(wire, questions.LIVE_RUNS):
            yield questions.read_runs(rows, numbers, same)
        for text, read in questions.LIVE_PARTS:
            async for rows in self._chunks(wire, text):
                yield questions.read_parts(rows, read, numbers, same)

    async def _chunks(self, wire: Wire, text: str, size: int = CHUNK) -> AsyncIterator[list[Any]]:
        """Rows of a statement, some at a time: whatever else there is to do gets its turn in between."""
        await wire.script(f"CLOSE ALL; DECLARE rows NO SCROLL CURSOR FOR {text}")
        while True:
            rows = await wire.run(f"FETCH {size} FROM rows")
            if rows:
                yield rows
            if len(rows) < size:
                break

    async def page(self, wire: Wire, query: HistoryQuery) -> Page:
        """One page of history."""
        return questions.read_page(query, await self._rows(wire, *questions.ask_page(query)))

    async def ended(self, wire: Wire, tenant: str, run: RunId, created_at: Millis) -> Ended | None:
        """One run of history with its parts, wherever they are at the moment."""
        for row in await self._rows(wire, *questions.ask_ended(tenant, run, created_at)):
            tasks = [task for text in questions.OWN_TASKS for task in await self._rows(wire, text, row[:1])]
            growths = [growth for text in questions.OWN_GROWTHS for growth in await self._rows(wire, text, row[:1])]
            return questions.read_ended(row, tasks, growths)
        return None

    async def graph(self, wire: Wire, tenant: str, digest: GraphDigest) -> Graph | None:
        """A definition, live or kept for the history."""
        for text in questions.GRAPHS:
            for row in await self._rows(wire, text, (tenant, digest)):
                return questions.read_graph(row).graph
        return None

    async def stories(self, wire: Wire, tenant: str, run: RunId, created_at: Millis) -> list[Story]:
        """What is told about one run, in order."""
        return [
            story
            for run_no, told in await self._rows(wire, questions.TELLS, (tenant, run, created_at))
            for story in questions.read_stories(
                tenant, run, created_at, told, await self._rows(wire, questions.TOLD, (run_no,))
            )
        ]

    async def audits(self, wire: Wire, query: ListAudits) -> AuditsPage:
        """Who asked for what, the newest first."""
        return questions.read_audits(query, await self._rows(wire, *questions.ask_audits(query)))

    async def kept(self, wire: Wire) -> Kept:
        """What is referred to, live or in history."""
        fences: set[Fence] = set()
        async for rows in self._chunks(wire, questions.KEPT_FENCES):
            fences.update(number for (number,) in rows)
        runs: set[RunKey] = set()
        async for rows in self._chunks(wire, questions.KEPT_RUNS):
            runs.update(rows)
        bundles: set[str] = set()
        async for rows in self._chunks(wire, questions.KEPT_GRAPHS, GRAPHS_AT_ONCE):
            bundles.update(bundle_in_json(graph) for (graph,) in rows)
        return Kept(frozenset(fences), frozenset(runs), frozenset(bundles - {""}))
