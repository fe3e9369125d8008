"""What the OpenAPI document says beside the shapes: what each parameter means, and examples of what is sent."""

from typing import Any

from rota.core.bounds import HISTORY_PAGE_MAX, ID_CHARS_MAX

Schema = dict[str, Any]

_NAME: Schema = {"type": "string", "minLength": 1}
_PAGE: Schema = {"minimum": 1, "maximum": HISTORY_PAGE_MAX}

# Parameters in paths: what each names, an example, and what it may be.
IN_PATH: dict[str, tuple[str, str, Schema]] = {
    "backfill": ("The backfill's id.", "etl-backfill-3f9a1c", _NAME),
    "item": ("The work item's id.", "work-1f2e3d4c", _NAME),
    "pool": ("The pool's name.", "warehouse", _NAME),
    "queue": ("The queue's name.", "gpu", _NAME),
    "run": ("The run's id, live or ended.", "etl-3f9a1c", _NAME),
    "session": ("The agent session's id.", "reviewer-7", _NAME),
    "sha256": ("The SHA-256 of the bundle, in hexadecimal.", "0" * 64, {"type": "string", "pattern": "^[0-9a-f]{64}$"}),
    "stream": ("The stream's name, which is that of its folder.", "clicks", _NAME),
    "task": ("The task's id; one of a mapped task as `name[3]`.", "load", _NAME),
    "tenant": ("The tenant's name.", "research", _NAME),
    "worker": ("The worker's name.", "build-3", _NAME),
    "workflow": ("The workflow's name.", "etl", _NAME),
}
# Query parameters: what each means, and how large it may be.
IN_QUERY: dict[str, tuple[str, Schema]] = {
    "after": ("Where the page before ended: its `next`.", {}),
    "attempt": ("Which attempt; 0 is the newest.", {"minimum": 0, "maximum": 1_000_000}),
    "follow": ("Whether to go on until the attempt has ended.", {}),
    "incarnation": ("The incarnation of the session, if it has another name than the session.", {}),
    "include_paused": ("Whether to list what is paused, too.", {}),
    "label": ("Only runs with this label, as `NAME=VALUE`; of several, those that have all.", {}),
    "limit": ("How many at most.", _PAGE),
    "name": ("Only runs of this graph.", {}),
    "state": ("Only those in this state; of several, in any of them.", {}),
    "task": ("Only what concerns this task.", {}),
    "workspace": ("Only what belongs to this workspace.", {}),
}
IN_HEADER: dict[str, tuple[str, Schema]] = {
    "Idempotency-Key": (
        "Chosen by the caller: the same call with the same key is carried out once.",
        {"type": "string", "maxLength": ID_CHARS_MAX},
    ),
    "Last-Event-ID": ("The id of the last event that was read; the stream goes on after it.", {"type": "string"}),
    "Rota-Claim-Token": ("The secret of a claim, if it is not in the body.", {"type": "string"}),
    "Rota-Tenant": (
        "For which tenant, if the token is for any.",
        {"type": "string", "minLength": 1, "maxLength": ID_CHARS_MAX},
    ),
}

