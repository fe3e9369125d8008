"""What holds a task, and where that is: from the ids that a reason speaks of, never from its words."""

from urllib.parse import quote

from msgspec import Struct

from rota.core.reasons import Reason
from rota.ui.words import queues_url, run_url, runs_url, task_url, worker_url, workflow_url


class Holder(Struct, frozen=True):
    """Something with a page, or a place on one."""

    what: str
    name: str
    url: str


def holders_of(reason: Reason, run: str) -> list[Holder]:
    """What a reason of a task of this run leads to, each once."""
    about: dict[str, list[str]] = {}
    for name, value in reason.about:
        about.setdefault(name, []).append(value)
    # A task that is named beside a run is of that run.
    of = about.get("run", [run])[0]
    found: list[Holder] = []
    for name, values in about.items():
        for value in dict.fromkeys(values):
            url = _url(name, value, of)
            # Where one is already nobody needs to be led.
            if url and not (name == "run" and value == run) and reason.code != "attention.parked":
                found.append(Holder(_WHAT.get(name, name), value, url))
    return found


_WHAT = {"graph": "runs of"}


def _url(name: str, value: str, run: str) -> str:
    match name:
        case "pool" if not value.startswith("@"):
            return f"{queues_url()}#pool-{quote(value, safe='')}"
        case "queue":
            return f"{queues_url()}#queue-{quote(value, safe='')}"
        case "worker":
            return worker_url(value)
        case "workflow":
            return workflow_url(value)
        case "graph":
            return runs_url(name=value, state=("queued", "running"))
        case "run":
            return run_url(value)
        case "task":
            return task_url(run, value)
        case _:
            return ""
