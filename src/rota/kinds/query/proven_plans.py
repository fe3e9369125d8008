"""The physical plans that are known to survive being encoded.

The engine encodes a plan without saying what it leaves out: the FILTER of a window aggregate is gone when the plan is
decoded, and the answer is wrong. So a plan is split into stages only if each of its messages, fields and functions is
listed here, with the few values that are lost ruled out. What is not listed, such as a field of a newer engine, is
unproven. `tests/unit/kinds/query/test_encoding.py` proves the list on the installed engine.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from rota.kinds.query.proven_functions import AGGREGATES, SCALARS, WINDOWS

# What a field holds: a message of this name, a value that is encoded as it is, or one of a few values where others do
# not survive.
VALUE: Final = "value"
Field = str | tuple[int, ...]

_DEPTH_MAX = 500
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
# Types that have no others in them, and the literals that are one value: those that the engine has, without unions,
# run-end encoding and list views. A test compares both with the engine.
_PLAIN_TYPES = (*range(1, 25), 31, 32, 34, 35, 36, 40, 41)
_SCALARS = (*range(1, 15), 16, 17, 18, *range(20, 26), 27, 28, 29, *range(31, 40), 41, 43, 44)

# Messages of the encoding by names of ours, with the numbers of their fields.
MESSAGES: Final[Mapping[str, Mapping[int, Field]]] = {
    "plan": {
        1: "parquet scan",
        2: "csv scan",
        3: "rowless",
        4: "projection",
        6: "global limit",
        7: "local limit",
        8: "aggregate node",
        9: "hash join",
        10: "sort",
        11: "coalesce batches",
        12: "filter",
        13: "coalesce partitions",
        14: "repartition",
        15: "window node",
        16: "cross join",
        19: "union",
        21: "merge",
        22: "nested loop join",
        26: "union",
        27: "rowless",
        30: "unnest",
        31: "json scan",
        32: "cooperative",
        33: "series",
        34: "sort merge join",
        35: "memory scan",
        38: "arrow scan",
        39: "subqueries",
    },
    # Nodes.
    "projection": {1: "plan", 2: "expression", 3: VALUE},
    "filter": {1: "plan", 2: "expression", 3: VALUE, 9: VALUE, 10: VALUE, 11: VALUE},
    "rowless": {1: "schema", 2: VALUE},
    "global limit": {1: "plan", 2: VALUE, 3: VALUE},
    "local limit": {1: "plan", 2: VALUE},
    "coalesce batches": {1: "plan", 2: VALUE, 3: VALUE},
    "coalesce partitions": {1: "plan", 2: VALUE},
    "cooperative": {1: "plan"},
    "union": {1: "plan"},
    "cross join": {1: "plan", 2: "plan"},
    "subqueries": {1: "plan", 2: "plan"},
    "sort": {1: "plan", 2: "expression", 3: VALUE, 4: VALUE, 5: "expression"},
    "merge": {1: "plan", 2: "expression", 3: VALUE},
    "repartition": {1: "plan", 5: "partitioning", 6: VALUE},
    "partitioning": {1: VALUE, 2: "hash partitioning"},
    "hash partitioning": {1: "expression", 2: VALUE},
    "hash join": {
        1: "plan",
        2: "plan",
        3: "join keys",
        4: VALUE,
        6: VALUE,
        7: VALUE,
        8: "join filter",
        9: VALUE,
        10: VALUE,
        11: "expression",
    },
    "nested loop join": {1: "plan", 2: "plan", 3: VALUE, 4: "join filter", 5: VALUE},
    "sort merge join": {1: "plan", 2: "plan", 3: "join keys", 4: VALUE, 5: "join filter", 6: "sort options", 7: VALUE},
    "join keys": {1: "expression", 2: "expression"},
    "join filter": {1: "expression", 2: "column place", 3: "schema"},
    "column place": {1: VALUE, 2: VALUE},
    "sort options": {1: VALUE, 2: VALUE, 3: VALUE},
    "aggregate node": {
        1: "expression",
        2: "expression",
        3: VALUE,
        4: "plan",
        5: VALUE,
        6: VALUE,
        7: "schema",
        8: "expression",
        9: VALUE,
        10: "maybe filter",
        11: "aggregate limit",
        12: VALUE,
        13: "expression",
        14: "schema",
    },
    "maybe filter": {1: "expression"},
    "aggregate limit": {1: VALUE, 2: VALUE},
    "window node": {1: "plan", 2: "window", 5: "expression", 7: VALUE, 8: VALUE, 9: VALUE},
    "unnest": {1: "plan", 2: "schema", 3: "unnested column", 4: VALUE, 5: VALUE},
    "unnested column": {1: VALUE, 2: VALUE},
    # Leaves.
    "parquet scan": {1: "scan", 3: "expression", 4: VALUE},
    "csv scan": dict.fromkeys(range(2, 9), VALUE) | {1: "scan"},
    "json scan": {1: "scan"},
    "arrow scan": {1: "scan"},
    "scan": {
        1: "file group",
        2: "schema",
        5: VALUE,
        6: VALUE,
        7: VALUE,
        8: VALUE,
        9: "sort order",
        11: VALUE,
        13: "projections",
    },
    "file group": {1: "file"},
    "file": {1: VALUE, 2: VALUE, 3: VALUE, 4: "scalar", 5: VALUE, 6: VALUE},
    "sort order": {1: "sort expression"},
    "projections": {1: "named expression"},
    "named expression": {1: VALUE, 2: "expression"},
    "memory scan": {1: VALUE, 2: "schema", 3: VALUE, 4: "sort order", 5: VALUE, 6: VALUE},
    "series": {1: "schema", 2: VALUE, 3: VALUE, 4: VALUE, 5: VALUE, 6: VALUE},
    # Expressions.
    "expression": {
        1: "column",
        2: "scalar",
        3: "binary",
        4: "aggregate expression",
        5: "unary",
        6: "unary",
        7: "unary",
        8: "case",
        9: "cast",
        10: "sort expression",
        11: "unary",
        12: "in list",
        14: "cast",
        16: "function call",
        18: "like",
        22: "subquery value",
        23: "dynamic filter",
        30: VALUE,
    },
    "column": {1: VALUE, 2: VALUE},
    "subquery value": {1: "type", 2: VALUE, 3: VALUE},
    "unary": {1: "expression"},
    "binary": {1: "expression", 2: "expression", 3: VALUE, 4: "expression"},
    "case": {1: "expression", 2: "when", 3: "expression"},
    "when": {1: "expression", 2: "expression"},
    "cast": {1: "expression", 2: "type"},
    "in list": {1: "expression", 2: "expression", 3: VALUE},
    "like": {1: VALUE, 2: VALUE, 3: "expression", 4: "expression"},
    "function call": {1: VALUE, 2: "expression", 3: VALUE, 4: "type", 5: VALUE, 6: VALUE},
    "dynamic filter": {1: "expression", 2: "expression", 3: VALUE, 4: "expression", 5: VALUE},
    "sort expression": {1: "expression", 2: VALUE, 3: VALUE},
    "aggregate expression": {2: "expression", 3: VALUE, 4: VALUE, 5: "sort expression", 6: VALUE, 7: VALUE, 8: VALUE},
    "window": {
        3: VALUE,
        4: "expression",
        5: "expression",
        6: "sort expression",
        7: "frame",
        8: VALUE,
        9: VALUE,
        10: VALUE,
        12: VALUE,
    },
    "frame": {1: VALUE, 2: "bound", 3: "bound"},
    "bound": {1: VALUE, 2: "scalar"},
    # Types and literals.
    "schema": {1: "column type", 2: VALUE},
    "column type": {1: VALUE, 2: "type", 3: VALUE, 4: "column type", 5: VALUE},
    "type": dict.fromkeys(_PLAIN_TYPES, VALUE)
    | {25: "list", 26: "list", 27: "list", 28: "struct", 30: "dictionary", 33: "map"},
    "list": {1: "column type", 2: VALUE},
    "struct": {1: "column type"},
    "dictionary": {1: "type", 2: "type"},
    "map": {1: "column type", 2: VALUE},
    "scalar": dict.fromkeys(_SCALARS, VALUE) | {15: "time literal", 26: "timestamp literal", 30: "time literal"},
    "time literal": {1: VALUE, 2: VALUE},
    "timestamp literal": dict.fromkeys(range(1, 6), VALUE),
    # The scan of a table of CSV or JSON files in a logical plan, which has their options. 4 is "not compressed".
    "listing": dict.fromkeys((*range(2, 10), 13, 14), VALUE) | {10: "csv format", 15: "json format"},
    "csv format": {5: "csv options"},
    "csv options": dict.fromkeys((1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18), VALUE) | {5: (4,)},
    "json format": {1: "json options"},
    "json options": {1: (4,), 2: VALUE, 4: (1,)},
}

# Fields of a listing: the formats CSV and JSON, and the name of the table.
_TEXT_FORMATS: Final = frozenset((10, 15))
_TABLE_NAME: Final = 14

_ORDER_BY = re.compile(r" ORDER BY \[(?P<sorts>[^\[\]]*)\] (?:ROWS|RANGE|GROUPS) BETWEEN [^\[\]]*$")
_SORT = re.compile(r" (ASC|DESC) NULLS (FIRST|LAST)(?=, |$)")
_FRAME = re.compile(
    r" (ROWS|RANGE|GROUPS) BETWEEN [^\[\]]*?(PRECEDING|ROW|FOLLOWING) AND [^\[\]]*?(PRECEDING|ROW|FOLLOWING)$"
)
_UNITS = ("ROWS", "RANGE", "GROUPS")
_BOUNDS = ("ROW", "PRECEDING", "FOLLOWING")
# What a field is to people, where they could have written it.
_CALLED = {
    ("plan", 17): "a scan of Avro files",
    ("plan", 18): "a plan node of an extension",
    ("plan", 20): "EXPLAIN",
    ("plan", 23): "EXPLAIN ANALYZE",
    ("plan", 24): "COPY to JSON files",
    ("plan", 25): "a symmetric hash join",
    ("plan", 28): "COPY to CSV files",
    ("plan", 29): "COPY to Parquet files",
    ("type", 29): "the type Union",
    ("csv options", 5): "compression of CSV files",
    ("csv options", 13): "null_regex of CSV files",
    ("csv options", 15): "double_quote of CSV files",
    ("csv options", 17): "terminator of CSV files",
    ("json options", 1): "compression of JSON files",
    ("json options", 4): "newline_delimited = false of JSON files",
}
# Words in the name of a window that say what its encoding does not.
_LOST = (" FILTER (", "IGNORE NULLS", "RESPECT NULLS")

# The fields of a message by their numbers; of one that may come several times, all of them.
_Values = Mapping[int, list[int | bytes]]


class _Unproven(Exception):
    """What is not listed."""


def why_unproven(plan: bytes) -> str:
    """What of a physical plan may be lost when it is encoded; "" if all of it is known to survive."""
    return _why(plan, "plan")


def why_unproven_scans(plan: bytes) -> tuple[str, int]:
    """The same for the options of tables' files, which only a logical plan has; and how many CSV and JSON scans it has.

    Messages of a logical plan are not listed here, and scalar subqueries are in its expressions. So every field that
    can be read as the scan of a table is checked: a text that looks like one costs a query its stages, and no scan is
    missed.
    """
    reason, count = "", 0
    for listing in _listings(plan, 0):
        reason = reason or _why(listing, "listing")
        count += 1
    return reason, count


def count_text_scans(plan: bytes, message: str = "plan") -> int:
    """How many CSV and JSON scans a physical plan has."""
    if message in ("csv scan", "json scan"):
        return 1
    known = MESSAGES[message]
    count = 0
    for number, value in _fields(plan):
        inner = known.get(number)
        if isinstance(inner, str) and inner != VALUE and isinstance(value, bytes):
            count += count_text_scans(value, inner)
    return count


def has_subquery_value(content: bytes, message: str = "plan") -> bool:
    """Whether an expression of a plan is the value of a scalar subquery."""
    if message == "subquery value":
        return True
    known = MESSAGES[message]
    for number, value in _fields(content):
        inner = known.get(number)
        if isinstance(inner, str) and inner != VALUE and isinstance(value, bytes) and has_subquery_value(value, inner):
            return True
    return False


def _listings(content: bytes, depth: int) -> Iterator[bytes]:
    """Every field of a logical plan that can be read as the scan of CSV or JSON files."""
    if depth == _DEPTH_MAX:
        raise ValueError("nested too deep")
    try:
        fields = list(_fields(content))
    except (ValueError, IndexError):
        # A text or a number.
        return
    numbers = {number for number, value in fields if isinstance(value, bytes)}
    if _TABLE_NAME in numbers and _TEXT_FORMATS & numbers:
        yield content
        return
    for _, value in fields:
        if isinstance(value, bytes):
            yield from _listings(value, depth + 1)


def _why(content: bytes, message: str) -> str:
    try:
        _check(content, message, 0)
    except _Unproven as unproven:
        return str(unproven)
    except (ValueError, IndexError):
        return "it is encoded in an unknown way"
    return ""


def _check(content: bytes, message: str, depth: int) -> None:
    if depth == _DEPTH_MAX:
        raise _Unproven("it is nested too deep")
    known = MESSAGES[message]
    values: dict[int, list[int | bytes]] = {}
    for number, value in _fields(content):
        match known.get(number):
            case None:
                called = _CALLED.get((message, number), f"part of a {message} (field {number} of its encoding)")
                raise _Unproven(f"{called} is not known to survive being sent")
            case "value":
                pass
            case tuple():
                pass
            case inner:
                if not isinstance(value, bytes):
                    raise ValueError(number)
                _check(value, inner, depth + 1)
        values.setdefault(number, []).append(value)
    for number, field in known.items():
        # What is not there is 0.
        if isinstance(field, tuple) and values.get(number, [0])[-1] not in field:
            raise _Unproven(f"{_CALLED[message, number]} does not survive being sent")
    if rule := _RULES.get(message):
        rule(values)


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in protobuf's encoding: their numbers, and numbers or bytes."""
    at, end = 0, len(content)
    while at < end:
        key, at = _varint(content, at)
        match key & 7:
            case 0:
                value, at = _varint(content, at)
            case 2:
                size, start = _varint(content, at)
                at = start + size
                value = content[start:at]
            case wire if wire in (1, 5):
                start, at = at, at + (8 if wire == 1 else 4)
                value = content[start:at]
            case _:
                raise ValueError(key)
        if at > end:
            raise ValueError(key)
        yield key >> 3, value


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _text(values: _Values, number: int) -> str:
    found = values.get(number, [b""])[-1]
    return found.decode(errors="replace") if isinstance(found, bytes) else ""


