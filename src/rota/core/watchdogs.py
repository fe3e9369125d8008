"""Watchdogs: for every state that is not an end, the functions that are bound to move it on.

A state without an entry would be a place to hang. Of each state the first entry is the ordinary way out; the others act
when that one fails. Every function here is called for a timer, for a command or by the loop; a test checks that.
"""

from collections.abc import Callable
from typing import Any

from rota.core.decide.claims import claim
from rota.core.decide.leases import report
from rota.core.decide.remedies import resolve
from rota.core.decide.runs import continue_run, start_runs, stop
from rota.core.decide.timers import (
    deadline,
    due,
    give_up,
    orphan,
    replan,
    review,
    starved,
    watch_overrun,
    watch_worker,
)
from rota.core.place import place
from rota.core.states import (
    ASSIGNED,
    NEEDS_ATTENTION,
    NONE,
    QUEUED,
    RUNNING,
    SCHEDULED,
    UP_FOR_RESCHEDULE,
    UP_FOR_RETRY,
    RunState,
    TaskState,
)

Watchdog = Callable[..., Any]

STATE_WATCHDOG: dict[TaskState, tuple[Watchdog, ...]] = {
    # The end of an upstream decides it, in one turn or in slices; a run in which nothing can move fails and names it.
    NONE: (report, continue_run, replan, orphan),
    # Queued by the change that scheduled it; the full step repeats a plan that was cut short.
    SCHEDULED: (continue_run, review),
    # Granted to a fitting worker; the starvation sweep parks or fails it when no worker could ever fit.
    QUEUED: (place, claim, starved),
    # Acknowledged by its worker; returned when nobody does.
    ASSIGNED: (report, watch_worker, watch_overrun),
    # Ended by its worker's report; returned at the end of its lease, failed beyond its time limit.
    RUNNING: (report, watch_worker, watch_overrun),
    UP_FOR_RETRY: (due, review),
    UP_FOR_RESCHEDULE: (due, review),
    # A person or a policy: requeue, fail, cancel or other requirements. It is listed until then.
    NEEDS_ATTENTION: (resolve, stop, give_up),
}

RUN_STATE_WATCHDOG: dict[RunState, tuple[Watchdog, ...]] = {
    # Started when the graph's active runs allow; the full step looks again.
    RunState.QUEUED: (start_runs, stop),
    # Ended with its last task; by its time limit, or as one that nothing moves, otherwise.
    RunState.RUNNING: (report, deadline, orphan, stop),
}
