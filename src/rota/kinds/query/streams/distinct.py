"""Rows that come more than once, given once: keys are remembered for as long as they may come again."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.streams.asking import Asking, fitted
from rota.kinds.query.streams.kernels import pc
from rota.kinds.query.streams.keygroups import split
from rota.kinds.query.streams.operators import Moment, Rows, Sifted, State, Stepped, advance, check_time, sift
from rota.kinds.query.streams.policies import Policies, Unusable
from rota.kinds.query.streams.values import as_numbers
from rota.kinds.query.streams.watermarks import Clock
from rota.kinds.query.streams.windows import column_names, quoted

KNOWN = "known"


class Distinct(Struct, frozen=True, kw_only=True):
    """Rows by what makes them the same; one that comes `ttl_ms` after the last one that was given is new.

    That goes by the times of rows. If they come in the order of their times, it does not depend on which rows a round
    has. Otherwise it does: of the rows of a round the earliest counts, and of those of two the one that came first.
    """

    name: str
    source: str
    on: tuple[str, ...]
    time: str
    ttl_ms: int
    delay_ms: int = 0
    policies: Policies = Policies()


class DistinctOperator:
    """Keys that were seen, and when."""

    waiting_max = 0

    def __init__(self, distinct: Distinct, schema: pa.Schema, asking: Asking) -> None:
        self.name = distinct.name
        self.inputs = (distinct.source,)
        self.schema = schema
        self.registered = distinct
        self.read_as = (schema,)
        self._distinct = distinct
        self._asking = asking
        check_time(schema, distinct.time, distinct.source)
        for key in distinct.on:
            if key not in schema.names:
                raise Refused("query.column", f"{distinct.source} has no column {key}", path="on")
        if not distinct.on or distinct.ttl_ms < 1:
            text = "rows are the same by at least one column, and for some time"
            raise Refused("field.value", text, path="on")
        moment = pa.field("_t", pa.int64())
        self._kept = pa.schema([*(schema.field(key) for key in distinct.on), moment])
        keys = column_names(distinct.on)
        same = " and ".join(f"(r.{quoted(key)} is not distinct from s.{quoted(key)})" for key in distinct.on)
        ttl_ms = distinct.ttl_ms
        near = f"r._t < s._t + {ttl_ms} and r._t > s._t - {ttl_ms}"
        # Of rows of one time always the same is the first, in whatever order a round has them when it is made again.
        others = [
            field.name for field in schema if not pa.types.is_nested(field.type) and field.name not in distinct.on
        ]
        ordered = f"over (partition by {keys} order by {', '.join(['_t', *map(quoted, others)])})"
        self._sql = (
            f"select * from (select *, row_number() {ordered} as _n, first_value(_t) {ordered} as _first "
            f"from (select r.* from _rows r left anti join _state s on {same} and {near})) "
            f"where _n = 1 or _t >= _first + {ttl_ms}"
        )

    @property
    def keyed_by(self) -> Mapping[str, tuple[str, ...]]:
        """By what makes rows the same."""
        return {KNOWN: self._distinct.on}

    def beginning(self) -> State:
        """Nothing was seen."""
        return {KNOWN: self._kept.empty_table()}

    def mark_after(self, mark: int) -> int:
        """Rows are given in the round that they come in."""
        return mark

    def step(self, states: Sequence[State], rows: Mapping[str, Rows], moment: Moment) -> Stepped:
        """Give rows whose keys are new. Of one that is older than what is remembered nobody knows: it is late."""
        refused, source = Unusable(), self._distinct.source
        sifted = self.sift(source, rows[source], moment, refused)
        after = self.advanced(moment, sifted.peaks)
        parts = split(sifted.rows, self.spread_by, len(states))
        merged = [
            self.merge(state, {source: part}, moment.clock, after) for state, part in zip(states, parts, strict=True)
        ]
        given = pa.concat_tables([self.schema.empty_table(), *(each for _, each in merged)])
        return Stepped([state for state, _ in merged], given, sifted.late, refused, after)

    def sift(self, source: str, rows: Rows, moment: Moment, refused: Unusable) -> Sifted:
        """Rows that are not older than what is remembered."""
        distinct, horizon = self._distinct, moment.clock.mark - self._distinct.ttl_ms
        return sift(rows, self.schema, distinct.time, moment, distinct.policies, refused, horizon, distinct.on)

    def prepared(self, source: str, rows: pa.Table) -> pa.Table:
        """Rows as they are: any of them may be the first."""
        return rows

    @property
    def spread_by(self) -> tuple[str, ...]:
        """What makes rows the same."""
        return self._distinct.on

    def advanced(self, moment: Moment, peaks: Mapping[str, int]) -> Clock:
        """By the latest rows, less the delay."""
        return advance(moment, peaks, self._distinct.delay_ms)

    def merge(self, state: State, new: Mapping[str, pa.Table], before: Clock, after: Clock) -> tuple[State, pa.Table]:
        """Rows whose keys are not known, which are from now on; old ones are forgotten."""
        known, rows = state[KNOWN], new[self._distinct.source]
        given = self.schema.empty_table()
        if rows.num_rows:
            fresh = self._spaced(self._asking.ask(self._sql, _rows=rows, _state=known))
            given = fitted(fresh, self.schema)
            known = pa.concat_tables([known, fitted(fresh, self._kept)])
        # A row may come that is older than the mark by less than the time to remember, and the same as one from before.
        is_kept = pc.greater(pc.add(known.column("_t"), 2 * self._distinct.ttl_ms), after.mark)
        return {KNOWN: known.filter(is_kept)}, given

    def _spaced(self, found: pa.Table) -> pa.Table:
        """Of rows that nobody has seen, those that come long enough after the one of their key that is given before.

        Which these are depends on all before them; few keys come again within a round after they were forgotten.
        """
        if pc.max(found.column("_n")).as_py() in (None, 1):
            return found
        found = found.sort_by("_n")
        # As text, because a value may be one that is not equal to itself, or a list.
        keys = zip(*(as_numbers(found.column(key)).to_pylist() for key in self._distinct.on), strict=True)
        times: list[Any] = found.column("_t").to_pylist()
        given_at: dict[str, int] = {}
        is_new: list[bool] = []
        for key, at in zip(map(repr, keys), times, strict=True):
            is_new.append(key not in given_at or at >= given_at[key] + self._distinct.ttl_ms)
            if is_new[-1]:
                given_at[key] = at
        return found.filter(pa.array(is_new))
