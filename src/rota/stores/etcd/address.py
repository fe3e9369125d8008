"""Where an etcd is: `etcd://user:password@host:2379,other:2379/prefix`, or `etcds://` for TLS."""

from urllib.parse import unquote

from msgspec import Struct

from rota.config import ClientTls
from rota.config.addresses import read_address
from rota.config.secret import Secret
from rota.core.errors import Refused

PORT = 2379
PREFIX = "rota"
_PATH = "server.store"
_HINT = f"Write it as etcd://host:{PORT}/prefix, with several hosts separated by commas, or etcds:// for TLS."


class Address(Struct, frozen=True):
    """The members of a cluster, and under which prefix our keys are. `shown` is for people, and holds no secret."""

    hosts: tuple[str, ...]
    prefix: str
    shown: str
    tls: ClientTls | None = None
    user: str = ""
    password: Secret = Secret("")


def read_url(url: str, tls: ClientTls | None = None) -> Address:
    """An address from a setting. Refuses what cannot be meant, without repeating what may be a password."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("etcd", "etcds"):
        raise Refused("config.value", "this is not the address of an etcd", _HINT, path=_PATH)
    place, _, path = rest.partition("/")
    who, at, hosts = place.rpartition("@")
    user, _, password = who.partition(":")
    if at and not user:
        raise Refused("config.value", "there is a password and no user in the address of etcd", _HINT, path=_PATH)
    found = tuple(_read_host(host) for host in hosts.split(","))
    prefix = unquote(path).strip("/") or PREFIX
    if not prefix.isprintable() or "?" in path or "#" in path:
        raise Refused("config.value", f"{prefix!r} cannot be a prefix of keys", _HINT, path=_PATH)
    if scheme == "etcd" and tls is not None:
        text = f"certificates are not used with etcd://{','.join(found)}"
        raise Refused("tls.files", text, "Use etcds:// for TLS.", path=_PATH)
    shown = f"{scheme}://{','.join(found)}/{prefix}"
    secured = (tls or ClientTls()) if scheme == "etcds" else None
    return Address(found, prefix, shown, secured, unquote(user), Secret(unquote(password)))


def _read_host(text: str) -> str:
    has_port = ":" in text.rpartition("]")[2]
    return str(read_address(text if has_port else f"{text}:{PORT}", _PATH))
