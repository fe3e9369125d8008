"""Where rounds are computed and their state is: in this process, or by workers (`rota.app.sql.rounds`)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from rota.core.errors import Refused
from rota.kinds.query.streams.manifests import Manifest, read_pieces
from rota.kinds.query.streams.operators import State
from rota.kinds.query.streams.pieces import Piece
from rota.kinds.query.streams.pipeline import Computed, Pipeline
from rota.kinds.query.streams.rounds import Plan
from rota.kinds.query.streams.watermarks import Clock

Pieces = list[tuple[Piece, pa.Table]]


class Computing(Protocol):
    """Computes rounds, one after the other, and knows the state after the last one."""

    # Whether the state is on the disk after each round, so that naming it costs nothing.
    is_kept: bool

    def begin(self) -> None:
        """State as it is before all rows."""
        ...

    def take(self, manifest: Manifest, path: Path) -> None:
        """State as it is after a round, which was seen to be undamaged; `path` is its file."""
        ...

    def kept(self) -> Mapping[str, int]:
        """How many rows each operator has in its state."""
        ...

    def compute(self, plan: Plan, clocks: Mapping[str, Clock], aside: str) -> Computed:
        """The next round. `aside` is where its pieces may be put, seen from the stream's folder."""
        ...

    def undo(self) -> None:
        """Have the state be as it was before the last round that was computed."""
        ...

    def state(self) -> tuple[Pieces, list[Piece]]:
        """The state after the last round: tables to be written down, and pieces that are already."""
        ...

    def files(self) -> Sequence[str]:
        """Files of pieces that this state is in, seen from the stream's folder."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


def check_made_again(manifest: Manifest, counts: Mapping[str, int], sources: Iterable[str]) -> None:
    """Refuse a round that was published and reads other rows now: its state would be another one, too.

    Views and what is behind them are not compared: tables that they join with may have changed.
    """
    for source in sources:
        for name in (f"{source}.rows", f"{source}.dead", f"{source}.skipped"):
            now, then = counts.get(name, 0), manifest.counts.get(name, 0)
            if now != then:
                text = f"round {manifest.round} cannot be made again: {name} were {then} by then, and are {now}"
                hint = "Bring back what was removed or changed, or restore a round with state."
                raise Refused("stream.source", text, hint)


class ComputingHere:
    """The engine in this process; state is in memory."""

    is_kept = False

    def __init__(self, pipeline: Pipeline, parallelism: int) -> None:
        self._pipeline = pipeline
        self._parallelism = parallelism
        self._states: dict[str, list[State]] = {}
        self._before = self._states

    def begin(self) -> None:
        """No state."""
        self._states = self._pipeline.beginning(self._parallelism)

    def take(self, manifest: Manifest, path: Path) -> None:
        """Read the pieces of a round, whoever wrote them."""
        tables: dict[tuple[str, str], list[pa.Table]] = defaultdict(list)
        for piece, table in read_pieces(path, "state"):
            if piece.table:
                tables[piece.node, piece.table].append(table)
        self._states = self._pipeline.dealt(tables, self._parallelism)

    def kept(self) -> Mapping[str, int]:
        """Of all tables."""
        return {
            name: sum(table.num_rows for state in states for table in state.values())
            for name, states in self._states.items()
        }

    def compute(self, plan: Plan, clocks: Mapping[str, Clock], aside: str) -> Computed:
        """All nodes, one after the other."""
        self._before = self._states
        done, self._states = self._pipeline.compute(plan, self._states, clocks)
        return done

    def undo(self) -> None:
        """Tables are never changed."""
        self._states = self._before

    def state(self) -> tuple[Pieces, list[Piece]]:
        """All tables."""
        found = [
            (Piece(kind="state", node=name, table=table, partition=number), content)
            for name, states in self._states.items()
            for number, state in enumerate(states)
            for table, content in state.items()
        ]
        return found, []

    def files(self) -> Sequence[str]:
        """It is in memory."""
        return ()

    def close(self) -> None:
        """It holds nothing."""
