"""From a work item to a run: one task in the queue of agents, with what it asks of a session as its requirements.

All items that ask for the same share a graph, so that a run stays one row, and what tells them apart is in its labels
and parameters. The compiler is pure, and refuses what could not be claimed or shown.
"""

from functools import lru_cache

from msgspec import structs

from rota.core.bounds import AFTER_MAX
from rota.core.commands import SubmitRun
from rota.core.errors import Refused
from rota.core.graph import check_number, check_text
from rota.core.ids import CommandId, RunId, TaskId
from rota.core.model import AGENTS_QUEUE, Graph, Pairs, RetryPolicy, TaskSpec
from rota.kinds.agent.matching import AGENT_KIND, Owner, OwnerKind, requires_of
from rota.wire.items import (
    ATTEMPTS_MAX,
    POOL_OWNER,
    PRIORITY_CLASSES,
    SESSION_OWNER,
    TITLE,
    TITLE_CHARS_MAX,
    WORK,
    ApprovalPolicy,
    ResolveWork,
    SubmitWork,
    Words,
    WorkItem,
    check_plain,
    words_of,
)

# Labels that say what the item's own fields say.
OWN_LABELS = (TITLE, "workspace", "channel", "owner")
# An item that failed is not tried again in the same moment: whatever it met may be there still.
DELAY_MS = 1_000
DELAY_FACTOR = 2

_OWNERS = {POOL_OWNER: OwnerKind.POOL, SESSION_OWNER: OwnerKind.AGENT_SESSION}


def compile_item(request: SubmitWork) -> SubmitRun:
    """The submission of an item's run. Raises `Refused`."""
    work = request.work
    check_item(work)
    return SubmitRun(
        tenant=request.tenant,
        command_id=CommandId(request.command_id),
        run=RunId(request.item),
        graph=graph_of(_requires(work), work.max_attempts),
        priority=PRIORITY_CLASSES[work.priority],
        params=work.payload,
        parent=RunId(work.parent),
        labels=labels_of(work),
        after=tuple(map(RunId, work.depends_on)),
        needs_approval=work.approval is ApprovalPolicy.MANUAL,
        deadline_at=work.deadline_at,
    )


def check_item(work: WorkItem) -> None:
    """Refuse what is too large, or would not be shown on one line."""
    title = work.title
    if not title.strip() or not title.isprintable():
        raise Refused("field.value", "an item needs a title of one line", "Say what is to be done.", path="title")
    if len(title) > TITLE_CHARS_MAX:
        text = f"a title of {len(title)} characters is too long"
        raise Refused("field.size", text, f"Use at most {TITLE_CHARS_MAX}; the payload has room.", path="title")
    check_plain(work.payload, "payload")
    check_number(work.max_attempts, 1, ATTEMPTS_MAX, "max_attempts")
    check_number(len(work.depends_on), 0, AFTER_MAX, "depends_on")
    for name in ("workspace", "channel"):
        check_text(getattr(work, name), name)
    taken = [name for name, _ in work.labels if name in OWN_LABELS]
    if taken:
        raise Refused("field.value", f"the label {taken[0]!r} is the item's own", "Use another name.", path="labels")


def labels_of(work: WorkItem) -> Pairs:
    """What is said of an item, for whoever lists runs."""
    own = {TITLE: work.title, "workspace": work.workspace, "channel": work.channel, "owner": work.owner}
    return (*((name, value) for name, value in own.items() if value), *work.labels)


@lru_cache(1_024)
def graph_of(requires: Pairs, max_attempts: int) -> Graph:
    """The graph of all items that ask for the same."""
    retry = RetryPolicy(retries=max_attempts - 1, delay_ms=DELAY_MS, multiplier=DELAY_FACTOR)
    task = TaskSpec(id=TaskId(WORK), kind=AGENT_KIND, queue=AGENTS_QUEUE, requires=requires, retry=retry)
    return Graph(name=WORK, kind=AGENT_KIND, tasks=(task,))


def read_owner(text: str) -> Owner | None:
    """An owner as it is written: `pool:AGENT`, `session:ID`, or nothing."""
    if not text:
        return None
    kind, colon, ref = text.partition(":")
    if kind not in _OWNERS or not colon or not ref.strip():
        hint = "Write pool:AGENT, for any session of that agent, or session:ID."
        raise Refused("field.value", f"{text[:40]!r} is no owner of work that sessions claim", hint, path="owner")
    check_text(ref, "owner")
    return Owner(_OWNERS[kind], ref)


def amended(requires: Pairs, request: ResolveWork) -> Pairs | None:
    """What a parked item asks for from now on; None if that stays as it is. Its workspace always does."""
    given = (request.requires, request.prefers, request.channel, request.owner)
    if all(each is None for each in given):
        return None
    words = words_of(requires)
    changed = structs.replace(
        words,
        **{
            name: value
            for name, value in zip(("requires", "prefers", "channel", "owner"), given, strict=True)
            if value is not None
        },
    )
    return _requires(changed)


def _requires(words: WorkItem | Words) -> Pairs:
    """The requirements of an item, or of the words of one."""
    return requires_of(
        workspace=words.workspace,
        channel=words.channel,
        owner=read_owner(words.owner),
        requires=words.requires,
        prefers=words.prefers,
    )
