"""Addresses: where to listen, where a coordinator is, and which of them only this machine can reach."""

import pytest

from rota.config import Address, Target, read_address, read_target
from rota.config.addresses import check_store_url, has_password, store_kind
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


@pytest.mark.parametrize(
    ("url", "kind", "has_one"),
    [
        ("postgresql://h/d", "postgres", False),
        ("postgres://u@h/d", "postgres", False),
        ("postgresql://u:p@h/d", "postgres", True),
        ("postgresql://u:p%40x@h:5432/d?sslmode=require", "postgres", True),
        ("postgresql://h/d?user=u&password=p", "postgres", True),
        ("postgresql://h/d?application_name=a", "postgres", False),
        # Written wrongly, or so that a search for the word would miss it.
        ("postgresql://u:a/b@h/d", "postgres", True),
        ("postgresql://h/d?pass%77ord=p", "postgres", True),
        ("etcd://u:p/x@h:2/p", "etcd", True),
        ("postgresql:///d?host=/run/postgresql", "postgres", False),
        ("etcd://a:2379,b:2379/prefix", "etcd", False),
        ("etcds://u:p@a:2379", "etcd", True),
    ],
)
def test_a_store_is_known_by_its_url_and_so_is_a_password(url: str, kind: str, has_one: bool):
    assert (store_kind(url), has_password(url)) == (kind, has_one)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:a/secret@h/d",
        "etcd://u:secret/x@h:2/p",
        "etcd://h:2/p?password=secret",
        "",
        "x",
        "mysql://u:secret@h/d",
        "postgresql:h",
        "://h",
        "/var/lib/rota",
    ],
)
def test_what_is_no_store_is_refused_without_repeating_it(url: str):
    with pytest.raises(Refused, match=r"config\.value") as caught:
        check_store_url(url, "server.store")
    assert "secret" not in str(caught.value)
