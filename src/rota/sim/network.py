"""The network: messages that are lost, late, doubled and out of order, and links that fail one way at a time."""

from collections.abc import Callable
from typing import Any

from rota.core.ids import Millis
from rota.sim.faults import Mix
from rota.sim.world import World


class Network:
    """Carries messages between named nodes."""

    def __init__(self, world: World, mix: Mix) -> None:
        self.world = world
        self.mix = mix
        self.chance = world.chance("network")
        self.cut: dict[tuple[str, str], Millis] = {}
        self.clogged: dict[tuple[str, str], Millis] = {}

    def send(self, source: str, target: str, act: Callable[..., None], *args: Any) -> None:
        """Carry a message; `act` is called when, and if, it arrives."""
        world, mix, chance = self.world, self.mix, self.chance
        if self.cut.get((source, target), 0) > world.now:
            world.note("partition")
            return
        if chance.randrange(1000) < mix.loss:
            world.note("loss")
            return
        delay_ms = 1 + chance.randrange(mix.delay_ms + 1)
        if chance.randrange(1000) < mix.reordering:
            delay_ms += chance.randrange(500)
            world.note("reordering")
        if self.clogged.get((source, target), 0) > world.now:
            delay_ms += self.clogged[(source, target)] - world.now
            world.note("clog")
        world.after(delay_ms, act, *args)
        if chance.randrange(1000) < mix.duplication:
            world.note("duplication")
            world.after(delay_ms + chance.randrange(300), act, *args)

    def partition(self, source: str, target: str, for_ms: Millis) -> None:
        """Let nothing through in one direction for a while."""
        self.cut[(source, target)] = self.world.now + for_ms

    def clog(self, source: str, target: str, for_ms: Millis) -> None:
        """Hold everything in one direction back for a while, then let it all through."""
        self.clogged[(source, target)] = self.world.now + for_ms

    def heal(self) -> None:
        """From now on every message arrives, once and soon."""
        self.cut.clear()
        self.clogged.clear()
        self.mix = Mix(delay_ms=5)
