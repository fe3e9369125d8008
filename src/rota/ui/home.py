"""The first page: what runs, what waits and why, what failed lately, and how it has been going."""

from typing import Any

from rota.core.overview import GetOverview, Overview, WaitingLine
from rota.core.questions import RunView
from rota.core.reasons import reason
from rota.core.states import NEEDS_ATTENTION, RunState
from rota.ui.charts import ages, throughput
from rota.ui.lists.listed import Listed
from rota.ui.reading import Memory, Reader
from rota.ui.rendering import Renderer
from rota.ui.visits import Page, Visit
from rota.ui.waiting import STUCK
from rota.ui.words import command

RUNNING_SHOWN = 10
FAILED_SHOWN = 6
WAITING_SHOWN = 8
WORKERS_SHOWN = 24
FRAGMENTS = {
    "numbers": "home_numbers.html",
    "waiting": "home_waiting.html",
    "running": "home_running.html",
    "failed": "home_failed.html",
    "workers": "home_workers.html",
}


class HomePages:
    """The page, and what keeps it current."""

    def __init__(self, renderer: Renderer, memory: Memory) -> None:
        self._renderer = renderer
        self._memory = memory

    def pages(self) -> tuple[Page, ...]:
        """Where they are."""
        home = Listed(
            path="/", summary="How everything stands", template="home.html", fragments=FRAGMENTS, read=self._read
        )
        return home.pages(self._renderer)

    async def _read(self, visit: Visit) -> dict[str, Any]:
        reader = Reader(visit.client, self._memory)
        view: Overview = await reader.ask(GetOverview(tenant=reader.line.tenant))
        trend = self._memory.trend(reader.line.tenant)
        trend.hear(view)
        running = (await reader.runs_page(states=(RunState.RUNNING,), limit=RUNNING_SHOWN, history=False)).runs
        failed = (await reader.runs_page(states=(RunState.FAILED,), limit=FAILED_SHOWN)).runs
        workers = await reader.workers()
        causes = {view.id: await reader.cause_of(view) for view in failed}
        waiting = [*_parked(running), *view.waiting]
        return {
            "overview": view,
            "running": running,
            "failed": failed,
            "causes": causes,
            "waiting": waiting[:WAITING_SHOWN],
            "waiting_more": max(0, len(waiting) - WAITING_SHOWN),
            "stuck": STUCK,
            "queued": sum(line.tasks for line in view.queues),
            "workers": workers[:WORKERS_SHOWN],
            "workers_more": max(0, len(workers) - WORKERS_SHOWN),
            "throughput": throughput(trend.steps, view.as_of),
            "ages": ages(trend.steps, view.as_of),
            "cli": command("runs"),
        }


def _parked(running: tuple[RunView, ...]) -> list[WaitingLine]:
    """Tasks that wait for a person, of the runs that are shown."""
    return [
        WaitingLine(
            reason=reason("attention.parked", "parked, and waits for a person", run=view.id), run=view.id, tasks=parked
        )
        for view in running
        if (parked := view.tasks.get(NEEDS_ATTENTION, 0))
    ]
