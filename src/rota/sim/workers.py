"""Push workers of the simulated world: the real Sync machine, around attempts that only pretend."""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from rota.core.cluster import CODE, cluster_id
from rota.core.commands import Outcome
from rota.core.decide.leases import Offer
from rota.core.ids import Epoch, Fence, Incarnation, Millis, WorkerId
from rota.core.model import Capacity
from rota.sim.babble import babble
from rota.sim.broken import Broken
from rota.sim.faults import Mix
from rota.sim.network import Network
from rota.sim.nodes import CoordinatorNode, Node
from rota.sim.scripts import conclude, lasting_ms, read_script
from rota.sim.world import World
from rota.wire.frames import CoordinatorFrame, WorkerFrame
from rota.worker.sync import (
    AttemptGone,
    AttemptOver,
    Connect,
    Connected,
    Disconnect,
    Disconnected,
    Event,
    FrameCame,
    Left,
    Send,
    StartAttempt,
    StopAttempt,
    SyncMachine,
)

# Killing a tree of processes takes a moment, and not always the same.
KILLING_MS_MAX = 40
# A cluster beside the simulated one, and an epoch that this one never reaches.
STRANGER = "stranger"
STRANGE_EPOCH = 1 << 20


class Execution(Struct):
    """An attempt that a worker process is really running."""

    worker: str
    offer: Offer


