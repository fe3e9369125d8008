"""Where requests of users may go: to public addresses, and to what the worker's configuration allows besides.

A worker often stands inside a network that its users are not in. What they can reach through it is decided by address,
not by name, since anybody may give any name to any address.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence

from rota.core.errors import Refused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_MAPPED = ipaddress.ip_network("::ffff:0:0/96")
_COMPATIBLE = ipaddress.ip_network("::/96")
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")


class Forbidden(Exception):
    """The policy does not let a request go there."""


class EgressPolicy:
    """Which addresses requests may be sent to."""

    def __init__(self, allow: Sequence[str] = ()) -> None:
        """`allow` are networks that are not public and may be reached nevertheless, such as `10.0.0.0/8`."""
        try:
            self._allowed = tuple(ipaddress.ip_network(network) for network in allow)
        except ValueError as error:
            hint = "Write networks as 10.0.0.0/8, or 127.0.0.1/32 for one address."
            raise Refused("field.value", f"the egress policy: {error}", hint, path="egress_allow") from None

    def allows(self, address: Address) -> bool:
        """Whether an address may be reached, and every address that it stands for."""
        return all(_is_public(each) or self._is_allowed(each) for each in meant_by(address))

    def _is_allowed(self, address: Address) -> bool:
        return any(address.version == network.version and address in network for network in self._allowed)

    async def resolve(self, host: str, port: int) -> list[str]:
        """The addresses of a host that may be reached, to be connected to as they are. Raises Forbidden, OSError."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError:
            # A label that is empty or too long: no name server could ever be asked for it.
            raise Forbidden(f"{host[:100]!r} is not a name that a host can have") from None
        addresses = list(dict.fromkeys(str(where[0]) for *_, where in found))
        allowed = [text for text in addresses if self.allows(ipaddress.ip_address(text))]
        if not allowed:
            raise Forbidden(
                f"{host} is {', '.join(addresses[:4])}, which is not a public address. "
                "If tasks of this worker may reach it, its configuration can say so (egress_allow)."
            )
        return allowed


def meant_by(address: Address) -> list[Address]:
    """An address, and the address of the other version inside it, to which a gateway or the kernel would take it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    inside = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _MAPPED or address in _TRANSLATED:
        # The kernel itself, or a gateway, connects to the inner one and to nothing else.
        return [inside]
    if address in _COMPATIBLE and int(address) > 1:
        return [address, inside]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if address.teredo is not None:
        return [address, *address.teredo]
    return [address]


def _is_public(address: Address) -> bool:
    return address.is_global and not (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
        or (isinstance(address, ipaddress.IPv6Address) and address.is_site_local)
    )
