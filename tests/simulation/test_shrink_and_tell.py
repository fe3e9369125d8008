"""A failure is worth reading: its weather shrinks, its story is told, and one line runs it again."""

import json

import pytest

from rota.cli import main
from tests.simulation.mutated import run_python

MUTANT = "story_without_numbers"
SEED = 0

SHRINK = f"""
import json
from rota.sim.faults import SWITCHES, draw_mix
from rota.sim.hunt import run_seed, shrink
from rota.sim.tale import tell
from rota.sim.world import World

mix = draw_mix(World({SEED}).chance("mix"))
faults = [name for name, off in SWITCHES if getattr(mix, name) != off]
broken = run_seed({SEED}).broken
needed, still_broken = shrink({SEED})
told = list(tell({SEED}, broken))
print(json.dumps([faults, needed, broken, still_broken, told]))
"""


def test_a_broken_world_shrinks_and_its_story_names_the_run() -> None:
    done = run_python(SHRINK, mutant=MUTANT)
    assert not done.returncode, done.stderr
    faults, needed, broken, still_broken, told = json.loads(done.stdout)
    needed_faults = [word.partition("=")[0] for word in needed if word.partition("=")[0] in faults]
    assert len(needed_faults) < len(faults)
    assert still_broken.startswith("P-STORY")
    tenant, run = broken.split("'")[1], broken.split("'")[3]
    assert told[0] == f"the story of {tenant}/{run}:"
    assert "RunSubmitted" in told[1]


def test_a_broken_seed_says_how_to_run_it_again_in_one_line() -> None:
    done = run_python(
        f"import sys\nfrom rota.cli import main\nsys.exit(main(['sim', '--seed', '{SEED}']))", mutant=MUTANT
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(f"seed {SEED}: P-STORY")
    assert done.stdout.count("\n") == 1
    said = done.stderr.splitlines()
    assert said[0].startswith("still broken ")
    assert said[-1] == f"again: rota sim --seed {SEED}"


def test_many_seeds_name_each_broken_one_and_how_to_run_it_again() -> None:
    code = f"import sys\nfrom rota.cli import main\nsys.exit(main(['sim', '--first', '{SEED}', '--seeds', '1']))"
    done = run_python(code, mutant=MUTANT)
    assert done.returncode == 1, done.stderr
    assert f"again: rota sim --seed {SEED}" in done.stderr
    assert done.stdout.startswith("1 seeds, 1 broken")


def test_a_sound_seed_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", str(SEED)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"seed {SEED}: nothing broken\n"
    assert not captured.err
