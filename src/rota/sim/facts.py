"""What the ledger asks about the world, answered from the disk and from the nodes themselves."""

from rota.core.commands import Outcome
from rota.core.ids import Epoch, Fence, GraphDigest, Millis
from rota.core.model import (
    AGENT_PROPERTIES,
    AGENTS_QUEUE,
    DEFAULT_QUEUE_PROPERTIES,
    Graph,
    PropertyRule,
    Queue,
    TaskSpec,
)
from rota.core.records import Worker
from rota.sim.stage import Stage
from rota.sim.workers import PushWorker

# How long after a worker's last lie a commit may still follow from it: a slow disk, and a few retries.
LIES_LAST_MS: Millis = 10_000


class SceneFacts:
    """See `models.Facts`. Nothing here goes by what a coordinator believes, except the time at which it began."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.note = stage.world.note

    def now(self) -> Millis:
        """The time of the world, which no clock in it has."""
        return self.stage.world.now

    def graph(self, tenant: str, digest: GraphDigest) -> Graph | None:
        """The stored definition."""
        return self.stage.store.disk.graph(tenant, digest)

    def queue(self, tenant: str, name: str) -> Queue:
        """The stored queue; one that is not stored has the defaults, and so have the built-in ones."""
        found = self.stage.store.disk.records.get(("Queue", tenant, name))
        if isinstance(found, Queue):
            return found
        if name == AGENTS_QUEUE:
            return Queue(tenant=tenant, name=name, pull=True, properties=AGENT_PROPERTIES)
        properties = DEFAULT_QUEUE_PROPERTIES if name == "default" else ()
        return Queue(tenant=tenant, name=name, properties=properties)

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
            if worker.alive and not self._is_liar(worker)
            for report in worker.finished.values()
        )

    def is_running(self, fence: Fence) -> bool:
        """Whether a living worker that does not lie runs this."""
        return any(
            fence in worker.running or fence in worker.dying
            for worker in self.stage.push
            if worker.alive and not self._is_liar(worker)
        )

    def _is_liar(self, worker: PushWorker) -> bool:
        """Whether a worker lies, or did when a commit that is on its way was decided."""
        return worker.lies or self.stage.world.now - worker.lied_until < LIES_LAST_MS

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

    def is_servable(self, tenant: str, spec: TaskSpec, at: Millis) -> bool:
        """Whether a worker that was registered then could run this, idle or not."""
        return any(
            isinstance(record, Worker)
            and not record.gone_at
            and record.registered_at <= at
            and not self.misfit(tenant, spec, record)
            for record in self.stage.store.disk.records.values()
        )

    def worker(self, tenant: str, name: str) -> Worker | None:
        """The stored worker."""
        found = self.stage.store.disk.records.get(("Worker", tenant, name))
        return found if isinstance(found, Worker) else None

    def misfit(self, tenant: str, spec: TaskSpec, worker: Worker) -> str:
        """Why a worker could never run this, by the rules of the stored queue; nothing if it could."""
        queue = self.queue(tenant, spec.queue)
        capacity, rules = worker.capacity, dict(queue.properties)
        if capacity.pull != queue.pull:
            return "one of them pulls"
        if capacity.queues and spec.queue not in capacity.queues:
            return f"queue {spec.queue}"
        for name, value in spec.requires:
            have = [mine for key, mine in capacity.properties if key == name]
            rule = rules.get(name)
            if rule is PropertyRule.MINIMUM:
                is_met = any(int(mine) >= int(value) for mine in have)
            elif rule is PropertyRule.EXACT:
                is_met = value in have
            else:
                is_met = rule is not None or not have or value in have
            if not is_met:
                return f"{name}={value}, has {have}"
        return ""
