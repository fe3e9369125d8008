"""What is read from the tables: live records, history, stories. Every reading sees one moment."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from rota.core.history import AuditsPage, Ended, HistoryQuery, ListAudits, Page
from rota.core.ids import GraphDigest, Millis, RunId
from rota.core.model import Graph
from rota.core.records import Record, Story
from rota.ports import Kept
from rota.stores.bundled import bundle_in_json
from rota.stores.sql import questions
from rota.stores.sqlite.connection import Connection

CHUNK = 2_000


def live_records(connection: Connection) -> Iterator[list[Record]]:
    """All live records, some at a time. The caller has begun a transaction and keeps it until the end."""
    same = questions.nothing_shared()
    for text, read in questions.LIVE_ALONE:
        cursor = connection.execute(text)
        while rows := _some(cursor):
            yield [read(row, same) for row in rows]
    numbers: dict[int, tuple[str, str]] = {}
    cursor = connection.execute(questions.LIVE_RUNS)
    while rows := _some(cursor):
        yield questions.read_runs(rows, numbers, same)
    for text, read in questions.LIVE_PARTS:
        cursor = connection.execute(text)
        while rows := _some(cursor):
            yield questions.read_parts(rows, read, numbers, same)


def _some(cursor: Iterator[Any]) -> list[tuple[Any, ...]]:
    return list(islice(cursor, CHUNK))


def page_of(connection: Connection, query: HistoryQuery) -> Page:
    """One page of history."""
    return questions.read_page(query, list(connection.execute(*questions.ask_page(query))))


def ended_run(connection: Connection, tenant: str, run: RunId, created_at: Millis) -> Ended | None:
    """One run of history with its parts, wherever they are at the moment."""
    for row in list(connection.execute(*questions.ask_ended(tenant, run, created_at))):
        tasks = [task for text in questions.OWN_TASKS for task in connection.execute(text, row[:1])]
        growths = [growth for text in questions.OWN_GROWTHS for growth in connection.execute(text, row[:1])]
        return questions.read_ended(row, tasks, growths)
    return None


def graph_of(connection: Connection, tenant: str, digest: GraphDigest) -> Graph | None:
    """A definition, live or kept for the history."""
    for text in questions.GRAPHS:
        for row in list(connection.execute(text, (tenant, digest))):
            return questions.read_graph(row).graph
    return None


def kept(connection: Connection) -> Kept:
    """What is referred to, live or in history."""
    fences = frozenset(number for (number,) in connection.execute(questions.KEPT_FENCES))
    runs = frozenset((tenant, run) for tenant, run in connection.execute(questions.KEPT_RUNS))
    bundles = frozenset(bundle_in_json(graph) for (graph,) in connection.execute(questions.KEPT_GRAPHS))
    return Kept(fences, runs, bundles - {""})


def audits_of(connection: Connection, query: ListAudits) -> AuditsPage:
    """Who asked for what, the newest first."""
    return questions.read_audits(query, list(connection.execute(*questions.ask_audits(query))))


def stories_of(connection: Connection, tenant: str, run: RunId, created_at: Millis) -> list[Story]:
    """What is told about one run, in order."""
    return [
        story
        for run_no, told in list(connection.execute(questions.TELLS, (tenant, run, created_at)))
        for story in questions.read_stories(
            tenant, run, created_at, told, connection.execute(questions.TOLD, (run_no,))
        )
    ]
