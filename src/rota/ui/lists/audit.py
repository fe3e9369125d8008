"""The audit: who asked for what, and when."""

import json
from typing import Any

from msgspec import Struct

from rota.core.errors import Refused
from rota.core.history import AuditsPage, ListAudits
from rota.core.ids import Millis
from rota.core.records import Audit
from rota.ui.lists.listed import Listed
from rota.ui.visits import Visit
from rota.ui.words import command, in_url, run_url, task_url, worker_url, workflow_url

AUDITS_SHOWN = 50
# How many are looked through for one page of those that somebody looks for.
LOOKED_THROUGH_MAX = 2_000
LOOKED_AT_ONCE = 500
ABOUT_SHOWN = 8
VALUE_CHARS_MAX = 200


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Who, what, and words in what it was about; from before the number `before`."""

    who: str = ""
    what: str = ""
    find: str = ""
    before: int = 0


class AuditLine(Struct, frozen=True):
    """What somebody asked for, and where that is."""

    at: Millis
    actor: str
    command: str
    about: list[tuple[str, str, str]]
    left: int


async def read_audit(visit: Visit) -> dict[str, Any]:
    """A page of it."""
    query: AuditFilter = visit.query
    if not visit.rights.may(ListAudits):
        hint = "Sign in with a token of that role."
        raise Refused("auth.role", "who asked for what is shown to those with the role admin", hint)
    audits, following = await _look_through(visit, query)

    def url(**other: Any) -> str:
        return in_url("/audit", {"who": query.who, "what": query.what, "find": query.find, **other})

    return {
        "query": query,
        "lines": [_line(audit) for audit in audits],
        "url": url,
        "next": url(before=following) if following else "",
        "first": url() if query.before else "",
        "cli": command("audit"),
    }


async def _look_through(visit: Visit, query: AuditFilter) -> tuple[list[Audit], int]:
    """Some that are meant, and before which number to go on; 0 at the end."""
    found: list[Audit] = []
    before, looked_at = query.before, 0
    is_all = not (query.who or query.what or query.find)
    while True:
        limit = AUDITS_SHOWN if is_all else LOOKED_AT_ONCE
        question = ListAudits(tenant=visit.client.line.tenant, before=before, limit=limit)
        page: AuditsPage = await visit.client.ask(question)
        if is_all:
            return list(page.audits), page.next
        for audit in page.audits:
            looked_at += 1
            if _is_meant(audit, query):
                found.append(audit)
        before = page.next
        if not before or len(found) >= AUDITS_SHOWN or looked_at >= LOOKED_THROUGH_MAX:
            return found, before


def _is_meant(audit: Audit, query: AuditFilter) -> bool:
    return (
        query.who.lower() in audit.actor.lower()
        and query.what.lower() in audit.command.lower()
        and query.find.lower() in audit.about.lower()
    )


def _line(audit: Audit) -> AuditLine:
    try:
        about: Any = json.loads(audit.about)
    except ValueError:
        # It was too long to be kept whole.
        return AuditLine(audit.at, audit.actor, audit.command, [("", audit.about[:VALUE_CHARS_MAX], "")], 0)
    pairs = [
        (name, _text(value), _url(name, value, about)) for name, value in about.items() if value not in ("", None, [])
    ]
    return AuditLine(audit.at, audit.actor, audit.command, pairs[:ABOUT_SHOWN], max(0, len(pairs) - ABOUT_SHOWN))


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}…"


def _url(name: str, value: Any, about: dict[str, Any]) -> str:
    if not isinstance(value, str):
        return ""
    match name:
        case "run":
            return run_url(value)
        case "task" if isinstance(about.get("run"), str):
            return task_url(about["run"], value)
        case "worker":
            return worker_url(value)
        case "workflow":
            return workflow_url(value)
        case _:
            return ""


AUDIT = Listed(
    path="/audit",
    summary="Who asked for what",
    template="audit.html",
    fragments={"audit": "audit_table.html"},
    read=read_audit,
    query=AuditFilter,
)
