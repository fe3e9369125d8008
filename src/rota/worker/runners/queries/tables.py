"""Files of tables, in the process that reads them: only those that a fragment may read, and as they were planned.

What is read is taken from the plan as the engine itself would write it, so that nothing in the bytes that were sent
means one thing to us and another to the engine.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import obstore

from rota.core.errors import Refused
from rota.wire.plans.files import PlanFile, files_in
from rota.wire.plans.tree import Unsliceable
from rota.wire.queries import is_within
from rota.wire.stores import open_store, store_of
from rota.worker.runners.queries import reaching
from rota.worker.runners.queries.orders import Order

_ASKED_AT_ONCE = 16
_NS = 1_000_000_000


class Tables:
    """The files of one attempt's tables; none are known of a fragment that may read whatever it likes."""

    def __init__(self, order: Order, plan: bytes, physical: Any) -> None:
        """Refuse files that are in none of the fragment's places."""
        self._files: list[PlanFile] = []
        if order.places is None:
            return
        exchanged = frozenset(_exchanged(order))
        try:
            # A function could read whatever it likes; to write it down again would be to open it.
            found = files_in(plan if order.has_code else physical.to_bytes())
        except Unsliceable as error:
            raise Refused("query.source", f"it cannot be told what this plan reads: {error}", path="plan") from None
        self._files = [file for file in found if file.name not in exchanged]
        for file in self._files:
            if not is_within(file.name, order.places):
                text = f"{file.name} is in none of the places that this query has named"
                raise Refused("query.source", text, path="plan")

    def check_unchanged(self) -> None:
        """Refuse what was read if a file is not the one that was planned: rows of two versions would be mixed."""
        there = [file for file in self._files if "://" not in file.name]
        for file in there:
            try:
                found = os.stat(file.name)  # noqa: PTH116 - a name among names
            except FileNotFoundError:
                raise _changed(file) from None
            if (found.st_size, found.st_mtime_ns) != (file.bytes, file.modified_ns):
                raise _changed(file)
        objects = [file for file in self._files if "://" in file.name]
        if objects:
            _check_objects(objects)


def _check_objects(files: Sequence[PlanFile]) -> None:
    stores = {store: open_store(store) for store in dict.fromkeys(store_of(file.name) for file in files)}

    def check(file: PlanFile) -> None:
        store = store_of(file.name)
        found = obstore.head(stores[store], file.name.removeprefix(f"{store}/"))
        # Lists are more exact than the header of one object.
        if (found["size"], int(found["last_modified"].timestamp())) != (file.bytes, file.modified_ns // _NS):
            raise _changed(file)

    with ThreadPoolExecutor(_ASKED_AT_ONCE) as asking:
        list(asking.map(check, files))


def _exchanged(order: Order) -> Iterator[str]:
    """Files of other stages, as plans name them."""
    for written in order.sources:
        for source in written:
            at = "" if source.peer is None else f"s3://{reaching.host_of(source.peer)}/"
            yield from (f"{at}{source.path(part)}" for part in source.parts)


def _changed(file: PlanFile) -> Refused:
    return Refused("query.source", f"{file.name} was changed since the query was planned", "Ask again.", path="sql")
