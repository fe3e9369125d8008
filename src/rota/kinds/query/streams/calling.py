"""A function as a sink: it is called with the rows of each round."""

from collections.abc import Callable, Sequence
from typing import Literal

import pyarrow as pa

from rota.core.errors import Refused
from rota.kinds.query.streams.given import check_callable
from rota.kinds.query.streams.policies import Unusable
from rota.kinds.query.streams.refusing import Refusals
from rota.wire.capabilities import Sink


class CallbackSink:
    """A function that is given the rows of a round and its number, after the round was published.

    After a crash it may be given a round again, with the same rows and the same number. If it raises, it has refused
    all of them.
    """

    wants_rows_kept = True
    may_lag = False

    def __init__(
        self,
        function: Callable[[pa.Table, int], object],
        *,
        notices: Literal["nothing", "rounds"] = "nothing",
        refusals: Refusals | None = None,
    ) -> None:
        """`notices="rounds"`: it knows a round by its number, and does nothing the second time."""
        check_callable(function, "function")
        self._function = function
        self._refusals = refusals or Refusals()
        self.can = Sink.IDEMPOTENT if notices == "rounds" else Sink(0)
        self._named = f"function {getattr(function, '__qualname__', 'without a name')}"
        self.called = self._named

    def tell_apart(self, others: Sequence[object]) -> None:
        """Be called otherwise than other functions for the same rows, though their names may be the same.

        By its number, which stays the same when lines of a program move: what is called otherwise at the next start is
        not given the last round again.
        """
        rivals = [each for each in others if isinstance(each, CallbackSink) and each._named == self._named]
        if rivals and not any(each._function == self._function for each in rivals):
            self.called = f"{self._named} ({len(rivals) + 1})"

    def check(self, node: str, schema: pa.Schema) -> None:
        """A function takes any rows."""

    def open(self, stream: str) -> None:
        """It is there."""
        self._refusals.open(stream)

    def prepare(self, node: str, number: int, incarnation: int, rows: pa.Table) -> dict[str, str]:
        """The round keeps the rows."""
        return {}

    def commit(
        self, node: str, number: int, incarnation: int, prepared: dict[str, str], rows: Callable[[], pa.Table]
    ) -> int:
        """Call it."""
        table, refused = rows(), Unusable()
        try:
            self._function(table, number)
        except Exception as error:
            text = f"{self.called} raised {type(error).__name__} for round {number} of {node}: {error}"
            if not self._refusals.is_tolerant:
                raise Refused("stream.sink", text, "It is called again when the stream is started.") from error
            self._refusals.refuse(refused, text, self.called, table)
        return self._refusals.keep(node, number, incarnation, refused)

    def take_back(self, node: str, number: int, incarnation: int) -> None:
        """What was told cannot be untold; it will be told again."""
        self._refusals.take_back(node, number, incarnation)

    def close(self) -> None:
        """It holds nothing."""
