"""Work for agents: what waits to be claimed, what needs a person, and the sessions that claim it."""

from typing import Any

from msgspec import Struct

from rota.client.items import ItemsPage
from rota.core.backlog import BacklogLine
from rota.core.model import AGENTS_QUEUE
from rota.core.states import NEEDS_ATTENTION, RunState
from rota.ui.acts.items import item_offers, scheduler_offers
from rota.ui.acts.submitting import SUBMIT_DEED
from rota.ui.lists.listed import Listed, paged
from rota.ui.reading import Memory, Reader
from rota.ui.visits import Visit
from rota.ui.words import command, in_url
from rota.wire.items import TITLE, ItemView

ITEMS_SHOWN = 25
BACKLOG_SHOWN = 25
SESSIONS_SHOWN = 25
# So many live items are looked through for those that need a person.
LOOKED_THROUGH_MAX = 500
PARKED_SHOWN = 25


class WorkFilter(Struct, frozen=True, kw_only=True):
    """Of which workspace; after where the page of items before ended, and from which session on."""

    workspace: str = ""
    after: str = ""
    session: int = 0


class ItemLine(Struct, frozen=True):
    """An item, and what may be done about it."""

    view: ItemView
    offers: list[Any]


class BacklogRow(Struct, frozen=True):
    """What waits, its title, and why it was not claimed."""

    line: BacklogLine
    title: str


class Work:
    """The page."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def read(self, visit: Visit) -> dict[str, Any]:
        """All of it."""
        query: WorkFilter = visit.query
        reader = Reader(visit.client, self._memory)
        scheduler = await reader.scheduler()
        backlog = await reader.backlog(workspace=query.workspace, limit=BACKLOG_SHOWN)
        items: ItemsPage = await reader.items_page(workspace=query.workspace, limit=ITEMS_SHOWN, after=query.after)
        lines = [line for line in await reader.sessions() if query.workspace in ("", line.workspace)]
        sessions = paged(lines, query.session, SESSIONS_SHOWN)

        def url(**other: Any) -> str:
            return in_url(
                "/work", {"workspace": query.workspace, "after": query.after, "session": query.session, **other}
            )

        return {
            "query": query,
            "scheduler": scheduler,
            "scheduler_offers": scheduler_offers(visit, scheduler, SUBMIT_DEED),
            "parked": await self._parked(visit, reader, query),
            "backlog": [BacklogRow(line, dict(line.labels).get(TITLE, "")) for line in backlog],
            "items": [ItemLine(view, item_offers(visit, view)) for view in items.items],
            "items_next": url(after=items.next) if items.next else "",
            "items_first": url(after="") if query.after else "",
            "sessions": sessions,
            "sessions_before": url(session=max(0, sessions.first - SESSIONS_SHOWN)) if sessions.first else "",
            "sessions_after": url(session=sessions.last) if sessions.last < sessions.total else "",
            "queue": AGENTS_QUEUE,
            "cli": command("work", "list", *(("--workspace", query.workspace) if query.workspace else ())),
            "backlog_cli": command("scheduler", "backlog"),
        }

    async def _parked(self, visit: Visit, reader: Reader, query: WorkFilter) -> list[ItemLine]:
        """Items that wait for a person: parked ones, and those that nobody approved yet."""
        labels = (("workspace", query.workspace),) if query.workspace else ()
        page = await reader.runs_page(
            name="work",
            labels=labels,
            states=(RunState.QUEUED, RunState.RUNNING),
            limit=LOOKED_THROUGH_MAX,
            history=False,
        )
        wanted = [run for run in page.runs if run.tasks.get(NEEDS_ATTENTION) or run.approval == "pending"]
        views = [await reader.view_work(run) for run in wanted[:PARKED_SHOWN] if run.kind == "agent"]
        return [ItemLine(view, item_offers(visit, view)) for view in views]

    def pages(self) -> tuple[Listed]:
        """Where it is."""
        return (
            Listed(
                path="/work",
                summary="Work for agents, and their sessions",
                template="work.html",
                fragments={
                    "standing": "work_standing.html",
                    "parked": "work_parked.html",
                    "backlog": "work_backlog.html",
                    "items": "work_items.html",
                    "sessions": "work_sessions.html",
                },
                read=self.read,
                query=WorkFilter,
            ),
        )
