"""Where a coordinator is: what is understood, and what is refused with a reason."""

from pathlib import Path

import pytest

from rota.core.errors import Refused
from rota.wire.places import Certificates, Place, read_place

PEM = "-----BEGIN CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("grpc://host:1234", Place("grpc://host:1234", "host:1234")),
        ("grpc://host", Place("grpc://host:7433", "host:7433")),
        ("grpc://host:1234/", Place("grpc://host:1234", "host:1234")),
        ("grpc://[::1]:99", Place("grpc://[::1]:99", "[::1]:99")),
        ("grpcs://host", Place("grpcs://host:7433", "host:7433", Certificates())),
    ],
)
def test_a_host_and_a_port_are_enough(url: str, place: Place):
    assert read_place(url) == place


@pytest.mark.parametrize(
    "url",
    ["", "host:1234", "http://host", "grpc://", "grpc://host:port", "grpc://host:99999", "grpc://[::1", "grpc:///path"],
)
def test_what_is_no_address_is_refused_with_an_example(url: str):
    with pytest.raises(Refused, match=r"is not the address of a coordinator.*grpcs://host:7433 for TLS") as caught:
        read_place(url)
    assert caught.value.path == "url"


@pytest.mark.parametrize("url", ["grpc://me:secret@host", "http://me:secret@host", "grpc://host/a", "grpc://host?a=b"])
def test_what_else_an_address_says_is_not_ignored_nor_shown(url: str):
    with pytest.raises(Refused) as caught:
        read_place(url)
    assert "secret" not in str(caught.value)


def test_certificates_are_read_where_they_are_used(tmp_path: Path):
    ca, cert, key = (tmp_path / name for name in ("ca", "cert", "key"))
    for file in (ca, cert, key):
        file.write_text(PEM + file.name)
    given = {"ca": str(ca), "cert": str(cert), "key": str(key)}
    place = read_place("grpcs://host", **given)
    assert place.certificates == Certificates(*(f"{PEM}{name}".encode() for name in given))
    with pytest.raises(Refused, match=r"tls\.files: certificates are not used with grpc://host"):
        read_place("grpc://host", ca=str(ca))
    with pytest.raises(Refused, match="there is no key"):
        read_place("grpcs://host", cert=str(cert))
    with pytest.raises(Refused, match="there is no cert"):
        read_place("grpcs://host", key=str(key))


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path):
    with pytest.raises(Refused, match=r"gone\.pem cannot be read: No such file"):
        read_place("grpcs://host", ca=str(tmp_path / "gone.pem"))
    (tmp_path / "other.pem").write_text("a letter")
    with pytest.raises(Refused, match="holds nothing that can be used"):
        read_place("grpcs://host", ca=str(tmp_path / "other.pem"))
