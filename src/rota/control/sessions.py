"""Sessions: the coordinator's side of the Sync stream, one per connected push worker.

A session knows what the worker has been sent and what it has acknowledged; from that it can say which leases the
worker must be holding. When the worker's own count disagrees, the worker is asked for a complete list.
"""

from rota.core.decide.leases import Offer
from rota.core.ids import Epoch, Fence, Incarnation, Millis, WorkerKey
from rota.wire.frames import CoordinatorFrame, WorkerFrame


class Session:
    """One worker on one stream."""

    def __init__(self, stream: int, name: str, worker: WorkerKey, incarnation: Incarnation) -> None:
        self.stream = stream
        self.name = name
        self.worker = worker
        self.incarnation = incarnation
        self.heard = 0
        self.durable = 0
        self.told = 0
        self.acked = 0
        self.sent = 0
        self.is_ready = False
        self.want_complete = True
        self.ack_due = False
        self.starts: list[Offer] = []
        self.stops: list[Fence] = []
        self._chunks: list[Fence] = []
        # What the worker holds if it has processed everything it acknowledged; and what is on its way to it.
        self._held: dict[Fence, None] = {}
        self._checksum = 0
        self._starting: list[tuple[int, Fence]] = []
        self._stopping: list[tuple[int, Fence]] = []

    def is_next(self, frame: WorkerFrame) -> bool:
        """Whether a frame follows the last one heard. One that is older is a copy; one that is newer shows a gap."""
        return frame.number == self.heard + 1

    def hear(self, frame: WorkerFrame) -> None:
        """Take in what a frame says about what the worker has processed."""
        self.heard = frame.number
        self.advance(frame.ack)

    def advance(self, ack: int) -> None:
        """The worker has processed our frames up to `ack`: it has what they started and not what they stopped."""
        self.acked = max(self.acked, ack)
        while self._starting and self._starting[0][0] <= self.acked:
            self._hold(self._starting.pop(0)[1])
        while self._stopping and self._stopping[0][0] <= self.acked:
            self.drop(self._stopping.pop(0)[1])

    def _hold(self, fence: Fence) -> None:
        if fence not in self._held:
            self._held[fence] = None
            self._checksum ^= fence

    def drop(self, fence: Fence) -> None:
        """The worker holds this lease no more: it reported its end, or was told to stop."""
        if fence in self._held:
            del self._held[fence]
            self._checksum ^= fence

    def acknowledge(self, number: int) -> None:
        """Everything up to this frame is durable; say so."""
        self.durable = max(self.durable, number)
        self.ack_due = True

    def collect(self, frame: WorkerFrame) -> tuple[Fence, ...] | None:
        """The complete list, once its last part is here."""
        self._chunks.extend(frame.held)
        if frame.more:
            return None
        held, self._chunks = tuple(self._chunks), []
        return held

    def adopt(self, held: tuple[Fence, ...]) -> None:
        """From here on, count from the worker's own complete list."""
        self._held = dict.fromkeys(held)
        self._checksum = 0
        for fence in self._held:
            self._checksum ^= fence
        self.want_complete = False
        self.is_ready = True

    def agrees(self, frame: WorkerFrame) -> bool:
        """Whether the worker holds what it must be holding."""
        return frame.count == len(self._held) and frame.checksum == self._checksum

    def is_on_its_way(self, fence: Fence) -> bool:
        """Whether a start was queued or sent and the worker has not acknowledged it: its absence means nothing."""
        return any(entry[1] == fence for entry in self._starting) or any(offer.fence == fence for offer in self.starts)

    def knows(self, fence: Fence) -> bool:
        """Whether the worker holds a lease or may still be sent it."""
        return fence in self._held or self.is_on_its_way(fence)

    def say(self, epoch: Epoch, beat_ms: Millis, lease_ms: Millis, cluster: str = "") -> CoordinatorFrame | None:
        """The next frame, or None if there is nothing to say. The first one names the cluster."""
        if not (self.starts or self.stops or self.ack_due or self.sent == 0 or self.told < self.heard):
            return None
        self.told = self.heard
        self.sent += 1
        stops = tuple(dict.fromkeys(self.stops))
        starts = tuple(offer for offer in self.starts if offer.fence not in stops)
        self._starting.extend((self.sent, offer.fence) for offer in starts)
        self._stopping.extend((self.sent, fence) for fence in stops)
        self.starts, self.stops, self.ack_due = [], [], False
        return CoordinatorFrame(
            session=self.name,
            epoch=epoch,
            number=self.sent,
            ack=self.durable,
            heard=self.heard,
            start=starts,
            stop=stops,
            want_complete=self.want_complete,
            beat_ms=beat_ms,
            lease_ms=lease_ms,
            cluster=cluster if self.sent == 1 else "",
        )
