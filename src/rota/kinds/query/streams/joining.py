"""Two streams joined: rows with the same keys whose times are near each other, whichever comes first.

Rows wait for each other until time has passed them by. How many may is bounded (`pressure`).
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.streams.asking import Asking, fitted
from rota.kinds.query.streams.kernels import pc
from rota.kinds.query.streams.keygroups import split
from rota.kinds.query.streams.operators import Moment, Rows, Sifted, State, Stepped, check_time, sift
from rota.kinds.query.streams.policies import Policies, Unusable, as_json
from rota.kinds.query.streams.watermarks import END, Clock, advanced, carried, latest
from rota.kinds.query.streams.windows import quoted

LEFT, RIGHT = "left", "right"
LATE = pa.schema([("side", pa.string()), ("row", pa.string())])


class Join(Struct, frozen=True, kw_only=True):
    """A join as it was registered: rows on the right are from `least_ms` to `most_ms` later than those on the left."""

    name: str
    left: str
    right: str
    on: tuple[str, ...]
    times: tuple[str, str]
    least_ms: int
    most_ms: int
    delay_ms: int = 0
    waiting_max: int = 1_000_000
    policies: Policies = Policies()


class JoinOperator:
    """Rows of two inputs, and those that wait."""

    def __init__(self, join: Join, left: pa.Schema, right: pa.Schema, asking: Asking) -> None:
        self.name = join.name
        self.inputs = (join.left, join.right)
        self.registered = join
        self.read_as = (left, right)
        self.waiting_max = join.waiting_max
        self._join = join
        self._asking = asking
        self._given_by: dict[str, pa.Schema] = {LEFT: left, RIGHT: right}
        if join.left == join.right or not join.on or join.least_ms > join.most_ms:
            text = "two different streams are joined by at least one column, within a time that begins before it ends"
            raise Refused("field.value", text, path="on")
        for side, time in zip((LEFT, RIGHT), join.times, strict=True):
            check_time(self._given_by[side], time, f"the {side} side of {join.name}")
            for key in join.on:
                if key not in self._given_by[side].names:
                    text = f"the {side} side of {join.name} has no column {key}"
                    raise Refused("query.column", text, path="on")
        for key in join.on:
            types = left.field(key).type, right.field(key).type
            if not _is_same(*types):
                text = f"{key} is {types[0]} on the left of {join.name}, and {types[1]} on the right"
                raise Refused("query.type", text, "Cast one of them in a view.", path="on")
        moment = pa.field("_t", pa.int64())
        self._kept = {side: schema.append(moment) for side, schema in self._given_by.items()}
        called = {name: f"right_{name}" if name in left.names else name for name in right.names if name not in join.on}
        fields = [*left, *(right.field(name).with_name(new) for name, new in called.items())]
        self.schema = pa.schema([pa.field(field.name, field.type) for field in fields])
        if len(dict.fromkeys(self.schema.names)) != len(self.schema.names):
            text = f"two columns of {join.name} would have the same name: {', '.join(self.schema.names)}"
            raise Refused("query.column", text, "Give one another name in a view.", path="name")
        columns = [f"l.{quoted(name)}" for name in left.names]
        columns += (f"r.{quoted(name)} as {quoted(new)}" for name, new in called.items())
        keys = " and ".join(f"l.{quoted(key)} = r.{quoted(key)}" for key in join.on)
        near = f"r._t >= l._t + {join.least_ms} and r._t <= l._t + {join.most_ms}"
        self._sql = f"select {', '.join(columns)} from _left l join _right r on {keys} and {near}"

    @property
    def keyed_by(self) -> Mapping[str, tuple[str, ...]]:
        """By what rows are joined on."""
        return {LEFT: self._join.on, RIGHT: self._join.on}

    def beginning(self) -> State:
        """Nobody waits."""
        return {side: schema.empty_table() for side, schema in self._kept.items()}

    def mark_after(self, mark: int) -> int:
        """A row that waited may be given when time has passed it."""
        return mark if mark == END else mark - max(0, self._join.most_ms, -self._join.least_ms)

    def step(self, states: Sequence[State], rows: Mapping[str, Rows], moment: Moment) -> Stepped:
        """Join what is new with what waits, and let go of what nobody can come for any more."""
        refused = Unusable()
        sifted = {source: self.sift(source, rows[source], moment, refused) for source in self.inputs}
        after = self.advanced(moment, latest(each.peaks for each in sifted.values()))
        new = {
            source: split(self.prepared(source, each.rows), self.spread_by, len(states))
            for source, each in sifted.items()
        }
        merged = [
            self.merge(state, {source: parts[number] for source, parts in new.items()}, moment.clock, after)
            for number, state in enumerate(states)
        ]
        given = pa.concat_tables([self.schema.empty_table(), *(each for _, each in merged)])
        late = pa.concat_tables([each.late for each in sifted.values()])
        return Stepped([state for state, _ in merged], given, late, refused, after)

    def sift(self, source: str, rows: Rows, moment: Moment, refused: Unusable) -> Sifted:
        """Rows that are not from before what was waited for: those that they could be joined with may be gone."""
        side = LEFT if source == self._join.left else RIGHT
        join, horizon = self._join, moment.clock.mark - 1
        time = join.times[side == RIGHT]
        found = sift(rows, self._given_by[side], time, moment, join.policies, refused, horizon, join.on)
        late = [{"side": side, "row": row} for row in as_json(found.late)]
        return Sifted(found.rows, pa.Table.from_pylist(late, schema=LATE), found.peaks)

    def prepared(self, source: str, rows: pa.Table) -> pa.Table:
        """Rows as they are kept."""
        return fitted(rows, self._kept[LEFT if source == self._join.left else RIGHT])

    @property
    def spread_by(self) -> tuple[str, ...]:
        """What rows are joined on."""
        return self._join.on

    def advanced(self, moment: Moment, peaks: Mapping[str, int]) -> Clock:
        """By the latest rows of both sides, less the delay."""
        clock, plan, delay_ms = moment.listened(peaks), moment.plan, self._join.delay_ms
        after = clock
        if moment.partitions or plan.is_final:
            after = advanced(clock, moment.partitions, delay_ms=delay_ms, idle=plan.idle, is_final=plan.is_final)
        if moment.upstream is None:
            return after
        passed = carried(clock, moment.upstream if moment.upstream == END else moment.upstream - delay_ms)
        return passed if not moment.partitions or passed.mark < after.mark else after

    def merge(self, state: State, new: Mapping[str, pa.Table], before: Clock, after: Clock) -> tuple[State, pa.Table]:
        """Pairs of which at least one is new; and who waits on."""
        left, right = new[self._join.left], new[self._join.right]
        all_right = pa.concat_tables([state[RIGHT], right])
        given = [self.schema.empty_table(), *self._matched(left, all_right), *self._matched(state[LEFT], right)]
        waiting = self._waiting(pa.concat_tables([state[LEFT], left]), all_right, after.mark)
        return waiting, pa.concat_tables(given)

    def _matched(self, left: pa.Table, right: pa.Table) -> list[pa.Table]:
        if not left.num_rows or not right.num_rows:
            return []
        return [self._asking.ask(self._sql, self.schema, _left=left, _right=right)]

    def _waiting(self, left: pa.Table, right: pa.Table, mark: int) -> State:
        return {
            LEFT: left.filter(pc.greater_equal(pc.add(left.column("_t"), self._join.most_ms), mark)),
            RIGHT: right.filter(pc.greater_equal(pc.subtract(right.column("_t"), self._join.least_ms), mark)),
        }


def _is_same(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether equal values of two types have the same key group: the widths of numbers and texts do not matter."""
    kinds = (pa.types.is_integer, _is_text, _is_binary)
    return left.equals(right) or any(each(left) and each(right) for each in kinds)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
