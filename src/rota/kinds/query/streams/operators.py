"""What operators of a stream have in common: rows of a round in, state kept, rows given; and sifting before that."""

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa
from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.streams.kernels import pc
from rota.kinds.query.streams.policies import Policies, Unusable, as_json
from rota.kinds.query.streams.rounds import Plan
from rota.kinds.query.streams.values import with_equal_keys
from rota.kinds.query.streams.watermarks import END, Clock, advanced, carried, heard, listened

# Columns that statements of windows and joins add to those of rows.
_OURS = re.compile(r"_(t|n|new|pane|start|s|e|touched|fired|dirty|first|a[0-9]+(_sum|_count)?)")
_INT64_MAX = (1 << 63) - 1
# The last and the first number of a unit that is one of milliseconds, too.
_BOUNDS = {
    "s": (_INT64_MAX // 1_000, -(_INT64_MAX // 1_000)),
    "ms": (_INT64_MAX, -_INT64_MAX),
    "us": (_INT64_MAX, -(_INT64_MAX // 1_000) * 1_000),
    "ns": (_INT64_MAX, -(_INT64_MAX // 1_000_000) * 1_000_000),
}
# The tables of one partition of an operator's state, by their names.
State = dict[str, pa.Table]
# Rows by the partition that they came from; those of another operator have one.
Rows = Mapping[str, pa.Table]


class Moment(Struct, frozen=True):
    """What is known of time when a round reaches an operator.

    `partitions` are those of sources that it reads from, with how long each may be without rows before nobody waits for
    it. `upstream` is how far the operator has come that it reads from; None if it reads from sources.
    """

    plan: Plan
    clock: Clock
    partitions: Mapping[str, int]
    upstream: int | None = None

    def listened(self, peaks: Mapping[str, int]) -> Clock:
        """The clock with the latest rows of a round, and with who is silent."""
        plan = self.plan
        return listened(
            heard(self.clock, peaks),
            self.partitions,
            (*peaks, *plan.held),
            now_ms=plan.planned_at_ms,
            since_ms=plan.begun_at_ms or plan.planned_at_ms,
        )


class Stepped(Struct, frozen=True):
    """What a round came to in an operator."""

    states: list[State]
    given: pa.Table
    late: pa.Table
    refused: Unusable
    clock: Clock


class Operator(Protocol):
    """A part of a stream that keeps state. What it does depends on nothing but its arguments."""

    name: str
    inputs: tuple[str, ...]
    schema: pa.Schema
    # The columns of each input.
    read_as: tuple[pa.Schema, ...]
    # How many rows may wait in its state for others; 0 if rows do not wait there.
    waiting_max: int

    @property
    def registered(self) -> Struct:
        """What it was made of."""
        ...

    @property
    def keyed_by(self) -> Mapping[str, tuple[str, ...]]:
        """The columns by which each table of state is kept in partitions."""
        ...

    def beginning(self) -> State:
        """State before all rows."""
        ...

    def step(self, states: Sequence[State], rows: Mapping[str, Rows], moment: Moment) -> Stepped:
        """Take the rows of a round, by input, all of it in this process."""
        ...

    # The same in parts, for tasks that each have some of the rows, or one partition of the state.

    def sift(self, source: str, rows: Rows, moment: Moment, refused: Unusable) -> "Sifted":
        """Rows of an input that count, and those that are late."""
        ...

    def prepared(self, source: str, rows: pa.Table) -> pa.Table:
        """What of them is spread by `spread_by`: as little as does."""
        ...

    @property
    def spread_by(self) -> tuple[str, ...]:
        """The columns by which rows find the partition of the state that is theirs."""
        ...

    def advanced(self, moment: Moment, peaks: Mapping[str, int]) -> Clock:
        """How far time has come, by the latest rows of all partitions."""
        ...

    def merge(self, state: State, new: Mapping[str, pa.Table], before: Clock, after: Clock) -> tuple[State, pa.Table]:
        """One partition of the state with what was prepared for it, by input; and what is given."""
        ...

    def mark_after(self, mark: int) -> int:
        """How far whoever reads from it has come, when it has come as far as `mark`."""
        ...


def times_of(rows: pa.Table, column: str) -> pa.ChunkedArray:
    """The times of rows, as milliseconds; none where that is more than fits."""
    times = rows.column(column)
    try:
        return _milliseconds(times)
    except pa.ArrowInvalid:
        return _milliseconds(_fitting(times))


def _fitting(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times without those that overflow as milliseconds, or when they are cut to them."""
    unit = times.type.unit if pa.types.is_timestamp(times.type) else "ms"
    numbers = times if pa.types.is_unsigned_integer(times.type) else times.cast(pa.int64())
    most, least = _BOUNDS[unit]
    fits = pc.less_equal(numbers, pa.scalar(most, numbers.type))
    if not pa.types.is_unsigned_integer(times.type):
        fits = pc.and_(fits, pc.greater_equal(numbers, least))
    return pc.if_else(fits, times, pa.scalar(None, times.type))


def _milliseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(times.type):
        if times.type.tz is not None:
            # In any other zone an hour of the autumn is there twice.
            times = times.cast(pa.timestamp(times.type.unit, "UTC"))
        return pc.floor_temporal(times, unit="millisecond").cast(pa.timestamp("ms", times.type.tz)).cast(pa.int64())
    if pa.types.is_date(times.type):
        return times.cast(pa.timestamp("ms")).cast(pa.int64())
    return times if times.type == pa.int64() else times.cast(pa.int64())


def check_time(schema: pa.Schema, column: str, of: str) -> pa.DataType:
    """Refuse a column that is no time, and columns that are called like ours; the type of moments."""
    for name in schema.names:
        if _OURS.fullmatch(name):
            text = f"a column of {of} is called {name}, as one of the state is"
            raise Refused("query.column", text, "Give it another name in a view.", path="time")
    if column not in schema.names:
        text = f"{of} has no column {column}"
        raise Refused("query.column", text, f"There are {', '.join(schema.names)}.", path="time")
    kind = schema.field(column).type
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ms", kind.tz)
    if pa.types.is_date(kind):
        return pa.timestamp("ms")
    if pa.types.is_integer(kind):
        return pa.int64()
    text = f"{column} of {of} is {kind}, and no time"
    raise Refused("query.type", text, "A timestamp, a date, or whole milliseconds since 1970.", path="time")


def advance(moment: Moment, peaks: Mapping[str, int], delay_ms: int) -> Clock:
    """How far time has come for an operator that has one input."""
    after, plan = moment.listened(peaks), moment.plan
    if moment.upstream is None:
        return advanced(after, moment.partitions, delay_ms=delay_ms, idle=plan.idle, is_final=plan.is_final)
    return carried(after, moment.upstream if moment.upstream == END else moment.upstream - delay_ms)


class Sifted(Struct, frozen=True):
    """Rows that can be used, with their time as `_t`; the late ones; and the latest time of each partition."""

    rows: pa.Table
    late: pa.Table
    peaks: dict[str, int]


def sift(
    rows: Rows,
    schema: pa.Schema,
    time: str,
    moment: Moment,
    policies: Policies,
    refused: Unusable,
    horizon: int,
    keys: Sequence[str],
) -> Sifted:
    """Set rows aside that have no time, or one in the far future, or that come later than `horizon` allows.

    Equal `keys` of those that are left are the same.
    """
    limit = moment.plan.planned_at_ms + policies.ahead_ms
    kept: list[pa.Table] = []
    late: list[pa.Table] = []
    peaks: dict[str, int] = {}
    for partition, given in rows.items():
        table = given
        if not table.num_rows:
            continue
        times = times_of(table, time)
        if times.null_count:
            has_none = pc.is_null(times)
            refused.take(policies.no_time, f"a row has no time ({time})", partition, as_json(table.filter(has_none)))
            table, times = table.filter(pc.invert(has_none)), times.drop_null()
        if not table.num_rows:
            continue
        bounds = pc.min_max(times).as_py()
        if bounds["max"] > limit:
            is_far = pc.greater(times, limit)
            reason = f"the time of a row ({time}) is more than {policies.ahead_ms // 1_000} s ahead"
            refused.take(policies.far_future, reason, partition, as_json(table.filter(is_far)))
            table, times = table.filter(pc.invert(is_far)), times.filter(pc.invert(is_far))
            if not table.num_rows:
                continue
            bounds = pc.min_max(times).as_py()
        peaks[partition] = bounds["max"]
        if bounds["min"] <= horizon:
            is_late = pc.less_equal(times, horizon)
            late.append(table.filter(is_late))
            table, times = table.filter(pc.invert(is_late)), times.filter(pc.invert(is_late))
        kept.append(table.append_column("_t", times))
    empty = schema.empty_table()
    whole = (
        kept[0] if len(kept) == 1 else pa.concat_tables([empty.append_column("_t", pa.array([], pa.int64())), *kept])
    )
    return Sifted(with_equal_keys(whole, keys), pa.concat_tables([empty, *late]), peaks)
