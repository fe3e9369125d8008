"""Queries: a statement is asked here and answered by workers, and those that were asked lately are listed.

Nothing is planned or read where pages are made: the statement becomes a run of two tasks (`rota.wire.asking`),
the second of which gives the first rows as plain values.
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from rota.core.commands import SubmitRun
from rota.core.errors import Refused, headline
from rota.core.ids import TaskId
from rota.core.questions import RunView, TaskView
from rota.core.states import RUN_TERMINAL, RunState
from rota.ui.acts.acting import Acting, Done, Sent, check_may, check_sent, key_of
from rota.ui.acts.runs import run_offers
from rota.ui.lists.listed import Listed
from rota.ui.plans import plan_of, read_grown
from rota.ui.reading import Memory, Reader
from rota.ui.rendering import Renderer
from rota.ui.visits import Page, Visit, show
from rota.ui.words import command, in_url, live_url
from rota.wire.asking import ANSWER, ENGINE, PREVIEW, SQL, asking_graph
from rota.wire.queries import QUERY
from rota.wire.views import show_params, show_result
from rota.wire.work import PYTHON

RECENT_SHOWN = 20
STATEMENT_BYTES_MAX = 64 * 1024
TABLES_SHOWN = 50
_POSITION = re.compile(r"\(at line (\d+), column (\d+)\)")
_FRAGMENTS = {"answer": "queries_answer.html", "recent": "queries_recent.html"}


class QueriesFilter(Struct, frozen=True, kw_only=True):
    """Which query is shown; after where the page of queries before ended."""

    run: str = ""
    after: str = ""


class Asking(Sent, frozen=True, kw_only=True):
    """What is asked."""

    sql: str = ""


class Complaint(Struct, frozen=True):
    """Why there is no answer; `line` and `mark` are the place in the statement, if it was said."""

    text: str
    line: str = ""
    mark: str = ""


class QueryLine(Struct, frozen=True):
    """A query that was asked."""

    view: RunView
    statement: str


class Queries:
    """The page, and what comes of asking. `tables` are those that a statement may name, and where each is."""

    def __init__(self, renderer: Renderer, memory: Memory, acting: Acting, tables: Mapping[str, str]) -> None:
        self._renderer = renderer
        self._memory = memory
        self._acting = acting
        self._tables = dict(tables)

    def pages(self) -> tuple[Page, ...]:
        """Where they are."""
        listed = Listed(
            path="/queries",
            summary="Ask something in SQL, and what was asked lately",
            template="queries.html",
            fragments=_FRAGMENTS,
            read=self.read,
            query=QueriesFilter,
            every_s=1.0,
        )
        asking = Page(
            path="/queries",
            method="POST",
            serve=self.ask,
            summary="Ask something in SQL",
            form=Asking,
            # A statement may need three bytes for each of its own.
            form_bytes_max=3 * STATEMENT_BYTES_MAX + 4_096,
        )
        return (*listed.pages(self._renderer), asking)

    async def read(self, visit: Visit) -> dict[str, Any]:
        """The query that is shown, and those before it."""
        query: QueriesFilter = visit.query
        reader = Reader(visit.client, self._memory)
        page = await reader.runs_page(kind=QUERY, limit=RECENT_SHOWN, after=query.after)
        shown = await reader.run(query.run).status() if query.run else None
        if shown is not None and shown.kind != QUERY:
            raise Refused("run.unknown", f"{query.run!r} is a run of {shown.name!r}, and no query", path="run")
        statement = _statement(shown)
        return {
            "query": query,
            "run": shown,
            "statement": statement,
            "tables": sorted(self._tables)[:TABLES_SHOWN],
            "tables_left": max(0, len(self._tables) - TABLES_SHOWN),
            "recent": [QueryLine(view, _statement(view)) for view in page.runs],
            "next": in_url("/queries", {"run": query.run, "after": page.next}) if page.next else "",
            "newest": in_url("/queries", {"run": query.run}) if query.after else "",
            "may_ask": visit.rights.may(SubmitRun, QUERY),
            "offers": [] if shown is None else [each for each in run_offers(visit, shown) if each.title == "Cancel"],
            "refused": None,
            **(await _read_answer(reader, shown, statement) if shown is not None else {}),
            "cli": self._line(statement or "select …"),
        }

    async def ask(self, visit: Visit) -> Response:
        """Submit it, and show where it is answered."""
        form: Asking = visit.form
        check_sent(visit, form)
        check_may(visit, SubmitRun, QUERY)
        key = key_of(visit, form)
        statement = form.sql.replace("\r\n", "\n").strip()
        try:
            if not statement:
                raise Refused("query.syntax", "the statement is empty", "Write one.", path=SQL)
            if len(statement.encode()) > STATEMENT_BYTES_MAX:
                raise Refused("field.size", "the statement is too long", f"Use at most {STATEMENT_BYTES_MAX} bytes.")
            engine = await _engine(visit)
        except Refused as refused:
            return await self._again(visit, form, refused)
        run = await visit.client.submit(
            asking_graph(engine, self._tables),
            {SQL: statement},
            command_id=key,
            # Who may ask only this is known by all of it, not by a digest.
            is_new=True,
            labels={"by": visit.who} if visit.who else None,
        )
        url = in_url("/queries", {"run": run.id})
        return self._acting.keep(visit, key, Done(f"Query {run.id} was asked.", self._line(statement), url))

    def _line(self, statement: str) -> str:
        """The same in a terminal, which knows no settings of ours. Where a table is may be a secret, not its name."""
        text = statement.lower()
        named = [name for name in sorted(self._tables) if name.lower() in text]
        tables = (word for name in named for word in ("--table", f"{name}=…"))
        return command(SQL, statement, *tables, "--coordinator", "…")

    async def _again(self, visit: Visit, form: Asking, refused: Refused) -> Response:
        """The page with what is wrong, and the statement as it was written."""
        visit.query = QueriesFilter()
        given = {"visit": visit, **await self.read(visit), "statement": form.sql, "refused": refused}
        fragments = self._renderer.fragments(_FRAGMENTS, given)
        page = self._renderer.page("queries.html", fragments, {**given, "live": live_url("/queries")})
        return show(page, visit.rights.status_of(refused))


def _statement(view: RunView | None) -> str:
    """What was asked; a program that sends plans does not say."""
    found = show_params(view.params).get(SQL, "") if view is not None else ""
    return found if isinstance(found, str) else ""


async def _engine(visit: Visit) -> str:
    """The version of the engine that workers have; refused if none has one."""
    versions: dict[str, int] = {}
    for worker in await visit.client.workers():
        capacity = worker.capacity
        if worker.present and not worker.draining and PYTHON in capacity.kinds and QUERY in capacity.kinds:
            for name, value in capacity.properties:
                if name == ENGINE:
                    versions[value] = versions.get(value, 0) + capacity.slots
    if not versions:
        hint = "Start one where `pip install 'rota[query]'` was run."
        raise Refused("query.engine", "no worker that takes work here can run queries", hint)
    return max(versions, key=lambda version: versions[version])


async def _read_answer(reader: Reader, view: RunView, statement: str) -> dict[str, Any]:
    """The first rows, or why there are none."""
    tasks = {task.id: task for task in (await reader.run(view.id).tasks_page(limit=2)).tasks}
    looked = tasks.get(TaskId(PREVIEW))
    found: dict[str, Any] = {
        "preview": None,
        "complaint": None,
        "is_over": view.state in RUN_TERMINAL,
        "plan": plan_of(await read_grown(reader, view), looked),
    }
    if looked is not None and looked.result is not None:
        shown = show_result(looked.result)
        found["preview"] = shown if isinstance(shown, dict) and "columns" in shown else None
    elif view.state is RunState.FAILED:
        found["complaint"] = _complaint(view, tasks.get(TaskId(ANSWER)), looked, statement)
    return found


def _complaint(view: RunView, asked: TaskView | None, looked: TaskView | None, statement: str) -> Complaint:
    errors = [headline(task.error) for task in (asked, looked) if task is not None and task.error.strip()]
    text = errors[0] if errors else view.reason
    # How an exception is called says nothing to who typed a statement.
    text = text.removeprefix("rota.running.").removeprefix("Fail: ")
    place = _POSITION.search(text)
    lines = statement.split("\n")
    if place is None or not 0 < int(place[1]) <= len(lines):
        return Complaint(text)
    line = lines[int(place[1]) - 1]
    return Complaint(text, line, " " * min(int(place[2]) - 1, len(line)) + "^")
