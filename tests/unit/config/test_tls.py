"""Certificates are checked before anybody relies on them, and what cannot be used is refused, never left out."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from rota.config.settings import ClientSide, Tls
from rota.config.tls import read_client_tls, read_server_tls
from rota.core.errors import Refused

NOW = time.time_ns() // 1_000_000
DAY_MS = 24 * 3_600_000


class Files:
    """An authority, and certificates of it in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = self.write("ca.pem", self.authority.cert_pem.bytes())

    def write(self, name: str, content: bytes) -> str:
        (self.folder / name).write_bytes(content)
        return str(self.folder / name)

    def issue(self, name: str, days: float = 2) -> tuple[str, str]:
        until = datetime.now(UTC) + timedelta(days=days)
        issued = self.authority.issue_cert("localhost", not_after=until)
        chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
        return self.write(f"{name}.pem", chain), self.write(f"{name}.key", issued.private_key_pem.bytes())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def refusal(tls: Tls | ClientSide, now: int = NOW) -> Refused:
    with pytest.raises(Refused) as caught:
        if isinstance(tls, Tls):
            read_server_tls(tls, now)
        else:
            read_client_tls(tls, now)
    return caught.value


def test_nothing_configured_is_no_tls():
    assert read_server_tls(Tls(), NOW) is None
    assert read_client_tls(ClientSide(), NOW).ca is None


def test_a_certificate_with_its_key_and_an_authority_can_be_used(files: Files):
    cert, key = files.issue("server")
    served = read_server_tls(Tls(cert=cert, key=key, client_ca=files.ca), NOW)
    assert served is not None
    assert served.cert == Path(cert).read_bytes()
    assert served.key.reveal().encode() == Path(key).read_bytes()
    assert served.client_ca == Path(files.ca).read_bytes()
    assert "PRIVATE" not in repr(served)
    mine = read_client_tls(ClientSide(ca=files.ca, cert=cert, key=key), NOW)
    assert (mine.ca, mine.cert) == (served.client_ca, served.cert)


@pytest.mark.parametrize("given", [("cert",), ("key",), ("client_ca",), ("cert", "client_ca"), ("key", "client_ca")])
def test_half_a_configuration_is_refused(files: Files, given: tuple[str, ...]):
    cert, key = files.issue("server")
    named = {"cert": cert, "key": key, "client_ca": files.ca}
    refused = refusal(Tls(**{name: named[name] for name in given}))
    assert refused.code == "tls.files"
    assert "half configured" in refused.reason


@pytest.mark.parametrize("given", ["cert", "key"])
def test_half_a_pair_of_a_client_is_refused(files: Files, given: str):
    cert, key = files.issue("client")
    refused = refusal(ClientSide(**{given: {"cert": cert, "key": key}[given]}))
    assert "half configured" in refused.reason


@pytest.mark.parametrize("name", ["cert", "key", "client_ca"])
def test_a_file_that_is_not_there_is_refused_and_never_taken_for_no_tls(files: Files, name: str):
    cert, key = files.issue("server")
    named = {"cert": cert, "key": key, "client_ca": files.ca, name: str(files.folder / "gone.pem")}
    refused = refusal(Tls(**named))
    assert (refused.code, refused.path) == ("tls.files", f"tls.{name}")
    assert "gone.pem" in refused.reason and "No such file" in refused.reason


@pytest.mark.parametrize("name", ["cert", "key", "client_ca"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n",
    ],
)
def test_a_file_that_holds_nothing_of_use_is_refused(files: Files, name: str, content: bytes):
    cert, key = files.issue("server")
    named = {"cert": cert, "key": key, "client_ca": files.ca, name: files.write("odd.pem", content)}
    assert refusal(Tls(**named)).code == "tls.files"


def test_a_key_of_another_certificate_is_refused(files: Files):
    cert, _ = files.issue("one")
    _, key = files.issue("two")
    refused = refusal(Tls(cert=cert, key=key))
    assert (refused.code, refused.path) == ("tls.files", "tls.key")
    assert "two.key" in refused.reason and "one.pem" in refused.reason


def test_an_encrypted_key_is_refused_instead_of_asked_about(files: Files):
    cert, _ = files.issue("one")
    key = files.write(
        "locked.key", b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    assert "is encrypted" in refusal(Tls(cert=cert, key=key)).reason


def test_a_certificate_that_is_over_or_has_not_begun_is_refused(files: Files):
    cert, key = files.issue("server", days=2)
    assert read_server_tls(Tls(cert=cert, key=key), NOW) is not None
    late = refusal(Tls(cert=cert, key=key), NOW + 3 * DAY_MS)
    assert late.code == "tls.expired"
    day = (datetime.now(UTC) + timedelta(days=2)).strftime("%Y-%m-%d")
    assert f"server.pem expired on {day}" in late.reason
    early = refusal(Tls(cert=cert, key=key), 0)
    assert (early.code, early.path, "server.pem" in early.reason) == ("tls.expired", "tls.cert", True)
    assert day not in early.reason
    assert "clock" in early.hint


def test_a_bundle_of_authorities_is_refused_only_when_all_of_them_are_over(files: Files):
    cert, key = files.issue("server")
    over, _ = files.issue("over", days=-1)
    bundle = files.write("bundle.pem", Path(over).read_bytes() + Path(files.ca).read_bytes())
    assert read_server_tls(Tls(cert=cert, key=key, client_ca=bundle), NOW) is not None
    refused = refusal(Tls(cert=cert, key=key, client_ca=over))
    assert (refused.code, refused.path) == ("tls.expired", "tls.client_ca")


def test_dates_after_2049_are_read_too(files: Files):
    cert, key = files.issue("server", days=365 * 40)
    assert read_server_tls(Tls(cert=cert, key=key), NOW) is not None
    assert refusal(Tls(cert=cert, key=key), NOW + 365 * 41 * DAY_MS).code == "tls.expired"
