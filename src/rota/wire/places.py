"""Where a coordinator is, and with which certificates it is spoken to."""

from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from rota.core.errors import Refused
from rota.wire.channels import caller_options, grpc

PORT: Final = 7433
_FORM: Final = f"Write it as grpc://host:{PORT}, or grpcs://host:{PORT} for TLS."


class Certificates(Struct, frozen=True):
    """What a caller trusts and shows, in PEM. Without `ca` whomever gRPC trusts by itself is trusted."""

    ca: bytes | None = None
    cert: bytes | None = None
    key: bytes | None = None


class Place(Struct, frozen=True):
    """A coordinator's address; with certificates it is spoken to over TLS. `url` is how it is shown."""

    url: str
    address: str
    certificates: Certificates | None = None


def read_place(url: str, *, ca: str = "", cert: str = "", key: str = "") -> Place:
    """A place from its URL and the files of certificates. Refuses what cannot be meant."""
    # What is in front of an @ may be a secret.
    wrong = Refused("field.value", f"{url.rpartition('@')[2]!r} is not the address of a coordinator", _FORM, path="url")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or PORT
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("grpc", "grpcs") or not host:
        raise wrong
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None:
        text = "the address of a coordinator is a host and a port, and this has more"
        raise Refused("field.value", text, _FORM, path="url")
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if parts.scheme == "grpc":
        if ca or cert or key:
            raise Refused("tls.files", f"certificates are not used with {url}", "Use grpcs:// for TLS.", path="url")
        return Place(f"grpc://{shown}", shown)
    if bool(cert) != bool(key):
        missing = "key" if cert else "cert"
        text = f"there is no {missing}"
        raise Refused("tls.files", text, "Name both the certificate and its key, or neither.", path=missing)
    return Place(f"grpcs://{shown}", shown, Certificates(_read(ca, "ca"), _read(cert, "cert"), _read(key, "key")))


def _read(name: str, path: str) -> bytes | None:
    if not name:
        return None
    try:
        content = Path(name).read_bytes()
    except OSError as error:
        raise Refused("tls.files", f"{name} cannot be read: {error.strerror}", path=path) from None
    if b"-----BEGIN " not in content:
        raise Refused("tls.files", f"{name} holds nothing that can be used", "It must be in PEM form.", path=path)
    return content


def open_channel(place: Place) -> Any:
    """A channel of `grpc.aio`; it connects when it is used."""
    if place.certificates is None:
        return grpc.aio.insecure_channel(place.address, options=caller_options())
    given = place.certificates
    credentials = grpc.ssl_channel_credentials(given.ca, given.key, given.cert)
    return grpc.aio.secure_channel(place.address, credentials, options=caller_options())


def server_credentials(cert: bytes, key: bytes, client_ca: bytes | None = None) -> Any:
    """A coordinator's side of TLS, from PEM. With `client_ca` callers must show a certificate of that authority."""
    return grpc.ssl_server_credentials([(key, cert)], client_ca, require_client_auth=client_ca is not None)
