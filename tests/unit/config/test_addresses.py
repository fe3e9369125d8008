"""Addresses: where to listen, where a coordinator is, and which of them only this machine can reach."""

import pytest

from rota.config import Address, Target, read_address, read_target
from rota.core.errors import Refused


@pytest.mark.parametrize(
    ("text", "address", "is_loopback"),
    [
        ("127.0.0.1:7433", Address("127.0.0.1", 7433), True),
        ("127.9.9.9:0", Address("127.9.9.9", 0), True),
        ("localhost:1", Address("localhost", 1), True),
        ("[::1]:7433", Address("::1", 7433), True),
        ("0.0.0.0:7433", Address("0.0.0.0", 7433), False),  # noqa: S104 - nothing is bound here
        ("[::]:7433", Address("::", 7433), False),
        ("10.0.0.5:7433", Address("10.0.0.5", 7433), False),
        ("rota.example.org:7433", Address("rota.example.org", 7433), False),
        ("localhost.example.org:7433", Address("localhost.example.org", 7433), False),
    ],
)
def test_an_address_is_read_and_shown_again(text: str, address: Address, is_loopback: bool):
    assert read_address(text, "x") == address
    assert str(address) == text
    assert address.is_loopback == is_loopback


@pytest.mark.parametrize(
    "text", ["", ":1", "x", "x:", "x:y", "x:-1", "x:65536", "x:１", "a b:1", "::1:1", "[x]:1", "x :1"]
)
def test_what_is_no_address_is_refused(text: str):
    with pytest.raises(Refused, match=r"config\.value"):
        read_address(text, "x")


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("grpc://a:1", Target(Address("a", 1), tls=False)),
        ("grpcs://a:1/", Target(Address("a", 1), tls=True)),
        ("grpcs://a", Target(Address("a", 7433), tls=True)),
        ("grpc://[::1]", Target(Address("::1", 7433), tls=False)),
        ("grpc://[::1]:5", Target(Address("::1", 5), tls=False)),
    ],
)
def test_a_coordinator_is_named_by_a_url(text: str, target: Target):
    assert read_target(text, "x") == target


@pytest.mark.parametrize("text", ["a:1", "http://a:1", "grpc://", "grpc://a/b", "grpc://me:hush@a:1", "grpc://a:x"])
def test_what_is_no_coordinator_is_refused_without_repeating_what_may_be_secret(text: str):
    with pytest.raises(Refused, match=r"config\.value") as caught:
        read_target(text, "x")
    assert "hush" not in str(caught.value)
