"""Sources that need no files: rows that are made up at a rate, and tables that are there already."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from rota.core.errors import Refused
from rota.kinds.query.streams.asking import fitted, row_schema
from rota.kinds.query.streams.kernels import pc
from rota.kinds.query.streams.policies import Policies, Unusable
from rota.kinds.query.streams.rounds import Offset
from rota.wire.capabilities import Source
from rota.wire.flushing import flush

_RATE = pa.schema([("at", pa.timestamp("ms", "UTC")), ("key", pa.int64()), ("value", pa.int64())])


class Rate:
    """So many rows a second, each with the time at which it is due: `at`, `key` (of so many) and `value` (a number)."""

    can = Source.REWINDABLE | Source.SPLITTABLE
    schema = _RATE

    def __init__(
        self, rows_per_s: int, *, keys: int = 10, partitions: int = 1, rows: int = 0, from_ms: int = 0
    ) -> None:
        """So many in each partition. `rows`: how many there are in each; 0 for no end.

        `from_ms`: when they begin; 0 for when it is first looked at.
        """
        if rows_per_s < 1 or keys < 1 or partitions < 1 or rows < 0:
            raise Refused("field.value", "a rate has at least one row a second, key and partition", path="rows_per_s")
        self._rows_per_s, self._keys, self._rows = rows_per_s, keys, rows
        self.partitions = partitions
        self._from_ms = from_ms
        self._is_told = from_ms > 0
        self._due = 0
        self._began = Path()
        if rows:
            self.can |= Source.BOUNDED
        began = f", from {from_ms}" if from_ms else ""
        self.called = f"a rate of {rows_per_s} rows/s ({keys} keys, {partitions} partitions, {rows} rows{began})"

    def open(self, folder: Path) -> None:
        """Remember when it began: what a row is depends on that."""
        self._began = folder / "began"
        if not self._from_ms and self._began.exists():
            self._from_ms = int(self._began.read_text())

    def remembered(self) -> bytes:
        """When it began, unless everybody is told."""
        return b"" if self._is_told else str(self._from_ms).encode()

    def recall(self, remembered: bytes) -> None:
        """It began when the other did."""
        began = int(remembered)
        if self._from_ms not in (0, began):
            text = f"{self.called} began at another time in this folder"
            raise Refused("stream.source", text, "Restore it in a folder where nothing has begun.", path="restore")
        if not self._from_ms and began:
            self._begin(began)

    def _begin(self, from_ms: int) -> None:
        self._from_ms = from_ms
        aside = self._began.with_name("_began")
        aside.write_text(str(from_ms))
        flush(aside)
        aside.replace(self._began)
        flush(self._began.parent)

    def check_known(self, partition: int, offset: Offset) -> None:
        """A number says it all."""

    def look(self, now_ms: int) -> None:
        """Rows that are due by now."""
        if not self._from_ms:
            self._begin(now_ms)
        due = max(0, now_ms - self._from_ms) * self._rows_per_s // 1_000
        self._due = min(due, self._rows) if self._rows else due

    def beginning(self, partition: int) -> Offset:
        """The first row."""
        return (0,)

    def end_of_range(self, partition: int, begin: Offset, rows_max: int) -> Offset:
        """What is due."""
        return (max(begin[0], min(self._due, begin[0] + rows_max)),)

    def is_over(self, partition: int, begin: Offset) -> bool:
        """Whether that were all."""
        return bool(self._rows) and begin[0] >= self._rows

    def read(self, partition: int, begin: Offset, end: Offset, policies: Policies, refused: Unusable) -> pa.Table:
        """Rows by their numbers."""
        numbers = pa.array(range(begin[0], end[0]), pa.int64())
        due = pc.add(pc.divide(pc.multiply(numbers, 1_000), self._rows_per_s), self._from_ms)
        mixed = pc.bit_wise_and(pc.shift_right(pc.multiply(numbers, 2_654_435_761), 7), (1 << 40) - 1)
        keys = pc.subtract(mixed, pc.multiply(pc.divide(mixed, self._keys), self._keys))
        return pa.table([due.cast(_RATE.field("at").type), keys, numbers], schema=_RATE)


class Tables:
    """Tables that are in memory, one for each partition; for tests and notebooks. They end."""

    can = Source.BOUNDED | Source.REWINDABLE | Source.SPLITTABLE

    def __init__(self, *tables: pa.Table) -> None:
        if not tables:
            raise Refused("field.value", "there are no tables", path="tables")
        self.schema = row_schema(tables[0].schema)
        self._tables: Sequence[pa.Table] = [fitted(table, self.schema) for table in tables]
        self.partitions = len(tables)
        self.called = f"tables in memory ({self.partitions} partitions)"

    def open(self, folder: Path) -> None:
        """They are there."""

    def remembered(self) -> bytes:
        """Nothing."""
        return b""

    def recall(self, remembered: bytes) -> None:
        """There was nothing."""

    def check_known(self, partition: int, offset: Offset) -> None:
        """A number says it all."""

    def look(self, now_ms: int) -> None:
        """There is nothing new."""

    def beginning(self, partition: int) -> Offset:
        """The first row."""
        return (0,)

    def end_of_range(self, partition: int, begin: Offset, rows_max: int) -> Offset:
        """So many, or what is left."""
        return (min(self._tables[partition].num_rows, begin[0] + rows_max),)

    def is_over(self, partition: int, begin: Offset) -> bool:
        """At the end of a table."""
        return begin[0] >= self._tables[partition].num_rows

    def read(self, partition: int, begin: Offset, end: Offset, policies: Policies, refused: Unusable) -> pa.Table:
        """A slice."""
        return self._tables[partition].slice(begin[0], end[0] - begin[0])
