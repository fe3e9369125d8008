"""What becomes of rows that cannot be used: nothing is lost without being counted."""

from typing import Literal

import msgspec
import pyarrow as pa
from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.streams.values import NO_VALUE, as_numbers

Policy = Literal["fail", "skip", "dead_letter"]

HOUR_MS = 3_600_000

# Where rows go that cannot be used: why, and the row as JSON.
DEAD = pa.schema([("reason", pa.string()), ("partition", pa.string()), ("row", pa.string())])


class Policies(Struct, frozen=True, kw_only=True):
    """What becomes of rows: they fail the stream, are left out and counted, or are kept with a reason.

    `no_time`: rows without a time; `far_future`: rows of later than `ahead_ms` from when they were read, which could
    end all windows at once; `poison`: rows that cannot be read; `schema`: files with other columns; `missing`: files
    that are gone or were changed before they were read (there are no rows to keep then, only a reason).
    """

    no_time: Policy = "dead_letter"
    far_future: Policy = "dead_letter"
    poison: Policy = "dead_letter"
    schema: Policy = "fail"
    missing: Policy = "fail"
    ahead_ms: int = HOUR_MS


class Unusable(Struct):
    """Rows of one round that could not be used, by what was to become of them."""

    dead: list[dict[str, str]] = []
    skipped: int = 0

    def take(self, policy: Policy, reason: str, partition: str, rows: list[str]) -> None:
        """Do with rows what a policy says; there may be none, and only a reason."""
        if policy == "fail":
            text = f"{reason}, in {partition}" + (f": {rows[0][:200]}" if rows else "")
            raise Refused("stream.row", text, "Correct it, or choose a policy: skip or dead_letter.")
        if policy == "skip":
            self.skipped += max(1, len(rows))
            return
        self.dead.extend({"reason": reason, "partition": partition, "row": row} for row in rows or [""])

    def table(self) -> pa.Table:
        """Those that are kept."""
        return pa.Table.from_pylist(self.dead, schema=DEAD)


def as_json(rows: pa.Table) -> list[str]:
    """Rows, for people to read and programs to take up again."""
    try:
        found = rows.to_pylist()
    except NO_VALUE:
        columns = [as_numbers(column) for column in rows.columns]
        found = pa.table(columns, rows.schema.names).to_pylist()
    return [msgspec.json.encode(row, enc_hook=str).decode() for row in found]
