"""Builds: invocations of build tools; and one of them, with its actions, each a run."""

from collections import Counter
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from rota.core.errors import Refused
from rota.core.questions import RunsPage, RunView
from rota.core.states import RUN_TERMINAL
from rota.ui.lists.listed import Listed
from rota.ui.reading import Memory, Reader
from rota.ui.visits import Visit
from rota.ui.words import command, in_url
from rota.wire.builds import BUILD, result_of

# So many actions are looked at for one page of invocations; a run each.
LOOKED_AT_MAX = 500
INVOCATIONS_SHOWN = 50
ACTIONS_SHOWN = 50
INVOCATION = "invocation"
# How much of a name that nobody knows is said again.
NAME_CHARS_MAX = 80
# What belongs to no invocation: its client did not say.
NOBODY = "-"


class BuildsFilter(Struct, frozen=True, kw_only=True):
    """After where the page before ended."""

    after: str = ""


class Invocation(Struct):
    """What a client asked for in one go, as far as it was looked at."""

    id: str
    states: Counter[str]
    created_at: int
    ended_at: int = 0
    is_over: bool = True

    @property
    def actions(self) -> int:
        """How many there are."""
        return sum(self.states.values())


class ActionLine(Struct, frozen=True):
    """One action of it. `exit` is its own exit code, or what became of it instead."""

    view: RunView
    target: str
    mnemonic: str
    exit: str
    worker: str


class Builds:
    """Both pages."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def read_all(self, visit: Visit) -> dict[str, Any]:
        """Invocations, the newest first."""
        query: BuildsFilter = visit.query
        reader = Reader(visit.client, self._memory)
        page: RunsPage = await reader.runs_page(name=BUILD, limit=LOOKED_AT_MAX, after=query.after)
        found: dict[str, Invocation] = {}
        for view in page.runs:
            labels = dict(view.labels)
            name = labels.get(INVOCATION, NOBODY)
            one = found.get(name)
            if one is None:
                one = found[name] = Invocation(name, Counter(), view.created_at)
            one.states[str(view.state)] += 1
            one.created_at = min(one.created_at, view.created_at)
            one.ended_at = max(one.ended_at, view.ended_at)
            one.is_over = one.is_over and view.state in RUN_TERMINAL
        return {
            "query": query,
            "invocations": list(found.values())[:INVOCATIONS_SHOWN],
            "next": in_url("/builds", {"after": page.next}) if page.next else "",
            "nobody": NOBODY,
            "cli": command("builds"),
        }

    async def read_one(self, visit: Visit) -> dict[str, Any]:
        """One of them, with its actions."""
        name = visit.path["invocation"]
        query: BuildsFilter = visit.query
        reader = Reader(visit.client, self._memory)
        page: RunsPage = await reader.runs_page(
            name=BUILD, labels=((INVOCATION, name),), limit=ACTIONS_SHOWN, after=query.after
        )
        if not page.runs and not query.after:
            text = f"no action of an invocation {name[:NAME_CHARS_MAX]!r} is known"
            raise Refused("run.unknown", text, "See /builds for those that are.", path="invocation")
        url = f"/builds/{quote(name, safe='')}"
        return {
            "query": query,
            "invocation": name,
            "url": url,
            "actions": [await self._action(reader, view) for view in page.runs],
            "states": dict(Counter(str(view.state) for view in page.runs)),
            "next": in_url(url, {"after": page.next}) if page.next else "",
            "cli": command("builds", name),
        }

    async def _action(self, reader: Reader, view: RunView) -> ActionLine:
        labels = dict(view.labels)
        task = next(iter((await reader.run(view.id).tasks_page(limit=1)).tasks), None)
        result = result_of(task)
        worker = result.worker if result is not None else task.worker if task is not None else ""
        ended = "" if result is None else result.message if result.status else str(result.exit_code)
        return ActionLine(view, labels.get("target", ""), labels.get("mnemonic", ""), ended[:100], worker)

    def pages(self) -> tuple[Listed, Listed]:
        """Where they are."""
        return (
            Listed(
                path="/builds",
                summary="Builds, the newest first",
                template="builds.html",
                fragments={"builds": "builds_table.html"},
                read=self.read_all,
                query=BuildsFilter,
            ),
            Listed(
                path="/builds/{invocation}",
                summary="The actions of a build",
                template="build.html",
                fragments={"actions": "build_actions.html"},
                read=self.read_one,
                query=BuildsFilter,
            ),
        )
