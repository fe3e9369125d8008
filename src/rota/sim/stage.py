"""The stage of one seed: a world, its network, its store and the nodes in it, before anything has happened."""

from rota.sim.agents import PullWorker
from rota.sim.disk import SimStore
from rota.sim.faults import Mix, draw_mix
from rota.sim.network import Network
from rota.sim.nodes import CoordinatorNode, Node
from rota.sim.workers import PushWorker
from rota.sim.workload import draw_capacity, draw_session
from rota.sim.world import World

CLONE = "clone"


class Stage:
    """Everything that a seed's weather, clients and checkers share."""

    def __init__(self, seed: int, mix: Mix | None) -> None:
        self.world = World(seed)
        self.mix = mix or draw_mix(self.world.chance("mix"))
        self.network = Network(self.world, self.mix)
        self.store = SimStore(self.world, self.mix)
        self.coordinators = [
            CoordinatorNode(self.world, f"coordinator{number}", self.mix, self.network, self.store)
            for number in range(self.mix.coordinators)
        ]
        self.push: list[PushWorker] = []
        self.pull: list[PullWorker] = []
        self._make_workers()

    @property
    def nodes(self) -> list[Node]:
        """Everybody who can crash, in a fixed order."""
        return [*self.coordinators, *self.push, *self.pull]

    def _make_workers(self) -> None:
        chance = self.world.chance("capacity")
        for number in range(self.mix.push_workers):
            self._add_push(f"push{number}", "", number)
        if self.mix.cloned_worker:
            self._add_push(CLONE, "push0", 0)
        if self.mix.lying_worker:
            self.push[-1].lies = True
        listeners = self.mix.listeners if self.mix.pull_workers else 0
        for number in range(self.mix.pull_workers + listeners):
            capacity = draw_session(self.world.chance("sessions"), number)
            worker = PullWorker(self.world, f"pull{number}", self.mix, self.network, self.coordinators, capacity)
            worker.wake_by(worker.clock() + chance.randrange(2_000))
            self.pull.append(worker)
        for worker in self.pull[max(0, self.mix.pull_workers - self.mix.unwilling_agents) :]:
            worker.is_unwilling = True
        for worker in self.pull:
            worker.others = self.pull
        for coordinator in self.coordinators:
            coordinator.wakers = {worker.name: worker.hear_wake for worker in self.pull}

    def _add_push(self, name: str, identity: str, number: int) -> None:
        worker = PushWorker(self.world, name, self.mix, self.network, self.coordinators, identity)
        self.push.append(worker)
        worker.begin(draw_capacity(self.world.chance("capacity"), number))
