"""Rows that come more than once, given once: keys are remembered for as long as they may come again."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.streams.asking import Asking, fitted
from rota.kinds.query.streams.kernels import pc
from rota.kinds.query.streams.keygroups import split
from rota.kinds.query.streams.operators import Moment, Rows, Sifted, State, Stepped, advance, check_time, sift
from rota.kinds.query.streams.policies import Policies, Refuse
from rota.kinds.query.streams.watermarks import Clock
from rota.kinds.query.streams.windows import column_names, quoted

KNOWN = "known"


class Distinct(Struct, frozen=True, kw_only=True):
    """Rows by what makes them the same; one that comes `ttl_ms` after another of its key, by their times, is new."""

    name: str
    source: str
    on: tuple[str, ...]
    time: str
    ttl_ms: int
    delay_ms: int = 0
    policies: Policies = Policies()


class DistinctOperator:
    """Keys that were seen, and when."""

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
        first = f"row_number() over (partition by {keys} order by _t) as _n"
        self._sql = (
            f"select r.* from (select * from (select *, {first} from _rows) where _n = 1) r "
            f"left join _state s on {same} where s._t is null"
        )

    @property
    def keyed_by(self) -> Mapping[str, tuple[str, ...]]:
        """By what makes rows the same."""
        return {KNOWN: self._distinct.on}

    def beginning(self) -> State:
        """Nothing was seen."""
        return {KNOWN: self._kept.empty_table()}

    def held(self, kept: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
        """It holds nobody up."""
        return ()

    def mark_after(self, mark: int) -> int:
        """Rows are given in the round that they come in."""
        return mark

    def step(self, states: Sequence[State], rows: Mapping[str, Rows], moment: Moment) -> Stepped:
        """Give rows whose keys are new. Of one that is older than what is remembered nobody knows: it is late."""
        refused, source = Refuse(), self._distinct.source
        sifted = self.sift(source, rows[source], moment, refused)
        after = self.advanced(moment, sifted.peaks)
        parts = split(sifted.rows, self.spread_by, len(states))
        merged = [
            self.merge(state, {source: part}, moment.clock, after) for state, part in zip(states, parts, strict=True)
        ]
        given = pa.concat_tables([self.schema.empty_table(), *(each for _, each in merged)])
        return Stepped([state for state, _ in merged], given, sifted.late, refused, after)

    def sift(self, source: str, rows: Rows, moment: Moment, refused: Refuse) -> Sifted:
        """Rows that are not older than what is remembered."""
        distinct, horizon = self._distinct, moment.clock.mark - self._distinct.ttl_ms
        return sift(rows, self.schema, distinct.time, moment, distinct.policies, refused, horizon)

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
            first = self._asking.ask(self._sql, _rows=rows, _state=known)
            given = fitted(first, self.schema)
            known = pa.concat_tables([known, fitted(first, self._kept)])
        is_kept = pc.greater(pc.add(known.column("_t"), self._distinct.ttl_ms), after.mark)
        return {KNOWN: known.filter(is_kept)}, given
