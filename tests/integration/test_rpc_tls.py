"""TLS on the port for gRPC: real handshakes, and what the caller is told when one fails."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

import rota
from rota.config import Secret, ServerTls
from rota.wire.places import server_credentials
from tests.integration.far import ADMIN, service, shout
from tests.refusals import refused
from tests.unit.client.ways import place_at

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
AUTHORITY = trustme.CA()
ANOTHER = trustme.CA()


def issue(name: str, authority: trustme.CA = AUTHORITY, *, expired: bool = False) -> trustme.LeafCert:
    if expired:
        return authority.issue_cert(name, not_before=datetime(2000, 1, 1, tzinfo=UTC), not_after=LONG_AGO)
    return authority.issue_cert(name)


def credentials(cert: trustme.LeafCert, client_ca: trustme.CA | None = None) -> object:
    chain = b"".join(part.bytes() for part in cert.cert_chain_pems)
    return server_credentials(
        ServerTls(
            chain, Secret(cert.private_key_pem.bytes().decode()), client_ca.cert_pem.bytes() if client_ca else None
        )
    )


def files(folder: Path, cert: trustme.LeafCert | None = None, ca: trustme.CA = AUTHORITY) -> dict[str, str]:
    """What a caller is given, as files."""
    given = {"ca": str(folder / "ca.pem")}
    ca.cert_pem.write_to_path(given["ca"])
    if cert is not None:
        given |= {"cert": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
        cert.private_key_pem.write_to_path(given["key"])
        Path(given["cert"]).write_bytes(b"".join(part.bytes() for part in cert.cert_chain_pems))
    return given


def test_both_sides_know_each_other(tmp_path: Path):
    with (
        service(tmp_path, credentials(issue("localhost"), AUTHORITY)) as far,
        rota.connect(far.url, token=ADMIN, **files(tmp_path, issue("client.example"))) as one,
    ):
        assert one.runs() == []


def test_a_certificate_does_not_replace_a_token(tmp_path: Path):
    with (
        service(tmp_path, credentials(issue("localhost"), AUTHORITY)) as far,
        pytest.raises(rota.Refused, match=r"auth\.missing"),
    ):
        rota.connect(far.url, token="", **files(tmp_path, issue("client.example")))


@pytest.mark.parametrize(
    "cert",
    [None, issue("client.example", ANOTHER)],
    ids=["none", "of another authority"],
)
def test_a_caller_whose_certificate_is_no_good_is_told_what_to_look_at(cert: trustme.LeafCert | None, tmp_path: Path):
    with (
        service(tmp_path, credentials(issue("localhost"), AUTHORITY)) as far,
        pytest.raises(rota.Unavailable, match=r"tls\.handshake: .*grpcs://.*\bcertificate\b"),
    ):
        rota.connect(far.url, token=ADMIN, **files(tmp_path, cert))


def test_a_caller_whose_own_certificate_has_expired_is_told_before_it_dials(tmp_path: Path):
    with pytest.raises(rota.Refused, match=r"tls\.expired: .*cert\.pem expired on 2001-01-01"):
        rota.connect("grpcs://localhost:1", token=ADMIN, **files(tmp_path, issue("client.example", expired=True)))


@pytest.mark.parametrize(
    ("cert", "ca", "said"),
    [
        (issue("localhost", expired=True), AUTHORITY, "its certificate has expired"),
        (issue("localhost"), ANOTHER, "its certificate is of no authority that is trusted here"),
        (issue("another.example"), AUTHORITY, "its certificate is for another name"),
    ],
    ids=["expired", "wrong authority", "wrong name"],
)
def test_a_coordinator_that_cannot_be_trusted_is_not_spoken_to(
    cert: trustme.LeafCert, ca: trustme.CA, said: str, tmp_path: Path
):
    with service(tmp_path, credentials(cert)) as far:
        with pytest.raises(rota.Refused, match=rf"tls\.handshake: .*grpcs://localhost:{far.port}.*{said}"):
            rota.connect(far.url, token=ADMIN, **files(tmp_path, ca=ca))
        assert far.counted == [], "no token was sent"


def test_one_side_with_tls_and_the_other_without_is_said(tmp_path: Path):
    with (
        service(tmp_path, credentials(issue("localhost"))) as far,
        pytest.raises(rota.Unavailable, match=r"may speak TLS only \(grpcs://\)"),
    ):
        rota.connect(far.url.replace("grpcs", "grpc"), token=ADMIN)
    with service(tmp_path) as far, refused("tls.handshake", " grpc://"):
        rota.connect(far.url.replace("grpc", "grpcs"), token=ADMIN, **files(tmp_path))


def test_handshakes_that_fail_fill_no_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    with service(tmp_path, credentials(issue("localhost"))) as far:
        for _ in range(20):
            shout(far.port, b"GET / HTTP/1.1\r\n\r\n")
        with rota.connect(far.url, token=ADMIN, **files(tmp_path)) as one:
            assert one.runs() == []
    said = capfd.readouterr()
    assert said.out + said.err == ""


def test_a_worker_comes_in_over_tls(tmp_path: Path):
    from tests.integration.test_rpc_client import adding

    given = files(tmp_path, issue("worker.example"))
    with service(tmp_path, credentials(issue("localhost"), AUTHORITY)) as far:
        far.add_worker(lambda line: None, place=place_at(far.url, **given))
        with rota.connect(far.url, token=ADMIN, **given) as one:
            assert one.submit(adding).result(timeout_s=60) == 6
