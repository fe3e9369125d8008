"""The page of all runs: live and ended, the newest first."""

from typing import Any

from msgspec import Struct

from rota.core.questions import RunsPage
from rota.core.states import RunState
from rota.ui.lists.listed import Listed
from rota.ui.reading import Memory, Reader
from rota.ui.rendering import Renderer
from rota.ui.visits import Page, Visit
from rota.ui.words import command, runs_url

RUNS_SHOWN = 25
# What graphs are of; a program may submit others, which are found by name.
KINDS = ("workflow", "query", "build", "agent")
# Ages are counted by the browser; this is for runs that came to history meanwhile.
LOOK_EVERY_S = 30.0
FRAGMENTS = {"runs": "runs_table.html"}


class RunsFilter(Struct, frozen=True, kw_only=True):
    """Which runs; `find` are words of their ids, names or labels, `after` is where the page before ended."""

    find: str = ""
    name: str = ""
    kind: str = ""
    state: tuple[str, ...] = ()
    after: str = ""


class RunsPages:
    """The list, and what keeps it current."""

    def __init__(self, renderer: Renderer, memory: Memory) -> None:
        self._renderer = renderer
        self._memory = memory

    def pages(self) -> tuple[Page, ...]:
        """Where they are."""
        listed = Listed(
            path="/runs",
            summary="The runs, the newest first",
            template="runs.html",
            fragments=FRAGMENTS,
            read=self._read,
            query=RunsFilter,
            every_s=LOOK_EVERY_S,
        )
        return listed.pages(self._renderer)

    async def _read(self, visit: Visit) -> dict[str, Any]:
        query: RunsFilter = visit.query
        reader = Reader(visit.client, self._memory)
        page: RunsPage = await reader.runs_page(
            find=query.find,
            name=query.name,
            kind=query.kind,
            states=query.state,
            limit=RUNS_SHOWN,
            after=query.after,
        )
        options = [word for state in query.state for word in ("--state", state)]
        return {
            "query": query,
            "runs": page.runs,
            "is_chosen": bool(query.find or query.name or query.kind or query.state or query.after),
            "first": here(query),
            "here": here,
            "next": here(query, after=page.next) if page.next else "",
            "kinds": [_kind(query, kind) for kind in KINDS],
            "names": sorted({view.name for view in page.runs}),
            "choices": [_choice(query, state) for state in RunState],
            "cli": command("runs", *(("--name", query.name) if query.name else ()), *options),
        }


def _choice(query: RunsFilter, state: RunState) -> tuple[str, bool, str]:
    """A state, whether it is chosen, and where it is chosen or not any more."""
    is_chosen = state in query.state
    others = [each for each in query.state if each != state]
    chosen = others if is_chosen else [*others, str(state)]
    return str(state), is_chosen, here(query, state=chosen)


def _kind(query: RunsFilter, kind: str) -> tuple[str, bool, str]:
    """The same for a kind, of which one is chosen."""
    is_chosen = kind == query.kind
    return kind, is_chosen, here(query, kind="" if is_chosen else kind)


def here(query: RunsFilter, **other: Any) -> str:
    """The list from its beginning, with other filters than these."""
    return runs_url(**{"find": query.find, "name": query.name, "kind": query.kind, "state": query.state, **other})
