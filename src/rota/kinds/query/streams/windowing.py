"""Windows at work: the rows of a round are merged into the state, and windows that have ended are given."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.streams.aggregates import Aggregate, read_aggregates
from rota.kinds.query.streams.asking import Asking, fitted, row_schema
from rota.kinds.query.streams.kernels import pc
from rota.kinds.query.streams.keygroups import split
from rota.kinds.query.streams.operators import Moment, Rows, Sifted, State, Stepped, advance, check_time, sift
from rota.kinds.query.streams.policies import Policies, Unusable
from rota.kinds.query.streams.watermarks import Clock
from rota.kinds.query.streams.windows import Gaps, PaneSql, SessionSql, Shape, Tumbling, column_names, parts_of, quoted

START, FINISH, REVISION, GONE = "window_start", "window_end", "revision", "gone"


class Window(Struct, frozen=True, kw_only=True):
    """A window as it was registered. `lateness_ms`: how long after its end late rows have it given again."""

    name: str
    source: str
    shape: Shape
    time: str
    by: tuple[str, ...] = ()
    aggregates: tuple[tuple[str, str], ...]
    delay_ms: int = 0
    lateness_ms: int = 0
    policies: Policies = Policies()


def open_window(window: Window, schema: pa.Schema, asking: Asking) -> "WindowOperator":
    """The operator of a window over rows of a schema."""
    for column in window.by:
        if column not in schema.names:
            text = f"{window.source} has no column {column}"
            raise Refused("query.column", text, f"There are {', '.join(schema.names)}.", path="by")
    kind = SessionOperator if isinstance(window.shape, Gaps) else PaneOperator
    return kind(window, schema, asking)


class WindowOperator(ABC):
    """What all windows do alike."""

    waiting_max = 0

    def __init__(self, window: Window, schema: pa.Schema, asking: Asking) -> None:
        self.name = window.name
        self.inputs = (window.source,)
        self.registered = window
        self.read_as = (schema,)
        self._window = window
        self._input = schema
        self._asking = asking
        self._moments = check_time(schema, window.time, window.source)
        self._aggregates = read_aggregates(dict(window.aggregates))
        self._kept = self._schema_of_state()
        extra: list[Any] = [pa.field(REVISION, pa.int32())] if window.lateness_ms else []
        if extra and isinstance(window.shape, Gaps):
            extra.append(pa.field(GONE, pa.bool_()))
        answers = [pa.field(each.name, each.answer(self._kept.empty_table()).type) for each in self._aggregates]
        keys = [self._kept.field(key) for key in window.by]
        ends = [pa.field(START, self._moments), pa.field(FINISH, self._moments)]
        names = [field.name for field in (*keys, *ends, *answers, *extra)]
        if len(dict.fromkeys(names)) != len(names):
            text = f"two columns of {window.name} would have the same name: {', '.join(names)}"
            raise Refused("field.value", text, "Call aggregates otherwise.", path="aggregates")
        self.schema = pa.schema([*keys, *ends, *answers, *extra])

    @property
    @abstractmethod
    def keyed_by(self) -> Mapping[str, tuple[str, ...]]:
        """By what each table of state is kept in partitions."""

    @abstractmethod
    def beginning(self) -> State:
        """State before all rows."""

    @abstractmethod
    def _over_rows(self, rows: str) -> str: ...

    @abstractmethod
    def _horizon(self, mark: int) -> int:
        """The last moment whose windows have all ended, with what is allowed, when time has come to `mark`."""

    @abstractmethod
    def _merge(self, state: State, new: str, before: Clock, after: Clock) -> tuple[State, pa.Table]:
        """One partition of the state with what is new, which is a table or a statement; what is given."""

    def mark_after(self, mark: int) -> int:
        """Windows that are given later end later."""
        return mark

    def step(self, states: Sequence[State], rows: Mapping[str, Rows], moment: Moment) -> Stepped:
        """Merge the rows of a round, and give what has ended."""
        refused, source = Unusable(), self._window.source
        sifted = self.sift(source, rows[source], moment, refused)
        after = self.advanced(moment, sifted.peaks)
        if not sifted.rows.num_rows and after.mark == moment.clock.mark:
            return Stepped(list(states), self.schema.empty_table(), sifted.late, refused, after)
        merged = self._merge_all(states, sifted.rows, moment.clock, after)
        given = pa.concat_tables([self.schema.empty_table(), *(each for _, each in merged)])
        return Stepped([state for state, _ in merged], given, sifted.late, refused, after)

    def sift(self, source: str, rows: Rows, moment: Moment, refused: Unusable) -> Sifted:
        """Rows whose windows have not all ended."""
        window, horizon = self._window, self._horizon(moment.clock.mark)
        return sift(rows, self._input, window.time, moment, window.policies, refused, horizon, window.by)

    def prepared(self, source: str, rows: pa.Table) -> pa.Table:
        """The parts that rows come to."""
        return self._asking.ask(self._over_rows("_rows"), self._kept, _rows=rows)

    @property
    def spread_by(self) -> tuple[str, ...]:
        """The window's keys."""
        return self._window.by

    def advanced(self, moment: Moment, peaks: Mapping[str, int]) -> Clock:
        """By the latest rows, less the delay."""
        return advance(moment, peaks, self._window.delay_ms)

    def merge(self, state: State, new: Mapping[str, pa.Table], before: Clock, after: Clock) -> tuple[State, pa.Table]:
        """Merge parts, and give what has ended."""
        return self._merge_parts(state, new[self._window.source], before, after)

    def _merge_parts(self, state: State, parts: pa.Table, before: Clock, after: Clock) -> tuple[State, pa.Table]:
        self._asking.know("_new", parts)
        return self._merge(state, "select * from _new", before, after)

    def _merge_all(
        self, states: Sequence[State], rows: pa.Table, before: Clock, after: Clock
    ) -> list[tuple[State, pa.Table]]:
        if len(states) == 1:
            self._asking.know("_rows", rows)
            return [self._merge(states[0], self._over_rows("_rows"), before, after)]
        parts = split(self.prepared(self._window.source, rows), self.spread_by, len(states))
        return [self._merge_parts(*each, before, after) for each in zip(states, parts, strict=True)]

    def _schema_of_state(self) -> pa.Schema:
        """The columns that every window keeps: keys and parts, with the types that one merging gives them."""
        rows = self._input.empty_table().append_column("_t", pa.array([], pa.int64()))
        return row_schema(self._asking.ask(self._over_rows("_rows"), _rows=rows).schema)

    def _answered(self, merged: pa.Table, start: pa.ChunkedArray, end: pa.ChunkedArray) -> pa.Table:
        """Merged parts as rows that are given, without revisions."""
        columns: dict[str, Any] = {key: merged.column(key) for key in self._window.by}
        columns |= {START: start.cast(self._moments), FINISH: end.cast(self._moments)}
        columns |= {each.name: each.answer(merged) for each in self._aggregates}
        return pa.Table.from_pydict(columns)


