"""Statements that callers have begun or prepared, until nobody asks for them any more."""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct

from rota.api.flight.desk import Query
from rota.core.errors import Refused, Unavailable

STATEMENTS_MAX = 1_000
PREPARED_MAX = 1_000
# How long a query goes on that nobody fetches, and how long its answer can be fetched again.
GRACE_S = 60.0
KEPT_S = 300.0

_HANDLE_BYTES = 16


class Begun(Struct):
    """A query, and who asked for it. `readers` are those who wait for it or read it now."""

    owner: bytes
    query: Query
    seen_at: float
    readers: int = 0
    is_over: bool = False


class Prepared(Struct):
    """A statement that is run later, with the values that were bound last."""

    owner: bytes
    sql: str
    values: tuple[Any, ...] = ()


def owner_of(token: str) -> bytes:
    """By what a caller is known again; a token is not kept."""
    return sha256(token.encode()).digest()


class Statements:
    """What is going on for all callers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: OrderedDict[bytes, Begun] = OrderedDict()
        self._prepared: OrderedDict[bytes, Prepared] = OrderedDict()

    def begin(self, owner: bytes, begin: Callable[[], Query]) -> tuple[bytes, Query]:
        """Begin a query, and keep it. Raises Unavailable if too many are going on."""
        self.sweep()
        with self._lock:
            going_on = sum(not each.is_over for each in self._begun.values())
        if going_on >= STATEMENTS_MAX:
            raise Unavailable("service.busy", f"{going_on} queries are going on here already", retry_after_ms=1_000)
        query = begin()
        handle = secrets.token_bytes(_HANDLE_BYTES)
        with self._lock:
            self._begun[handle] = Begun(owner, query, self._clock())
        return handle, query

    def find(self, owner: bytes, handle: bytes) -> Begun:
        """A query of this caller. Those of others are as unknown as those that never were."""
        with self._lock:
            found = self._begun.get(handle)
            if found is None or not secrets.compare_digest(found.owner, owner):
                raise Refused("run.unknown", "there is no such query, or it was dropped", "Ask again.", path="ticket")
            found.seen_at = self._clock()
            return found

    def prepare(self, owner: bytes, sql: str) -> bytes:
        """Keep a statement; the one that was used least recently makes room."""
        handle = secrets.token_bytes(_HANDLE_BYTES)
        with self._lock:
            self._prepared[handle] = Prepared(owner, sql)
            while len(self._prepared) > PREPARED_MAX:
                self._prepared.popitem(last=False)
        return handle

    def prepared(self, owner: bytes, handle: bytes) -> Prepared:
        """A statement that this caller has prepared."""
        with self._lock:
            found = self._prepared.get(handle)
            if found is None or not secrets.compare_digest(found.owner, owner):
                raise Refused("run.unknown", "there is no such prepared statement", "Prepare it again.", path="handle")
            self._prepared.move_to_end(handle)
            return found

    def bind(self, owner: bytes, handle: bytes, values: Sequence[Any]) -> None:
        """Give a prepared statement its values."""
        self.prepared(owner, handle).values = tuple(values)

    def unprepare(self, owner: bytes, handle: bytes) -> None:
        """Drop a prepared statement; one that is gone is gone."""
        with self._lock:
            found = self._prepared.get(handle)
            if found is not None and secrets.compare_digest(found.owner, owner):
                del self._prepared[handle]

    def sweep(self) -> None:
        """End what nobody fetches, and forget what nobody fetched again."""
        now = self._clock()
        with self._lock:
            idle = [(handle, each) for handle, each in self._begun.items() if not each.readers]
            left = [
                (handle, each) for handle, each in idle if now - each.seen_at > (KEPT_S if each.is_over else GRACE_S)
            ]
            for handle, _ in left:
                del self._begun[handle]
        for _, each in left:
            if not each.is_over:
                each.query.cancel("nobody fetched it")

    def close(self) -> None:
        """End everything that goes on."""
        with self._lock:
            left = [each for each in self._begun.values() if not each.is_over]
            self._begun.clear()
        for each in left:
            each.query.cancel("its front end was stopped")
