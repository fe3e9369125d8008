"""What the ledger asks about the world, answered from the disk and from the nodes themselves."""

from rota.core.commands import Outcome
from rota.core.ids import Epoch, Fence, Millis
from rota.core.model import Graph, Queue, TaskSpec
from rota.core.records import Worker
from rota.sim.stage import Stage


class SceneFacts:
    """See `models.Facts`. Nothing here goes by what a coordinator believes, except the time at which it began."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.note = stage.world.note

    def now(self) -> Millis:
        """The time of the world, which no clock in it has."""
        return self.stage.world.now

    def graph(self, tenant: str, digest: str) -> Graph | None:
        """The stored definition."""
        return self.stage.store.disk.graph(tenant, digest)

    def queue(self, tenant: str, name: str) -> Queue:
        """The stored queue; what is not stored has the defaults."""
        found = self.stage.store.disk.records.get(("Queue", tenant, name))
        return found if isinstance(found, Queue) else Queue(tenant=tenant, name=name)

    def times_in_history(self, tenant: str, run: str, created_at: Millis) -> int:
        """How often that run is in history."""
        of_run = (tenant, run, created_at)
        rows = (ended.run for ended in self.stage.store.disk.history)
        return sum((row.tenant, row.id, row.created_at) == of_run for row in rows)

    def reign_began_at(self, epoch: Epoch) -> Millis:
        """When the coordinator of that epoch had loaded."""
        for node in self.stage.coordinators:
            loop = node.machine.loop
            if loop is not None and loop.state.epoch == epoch:
                return loop.state.born_at
        return 0

    def is_lost_work(self, fence: Fence) -> bool:
        """Whether a living worker finished this attempt and still means to report it."""
        return any(
            report.fence == fence and report.outcome is not Outcome.STARTED
            for worker in self.stage.push
            if worker.alive and not worker.lies
            for report in worker.finished.values()
        )

    def is_running(self, fence: Fence) -> bool:
        """Whether a living worker that does not lie runs this."""
        return any(
            fence in worker.running or fence in worker.dying
            for worker in self.stage.push
            if worker.alive and not worker.lies
        )

    def has_concluded(self, fence: Fence) -> bool:
        """Whether an execution of this fence has ended with a result."""
        return any(fence in worker.concluded for worker in (*self.stage.push, *self.stage.pull))

    def is_well(self, incarnation: str) -> bool:
        """Whether that process lives and knows that it was heard two beats ago."""
        for worker in self.stage.push:
            machine = worker.machine
            if machine.incarnation == incarnation and worker.alive and not worker.lies and not worker.frozen:
                return worker.clock() - machine.renewed_at < 2 * machine.beat_ms
        return False

    def is_servable(self, spec: TaskSpec, at: Millis) -> bool:
        """Whether a worker that was registered then, of the right sort, has enough of everything."""
        needs = dict(spec.requires)
        for record in self.stage.store.disk.records.values():
            if not isinstance(record, Worker) or record.capacity.pull != (spec.queue == "agents"):
                continue
            if record.registered_at > at:
                continue
            have = dict(record.capacity.properties)
            enough = int(have.get("cpu_count", "0")) >= int(needs.get("cpu_count", "0"))
            if enough and needs.get("os", have.get("os")) == have.get("os"):
                return True
        return False
