"""A statement that somebody typed: answered on a worker, and its first rows as plain values for a page.

Two tasks of one run. The first plans and answers, or goes on as stages; the second looks at what came out. Whoever
shows it needs neither the engine nor Arrow.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa

from rota.core.errors import Refused
from rota.kinds.query.cell_text import cell_texts
from rota.kinds.query.statement import answer, plan_of
from rota.running import Fail, context
from rota.wire.queries import Texts
from rota.wire.work import Grown

# Beyond these nobody reads on, and nobody should wait for.
ROWS_MAX = 10_000
ROWS_SHOWN = 200
CELL_CHARS_MAX = 300
COLUMNS_SHOWN = 100
# Of all cells, and of one row or the names of the columns, so that everything travels with the task.
CELLS_BYTES_MAX = 28_000
ROW_BYTES_MAX = 20_000
# Of everything; what rows and columns leave of it is for the plans.
ALL_BYTES_MAX = 56_000
TYPE_CHARS_MAX = 40
_NEAREST_MAX = 3


def ask(statement: str, tables: Mapping[str, str]) -> "pa.Table | Grown":
    """What a statement over these tables gives, and no more rows than one more than are counted."""
    here = context()
    task = here.task if here.take_growth() else ""
    try:
        needed = _needed(statement, tables)
        return answer(statement, needed, task=task, reads_only=True, rows_max=ROWS_MAX + 1, with_plan=True)
    except Fail as fail:
        raise _suggesting(fail, tables) from None


def _needed(statement: str, tables: Mapping[str, str]) -> dict[str, str]:
    """Tables that can be had without asking anybody, and those that the statement seems to name."""
    text = statement.lower()
    return {
        name: path
        for name, path in tables.items()
        if name.lower() in text or ("://" not in path and Path(path).exists())
    }


def _suggesting(fail: Fail, tables: Mapping[str, str]) -> Fail:
    """A table that there is not may be another one, which was not looked at."""
    refused = fail.__cause__
    if not isinstance(refused, Refused) or refused.code != "query.table":
        return fail
    name = refused.reason.removeprefix("there is no table ")
    near = get_close_matches(name, list(tables), _NEAREST_MAX, 0.6)
    known = ", ".join(sorted(tables)[:20])
    hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {known}." if known else refused.hint
    return Fail(str(Refused(refused.code, refused.reason, hint, path=refused.path)))


def preview(table: "pa.Table") -> dict[str, Any]:
    """The first rows as texts, NULL as nothing, with the columns and how many rows there are."""
    count = min(table.num_columns, COLUMNS_SHOWN)
    some = table.slice(0, ROWS_SHOWN)
    # By column: names may come twice.
    columns = [cell_texts(some.column(number)) for number in range(count)]
    rows: list[list[str | None]] = []
    # A character takes four bytes at most.
    width = min(CELL_CHARS_MAX, ROW_BYTES_MAX // (4 * max(1, count)))
    size = 0
    for row in zip(*columns, strict=True):
        shown = [None if text is None else _cut(text, width) for text in row]
        size += sum(len((text or "").encode(errors="replace")) + 4 for text in shown)
        if size > CELLS_BYTES_MAX and rows:
            break
        rows.append(shown)
    fields = list(table.schema)[:count]
    named = [[_cut(field.name, width), _cut(str(field.type), TYPE_CHARS_MAX)] for field in fields]
    size += sum(len(word.encode(errors="replace")) for names in named for word in names)
    return {
        "columns": named,
        "columns_left": table.num_columns - count,
        "rows": rows,
        "rows_total": min(table.num_rows, ROWS_MAX),
        "is_more": table.num_rows > ROWS_MAX,
        # Of one that was answered in stages these have it.
        "plan": _within(plan_of(table), ALL_BYTES_MAX - size),
    }


def _within(plan: Texts, bytes_max: int) -> list[list[str]]:
    size = sum(len(text.encode(errors="replace")) for _, text in plan)
    return [list(named) for named in plan] if size <= bytes_max else []


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
