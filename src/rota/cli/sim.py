"""`rota sim`: run seeds of the simulator, run one again, shrink it, or hunt mutants."""

import argparse
import json
import random
import sys
from functools import partial
from typing import TYPE_CHECKING

from rota.cli.bars import Bar

if TYPE_CHECKING:
    from rota.sim.hunt import Found
    from rota.sim.mutants import Mutant
    from rota.sim.scene import Result


SEEDS = 100

EXAMPLES = """
  rota sim --seeds 200 --jobs 4
  rota sim --seed 41     tells its stories
  rota sim --mutants sample
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("--seeds", type=_count, metavar="N", help=f"how many seeds (default {SEEDS})")
    parser.add_argument("--first", type=_seed, metavar="N", help="the first seed (default 0)")
    parser.add_argument("--seed", type=_seed, metavar="N", help="run one seed, shrink it if it fails, tell its stories")
    parser.add_argument("--jobs", type=_count, default=1, metavar="N", help="processes (default 1)")
    parser.add_argument("--mutants", type=_choose, metavar="NAME", help="hunt mutants: all, sample, or a name")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=partial(run, parser))


def _number(text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
    return int(text)


def _count(text: str) -> int:
    return _number(text, 1)


def _seed(text: str) -> int:
    return _number(text, 0)


def _choose(name: str) -> "tuple[Mutant, ...]":
    from rota.sim.mutants import BY_NAME, MUTANTS

    if name == "all":
        return MUTANTS
    if name == "sample":
        return tuple(random.Random(7).sample(MUTANTS, 8))  # noqa: S311 - the same sample every time
    if name not in BY_NAME:
        raise argparse.ArgumentTypeError(f"no mutant {name!r}; there are all, sample, {', '.join(BY_NAME)}")
    return (BY_NAME[name],)


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Do what was asked. What could only be ignored is refused: an option without effect is a misunderstanding."""
    given = [name for name in ("mutants", "seed", "seeds", "first") if getattr(options, name) is not None]
    if given[:1] in (["mutants"], ["seed"]) and len(given) > 1:
        parser.error(f"--{given[0]} does not go with {' and '.join(f'--{name}' for name in given[1:])}")
    if options.mutants is not None:
        return _hunt_mutants(options)
    if options.seed is not None:
        return _one_seed(options)
    return _many_seeds(options)


def _many_seeds(options: argparse.Namespace) -> int:
    from msgspec import to_builtins

    from rota.sim.hunt import cpu_seconds, rate, run_seeds, seeds_with

    began = cpu_seconds()
    results: list[Result] = []
    bad: list[Result] = []
    count = options.seeds or SEEDS
    progress = Bar("seeds")
    for result in run_seeds(options.first or 0, count, options.jobs):
        results.append(result)
        if result.broken:
            bad.append(result)
            progress.clear()
            _say(f"seed {result.seed}: {result.broken}\n  again: {_again(result.seed)}")
        progress.show(len(results), count)
    progress.clear()
    speed = rate(results, cpu_seconds() - began)
    if options.json:
        sys.stdout.write(
            json.dumps({"speed": speed, "broken": to_builtins(bad), "happened": seeds_with(results)}) + "\n"
        )
    else:
        sys.stdout.write(
            f"{len(results)} seeds, {len(bad)} broken, {speed['events']:.0f} events,"
            f" {speed['events_per_cpu_s']:.0f} events and {speed['seeds_per_cpu_s']:.1f} seeds per CPU second,"
            f" {speed['virtual_hours']:.1f} simulated hours\n"
        )
    return 1 if bad else 0


def _one_seed(options: argparse.Namespace) -> int:
    from msgspec import to_builtins

    from rota.sim.hunt import run_seed, shrink
    from rota.sim.tale import tell

    result = run_seed(options.seed)
    if options.json:
        sys.stdout.write(json.dumps(to_builtins(result)) + "\n")
    else:
        sys.stdout.write(f"seed {result.seed}: {result.broken or 'nothing broken'}\n")
    if not result.broken:
        return 0
    needed, broken = shrink(options.seed)
    _say(f"still broken with only {', '.join(needed)}: {broken}")
    for line in tell(options.seed, result.broken):
        _say(line)
    _say(f"again: {_again(options.seed)}")
    return 1


def _again(seed: int) -> str:
    return f"rota sim --seed {seed}"


def _hunt_mutants(options: argparse.Namespace) -> int:
    from concurrent.futures import ThreadPoolExecutor

    from msgspec import to_builtins

    from rota.sim.hunt import SEEDS_PER_MUTANT, hunt

    mutants: tuple[Mutant, ...] = options.mutants
    hunts: list[Found] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(partial(hunt, seeds=SEEDS_PER_MUTANT), mutants):
            hunts.append(found)
            if options.json:
                continue
            word = f"caught by seed {found.seed}: {found.broken[:100]}" if found.seed is not None else "NOT CAUGHT"
            sys.stdout.write(f"{found.mutant}: {word}\n")
            sys.stdout.flush()
            if found.false_alarms:
                _say(f"seeds that fail without a mutant: {', '.join(map(str, found.false_alarms))}")
    missed = [found.mutant for found in hunts if found.seed is None]
    if options.json:
        sys.stdout.write(json.dumps({"mutants": to_builtins(hunts), "missed": missed}) + "\n")
    else:
        sys.stdout.write(f"{len(mutants)} mutants, {len(missed)} not caught within {SEEDS_PER_MUTANT} seeds\n")
    return 1 if missed else 0


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
