"""Bazel and tokens: who may build, who may only look, and who is sent away."""

from collections.abc import Iterator

import pytest

from tests.integration.builds.clients.bazel import DONE, REMOTE_FAILED, Bazel
from tests.integration.builds.clients.service import Service, open_service

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("bazel")]
TOKENS = "writer:write-secret,reader:read-secret,writer@elsewhere:other-secret,worker:work-secret"

# Each tenant has queues of its own.
QUEUE_ELSEWHERE = """
[queues.elsewhere]
tenant = "elsewhere"
name = "builds"
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that lets nobody in without a token, its own worker neither."""
    env = {"ROTA_COORDINATOR_BEARER_TOKENS": TOKENS, "ROTA_EXECUTOR_TASK_BEARER_TOKEN": "work-secret"}
    with open_service(tmp_path_factory.mktemp("guarded"), QUEUE_ELSEWHERE, env) as service:
        service.stage.token = "read-secret"
        service.up(env={"ROTA_WORKER_BUILD_CONTENT": f"grpc://127.0.0.1:{service.port}"})
        yield service


def _build(bazel: Bazel, service: Service, secret: str, target: str = "//many:g2") -> tuple[int, str]:
    header = [f"--remote_header=authorization=Bearer {secret}"] if secret else []
    # Bazel asks once what the server can do, and knows for that server from then on; a clean one asks anew.
    bazel.clean()
    done = bazel.run("build", target, service.executor, "--remote_retries=0", *header)
    return done.code, done.said


def test_a_writer_builds(bazel: Bazel, guarded: Service) -> None:
    code, said = _build(bazel, guarded, "write-secret")
    assert code == DONE, said
    assert guarded.runs()[0].tenant == "default"


@pytest.mark.parametrize("secret", ["", "wrong-secret"])
def test_nobody_gets_in_without_a_token_that_is_accepted(bazel: Bazel, guarded: Service, secret: str) -> None:
    before = len(guarded.runs())
    code, said = _build(bazel, guarded, secret)
    assert code == REMOTE_FAILED
    assert "UNAUTHENTICATED" in said
    assert secret not in said or not secret
    assert len(guarded.runs()) == before


@pytest.mark.long
@pytest.mark.parametrize("secret", ["read-secret", "work-secret"])
def test_a_reader_and_a_worker_may_not_build(bazel: Bazel, guarded: Service, secret: str) -> None:
    before = len(guarded.runs())
    code, said = _build(bazel, guarded, secret, "//many:g3")
    assert code == REMOTE_FAILED
    # Of what it could not send, Bazel says no more than how much it was.
    assert "PERMISSION_DENIED" in said or "errors during bulk transfer" in said
    assert any('"auth.refused"' in process.said() for process in guarded.stage.processes), "the journal says more"
    assert len(guarded.runs()) == before


@pytest.mark.long
def test_tenants_do_not_find_each_other_s_results(bazel: Bazel, guarded: Service) -> None:
    for secret in ("write-secret", "other-secret"):
        code, said = _build(bazel, guarded, secret, "//many:g4")
        assert code == DONE, said
        assert "1 remote" in said
        assert "cache hit" not in said
