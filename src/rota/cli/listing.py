"""The names that there are of things: for completions, and for whoever mistyped one."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.app import Rota

# Among so many runs, the newest, an id is looked for by its beginning.
RUNS_LOOKED_AT = 2_000
TASKS = "tasks"

LISTS: "dict[str, Callable[[Rota], list[str]]]" = {
    "runs": lambda rota: [view.id for view in rota.runs(limit=RUNS_LOOKED_AT)],
    "workflows": lambda rota: [view.workflow.name for view in rota.workflows()],
    "workers": lambda rota: [view.id for view in rota.workers()],
    "pools": lambda rota: [view.pool.name for view in rota.pools()],
    "queues": lambda rota: [queue.name for queue in rota.queues()],
    "sessions": lambda rota: [line.session for line in rota.sessions()],
    "backfills": lambda rota: [view.id for view in rota.backfills()],
    "items": lambda rota: [view.item for view in rota.items(limit=100)],
}


def names_of(rota: "Rota", kind: str, run: str = "") -> list[str]:
    """What there is of a kind; tasks are those of a run."""
    return [view.id for view in rota.run(run).tasks()] if kind == TASKS else LISTS[kind](rota)
