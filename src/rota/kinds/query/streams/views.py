"""Views of a stream: statements that look at each row by itself, or next to tables that do not stream.

A statement that has to see all rows (groups, orders, limits) would silently give an answer for each round. It is
refused.
"""

import re
from collections.abc import Callable, Iterable

import datafusion as df
import pyarrow as pa

from rota.core.errors import Refused
from rota.kinds.query.streams.operators import Rows
from rota.kinds.query.streams.policies import Policy, Unusable, as_json

# What the engine says where a row is to blame, and not the statement or the tables beside it.
_OF_ROWS = ("query.type", "query.function_failed", "query.failed")

# What may stand between a stream and the answer, by the first word of the engine's name for it.
_ROW_BY_ROW = ("Projection:", "Filter:", "SubqueryAlias:", "TableScan:", "Unnest:", "Union")
# Which sides of a join may be the stream: a row of it has to be able to answer for itself.
_LEFT, _RIGHT = 0, 1
_SIDES = {
    "Inner Join:": (_LEFT, _RIGHT),
    "Cross Join:": (_LEFT, _RIGHT),
    "Left Join:": (_LEFT,),
    "LeftSemi Join:": (_LEFT,),
    "LeftAnti Join:": (_LEFT,),
    "Right Join:": (_RIGHT,),
    "RightSemi Join:": (_RIGHT,),
    "RightAnti Join:": (_RIGHT,),
}


def streams_in(plan: df.LogicalPlan, streams: Iterable[str]) -> list[str]:
    """Which streams a plan reads, in subqueries too."""
    text = plan.display_indent()
    return [name for name in streams if _scan(name).search(text)]


def check_no_subquery(name: str, plan: df.LogicalPlan, stream: str) -> None:
    """Refuse a statement with another one inside that asks for all of a stream."""
    if len(_scan(stream).findall(plan.display_indent())) > _scans(plan, stream):
        text = f"a subquery of {name} would have to see all rows of {stream}"
        raise Refused("query.unsupported", text, "Subqueries may ask tables that do not stream.", path="sql")


def check_view(name: str, plan: df.LogicalPlan, stream: str) -> None:
    """Refuse a statement whose answer is not made row by row."""
    if not _scans(plan, stream):
        return
    shown = plan.display().strip()
    below = plan.inputs()
    sides = next((sides for prefix, sides in _SIDES.items() if shown.startswith(prefix)), None)
    if sides is not None:
        streaming = [side for side, each in enumerate(below) if _scans(each, stream)]
        if len(streaming) > 1:
            text = f"{name} joins {stream} with itself, and rows of other rounds are not there any more"
            raise Refused("query.unsupported", text, "register_join joins streams within a time.", path="sql")
        if streaming[0] not in sides:
            text = f"{name} would have to know all rows of {stream} ({shown.split(':')[0]})"
            raise Refused("query.unsupported", text, "Let the stream be the side whose rows are kept.", path="sql")
    elif not shown.startswith(_ROW_BY_ROW):
        text = f"{name} would have to see all rows of {stream} at once ({shown.split(':')[0]})"
        raise Refused(
            "query.unsupported", text, "Group rows by a window; select, filter and join with tables.", path="sql"
        )
    if shown.startswith("Union") and not all(_scans(each, stream) for each in below):
        text = f"{name} would give rows that are not of {stream} again in each round"
        raise Refused("query.unsupported", text, "Let each part of a UNION read the stream.", path="sql")
    for each in below:
        check_view(name, each, stream)


def viewed(
    ask: Callable[[pa.Table], pa.Table], schema: pa.Schema, on_error: Policy, rows: Rows, refused: Unusable
) -> Rows:
    """What a statement gives for the rows of each partition; those that it cannot be computed for are set aside."""
    return {
        partition: pa.concat_tables([schema.empty_table(), *_answers(ask, on_error, table, partition, refused)])
        for partition, table in rows.items()
        if table.num_rows
    }


def _answers(
    ask: Callable[[pa.Table], pa.Table], on_error: Policy, table: pa.Table, partition: str, refused: Unusable
) -> list[pa.Table]:
    """Rows to blame are found by halving."""
    try:
        return [ask(table)]
    except Refused as trouble:
        if on_error == "fail" or trouble.code not in _OF_ROWS:
            raise
        if table.num_rows == 1:
            refused.take(on_error, f"{trouble.code}: {trouble.reason}", partition, as_json(table))
            return []
        half = table.num_rows // 2
        parts = (table.slice(0, half), table.slice(half))
        return [each for part in parts for each in _answers(ask, on_error, part, partition, refused)]


def _scan(name: str) -> re.Pattern[str]:
    return re.compile(rf"^\s*TableScan: {re.escape(name)}(?:\s|$)", re.MULTILINE)


def _scans(plan: df.LogicalPlan, name: str) -> int:
    """How often a plan reads a stream, outside of subqueries."""
    if _scan(name).match(plan.display()):
        return 1
    return sum(_scans(each, name) for each in plan.inputs())