def _check_function(values: _Values, name: int, definition: int, kind: str, listed: frozenset[str]) -> None:
    """A function of the engine is known by its name; one that was registered brings its code along."""
    called = _text(values, name)
    if called not in listed and not values.get(definition):
        raise _Unproven(f"the {kind} {called} is not known to survive being sent")


def _check_call(values: _Values) -> None:
    _check_function(values, 1, 3, "function", SCALARS)


def _check_aggregate(values: _Values) -> None:
    _check_function(values, 4, 7, "aggregate", AGGREGATES)


def _check_grouping(values: _Values) -> None:
    has_sets, keys = values.get(12, [0])[-1], values.get(1, [])
    if has_sets and not keys:
        raise _Unproven("GROUPING SETS without a column do not survive being sent")


def _check_window(values: _Values) -> None:
    """A window is encoded without its FILTER and NULL treatment, and without being turned round; its name has them."""
    is_aggregate = 3 in values
    if is_aggregate:
        _check_function(values, 3, 9, "aggregate", AGGREGATES)
    else:
        _check_function(values, 10, 9, "window function", WINDOWS)
    name, function = _text(values, 8), _text(values, 3 if is_aggregate else 10)
    if lost := next((words for words in _LOST if words in name), ""):
        raise _Unproven(f"{lost.strip(' (')} of a window does not survive being sent")
    if not name.startswith(f"{function}("):
        raise _Unproven(f"a window of {function} that is called {name[:60]!r} is not known to survive being sent")
    said = _ORDER_BY.search(name)
    sorts = _SORT.findall(said["sorts"]) if said else []
    if sorts != [_direction(each) for each in values.get(6, [])] or _frame_of(name) != _frame(values):
        raise _Unproven(f"a window of {function} whose order was turned round does not survive being sent")


def _direction(sort: int | bytes) -> tuple[str, str]:
    flags = dict(_fields(sort)) if isinstance(sort, bytes) else {}
    return "ASC" if flags.get(2) else "DESC", "FIRST" if flags.get(3) else "LAST"


def _frame_of(name: str) -> tuple[str, ...]:
    found = _FRAME.search(name)
    return found.groups() if found else ()


def _frame(values: _Values) -> tuple[str, ...]:
    frame = dict(_fields(_bytes(values.get(7, [b""])[-1])))
    bounds = (dict(_fields(_bytes(frame.get(number, b"")))).get(1, 0) for number in (2, 3))
    return _UNITS[_number(frame.get(1, 0))], *(_BOUNDS[_number(bound)] for bound in bounds)


def _bytes(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else b""


def _number(value: int | bytes) -> int:
    return value if isinstance(value, int) else 0


_RULES: Mapping[str, Callable[[_Values], None]] = {
    "function call": _check_call,
    "aggregate expression": _check_aggregate,
    "aggregate node": _check_grouping,
    "window": _check_window,
}
