"""Rows on their way out of a stream: sinks prepare before a round is published, and commit after it, maybe again."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pyarrow as pa
from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.streams.connectors import StreamSink
from rota.kinds.query.streams.manifests import Manifest, Transaction
from rota.kinds.query.streams.pieces import Piece
from rota.kinds.query.streams.pipeline import Computed, Side
from rota.wire.capabilities import Sink


class Outlet(Struct, frozen=True):
    """A sink, and what goes there. Without a sink, rows are for whoever iterates over the stream."""

    node: str
    side: Side
    sink: StreamSink | None

    @property
    def name(self) -> str:
        """What it is called in manifests."""
        return self.node if self.side == "given" else f"{self.node}.{self.side}"

    @property
    def is_kept(self) -> bool:
        """Whether the round has to keep the rows until they have arrived."""
        return self.sink is None or self.sink.wants_rows_kept

    def is_of(self, transaction: Transaction) -> bool:
        """Whether that is what this one has prepared."""
        called = self.sink.called if self.sink is not None else ""
        return (self.name, called) == (transaction.node, transaction.sink)


class Leaving(Struct, frozen=True):
    """Rows of one round for one outlet, and what its sink has prepared for them."""

    outlet: Outlet
    rows: pa.Table
    transaction: Transaction


class Delivery:
    """The outlets of a stream, for one incarnation of it."""

    def __init__(self, outlets: Sequence[Outlet]) -> None:
        self._outlets = tuple(outlets)
        self._sinks = [(each.name, each.sink) for each in outlets if each.sink is not None]
        self._behind: list[Future[None]] = []
        self._threads = ThreadPoolExecutor(1, "rota-stream")
        # How many rows sinks have refused of the last round, as its manifest could not know.
        self.refused: dict[str, int] = {}

    def open(self, stream: str) -> None:
        """See that all of them can be written to."""
        for _, sink in self._sinks:
            sink.open(stream)

    def folders(self) -> list[str]:
        """The sinks that have what each round gave, and nothing else: what was taken back there does not come again."""
        return [f"{name} ({sink.called})" for name, sink in self._sinks if Sink.TWO_PHASE in sink.can]

    def take_back(self, number: int, incarnation: int) -> None:
        """Have sinks forget what came after a round, and whoever was at it before."""
        for name, sink in self._sinks:
            sink.take_back(name, number, incarnation)

    def prepare(self, done: Computed, number: int, incarnation: int) -> list[Leaving]:
        """Get ready for what a round gives."""
        found: list[Leaving] = []
        for outlet in self._outlets:
            rows = {"given": done.given, "late": done.late, "dead": done.dead}[outlet.side].get(outlet.node)
            if rows is None or not rows.num_rows:
                continue
            sink = outlet.sink
            prepared = sink.prepare(outlet.name, number, incarnation, rows) if sink is not None else {}
            transaction = Transaction(
                sink=sink.called if sink is not None else "",
                node=outlet.name,
                rows=rows.num_rows,
                prepared=prepared,
                is_kept_here=outlet.is_kept,
            )
            found.append(Leaving(outlet, rows, transaction))
        return found

    def commit(self, leaving: Sequence[Leaving], published: Manifest, incarnation: int) -> None:
        """Have the rows of a round seen, now that it is published. Sinks that may lag are not waited for."""
        self.refused = {}
        for each in leaving:
            arguments = (each.outlet, each.transaction, published.round, incarnation, partial(_same, each.rows))
            if each.outlet.sink is not None and each.outlet.sink.may_lag:
                self._behind.append(self._threads.submit(self._commit, *arguments))
            else:
                self._commit(*arguments)

    def commit_again(self, last: Manifest, kept: Mapping[str, pa.Table], incarnation: int) -> dict[str, pa.Table]:
        """Have sinks commit a round once more: nobody knows whether they did. Gives the rows of whoever iterates.

        `kept` are the rows that the round has kept, as far as they are what was written.
        """
        self.refused = {}
        rows: dict[str, pa.Table] = {}
        for transaction in last.transactions:
            if transaction.is_kept_here and transaction.node not in kept:
                text = f"rows of {transaction.node} in round {last.round} are not what was written"
                raise Refused("stream.corrupt", text, "Restore the stream from an older round.")
            for outlet in self._outlets:
                if outlet.is_of(transaction):
                    self._commit(outlet, transaction, last.round, incarnation, partial(kept.__getitem__, outlet.name))
                if outlet.name == transaction.node and outlet.sink is None:
                    rows[transaction.node] = kept[transaction.node]
        return rows

    def unclaimed(self, last: Manifest) -> list[str]:
        """What the last round has for sinks that are none any more: nobody knows whether it arrived there."""
        return [
            f"{each.rows:,} rows of {each.node} were for {each.sink}, which is no sink any more"
            for each in last.transactions
            if each.sink and not any(outlet.is_of(each) for outlet in self._outlets)
        ]

    def _commit(
        self, outlet: Outlet, transaction: Transaction, number: int, incarnation: int, rows: Callable[[], pa.Table]
    ) -> None:
        if outlet.sink is None:
            return
        refused = outlet.sink.commit(outlet.name, number, incarnation, transaction.prepared, rows)
        if refused:
            name = f"{outlet.name}.refused"
            self.refused[name] = self.refused.get(name, 0) + refused

    def catch_up(self) -> None:
        """Wait for sinks that lag: only the last round is committed again by whoever comes next."""
        while self._behind:
            self._behind.pop(0).result()

    def close(self) -> None:
        """Let go of all of them."""
        self._threads.shutdown()
        for _, sink in self._sinks:
            sink.close()


def kept_rows(leaving: Sequence[Leaving]) -> list[tuple[Piece, pa.Table]]:
    """What the round itself has to keep until its rows have arrived."""
    return [(Piece(kind="rows", node=each.outlet.name), each.rows) for each in leaving if each.outlet.is_kept]


def _same(rows: pa.Table) -> pa.Table:
    return rows
