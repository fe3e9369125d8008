"""Keys of buckets: which the worker has, and which of them a fragment is given.

They are the worker's own, from its environment, as for blobs. A fragment that brings Python functions along is given
none, because whoever wrote them could read them; what is run with keys is run in processes where no such code ever is.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from rota.core.errors import Refused
from rota.wire.queries import Fragment, Published, Written
from rota.wire.stores import keys_for, store_of
from rota.worker.runners.queries.sources import Unfit

# How a store is reached, and not who reaches it: whoever reads a public bucket needs no more.
_OPTIONS = re.compile(
    r"(?:AWS|GOOGLE|AZURE)_(?:REGION|DEFAULT_REGION|ENDPOINT\w*|ALLOW_HTTP|SKIP_SIGNATURE|VIRTUAL_HOSTED_STYLE_REQUEST"
    r"|CONNECT_TIMEOUT|TIMEOUT|STORAGE_ACCOUNT_NAME|STORAGE_ENDPOINT)|SSL_CERT_(?:FILE|DIR)"
)
_SCHEMES = ("s3://", "gs://", "az://")
_PUBLIC = ("AWS_SKIP_SIGNATURE", "GOOGLE_SKIP_SIGNATURE", "AZURE_SKIP_SIGNATURE")


def is_keyed(fragment: Fragment) -> bool:
    """Whether a fragment is given keys. Where it is run, it is looked at again for functions."""
    return bool(fragment.stores) and not fragment.has_code


class Keyring(Struct, frozen=True):
    """The keys of a worker, and for which buckets they may be used.

    Without a list they are for all but the one with the blobs, where the results and logs of all tenants are.
    """

    environment: Mapping[str, str]
    stores: Sequence[str] = ()
    blobs: str = ""

    def variables_of(self, fragment: Fragment) -> dict[str, str]:
        """What a fragment needs for its buckets. Raises Unfit if it may not use them here."""
        for store in (*fragment.stores, *_written_to(fragment)):
            self._check(store)
        found = keys_for(fragment.stores, self.environment) if fragment.stores else {}
        if not fragment.has_code:
            return found
        if fragment.stores and not any(found.get(name, "").lower() in ("true", "1") for name in _PUBLIC):
            raise Unfit(
                f"query.source: this stage has Python functions, and is not given the keys of {fragment.stores[0]}: "
                "write what it reads to a table first, or run the query in a session without workers"
            )
        return {name: value for name, value in found.items() if _OPTIONS.fullmatch(name)}

    def _check(self, store: str) -> None:
        # Blobs that are named in another way than buckets are might be in any of them.
        is_apart = not self.blobs or (store != self.blobs and self.blobs.startswith(_SCHEMES))
        if store in self.stores or (not self.stores and is_apart):
            return
        why = "it is not among worker.query_stores" if self.stores else "the blobs of all tenants are in it, or may be"
        raise Unfit(f"query.source: queries may not use {store} on this worker: {why}")


def _written_to(fragment: Fragment) -> tuple[str, ...]:
    """The bucket that a fragment writes to, whatever it says of itself."""
    output = fragment.output
    if not isinstance(output, Written | Published) or "://" not in output.target.folder:
        return ()
    try:
        store = store_of(output.target.folder)
    except Refused as refused:
        raise Unfit(str(refused)) from None
    return (store,) if store else ()


def read_stores(urls: Sequence[str], path: str) -> tuple[str, ...]:
    """The buckets that a setting names. Raises Refused."""
    try:
        return tuple(store_of(url.rstrip("/")) for url in urls)
    except Refused as refused:
        raise Refused("config.value", refused.reason, "Name buckets, as s3://name.", path=path) from None
