"""Coordinators that should not start, and say why; and those that wait, and can be stopped meanwhile."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.deadlines import until
from tests.rig.backing import Backing, PostgresBacking
from tests.rig.fleet import Fleet, Server, open_fleet
from tests.servers.ports import free_port

pytestmark = pytest.mark.full


def refused(server: Server) -> str:
    """What one says that does not start."""
    server.start(wait=False)
    assert server.ended() == 3
    return server.said()


def test_one_that_does_not_see_the_blobs_of_the_others_is_refused(tmp_path: Path, backing: Backing) -> None:
    with open_fleet(tmp_path, servers=1, workers=0, server_settings=lambda _: backing.settings()) as fleet:
        elsewhere = fleet.add_server({**backing.settings(), "server.blobs": str(tmp_path / "not mounted")})
        assert "blobs.elsewhere" in refused(elsewhere)
        assert fleet.troubles() == []


def test_a_store_that_is_gone_is_not_begun_anew_beside_its_blobs(tmp_path: Path, postgres: PostgresBacking) -> None:
    with open_fleet(tmp_path, servers=1, workers=0, server_settings=lambda _: postgres.settings()) as fleet:
        fleet.servers[0].terminate()
        assert fleet.servers[0].ended() == 0
        empty = {**postgres.settings(), "server.store": postgres.server.new_database()}
        said = refused(fleet.add_server(empty))
        assert "store.missing" in said
        assert "(at server.store)" in said


def test_one_that_waits_for_its_store_can_be_stopped(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    try:
        for url in (f"postgresql://rota@127.0.0.1:{free_port()}/x", f"etcd://127.0.0.1:{free_port()}/x"):
            server = fleet.add_server({"server.store": url, "server.blobs": str(tmp_path / "blobs")})
            server.start(wait=False)
            server.until_said("store.away")
            server.terminate()
            assert server.ended(20) == 0
    finally:
        fleet.close()


def test_doctor_looks_and_makes_nothing(tmp_path: Path, backing: Backing) -> None:
    settings = {"ROTA_SERVER_STORE": backing.url, "ROTA_SERVER_BLOBS": str(backing.blobs)}

    def doctor() -> str:
        words = [sys.executable, "-m", "rota", "doctor", "--data", str(tmp_path / "data")]
        env = {**os.environ, **settings}
        return subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60).stdout  # noqa: PLW1510 - its findings are what is looked at

    empty = re.compile(r"^ok +store +(?!.*identity)", re.MULTILINE)
    assert empty.search(doctor())
    assert empty.search(doctor()), "looking has made nothing"
    assert not backing.blobs.exists()
    with open_fleet(tmp_path, servers=1, workers=0, server_settings=lambda _: backing.settings()) as fleet:
        assert f"leads, at {fleet.servers[0].url}" in doctor()


def test_strangers_are_not_told_where_the_leader_is(tmp_path: Path, postgres: Backing) -> None:
    tokens = {"ROTA_COORDINATOR_BEARER_TOKENS": "let-me-in-0123456789"}
    with open_fleet(tmp_path, servers=2, workers=0, server_settings=lambda _: postgres.settings(), env=tokens) as fleet:
        (leader,) = fleet.leaders()
        (follower,) = [server for server in fleet.servers if server is not leader]
        until(lambda: follower.is_ready, "the other one to follow")
        for path in ("/leaderz", "/readyz", "/healthz", "/api/v1/runs"):
            answer = follower.get(path)
            assert answer is not None
            assert str(leader.grpc_port) not in answer[1]
            assert str(leader.http_port) not in answer[1]
