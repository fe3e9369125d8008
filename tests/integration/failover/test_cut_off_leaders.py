"""The line between a leader and its store breaks in every way that lines do; workers and clients still reach it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.deadlines import until
from tests.rig.backing import Backing
from tests.rig.trial import on_trial
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.full

CUTS: dict[str, Callable[[Proxy], None]] = {
    "reset": Proxy.cut,
    "silent": Proxy.hang,
    "deaf": Proxy.hang_from_target,
    "mute": Proxy.hang_up_to_target,
}


@pytest.mark.parametrize("cut", [cut if cut == "silent" else pytest.param(cut, marks=pytest.mark.long) for cut in CUTS])
def test_a_leader_that_is_cut_off_from_its_store_makes_way(tmp_path: Path, backing: Backing, cut: str) -> None:
    with (
        Proxy(backing.target) as first,
        Proxy(backing.target) as second,
        on_trial(tmp_path, backing, seed=8, proxy_of=lambda number: (first, second)[number - 1]) as trial,
    ):
        fleet, load = trial.fleet, trial.load
        load.until_acknowledged(5)
        old = fleet.until_leader()
        proxy = (first, second)[old.number - 1]
        fleet.disturb(f"cut {old.name}")
        CUTS[cut](proxy)
        fleet.until_leader(other_than=old)
        load.until_acknowledged(5)
        proxy.heal()
        until(lambda: old.follows, "the old one to follow")
        report = trial.judged()
    assert report.rerun == 0
    assert report.epochs == 2
