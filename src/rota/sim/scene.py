"""One seed: a storm in which nothing may be broken, then a calm in which everything must be finished."""

from msgspec import Struct

from rota.control.leadership import Role
from rota.core.commands import (
    ClientCommand,
    DrainWorker,
    DropSchedule,
    Exit,
    Outcome,
    PauseRun,
    PutSchedule,
    ResolveTask,
    SubmitRun,
)
from rota.core.decide.leases import Offer
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Epoch, Fence, Millis, RunKey
from rota.core.images import all_records, is_clean
from rota.core.invariants import validate
from rota.core.model import Graph, TaskSpec
from rota.core.plan import Cascade
from rota.core.records import Batch, GraphRecord, Record, Run, Worker, key_of
from rota.core.states import NEEDS_ATTENTION, RUN_TERMINAL
from rota.core.why import explain
from rota.sim.broken import Broken
from rota.sim.checkers import Ledger
from rota.sim.disk import SimStore
from rota.sim.faults import Mix, draw_mix
from rota.sim.network import Network
from rota.sim.nodes import CoordinatorNode
from rota.sim.onlookers import check_idle, check_late, check_recovery
from rota.sim.workers import Execution, PullWorker, PushWorker
from rota.sim.workload import TENANTS, definitions, draw_capacity, draw_meddling, draw_schedule, draw_submission
from rota.sim.world import START_AT, World

VALIDATE_EVERY = 100
CALM_MS_MAX = 900_000
RETRY_MS = 1_500


class Result(Struct):
    """What became of a seed."""

    seed: int
    events: int
    fingerprint: str
    virtual_ms: Millis
    runs: int
    changes: int
    broken: str = ""


class Errand(Struct):
    """A command that a client repeats until it is answered."""

    command: ClientCommand
    answered: bool = False


