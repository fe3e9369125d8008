"""The views of a run: what each is called, where it is, and what they have in common."""

from typing import Any

from msgspec import Struct

from rota.core.plan import TASKS_FAILED
from rota.core.questions import RunView
from rota.ui.acts.runs import run_offers
from rota.ui.reading import Reader
from rota.ui.visits import Visit


class View(Struct, frozen=True):
    """One way to look at a run: what it is called, where it is under the run, and what it is made of."""

    title: str
    path: str
    fragments: dict[str, str]


_HEAD = {"head": "run_head.html"}
_FULL = {**_HEAD, "waiting": "run_waiting.html", "panel": "run_panel.html"}
_TASKS = {"tasks": "run_tasks.html"}
_STORY = {"story": "story.html"}
# What there is to know about the log of one task, whatever page it is on.
LOG = {"attempts": "log_attempts.html", "unsaid": "log_unsaid.html"}
LOGS = View("Logs", "logs", {**_HEAD, "picker": "logs_picker.html", "chosen": "logs_chosen.html", **LOG})
VIEWS = (
    View("Grid", "", {**_FULL, "grid": "run_grid.html", **_TASKS, **_STORY}),
    View("Graph", "graph", {**_HEAD, "graph": "run_graph.html"}),
    View("Timeline", "timeline", {**_HEAD, "timeline": "run_timeline.html"}),
    LOGS,
    View("Tasks", "tasks", {**_HEAD, **_TASKS}),
    View("Story", "story", {**_HEAD, **_STORY}),
)


async def read_head(view: View, visit: Visit, reader: Reader, run: RunView) -> dict[str, Any]:
    """What every view of a run begins with is made of."""
    cause = await reader.cause_of(run)
    return {
        "visit": visit,
        "offers": run_offers(visit, run),
        "query": visit.query,
        "run": run,
        "view": view,
        "views": VIEWS,
        "params": {},
        "is_held": await reader.is_held(run),
        "cause": cause,
        # Its tasks are named by the cause, and with an error.
        "reason": "" if cause is not None and run.reason.startswith(TASKS_FAILED) else run.reason,
        "streams": (await reader.streams(run.id)).streams,
    }
