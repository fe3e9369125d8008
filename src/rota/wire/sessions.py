"""What agent sessions ask and are told: who they are, what they claim, and how it went.

A session is named by whoever runs it, and speaks under one incarnation at a time. Its tokens are secrets: each is in
one answer and in the requests about that lease, and nowhere else.
"""

from enum import StrEnum

from msgspec import Struct

from rota.core.ids import Fence, Millis
from rota.core.model import Mood, Pairs, PriorityClass
from rota.core.question import Question
from rota.core.questions import WorkerView

CLAIMS_AT_ONCE_MAX = 100
WAIT_MS_MAX = 60_000
LEASE_MS = 5 * 60_000


class OfSession(Question, frozen=True, kw_only=True):
    """A request that is made for a session. Without an incarnation the session's own name is one."""

    session: str
    incarnation: str = ""

    @property
    def life(self) -> str:
        """The incarnation that is meant."""
        return self.incarnation or self.session


class RegisterSession(OfSession, frozen=True, kw_only=True, tag="RegisterSession"):
    """Join as a session, or describe it anew. `limit` is how many leases it may hold at once.

    `silence_ms` is after how long a silence it counts as dead; 0: as the service has it.
    """

    agent: str = ""
    workspace: str = ""
    channel: str = ""
    session_type: str = "user"
    capabilities: tuple[str, ...] = ()
    limit: int = 1
    silence_ms: int = 0


class BeatSession(OfSession, frozen=True, kw_only=True, tag="BeatSession"):
    """The session is alive, and perhaps in another mood. The answer is which fences it holds."""

    mood: Mood | None = None


class EndSession(OfSession, frozen=True, kw_only=True, tag="EndSession"):
    """The session is done; what it holds is returned at once."""


class AwaitWake(OfSession, frozen=True, kw_only=True, tag="AwaitWake"):
    """Wait until the session is told of work, for so long at most. Being asked is a beat."""

    wait_ms: int = 30_000


class ClaimWork(OfSession, frozen=True, kw_only=True, tag="ClaimWork"):
    """The best work that the session may have, at most `limit` of it; nothing if there is none within `wait_ms`.

    The same `command_id` again is answered with the same leases under new tokens. `workspace` is refused if it is not
    the session's own.
    """

    command_id: str
    limit: int = 1
    lease_ms: int = LEASE_MS
    least: PriorityClass = PriorityClass.LOW
    workspace: str = ""
    channel: str = ""
    item: str = ""
    wait_ms: int = 0


class RenewWork(OfSession, frozen=True, kw_only=True, tag="RenewWork"):
    """Keep a lease for so long from now on. The answer is until when. `note` says how far the work is, for people."""

    fence: Fence
    token: str
    lease_ms: int = LEASE_MS
    note: str = ""


class Ending(StrEnum):
    """How a session is done with an item."""

    COMPLETE = "complete"
    FAIL = "fail"
    RELEASE = "release"


class FinishWork(OfSession, frozen=True, kw_only=True, tag="FinishWork"):
    """What became of an item that the session holds."""

    item: str
    fence: Fence
    token: str
    ending: Ending
    result: bytes = b""
    error: str = ""


class SessionView(Struct, frozen=True, kw_only=True):
    """A session as it is told of itself: it is to be heard of every `beat_ms`, and dead after `silence_ms` without."""

    session: str
    incarnation: str
    beat_ms: int
    silence_ms: int
    created_at: Millis


class WakeView(Struct, frozen=True, kw_only=True):
    """A piece of advice: this item waits, and the session could claim it."""

    item: str
    title: str
    labels: Pairs
    reason: str
    at: Millis


class WorkLease(Struct, frozen=True, kw_only=True):
    """An item that is the session's until `expires_at`, as long as it knows the token."""

    item: str
    title: str
    payload: bytes
    labels: Pairs
    fence: Fence
    token: str
    attempt: int
    deliveries: int
    lease_ms: int
    expires_at: Millis
    deadline_at: Millis


SessionRequest = RegisterSession | BeatSession | EndSession | AwaitWake | ClaimWork | RenewWork | FinishWork


class SessionLine(Struct, frozen=True, kw_only=True):
    """A session as others see it. `state` is its mood, `silent` or `draining`; `held` are items with their fences."""

    session: str
    agent: str
    workspace: str
    channel: str
    session_type: str
    capabilities: tuple[str, ...]
    state: str
    limit: int
    held: tuple[tuple[str, Fence], ...]
    created_at: Millis
    seen_at: Millis
    silence_ms: int


def session_line(view: WorkerView) -> SessionLine:
    """A session from what is known of it as a worker."""
    found: dict[str, list[str]] = {}
    for name, value in view.capacity.properties:
        found.setdefault(name, []).append(value)

    def first(name: str) -> str:
        return found.get(name, [""])[0]

    workspace = first("workspace")
    state = "draining" if view.draining else str(view.mood) if view.present else "silent"
    return SessionLine(
        session=view.id,
        agent=first("agent"),
        workspace="" if workspace == "-" else workspace,
        channel=first("channel"),
        session_type=first("type"),
        capabilities=tuple(found.get("capability", ())),
        state=state,
        limit=view.capacity.slots,
        held=view.held,
        created_at=view.registered_at,
        seen_at=view.seen_at,
        silence_ms=view.silence_ms,
    )
