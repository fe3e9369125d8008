"""The line between a leader and its store breaks in every way that lines do; workers and clients still reach it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.deadlines import until
from tests.integration.failover.test_stopped_leaders import follows
from tests.rig.backing import Backing
from tests.rig.fleet import open_fleet
from tests.rig.history import judge
from tests.rig.ledger import ledger_at
from tests.rig.load import Load, definitions
from tests.servers.proxy import Proxy

LEASE_S = 20
CUTS: dict[str, Callable[[Proxy], None]] = {
    "reset": Proxy.cut,
    "silent": Proxy.hang,
    "deaf": Proxy.hang_from_target,
    "mute": Proxy.hang_up_to_target,
}


@pytest.mark.parametrize("cut", [cut if cut == "silent" else pytest.param(cut, marks=pytest.mark.long) for cut in CUTS])
def test_a_leader_that_is_cut_off_from_its_store_makes_way(tmp_path: Path, backing: Backing, cut: str) -> None:
    proxies = {number: Proxy(backing.target) for number in (1, 2)}
    try:
        with open_fleet(
            tmp_path,
            servers=2,
            lease_s=LEASE_S,
            definitions=definitions(),
            server_settings=lambda number: backing.settings(proxies[number]),
        ) as fleet:
            load = Load(fleet.url, str(tmp_path), seed=8, clients=2).start()
            try:
                load.until_acknowledged(5)
                old = fleet.until_leader()
                fleet.disturb(f"cut {old.name}")
                CUTS[cut](proxies[old.number])
                fleet.until_leader(other_than=old)
                load.until_acknowledged(5)
                proxies[old.number].heal()
                until(lambda: follows(old), "the old one to follow")
                load.finish()
                report = judge(load.history(ledger_at(fleet.url), fleet.disturbances)).must_hold()
            finally:
                load.close()
            assert fleet.troubles() == []
        assert report.rerun == 0
        assert report.epochs == 2
    finally:
        for proxy in proxies.values():
            proxy.close()
