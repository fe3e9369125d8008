"""What a stream reads from and writes to, as it sees them.

Flags say what can be counted on (`rota.wire.capabilities`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from rota.kinds.query.streams.policies import Policies, Unusable
from rota.kinds.query.streams.rounds import Offset
from rota.wire.capabilities import Sink, Source


class StreamSource(Protocol):
    """Where rows come from. The same range gives the same rows, as often as it is read."""

    can: Source
    # What it is, for people; and what of it must not change between two starts.
    called: str
    partitions: int
    schema: pa.Schema

    def open(self, folder: Path) -> None:
        """Begin. `folder` is for what it has to remember."""
        ...

    def remembered(self) -> bytes:
        """What of its folder offsets mean something with, for another folder; nothing if they mean it anywhere."""
        ...

    def recall(self, remembered: bytes) -> None:
        """Take over what it remembered in another folder, where nothing else is remembered; or refuse."""
        ...

    def check_known(self, partition: int, offset: Offset) -> None:
        """Refuse, if it does not remember any more what an offset means that was read up to; before it looks."""
        ...

    def look(self, now_ms: int) -> None:
        """See what there is to read by now."""
        ...

    def beginning(self, partition: int) -> Offset:
        """Where a partition begins."""
        ...

    def end_of_range(self, partition: int, begin: Offset, rows_max: int) -> Offset:
        """How far to read if about so many rows are wanted; `begin` if there are none."""
        ...

    def is_over(self, partition: int, begin: Offset) -> bool:
        """Whether no rows can come from here on, now or later."""
        ...

    def read(self, partition: int, begin: Offset, end: Offset, policies: Policies, refused: Unusable) -> pa.Table:
        """Rows from an offset up to another one. Those that cannot be read go where policies say."""
        ...


class StreamSink(Protocol):
    """Where rows go. It prepares before a round is published, and commits after that, maybe more than once."""

    can: Sink
    called: str
    # Whether a round has to keep the rows until it is committed, because the sink does not.
    wants_rows_kept: bool
    # Whether rows may be seen a round later, so that nobody waits for the disk.
    may_lag: bool

    def check(self, node: str, schema: pa.Schema) -> None:
        """Refuse rows with columns that it can never take."""
        ...

    def open(self, stream: str) -> None:
        """Begin; refuse a place that cannot be written to."""
        ...

    def prepare(self, node: str, number: int, incarnation: int, rows: pa.Table) -> dict[str, str]:
        """Get ready; what it has to be told when it commits."""
        ...

    def commit(
        self, node: str, number: int, incarnation: int, prepared: dict[str, str], rows: Callable[[], pa.Table]
    ) -> int:
        """Make the rows of a round seen. It may have happened already. How many rows of it were refused."""
        ...

    def take_back(self, node: str, number: int, incarnation: int) -> None:
        """Remove what was seen of rounds after `number`, which will be made again; or refuse."""
        ...

    def close(self) -> None:
        """Let go."""
        ...
