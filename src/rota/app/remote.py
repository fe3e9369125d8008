"""Reaching a coordinator elsewhere: where it is, as whom, and with which certificates."""

import asyncio
import os
from typing import TypedDict, Unpack

from rota.app.clocks import wall_clock
from rota.client import operating
from rota.client.line import Connection, FarLine
from rota.config import load_config
from rota.core.errors import Unavailable

COORDINATOR = "ROTA_COORDINATOR"


class RemoteOptions(TypedDict, total=False):
    """How a coordinator elsewhere is spoken to.

    `token`: what to present; the variable `ROTA_COORDINATOR_BEARER_TOKEN` unless told otherwise. `tenant`: for whom to
    speak, if the token is for several. `ca`: a file with the authorities to trust. `cert`, `key`: what to show to a
    coordinator that wants a certificate of its callers. `trust`: open pickled results, which runs code that their
    authors chose; without it only plain values and Arrow tables are opened.
    """

    token: str | None
    tenant: str | None
    ca: str | os.PathLike[str] | None
    cert: str | os.PathLike[str] | None
    key: str | os.PathLike[str] | None
    trust: bool


async def open_line(url: str | None, otherwise: str, **options: Unpack[RemoteOptions]) -> FarLine:
    """A line to a coordinator, connected. `otherwise` is the tenant of those whose token is for any."""
    # Whoever runs embedded needs no gRPC, and it takes a while to load.
    from rota.client.rpc import RpcConnection
    from rota.wire.places import read_places
    from rota.wire.routes import Route

    files = {name: os.fspath(options.get(name) or "") or None for name in ("ca", "cert", "key")}
    given = {f"client.{name}": value for name, value in {**files, "coordinator": url or None}.items()}
    config = load_config(given, os.environ)
    places = read_places(config.client, wall_clock())
    route = Route(*places)
    token = options.get("token")
    if token is None:
        token = config.auth.token.reveal() if config.auth.token is not None else ""
    # Unless somebody said for whom, it is the token that says so.
    tenant = options.get("tenant") or (config.client.tenant if "client.tenant" in config.sources else "")

    async def dial() -> RpcConnection:
        return await RpcConnection.open(route, token.strip(), tenant, otherwise)

    line = FarLine("", dial)
    line.tenant = (await _connect(line, is_one_of_several=len(places) > 1)).tenant
    return line


async def _connect(line: FarLine, *, is_one_of_several: bool) -> Connection:
    """A connection; whoever answers and does not lead, or is one of several, will before long, or another one does."""
    from rota.wire.channels import Unreached

    give_up_at = asyncio.get_running_loop().time() + operating.PATIENCE_S
    while True:
        try:
            return await line.connect()
        except Unavailable as away:
            is_passing = away.code.startswith("leader.") and (is_one_of_several or not isinstance(away, Unreached))
            wait_s = away.retry_after_ms / 1000
            if not is_passing or asyncio.get_running_loop().time() + wait_s > give_up_at:
                raise
            await asyncio.sleep(wait_s)
