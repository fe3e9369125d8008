"""Statements that callers have begun or prepared, until nobody asks for them any more."""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from msgspec import Struct

from rota.api.flight.desk import Query
from rota.core.errors import Refused, Unavailable

_HANDLE_BYTES = 16


class Bounds(Struct, frozen=True):
    """How much is kept, and for how long.

    `grace_s`: how long a query goes on that nobody fetches. `kept_s`: how long its answer can be fetched again.
    """

    statements_max: int = 1_000
    of_one_caller_max: int = 250
    prepared_max: int = 1_000
    grace_s: float = 60.0
    kept_s: float = 300.0


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
    return sha256(token.encode(errors="surrogateescape")).digest()


class Statements:
    """What is going on for all callers; several threads may ask at once."""

    def __init__(self, bounds: Bounds | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._bounds = bounds or Bounds()
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: OrderedDict[bytes, Begun] = OrderedDict()
        self._beginning: dict[bytes, int] = {}
        self._prepared: OrderedDict[bytes, Prepared] = OrderedDict()
        self._is_closed = False

    def begin(self, owner: bytes, begin: Callable[[], Query]) -> tuple[bytes, Query]:
        """Begin a query, and keep it. Raises Unavailable if too many are going on."""
        with self._lock:
            self._check_room(owner)
            self._beginning[owner] = self._beginning.get(owner, 0) + 1
        try:
            query = begin()
        finally:
            with self._lock:
                self._beginning[owner] -= 1
                if not self._beginning[owner]:
                    del self._beginning[owner]
        handle = secrets.token_bytes(_HANDLE_BYTES)
        with self._lock:
            self._begun[handle] = Begun(owner, query, self._clock())
            self._make_room()
            is_late = self._is_closed
        if is_late:
            self.close()
        return handle, query

    def _check_room(self, owner: bytes) -> None:
        going_on = [each.owner for each in self._begun.values() if not each.is_over]
        count = len(going_on) + sum(self._beginning.values())
        own = going_on.count(owner) + self._beginning.get(owner, 0)
        if count >= self._bounds.statements_max:
            raise Unavailable("service.busy", f"{count} queries are going on here already", retry_after_ms=1_000)
        if own >= self._bounds.of_one_caller_max:
            raise Unavailable("service.busy", f"{own} queries of yours are going on already", retry_after_ms=1_000)

    def _make_room(self) -> None:
        """Forget answers that could be fetched again, the oldest first, if there are too many."""
        surplus = len(self._begun) - 2 * self._bounds.statements_max
        if surplus > 0:
            idle = [handle for handle, each in self._begun.items() if each.is_over and not each.readers]
            for handle in idle[:surplus]:
                del self._begun[handle]

    def find(self, owner: bytes, handle: bytes) -> Begun:
        """A query of this caller. Those of others are as unknown as those that never were."""
        with self._lock:
            found = self._begun.get(handle)
            if found is None or not secrets.compare_digest(found.owner, owner):
                raise Refused("run.unknown", "there is no such query, or it was dropped", "Ask again.", path="ticket")
            found.seen_at = self._clock()
            return found

    @contextmanager
    def reading(self, begun: Begun) -> Generator[None]:
        """While somebody waits for a query or reads its answer, it is neither ended nor forgotten."""
        with self._lock:
            begun.readers += 1
        try:
            yield
        finally:
            with self._lock:
                begun.readers -= 1
                begun.seen_at = self._clock()

    def give_up(self, begun: Begun, reason: str) -> None:
        """End a query whose caller has gone, unless somebody else waits for it. Likewise one that was cancelled."""
        with self._lock:
            if begun.readers or begun.is_over:
                return
        _cancel(begun, reason)

    # Prepared statements.

    def prepare(self, owner: bytes, sql: str) -> bytes:
        """Keep a statement; the one that was used least recently makes room."""
        handle = secrets.token_bytes(_HANDLE_BYTES)
        with self._lock:
            self._prepared[handle] = Prepared(owner, sql)
            while len(self._prepared) > self._bounds.prepared_max:
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

    # Ends.

    def sweep(self) -> None:
        """End what nobody fetches, and forget what nobody fetched again.

        What cannot be ended because its coordinator does not answer is kept, and tried again at the next sweep.
        """
        now = self._clock()
        with self._lock:
            idle = [(handle, each) for handle, each in self._begun.items() if not each.readers]
            forgotten = [handle for handle, each in idle if each.is_over and now - each.seen_at > self._bounds.kept_s]
            for handle in forgotten:
                del self._begun[handle]
            unfetched = [
                (handle, each)
                for handle, each in idle
                if not each.is_over and now - each.seen_at > self._bounds.grace_s
            ]
            # Before they are cancelled, so that no fetch starts on a query that is about to end.
            for handle, _ in unfetched:
                del self._begun[handle]
        for handle, each in unfetched:
            if not _cancel(each, "nobody fetched it"):
                with self._lock:
                    self._begun[handle] = each

    def close(self) -> None:
        """End everything that goes on, and whatever is begun from now on."""
        with self._lock:
            self._is_closed = True
            left = [each for each in self._begun.values() if not each.is_over]
            self._begun.clear()
        for each in left:
            if not _cancel(each, "its front end was stopped"):
                # Nobody answers, and would not for the others.
                break


def _cancel(begun: Begun, reason: str) -> bool:
    """Whether a query has ended now."""
    try:
        begun.query.cancel(reason)
    except Unavailable:
        return False
    except Refused:
        # It has ended by itself, or its coordinator has forgotten it.
        pass
    return True
