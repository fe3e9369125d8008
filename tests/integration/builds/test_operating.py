"""A front end as its operator sees it: metrics, and a check of what it keeps."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from rota.api.reapi.telemetry import METRICS
from tests.integration.builds.clients.service import Service, open_service
from tests.integration.builds.remote import open_remote
from tests.integration.deadlines import until
from tests.servers.ports import free_port

pytestmark = pytest.mark.full

_SAMPLE = re.compile(r"^(?P<name>\w+(?:\{.*\})?) (?P<value>\S+)$", re.MULTILINE)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with open_service(tmp_path) as one:
        yield one


def values(http: httpx.Client) -> dict[str, float]:
    answer = http.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return {each["name"]: float(each["value"]) for each in _SAMPLE.finditer(answer.text)}


def test_its_metrics_tell_what_it_did_and_how_it_stands(service: Service) -> None:
    port = free_port()
    service.up({"ROTA_BUILDS_HTTP": f"127.0.0.1:{port}"})
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as http, open_remote(service.port) as remote:
        assert http.get("/healthz").json() == {"status": "ok"}
        before = values(http)
        assert {name.partition("{")[0] for name in before} >= {metric.name for metric in METRICS}
        action = remote.action("echo here", inputs={"large": b"x" * 100_000})
        assert not remote.execute(action).response().cached_result
        assert remote.execute(action).response().cached_result
        left = remote.execute(remote.action("sleep 300")).until("executing")
        now = values(http)
        grown = {name: now[name] - before.get(name, 0) for name in now if now[name] != before.get(name, 0)}
        assert grown['rota_build_cache_lookups_total{outcome="hit"}'] == 1
        assert grown['rota_build_cache_lookups_total{outcome="miss"}'] == 2
        assert grown['rota_build_bytes_total{direction="received"}'] > 100_000
        assert grown['rota_build_bytes_total{direction="sent"}'] > 0
        assert grown["rota_content_entries"] >= 6
        assert grown["rota_content_bytes"] > 100_000
        assert now['rota_build_actions{stage="executing"}'] == now["rota_build_operations"] == 1
        assert now["rota_content_limit_bytes"] == 50 << 30
        assert grown['rota_requests_total{code="ok",method="Execute",surface="reapi"}'] == 2
        left.hang_up()
        until(lambda: values(http)["rota_build_operations"] == 0, "nobody to listen")
        # Nothing else is there, and pages of others may not look.
        assert http.get("/api/v1/runs").status_code == 404
        assert http.post("/metrics").status_code == 404
        assert http.get("/metrics", headers={"Host": "evil.example"}).status_code == 421


def test_metrics_are_shown_to_whoever_may_see_those_of_a_coordinator(service: Service) -> None:
    port = free_port()
    tokens = "reader@*:all-secret,reader:one-secret,admin:admin-secret,worker:work-secret"
    env = {"ROTA_BUILDS_HTTP": f"127.0.0.1:{port}", "ROTA_COORDINATOR_BEARER_TOKENS": tokens}
    service.up({**env, "ROTA_EXECUTOR_TASK_BEARER_TOKEN": "work-secret"})
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:
        told = {
            secret: http.get("/metrics", headers={"Authorization": f"Bearer {secret}"}).status_code
            for secret in ("all-secret", "admin-secret", "one-secret", "work-secret", "wrong")
        }
        assert told == {"all-secret": 200, "admin-secret": 200, "one-secret": 403, "work-secret": 403, "wrong": 401}
        assert http.get("/metrics").status_code == 401
        seen = http.get("/metrics", headers={"Authorization": "Bearer all-secret"}).text
        assert 'rota_auth_refusals_total{cause="auth.role"} 2.0' in seen


def test_what_it_keeps_is_checked_while_it_does_not_run(service: Service) -> None:
    up = service.up()
    with open_remote(service.port) as remote:
        remote.put(b"x" * 100_000, b"small")
    data = service.stage.folder / "server" / "builds"
    assert data.is_dir()
    busy = service.stage.run_command("frontend", "--check", f"--data={data}")
    assert (busy.returncode, b"store.held" in busy.stderr) == (3, True), busy.stderr
    up.signal(signal.SIGTERM)
    assert up.ended() == 0
    well = service.stage.run_command("frontend", "--check", f"--data={data}")
    assert (well.returncode, well.stdout) == (0, b"2 contents with 100,005 bytes, 0 damaged\n"), well.stderr
    (large,) = (path for path in (data / "blobs").rglob("*") if path.is_file() and path.stat().st_size == 100_000)
    large.chmod(0o600)
    large.write_bytes(b"y" * 100_000)
    broken = service.stage.run_command("frontend", "--check", f"--data={data}")
    assert (broken.returncode, broken.stdout) == (1, b"2 contents with 100,005 bytes, 1 damaged\n"), broken.stderr
    again = service.stage.run_command("frontend", "--check", f"--data={data}")
    assert (again.returncode, again.stdout) == (0, b"1 contents with 5 bytes, 0 damaged\n"), again.stderr
    nowhere = service.stage.run_command("frontend", "--check", f"--data={data}-not")
    assert nowhere.returncode == 3
