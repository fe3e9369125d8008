"""What is not safe to start, or cannot work, is refused before anything happens: exit code 3, one line, what to do."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from rota.app.service import check_threads
from rota.config import load_config
from tests.integration.service.stage import open_stage
from tests.refusals import refused

pytestmark = pytest.mark.full

REFUSED = 3
PATIENCE_S = 60
HERE = ("--listen=127.0.0.1:0", "--http=127.0.0.1:0")
AUTHORITY = trustme.CA()


def start(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> str:
    """The one line with which a process refuses to start."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    ended = subprocess.run(
        [sys.executable, "-m", "rota", *words],
        cwd=folder,
        env={**clean, **(env or {})},
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
        text=True,
    )
    assert ended.returncode == REFUSED, ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    assert "ready:" not in ended.stderr
    return ended.stderr.splitlines()[-1]


def write_files(folder: Path, leaf: trustme.LeafCert) -> dict[str, str]:
    """A certificate and its key, as `[tls]` names them."""
    (folder / "cert.pem").write_bytes(b"".join(part.bytes() for part in leaf.cert_chain_pems))
    leaf.private_key_pem.write_to_path(str(folder / "key.pem"))
    return {"ROTA_TLS_CERT": "cert.pem", "ROTA_TLS_KEY": "key.pem"}


@pytest.mark.parametrize(
    "words",
    [("server", "--listen=0.0.0.0:0", HERE[1]), ("up", HERE[0], "--http=[::]:0")],
    ids=["server with grpc", "up with http"],
)
def test_ports_for_other_machines_are_not_opened_without_tokens(tmp_path: Path, words: tuple[str, ...]):
    said = start(tmp_path, *words)
    assert said.startswith("rota: auth.exposed: ")
    assert "Set ROTA_COORDINATOR_BEARER_TOKENS or auth.token_file, or listen on 127.0.0.1." in said
    assert list(tmp_path.iterdir()) == [], "nothing was made"


@pytest.mark.parametrize("missing", ["ROTA_TLS_CERT", "ROTA_TLS_KEY"])
def test_half_of_tls_is_not_tls(tmp_path: Path, missing: str):
    files = write_files(tmp_path, AUTHORITY.issue_cert("localhost"))
    del files[missing]
    said = start(tmp_path, "server", *HERE, env=files)
    assert said.startswith("rota: tls.files: [tls] ")
    assert not (tmp_path / ".rota").exists()


def test_authorities_for_clients_without_a_certificate_are_half_of_tls_too(tmp_path: Path):
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    said = start(tmp_path, "server", *HERE, env={"ROTA_TLS_CLIENT_CA": "ca.pem"})
    assert said.startswith("rota: tls.files: [tls] is half configured")


def test_a_certificate_that_has_expired_is_named_with_its_date(tmp_path: Path):
    old = AUTHORITY.issue_cert(
        "localhost", not_before=datetime(2000, 1, 1, tzinfo=UTC), not_after=datetime(2001, 1, 1, tzinfo=UTC)
    )
    said = start(tmp_path, "server", *HERE, env=write_files(tmp_path, old))
    assert said.startswith("rota: tls.expired: cert.pem expired on 2001-01-01 00:00 UTC (at tls.cert)")


def test_a_key_of_another_certificate_is_named(tmp_path: Path):
    files = write_files(tmp_path, AUTHORITY.issue_cert("localhost"))
    AUTHORITY.issue_cert("localhost").private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    said = start(tmp_path, "server", *HERE, env=files)
    assert re.match(r"rota: tls\.files: .*\bkey\.pem\b.*\bcert\.pem\b", said)


@pytest.mark.parametrize("command", ["server", "worker"])
def test_a_setting_that_does_not_exist_is_answered_with_the_nearest_that_does(tmp_path: Path, command: str):
    (tmp_path / "rota.toml").write_text('[server]\ndata = "d"\nlissten = "127.0.0.1:0"\n')
    said = start(tmp_path, command)
    assert re.match(r"rota: config\.unknown: .*'server\.lissten'.*'listen'.*\brota\.toml:3\b", said)


def test_a_token_in_the_file_of_settings_is_refused_and_not_shown(tmp_path: Path):
    (tmp_path / "rota.toml").write_text('[auth]\ntokens = "very-secret"\n')
    said = start(tmp_path, "server", *HERE)
    assert "auth.tokens" in said
    assert "very-secret" not in said


@pytest.mark.parametrize("which", [0, 1], ids=["grpc", "http"])
def test_a_port_that_somebody_has_is_named(tmp_path: Path, which: int):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        taken = f"127.0.0.1:{one.getsockname()[1]}"
        ports = ["--listen=127.0.0.1:0", "--http=127.0.0.1:0"]
        ports[which] = ports[which].replace("127.0.0.1:0", taken)
        said = start(tmp_path, "server", *ports)
    assert said.startswith(f"rota: listen.failed: {taken} ")


def test_a_folder_that_another_process_holds_is_not_shared(tmp_path: Path):
    with open_stage(tmp_path) as stage:
        server = stage.start_server()
        said = start(tmp_path, "server", f"--data={server.folder}", *HERE)
        assert said.startswith("rota: store.held: ")
        assert str(server.pid) in said
        assert stage.client().runs() == [], "the holder is not disturbed"


def test_a_worker_that_does_not_know_for_whom_is_told_how_to_say_so(tmp_path: Path):
    said = start(tmp_path, "worker")
    assert said.startswith("rota: config.value: ")
    assert "ROTA_COORDINATOR" in said


@pytest.mark.parametrize(
    "variable",
    [
        "ROTA_EXECUTOR_TASK_BEARER_TOKEN",
        "ROTA_EXECUTOR_TASK_BEARER_TOKEN_FILE",
        "ROTA_COORDINATOR_BEARER_TOKEN",
        "ROTA_COORDINATOR_BEARER_TOKENS",
        "ROTA_COORDINATOR_BEARER_TOKEN_FILE",
    ],
)
def test_every_way_to_give_a_token_keeps_user_code_out_of_this_memory(variable: str):
    with refused("config.value", path="worker.threads"):
        check_threads(load_config({"worker.threads": True}, {variable: "given"}))


def test_user_code_does_not_share_the_memory_of_tokens(tmp_path: Path):
    given = {"ROTA_EXECUTOR_TASK_BEARER_TOKEN": "very-secret"}
    said = start(tmp_path, "worker", "--threads", "--coordinator=grpc://127.0.0.1:1", env=given)
    assert re.match(r"rota: config\.value: .*\bthreads\b.*\bmemory\b", said)
    assert "secret" not in said
    assert not (tmp_path / ".rota-worker").exists(), "it was refused before anything was made"


def test_everything_in_one_process_does_not_share_the_memory_of_tokens_either(tmp_path: Path):
    said = start(tmp_path, "up", "--threads", *HERE, env={"ROTA_COORDINATOR_BEARER_TOKENS": "very-secret"})
    assert re.match(r"rota: config\.value: .*\bthreads\b", said)
    assert not (tmp_path / ".rota").exists()


def test_a_worker_whose_blobs_are_elsewhere_is_refused(tmp_path: Path):
    (tmp_path / "another").mkdir()
    with open_stage(tmp_path) as stage:
        stage.start_server()
        words = ("worker", f"--coordinator={stage.url}", "--data=w")
        for place in ("another", "missing"):
            said = start(tmp_path, *words, env={"ROTA_SERVER_BLOBS": str(tmp_path / place)})
            assert said.startswith("rota: blobs.elsewhere: ")
            assert str(tmp_path / place) in said
        assert stage.client().workers() == ()
