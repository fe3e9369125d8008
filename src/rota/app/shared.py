"""Opening a store that several coordinators share: which one a URL means, and what it needs."""

from collections.abc import Callable

from msgspec import Struct

from rota.config import ClientTls, Config, read_client_tls
from rota.config.addresses import store_kind
from rota.config.settings import LOCK_ID, Etcd
from rota.core.errors import Refused
from rota.core.ids import Millis
from rota.ports import Blobs, SharedStore


class Sharing(Struct, frozen=True, kw_only=True):
    """Where a store that several coordinators share is, and how it is reached."""

    url: str
    lock_url: str = ""
    lock_id: int = LOCK_ID
    tls: ClientTls | None = None


def sharing_of(config: Config, now: Millis) -> Sharing | None:
    """As the settings say; None if there is nothing to share."""
    server, etcd = config.server, config.etcd
    if not server.store:
        return None
    tls = read_client_tls(etcd, now) if etcd != Etcd() else None
    return Sharing(url=server.store, lock_url=server.lock_url, lock_id=server.lock_id, tls=tls)


def open_shared(
    sharing: Sharing, blobs: Blobs, *, term_ms: Millis, warn: Callable[[str], None] | None = None
) -> SharedStore:
    """The store behind a URL. It connects when it is used; what cannot be meant is refused at once.

    `warn` is told what its administrator should look after, before it becomes trouble.
    """
    kind = store_kind(sharing.url)
    try:
        # Each comes with an extra of its own, and takes a while to import.
        if kind == "postgres":
            from rota.stores.postgres import PostgresStore

            return PostgresStore(sharing.url, lock_url=sharing.lock_url, lock_id=sharing.lock_id, term_ms=term_ms)
        from rota.stores.etcd import EtcdStore

        return EtcdStore(sharing.url, blobs, term_ms=term_ms, tls=sharing.tls, warn=warn)
    except ModuleNotFoundError as missing:
        text = f"{kind} needs the package {missing.name}, which is not installed"
        raise Refused("store.engine", text, f"pip install 'rota[{kind}]'.", path="server.store") from None
