"""One task of a round at work: it reads rows or owns a partition of a state, and spreads what others want.

It runs in a worker's process. It depends on nothing but what it was told and what it reads, so that another attempt
comes to the same; what it writes has the attempt's name, and counts if its report is accepted.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from rota.core.errors import Refused
from rota.kinds.query.streams.asking import Asking
from rota.kinds.query.streams.keygroups import split
from rota.kinds.query.streams.operators import Moment, Operator, Rows, State
from rota.kinds.query.streams.pieces import Damaged, Piece, Place, read_piece, write_pieces
from rota.kinds.query.streams.pipeline import ONE
from rota.kinds.query.streams.policies import Unusable
from rota.kinds.query.streams.scanning import read_scanned
from rota.kinds.query.streams.steps import Owning, Reading, SentView, Step, Told, opened_operator, schema_of
from rota.kinds.query.streams.views import viewed
from rota.kinds.query.streams.watermarks import Clock, latest

# A view of these rows.
View = Callable[[SentView, pa.Table], pa.Table]


class Around(Protocol):
    """What is around a task: what others have told and spread, and where it spreads what is for others."""

    def told(self, exchange: int) -> Sequence[Told]:
        """What the tasks of another group have told."""
        ...

    def taken(self, exchange: int, part: int) -> list[pa.Table]:
        """What they have spread to a part."""
        ...

    def spread(self, part: int, table: pa.Table) -> None:
        """Rows for a part of what this task gives others."""
        ...


class Task:
    """One attempt at a task."""

    def __init__(self, step: Step, number: int, attempt: str, around: Around, asking: Asking, view: View) -> None:
        self._step = step
        self._number = number
        self._attempt = attempt
        self._around = around
        self._view = view
        self._operators = {name: opened_operator(sent, asking) for name, sent in step.operators.items()}
        self._rows: dict[str, Rows] = {}
        self._leaving: dict[str, list[pa.Table]] = {}
        self._counts: dict[str, int] = {}

    def run(self) -> Told:
        """Do all of it."""
        clock, mark, kept = None, 0, ()
        if self._step.owning is not None:
            clock, mark, kept = self._own(self._step.owning)
        else:
            self._read(self._step.readings[self._number])
        for view in self._step.views:
            self._look(view)
        for name, rows in self._rows.items():
            for table in rows.values():
                self._count(f"{name}.rows", table.num_rows)
                if name in self._step.wanted:
                    self._leave(name, table)
        peaks = self._feed()
        return Told(clock=clock, mark=mark, peaks=peaks, pieces=(*kept, *self._left()), counts=self._counts)

    # Where rows come from.

    def _read(self, reading: Reading) -> None:
        refused, schema = Unusable(), schema_of(reading.schema)
        if reading.files is not None:
            table = read_scanned(reading.files, schema, reading.policies, refused)
        else:
            assert reading.rows is not None, "it reads files, or rows that were put down"
            table = _piece(*reading.rows)
        self._rows[reading.source] = {reading.partition: table}
        self._set_aside(reading.source, refused)

    def _look(self, view: SentView) -> None:
        refused = Unusable()
        rows = viewed(
            lambda table: self._view(view, table),
            schema_of(view.schema),
            view.on_error,
            self._rows[view.reads],
            refused,
        )
        self._rows[view.name] = rows
        self._set_aside(view.name, refused)

    # State.

    def _own(self, owning: Owning) -> tuple[Clock, int, tuple[Piece, ...]]:
        operator = self._operators[owning.operator]
        before = self._step.clocks.get(operator.name, Clock())
        told = {each.exchange: self._around.told(each.exchange) for each in owning.takings}
        told |= {exchange: self._around.told(exchange) for exchange in owning.follows}
        marks = [each.mark for exchange in owning.follows for each in told[exchange]]
        marks += () if owning.mark is None else (owning.mark,)
        moment = Moment(self._step.plan, before, owning.partitions, min(marks, default=None))
        peaks = latest(each.peaks.get(operator.name, {}) for tasks in told.values() for each in tasks)
        after = operator.advanced(moment, peaks)
        new = self._taken(operator, owning)
        pieces = owning.kept[self._number]
        is_quiet = owning.is_dealt and not any(table.num_rows for table in new.values())
        self._rows[operator.name] = {}
        if is_quiet and after.mark == before.mark:
            return after, operator.mark_after(after.mark), tuple(piece for piece, _ in pieces)
        merged, given = operator.merge(self._state(operator, owning), new, before, after)
        if given.num_rows:
            self._rows[operator.name] = {ONE: given}
        # With nothing new and nothing given, a table that has as many rows as before has the same ones.
        same = [piece for piece, _ in pieces if piece.rows == merged[piece.table].num_rows]
        kept = self._kept(operator, merged, same if is_quiet and not given.num_rows else [])
        return after, operator.mark_after(after.mark), kept

    def _taken(self, operator: Operator, owning: Owning) -> dict[str, pa.Table]:
        """What came for this partition, by the inputs of its operator."""
        found: dict[str, list[pa.Table]] = {}
        for source, schema in zip(operator.inputs, operator.read_as, strict=True):
            # Before all rows: with the columns of what is spread.
            rows = schema.empty_table().append_column("_t", pa.array([], pa.int64()))
            found[source] = [operator.prepared(source, rows)]
        for each in owning.takings:
            found[each.source] += self._around.taken(each.exchange, each.first + self._number)
        return {source: pa.concat_tables(tables) for source, tables in found.items()}

    def _state(self, operator: Operator, owning: Owning) -> State:
        state = operator.beginning()
        for piece, place in owning.kept[self._number]:
            if piece.table not in state:
                text = f"there is state of {piece.node} ({piece.table}), which is not in this stream"
                raise Refused("stream.definition", text, "Register what was registered before.")
            table = _piece(piece, place)
            if not owning.is_dealt:
                table = split(table, operator.keyed_by[piece.table], self._step.parallelism)[self._number]
            state[piece.table] = pa.concat_tables([state[piece.table], table])
        return state

    def _kept(self, operator: Operator, state: State, same: Sequence[Piece]) -> tuple[Piece, ...]:
        """The state as pieces: those that are the same are named again, and tables without rows are none."""
        known = [piece.table for piece in same]
        new = [
            (Piece(kind="state", node=operator.name, table=name, partition=self._number), table)
            for name, table in state.items()
            if name not in known and table.num_rows
        ]
        file = f"{self._step.aside}/{operator.name}-{self._number}-{self._attempt}.state"
        return (*same, *write_pieces(Path(self._step.folder), file, new, is_kept=True))

    # Where rows go.

    def _feed(self) -> dict[str, dict[str, int]]:
        """Spread rows to those who own the state that they are for; the latest that were seen, by operator."""
        peaks: dict[str, dict[str, int]] = {}
        for feed in self._step.feeds:
            operator, refused = self._operators[feed.operator], Unusable()
            moment = Moment(self._step.plan, self._step.clocks.get(operator.name, Clock()), {})
            sifted = operator.sift(feed.source, self._rows[feed.source], moment, refused)
            if sifted.rows.num_rows:
                new = operator.prepared(feed.source, sifted.rows)
                for number, table in enumerate(split(new, operator.spread_by, self._step.parallelism)):
                    if table.num_rows:
                        self._around.spread(feed.first + number, table)
            peaks[operator.name] = latest((peaks.get(operator.name, {}), sifted.peaks))
            if sifted.late.num_rows:
                self._leave(f"{operator.name}.late", sifted.late)
                self._count(f"{operator.name}.late", sifted.late.num_rows)
            self._set_aside(operator.name, refused)
        return peaks

    def _set_aside(self, name: str, refused: Unusable) -> None:
        if refused.dead:
            self._leave(f"{name}.dead", refused.table())
            self._count(f"{name}.dead", len(refused.dead))
        self._count(f"{name}.skipped", refused.skipped)

    def _leave(self, name: str, table: pa.Table) -> None:
        if table.num_rows:
            self._leaving.setdefault(name, []).append(table)

    def _count(self, name: str, more: int) -> None:
        if more:
            self._counts[name] = self._counts.get(name, 0) + more

    def _left(self) -> tuple[Piece, ...]:
        """Rows that leave the stream, for whoever drives it. If they are lost, the round is made again."""
        head = self._step.owning.operator if self._step.owning else self._step.readings[self._number].source
        tables = [(Piece(kind="rows", node=name), pa.concat_tables(parts)) for name, parts in self._leaving.items()]
        file = f"{self._step.aside}/{head}-{self._number}-{self._attempt}.rows"
        return write_pieces(Path(self._step.folder), file, tables, is_kept=False)


def _piece(piece: Piece, place: Place) -> pa.Table:
    try:
        return read_piece(piece, place)
    except Damaged as damage:
        text = f"a round cannot be gone on from: {damage}"
        raise Refused("stream.corrupt", text, "Start the stream again: it goes on from an older round.") from None
