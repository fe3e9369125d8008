"""Whoever leads stands still past its term and goes on: two believe that they lead, and only one is obeyed."""

from pathlib import Path

import pytest

from tests.integration.deadlines import until
from tests.rig.backing import Backing
from tests.rig.trial import on_trial

pytestmark = pytest.mark.full

DAY_MS = 24 * 3_600_000


def test_a_leader_that_stood_still_is_replaced_writes_nothing_more_and_follows(
    tmp_path: Path, backing: Backing
) -> None:
    with on_trial(tmp_path, backing, seed=6, clients=3) as trial:
        fleet, load = trial.fleet, trial.load
        load.until_acknowledged(10)
        old = fleet.until_leader()
        old.freeze()
        fleet.until_leader(other_than=old)
        load.until_acknowledged(5)
        # It wakes up in the middle of whatever it did, with workers and clients on its lines.
        old.thaw()
        until(lambda: old.follows, "the old one to follow")
        load.until_acknowledged(5)
        report = trial.judged()
        assert fleet.leaders() == [server for server in fleet.servers if server is not old]
        assert "step_down" in old.said()
    assert report.epochs == 2
    assert report.rerun == 0


@pytest.mark.long
def test_a_leader_whose_day_is_set_goes_on_leading(tmp_path: Path, backing: Backing) -> None:
    with on_trial(tmp_path, backing, seed=7) as trial:
        fleet, load = trial.fleet, trial.load
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
        trial.judged(clocks_agree=False)
