"""How fast the simulator is, all checkers on."""

from collections.abc import Iterator

from bench.rig import Row, Stopwatch
from rota.sim.scene import Scene


def speed() -> Iterator[Row]:
    """Events and seeds per CPU second."""
    seeds, events = 60, 0
    with Stopwatch() as watch:
        for seed in range(seeds):
            events += Scene(seed).run().events
    yield Row(
        "simulator, events", round(events / watch.cpu_s), "events/CPU s", 15_000, "higher", watch.cpu_s / events * 1e6
    )
    yield Row("simulator, seeds", round(seeds / watch.cpu_s, 1), "seeds/CPU s", 5, "higher", watch.cpu_s / seeds * 1e6)
