"""A front end as a process: what it loads, beside whom it runs, and when it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.builds.clients.service import Service, open_service
from tests.integration.builds.remote import open_remote
from tests.integration.deadlines import is_running, until

pytestmark = pytest.mark.full


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with open_service(tmp_path) as one:
        yield one


def test_it_loads_nothing_of_what_only_a_coordinator_needs() -> None:
    """Clients have little patience with one that is started again, and most of a start is loading code."""
    line = "import sys, rota.cli.frontend, rota.app.frontend; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, check=True, text=True)
    loaded = done.stdout.split()
    assert "rota.api.reapi.server" in loaded
    assert not {
        "rota.app.embedded",
        "rota.app.hosting",
        "rota.app.working",
        "uvicorn",
        "prometheus_client",
        "datafusion",
    } & {*loaded}


def test_without_a_coordinator_it_is_told_what_is_missing(service: Service) -> None:
    done = service.stage.run_command("frontend", "--coordinator=", f"--listen=127.0.0.1:{service.port}")
    assert done.returncode == 3
    assert b"client.coordinator" in done.stderr


def test_it_is_started_again_when_it_dies_and_ends_with_whoever_it_is_beside(service: Service) -> None:
    up = service.up()
    first = service.front_end_of(up)
    os.kill(first, signal.SIGKILL)
    up.until_said("frontend.ended")
    second = until(lambda: next(iter({service.front_end_of(up)} - {first}), 0), "the next one")
    up.kill()
    until(lambda: not is_running(second), "it to notice")
    # Neither port nor folder is taken any more.
    service.up()
    with open_remote(service.port) as remote:
        assert remote.execute(remote.action("echo here")).response().result.stdout_raw == b"here\n"


def test_an_orderly_stop_ends_it_before_its_coordinator(service: Service) -> None:
    up = service.up()
    front = service.front_end_of(up)
    with open_remote(service.port) as remote:
        assert remote.execute(remote.action("echo here")).response().result.stdout_raw == b"here\n"
    up.signal(signal.SIGTERM)
    assert up.ended() == 0
    assert not is_running(front)
    assert "no coordinator" not in up.said()
