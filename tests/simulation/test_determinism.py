"""One seed is one world, whatever the order of hashes in the process that plays it."""

from tests.simulation.mutated import run_python

SEEDS = 6
FINGERPRINTS = f"""
from rota.sim.hunt import run_seed
for result in map(run_seed, range({SEEDS})):
    print(result.fingerprint, result.events, result.changes, *result.happened.items())
"""


def fingerprints(hash_seed: int) -> list[str]:
    done = run_python(FINGERPRINTS, hash_seed=hash_seed)
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


def test_a_seed_gives_the_same_world_under_every_hash_seed() -> None:
    assert fingerprints(hash_seed=1) == fingerprints(hash_seed=2)


def test_different_seeds_give_different_worlds() -> None:
    found = fingerprints(hash_seed=1)
    assert len(found) == SEEDS
    assert len({*found}) == SEEDS
