"""Trouble over HTTP: every refusal is problem+json (RFC 9457) with our code in it, whatever refused."""

from http import HTTPStatus

import msgspec
from msgspec import Struct
from starlette.responses import Response

from rota.core.errors import CODES, Refused, Unavailable

PROBLEM_TYPE = "application/problem+json"

# What a code means in HTTP's own words: by the code itself, else by the part before its dot.
STATUS: dict[str, int] = {
    "auth": 403,
    "auth.missing": 401,
    "auth.session": 401,
    "auth.wrong": 401,
    "blob": 410,
    "blobs": 500,
    "action": 404,
    "attempt": 404,
    "backfill": 422,
    "backfill.exists": 409,
    "backfill.unknown": 404,
    "bundle": 422,
    "bundle.size": 413,
    "command": 409,
    "config": 500,
    "content": 422,
    "content.full": 507,
    "content.missing": 404,
    "content.range": 416,
    "deploy": 422,
    "field": 422,
    "field.size": 413,
    "graph": 422,
    "graph.unknown": 404,
    "http": 400,
    "http.accept": 406,
    "http.head_size": 431,
    "http.host": 421,
    "http.media_type": 415,
    "http.method": 405,
    "http.form": 403,
    "http.origin": 403,
    "http.path": 404,
    "http.slow": 408,
    "instance": 404,
    "leader": 503,
    "lease": 409,
    "lease.foreign": 403,
    "lease.none": 404,
    "lease.token": 403,
    "listen": 500,
    "pool": 422,
    "pool.unknown": 404,
    "protocol": 400,
    "query": 422,
    "queue": 404,
    "requirement": 422,
    "result": 406,
    "run": 409,
    "run.busy": 503,
    "run.unknown": 404,
    "schedule": 422,
    "schedule.unknown": 404,
    "service": 500,
    "session": 403,
    "session.required": 400,
    "service.busy": 503,
    "stream": 422,
    "stream.busy": 409,
    "stream.folder": 500,
    "stream.unknown": 404,
    "store": 503,
    "store.full": 507,
    "store.refused": 422,
    "task": 409,
    "task.unknown": 404,
    "template": 422,
    "tls": 500,
    "worker": 409,
    "worker.unknown": 404,
    "workflow": 404,
}


class Problem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What went wrong. `code` is stable, `detail` is for people, and `path` names the field it is about.

    `retry_after_ms` is 0 where trying again does not help until the caller has changed something. `leader` is where to
    ask instead, if another coordinator leads.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str = ""
    path: str = ""
    retry_after_ms: int = 0
    leader: str = ""


def status_of(code: str) -> int:
    """The HTTP status of an error code."""
    found = STATUS.get(code) or STATUS.get(code.partition(".")[0])
    assert found is not None, f"error code {code!r} has no HTTP status"
    return found


def problem_of(trouble: Refused | Unavailable, again: str = "") -> Problem:
    """Trouble as its caller reads it; `again` is how to repeat what may succeed later."""
    is_refused = isinstance(trouble, Refused)
    return Problem(
        type=f"urn:rota:error:{trouble.code}",
        title=CODES[trouble.code],
        status=status_of(trouble.code),
        detail=trouble.reason,
        code=trouble.code,
        hint=trouble.hint if is_refused else again,
        path=trouble.path if is_refused else "",
        retry_after_ms=0 if is_refused else max(1, trouble.retry_after_ms),
        leader="" if is_refused else trouble.http,
    )


def respond(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """A problem as a response."""
    said = dict(headers or {})
    if problem.retry_after_ms:
        said["Retry-After"] = str(-(-problem.retry_after_ms // 1000))
    if problem.status == HTTPStatus.UNAUTHORIZED:
        said["WWW-Authenticate"] = 'Bearer realm="rota"'
    return Response(msgspec.json.encode(problem), problem.status, said, PROBLEM_TYPE)