class PushWorker(Node):
    """A worker that is assigned work over a Sync stream."""

    def __init__(
        self,
        world: World,
        name: str,
        mix: Mix,
        network: Network,
        coordinators: list[CoordinatorNode],
        identity: str = "",
    ) -> None:
        super().__init__(world, name, mix)
        self.identity = identity or name
        self.network = network
        self.coordinators = coordinators
        self.limits = mix.limits
        self.capacity = Capacity()
        self.running: dict[Fence, Execution] = {}
        self.dying: dict[Fence, Execution] = {}
        self.finished: dict[Fence, AttemptOver] = {}
        self.concluded: dict[Fence, None] = {}
        self.deaths: dict[str, Millis] = {}
        self.on_poison: Callable[[PushWorker], None] = _ignore
        self.on_start: Callable[[Execution], None] = _ignore
        self.on_stop: Callable[[Execution], None] = _ignore
        self.lies = False
        self.lied_until: Millis = 0
        self._target = 0
        self._stream = 0
        # The cluster that the worker's folder remembers from one life to the next.
        self.cluster = ""
        self.machine = self._new_machine()
        self.chance = world.chance(f"worker {name}")
        self.chance_of_words = world.chance(f"words of {name}")
        self.babble = mix.babble
        self.chance_of_dials = world.chance(f"dials of {name}")
        self.misdirected = mix.misdirected

    def _new_machine(self) -> SyncMachine:
        incarnation = Incarnation(f"{self.name}.{self.life}")
        return SyncMachine("shared", WorkerId(self.identity), incarnation, self.capacity, self.limits, self.cluster)

    def begin(self, capacity: Capacity) -> None:
        """Start the process."""
        self.capacity = capacity
        self.machine = self._new_machine()
        self.wake_by(self.clock())

    def crash(self) -> None:
        """The process and everything it ran is gone."""
        for fence in list(self.running):
            self._kill(fence)
        for fence in list(self.dying):
            self._died(fence)
        self.finished.clear()
        self._hang_up()
        self.deaths[self.machine.incarnation] = self.world.now
        super().crash()

    def holds_work(self) -> bool:
        """Whether something is lost if this process stops now."""
        return bool(self.machine.held or self.machine.outbox or self.machine.unacked)

    def restart(self) -> None:
        """A new process in a new incarnation."""
        super().restart()
        self.machine = self._new_machine()
        self.wake_by(self.clock())

    def woke(self) -> None:
        """See Node."""
        self._turn()

    def handle(self, event: Event) -> None:
        """Give the machine one event and carry out what it wants."""
        machine = self.machine
        session, heard, epoch = machine.session, machine.heard, machine.epoch
        machine.offer(event, self.clock())
        if machine.epoch < epoch:
            raise Broken(f"P-EPOCH: {self.name} obeyed epoch {machine.epoch} after {epoch}")
        if machine.session and machine.session == session and machine.heard > heard + 1:
            raise Broken(f"P-FRAME: {self.name} took frame {machine.heard} after {heard}")
        self.cluster = machine.cluster
        self._turn()

    def _turn(self) -> None:
        now = self.clock()
        for intent in self.machine.turn(now):
            match intent:
                case Connect():
                    self._dial()
                case Disconnect():
                    self._hang_up()
                case Send():
                    self._say(intent)
                case StartAttempt():
                    self._run(intent.offer)
                case StopAttempt():
                    self._kill(intent.fence)
                case Left():
                    pass
        self.wake_by(self.machine.wake_at(now))

    # The stream.

    def _dial(self) -> None:
        self._target = (self._target + 1) % len(self.coordinators)
        if self.identity != self.name:
            self.world.note("cloned_worker")
        self._stream = self.world.chance("streams").getrandbits(48)
        stream, life = self._stream, self.life
        coordinator = self.coordinators[self._target]
        if self.cluster and self.chance_of_dials.randrange(1000) < self.misdirected:
            self.world.note("misdirected")
            self._send_stranger(coordinator)
            self.world.after(3, self._reach_stranger, life, stream)
            return

        def on_frame(frame: CoordinatorFrame) -> None:
            if stream == self._stream:
                self.deliver(life, self.handle, FrameCame(frame))

        def on_close() -> None:
            if stream == self._stream:
                self.deliver(life, self.handle, Disconnected())

        self.network.send(self.name, coordinator.name, coordinator.open, self.name, stream, on_frame, on_close)
        self.world.after(3, self.deliver, life, self.handle, Connected())

    def _send_stranger(self, coordinator: CoordinatorNode) -> None:
        """A worker of another cluster, which happens to have the same name, dials a coordinator of this one."""
        stream = self.chance_of_dials.getrandbits(48)
        greeting = WorkerFrame(
            tenant=self.machine.tenant,
            worker=WorkerId(self.identity),
            incarnation=Incarnation(STRANGER),
            epoch=Epoch(STRANGE_EPOCH),
            number=0,
            capacity=self.capacity,
            cluster=cluster_id(STRANGER),
        )

        def on_frame(frame: CoordinatorFrame) -> None:
            if frame.code != CODE:
                raise Broken(f"P-CLUSTER: {coordinator.name} let a worker of another cluster in")

        self.network.send(self.name, coordinator.name, coordinator.open, self.name, stream, on_frame, _ignore)
        self.network.send(self.name, coordinator.name, coordinator.frame, self.name, stream, greeting)

    def _reach_stranger(self, life: int, stream: int) -> None:
        """The dial reached a coordinator of another cluster, which would have the worker stop and start things."""
        if stream != self._stream:
            return
        self.deliver(life, self.handle, Connected())
        welcome = CoordinatorFrame(
            session=STRANGER,
            epoch=Epoch(STRANGE_EPOCH),
            number=1,
            stop=tuple(self.machine.held),
            want_complete=True,
            cluster=cluster_id(STRANGER),
        )
        held = list(self.machine.held)
        self.deliver(life, self._hear_stranger, welcome, held)

    def _hear_stranger(self, welcome: CoordinatorFrame, held: list[Fence]) -> None:
        lost_by = self.machine.stop_at()
        self.handle(FrameCame(welcome))
        machine = self.machine
        if machine.session == STRANGER or machine.epoch == STRANGE_EPOCH:
            raise Broken(f"P-CLUSTER: {self.name} joined a coordinator of another cluster")
        if self.clock() < lost_by and [fence for fence in held if fence not in machine.held]:
            raise Broken(f"P-CLUSTER: {self.name} stopped work for a coordinator of another cluster")

    def _hang_up(self) -> None:
        coordinator = self.coordinators[self._target]
        self.network.send(self.name, coordinator.name, coordinator.closed, self._stream)
        self._stream = 0

    def _say(self, intent: Send) -> None:
        frame = intent.frame
        if self.lies and self.chance.random() < 0.3:
            invented = tuple(fence + 7 for fence in frame.held) or (1 << 41,)
            frame = msgspec.structs.replace(frame, held=invented, count=frame.count + 1)
            self.world.note("lying_worker")
        coordinator = self.coordinators[self._target]
        self.network.send(self.name, coordinator.name, coordinator.frame, self.name, self._stream, frame)

    # Attempts.

    def _run(self, offer: Offer) -> None:
        execution = Execution(self.name, offer)
        self.running[offer.fence] = execution
        self.on_start(execution)
        self.world.after(lasting_ms(offer), self._finish, self.life, offer.fence)

    def _finish(self, life: int, fence: Fence) -> None:
        if life == self.life and fence in self.running:
            self.deliver(life, self._finished, fence)

    def _finished(self, fence: Fence) -> None:
        execution = self.running.pop(fence, None)
        if execution is not None:
            self.on_stop(execution)
            if read_script(execution.offer.work).kills:
                self.on_poison(self)
                return
            self.concluded[fence] = None
            over = conclude(execution.offer, self.chance.getrandbits(64), self.clock())
            self.world.note(f"said_{over.failure if over.outcome is Outcome.FAILED else over.outcome}")
            if self.chance_of_words.randrange(1000) < self.babble:
                self.world.note("babble")
                over = babble(over, self.chance_of_words, self.world.note)
            if fence in self.machine.held:
                self.finished[fence] = over
            self.handle(over)

    def _kill(self, fence: Fence) -> None:
        execution = self.running.pop(fence, None)
        if execution is not None:
            self.dying[fence] = execution
            self.world.after(1 + fence % KILLING_MS_MAX, self._killed, self.life, fence)
            if read_script(execution.offer.work).endless and not execution.offer.timeout_ms:
                self.world.note("endless_killed")

    def _killed(self, life: int, fence: Fence) -> None:
        if life == self.life and fence in self.dying:
            self._died(fence)
            self.deliver(life, self.handle, AttemptGone(fence))

    def _died(self, fence: Fence) -> None:
        self.on_stop(self.dying.pop(fence))


def _ignore(*seen: object) -> None:
    """Nobody watches."""
