"""What agents and those who look after them read, as JSON has it: items, sessions, claims, wakes, what waits.

Fences are text, labels an object, priorities in agents' words; the shapes are what the document of HTTP shows.
"""

from typing import Any

import msgspec
from msgspec import Struct, to_builtins

from rota.core.backlog import BacklogLine, SchedulerView
from rota.core.ids import Millis
from rota.wire.items import PRIORITY_CLASSES, ItemView, Priority, open_plain
from rota.wire.sessions import SessionLine, WakeView, WorkLease
from rota.wire.views import ReasonShape, as_plain, shape_of

ItemShape = shape_of(ItemView, name="WorkItem", fence=(str, msgspec.NODEFAULT))
SchedulerShape = shape_of(SchedulerView)
BacklogShape = shape_of(
    BacklogLine,
    name="BacklogLine",
    labels=(dict[str, str], msgspec.NODEFAULT),
    priority=(Priority, msgspec.NODEFAULT),
    reasons=(list[ReasonShape], msgspec.NODEFAULT),
)
WakeShape = shape_of(WakeView, labels=(dict[str, str], msgspec.NODEFAULT))
ClaimShape = shape_of(
    WorkLease,
    name="Claim",
    labels=(dict[str, str], msgspec.NODEFAULT),
    payload=(Any, msgspec.NODEFAULT),
    fence=(str, msgspec.NODEFAULT),
)
_PRIORITIES = {of_class: priority for priority, of_class in PRIORITY_CLASSES.items()}


class HeldShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An item that a session holds."""

    item: str
    fence: str


SessionShape = shape_of(SessionLine, name="Session", held=(list[HeldShape], msgspec.NODEFAULT))


class RenewedShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Until when a claim is held now."""

    expires_at: Millis


def show_item(view: ItemView) -> dict[str, Any]:
    """An item."""
    return {**to_builtins(view), "fence": str(view.fence)}


def show_session(line: SessionLine) -> dict[str, Any]:
    """A session."""
    held = [{"item": item, "fence": str(fence)} for item, fence in line.held]
    return {**to_builtins(line), "held": held}


def show_backlog(line: BacklogLine) -> dict[str, Any]:
    """One line of what waits."""
    return {
        **to_builtins(line),
        "labels": dict(line.labels),
        "priority": _PRIORITIES[line.priority].value,
        "reasons": [as_plain(reason) for reason in line.reasons],
    }


def show_wake(view: WakeView) -> dict[str, Any]:
    """A wake."""
    return {**to_builtins(view), "labels": dict(view.labels)}


def show_claim(lease: WorkLease) -> dict[str, Any]:
    """A claim, with its token: for whoever claimed, and nobody else."""
    return {
        **to_builtins(lease),
        "payload": open_plain(lease.payload),
        "labels": dict(lease.labels),
        "fence": str(lease.fence),
    }
