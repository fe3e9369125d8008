"""Push and pull workers of the simulated world.

What an attempt does is written in its work: how long it takes, and what comes of it on each try.
"""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from rota.core.commands import ClaimTask, Outcome, RegisterWorker, RenewLease, Report
from rota.core.decide.leases import Offer
from rota.core.errors import Refused
from rota.core.ids import Fence, Millis
from rota.core.model import Capacity, FailureClass
from rota.sim.broken import Broken
from rota.sim.faults import Mix
from rota.sim.network import Network
from rota.sim.nodes import CoordinatorNode, Node
from rota.sim.world import World
from rota.wire.frames import CoordinatorFrame
from rota.worker.sync import (
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


class Script(Struct, frozen=True):
    """What an attempt does: `fails` is how often it fails before it works."""

    takes_ms: Millis = 100
    fails: int = 0
    failure: FailureClass = FailureClass.USER
    reschedules: int = 0
    ends: Outcome = Outcome.SUCCESS
    expands: tuple[tuple[str, int], ...] = ()
    loses: tuple[str, ...] = ()
    kills: bool = False


_read = msgspec.msgpack.Decoder(Script).decode


def write_script(script: Script) -> bytes:
    """A script as the work of a task."""
    return msgspec.msgpack.encode(script)


class Execution(Struct):
    """An attempt that a worker process is really running."""

    worker: str
    offer: Offer


def conclude(offer: Offer, salt: int, now: Millis) -> AttemptOver:
    """How an attempt ends, by its script and its number."""
    script = _read(offer.work)
    if script.loses and offer.attempt == 1:
        return AttemptOver(
            offer.fence, Outcome.FAILED, failure=FailureClass.INPUT_LOST, lost=script.loses, error="gone", salt=salt
        )
    if offer.attempt <= script.fails:
        return AttemptOver(offer.fence, Outcome.FAILED, failure=script.failure, error="as scripted", salt=salt)
    if offer.attempt <= script.fails + script.reschedules:
        return AttemptOver(offer.fence, Outcome.RESCHEDULE, resume_at=now + 500, salt=salt)
    return AttemptOver(offer.fence, script.ends, result=b"done", expands=script.expands, salt=salt)


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
        self.finished: dict[Fence, AttemptOver] = {}
        self.concluded: dict[Fence, None] = {}
        self.deaths: dict[str, Millis] = {}
        self.on_poison: Callable[[PushWorker], None] = _ignore
        self.on_start: Callable[[Execution], None] = _ignore
        self.on_stop: Callable[[Execution], None] = _ignore
        self.lies = False
        self._target = 0
        self._stream = 0
        self.machine = self._new_machine()
        self.chance = world.chance(f"worker {name}")

    def _new_machine(self) -> SyncMachine:
        incarnation = f"{self.name}.{self.life}"
        return SyncMachine("shared", self.identity, incarnation, self.capacity, self.limits)

    def begin(self, capacity: Capacity) -> None:
        """Start the process."""
        self.capacity = capacity
        self.machine = self._new_machine()
        self.wake_by(self.clock())

    def crash(self) -> None:
        """The process and everything it ran is gone."""
        for fence in list(self.running):
            self._kill(fence)
        self.finished.clear()
        self._hang_up()
        self.deaths[self.machine.incarnation] = self.world.now
        super().crash()

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
        self._stream = self.world.chance("streams").getrandbits(48)
        stream, life = self._stream, self.life
        coordinator = self.coordinators[self._target]

        def on_frame(frame: CoordinatorFrame) -> None:
            if stream == self._stream:
                self.deliver(life, self.handle, FrameCame(frame))

        def on_close() -> None:
            if stream == self._stream:
                self.deliver(life, self.handle, Disconnected())

        self.network.send(self.name, coordinator.name, coordinator.open, self.name, stream, on_frame, on_close)
        self.world.after(3, self.deliver, life, self.handle, Connected())

    def _hang_up(self) -> None:
        coordinator = self.coordinators[self._target]
        self.network.send(self.name, coordinator.name, coordinator.closed, self._stream)
        self._stream = 0

    def _say(self, intent: Send) -> None:
        frame = intent.frame
        if self.lies and self.chance.random() < 0.3:
            invented = tuple(fence + 7 for fence in frame.held) or (1 << 41,)
            frame = msgspec.structs.replace(frame, held=invented, count=frame.count + 1)
        coordinator = self.coordinators[self._target]
        self.network.send(self.name, coordinator.name, coordinator.frame, self.name, self._stream, frame)

    # Attempts.

    def _run(self, offer: Offer) -> None:
        execution = Execution(self.name, offer)
        self.running[offer.fence] = execution
        self.on_start(execution)
        takes_ms = _read(offer.work).takes_ms
        self.world.after(takes_ms, self._finish, self.life, offer.fence)

    def _finish(self, life: int, fence: Fence) -> None:
        if life == self.life and fence in self.running:
            self.deliver(life, self._finished, fence)

    def _finished(self, fence: Fence) -> None:
        execution = self.running.pop(fence, None)
        if execution is not None:
            self.on_stop(execution)
            if _read(execution.offer.work).kills:
                self.on_poison(self)
                return
            self.concluded[fence] = None
            over = conclude(execution.offer, self.chance.getrandbits(64), self.clock())
            if fence in self.machine.held:
                self.finished[fence] = over
            self.handle(over)

    def _kill(self, fence: Fence) -> None:
        execution = self.running.pop(fence, None)
        if execution is not None:
            self.on_stop(execution)


def _ignore(*seen: object) -> None:
    """Nobody watches."""


class PullWorker(Node):
    """An agent session: it registers, claims, renews and reports by requests, each retried until answered."""

    def __init__(
        self, world: World, name: str, mix: Mix, network: Network, coordinators: list[CoordinatorNode]
    ) -> None:
        super().__init__(world, name, mix)
        self.network = network
        self.coordinators = coordinators
        self.lease_ms = mix.limits.lease_ms * 2
        self.chance = world.chance(f"pull {name}")
        self.is_registered = False
        self.offer: Offer | None = None
        self.claim_id = 0
        self.result: AttemptOver | None = None
        self._target = 0
        self._waiting = 0
        self.concluded: dict[Fence, None] = {}
        self.on_claim: Callable[[str, Offer], None] = _ignore

    @property
    def incarnation(self) -> str:
        """Each process is one."""
        return f"{self.name}.{self.life}"

    def crash(self) -> None:
        """The session and its work are gone."""
        super().crash()
        self.is_registered = False
        self.offer = self.result = None

    def restart(self) -> None:
        """A new session under the same name."""
        super().restart()
        self._waiting = 0
        self.wake_by(self.clock())

    def woke(self) -> None:
        """Do the next thing; ask again if nobody answered."""
        self.wake_by(self.clock() + 700 + self.chance.randrange(600))
        if not self.is_registered:
            capacity = Capacity(slots=1, pull=True, queues=("agents",))
            self._ask(
                RegisterWorker(tenant="shared", worker=self.name, incarnation=self.incarnation, capacity=capacity),
                self._registered,
            )
        elif self.result is not None and self.offer is not None:
            self._report(self.offer, self.result)
        elif self.offer is not None:
            self._ask(
                RenewLease(
                    tenant="shared",
                    worker=self.name,
                    incarnation=self.incarnation,
                    fence=self.offer.fence,
                    lease_ms=self.lease_ms,
                ),
                self._renewed,
            )
        else:
            self._ask(
                ClaimTask(
                    tenant="shared",
                    command_id=f"{self.incarnation}.{self.claim_id}",
                    worker=self.name,
                    incarnation=self.incarnation,
                    lease_ms=self.lease_ms,
                ),
                self._claimed,
            )

    def _ask(self, command: object, then: Callable[[object, object], None]) -> None:
        life = self.life
        self._waiting += 1
        number = self._waiting

        def reply(value: object, detail: object) -> None:
            if number == self._waiting:
                self.deliver(life, then, value, detail)

        coordinator = self.coordinators[self._target % len(self.coordinators)]
        self._target += 1
        self.network.send(self.name, coordinator.name, coordinator.ask, self.name, command, reply)

    def _registered(self, value: object, detail: object) -> None:
        self.is_registered = isinstance(value, str) and detail is None

    def _claimed(self, value: object, detail: object) -> None:
        if isinstance(value, Refused) and value.code == "worker.unknown":
            self.is_registered = False
        if not isinstance(value, str):
            return
        self.claim_id += 1
        if isinstance(detail, Offer):
            self.offer = detail
            self.on_claim(self.name, detail)
            takes_ms = _read(detail.work).takes_ms
            self.world.after(takes_ms, self.deliver, self.life, self._done, detail.fence)

    def _done(self, fence: Fence) -> None:
        if self.offer is not None and self.offer.fence == fence:
            self.concluded[fence] = None
            self.result = conclude(self.offer, self.chance.getrandbits(64), self.clock())

    def _renewed(self, value: object, detail: object) -> None:
        if isinstance(value, Refused) and value.code == "lease.lost":
            self.offer = self.result = None

    def _report(self, offer: Offer, over: AttemptOver) -> None:
        report = Report(
            tenant=offer.tenant,
            run=offer.run,
            task=offer.task,
            worker_tenant="shared",
            worker=self.name,
            incarnation=self.incarnation,
            fence=offer.fence,
            outcome=over.outcome,
            salt=over.salt,
            result=over.result,
            failure=over.failure,
            error=over.error,
            resume_at=over.resume_at,
            expands=over.expands,
            lost=over.lost,
        )
        self._ask(report, self._reported)

    def _reported(self, value: object, detail: object) -> None:
        if isinstance(value, str):
            self.offer = self.result = None
