"""Workers: who is registered and how each stands; and one of them, with what it is and what it holds."""

from typing import Any

from msgspec import Struct

from rota.core.errors import Refused
from rota.core.ids import Fence, Millis, RunId
from rota.core.overview import WORKER_STANDINGS
from rota.core.questions import HELD_SHOWN_MAX, ListTasks, TasksPage, WorkerView
from rota.core.states import ASSIGNED, RUNNING
from rota.ui.acts.fleet import read_worker, worker_offers
from rota.ui.lists.listed import Listed, paged
from rota.ui.visits import Visit
from rota.ui.words import command, in_url

WORKERS_SHOWN = 50
LEASES_SHOWN = 50
STANDINGS = WORKER_STANDINGS


class WorkersFilter(Struct, frozen=True, kw_only=True):
    """Which workers: by words in their id or properties, and by how they stand; from the number `first` on."""

    find: str = ""
    state: tuple[str, ...] = ()
    first: int = 0


class WorkerLine(Struct, frozen=True):
    """A worker in the list."""

    view: WorkerView
    standing: str


class LeaseLine(Struct, frozen=True):
    """What a worker holds. The task is unknown if the lease has ended since."""

    run: str
    fence: Fence
    task: str = ""
    state: str = ""
    started_at: Millis = 0


def standing_of(view: WorkerView, now: Millis) -> str:
    """How a worker stands, in a word."""
    if view.quarantined_until > now:
        return "quarantined"
    if view.draining:
        return "draining"
    return "present" if view.present else "away"


async def read_workers(visit: Visit) -> dict[str, Any]:
    """A page of them."""
    query: WorkersFilter = visit.query
    lines = [WorkerLine(view, standing_of(view, visit.now)) for view in await visit.client.workers()]
    counts = {word: sum(line.standing == word for line in lines) for word in STANDINGS}
    words = query.find.lower().split()
    found = [
        line
        for line in lines
        if (not query.state or line.standing in query.state) and all(word in _text(line.view) for word in words)
    ]
    found.sort(key=lambda line: (STANDINGS.index(line.standing), line.view.id))
    page = paged(found, query.first, WORKERS_SHOWN)

    def url(**other: Any) -> str:
        return in_url("/workers", {"find": query.find, "state": query.state, **other})

    return {
        "query": query,
        "page": page,
        "total": len(lines),
        "slots": sum(line.view.capacity.slots for line in lines if line.view.present),
        "leases": sum(line.view.leases for line in lines),
        "choices": [
            (word, word in query.state, url(state=_toggled(query.state, word)), counts[word]) for word in STANDINGS
        ],
        "before": url(first=max(0, page.first - WORKERS_SHOWN)) if page.first else "",
        "after": url(first=page.last) if page.last < page.total else "",
        "cli": command("workers"),
    }


def _text(view: WorkerView) -> str:
    properties = " ".join(f"{name}={value}" for name, value in view.capacity.properties)
    return f"{view.id} {' '.join(view.capacity.kinds)} {' '.join(view.capacity.queues)} {properties}".lower()


def _toggled(chosen: tuple[str, ...], word: str) -> list[str]:
    others = [each for each in chosen if each != word]
    return others if word in chosen else [*others, word]


async def read_one(visit: Visit) -> dict[str, Any]:
    """One of them."""
    view = await read_worker(visit, visit.path["worker"])
    properties: dict[str, list[str]] = {}
    for name, value in view.capacity.properties:
        properties.setdefault(name, []).append(value)
    return {
        "worker": view,
        "standing": standing_of(view, visit.now),
        "properties": sorted(properties.items()),
        "held": await _read_held(visit, view),
        "held_max": HELD_SHOWN_MAX,
        "offers": worker_offers(visit, view),
        "cli": command("workers", "list"),
    }


async def _read_held(visit: Visit, view: WorkerView) -> list[LeaseLine]:
    """What it holds, with the task of each: a run is asked once, for those that somebody has."""
    tenant = visit.client.line.tenant
    tasks: dict[Fence, LeaseLine] = {}
    for run in dict.fromkeys(run for run, _ in view.held[:LEASES_SHOWN]):
        question = ListTasks(tenant=tenant, run=RunId(run), states=(ASSIGNED, RUNNING), limit=1_000)
        try:
            page: TasksPage = await visit.client.ask(question)
        except Refused as refused:
            if refused.code != "run.unknown":
                raise
            # Of another tenant, or over.
            continue
        for task in page.tasks:
            tasks[task.fence] = LeaseLine(run, task.fence, task.id, str(task.state), task.started_at)
    return [tasks.get(fence) or LeaseLine(run, fence) for run, fence in view.held[:LEASES_SHOWN]]


WORKERS = Listed(
    path="/workers",
    summary="Workers, and how each stands",
    template="workers.html",
    fragments={"workers": "workers_table.html"},
    read=read_workers,
    query=WorkersFilter,
)
WORKER = Listed(
    path="/workers/{worker}",
    summary="A worker",
    template="worker.html",
    fragments={"head": "worker_head.html", "held": "worker_held.html"},
    read=read_one,
)
