"""Which addresses a request may go to, in whatever form they are written."""

import asyncio
import ipaddress
import re

import pytest

from rota.core.errors import Refused
from rota.worker.runners.egress import EgressPolicy, Forbidden

PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8"]
INNER = [
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",  # noqa: S104 - nothing is bound to it
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fec0::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "2001:db8::1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::10.0.0.1",
    "2002:a00:1::1",
    "2002:7f00:1::",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::10.0.0.1",
    "2001:0:4136:e378:8000:63bf:f5ff:fffe",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_reached(address: str) -> None:
    assert EgressPolicy().allows(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", INNER)
def test_no_other_address_may_be_reached(address: str) -> None:
    assert not EgressPolicy().allows(ipaddress.ip_address(address))
    assert not EgressPolicy(("203.0.113.0/24", "fd12::/16")).allows(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    ("network", "address"),
    [
        ("10.0.0.0/8", "10.1.2.3"),
        ("10.0.0.0/8", "::ffff:10.1.2.3"),
        ("10.0.0.0/8", "64:ff9b::10.1.2.3"),
        ("127.0.0.1/32", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("fd00::/8", "fd00:ec2::254"),
        ("0.0.0.0/0", "192.168.1.1"),
    ],
)
def test_a_network_that_is_allowed_may_be_reached(network: str, address: str) -> None:
    assert EgressPolicy((network,)).allows(ipaddress.ip_address(address))


def test_a_network_allows_nothing_beside_itself() -> None:
    policy = EgressPolicy(("10.0.0.0/8",))
    for address in ("11.0.0.1", "127.0.0.1", "::ffff:192.168.0.1"):
        assert policy.allows(ipaddress.ip_address(address)) == (address == "11.0.0.1")


@pytest.mark.parametrize("network", ["10.0.0.1/8", "localhost", "10.0.0.0/64", ""])
def test_what_is_no_network_is_refused(network: str) -> None:
    with pytest.raises(Refused, match="egress policy"):
        EgressPolicy((network,))


@pytest.mark.parametrize("host", ["localhost", "127.1", "0x7f000001", "2130706433", "0", "::1", "::ffff:127.0.0.1"])
def test_a_host_is_judged_by_what_it_resolves_to(host: str) -> None:
    with pytest.raises(Forbidden, match=f"^{re.escape(host)} .*egress_allow"):
        asyncio.run(EgressPolicy().resolve(host, 80))


def test_only_addresses_that_are_allowed_are_given_to_connect_to() -> None:
    assert asyncio.run(EgressPolicy(("127.0.0.0/8",)).resolve("127.1", 80)) == ["127.0.0.1"]