class Scene:
    """One world with its nodes, users and checkers."""

    def __init__(self, seed: int, mix: Mix | None = None) -> None:
        self.world = World(seed)
        self.mix = mix or draw_mix(self.world.chance("mix"))
        Cascade.slice_tasks = self.mix.slice_tasks
        self.ledger = Ledger(self, self.mix)
        self.network = Network(self.world, self.mix)
        self.store = SimStore(self.world, self.mix)
        self.store.on_commit = self._on_commit
        self.coordinators = [
            CoordinatorNode(self.world, f"coordinator{number}", self.mix, self.network, self.store)
            for number in range(self.mix.coordinators)
        ]
        self.push: list[PushWorker] = []
        self.pull: list[PullWorker] = []
        self.running: dict[tuple[str, str, int], dict[Fence, Execution]] = {}
        self.submitted: list[SubmitRun] = []
        self.errands: list[Errand] = []
        self.concluded: dict[Fence, None] = {}
        self.notes: list[str] = []
        self.is_calm = False
        self._numbers = 0
        self._target = 0
        self._steps = 0
        self._make_workers()
        self.world.after_each = self._check
        self._plan_work()
        self._plan_faults()

    # Making the world.

    def _make_workers(self) -> None:
        chance = self.world.chance("capacity")
        for number in range(self.mix.push_workers):
            self._add_push(f"push{number}", "", number)
        if self.mix.cloned_worker:
            self._add_push("clone", "push0", 0)
        if self.mix.lying_worker:
            self.push[-1].lies = True
        for number in range(self.mix.pull_workers):
            worker = PullWorker(self.world, f"pull{number}", self.mix, self.network, self.coordinators)
            worker.on_claim = self._on_claim
            worker.concluded = self.concluded
            worker.wake_by(worker.clock() + chance.randrange(2_000))
            self.pull.append(worker)

    def _add_push(self, name: str, identity: str, number: int) -> None:
        worker = PushWorker(self.world, name, self.mix, self.network, self.coordinators, identity)
        worker.on_start = self._on_start
        worker.on_poison = self._poisoned
        worker.on_stop = self._on_stop
        worker.concluded = self.concluded
        self.push.append(worker)
        worker.begin(draw_capacity(self.world.chance("capacity"), number))

    def _plan_work(self) -> None:
        chance = self.world.chance("work")
        for tenant in TENANTS:
            for command in definitions(tenant):
                self._errand(command, 0)
        for number in range(self.mix.runs):
            poison = bool(self.mix.commit_refused) and chance.random() < 0.2
            if poison:
                self.store.poison[str(number)] = None
            submission = draw_submission(chance, number, poison=poison, agents=bool(self.mix.pull_workers))
            self.world.after(2_000 + chance.randrange(self.mix.storm_ms), self.submit, submission)
        for number in range(chance.choice((0, 0, 1, 2))):
            self._errand(draw_schedule(chance, number), 2_500 + chance.randrange(3_000))
        for number in range(chance.randrange(self.mix.runs)):
            self.world.after(5_000 + chance.randrange(self.mix.storm_ms), self._meddle, number)

    def submit(self, submission: SubmitRun) -> None:
        """A client submits a run and asks until it is answered."""
        self.submitted.append(submission)
        self._errand(submission, 0)

    def _meddle(self, number: int) -> None:
        command = draw_meddling(self.world.chance("meddling"), number, self.submitted, self.mix.push_workers)
        if command is not None:
            self._errand(command, 0)

    def _plan_faults(self) -> None:
        chance = self.world.chance("faults")
        end = self.mix.storm_ms
        nodes = [*self.coordinators, *self.push, *self.pull]
        for kind, count in (
            ("crash", self.mix.crash),
            ("pause", self.mix.pause),
            ("clock_step", self.mix.clock_step),
            ("lock_lost", self.mix.lock_lost),
            ("partition", self.mix.partition),
            ("clog", self.mix.clog),
        ):
            for _ in range(count):
                act = getattr(self, f"_{kind}")
                self.world.after(
                    1_000 + chance.randrange(end), act, chance.randrange(len(nodes)), chance.randrange(1 << 30)
                )

    # Faults.

    def _node(self, number: int) -> CoordinatorNode | PushWorker | PullWorker:
        nodes: list[CoordinatorNode | PushWorker | PullWorker] = [*self.coordinators, *self.push, *self.pull]
        return nodes[number % len(nodes)]

    def _poisoned(self, worker: PushWorker) -> None:
        """A task killed its worker; somebody starts it again."""
        if worker.alive:
            worker.crash()
            self.world.after(1_500, self._restart, worker)

    @staticmethod
    def _restart(node: CoordinatorNode | PushWorker | PullWorker) -> None:
        if not node.alive:
            node.restart()

    def _crash(self, number: int, draw: int) -> None:
        node = self._node(number)
        if node.alive and not self.is_calm:
            node.crash()
            self.world.after(draw % 15_000, self._restart, node)

    def _pause(self, number: int, draw: int) -> None:
        node = self._node(number)
        if not self.is_calm:
            node.freeze()
            self.world.after(draw % (self.mix.limits.lease_ms * 2), node.thaw)

    def _clock_step(self, number: int, draw: int) -> None:
        if not self.is_calm:
            self._node(number).step_clock(draw % 20_000 - 8_000)

    def _lock_lost(self, number: int, draw: int) -> None:
        holder = self.store.holder_of.get(self.store.disk.holder, self.coordinators[0].name)
        self.store.lose_lock()
        if draw % 3 and not self.is_calm:
            name = holder if draw % 2 else self.coordinators[number % len(self.coordinators)].name
            self.store.unreachable[name] = self.world.now + draw % (3 * self.mix.limits.lease_ms)

    def _partition(self, number: int, draw: int) -> None:
        if not self.is_calm:
            coordinator = self.coordinators[draw % len(self.coordinators)]
            pair = (coordinator.name, self._node(number).name)
            source, target = pair if draw % 3 else (pair[1], pair[0])
            self.network.partition(source, target, draw % (self.mix.limits.lease_ms * 2))

    def _clog(self, number: int, draw: int) -> None:
        if not self.is_calm:
            coordinator = self.coordinators[draw % len(self.coordinators)]
            self.network.clog(self._node(number).name, coordinator.name, draw % 8_000)

    # Clients.

    def _errand(self, command: ClientCommand, delay_ms: Millis) -> None:
        errand = Errand(command)
        self.errands.append(errand)
        self.world.after(delay_ms, self._run_errand, errand)

    def _run_errand(self, errand: Errand) -> None:
        if errand.answered:
            return
        self._target += 1
        coordinator = self.coordinators[self._target % len(self.coordinators)]

        def reply(value: object, detail: object) -> None:  # noqa: ARG001 - clients care for the word only
            if not errand.answered and not isinstance(value, Unavailable):
                errand.answered = True
                self._on_answer(errand.command, value)

        self.network.send("client", coordinator.name, coordinator.ask, "client", errand.command, reply)
        self.world.after(RETRY_MS, self._run_errand, errand)

    # What is seen from outside.

    def _on_commit(self, epoch: Epoch, batch: Batch) -> None:
        self.ledger.committed(epoch, batch)

    def _on_answer(self, command: ClientCommand, value: object) -> None:
        """P-ACK: what a client was told is on disk."""
        if isinstance(command, SubmitRun) and isinstance(value, str):
            self.ledger.acked[(command.tenant, command.run)] = None
            if not self._is_stored((command.tenant, command.run)):
                raise Broken(f"P-ACK: run {command.run} was acknowledged and is not stored")
        if isinstance(value, Refused) and "error" in value.reason:
            raise Broken(f"P-FAULT: {command}: {value}")
        if isinstance(value, Refused) and value.code in ("run.exists", "command.id_reused"):
            raise Broken(f"P-REPEAT: a retry was taken for something new: {value}")

    def _is_stored(self, key: RunKey) -> bool:
        return ("Run", *key) in self.store.disk.records or any(
            (archived.run.tenant, archived.run.id) == key for archived in self.store.disk.history
        )

    def _on_start(self, name: str, execution: Execution) -> None:
        """P-GRANT: no worker starts what is not durable. P-STOP: a silent worker's work has stopped before it is redone."""
        offer = execution.offer
        if offer.fence not in self.ledger.granted:
            raise Broken(f"P-GRANT: worker {name} started fence {offer.fence}, which no commit has granted")
        if self.ledger.ended_for.get(offer.fence) == "not held any more":
            raise Broken(f"P-ABSENCE: worker {name} started fence {offer.fence} after it was said not to hold it")
        key = (offer.tenant, offer.run, offer.task)
        others = self.running.setdefault(key, {})
        model = self.ledger.task((offer.tenant, offer.run), offer.task)
        for fence, other in others.items():
            if self.mix.is_timely and fence in model.ended_silent and other.worker != name:
                raise Broken(f"P-STOP: {key} runs on {other.worker} and {name}")
        others[offer.fence] = execution

    def _on_stop(self, name: str, execution: Execution) -> None:
        offer = execution.offer
        self.running[(offer.tenant, offer.run, offer.task)].pop(offer.fence, None)

    def _on_claim(self, name: str, offer: Offer) -> None:
        """P-GRANT, for workers that claim."""
        if offer.fence not in self.ledger.granted:
            raise Broken(f"P-GRANT: worker {name} was told it holds fence {offer.fence}, which no commit has granted")

    # Facts for the ledger.

    def graph(self, run: RunKey) -> Graph | None:
        """The stored definition of a run."""
        record = self.store.disk.records.get(("GraphRecord", run[0], self.ledger.graphs[run]))
        return record.graph if isinstance(record, GraphRecord) else None

    def spec(self, run: RunKey, task: int) -> TaskSpec | None:
        """A task's definition, counted out from the stored graph; None for tasks that were added later."""
        graph = self.graph(run)
        start = 0
        for spec in graph.tasks if graph is not None else ():
            if start <= task < start + spec.width:
                return spec
            start += spec.width
        return None

    def reign_began_at(self, epoch: Epoch) -> Millis:
        """When the coordinator of that epoch had loaded."""
        for node in self.coordinators:
            loop = node.machine.loop
            if loop is not None and loop.state.epoch == epoch:
                return loop.state.born_at
        return 0

    def is_lost_work(self, fence: Fence) -> bool:
        """Whether a living worker finished this attempt and still means to report it."""
        return any(
            report.fence == fence and report.outcome is not Outcome.STARTED
            for worker in self.push
            if worker.alive and not worker.lies
            for report in worker.finished.values()
        )

    def is_running(self, fence: Fence) -> bool:
        """Whether a living worker that does not lie runs this."""
        return any(fence in worker.machine.held for worker in self.push if worker.alive and not worker.lies)

    def has_concluded(self, fence: Fence) -> bool:
        """Whether an execution of this fence has ended with a result."""
        return fence in self.concluded

    def is_well(self, incarnation: str) -> bool:
        """Whether that process lives and knows that it was heard two beats ago."""
        for worker in self.push:
            machine = worker.machine
            if machine.incarnation == incarnation and worker.alive and not worker.lies and not worker.frozen:
                return worker.clock() - machine.renewed_at < 2 * machine.beat_ms
        return False

    def is_servable(self, spec: TaskSpec, at: Millis) -> bool:
        """Whether a worker that was registered then, of the right sort, has enough of everything."""
        needs = dict(spec.requires)
        for record in self.store.disk.records.values():
            if not isinstance(record, Worker) or record.capacity.pull != (spec.queue == "agents"):
                continue
            if record.registered_at > at:
                continue
            have = dict(record.capacity.properties)
            enough = int(have.get("cpu_count", "0")) >= int(needs.get("cpu_count", "0"))
            if enough and needs.get("os", have.get("os")) == have.get("os"):
                return True
        return False

    # Checking.

    def _check(self) -> None:
        self._steps += 1
        if self._steps % VALIDATE_EVERY:
            return
        self.ledger.compare_all(self.store.disk.records.values())
        self._check_processes()
        for node in self.coordinators:
            loop = node.machine.loop
            if not node.alive or loop is None:
                continue
            if loop.faults:
                faults = [run.row.fault for run in loop.state.runs.values() if run.row.fault]
                raise Broken(f"P-FAULT: an error of the scheduler itself: {faults or 'outside any run'}")
            broken = validate(loop.state, node.clock())
            if broken:
                raise Broken(f"P-STATE on {node.name}: {broken[0]}")
            check_idle(loop)
            if not self.mix.clock_step:
                deaths = {name: at + node.offset for worker in self.push for name, at in worker.deaths.items()}
                check_recovery(loop, deaths)
            if not node.frozen:
                check_late(loop.state, loop.turned_at)
            reigns = node.machine.leadership.role is Role.LEADER and loop.state.epoch == self.store.disk.epoch
            if reigns and loop.committing is None and is_clean(loop.state):
                self._compare_with_disk(all_records(loop.state))

    def _check_processes(self) -> None:
        """P-KILL: work that nobody wants any more is stopped, where the worker can be told."""
        patience_ms = 2 * self.mix.limits.lease_ms
        for worker in self.push:
            if not worker.alive or worker.frozen or not self.mix.is_timely:
                continue
            for fence in worker.running:
                ended_at = self.ledger.ended_at.get(fence)
                if ended_at is not None and ended_at + patience_ms + abs(self.mix.skew_ms) * 2 < self.world.now:
                    raise Broken(f"P-KILL: {worker.name} still runs fence {fence}")

    def _compare_with_disk(self, records: list[Record]) -> None:
        """P-LOAD: memory and disk agree whenever nothing is on its way, so loading would give the same state."""
        memory = {key_of(record): record for record in records}
        disk = self.store.disk.records
        if memory != disk:
            different = [key for key in {**memory, **disk} if memory.get(key) != disk.get(key)]
            key = different[0]
            raise Broken(f"P-LOAD: {key} is {memory.get(key)} in memory and {disk.get(key)} on disk")

    # The two phases.

    def run(self) -> Result:
        """Storm, then calm; says what broke, if anything did."""
        broken = ""
        try:
            self.world.run_until(START_AT + self.mix.storm_ms)
            self._calm()
            deadline = self.world.now + CALM_MS_MAX
            self.world.run_until(deadline, stop=self._is_finished)
            self._check_finished()
        except Broken as error:
            broken = str(error)
        except Exception as error:
            broken = f"{type(error).__name__}: {error}"
        return Result(
            seed=self.world.seed,
            events=self.world.events,
            fingerprint=self.world.fingerprint(),
            virtual_ms=self.world.now - START_AT,
            runs=len(self.ledger.runs),
            changes=self.ledger.changes,
            broken=broken,
        )

    def _calm(self) -> None:
        self.is_calm = True
        self.network.heal()
        self.store.heal()
        for node in (*self.coordinators, *self.push, *self.pull):
            if node.frozen:
                node.thaw()
            if not node.alive:
                node.restart()
        for worker in self.push:
            if worker.name == "clone":
                worker.crash()
            elif worker.left or worker.machine.drain_until is not None:
                worker.crash()
                worker.restart()
            worker.lies = False
        for errand in list(self.errands):
            command = errand.command
            if isinstance(command, PutSchedule):
                name = f"drop {command.command_id}"
                drop = DropSchedule(tenant=command.tenant, command_id=name, schedule=command.schedule)
                self._errand(drop, 3_000)
        self._tidy_up()

    def _tidy_up(self) -> None:
        """What a patient operator does: resume, undrain, decide about parked work."""
        for record in list(self.store.disk.records.values()):
            if isinstance(record, Run) and record.state not in RUN_TERMINAL and record.paused:
                self._operator(PauseRun(tenant=record.tenant, command_id=self._id(), run=record.id, paused=False))
        for node in self.coordinators:
            loop = node.machine.loop
            if loop is None:
                continue
            for run in loop.state.runs.values():
                for idx, task in run.tasks.items():
                    if task.state is NEEDS_ATTENTION:
                        name = run.graph.task_id(idx)
                        way_out = Exit.FAIL if "interrupted" in task.error else Exit.REQUEUE
                        self._operator(
                            ResolveTask(
                                tenant=run.row.tenant, command_id=self._id(), run=run.row.id, task=name, exit=way_out
                            )
                        )
            for worker in loop.state.workers.values():
                if worker.row.draining:
                    self._operator(
                        DrainWorker(tenant="shared", command_id=self._id(), worker=worker.row.id, draining=False)
                    )
        self.world.after(5_000, self._tidy_up)

    def _id(self) -> str:
        self._numbers += 1
        return f"operator {self._numbers}"

    def _operator(self, command: ClientCommand) -> None:
        self._errand(command, 0)

    def _is_finished(self) -> bool:
        return not self._steps % 20 and all(errand.answered for errand in self.errands) and not self.ledger.unfinished()

    def _check_finished(self) -> None:
        """P-END: an accepted run ends while its store and one capable worker live."""
        waiting = [errand.command for errand in self.errands if not errand.answered]
        if waiting:
            raise Broken(f"P-ANSWER: never answered: {waiting[0]}")
        unfinished = self.ledger.unfinished()
        if unfinished:
            raise Broken(
                f"P-END: {len(unfinished)} runs never ended, among them {unfinished[0]}: {self.why(unfinished[0])}"
            )
        for key in self.ledger.acked:
            if key not in self.ledger.runs:
                raise Broken(f"P-ACK: {key} was acknowledged and forgotten")
        self.ledger.check_end()

    def why(self, key: RunKey) -> str:
        """What the leader says about a run, for the report of a failure."""
        for node in self.coordinators:
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
