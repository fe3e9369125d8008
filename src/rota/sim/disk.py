"""The simulated store: a `MemoryDisk` behind a connection that is slow, fails, and sometimes does not say.

A commit happens at one instant, between being asked for and being answered. In between the asker may be deposed or
give up; the commit neither knows nor cares, and only the epoch decides. If the asker crashes, what it asked for is lost
with its connection; only a commit may be carried out all the same, and nobody is there to hear of it.
"""

from collections.abc import Callable

from rota.control.events import AskHolds, Commit, CommitOutcome, Committed, Elect, Elected, HoldsSaid, Load, Loaded
from rota.core.cluster import cluster_id
from rota.core.history import Ended
from rota.core.ids import Epoch, Millis, RunId
from rota.core.model import Graph
from rota.core.records import Batch, Run
from rota.ports import Fenced
from rota.sim.faults import Mix
from rota.sim.world import World
from rota.stores.memory import MemoryDisk

StoreEvent = Elected | HoldsSaid | Loaded | Committed
Deliver = Callable[[StoreEvent], None]

TORN_LATE_MS: Millis = 10_000
IDENTITY = "simulated"


class SimStore:
    """One store shared by all coordinators."""

    def __init__(self, world: World, mix: Mix) -> None:
        self.world = world
        self.mix = mix
        self.disk = MemoryDisk(IDENTITY)
        self.cluster = cluster_id(IDENTITY)
        self.chance = world.chance("disk")
        self.holder_of: dict[Epoch, str] = {}
        self.unreachable: dict[str, Millis] = {}
        self._connection: dict[str, int] = {}
        self._in_flight: dict[str, str] = {}
        self._torn: dict[tuple[str, int], Millis] = {}
        self.on_commit: Callable[[Epoch, Batch], None] = _ignore
        self.on_asked: Callable[[str], None] = _ignore
        self.on_done: Callable[[str], None] = _ignore

    def _delay(self) -> Millis:
        delay_ms = 1 + self.chance.randrange(4)
        if self.chance.randrange(1000) < self.mix.slow_disk:
            delay_ms += self.chance.randrange(3_000)
            self.world.note("slow_disk")
        return delay_ms

    def ask(self, node: str, intent: Elect | AskHolds | Load | Commit, deliver: Deliver) -> None:
        """Carry out a request after a while and answer after another while."""
        if self.unreachable.get(node, 0) > self.world.now:
            self.world.note("unreachable")
            self.world.after(2_000, self._fail, intent, deliver)
            return
        if isinstance(intent, Commit):
            self._in_flight[node] = "asked"
            self.on_asked(node)
        self.world.after(self._delay(), self._carry_out, node, self._connection.get(node, 0), intent, deliver)

    def read(self, node: str, tenant: str, run: RunId, found: Callable[[Ended | None, Graph | None], None]) -> None:
        """Read a run of history, as it is after a while, and tell after another while; nobody hears of a failure."""
        if self.unreachable.get(node, 0) <= self.world.now:
            self.world.after(self._delay(), self._look_up, tenant, run, found)

    def _look_up(self, tenant: str, run: RunId, found: Callable[[Ended | None, Graph | None], None]) -> None:
        ended = self.disk.ended(tenant, run)
        graph = self.disk.graph(tenant, ended.run.graph) if ended is not None else None
        self.world.after(self._delay(), found, ended, graph)

    def _fail(self, intent: Elect | AskHolds | Load | Commit, deliver: Deliver) -> None:
        error = "the store cannot be reached"
        match intent:
            case Elect():
                deliver(Elected(intent.ticket, None, error))
            case AskHolds():
                deliver(HoldsSaid(intent.ticket, held=False, error=error))
            case Load():
                deliver(Loaded(intent.ticket, None, error))
            case Commit():
                deliver(Committed(intent.ticket, CommitOutcome.UNAVAILABLE, error))

    def cut_off(self, node: str, *, torn: bool) -> None:
        """That node's process died. What it has asked for dies with it, except a commit if the end is torn.

        An election must not survive: a lock that is taken over a dead connection would be held by nobody for ever.
        """
        connection = self._connection.get(node, 0)
        self._connection[node] = connection + 1
        match self._in_flight.pop(node, ""):
            case "asked":
                self.world.note("commit_torn" if torn else "commit_lost")
            case "done":
                self.world.note("commit_unheard")
            case _:
                pass
        if torn:
            # Some land long after the asker's death, when another may already reign.
            self._torn[(node, connection)] = self.chance.choice((0, 0, TORN_LATE_MS))

    def _is_gone(self, node: str, connection: int, intent: Elect | AskHolds | Load | Commit) -> bool:
        is_torn = isinstance(intent, Commit) and (node, connection) in self._torn
        return connection != self._connection.get(node, 0) and not is_torn

    def _carry_out(
        self, node: str, connection: int, intent: Elect | AskHolds | Load | Commit, deliver: Deliver
    ) -> None:
        if self._is_gone(node, connection, intent):
            return
        late_ms = self._torn.get((node, connection), 0)
        if late_ms:
            self._torn[(node, connection)] = 0
            self.world.after(self.chance.randrange(late_ms), self._carry_out, node, connection, intent, deliver)
            return
        disk = self.disk
        answer: StoreEvent
        match intent:
            case Elect():
                was_held = disk.holder
                epoch = disk.elect()
                if epoch is not None and was_held:
                    raise AssertionError(f"P-LOCK: epoch {epoch} was elected while {was_held} held the lock")
                if epoch is not None:
                    self.holder_of[epoch] = node
                answer = Elected(intent.ticket, epoch)
            case AskHolds():
                answer = HoldsSaid(intent.ticket, disk.holds(intent.epoch))
            case Load():
                try:
                    answer = Loaded(intent.ticket, disk.load(intent.epoch), cluster=self.cluster)
                except Fenced as fenced:
                    answer = Loaded(intent.ticket, None, str(fenced))
            case Commit():
                answer = self._commit(intent)
                self._commit_done(node, connection, answer)
        self.world.after(self._delay(), self._answer, node, connection, deliver, answer)

    def _commit_done(self, node: str, connection: int, answer: Committed) -> None:
        if connection != self._connection.get(node, 0):
            self.world.note(f"torn_commit_{answer.outcome}")
            return
        self._in_flight[node] = "done"
        self.on_done(node)

    def _answer(self, node: str, connection: int, deliver: Deliver, answer: StoreEvent) -> None:
        if isinstance(answer, Committed) and connection == self._connection.get(node, 0):
            self._in_flight.pop(node, None)
        deliver(answer)

    def is_in_flight(self, node: str) -> bool:
        """Whether that node has asked for a commit and not been told what became of it."""
        return node in self._in_flight

    def _commit(self, intent: Commit) -> Committed:
        draw = self.chance.randrange(1000)
        mix = self.mix
        if draw < mix.commit_fails:
            self.world.note("commit_fails")
            text = "disk full" if draw % 2 else "try again"
            return Committed(intent.ticket, CommitOutcome.UNAVAILABLE, text)
        if self._is_poisoned(intent.batch):
            self.world.note("commit_refused")
            return Committed(intent.ticket, CommitOutcome.REFUSED, "a value the store will not take")
        unknown = draw < mix.commit_fails + mix.commit_unknown
        if unknown:
            self.world.note("commit_unknown")
        if unknown and draw % 2:
            return Committed(intent.ticket, CommitOutcome.UNKNOWN, "no answer")
        try:
            self.apply(intent.epoch, intent.batch)
        except Fenced as fenced:
            return Committed(intent.ticket, CommitOutcome.FENCED, str(fenced))
        return Committed(intent.ticket, CommitOutcome.UNKNOWN if unknown else CommitOutcome.DONE)

    def apply(self, epoch: Epoch, batch: Batch) -> None:
        """The instant at which a commit becomes true."""
        self.disk.commit(epoch, batch)
        self.on_commit(epoch, batch)

    def _is_poisoned(self, batch: Batch) -> bool:
        return bool(self.mix.commit_refused) and any(
            isinstance(record, Run) and record.params == b"poison" for record in batch.puts
        )

    def lose_lock(self, node: str | None = None) -> None:
        """The connection that holds the lock breaks; the holder does not know yet."""
        holder = self.disk.holder
        if holder and (node is None or self.holder_of.get(holder) == node):
            self.disk.release(holder)

    def heal(self) -> None:
        """From now on the store answers."""
        self.mix = Mix()
        self.unreachable.clear()


def _ignore(*seen: object) -> None:
    """Nobody watches."""
