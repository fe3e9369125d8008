"""Windows: what they are, and the SQL that keeps them.

Pure texts. Rows of a round become parts (per key and pane, or per key and moment), which are merged with those in the
state; windows are put together out of panes when they have ended. Times are milliseconds.
"""

from collections.abc import Sequence

from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.streams.aggregates import Aggregate, Part
from rota.kinds.query.streams.given import millis

PANES_MAX = 1_000


class Tumbling(Struct, frozen=True, tag="tumbling"):
    """Windows of one size, one after the other."""

    size_ms: int


class Sliding(Struct, frozen=True, tag="sliding"):
    """Windows of one size that begin every `slide_ms`, so that a row is in several of them."""

    size_ms: int
    slide_ms: int


class Gaps(Struct, frozen=True, tag="session"):
    """Windows that end when a key has had no rows for `gap_ms`."""

    gap_ms: int


Shape = Tumbling | Sliding | Gaps


def tumbling(size_s: float) -> Tumbling:
    """Windows of `size_s` seconds, one after the other."""
    return Tumbling(millis(size_s, "tumbling_s", least_ms=1))


def sliding(size_s: float, slide_s: float) -> Sliding:
    """Windows of `size_s` seconds that begin every `slide_s` seconds."""
    size_ms, slide_ms = millis(size_s, "sliding_s", least_ms=1), millis(slide_s, "sliding_s", least_ms=1)
    if size_ms % slide_ms or size_ms // slide_ms > PANES_MAX:
        text = f"a window of {size_ms} ms is not made of whole steps of {slide_ms} ms, at most {PANES_MAX}"
        raise Refused("field.value", text, "Choose a size that is a multiple of the slide.", path="sliding_s")
    return Sliding(size_ms, slide_ms)


def session(gap_s: float) -> Gaps:
    """Windows that end when a key has had no rows for `gap_s` seconds."""
    return Gaps(millis(gap_s, "session_s", least_ms=1))


def column_names(names: Sequence[str]) -> str:
    """Columns, as SQL names them whatever they are called."""
    return ", ".join(quoted(name) for name in names)


def quoted(name: str) -> str:
    """A name of SQL as it stands."""
    return '"' + name.replace('"', '""') + '"'


def parts_of(aggregates: Sequence[Aggregate]) -> tuple[Part, ...]:
    """All columns of state that aggregates need."""
    return tuple(part for each in aggregates for part in each.parts)


class PaneSql(Struct, frozen=True):
    """The statements of tumbling and sliding windows. `_t` is the time of a row, `_pane` where its pane begins."""

    by: tuple[str, ...]
    parts: tuple[Part, ...]
    size_ms: int
    slide_ms: int

    def over_rows(self, rows: str) -> str:
        """Parts of the rows of a round."""
        step = self.slide_ms
        # Before 1970, too: the remainder has the sign of what is divided.
        pane = f"_t - ((_t % {step}) + {step}) % {step}"
        given = ", ".join(f"{part.over_rows} as {quoted(part.column)}" for part in self.parts)
        return f"select {_and(self.by)}{pane} as _pane, {given} from {rows} group by {_and(self.by)}{pane}"

    def merged(self, state: str, new: str) -> str:
        """What was there and what is new, together; `_touched` says which panes are not what they were."""
        columns = f"{_and(self.by)}_pane, {column_names([part.column for part in self.parts])}"
        merged = ", ".join(part.merged for part in self.parts)
        return (
            f"select {_and(self.by)}_pane, {merged}, max(_touched) as _touched from ("
            f"select {columns}, 0 as _touched from {state} union all select {columns}, 1 as _touched from ({new})"
            f") group by {_and(self.by)}_pane"
        )

    def put_together(self, state: str, *, from_ms: int, until_ms: int, lateness_ms: int) -> str:
        """Windows whose end is after `from_ms` and not after `until_ms`, and older ones that are not what they were."""
        count = self.size_ms // self.slide_ms
        merged = ", ".join(part.merged for part in self.parts)
        steps = f"(select unnest(range(0, {count})) as _n)"
        spread = f"(select *, _pane - _n * {self.slide_ms} as _start from {state} cross join {steps})"
        end = f"_start + {self.size_ms}"
        return (
            f"select {_and(self.by)}_start, {merged} from {spread} "
            f"where {end} <= {until_ms} and {end} > {from_ms - lateness_ms} group by {_and(self.by)}_start "
            f"having {end} > {from_ms} or max(_touched) = 1"
        )


class SessionSql(Struct, frozen=True):
    """The statements of sessions. `_s` and `_e` are the first and the last moment of one; a row is one by itself.

    `_fired`: how often it was given; `_dirty`: whether it is not what it was then.
    """

    by: tuple[str, ...]
    parts: tuple[Part, ...]
    gap_ms: int

    def over_rows(self, rows: str) -> str:
        """Sessions of the rows of a round by themselves: few, so that merging them with the others costs little."""
        given = ", ".join(f"{part.over_rows} as {quoted(part.column)}" for part in self.parts)
        whose = f"partition by {column_names(self.by)} " if self.by else ""
        is_new = f"case when _t >= lag(_t) over ({whose}order by _t) + {self.gap_ms} then 1 else 0 end"
        number = f"sum(_new) over ({whose}order by _t rows unbounded preceding)"
        return (
            f"select {_and(self.by)}min(_t) as _s, max(_t) as _e, {given} from "
            f"(select *, {number} as _n from (select *, {is_new} as _new from {rows})) group by {_and(self.by)}_n"
        )

    def _numbered(self, state: str, new: str) -> str:
        columns = f"{_and(self.by)}_s, _e, {column_names([part.column for part in self.parts])}"
        whose = f"partition by {column_names(self.by)} " if self.by else ""
        before = f"max(_e) over ({whose}order by _s, _e rows between unbounded preceding and 1 preceding)"
        return (
            f"with u as (select {columns}, _fired, _dirty from {state} union all "
            f"select {columns}, 0 as _fired, 1 as _dirty from ({new})), "
            f"f as (select *, case when _s >= {before} + {self.gap_ms} then 1 else 0 end as _new from u), "
            f"i as (select *, sum(_new) over ({whose}order by _s, _e rows unbounded preceding) as _n from f) "
        )

    def merged(self, state: str, new: str, *, is_given_again: bool) -> str:
        """Sessions with what is new; those that come nearer to each other than the gap are one.

        How often one was given is what counts of its first part: a window goes by its key and where it begins.
        """
        merged = ", ".join(part.merged for part in self.parts)
        fired = "max(case when _s = _first then _fired else 0 end)" if is_given_again else "0"
        return (
            f"{self._numbered(state, new)}select {_and(self.by)}min(_s) as _s, max(_e) as _e, {merged}, "
            f"{fired} as _fired, max(_dirty) as _dirty from {self._with_first() if is_given_again else 'i'} "
            f"group by {_and(self.by)}_n"
        )

    def gone(self, state: str, new: str) -> str:
        """Sessions that were given and are a later part of another one now."""
        return (
            f"{self._numbered(state, new)}select {_and(self.by)}_s, _e, _fired from {self._with_first()} "
            "where _fired > 0 and _s > _first"
        )

    def _with_first(self) -> str:
        return f"(select *, min(_s) over (partition by {_and(self.by)}_n) as _first from i)"


def _and(names: Sequence[str]) -> str:
    """Columns before others."""
    return f"{column_names(names)}, " if names else ""
