"""Where a coordinator is, and with which certificates it is spoken to."""

from typing import Any

from msgspec import Struct, structs

from rota.config import ClientTls, ServerTls, read_client_tls, read_target
from rota.config.settings import ClientSide
from rota.core.errors import Refused
from rota.core.ids import Millis
from rota.wire.channels import Options, caller_options, grpc


class Place(Struct, frozen=True):
    """A coordinator's address; with `tls` it is spoken to over TLS. `url` is how it is shown."""

    url: str
    address: str
    tls: ClientTls | None = None


def read_places(client: ClientSide, now: Millis) -> tuple[Place, ...]:
    """The places that settings name, at least one. Refuses what cannot be meant."""
    names = [name.strip() for name in client.coordinator.split(",")]
    return tuple(_read_place(structs.replace(client, coordinator=name), now) for name in dict.fromkeys(names))


def _read_place(client: ClientSide, now: Millis) -> Place:
    if not client.coordinator:
        hint = "Give its address, such as grpc://host:7433, or set ROTA_COORDINATOR."
        raise Refused("config.value", "it is not said where the coordinator is", hint, path="client.coordinator")
    target = read_target(client.coordinator, "client.coordinator")
    address = str(target.address)
    if target.tls:
        return Place(f"grpcs://{address}", address, read_client_tls(client, now))
    if client.ca or client.cert or client.key:
        text = f"certificates are not used with grpc://{address}"
        raise Refused("tls.files", text, "Use grpcs:// for TLS.", path="client.coordinator")
    return Place(f"grpc://{address}", address)


def open_channel(place: Place, more: Options | None = None) -> Any:
    """A channel of `grpc.aio`, with more options than all have; it connects when it is used."""
    options = [*caller_options(), *(more or [])]
    if place.tls is None:
        return grpc.aio.insecure_channel(place.address, options=options)
    key = place.tls.key.reveal().encode() if place.tls.key is not None else None
    credentials = grpc.ssl_channel_credentials(place.tls.ca, key, place.tls.cert)
    return grpc.aio.secure_channel(place.address, credentials, options=options)


def server_credentials(tls: ServerTls) -> Any:
    """A coordinator's side of TLS."""
    pair = (tls.key.reveal().encode(), tls.cert)
    return grpc.ssl_server_credentials([pair], tls.client_ca, require_client_auth=tls.client_ca is not None)
