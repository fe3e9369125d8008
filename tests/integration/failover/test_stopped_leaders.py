"""Whoever leads stands still past its term and goes on: two believe that they lead, and only one is obeyed."""

from pathlib import Path

from tests.integration.deadlines import until
from tests.rig.backing import Backing
from tests.rig.fleet import Server, open_fleet
from tests.rig.history import judge
from tests.rig.ledger import ledger_at
from tests.rig.load import Load, definitions

LEASE_S = 20
DAY_MS = 24 * 3_600_000


def follows(server: Server) -> bool:
    """Whether it says that it follows and is of use."""
    answer = server.get("/readyz")
    return answer is not None and answer[0] == 200 and '"role":"follower"' in answer[1].replace(" ", "")


def test_a_leader_that_stood_still_is_replaced_writes_nothing_more_and_follows(
    tmp_path: Path, backing: Backing
) -> None:
    with open_fleet(
        tmp_path, servers=2, lease_s=LEASE_S, definitions=definitions(), server_settings=lambda _: backing.settings()
    ) as fleet:
        load = Load(fleet.url, str(tmp_path), seed=6, clients=3).start()
        try:
            load.until_acknowledged(10)
            old = fleet.until_leader()
            old.freeze()
            fleet.until_leader(other_than=old)
            load.until_acknowledged(5)
            # It wakes up in the middle of whatever it did, with workers and clients on its lines.
            old.thaw()
            until(lambda: follows(old), "the old one to follow")
            load.until_acknowledged(5)
            load.finish()
            report = judge(load.history(ledger_at(fleet.url), fleet.kills())).must_hold()
        finally:
            load.close()
        assert fleet.leaders() == [server for server in fleet.servers if server is not old]
        assert "step_down" in old.said()
        assert fleet.troubles() == []
    assert report.epochs == 2
    assert report.rerun == 0


def test_a_leader_whose_day_is_set_goes_on_leading(tmp_path: Path, backing: Backing) -> None:
    with open_fleet(
        tmp_path, servers=2, lease_s=LEASE_S, definitions=definitions(), server_settings=lambda _: backing.settings()
    ) as fleet:
        load = Load(fleet.url, str(tmp_path), seed=7, clients=2).start()
        try:
            load.until_acknowledged(5)
            leader = fleet.until_leader()
            for day in (-DAY_MS, DAY_MS, 0):
                leader.set_clock(day)
                load.until_acknowledged(5)
            assert fleet.leaders() == [leader]
            leader.set_clock(-DAY_MS)
            leader.kill()
            fleet.until_leader(other_than=leader)
            fleet.restart_dead()
            load.until_acknowledged(5)
            load.finish()
            judge(load.history(ledger_at(fleet.url), fleet.kills(), clocks_agree=False)).must_hold()
        finally:
            load.close()
        assert fleet.troubles() == []