class PaneOperator(WindowOperator):
    """Tumbling and sliding windows."""

    def __init__(self, window: Window, schema: pa.Schema, asking: Asking) -> None:
        shape = window.shape
        assert not isinstance(shape, Gaps), "sessions have an operator of their own"
        self._size_ms = shape.size_ms
        self._slide_ms = shape.size_ms if isinstance(shape, Tumbling) else shape.slide_ms
        aggregates: tuple[Aggregate, ...] = read_aggregates(dict(window.aggregates))
        self._sql = PaneSql(window.by, parts_of(aggregates), self._size_ms, self._slide_ms)
        super().__init__(window, schema, asking)
        keys = [self._kept.field(key) for key in window.by]
        self._fired = pa.schema([*keys, pa.field("_start", pa.int64()), pa.field("_fired", pa.int32())])

    @property
    def keyed_by(self) -> Mapping[str, tuple[str, ...]]:
        """By the window's keys."""
        return {"panes": self._window.by, "fired": self._window.by}

    def beginning(self) -> State:
        """No panes; and no windows that were given, if they may be given again."""
        state = {"panes": self._kept.empty_table()}
        return state | {"fired": self._fired.empty_table()} if self._window.lateness_ms else state

    def _over_rows(self, rows: str) -> str:
        return self._sql.over_rows(rows)

    def _horizon(self, mark: int) -> int:
        # A row lies somewhere in its pane, and the pane's last window ends a size after the pane began.
        last_pane = (mark - self._size_ms - self._window.lateness_ms) // self._slide_ms
        return (last_pane + 1) * self._slide_ms - 1

    def _merge(self, state: State, new: str, before: Clock, after: Clock) -> tuple[State, pa.Table]:
        lateness = self._window.lateness_ms
        touched = self._kept.append(pa.field("_touched", pa.int64()))
        merged = self._asking.ask(self._sql.merged("_state", new), touched, _state=state["panes"])
        given, fired = self._given(merged, state, before.mark, after.mark)
        ends = pc.add(merged.column("_pane"), self._size_ms + lateness)
        kept = merged.drop_columns("_touched").filter(pc.greater(ends, after.mark))
        return ({"panes": kept} | fired), given

    def _given(self, merged: pa.Table, state: State, before: int, after: int) -> tuple[pa.Table, State]:
        lateness, size = self._window.lateness_ms, self._size_ms
        if not lateness and before // self._slide_ms == after // self._slide_ms:
            return self.schema.empty_table(), {}
        if size == self._slide_ms and not lateness:
            # A window is its pane.
            ended = merged.filter(pc.less_equal(pc.add(merged.column("_pane"), size), after))
            return fitted(
                self._answered(ended, ended.column("_pane"), pc.add(ended.column("_pane"), size)), self.schema
            ), {}
        sql = self._sql.put_together("_merged", from_ms=before, until_ms=after, lateness_ms=lateness)
        # Only panes of windows that end now, or may be given again.
        panes = merged.filter(pc.less(merged.column("_pane"), after))
        ended = self._asking.ask(sql, _merged=panes)
        start = ended.column("_start")
        given = self._answered(ended, start, pc.add(start, size))
        if not lateness:
            return fitted(given, self.schema), {}
        counted = given.select(list(self._window.by)).append_column("_start", start)
        revisions, fired = self._counted(counted, state["fired"], after)
        return fitted(given.append_column(REVISION, revisions), self.schema), {"fired": fired}

    def _counted(self, given: pa.Table, fired: pa.Table, after: int) -> tuple[pa.ChunkedArray, pa.Table]:
        """How often each window was given before, and the same afterwards for those that may be given again."""
        keys = [*self._window.by, "_start"]
        numbered = given.append_column("_n", pa.array(range(given.num_rows), pa.int64()))
        same = " and ".join(f"(g.{quoted(key)} is not distinct from f.{quoted(key)})" for key in keys)
        sql = f"select g._n, coalesce(f._fired, 0) as _fired from _given g left join _fired f on {same} order by g._n"
        found = self._asking.ask(sql, _given=numbered, _fired=fired).column("_fired").cast(pa.int32())
        more = given.append_column("_fired", pc.add(found, pa.scalar(1, pa.int32())))
        names = column_names(keys)
        sql = (
            f"select {names}, max(_fired) as _fired from (select {names}, _fired from _given "
            f"union all select {names}, _fired from _fired) "
            f"where _start + {self._size_ms + self._window.lateness_ms} > {after} group by {names}"
        )
        return found, self._asking.ask(sql, self._fired, _given=fitted(more, self._fired), _fired=fired)


