"""Opening a store that several coordinators share: which one a URL means, and what it needs."""

from typing import cast

from rota.config.addresses import store_kind
from rota.config.settings import LOCK_ID
from rota.core.errors import Refused
from rota.core.ids import Millis
from rota.ports import Blobs, SharedStore


def open_shared(url: str, blobs: Blobs, *, term_ms: Millis, lock_url: str = "", lock_id: int = LOCK_ID) -> SharedStore:
    """The store behind a URL. It connects when it is used; a URL that cannot be meant is refused at once."""
    kind = store_kind(url)
    try:
        # Each comes with an extra of its own, and takes a while to import.
        if kind == "postgres":
            from rota.stores.postgres import PostgresStore

            return cast(SharedStore, PostgresStore(url, lock_url=lock_url, lock_id=lock_id, term_ms=term_ms))
        from rota.stores.etcd import EtcdStore

        return cast(SharedStore, EtcdStore(url, blobs, term_ms=term_ms))
    except ModuleNotFoundError as missing:
        text = f"{kind} needs the package {missing.name}, which is not installed"
        raise Refused("store.engine", text, f"Install rota[{kind}].", path="server.store") from None
