"""Coordinators and workers in the simulated world: the real machines, with simulated life around them.

A node can be paused (everything waits), crashed (memory is gone) and have a clock of its own.
"""

from collections.abc import Callable
from typing import Any

from rota.control.coordinator import Coordinator
from rota.control.events import (
    Answer,
    Asked,
    AskHolds,
    CloseStream,
    Commit,
    Elect,
    Event,
    FrameCame,
    Load,
    Release,
    Send,
    StreamClosed,
    Wake,
    Woke,
)
from rota.control.events import Intent as ControlIntent
from rota.core.commands import ClaimTask, ClearTasks, Command, MarkTasks, MoveRun, NoteTask, RetryTasks, ReviveRun
from rota.core.cycle import CycleSettings
from rota.core.errors import Refused, Unavailable
from rota.core.history import Ended
from rota.core.ids import Millis, RunId
from rota.core.model import Graph
from rota.sim.broken import Broken
from rota.sim.disk import SimStore
from rota.sim.faults import Mix
from rota.sim.network import Network
from rota.sim.world import World
from rota.wire.frames import CoordinatorFrame, WorkerFrame

Reply = Callable[[object, object], None]
# What may be done about a run in history, as `rota.api.reviving` has it.
Remedy = ClearTasks | MarkTasks | MoveRun | NoteTask | RetryTasks


class Node:
    """Anything that runs: it has a name, a clock, and may be frozen or dead."""

    def __init__(self, world: World, name: str, mix: Mix) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.frozen = False
        self.stuck = False
        self.life: int = 0
        self.offset = world.chance("skew").randint(-mix.skew_ms, mix.skew_ms) if mix.skew_ms else 0
        if self.offset:
            world.note("skew_ms")
        self._latest: Millis = 0
        self._backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._wake_at: Millis | None = None

    def clock(self) -> Millis:
        """What this node believes the time is; its shell never lets it run back."""
        self._latest = max(self._latest, self.world.now + self.offset)
        return self._latest

    def step_clock(self, by_ms: Millis) -> None:
        """Somebody set the clock."""
        self.offset += by_ms

    def deliver(self, life: int, act: Callable[..., None], *args: Any) -> None:
        """Something reaches the node: now, later if it is frozen, never if it has died since."""
        if not self.alive or life != self.life:
            return
        if self.frozen:
            self._backlog.append((act, args))
        else:
            act(*args)

    def freeze(self) -> None:
        """The process stops being scheduled."""
        self.frozen = True

    def stick(self) -> None:
        """From now on the process is never scheduled again; if it is dead, nobody starts it any more."""
        self.frozen = self.stuck = True

    def thaw(self) -> None:
        """The process goes on, with everything that came meanwhile."""
        if self.stuck:
            return
        self.frozen = False
        backlog, self._backlog = self._backlog, []
        for act, args in backlog:
            if self.alive:
                act(*args)

    def crash(self) -> None:
        """The process is gone, with its memory and everything that was on its way to it."""
        self.alive = False
        self.life += 1
        self._backlog.clear()
        self._wake_at = None

    def restart(self) -> None:
        """A new process, which knows nothing of the old one."""
        self.alive = True
        self.frozen = False
        self.life += 1

    def wake_by(self, at: Millis) -> None:
        """Have `woke` called at a time by this node's clock."""
        due = max(self.world.now, at - self.offset)
        if self._wake_at is None or due < self._wake_at:
            self._wake_at = due
            self.world.after(due - self.world.now, self._wake, self.life, due)

    def _wake(self, life: int, due: Millis) -> None:
        if life == self.life and self._wake_at == due:
            self._wake_at = None
            self.deliver(life, self.woke)

    def woke(self) -> None:
        """Time has passed."""
        raise AssertionError("every node wakes in its own way")


