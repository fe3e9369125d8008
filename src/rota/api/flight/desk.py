"""What the server asks of whoever runs queries: a session for each caller."""

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa
from msgspec import Struct


class Table(Struct, frozen=True):
    """A table as clients list them."""

    catalog: str
    schema: str
    name: str
    columns: pa.Schema


class Query(Protocol):
    """A query that was begun."""

    schema: pa.Schema

    def stream(self, timeout_s: float | None = None) -> pa.RecordBatchReader:
        """Its answer, as often as one likes; raises TimeoutError while it goes on, or Refused if it failed."""
        ...

    def cancel(self, reason: str = "") -> None:
        """End it."""
        ...


class CallersSession(Protocol):
    """What one caller may ask. `connection` tells the caller's connections apart; "" is one that is not known again."""

    def begin(self, sql: str, params: Sequence[Any], connection: str = "") -> Query:
        """Begin to run a statement. Raises Refused."""
        ...

    def schema_of(self, sql: str, params: Sequence[Any] = (), connection: str = "") -> pa.Schema | None:
        """What a statement would give; None if it has parameters without values."""
        ...

    def parameters_of(self, sql: str) -> Sequence[str]:
        """The parameters of a statement."""
        ...

    def tables(self) -> Sequence[Table]:
        """All tables."""
        ...


class Desk(Protocol):
    """Has a session for whoever presents a token."""

    def session(self, token: str, peer: str) -> CallersSession:
        """The session of a caller. Raises Refused for a token that is not accepted; `peer` is for the journal."""
        ...
