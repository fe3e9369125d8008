"""Views with what a test says, and nothing else."""

from typing import Any

from rota.core.model import PriorityClass
from rota.core.questions import RunView, TaskView
from rota.core.states import PHASES, RunState, TaskState


def run_view(**given: Any) -> RunView:
    fields: dict[str, Any] = {
        "tenant": "t",
        "id": "r",
        "name": "g",
        "kind": "workflow",
        "graph": "0" * 64,
        "state": RunState.RUNNING,
        "priority": PriorityClass.NORMAL,
        "created_at": 1,
        "started_at": 1,
        "ended_at": 0,
        "paused": False,
        "reason": "",
        "fault": "",
        "schedule": "",
        "slot_at": 0,
        "parent": "",
        "params": b"",
        "total": 1,
        "tasks": {},
        "story": 1,
    }
    return RunView(**{**fields, **given})


def task_view(**given: Any) -> TaskView:
    fields: dict[str, Any] = {
        "run": "r",
        "idx": 0,
        "id": "a",
        "kind": "command",
        "state": TaskState.SUCCESS,
        "phase": PHASES[TaskState.SUCCESS],
        "attempt": 1,
        "interruptions": 0,
        "worker": "",
        "fence": 0,
        "eligible_at": 0,
        "assigned_at": 0,
        "started_at": 0,
        "ended_at": 0,
        "due_at": 0,
        "failure": None,
        "error": "",
        "result": None,
    }
    return TaskView(**{**fields, **given})
