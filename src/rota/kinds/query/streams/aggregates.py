"""Aggregates that can be put together from parts: computed over the rows of a round, merged with what was there before.

`sum(x)` of all rows is the sum of sums of parts; an average is a sum and a count. What cannot be put together like
that is refused, instead of computed wrongly.
"""

import re
from collections.abc import Mapping

import pyarrow as pa
from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.streams.asking import Asking
from rota.kinds.query.streams.kernels import pc

# How parts of each are merged.
_MERGED_BY = {
    "count": "sum",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "bool_and": "bool_and",
    "bool_or": "bool_or",
    "bit_and": "bit_and",
    "bit_or": "bit_or",
}
_AVERAGES = ("avg", "mean")
_CALL = re.compile(r"\s*(\w+)\s*\(", re.ASCII)
_FILTER = re.compile(r"\s*filter\s*\(\s*where\s", re.IGNORECASE)


class Part(Struct, frozen=True):
    """A column of state: what gives it over rows, and how several are merged."""

    column: str
    over_rows: str
    merged_by: str

    @property
    def merged(self) -> str:
        """What merges it, as SQL."""
        return f'{self.merged_by}("{self.column}") as "{self.column}"'


class Aggregate(Struct, frozen=True):
    """A column of a window's answer: one part, or two of which the first is divided by the second."""

    name: str
    parts: tuple[Part, ...]
    # What an average is of.
    averaged: str = ""

    def answer(self, merged: pa.Table) -> pa.ChunkedArray:
        """What merged parts come to."""
        first = merged.column(self.parts[0].column)
        if len(self.parts) == 1:
            return first
        count = merged.column(self.parts[1].column).cast(pa.float64())
        return pc.divide(first, pc.if_else(pc.equal(count, 0.0), None, count))


def read_aggregates(given: Mapping[str, str]) -> tuple[Aggregate, ...]:
    """Aggregates by the names of their columns, such as `{"total": "sum(amount) filter (where amount > 0)"}`."""
    if not given:
        text = "a window without aggregates gives nothing"
        raise Refused("field.value", text, 'Such as {"n": "count(*)"}.', path="aggregates")
    return tuple(_read(number, name, text) for number, (name, text) in enumerate(given.items()))


def check_aggregates(given: Mapping[str, str], source: str, schema: pa.Schema, asking: Asking) -> None:
    """Refuse what the engine cannot compute over the columns of a source, each by its name and not by those of ours."""
    aggregates = read_aggregates(given)
    asking.know(source, schema.empty_table())
    for each in aggregates:
        if each.averaged:
            _check_average(each, source, asking)
        computed = ", ".join(f'{part.over_rows} as "{part.column}"' for part in each.parts)
        try:
            asking.ask(f'select {computed} from "{source}"')
        except Refused as wrong:
            text = f"{each.name} of {source} cannot be computed ({given[each.name]}): {wrong.reason}"
            raise Refused(wrong.code, text, wrong.hint, path=f"aggregates.{each.name}") from None


def _check_average(aggregate: Aggregate, source: str, asking: Asking) -> None:
    """Refuse averages of which the engine makes something else than a double: parts of one are doubles."""
    try:
        kind = asking.ask(f'select ({aggregate.averaged}) as x from "{source}"').schema.field("x").type
    except Refused:
        # What is wrong with it is told where all of it is computed.
        return
    if not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
        text = f"{aggregate.name} of {source} would be an average of {kind}"
        hint = "Write avg(cast(… as double)), or have a sum and a count."
        raise Refused("query.type", text, hint, path=f"aggregates.{aggregate.name}")


def _read(number: int, name: str, text: str) -> Aggregate:
    call = _CALL.match(text)
    function = call.group(1).lower() if call else ""
    if call is None or function not in (*_MERGED_BY, *_AVERAGES):
        known = ", ".join((*_MERGED_BY, *_AVERAGES))
        reason = f"{text!r} cannot be put together from parts"
        raise Refused("field.value", reason, f"A window can have {known}.", path=f"aggregates.{name}")
    if "--" in text or "/*" in text:
        # Words could hide behind one.
        raise Refused("field.value", f"there is a comment in {text!r}", "Leave it out.", path=f"aggregates.{name}")
    inner, rest = _until_closed(text, call.end(), name)
    if re.match(r"\s*distinct\b", inner, re.IGNORECASE):
        reason = f"{text!r} would have to keep every value"
        raise Refused("field.value", reason, "Leave out DISTINCT.", path=f"aggregates.{name}")
    where = _filter(rest, name)
    if function in _AVERAGES:
        total, count = f"_a{number}_sum", f"_a{number}_count"
        parts = (
            Part(total, f"sum(arrow_cast(({inner}), 'Float64')){where}", "sum"),
            Part(count, f"count({inner}){where}", "sum"),
        )
        return Aggregate(name, parts, inner)
    column = f"_a{number}"
    part = Part(column, f"{function}({inner}){where}", _MERGED_BY[function])
    return Aggregate(name, (part,))


def _until_closed(text: str, begin: int, name: str) -> tuple[str, str]:
    """What is between brackets, and what follows."""
    depth, quote = 1, ""
    for place in range(begin, len(text)):
        letter = text[place]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "()":
            depth += 1 if letter == "(" else -1
            if depth == 0:
                return text[begin:place], text[place + 1 :]
    raise Refused("query.syntax", f"a bracket of {text!r} is never closed", path=f"aggregates.{name}")


def _filter(rest: str, name: str) -> str:
    if not rest.strip():
        return ""
    found = _FILTER.match(rest)
    if found is not None:
        condition, more = _until_closed(rest, found.end(), name)
        if not more.strip():
            return f" filter (where {condition})"
    text = f"{rest.strip()!r} stands after an aggregate"
    raise Refused("field.value", text, "Only filter (where …) may.", path=f"aggregates.{name}")
