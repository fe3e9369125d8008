"""Rota: a durable, fenced scheduler.

The names below are the public ones. They are imported when they are first used, so that `import rota` costs nothing
to a program that needs one of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rota.running import Context, Fail, Request, Reschedule, Skip, context

if TYPE_CHECKING:
    from rota.app import AsyncRota, Rota, connect
    from rota.app.sql.session import Session
    from rota.app.sql.streams import StreamSession
    from rota.app.submitting import submit_work
    from rota.client.deploying import DeployFailed
    from rota.client.runs import RunFailed
    from rota.control.recorder import Recorder
    from rota.core.errors import Refused, Unavailable
    from rota.kinds.workflow.arguments import literal
    from rota.kinds.workflow.authoring import workflow
    from rota.kinds.workflow.draft import chain
    from rota.kinds.workflow.groups import task_group
    from rota.kinds.workflow.parameters import Param, logical_date
    from rota.kinds.workflow.programs import command, http
    from rota.kinds.workflow.tasks import task

__version__ = "0.1.0"
__all__ = [
    "AsyncRota",
    "Context",
    "DeployFailed",
    "Fail",
    "Param",
    "Recorder",
    "Refused",
    "Request",
    "Reschedule",
    "Rota",
    "RunFailed",
    "Session",
    "Skip",
    "StreamSession",
    "Unavailable",
    "__version__",
    "chain",
    "command",
    "connect",
    "context",
    "http",
    "literal",
    "logical_date",
    "submit_work",
    "task",
    "task_group",
    "workflow",
]

_HOMES = {
    "AsyncRota": "rota.app",
    "Rota": "rota.app",
    "connect": "rota.app",
    "Session": "rota.app.sql.session",
    "StreamSession": "rota.app.sql.streams",
    "submit_work": "rota.app.submitting",
    "DeployFailed": "rota.client.deploying",
    "RunFailed": "rota.client.runs",
    "Recorder": "rota.control.recorder",
    "Refused": "rota.core.errors",
    "Unavailable": "rota.core.errors",
    "Param": "rota.kinds.workflow.parameters",
    "chain": "rota.kinds.workflow.draft",
    "command": "rota.kinds.workflow.programs",
    "http": "rota.kinds.workflow.programs",
    "literal": "rota.kinds.workflow.arguments",
    "logical_date": "rota.kinds.workflow.parameters",
    "task": "rota.kinds.workflow.tasks",
    "task_group": "rota.kinds.workflow.groups",
    "workflow": "rota.kinds.workflow.authoring",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rota' has no attribute {name!r}")
    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as missing:
        if home.startswith("rota.app.sql."):
            text = f"rota.{name} needs {missing.name}, which is not installed: pip install 'rota[query]'"
            raise ModuleNotFoundError(text, name=missing.name) from None
        raise


def __dir__() -> list[str]:
    return __all__
