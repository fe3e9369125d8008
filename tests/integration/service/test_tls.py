"""TLS and mutual TLS on the whole service, with real handshakes: server, worker, client, command line and HTTP."""

import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme

import rota
from tests.integration.service import tasks
from tests.integration.service.stage import Stage

pytestmark = pytest.mark.full

PATIENCE_S = 60
UNAVAILABLE = 4
AUTHORITY, ANOTHER = trustme.CA(), trustme.CA()
# Where the other side is of an authority that `ca` does not name.
NOT_TRUSTED = r"tls\.handshake: .*\bca\b"


def write_leaf(folder: Path, name: str, authority: trustme.CA, identity: str) -> None:
    """A certificate and its key."""
    leaf = authority.issue_cert(identity)
    (folder / f"{name}.pem").write_bytes(b"".join(part.bytes() for part in leaf.cert_chain_pems))
    leaf.private_key_pem.write_to_path(str(folder / f"{name}.key"))


class Secured(Stage):
    """A service that speaks TLS; whoever calls it has its settings in a file."""

    def __init__(self, folder: Path, *, mutual: bool) -> None:
        super().__init__(folder)
        AUTHORITY.cert_pem.write_to_path(str(folder / "ca.pem"))
        ANOTHER.cert_pem.write_to_path(str(folder / "another-ca.pem"))
        write_leaf(folder, "server", AUTHORITY, "127.0.0.1")
        write_leaf(folder, "caller", AUTHORITY, "caller.example")
        write_leaf(folder, "stranger", ANOTHER, "stranger.example")
        wanted = 'client_ca = "ca.pem"\n' if mutual else ""
        (folder / "server.toml").write_text(f'[tls]\ncert = "server.pem"\nkey = "server.key"\n{wanted}')
        self.settings("known", 'ca = "ca.pem"\ncert = "caller.pem"\nkey = "caller.key"\n')
        self.settings("bare", 'ca = "ca.pem"\n')
        self.settings("stranger", 'ca = "ca.pem"\ncert = "stranger.pem"\nkey = "stranger.key"\n')
        self.settings("trusts-another", 'ca = "another-ca.pem"\ncert = "caller.pem"\nkey = "caller.key"\n')

    def settings(self, name: str, text: str) -> None:
        (self.folder / f"{name}.toml").write_text(f"[client]\n{text}")

    @property
    def url(self) -> str:
        return f"grpcs://127.0.0.1:{self.grpc_port}"

    def connect(self, **files: str) -> rota.Rota:
        return rota.connect(self.url, **{name: str(self.folder / file) for name, file in files.items()})

    def work(self, name: str, settings: str, *, wait: bool = True, scheme: str = "grpcs"):
        url = f"{scheme}://127.0.0.1:{self.grpc_port}"
        more = (f"--coordinator={url}", f"--config={settings}.toml")
        return self.start_worker(name, *more, wait=wait)

    def command(self, settings: str, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "rota", *words],
            cwd=self.folder,
            env={**self.env, "ROTA_COORDINATOR": self.url, "ROTA_CONFIG": f"{settings}.toml"},
            capture_output=True,
            check=False,
            text=True,
            timeout=PATIENCE_S,
        )

    def https(self, cert: str = "") -> httpx.Client:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        if cert:
            context.load_cert_chain(self.folder / f"{cert}.pem", self.folder / f"{cert}.key")
        return httpx.Client(base_url=f"https://127.0.0.1:{self.http_port}", verify=context, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    stage = Secured(tmp_path_factory.mktemp("mutual"), mutual=True)
    try:
        stage.start_server("--config=server.toml")
        yield stage
    finally:
        stage.close()


def test_whoever_has_a_certificate_comes_in_everywhere(mutual: Secured, tmp_path: Path):
    mutual.work("welcome", "known")
    with mutual.connect(ca="ca.pem", cert="caller.pem", key="caller.key") as client:
        run = client.submit(tasks.step, {"folder": str(tmp_path)}, run="secured")
        assert run.wait(PATIENCE_S).state == "success"
    listed = mutual.command("known", "runs")
    assert listed.returncode == 0, listed.stderr
    assert "secured" in listed.stdout
    with mutual.https("caller") as client:
        assert client.get("/healthz").json()["status"] == "ok"


def test_a_client_without_a_certificate_of_the_authority_does_not_come_in(mutual: Secured):
    for files in ({}, {"cert": "stranger.pem", "key": "stranger.key"}):
        with pytest.raises(rota.Unavailable, match=r"tls\.handshake: .*grpcs://.*\bcertificate\b"):
            mutual.connect(ca="ca.pem", **files)


def test_a_command_without_one_says_what_to_look_at(mutual: Secured):
    for settings in ("bare", "stranger"):
        ended = mutual.command(settings, "runs")
        assert ended.returncode == UNAVAILABLE
        assert re.search(r"tls\.handshake: .*grpcs://.*\bcertificate\b", ended.stderr)
        assert "Traceback" not in ended.stderr


def test_a_worker_without_one_says_so_and_waits(mutual: Secured):
    for settings in ("bare", "stranger"):
        worker = mutual.work(f"worker-{settings}", settings, wait=False)
        worker.until_said("tls.handshake")
        assert re.search(r'"tls\.handshake".*\bgrpcs://.*\bcertificate\b', worker.said())
        worker.signal(15)
        assert worker.ended() == 0


def test_http_without_one_is_no_conversation(mutual: Secured):
    for cert in ("", "stranger"):
        with mutual.https(cert) as client, pytest.raises((httpx.ReadError, httpx.RemoteProtocolError, ssl.SSLError)):
            client.get("/healthz")
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{mutual.http_port}/healthz", timeout=PATIENCE_S)


def test_a_coordinator_that_is_not_trusted_is_sent_nothing(mutual: Secured):
    with pytest.raises(rota.Refused, match=NOT_TRUSTED):
        mutual.connect(ca="another-ca.pem", cert="caller.pem", key="caller.key")
    ended = mutual.command("trusts-another", "runs")
    assert ended.returncode == 3
    assert re.search(NOT_TRUSTED, ended.stderr)
    worker = mutual.work("distrustful", "trusts-another", wait=False)
    assert worker.ended() == 3
    assert re.search(NOT_TRUSTED, worker.said())


def test_whoever_speaks_no_tls_is_told(mutual: Secured):
    with pytest.raises(rota.Unavailable, match=r"may speak TLS only \(grpcs://\)"):
        rota.connect(f"grpc://127.0.0.1:{mutual.grpc_port}")


def test_without_an_authority_for_clients_only_the_server_shows_a_certificate(tmp_path: Path):
    stage = Secured(tmp_path, mutual=False)
    try:
        stage.start_server("--config=server.toml")
        stage.work("bare", "bare")
        with stage.connect(ca="ca.pem") as client:
            assert client.submit(tasks.step, {"folder": str(tmp_path)}).wait(PATIENCE_S).state == "success"
        assert stage.command("bare", "runs").returncode == 0
        with stage.https() as client:
            assert client.get("/healthz").json()["status"] == "ok"
        with pytest.raises(rota.Refused, match=NOT_TRUSTED):
            stage.connect()
    finally:
        stage.close()
