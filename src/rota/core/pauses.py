"""Pauses: scopes of which nobody is given work, and why that is so.

A scope is empty, for all of a tenant's work, or one requirement, `workspace=docs`. So whatever waits is in a scope by
what it asks for, and nobody has to keep a list of what is paused.
"""

from collections.abc import Iterator

from rota.core.demand import Signature
from rota.core.errors import Refused
from rota.core.graph import check_text
from rota.core.reasons import Reason, Reasons, reason
from rota.core.records import Pause

EVERYTHING = ""


def scope_of(name: str, value: str) -> str:
    """The scope of what has this requirement."""
    return f"{name}={value}"


def check_scope(scope: str) -> None:
    """Refuse what is no scope."""
    check_text(scope, "scope")
    name, equals, value = scope.partition("=")
    if scope and not (name and equals and value):
        hint = "Leave it out for everything, or write name=value, as in workspace=docs."
        raise Refused("field.value", f"{scope[:40]!r} is no scope", hint, path="scope")


def pauses_of(pauses: dict[tuple[str, str], Pause], signature: Signature) -> Iterator[Pause]:
    """The pauses, lifted ones too, of the scopes that a task is in."""
    for scope in (EVERYTHING, *(scope_of(*pair) for pair in signature.requires)):
        pause = pauses.get((signature.tenant, scope))
        if pause is not None:
            yield pause


def pause_reasons(pauses: dict[tuple[str, str], Pause], signature: Signature) -> Reasons:
    """Why nobody is given a task, as far as pauses go."""
    return tuple(_reason(pause) for pause in pauses_of(pauses, signature) if pause.paused)


def _reason(pause: Pause) -> Reason:
    what = f"work with {pause.scope}" if pause.scope else "all work"
    text = f"{what} is paused by {pause.actor or 'somebody'}" + (f": {pause.reason}" if pause.reason else "")
    return reason("scheduler.paused", text, scope=pause.scope, actor=pause.actor, at=pause.at)
