"""Whoever leads is killed under load: another one leads, nothing is lost or doubled, and what runs is not restarted."""

from pathlib import Path

import pytest

import rota
from tests.integration.deadlines import until
from tests.rig.backing import Backing
from tests.rig.fleet import open_fleet
from tests.rig.journal import read_attempts
from tests.rig.tasks import step
from tests.rig.trial import LEASE_S, on_trial

KILLS = 2


def test_nothing_is_lost_or_doubled_when_leaders_are_killed_under_load(tmp_path: Path, backing: Backing) -> None:
    with on_trial(tmp_path, backing, seed=5, clients=3) as trial:
        for _ in range(KILLS):
            trial.load.until_acknowledged(10)
            dead = trial.fleet.until_leader()
            dead.kill()
            trial.fleet.until_leader(other_than=dead)
            trial.fleet.restart_dead()
        trial.load.until_acknowledged(5)
        report = trial.judged()
    assert report.epochs >= KILLS
    assert report.rerun == 0, "a standby that leads in time interrupts nothing"
    assert None not in [gap.ms for gap in report.gaps]


@pytest.mark.full
def test_work_goes_on_while_nobody_leads_and_what_ended_meanwhile_counts(tmp_path: Path, backing: Backing) -> None:
    with (
        open_fleet(
            tmp_path, servers=2, workers=1, lease_s=LEASE_S, server_settings=lambda _: backing.settings()
        ) as fleet,
        fleet.connect() as client,
    ):
        runs = [
            client.submit(step, {"folder": str(tmp_path), "ms": ms}, run=f"takes-{ms}") for ms in (500, 2_000, 9_000)
        ]
        until(lambda: len(read_attempts(tmp_path)) == 3, "all three to be at work")
        for server in fleet.servers:
            server.freeze()
        # The first two end while everybody stands still; nobody can take it down.
        until(lambda: sum(each.outcome == "done" for each in read_attempts(tmp_path)) == 2, "two to end by themselves")
        for server in fleet.servers:
            server.kill()
        fleet.restart_dead()
        assert [run.result(timeout_s=60) for run in runs] == [1, 1, 1]
        attempts = read_attempts(tmp_path)
        assert [(each.starts, each.outcome) for each in attempts] == [(1, "done")] * 3
        assert {view.attempt for run in runs for view in run.tasks()} == {1}


@pytest.mark.full
def test_a_leader_that_stops_in_order_is_followed_at_once_and_nobody_is_told_of_trouble(
    tmp_path: Path, backing: Backing
) -> None:
    with (
        open_fleet(
            tmp_path, servers=2, workers=1, lease_s=LEASE_S, server_settings=lambda _: backing.settings()
        ) as fleet,
        fleet.connect() as client,
    ):
        old = fleet.until_leader()
        running = client.submit(step, {"folder": str(tmp_path), "ms": 3_000}, run="running")
        until(lambda: read_attempts(tmp_path), "it to be at work")
        old.terminate()
        assert old.ended() == 0
        new = fleet.until_leader(other_than=old, patience_s=10)
        assert running.result(timeout_s=60) == 1
        assert client.submit(step, {"folder": str(tmp_path), "ms": 1}).result(timeout_s=60) == 1
        assert [(each.starts, each.outcome) for each in read_attempts(tmp_path)] == [(1, "done")] * 2
        assert new.metric("rota_epoch") == 2


@pytest.mark.full
def test_clients_that_know_one_address_find_their_way(tmp_path: Path, postgres: Backing) -> None:
    with open_fleet(
        tmp_path, servers=2, workers=1, lease_s=LEASE_S, server_settings=lambda _: postgres.settings()
    ) as fleet:
        leader = fleet.until_leader()
        (follower,) = [server for server in fleet.servers if server is not leader]
        until(lambda: leader.http_url in (follower.get("/readyz") or (0, ""))[1], "the other one to know who leads")
        with rota.connect(follower.url) as client:
            assert client.submit(step, {"folder": str(tmp_path), "ms": 1}).result(timeout_s=30) == 1
        answer = follower.get("/api/v1/runs")
        assert answer is not None
        assert answer[0] == 503
        assert leader.http_url in answer[1]
        assert "leader.elsewhere" in answer[1]
        answer = follower.get("/leaderz")
        assert answer is not None
        assert leader.http_url in answer[1]
        assert follower.is_ready
