"""One seed: a storm in which nothing may be broken, then a calm in which everything must be finished."""

import msgspec
from msgspec import Struct

from rota.control.leadership import Role
from rota.core.ids import Epoch, Millis, RunKey
from rota.core.images import is_clean
from rota.core.invariants import validate
from rota.core.plan import Cascade
from rota.core.records import Batch
from rota.core.why import explain
from rota.sim.broken import Broken
from rota.sim.checkers import Ledger
from rota.sim.clients import Clients
from rota.sim.contracts import checked_contracts
from rota.sim.facts import SceneFacts
from rota.sim.faults import Mix
from rota.sim.nodes import CoordinatorNode
from rota.sim.onlookers import check_disk, check_idle, check_late, check_recovery, check_weights
from rota.sim.stage import Stage
from rota.sim.weather import Weather
from rota.sim.witness import Witness
from rota.sim.world import START_AT

_encode = msgspec.msgpack.Encoder().encode

CHECK_EVERY = 100
CALM_MS_MAX: Millis = 900_000


class Result(Struct):
    """What became of a seed."""

    seed: int
    events: int
    fingerprint: str
    virtual_ms: Millis
    runs: int
    changes: int
    broken: str = ""
    happened: dict[str, int] = {}


class Scene:
    """One world with its weather, clients and checkers."""

    def __init__(self, seed: int, mix: Mix | None = None, check_every: int = CHECK_EVERY) -> None:
        self.stage = Stage(seed, mix)
        self.world = self.stage.world
        self.mix = self.stage.mix
        self.ledger = Ledger(SceneFacts(self.stage), self.mix)
        self.witness = Witness(self.stage, self.ledger)
        self.clients = Clients(self.stage, self.witness.answered)
        self.weather = Weather(self.stage)
        self._steps = 0
        self._violations: list[str] = []
        # After how many events memory is recounted: that takes as long as there is much of it.
        self._check_every = check_every
        # Claims and what waits for them are looked at more often: they should be apart for no more than a moment.
        self._look_every = max(1, check_every // 10)
        self.stage.store.on_commit = self._committed
        self.world.after_each = self._check
        for node in self.stage.coordinators:
            node.on_claim = self.ledger.claims.claimed
            node.on_claim_answered = self.ledger.claims.answered
            node.on_wake = self.ledger.claims.woke
        self.clients.plan()
        self.weather.plan()

    def _committed(self, epoch: Epoch, batch: Batch) -> None:
        told = (epoch, batch.stories, batch.drops, batch.archives, batch.audits, batch.revives)
        self.world.record(_encode(told))
        self.ledger.committed(epoch, batch)

    # The two phases.

    def run(self) -> Result:
        """Storm, then calm; says what broke, if anything did."""
        broken = ""
        usual = Cascade.slice_tasks
        Cascade.slice_tasks = self.mix.slice_tasks
        try:
            with checked_contracts(self._violations):
                self._play()
        except Broken as error:
            broken = str(error)
        except Exception as error:
            # An error of the code under test is a finding, not a crash of the rig.
            broken = f"{type(error).__name__}: {error}"
        finally:
            Cascade.slice_tasks = usual
        return Result(
            seed=self.world.seed,
            events=self.world.events,
            fingerprint=self.world.fingerprint(),
            virtual_ms=self.world.now - START_AT,
            runs=len(self.ledger.runs),
            changes=self.ledger.changes,
            broken=broken,
            happened={**self.world.happened, **self.ledger.told},
        )

    def _play(self) -> None:
        self.world.run_until(START_AT + self.mix.storm_ms)
        self.weather.end()
        self.clients.wind_down()
        self.world.run_until(self.world.now + CALM_MS_MAX, stop=self._is_finished)
        self._check_finished()

    def _is_finished(self) -> bool:
        ledger = self.ledger
        if self._steps % 20 or self.clients.unanswered():
            return False
        return not (ledger.unfinished() or ledger.schedules.unfinished())

    # Checking.

    def _check(self) -> None:
        self._steps += 1
        if self._violations:
            raise Broken(self._violations[0])
        if self._steps % self._look_every == 0 and self.stage.pull:
            self._look_at_claims()
        if self._steps % self._check_every:
            return
        self.ledger.compare_all(self.stage.store.disk.records.values())
        self.witness.check_processes()
        for node in self.stage.coordinators:
            if node.alive:
                self._check_coordinator(node)

    def _look_at_claims(self) -> None:
        for node in self.stage.coordinators:
            loop = node.machine.loop
            if loop is None or not node.alive or node.frozen or loop.state.epoch != self.stage.store.disk.epoch:
                continue
            if node.machine.leadership.role is Role.LEADER:
                self.ledger.claims.look(loop)

    def _check_coordinator(self, node: CoordinatorNode) -> None:
        loop = node.machine.loop
        if loop is None:
            return
        if loop.faults:
            faults = [run.row.fault for run in loop.state.runs.values() if run.row.fault]
            raise Broken(f"P-FAULT: an error of the scheduler itself: {faults or 'outside any run'}")
        broken = validate(loop.state, node.clock())
        if broken:
            raise Broken(f"P-STATE on {node.name}: {broken[0]}")
        check_idle(loop)
        if not self.mix.clock_step:
            mortals = (*self.stage.push, *self.stage.pull)
            deaths = {name: at + node.offset for worker in mortals for name, at in worker.deaths.items()}
            check_recovery(loop, deaths)
        # While a refused batch is replayed, one command in each commit, nothing else is done.
        if not (node.frozen or loop.replay or loop.is_isolated):
            check_late(loop.state, loop.turned_at)
        disk = self.stage.store.disk
        check_weights(loop.state)
        reigns = node.machine.leadership.role is Role.LEADER and loop.state.epoch == disk.epoch
        if reigns and loop.committing is None and is_clean(loop.state):
            check_disk(loop.state, disk.records)

    def _check_finished(self) -> None:
        """P-END: an accepted run ends while its store and one capable worker live."""
        unanswered = self.clients.unanswered()
        if unanswered:
            raise Broken(f"P-ANSWER: never answered: {unanswered[0]}")
        unfinished = self.ledger.unfinished()
        if unfinished:
            first = unfinished[0]
            raise Broken(f"P-END: {len(unfinished)} runs never ended, among them {first}: {self._why(first)}")
        calendars = self.ledger.schedules.unfinished()
        if calendars:
            raise Broken(f"P-END: {len(calendars)} calendars never ended, among them {calendars[0]}")
        for key in self.ledger.acked:
            if key not in self.ledger.runs:
                raise Broken(f"P-ACK: {key} was acknowledged and forgotten")
        self.ledger.check_end()

    def _why(self, key: RunKey) -> str:
        """What the leader says about a run, for the report of a failure."""
        for node in self.stage.coordinators:
            loop = node.machine.loop
            if loop is not None and key in loop.state.runs:
                run = loop.state.runs[key]
                found = [
                    f"{run.graph.task_id(idx)}: {reasons[0].code}: {reasons[0].text}"
                    for idx in range(run.graph.total)
                    if (reasons := explain(loop.state, run, idx, node.clock()))
                ]
                return f"{run.row.state}, {'; '.join(found[:3])}"
        return "no leader knows it"
