"""Frames of the Sync stream between a push worker and the coordinator.

Frames are numbered per session and side. A frame that skips a number breaks the session, so what a side has not seen
it knows it has not seen. `ack` is the last frame of the other side that was processed; from the coordinator it also
means: durable. docs/protocol.md says what may be concluded from each field and from its absence.
"""

from msgspec import Struct

from rota.core.commands import Report
from rota.core.decide.leases import Offer
from rota.core.ids import Epoch, Fence, Incarnation, WorkerId
from rota.core.model import Capacity


class WorkerFrame(Struct, frozen=True, kw_only=True):
    """From a worker. Frame 0 is the greeting and carries `capacity`; a complete frame lists every lease held.

    A complete list may come in several frames; `more` marks all but the last. Every frame says how many leases are
    held after it, and the exclusive-or of their fences.
    """

    tenant: str
    worker: WorkerId
    incarnation: Incarnation
    epoch: Epoch
    number: int
    session: str = ""
    ack: int = 0
    capacity: Capacity | None = None
    complete: bool = False
    more: bool = False
    held: tuple[Fence, ...] = ()
    reports: tuple[Report, ...] = ()
    count: int = 0
    checksum: int = 0
    leaving: bool = False
    # The cluster that the worker belongs to, in the greeting; empty if it does not know yet.
    cluster: str = ""


class CoordinatorFrame(Struct, frozen=True, kw_only=True):
    """From the coordinator. The first frame of a session is the welcome and asks for a complete list.

    `heard` is the last frame that reached it and renews leases; `ack` is the last one that is durable and ends the
    worker's duty to repeat its reports.
    """

    session: str
    epoch: Epoch
    number: int
    ack: int = 0
    heard: int = 0
    start: tuple[Offer, ...] = ()
    stop: tuple[Fence, ...] = ()
    want_complete: bool = False
    beat_ms: int = 0
    lease_ms: int = 0
    refused: str = ""
    # The code of the refusal.
    code: str = ""
    # The cluster of the coordinator, in the welcome.
    cluster: str = ""
