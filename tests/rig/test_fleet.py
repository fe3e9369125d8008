"""The fleet itself: processes start, are found, die, come back and leave nothing behind. Its store is a folder."""

from pathlib import Path

import pytest

from tests.integration.deadlines import is_running, until
from tests.rig.fleet import open_fleet
from tests.rig.history import History, judge
from tests.rig.journal import read_attempts
from tests.rig.ledger import ledger_at
from tests.rig.tasks import step
from tests.servers.etcd import shared_server

pytestmark = pytest.mark.full

HOUR_MS = 3_600_000


def test_whoever_leads_is_found_killed_and_started_again(tmp_path: Path):
    with open_fleet(tmp_path, workers=1) as fleet:
        (server,) = fleet.leaders()
        assert server.is_ready
        assert server.metric("rota_is_leader") == 1
        server.kill()
        assert fleet.leaders() == []
        assert fleet.restart_dead() == [server]
        assert fleet.until_leader() is server
        assert [each.what for each in fleet.disturbances] == ["kill server-1", "restart server-1"]
        fleet.until_ready()
        pids = [member.pid for member in fleet.members]
        families = [pid for member in fleet.members for pid in (member.process.descendants() if member.process else [])]
        assert fleet.troubles() == []
        assert set(fleet.said()) == {"server-1", "worker-1"}
    assert not any(is_running(pid) for pid in (*pids, *families))


def test_one_that_stands_still_does_not_lead_and_goes_on_when_it_is_let(tmp_path: Path):
    with open_fleet(tmp_path, workers=0) as fleet:
        (server,) = fleet.servers
        server.freeze()
        assert not server.leads
        server.thaw()
        assert fleet.until_leader() is server
        server.terminate()
        assert server.ended() == 0


def test_settings_definitions_and_work_reach_the_processes(tmp_path: Path):
    pools = '[pools."narrow"]\nslots = 2\n'
    with (
        open_fleet(
            tmp_path, workers=1, slots=3, definitions=pools, server_settings=lambda n: {"server.keep_days": n}
        ) as fleet,
        fleet.connect() as client,
    ):
        (pool,) = client.pools()
        assert (pool.pool.name, pool.pool.slots) == ("narrow", 2)
        until(lambda: [each.capacity.slots for each in client.workers()] == [3], "the worker to be there")
        assert client.submit(step, {"folder": str(tmp_path), "ms": 1, "before": 4}).result(timeout_s=30) == 5


def test_the_day_of_one_server_can_be_set_while_it_runs(tmp_path: Path):
    with open_fleet(tmp_path, workers=1) as fleet, fleet.connect() as client:
        (server,) = fleet.servers
        before = client.submit(step, {"folder": str(tmp_path), "ms": 1}, run="before").wait(30)
        server.set_clock(-HOUR_MS)
        server.kill()
        server.start()
        after = client.submit(step, {"folder": str(tmp_path), "ms": 1}, run="after").wait(30)
        assert after.state == "success"
        assert before.created_at - after.created_at > HOUR_MS // 2, "a new life takes the day from its clock"


def test_of_two_servers_with_one_store_the_other_leads_when_the_first_is_killed(tmp_path: Path):
    url = shared_server().url()

    def settings(number: int) -> dict[str, str]:
        return {"server.store": url, "server.blobs": str(tmp_path / "blobs")}

    with open_fleet(tmp_path, servers=2, workers=1, server_settings=settings) as fleet:
        fleet.until_ready()
        first = fleet.until_leader()
        (second,) = [server for server in fleet.servers if server is not first]
        assert not second.leads
        with fleet.connect() as client:
            held = client.submit(step, {"folder": str(tmp_path), "ms": 3_000}, run="held")
            until(lambda: read_attempts(tmp_path), "the work to begin")
            first.kill()
            assert fleet.until_leader(other_than=first) is second
            assert held.result(timeout_s=60) == 1
        report = judge(History(ledger=ledger_at(fleet.url), attempts=read_attempts(tmp_path)))
        assert fleet.restart_dead() == [first]
        assert fleet.leaders() == [second]
        assert fleet.troubles() == []
    assert (report.must_hold().runs, report.attempts, report.rerun) == (1, 1, 0), "it was kept, and counted once"
