"""The weather: which faults come when, how each is carried out, and the end of all of them."""

from rota.core.ids import Millis
from rota.sim.agents import PullWorker
from rota.sim.nodes import Node
from rota.sim.stage import CLONE, Stage
from rota.sim.workers import PushWorker
from rota.worker.sync import DrainAsked

POISON_RESTART_MS: Millis = 1_500
TORN_RESTART_MS: Millis = 4_000

# What becomes of a commit whose asker dies: never carried out, carried out after the death, or before it and unheard.
LOST, TORN, UNHEARD = range(3)


class Weather:
    """Faults at drawn moments. Each is given two draws: whom it hits, and how hard."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.world = stage.world
        self.mix = stage.mix
        self.is_calm = False
        self._tears: list[int] = []
        self._unheard: dict[str, int] = {}
        stage.store.on_asked = self._commit_asked
        stage.store.on_done = self._commit_done
        for worker in stage.push:
            worker.on_poison = self.poisoned
        for agent in stage.pull:
            agent.on_vanish = self._vanished

    def plan(self) -> None:
        """Draw what happens during the storm."""
        chance = self.world.chance("faults")
        nodes = len(self.stage.nodes)
        for fault, count in (
            (self._crash, self.mix.crash),
            (self._pause, self.mix.pause),
            (self._clock_step, self.mix.clock_step),
            (self._lock_lost, self.mix.lock_lost),
            (self._partition, self.mix.partition),
            (self._clog, self.mix.clog),
            (self._drain, self.mix.drain),
            (self._tear, self.mix.torn_restart),
            (self._vanish, self.mix.vanish),
        ):
            for _ in range(count):
                delay_ms = 1_000 + chance.randrange(self.mix.storm_ms)
                self.world.after(delay_ms, fault, chance.randrange(nodes), chance.randrange(1 << 30))

    def end(self) -> None:
        """Heal everything: what was frozen goes on, what was dead starts again, nobody lies, and the clone is gone.

        Except for a few workers that are stuck for good. The first push and pull worker can do everything there is to
        do, and that must be enough.
        """
        self.is_calm = True
        self._stick_some()
        self.stage.network.heal()
        self.stage.store.heal()
        for node in self.stage.nodes:
            if node.frozen:
                node.thaw()
            _restart(node)
        for worker in self.stage.push:
            if worker.name == CLONE:
                worker.crash()
            worker.misdirected = 0
            if worker.lies:
                worker.lies, worker.lied_until = False, self.world.now
        for agent in self.stage.pull:
            agent.is_unwilling = False

    def _stick_some(self) -> None:
        others = [worker for worker in (*self.stage.push[1:], *self.stage.pull[1:]) if worker.name != CLONE]
        number = min(self.mix.stuck_workers, len(others))
        for worker in self.world.chance("stuck").sample(others, number):
            self.world.note("stuck_workers")
            if worker.holds_work():
                self.world.note("stuck_with_work")
            worker.stick()

    def poisoned(self, worker: PushWorker) -> None:
        """A task killed its worker; somebody starts it again."""
        if worker.alive:
            worker.crash()
            self.world.after(POISON_RESTART_MS, _restart, worker)

    # The faults.

    def _node(self, number: int) -> Node:
        nodes = self.stage.nodes
        return nodes[number % len(nodes)]

    def _crash(self, number: int, draw: int) -> None:
        node = self._node(number)
        if node.alive and not self.is_calm:
            self.world.note("crash")
            node.crash()
            self.world.after(draw % 15_000, _restart, node)

    def _pause(self, number: int, draw: int) -> None:
        node = self._node(number)
        if not self.is_calm:
            self.world.note("pause")
            node.freeze()
            self.world.after(draw % (self.mix.limits.lease_ms * 2), node.thaw)

    def _clock_step(self, number: int, draw: int) -> None:
        if not self.is_calm:
            self.world.note("clock_step")
            self._node(number).step_clock(draw % 20_000 - 8_000)

    def _lock_lost(self, number: int, draw: int) -> None:
        store, coordinators = self.stage.store, self.stage.coordinators
        if store.disk.holder:
            self.world.note("lock_lost")
        holder = store.holder_of.get(store.disk.holder, coordinators[0].name)
        store.lose_lock()
        if draw % 3 and not self.is_calm:
            name = holder if draw % 2 else coordinators[number % len(coordinators)].name
            store.unreachable[name] = self.world.now + draw % (3 * self.mix.limits.lease_ms)

    def _partition(self, number: int, draw: int) -> None:
        if not self.is_calm:
            coordinators = self.stage.coordinators
            pair = (coordinators[draw % len(coordinators)].name, self._node(number).name)
            source, target = pair if draw % 3 else (pair[1], pair[0])
            self.stage.network.partition(source, target, draw % (self.mix.limits.lease_ms * 2))

    def _clog(self, number: int, draw: int) -> None:
        if not self.is_calm:
            coordinators = self.stage.coordinators
            coordinator = coordinators[draw % len(coordinators)]
            self.stage.network.clog(self._node(number).name, coordinator.name, draw % 8_000)

    def _drain(self, number: int, draw: int) -> None:
        """SIGTERM: the worker stops in good order, and a new process takes its place."""
        worker = self.stage.push[number % len(self.stage.push)]
        if worker.alive and not worker.frozen and not self.is_calm:
            self.world.note("drain")
            worker.handle(DrainAsked(worker.clock() + draw % 6_000))
            self.world.after(10_000, self._replace, worker, worker.life)

    def _tear(self, number: int, draw: int) -> None:
        """A coordinator dies over its next commit: whoever asks for one first is hit."""
        del number
        if not self.is_calm:
            self._tears.append(draw)

    def _commit_asked(self, name: str) -> None:
        if self._tears and not self.is_calm:
            draw = self._tears.pop()
            way = draw % 3
            if way == UNHEARD:
                self._unheard[name] = draw
            else:
                self.world.after(0, self._strike, name, draw, way == TORN)

    def _commit_done(self, name: str) -> None:
        if name in self._unheard and not self.is_calm:
            self.world.after(0, self._strike, name, self._unheard.pop(name), False)

    def _strike(self, name: str, draw: int, torn: bool) -> None:
        node = next(node for node in self.stage.coordinators if node.name == name)
        if node.alive and self.stage.store.is_in_flight(name):
            self.world.note("torn_restart")
            node.tear(torn=torn)
            self.world.after(draw % TORN_RESTART_MS, _restart, node)

    def _vanish(self, number: int, draw: int) -> None:
        """A pull worker is going to be gone as soon as it holds a lease."""
        if self.stage.pull and not self.is_calm:
            self.stage.pull[number % len(self.stage.pull)].vanishes = 1 + draw

    def _vanished(self, worker: PullWorker, draw: int) -> None:
        """A session closed with work in its hands: it comes back late, and some of them never."""
        if worker.alive and worker.offer is not None and not self.is_calm:
            self.world.note("vanish")
            worker.crash()
            if draw % 3 == 0 and worker is not self.stage.pull[0]:
                worker.stick()
            self.world.after(draw % (3 * worker.lease_ms), _restart, worker)

    @staticmethod
    def _replace(worker: PushWorker, life: int) -> None:
        if worker.alive and not worker.stuck and worker.life == life:
            worker.crash()
            worker.restart()


def _restart(node: Node) -> None:
    if not node.alive and not node.stuck:
        node.restart()
