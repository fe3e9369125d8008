"""Addresses as settings have them: where to listen, and where a coordinator is."""

from ipaddress import ip_address
from urllib.parse import unquote

from msgspec import Struct

from rota.core.errors import Refused

PORT = 7433
SCHEMES = ("grpc", "grpcs")
POSTGRES = ("postgresql", "postgres")
ETCD = ("etcd", "etcds")


class Address(Struct, frozen=True):
    """A host and a port. Port 0 asks for any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_everywhere(self) -> bool:
        """Whether it stands for all addresses of this machine: one listens there, and nobody is found there."""
        return self.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not listened on

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A name is not looked up: who may answer for it can change."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


class Target(Struct, frozen=True):
    """Where a coordinator is, and whether it is spoken to over TLS."""

    address: Address
    tls: bool


def read_address(text: str, path: str) -> Address:
    """`host:port`, with an IPv6 host in square brackets."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    is_number = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65_535
    is_host = host and (":" in host) == bracketed and not any(char.isspace() or char in "?#@" for char in host)
    if not (colon and is_host and is_number):
        hint = "Write it as host:port, such as 127.0.0.1:7433 or [::1]:7433; 0.0.0.0 means all interfaces."
        raise Refused("config.value", f"{text!r} is not an address", hint, path=path)
    return Address(host, int(port))


def check_host(text: str, path: str) -> None:
    """Refuse what is no name or address of a machine that others could reach."""
    try:
        ip_address(text)
    except ValueError:
        is_host = all(char.isalnum() or char in "-._" for char in text)
    else:
        is_host = not Address(text, 0).is_everywhere
    if not is_host:
        hint = "Write only the name or address by which others reach this machine, such as one.example.org or ::1."
        raise Refused("config.value", f"{text!r} is not a host", hint, path=path)


def read_target(text: str, path: str) -> Target:
    """`grpc://host:port`, or `grpcs://` for TLS; without a port it is the usual one."""
    scheme, separator, rest = text.partition("://")
    rest = rest.rstrip("/")
    if separator and scheme in SCHEMES and rest and "/" not in rest and "@" not in rest:
        has_port = ":" in rest.rpartition("]")[2]
        return Target(read_address(rest if has_port else f"{rest}:{PORT}", path), tls=scheme == "grpcs")
    hint = f"Write it as grpc://host:{PORT}, or grpcs://host:{PORT} for TLS."
    raise Refused("config.value", "this is not the address of a coordinator", hint, path=path)


def store_kind(url: str) -> str:
    """`postgres`, `etcd`, or empty if it is neither."""
    scheme = url.partition("://")[0] if "://" in url else ""
    return "postgres" if scheme in POSTGRES else "etcd" if scheme in ETCD else ""


def check_store_url(text: str, path: str) -> None:
    """Refuse what is no store that machines share. The text is not repeated: it may have a password in it."""
    if not store_kind(text):
        hint = "Write it as postgresql://user@host/database, or etcd://host:2379/prefix."
        raise Refused("config.value", "this is not the URL of a store", hint, path=path)
    rest, _, parameters = text.partition("://")[2].partition("?")
    if "@" in rest.partition("/")[2]:
        hint = "In a user or password write %2F for / and %40 for @."
        raise Refused("config.value", "there is an @ behind the host of the store", hint, path=path)
    if parameters and store_kind(text) == "etcd":
        raise Refused("config.value", "the URL of an etcd has no parameters", "Leave out what is behind ?.", path=path)


def has_password(url: str) -> bool:
    """Whether a password may stand in a URL: in front of its host, written correctly or not, or in a parameter."""
    rest = unquote(url.partition("://")[2])
    user, at, _ = rest.rpartition("@")
    return (bool(at) and ":" in user) or "password=" in rest.lower()