class CoordinatorNode(Node):
    """A coordinator process."""

    def __init__(self, world: World, name: str, mix: Mix, network: Network, store: SimStore) -> None:
        super().__init__(world, name, mix)
        # Who is told of work that may be claimed.
        self.wakers: dict[str, Callable[[], None]] = {}
        # Sees claims as they arrive, their answers as they are given, and wakes as they are sent.
        self.on_claim: Callable[[CoordinatorNode, ClaimTask], None] = _ignore
        self.on_claim_answered: Callable[[CoordinatorNode, ClaimTask, object], None] = _ignore
        self.on_wake: Callable[[CoordinatorNode, Wake], None] = _ignore
        self.network = network
        self.store = store
        self.limits = mix.limits
        self.may_be_torn = bool(mix.torn_restart)
        self.wake_settings = CycleSettings(
            starve_ms=mix.limits.starve_ms, fan_out_max=mix.fan_out_max, rule=mix.climb_rule
        )
        self.machine = self._make_machine()
        self.peers: dict[int, tuple[str, Callable[[CoordinatorFrame], None], Callable[[], None]]] = {}
        self.asked: dict[int, Reply] = {}
        self._token = 0
        self.wake_by(self.clock())

    def crash(self) -> None:
        """Memory is gone; the lock goes when the store notices; a commit on its way may still be carried out."""
        self.tear(torn=self.may_be_torn and self.world.chance("torn").random() < 0.5)

    def tear(self, *, torn: bool) -> None:
        """Crash; `torn` says whether a commit on its way is carried out all the same."""
        super().crash()
        self.store.cut_off(self.name, torn=torn)
        for name, _, closed in self.peers.values():
            self.network.send(self.name, name, closed)
        self.peers.clear()
        self.asked.clear()
        self.world.after(self.world.chance("crash").randrange(2_000), self.store.lose_lock, self.name)

    def restart(self) -> None:
        """A new process."""
        super().restart()
        self.machine = self._make_machine()
        self.wake_by(self.clock())

    def _make_machine(self) -> Coordinator:
        machine = Coordinator(self.limits, self.clock())
        machine.wake_settings = self.wake_settings
        return machine

    def woke(self) -> None:
        """See Node."""
        self.handle(Woke())

    def handle(self, event: Event) -> None:
        """Give the machine one event and carry out what it wants."""
        now = self.clock()
        for intent in self.machine.handle(event, now):
            self.carry_out(intent)
        self.wake_by(self.machine.wake_at(now))

    def carry_out(self, intent: ControlIntent) -> None:
        """Do what the machine asks for."""
        match intent:
            case Elect() | AskHolds() | Load() | Commit():
                life = self.life
                self.store.ask(self.name, intent, lambda answer: self.deliver(life, self.handle, answer))
            case Release():
                self.store.disk.release(intent.epoch)
            case Answer():
                reply = self.asked.pop(intent.token, None)
                if reply is not None:
                    reply(intent.value, intent.detail)
            case Send():
                if self.clock() > self.machine.leadership.proven_until:
                    raise Broken(f"P-PROOF: {self.name} spoke to a worker without a proof that it leads")
                peer = self.peers.get(intent.stream)
                if peer is not None:
                    self.network.send(self.name, peer[0], peer[1], intent.frame)
            case Wake():
                self.on_wake(self, intent)
                waker = self.wakers.get(intent.worker)
                if waker is not None:
                    self.network.send(self.name, intent.worker, waker)
            case CloseStream():
                peer = self.peers.pop(intent.stream, None)
                if peer is not None:
                    self.network.send(self.name, peer[0], peer[2])
            case _:
                pass

    # What others do to it, through the network.

    def ask(self, source: str, command: Command, reply: Reply) -> None:
        """A command arrives."""

        def send(value: object, detail: object) -> None:
            if isinstance(command, ClaimTask):
                self.on_claim_answered(self, command, value)
            self.network.send(self.name, source, reply, value, detail)

        if isinstance(command, ClaimTask):
            self.on_claim(self, command)
        self.put(command, Revival(self, command, send).heard if isinstance(command, Remedy) else send)

    def put(self, command: Command, reply: Reply) -> None:
        """Have the machine answer something, in this process."""
        self._token += 1
        self.asked[self._token] = reply
        self.deliver(self.life, self.handle, Asked(self._token, command))

    def look_up(self, tenant: str, run: RunId, found: Callable[[Ended | None, Graph | None], None]) -> None:
        """Read a run of history."""
        life = self.life

        def told(ended: Ended | None, graph: Graph | None) -> None:
            self.deliver(life, found, ended, graph)

        self.store.read(self.name, tenant, run, told)

    def open(
        self, source: str, stream: int, on_frame: Callable[[CoordinatorFrame], None], on_close: Callable[[], None]
    ) -> None:
        """A worker opens a stream."""
        if not self.alive:
            self.network.send(self.name, source, on_close)
            return
        self.peers[stream] = (source, on_frame, on_close)

    def frame(self, source: str, stream: int, frame: WorkerFrame) -> None:
        """A frame arrives."""
        if stream in self.peers and self.peers[stream][0] == source:
            self.deliver(self.life, self.handle, FrameCame(stream, frame))

    def closed(self, stream: int) -> None:
        """A worker's stream is gone."""
        if self.peers.pop(stream, None) is not None:
            self.deliver(self.life, self.handle, StreamClosed(stream))


class Revival:
    """A remedy whose run may be in history: then that is read, brought back, and the remedy asked for once more."""

    def __init__(self, node: CoordinatorNode, command: Remedy, reply: Reply) -> None:
        self.node = node
        self.command = command
        self.reply = reply

    def heard(self, value: object, detail: object) -> None:
        """What the remedy was answered at first."""
        if isinstance(value, Refused) and value.code == "run.unknown":
            self.node.look_up(self.command.tenant, self.command.run, self._read)
        else:
            self.reply(value, detail)

    def _read(self, ended: Ended | None, graph: Graph | None) -> None:
        command = self.command
        if ended is None or graph is None:
            self.reply(Refused("run.unknown", f"no run {command.run!r}, live or in history"), None)
            return
        revive = ReviveRun(tenant=command.tenant, row=ended.run, tasks=ended.tasks, growths=ended.growths, graph=graph)
        self.node.put(revive, self._revived)

    def _revived(self, value: object, detail: object) -> None:
        if isinstance(value, Refused | Unavailable):
            self.reply(value, detail)
            return
        self.node.world.note("revived")
        self.node.put(self.command, self.reply)


def _ignore(*seen: object) -> None:
    """A watcher that the simulator does not need."""
