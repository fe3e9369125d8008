"""The store itself is restarted, stands still or is slow: nobody loses anything, and it goes on by itself."""

import signal
from pathlib import Path

import pytest

from tests.rig.backing import Backing, EtcdClusterBacking
from tests.rig.fleet import Fleet, open_fleet
from tests.rig.history import Report, judge
from tests.rig.ledger import ledger_at
from tests.rig.load import Load, definitions
from tests.servers.proxy import Proxy

LEASE_S = 20
# With a term of 5 s.
LEASE_BY_DEFAULT_S = 30


def judged(fleet: Fleet, load: Load) -> Report:
    load.finish()
    report = judge(load.history(ledger_at(fleet.url), fleet.disturbances)).must_hold()
    assert fleet.troubles() == []
    return report


def test_a_store_that_is_restarted_is_found_again(tmp_path: Path, backing: Backing) -> None:
    with open_fleet(
        tmp_path, servers=2, lease_s=LEASE_S, definitions=definitions(), server_settings=lambda _: backing.settings()
    ) as fleet:
        load = Load(fleet.url, str(tmp_path), seed=9, clients=3).start()
        try:
            for _ in range(2):
                load.until_acknowledged(8)
                fleet.disturb("restart the store")
                backing.restart()
                fleet.until_leader()
            load.until_acknowledged(5)
            report = judged(fleet, load)
        finally:
            load.close()
    assert report.rerun == 0


@pytest.mark.long
def test_a_store_that_stands_still_for_ten_seconds_costs_time_only(tmp_path: Path, backing: Backing) -> None:
    with open_fleet(
        tmp_path, servers=2, lease_s=LEASE_S, definitions=definitions(), server_settings=lambda _: backing.settings()
    ) as fleet:
        load = Load(fleet.url, str(tmp_path), seed=10, clients=2).start()
        try:
            load.until_acknowledged(5)
            fleet.disturb("the store stands still")
            backing.pause()
            load.giving_up.wait(10)
            backing.resume()
            load.until_acknowledged(5)
            judged(fleet, load)
        finally:
            load.close()


def test_a_store_that_is_slow_is_waited_for(tmp_path: Path, backing: Backing) -> None:
    with (
        Proxy(backing.target) as proxy,
        open_fleet(
            tmp_path,
            lease_s=LEASE_S,
            definitions=definitions(),
            server_settings=lambda _: backing.settings(proxy),
        ) as fleet,
    ):
        load = Load(fleet.url, str(tmp_path), seed=11, clients=2).start()
        try:
            load.until_acknowledged(5)
            proxy.slow(150)
            load.until_acknowledged(5)
            proxy.heal()
            load.until_acknowledged(5)
            report = judged(fleet, load)
        finally:
            load.close()
    assert report.epochs == 1, "slow is not gone"


@pytest.mark.parametrize(
    ("round_ms", "is_kept"),
    [
        pytest.param(2_000, True, id="2 s", marks=pytest.mark.long),
        pytest.param(4_000, False, id="4 s", marks=pytest.mark.long),
    ],
)
def test_an_etcd_that_takes_seconds_to_answer_loses_nothing(
    tmp_path: Path, etcd: Backing, round_ms: int, is_kept: bool
) -> None:
    with (
        Proxy(etcd.target) as proxy,
        open_fleet(
            tmp_path,
            servers=2,
            lease_s=LEASE_BY_DEFAULT_S,
            definitions=definitions(),
            server_settings=lambda _: etcd.settings(proxy),
        ) as fleet,
    ):
        load = Load(fleet.url, str(tmp_path), seed=12, clients=2).start()
        try:
            load.until_acknowledged(5)
            fleet.disturb(f"the store answers after {round_ms} ms")
            proxy.slow(round_ms / 2)
            load.giving_up.wait(10)
            proxy.heal()
            load.until_acknowledged(5)
            report = judged(fleet, load)
        finally:
            load.close()
    if is_kept:
        assert report.epochs == 1, "two questions fit into a term: slow is not gone"


def test_members_of_etcd_are_stopped_and_killed_one_after_the_other_and_nobody_is_deposed(
    tmp_path: Path, etcd_members: EtcdClusterBacking
) -> None:
    with open_fleet(
        tmp_path,
        servers=2,
        lease_s=LEASE_S,
        definitions=definitions(),
        server_settings=lambda _: etcd_members.settings(),
    ) as fleet:
        load = Load(fleet.url, str(tmp_path), seed=13, clients=3).start()
        try:
            for member, how in zip(etcd_members.members, (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL), strict=True):
                load.until_acknowledged(4)
                fleet.disturb(f"{how.name} for a member of etcd")
                member.stop(how)
                # Two of three go on without it.
                load.until_acknowledged(4)
                member.start()
            load.until_acknowledged(4)
            report = judged(fleet, load)
        finally:
            load.close()
    assert report.rerun == 0
    assert report.epochs == 1, "a member is not the cluster"