_GRAPH: Schema = {
    "name": "etl",
    "tasks": [
        {"id": "extract", "command": {"shell": "./extract.sh"}},
        {"id": "load", "command": {"argv": ["./load", "--all"]}, "upstream": ["extract"]},
    ],
}
_HOLDER: Schema = {"fence": "1099511627777", "token": "as the claim had it"}
# What may be sent to an endpoint.
BODIES: dict[str, Schema] = {
    "POST /api/v1/runs": {"graph": _GRAPH, "run": "etl-by-hand", "labels": {"team": "data"}},
    "POST /api/v1/runs/{run}/cancel": {"reason": "wrong day"},
    "POST /api/v1/runs/{run}/pause": {},
    "POST /api/v1/runs/{run}/resume": {},
    "POST /api/v1/runs/{run}/clear": {"tasks": ["load"], "only_failed": True, "dry_run": True},
    "POST /api/v1/runs/{run}/mark": {"tasks": ["load"], "to": "success"},
    "POST /api/v1/runs/{run}/retry": {"tasks": ["load"]},
    "POST /api/v1/runs/{run}/move": {"version": 0},
    "POST /api/v1/runs/{run}/tasks/{task}/resolve": {"exit": "requeue", "requires": {"gpu": "1"}},
    "PUT /api/v1/runs/{run}/note": {"note": "the vendor was asked"},
    "PUT /api/v1/runs/{run}/tasks/{task}/note": {"note": "the vendor was asked"},
    "POST /api/v1/workflows": {"graph": _GRAPH, "schedule": {"cron": "0 3 * * *", "zone": "Europe/Berlin"}},
    "PATCH /api/v1/workflows/{workflow}": {"paused": True},
    "POST /api/v1/workflows/{workflow}/runs": {"params": {"day": "2026-11-16"}},
    "POST /api/v1/backfills": {"workflow": "etl", "start": "2026-11-01", "end": "2026-11-15", "dry_run": True},
    "POST /api/v1/work": {"title": "Review the guide", "requires": ["review"], "workspace": "docs"},
    "POST /api/v1/work/bulk": {"action": "approve", "items": ["work-1f2e3d4c"]},
    "POST /api/v1/work/{item}/approve": {"reason": "looks right"},
    "POST /api/v1/work/{item}/reject": {"reason": "not now"},
    "POST /api/v1/work/{item}/cancel": {"reason": "not needed any more"},
    "POST /api/v1/work/{item}/pause": {},
    "POST /api/v1/work/{item}/resume": {},
    "POST /api/v1/work/{item}/release": {"reason": "it takes too long"},
    "POST /api/v1/work/{item}/fail": {"reason": "cannot be done"},
    "POST /api/v1/work/{item}/retry": {},
    "POST /api/v1/work/{item}/requeue": {"requires": ["review", "python"]},
    "POST /api/v1/work/{item}/resolve": {"exit": "requeue"},
    "POST /api/v1/sessions": {"session": "reviewer-7", "workspace": "docs", "capabilities": ["review"]},
    "POST /api/v1/sessions/{session}/beat": {},
    "POST /api/v1/sessions/{session}/claims": {"limit": 1, "wait_ms": 0},
    "POST /api/v1/sessions/{session}/claims/{item}/renew": _HOLDER,
    "POST /api/v1/sessions/{session}/claims/{item}/complete": {**_HOLDER, "result": {"words": 812}},
    "POST /api/v1/sessions/{session}/claims/{item}/fail": {**_HOLDER, "error": "no such page"},
    "POST /api/v1/sessions/{session}/claims/{item}/release": _HOLDER,
    "POST /api/v1/scheduler/pause": {"workspace": "docs", "reason": "the style guide changes"},
    "POST /api/v1/scheduler/resume": {"workspace": "docs"},
    "POST /api/v1/scheduler/drain": {"timeout_s": 1},
    "POST /api/v1/workers/{worker}/drain": {},
    "POST /api/v1/workers/{worker}/undrain": {},
    "POST /api/v1/workers/{worker}/unquarantine": {},
    "POST /api/v1/streams/{stream}/pause": {},
    "POST /api/v1/streams/{stream}/resume": {},
    "POST /api/v1/streams/{stream}/savepoint": {"name": "before-upgrade", "stop": True},
    "POST /api/v1/streams/{stream}/restore": {"round": "41"},
    "PUT /api/v1/queues/{queue}": {"properties": {"gpu": "minimum"}},
    "PUT /api/v1/pools/{pool}": {"slots": 4},
    "PUT /api/v1/tenants/{tenant}": {"weight": 3},
}
PROBLEM: Schema = {
    "type": "urn:rota:error:run.unknown",
    "title": "No live run has that id.",
    "status": 404,
    "detail": "no run 'etl-3f9a1c', neither live nor in history",
    "code": "run.unknown",
    "hint": "",
    "path": "run",
    "retry_after_ms": 0,
    "leader": "",
}