class SessionOperator(WindowOperator):
    """Windows that end when a key is silent."""

    def __init__(self, window: Window, schema: pa.Schema, asking: Asking) -> None:
        shape = window.shape
        assert isinstance(shape, Gaps), "others have an operator of their own"
        self._gap_ms = shape.gap_ms
        self._sql = SessionSql(window.by, parts_of(read_aggregates(dict(window.aggregates))), shape.gap_ms)
        super().__init__(window, schema, asking)
        counts = [pa.field("_fired", pa.int32()), pa.field("_dirty", pa.int32())]
        self._sessions = pa.schema([*self._kept, *counts])

    @property
    def keyed_by(self) -> Mapping[str, tuple[str, ...]]:
        """By the window's keys."""
        return {"sessions": self._window.by}

    def beginning(self) -> State:
        """No sessions."""
        return {"sessions": self._sessions.empty_table()}

    def _over_rows(self, rows: str) -> str:
        return self._sql.over_rows(rows)

    def _horizon(self, mark: int) -> int:
        return mark - self._gap_ms - self._window.lateness_ms

    def _merge(self, state: State, new: str, before: Clock, after: Clock) -> tuple[State, pa.Table]:
        sessions, lateness = state["sessions"], self._window.lateness_ms
        self._asking.know("_state", sessions)
        merged = self._asking.ask(self._sql.merged("_state", new, is_given_again=lateness > 0), self._sessions)
        ends = pc.add(merged.column("_e"), self._gap_ms)
        is_ended = pc.and_(pc.less_equal(ends, after.mark), pc.equal(merged.column("_dirty"), 1))
        ended = merged.filter(is_ended)
        given = self._answered(ended, ended.column("_s"), pc.add(ended.column("_e"), self._gap_ms))
        if not lateness:
            return {"sessions": merged.filter(pc.invert(is_ended))}, fitted(given, self.schema)
        given = given.append_column(REVISION, ended.column("_fired"))
        given = fitted(given.append_column(GONE, pa.repeat(pa.scalar(False), given.num_rows)), self.schema)
        if pc.any(pc.greater(sessions.column("_fired"), 0)).as_py():
            given = pa.concat_tables([given, self._gone(new)])
        one = pa.scalar(1, pa.int32())
        fired = pc.if_else(is_ended, pc.add(merged.column("_fired"), one), merged.column("_fired"))
        dirty = pc.if_else(is_ended, pc.subtract(one, one), merged.column("_dirty"))
        kept = merged.drop_columns(["_fired", "_dirty"]).append_column("_fired", fired).append_column("_dirty", dirty)
        is_kept = pc.greater(pc.add(ends, lateness), after.mark)
        return {"sessions": fitted(kept, self._sessions).filter(is_kept)}, given

    def _gone(self, new: str) -> pa.Table:
        """Sessions that were given, and are part of another one now: with nothing but their names."""
        found = self._asking.ask(self._sql.gone("_state", new))
        columns: dict[str, Any] = {key: found.column(key) for key in self._window.by}
        columns[START] = found.column("_s").cast(self._moments)
        columns[FINISH] = pc.add(found.column("_e"), self._gap_ms).cast(self._moments)
        columns |= {each.name: pa.nulls(found.num_rows, self.schema.field(each.name).type) for each in self._aggregates}
        columns[REVISION] = found.column("_fired").cast(pa.int32())
        columns[GONE] = pa.repeat(pa.scalar(True), found.num_rows)
        return fitted(pa.Table.from_pydict(columns), self.schema)
