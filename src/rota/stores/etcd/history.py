"""Answers about the past: what is in the mirror still, and what is in segments already, as if they were one."""

import asyncio
from collections.abc import Container, Iterable, Sequence
from typing import Any

import msgspec

from rota.core.history import AuditsPage, Ended, HistoryQuery, ListAudits, Page, Place, read_place, write_place
from rota.core.ids import Fence, GraphDigest, Millis, RunId, RunKey
from rota.core.model import Graph
from rota.core.records import Audit, Run, Story, Task
from rota.ports import Blobs, Kept
from rota.stores.bundled import bundle_in_row
from rota.stores.etcd.entries import Revived
from rota.stores.etcd.failures import corrupt
from rota.stores.etcd.mirror import Mirror, StoryKey
from rota.stores.etcd.rows import AUDIT, FORMS, GRAPH, GROWTH, RUN, TASK, Form
from rota.stores.etcd.segments import (
    AuditLine,
    GraphLine,
    Parts,
    Past,
    PastAudit,
    RunLine,
    Segment,
    Segments,
    result_fences,
)

# Rows, and runs with their tasks, that are read before others get their turn.
_ROWS_AT_ONCE, _PASTS_AT_ONCE = 2_000, 100


class History:
    """Reads the past of a mirror. Raises `BlobLost` if what the mirror names has been removed meanwhile."""

    def __init__(self, blobs: Blobs) -> None:
        self.segments = Segments(blobs)

    # Pages.

    async def page(self, mirror: Mirror, query: HistoryQuery) -> Page:
        """One page: newest end first, and of the same instant the latest number."""
        after, limit = read_place(query.after), query.page_limit
        # As it is now: a run that leaves history while this reads is shown, and not half hidden.
        left = dict(mirror.left)
        found: list[tuple[RunLine, Past | Segment]] = [
            (past.line, past) for past in mirror.pasts if _is_asked_for(past.line, query, after)
        ]
        segments = sorted(mirror.segments, key=lambda segment: segment.last_end, reverse=True)
        for segment in segments:
            if len(found) > limit:
                found = _newest(found)[: limit + 1]
                if found[limit][0].ended_at > segment.last_end:
                    break
            if _may_hold(segment, query, after):
                lines = (await self.segments.index(segment, query.tenant, query.name, query.kind)).runs
                found += [
                    (line, segment)
                    for line in lines
                    if _is_there(line, segment, left) and _is_asked_for(line, query, after)
                ]
        shown = _newest(found)
        runs = await self._runs(shown[:limit])
        last = shown[limit - 1][0] if len(shown) > limit else None
        return Page(runs, write_place((last.ended_at, last.number)) if last is not None else "")

    async def _runs(self, shown: Sequence[tuple[RunLine, Past | Segment]]) -> tuple[Run, ...]:
        rows: dict[int, bytes] = {}
        wanted: dict[str, tuple[Segment, list[RunLine]]] = {}
        for line, where in shown:
            if isinstance(where, Past):
                rows[line.number] = where.run
            else:
                wanted.setdefault(where.rows.name, (where, []))[1].append(line)
        for segment, lines in wanted.values():
            content = await self.segments.read(segment, [(line.at, line.size) for line in lines])
            rows.update({line.number: row for line, row in zip(lines, content, strict=True)})
        return tuple(_read(FORMS[RUN], rows[line.number]) for line, _ in shown)

    # One run.

    async def ended(self, mirror: Mirror, tenant: str, run: RunId, created_at: Millis) -> Ended | None:
        """The newest run of history with that id, or the one that was created then."""
        found = await self._find(mirror, tenant, run, created_at)
        if found is None:
            return None
        _, row, parts = found
        made: Run = _read(FORMS[RUN], row)
        tasks = [_read(FORMS[TASK], task) for task in parts.tasks]
        growths = [_read(FORMS[GROWTH], growth) for growth in parts.growths]
        return Ended(made, tuple(tasks or ([made.solo] if made.solo else [])), tuple(growths))

    async def stories(self, mirror: Mirror, tenant: str, run: RunId, created_at: Millis) -> list[Story]:
        """What is told about one run."""
        told = mirror.told.get((tenant, run, created_at))
        if told is None:
            live = mirror.live.get(("Run", tenant, run))
            if live is not None and _read(FORMS[RUN], live).created_at == created_at:
                return []
            found = await self._find(mirror, tenant, run, created_at)
            told = found[2].told if found is not None else []
        return [Story(tenant, run, created_at, *part) for part in told]

    async def leave(self, mirror: Mirror, runs: Iterable[StoryKey]) -> list[Revived]:
        """Runs as they leave history. Those that are not there do not, nor those whose ids are in use again."""
        found: dict[RunKey, Revived] = {}
        for tenant, run, created_at in runs:
            if ("Run", tenant, run) not in mirror.live and (tenant, run) not in found:
                past = await self._find(mirror, tenant, run, created_at)
                if past is not None and past[0].created_at == created_at:
                    line, row, parts = past
                    found[tenant, run] = Revived(line.number, row, parts.tasks, parts.growths, parts.told)
        return list(found.values())

    async def _find(
        self, mirror: Mirror, tenant: str, run: RunId, created_at: Millis
    ) -> tuple[RunLine, bytes, Parts] | None:
        left = dict(mirror.left)

        def is_it(line: RunLine) -> bool:
            return line.id == run and line.tenant == tenant and created_at in (0, line.created_at)

        for past in reversed(mirror.pasts):
            if is_it(past.line):
                return past.line, past.run, past.parts
        for segment in sorted(mirror.segments, key=lambda each: each.last_run, reverse=True):
            lines = (await self.segments.index(segment, tenant, run)).runs if segment.last_run else []
            own = [line for line in lines if is_it(line) and _is_there(line, segment, left)]
            if own:
                line = max(own, key=lambda each: each.number)
                (row,) = await self.segments.read(segment, [(line.at, line.size)])
                return line, row, await self.segments.parts(segment, line)
        return None

    async def graph(self, mirror: Mirror, tenant: str, digest: GraphDigest) -> Graph | None:
        """A definition, live or kept for the history."""
        row = mirror.live.get(("GraphRecord", tenant, digest))
        if row is None and (tenant, digest) in mirror.graphs:
            row = mirror.graphs[tenant, digest].row
        if row is not None:
            return _read(FORMS[GRAPH], row).graph
        for segment in reversed(mirror.segments):
            for line in (await self.segments.index(segment, tenant, digest)).graphs:
                if (line.tenant, line.digest) == (tenant, digest) and not segment.is_past(line.ended_at):
                    (row,) = await self.segments.read(segment, [(line.at, line.size)])
                    return _read(FORMS[GRAPH], row).graph
        return None

    # Audits.

    async def audits(self, mirror: Mirror, query: ListAudits) -> AuditsPage:
        """Who asked for what, the newest first."""
        limit = query.page_limit

        def is_asked_for(line: AuditLine) -> bool:
            return line.tenant == query.tenant and (not query.before or line.number < query.before)

        found: list[tuple[AuditLine, PastAudit | Segment]] = [
            (past.line, past) for past in reversed(mirror.audits) if is_asked_for(past.line)
        ]
        for segment in sorted(mirror.segments, key=lambda each: each.last_audit, reverse=True):
            if len(found) > limit or not segment.last_audit:
                break
            lines = (await self.segments.index(segment, query.tenant)).audits
            found += [
                (line, segment) for line in reversed(lines) if is_asked_for(line) and not segment.is_past(line.ended_at)
            ]
        shown = found[:limit]
        audits = [await self._audit(*each) for each in shown]
        return AuditsPage(tuple(audits), shown[-1][0].number if len(found) > limit else 0)

    async def _audit(self, line: AuditLine, where: PastAudit | Segment) -> Audit:
        if isinstance(where, PastAudit):
            return _read(AUDIT, where.row)
        (row,) = await self.segments.read(where, [(line.at, line.size)])
        return _read(AUDIT, row)

    # What is referred to.

    async def kept(self, mirror: Mirror) -> Kept:
        """Results, runs and bundles, live or in history."""
        # Of one moment: a run that leaves history meanwhile is in one of these, whichever.
        rows, pasts, segments, left = mirror.rows(), list(mirror.pasts), list(mirror.segments), dict(mirror.left)
        graphs = list(mirror.graphs.values())
        fences: set[Fence] = set()
        runs: set[RunKey] = set()
        bundles: set[str] = set()
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            for kind, row in rows[at : at + _ROWS_AT_ONCE]:
                if kind == RUN:
                    run: Run = _read(FORMS[RUN], row)
                    runs.add((run.tenant, run.id))
                    fences.update(_fences([run.solo]))
                elif kind == TASK:
                    fences.update(_fences([_read(FORMS[TASK], row)]))
                elif kind == GRAPH:
                    bundles.add(_bundle(row))
            await asyncio.sleep(0)
        for at in range(0, len(pasts), _PASTS_AT_ONCE):
            for past in pasts[at : at + _PASTS_AT_ONCE]:
                runs.add((past.line.tenant, past.line.id))
                fences.update(result_fences(past.run, past.parts.tasks))
            await asyncio.sleep(0)
        bundles.update(_bundle(graph.row) for graph in graphs)
        for segment in segments:
            index = await self.segments.index(segment)
            for line in index.runs:
                if _is_there(line, segment, left):
                    runs.add((line.tenant, line.id))
                    fences.update(line.fences or ())
            bundles.update(await self._bundles(segment, index.graphs))
            await asyncio.sleep(0)
        return Kept(frozenset(fences), frozenset(runs), frozenset(bundles - {""}))

    async def _bundles(self, segment: Segment, graphs: Iterable[GraphLine]) -> list[str]:
        lines = [line for line in graphs if not segment.is_past(line.ended_at)]
        found = [line.bundle for line in lines if line.bundle is not None]
        # In segments of before lines do not say.
        for line in lines:
            if line.bundle is None:
                (row,) = await self.segments.read(segment, [(line.at, line.size)])
                found.append(_bundle(row))
        return found


