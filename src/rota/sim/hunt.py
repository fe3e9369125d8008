"""Running seeds: many at once, one again, a shrunken one, and a hunt for a mutant.

`python -m rota.sim.hunt MUTANT SEEDS FIRST` is the process in which one mutant lives.
"""

import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec import json as msgjson

from rota.sim.mutants import BY_NAME, Mutant, install

if TYPE_CHECKING:
    # A mutant must be installed before the code under test is imported, so nothing here imports it at the top.
    from rota.sim.scene import Result

SEEDS_PER_MUTANT = 500
CHUNK = 10


class Found(Struct):
    """The seed that catches a mutant; None if none did. `false_alarms` are seeds that fail without the mutant, too."""

    mutant: str
    seed: int | None
    seeds: int
    broken: str = ""
    false_alarms: tuple[int, ...] = ()


def run_seed(seed: int) -> "Result":
    """One seed."""
    scene = import_module("rota.sim.scene")
    return scene.Scene(seed).run()


def run_seeds(first: int, count: int, jobs: int) -> Iterator["Result"]:
    """Many seeds, in order of their number."""
    seeds = range(first, first + count)
    if jobs <= 1:
        yield from map(run_seed, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_seed, seeds, chunksize=CHUNK)


def hunt(mutant: Mutant, seeds: int, first: int = 0) -> Found:
    """Look for a seed that fails with the mutant and passes without it. One that fails either way catches nothing."""
    begin, end, false_alarms = first, first + seeds, list[int]()
    while begin < end:
        found = _hunt_apart(mutant, end - begin, begin)
        if found.seed is None:
            break
        if not run_seed(found.seed).broken:
            return Found(mutant.name, found.seed, found.seed - first + 1, found.broken, tuple(false_alarms))
        false_alarms.append(found.seed)
        begin = found.seed + 1
    return Found(mutant.name, None, seeds, false_alarms=tuple(false_alarms))


def _hunt_apart(mutant: Mutant, seeds: int, first: int) -> Found:
    """The first seed that fails with the mutant, which lives in a process of its own."""
    command = [sys.executable, "-m", "rota.sim.hunt", mutant.name, str(seeds), str(first)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own interpreter
    if done.returncode:
        raise RuntimeError(f"the hunt for {mutant.name} died: {done.stderr.strip()[-800:]}")
    return msgjson.decode(done.stdout, type=Found)


def _hunt_here(name: str, seeds: int, first: int) -> Found:
    install(BY_NAME[name])
    try:
        scene = import_module("rota.sim.scene")
    except Exception as error:
        if isinstance(error, ValueError):
            raise
        return Found(name, first, 1, f"{type(error).__name__}: {error}")
    for seed in range(first, first + seeds):
        result = scene.Scene(seed).run()
        if result.broken:
            return Found(name, seed, seed - first + 1, result.broken)
    return Found(name, None, seeds)


def shrink(seed: int) -> tuple[list[str], str]:
    """Switch off one family of faults after the other and keep what still breaks: the shortest weather that fails."""
    faults = import_module("rota.sim.faults")
    scene = import_module("rota.sim.scene")
    world = import_module("rota.sim.world")
    mix = faults.draw_mix(world.World(seed).chance("mix"))
    broken = scene.Scene(seed, mix).run().broken
    needed: list[str] = []
    for name, off in faults.SWITCHES:
        before = getattr(mix, name)
        if before == off:
            continue
        setattr(mix, name, off)
        again = scene.Scene(seed, mix).run().broken
        if again:
            broken = again
        else:
            setattr(mix, name, before)
            needed.append(f"{name}={before}")
    while mix.runs > 1:
        mix.runs -= 1
        again = scene.Scene(seed, mix).run().broken
        if not again:
            mix.runs += 1
            break
        broken = again
    return [*needed, f"runs={mix.runs}", f"coordinators={mix.coordinators}"], broken


def seeds_with(results: list["Result"]) -> dict[str, int]:
    """In how many seeds each kind of thing happened."""
    return dict(sorted(Counter(kind for result in results for kind in result.happened).items()))


def rate(results: list["Result"], cpu_s: float) -> dict[str, float]:
    """How fast the simulator was."""
    events = sum(result.events for result in results)
    return {
        "seeds": len(results),
        "events": events,
        "events_per_cpu_s": events / cpu_s if cpu_s else 0.0,
        "seeds_per_cpu_s": len(results) / cpu_s if cpu_s else 0.0,
        "virtual_hours": sum(result.virtual_ms for result in results) / 3_600_000,
    }


def cpu_seconds() -> float:
    """CPU time of this process and of its children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    sys.stdout.write(msgjson.encode(_hunt_here(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))).decode() + "\n")
