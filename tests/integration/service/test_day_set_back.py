"""A machine whose day is set back while it serves: tokens are read again as before, and lines are written."""

import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import rota
from rota.app.service import start_service
from rota.client.threads import LoopThread
from rota.config import load_config
from tests.integration.deadlines import until

HOUR_NS = 3_600 * 10**9


def is_accepted(url: str, token: str) -> bool:
    try:
        rota.connect(url, token=token).close()
    except rota.Refused:
        return False
    return True


def test_tokens_are_reloaded_and_refusals_written_though_the_day_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    tokens = tmp_path / "tokens"
    tokens.write_text("admin:old-secret\n")
    given = {"server.data": str(tmp_path / "data"), "server.listen": "127.0.0.1:0", "server.http": ""}
    config = load_config(given, {"ROTA_COORDINATOR_BEARER_TOKEN_FILE": str(tokens)})
    parts, thread = AsyncExitStack(), LoopThread()
    try:
        service = thread.call(start_service(parts, config, with_worker=False))
        assert is_accepted(service.grpc, "old-secret")
        for _ in range(12):
            assert not is_accepted(service.grpc, "wrong-secret")
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() - HOUR_NS)
        tokens.write_text("admin:new-secret\n")
        until(lambda: is_accepted(service.grpc, "new-secret"), "the new token to count")
        assert not is_accepted(service.grpc, "old-secret")
    finally:
        thread.call(parts.aclose())
        thread.stop()
    said = capsys.readouterr().err
    assert '"auth.reloaded"' in said
    assert "secret" not in said
