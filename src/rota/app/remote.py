"""Reaching a coordinator elsewhere: where it is, as whom, and with which certificates."""

import os
from typing import TypedDict, Unpack

from rota.client.line import FarLine
from rota.core.errors import Refused

COORDINATOR = "ROTA_COORDINATOR"
BEARER_TOKEN = "ROTA_COORDINATOR_BEARER_TOKEN"  # noqa: S105 - the name of a variable


class RemoteOptions(TypedDict, total=False):
    """How a coordinator elsewhere is spoken to.

    `token`: what to present; the variable `ROTA_COORDINATOR_BEARER_TOKEN` unless told otherwise. `tenant`: for whom to
    speak, if the token is for several. `ca`: a file with the authorities to trust. `cert`, `key`: what to show to a
    coordinator that wants a certificate of its callers.
    """

    token: str | None
    tenant: str | None
    ca: str | os.PathLike[str] | None
    cert: str | os.PathLike[str] | None
    key: str | os.PathLike[str] | None


async def open_line(url: str | None, otherwise: str, **options: Unpack[RemoteOptions]) -> FarLine:
    """A line to a coordinator, connected. `otherwise` is the tenant of those whose token is for any."""
    # Whoever runs embedded needs no gRPC, and it takes a while to load.
    from rota.client.rpc import RpcConnection
    from rota.wire.places import read_place

    url = url or os.environ.get(COORDINATOR, "")
    if not url:
        hint = f"Give its address, such as grpc://host:7433, or set {COORDINATOR}."
        raise Refused("field.value", "it is not said where the coordinator is", hint, path="url")
    ca, cert, key = (os.fspath(options.get(name) or "") for name in ("ca", "cert", "key"))
    place = read_place(url, ca=ca, cert=cert, key=key)
    token = options.get("token")
    if token is None:
        token = os.environ.get(BEARER_TOKEN, "")
    token = token.strip()
    tenant = options.get("tenant") or ""

    async def dial() -> RpcConnection:
        return await RpcConnection.open(place, token, tenant, otherwise)

    line = FarLine("", dial)
    line.tenant = (await line.connect()).tenant
    return line
