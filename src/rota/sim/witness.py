"""A witness: sees what workers start and what clients are told, and compares it with what is durable."""

from rota.core.commands import CancelBackfill, ClientCommand, StartBackfill, SubmitRun
from rota.core.decide.leases import Offer
from rota.core.errors import Refused
from rota.core.ids import Fence, Millis, RunId, RunKey
from rota.sim.broken import Broken
from rota.sim.checkers import Ledger
from rota.sim.stage import Stage
from rota.sim.workers import Execution
from rota.stores.memory import MemoryDisk


class Witness:
    """Watches every worker from its first start on."""

    def __init__(self, stage: Stage, ledger: Ledger) -> None:
        self.stage = stage
        self.ledger = ledger
        self.running: dict[tuple[str, str, int], dict[Fence, Execution]] = {}
        for worker in stage.push:
            worker.on_start = self.started
            worker.on_stop = self.stopped
        for agent in stage.pull:
            agent.on_claim = self.claimed

    def started(self, execution: Execution) -> None:
        """P-GRANT: no worker starts what is not durable. P-STOP: a silent worker has stopped before work is redone."""
        offer, name = execution.offer, execution.worker
        if offer.fence not in self.ledger.granted:
            raise Broken(f"P-GRANT: worker {name} started fence {offer.fence}, which no commit has granted")
        if self.ledger.ended_for.get(offer.fence) == "not held any more":
            raise Broken(f"P-ABSENCE: worker {name} started fence {offer.fence} after it was said not to hold it")
        key = (offer.tenant, offer.run, offer.task)
        others = self.running.setdefault(key, {})
        stuck = {worker.name: None for worker in self.stage.push if worker.stuck}
        model = self.ledger.task((offer.tenant, offer.run), offer.task)
        for fence, other in others.items():
            if not self.stage.mix.is_timely or other.worker == name or other.worker in stuck:
                continue
            if fence in model.ended_silent:
                raise Broken(f"P-STOP: {key} runs on {other.worker} and {name}")
        others[offer.fence] = execution
        if offer.fence == model.fence and offer.first_started_at != model.first_started_at:
            raise Broken(f"P-POKE: {key} was told that it first started at {offer.first_started_at}")

    def stopped(self, execution: Execution) -> None:
        """An execution has come to an end, one way or another."""
        offer = execution.offer
        self.running[(offer.tenant, offer.run, offer.task)].pop(offer.fence, None)

    def claimed(self, name: str, offer: Offer) -> None:
        """P-GRANT, for workers that claim."""
        if offer.fence not in self.ledger.granted:
            raise Broken(f"P-GRANT: worker {name} was told it holds fence {offer.fence}, which no commit has granted")

    def answered(self, command: ClientCommand, value: object, asked_at: Millis) -> None:
        """P-ACK: what a client was told is on disk. P-REPEAT: a retry is not taken for something new."""
        if isinstance(command, SubmitRun) and isinstance(value, str):
            # Its own run, or the one that it joined: whoever waits for it sees it end.
            run = (command.tenant, RunId(value))
            self.ledger.acked[run] = None
            if not self._is_stored(run):
                raise Broken(f"P-ACK: run {value} was acknowledged and is not stored")
            self.ledger.merges.answered(command, value, asked_at)
            if value != command.run and ("Receipt", command.tenant, command.command_id) not in self._disk.records:
                raise Broken(f"P-REPEAT: that {command.run} joined {value} would not be known to a retry")
            self._check_version(command)
        if isinstance(command, StartBackfill) and isinstance(value, str):
            cap = self.ledger.schedules.caps.get((command.tenant, command.backfill))
            # None: it was over, or taken away, with the commit that began it.
            if cap not in (None, command.max_active_runs):
                raise Broken(
                    f"P-BACKFILL: {command.backfill} was asked for {command.max_active_runs} at once, has {cap}"
                )
        if isinstance(command, CancelBackfill) and isinstance(value, str):
            self.ledger.schedules.cancelled[(command.tenant, command.backfill)] = None
        if isinstance(value, Refused) and "error" in value.reason:
            raise Broken(f"P-FAULT: {command}: {value}")
        if isinstance(value, Refused) and value.code in ("run.exists", "command.id_reused"):
            raise Broken(f"P-REPEAT: a retry was taken for something new: {value}")

    def _check_version(self, command: SubmitRun) -> None:
        """P-VERSION: who asks for a version gets that one."""
        if command.workflow and command.version:
            row = self.ledger.rows[(command.tenant, command.run)]
            if row.version != command.version:
                raise Broken(f"P-VERSION: {command.run} was asked for as version {command.version}, is {row.version}")

    def _is_stored(self, key: RunKey) -> bool:
        return ("Run", *key) in self._disk.records or any(
            (archived.run.tenant, archived.run.id) == key for archived in self._disk.history
        )

    @property
    def _disk(self) -> MemoryDisk:
        return self.stage.store.disk

    def check_processes(self) -> None:
        """P-KILL: work that nobody wants any more is stopped, where the worker can be told."""
        mix = self.stage.mix
        patience_ms = 2 * mix.limits.lease_ms + 2 * abs(mix.skew_ms)
        for worker in self.stage.push:
            if not worker.alive or worker.frozen or not mix.is_timely:
                continue
            for fence in worker.running:
                ended_at = self.ledger.ended_at.get(fence)
                if ended_at is not None and ended_at + patience_ms < self.stage.world.now:
                    raise Broken(f"P-KILL: {worker.name} still runs fence {fence}")
