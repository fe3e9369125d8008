"""Certificates and keys: read from their files and checked before anybody relies on them.

Half of a configuration is refused, and so is a file that cannot be used: what was meant to be encrypted is never served
in the clear.
"""

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from rota.config.secret import Secret
from rota.config.settings import ClientSide, Etcd, Tls
from rota.core.errors import Refused
from rota.core.ids import Millis

PEM_BYTES_MAX = 1 << 20
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17


class ServerTls(Struct, frozen=True):
    """What a coordinator needs, in PEM. With `client_ca`, callers must show a certificate of that authority."""

    cert: bytes
    key: Secret
    client_ca: bytes | None = None


class ClientTls(Struct, frozen=True):
    """What a client or worker needs, in PEM. Without `ca` whomever the system trusts is trusted."""

    ca: bytes | None = None
    cert: bytes | None = None
    key: Secret | None = None


def read_server_tls(tls: Tls, now: Millis) -> ServerTls | None:
    """What `[tls]` names, checked; None if it names nothing."""
    if not (tls.cert or tls.key or tls.client_ca):
        return None
    for name in ("cert", "key"):
        if not getattr(tls, name):
            hint = "Name both a certificate and its key, or remove the whole table."
            raise Refused("tls.files", f"[tls] is half configured: there is no {name}", hint, path=f"tls.{name}")
    cert, key = _read_pair(tls.cert, tls.key, "tls", now)
    return ServerTls(cert, key, _read_authorities(tls.client_ca, "tls.client_ca", now) if tls.client_ca else None)


def server_context(tls: Tls) -> ssl.SSLContext | None:
    """The same for what is served by Python itself, which reads the files again; None if `[tls]` names nothing."""
    if not tls.cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(tls.cert, tls.key)
    if tls.client_ca:
        context.load_verify_locations(tls.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def read_client_tls(client: ClientSide | Etcd, now: Millis) -> ClientTls:
    """What `[client]` or `[etcd]` names, checked; a certificate and its key, or neither."""
    section = "etcd" if isinstance(client, Etcd) else "client"
    ca = _read_authorities(client.ca, f"{section}.ca", now) if client.ca else None
    if not client.cert and not client.key:
        return ClientTls(ca)
    if not (client.cert and client.key):
        missing = "key" if client.cert else "cert"
        hint = "Name both the certificate and its key, or neither."
        raise Refused(
            "tls.files", f"[{section}] is half configured: there is no {missing}", hint, path=f"{section}.{missing}"
        )
    return ClientTls(ca, *_read_pair(client.cert, client.key, section, now))


def _read(name: str, path: str) -> bytes:
    try:
        content = Path(name).read_bytes()
    except OSError as error:
        raise Refused("tls.files", f"{name} cannot be read: {error.strerror}", path=path) from None
    if len(content) > PEM_BYTES_MAX:
        raise Refused("tls.files", f"{name} has {len(content)} bytes", "Is this a PEM file?", path=path)
    return content


def _read_pair(cert: str, key: str, section: str, now: Millis) -> tuple[bytes, Secret]:
    chain = _read(cert, f"{section}.cert")
    private = _read(key, f"{section}.key")
    for number, validity in enumerate(_validities(chain, cert, f"{section}.cert")):
        what = cert if number == 0 else f"certificate {number + 1} in {cert}"
        _check_date(validity, now, what, f"{section}.cert")
    if b"ENCRYPTED" in private:
        hint = "Decrypt it, and let only its owner read it."
        raise Refused(
            "tls.files", f"{key} is encrypted, and nobody is there to type its password", hint, path=f"{section}.key"
        )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        mismatch = isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH"
        what = "does not belong to" if mismatch else "cannot be used with"
        raise Refused("tls.files", f"the key {key} {what} the certificate {cert}", path=f"{section}.key") from None
    return chain, Secret(private.decode("ascii", "replace"))


def _read_authorities(name: str, path: str, now: Millis) -> bytes:
    content = _read(name, path)
    validities = _validities(content, name, path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(name)
    except (ssl.SSLError, OSError):
        raise Refused("tls.files", f"{name} holds no certificate that can be used", path=path) from None
    # A bundle may hold some that are over; it is useless when all are.
    if all(until < now for _, until in validities):
        _check_date(validities[0], now, name, path)
    return content


def _check_date(validity: tuple[Millis, Millis], now: Millis, what: str, path: str) -> None:
    since, until = validity
    if until < now:
        raise Refused("tls.expired", f"{what} expired on {_day(until)}", "Renew it.", path=path)
    if since > now:
        hint = "Is the clock of this machine right?"
        raise Refused("tls.expired", f"{what} is not valid before {_day(since)}", hint, path=path)


def _day(at: Millis) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _validities(pem: bytes, name: str, path: str) -> list[tuple[Millis, Millis]]:
    """From when and until when each certificate of a file is valid."""
    blocks = _CERTIFICATE.findall(pem)
    if not blocks:
        raise Refused("tls.files", f"{name} holds no certificate", "It must be in PEM form.", path=path)
    try:
        return [_validity(ssl.PEM_cert_to_DER_cert(block.decode("ascii"))) for block in blocks]
    except (ValueError, IndexError):
        raise Refused("tls.files", f"{name} holds a certificate that cannot be read", path=path) from None


def _validity(der: bytes) -> tuple[Millis, Millis]:
    """The dates of a certificate: version, serial, algorithm and issuer come before them (RFC 5280, 4.1)."""
    _, certificate, _ = _element(der)
    _, signed, _ = _element(certificate)
    tag, content, rest = _element(signed)
    for _ in range(3 if tag == _VERSION else 2):
        tag, content, rest = _element(rest)
    tag, content, rest = _element(rest)
    if tag != _SEQUENCE:
        raise ValueError("there are no dates where they should be")
    since_tag, since, rest = _element(content)
    until_tag, until, _ = _element(rest)
    return _instant(since_tag, since), _instant(until_tag, until)


def _element(content: bytes) -> tuple[int, bytes, bytes]:
    """The first element of a DER encoding: its tag, its content, and what follows it."""
    tag, length = content[0], content[1]
    start = 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(content[2:start], "big")
    end = start + length
    if end > len(content):
        raise ValueError("an element is longer than what it is in")
    return tag, content[start:end], content[end:]


def _instant(tag: int, text: bytes) -> Millis:
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return round(datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC).timestamp() * 1000)
