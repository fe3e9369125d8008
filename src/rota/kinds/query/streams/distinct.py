"""Rows that come more than once, given once: keys are remembered for as long as they may come again."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.streams.asking import Asking, fitted
from rota.kinds.query.streams.kernels import pc
from rota.kinds.query.streams.keygroups import split
from rota.kinds.query.streams.operators import Moment, Rows, State, Stepped, advance, check_time, sift
from rota.kinds.query.streams.policies import Policies, Refuse
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

    def held(self, states: Sequence[State]) -> tuple[str, ...]:
        """It holds nobody up."""
        return ()

    def mark_after(self, mark: int) -> int:
        """Rows are given in the round that they come in."""
        return mark

    def step(self, states: Sequence[State], rows: Mapping[str, Rows], moment: Moment) -> Stepped:
        """Give rows whose keys are new. Of one that is older than what is remembered nobody knows: it is late."""
        distinct, refused = self._distinct, Refuse()
        horizon = moment.clock.mark - distinct.ttl_ms
        sifted = sift(rows[distinct.source], self.schema, distinct.time, moment, distinct.policies, refused, horizon)
        after = advance(moment, sifted.peaks, distinct.delay_ms)
        given: list[pa.Table] = [self.schema.empty_table()]
        kept: list[State] = []
        for state, part in zip(states, split(sifted.rows, distinct.on, len(states)), strict=True):
            known = state[KNOWN]
            if part.num_rows:
                new = self._asking.ask(self._sql, _rows=part, _state=known)
                given.append(fitted(new, self.schema))
                known = pa.concat_tables([known, fitted(new, self._kept)])
            kept.append({KNOWN: known.filter(pc.greater(pc.add(known.column("_t"), distinct.ttl_ms), after.mark))})
        return Stepped(kept, pa.concat_tables(given), sifted.late, refused, after)
