"""Where a coordinator is: what is understood, and what is refused with a reason."""

import time

import pytest

from rota.config import ClientTls
from rota.config.settings import ClientSide
from rota.core.errors import Refused
from rota.wire.places import Place, read_places
from tests.refusals import refused


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("grpc://host:1234", Place("grpc://host:1234", "host:1234")),
        ("grpc://host", Place("grpc://host:7433", "host:7433")),
        ("grpc://host:1234/", Place("grpc://host:1234", "host:1234")),
        ("grpc://[::1]:99", Place("grpc://[::1]:99", "[::1]:99")),
        ("grpcs://host", Place("grpcs://host:7433", "host:7433", ClientTls())),
    ],
)
def test_a_host_and_a_port_are_enough(url: str, place: Place):
    assert read_places(ClientSide(coordinator=url), time.time_ns() // 1_000_000) == (place,)


@pytest.mark.parametrize(
    "url",
    ["", "host:1234", "http://host", "grpc://", "grpc://host:port", "grpc://host:99999", "grpc://[::1", "grpc:///path"],
)
def test_what_is_no_address_is_refused_with_an_example(url: str):
    with pytest.raises(Refused, match=r"config\.value: .* is not .*address") as caught:
        read_places(ClientSide(coordinator=url), time.time_ns() // 1_000_000)
    assert caught.value.path == "client.coordinator"


@pytest.mark.parametrize("url", ["grpc://me:secret@host", "http://me:secret@host", "grpc://host/a", "grpc://host?a=b"])
def test_what_else_an_address_says_is_not_ignored_nor_shown(url: str):
    with pytest.raises(Refused) as caught:
        read_places(ClientSide(coordinator=url), time.time_ns() // 1_000_000)
    assert "secret" not in str(caught.value)


def test_certificates_without_tls_are_not_left_out_silently():
    with refused("tls.files", "grpc://host", "grpcs://", path="client.coordinator"):
        read_places(ClientSide(coordinator="grpc://host", ca="ca.pem"), time.time_ns() // 1_000_000)
