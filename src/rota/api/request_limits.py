"""How large a request may be, by its type and by the role of its caller. Checked before anything is decoded.

`docs/guides/service.md` has the same numbers as a table; a test compares them.
"""

from rota.api.auth import OF_ANALYSTS, Principal, Role
from rota.core import commands as cm
from rota.core.bounds import BUNDLE_PACKED_BYTES_MAX
from rota.core.errors import Refused
from rota.core.questions import PreviewClear
from rota.core.tags import tag_of
from rota.wire.large_requests import BATCH_BYTES, BODY_BYTES_MAX, REQUEST_BYTES_MAX, RequestHead
from rota.wire.requests import PutBundle

# Several requests in one message have this much together. A message of more is one request.
BATCH_BYTES_MAX = 2 * BATCH_BYTES
# Ten thousand tasks.
GROWTH_BYTES_MAX = 8 * 1024 * 1024
# Ten thousand names of tasks.
NAMES_BYTES_MAX = 2 * 1024 * 1024
# Around the content of a bundle, and around the request in its message.
AROUND_BYTES = 16 * 1024

# What is not here has at most BODY_BYTES_MAX.
BYTES_MAX: dict[type, int] = {
    cm.SubmitRun: REQUEST_BYTES_MAX,
    cm.DeployWorkflow: REQUEST_BYTES_MAX,
    cm.PutSchedule: REQUEST_BYTES_MAX,
    cm.GrowRun: GROWTH_BYTES_MAX,
    **dict.fromkeys(
        (cm.ClearTasks, cm.MarkTasks, cm.RetryTasks, cm.ReleaseTasks, cm.LoseOutputs, PreviewClear), NAMES_BYTES_MAX
    ),
    PutBundle: BUNDLE_PACKED_BYTES_MAX + AROUND_BYTES,
}
_BY_TAG = {tag_of(kind): kind for kind in BYTES_MAX}


def bytes_max(who: Principal, tag: str) -> int:
    """How large a request of this type may be that this caller sends. What they may not ask is not read when large."""
    kind = _BY_TAG.get(tag)
    if kind is None or not _may_send(who, kind):
        return BODY_BYTES_MAX
    return BYTES_MAX[kind]


def message_bytes_max(who: Principal) -> int:
    """The most that one message of this caller may have, whatever is in it."""
    most = max((BYTES_MAX[kind] for kind in BYTES_MAX if _may_send(who, kind)), default=0)
    return max(BATCH_BYTES_MAX, most) + AROUND_BYTES


def check_head(who: Principal, head: RequestHead) -> None:
    """Refuse a request that is larger than this caller may send."""
    most = bytes_max(who, head.tag)
    if head.size > most:
        what = head.tag[:100] or "whose type does not come first"
        text = f"a request {what} of {head.size:,} bytes is larger than {most:,}"
        raise Refused("field.size", text, "Send less at once, or large values as blobs.")


def _may_send(who: Principal, kind: type) -> bool:
    return who.may_do(kind) or (who.role is Role.ANALYST and kind in OF_ANALYSTS)