def _fences(tasks: Iterable[Task | None]) -> list[Fence]:
    return [task.done_fence for task in tasks if task is not None and task.result is not None]


def _newest(found: list[tuple[RunLine, Past | Segment]]) -> list[tuple[RunLine, Past | Segment]]:
    return sorted(found, key=lambda each: (each[0].ended_at, each[0].number), reverse=True)


def _is_there(line: RunLine, segment: Segment, left: Container[int]) -> bool:
    """Whether a run of a segment is neither too old nor alive again."""
    return not segment.is_past(line.ended_at) and line.number not in left


def _read(form: Form, row: bytes) -> Any:
    try:
        return form.read(row)
    except (msgspec.MsgspecError, ValueError) as error:
        raise corrupt(f"a row of history is damaged: {error}") from error


def _bundle(row: bytes) -> str:
    try:
        return bundle_in_row(row)
    except msgspec.MsgspecError as error:
        raise corrupt(f"a definition is damaged: {error}") from error


def _is_asked_for(line: RunLine, query: HistoryQuery, after: Place | None) -> bool:
    return query.finds(line) and (after is None or (line.ended_at, line.number) < after)


def _may_hold(segment: Segment, query: HistoryQuery, after: Place | None) -> bool:
    return not (
        not segment.last_run
        or segment.is_past(segment.last_end)
        or segment.last_end < query.ended_from
        or (query.ended_to and segment.first_end >= query.ended_to)
        or (after is not None and segment.first_end > after[0])
    )
