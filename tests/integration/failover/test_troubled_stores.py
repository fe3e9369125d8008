"""The store itself is restarted, stands still or is slow: nobody loses anything, and it goes on by itself."""

import signal
from pathlib import Path

import pytest

from tests.rig.backing import Backing, EtcdMembers
from tests.rig.trial import LEASE_BY_DEFAULT_S, on_trial
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.full

TROUBLE_S = 10


def test_a_store_that_is_restarted_is_found_again(tmp_path: Path, backing: Backing) -> None:
    with on_trial(tmp_path, backing, seed=9, clients=3) as trial:
        for _ in range(2):
            trial.load.until_acknowledged(8)
            trial.fleet.disturb("restart the store")
            backing.restart()
            trial.fleet.until_leader()
        trial.load.until_acknowledged(5)
        report = trial.judged()
    assert report.rerun == 0


@pytest.mark.long
def test_a_store_that_stands_still_for_ten_seconds_costs_time_only(tmp_path: Path, backing: Backing) -> None:
    with on_trial(tmp_path, backing, seed=10) as trial:
        trial.load.until_acknowledged(5)
        trial.fleet.disturb("the store stands still")
        backing.pause()
        trial.load.giving_up.wait(TROUBLE_S)
        backing.resume()
        trial.load.until_acknowledged(5)
        trial.judged()


@pytest.mark.long
def test_a_store_that_is_slow_is_waited_for(tmp_path: Path, backing: Backing) -> None:
    with (
        Proxy(backing.target) as proxy,
        on_trial(tmp_path, backing, seed=11, servers=1, proxy_of=lambda _: proxy) as trial,
    ):
        trial.load.until_acknowledged(5)
        proxy.slow(150)
        trial.load.until_acknowledged(5)
        proxy.heal()
        trial.load.until_acknowledged(5)
        report = trial.judged()
    assert report.epochs == 1, "slow is not gone"


@pytest.mark.long
@pytest.mark.parametrize(("answer_ms", "is_kept"), [(2_000, True), (4_000, False)], ids=["2 s", "4 s"])
def test_a_store_that_takes_seconds_to_answer_loses_nothing(
    tmp_path: Path, backing: Backing, answer_ms: int, is_kept: bool
) -> None:
    with (
        Proxy(backing.target) as proxy,
        on_trial(tmp_path, backing, seed=12, lease_s=LEASE_BY_DEFAULT_S, proxy_of=lambda _: proxy) as trial,
    ):
        trial.load.until_acknowledged(5)
        trial.fleet.disturb(f"the store answers after {answer_ms} ms")
        proxy.slow(answer_ms / 2)
        trial.load.giving_up.wait(TROUBLE_S)
        proxy.heal()
        trial.fleet.until_leader()
        trial.load.until_acknowledged(5)
        report = trial.judged()
    if is_kept:
        assert report.epochs == 1, "two questions fit into a term: slow is not gone"


@pytest.mark.long
def test_members_of_etcd_are_stopped_and_killed_one_after_the_other_and_nobody_is_deposed(
    tmp_path: Path, etcd_members: EtcdMembers
) -> None:
    with on_trial(tmp_path, etcd_members, seed=13, clients=3) as trial:
        for member, how in zip(etcd_members.members, (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL), strict=True):
            trial.load.until_acknowledged(4)
            trial.fleet.disturb(f"{how.name} for a member of etcd")
            member.stop(how)
            # Two of three go on without it.
            trial.load.until_acknowledged(4)
            member.start()
        trial.load.until_acknowledged(4)
        report = trial.judged()
    assert report.rerun == 0
    assert report.epochs == 1, "a member is not the cluster"
