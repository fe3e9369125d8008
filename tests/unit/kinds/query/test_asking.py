"""The first rows of an answer, as plain values that travel with their task."""

from datetime import date

import pyarrow as pa
import pytest

from rota.kinds.query.asking import CELL_CHARS_MAX, ROWS_MAX, ROWS_SHOWN, preview
from rota.wire.values import is_plain, pack
from rota.wire.work import INLINE_BYTES_MAX


def test_values_are_texts_and_null_is_nothing():
    shown = preview(pa.table({"a": [1, None], "b": ["x", "y"], "c": [date(2026, 1, 2), None]}))
    assert shown["columns"] == [["a", "int64"], ["b", "string"], ["c", "date32[day]"]]
    assert shown["rows"] == [["1", "x", "2026-01-02"], [None, "y", None]]
    assert (shown["rows_total"], shown["is_more"]) == (2, False)


def test_columns_may_have_the_same_name():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    assert preview(table)["rows"] == [["1", "2"]]


def test_of_many_rows_the_first_are_shown_and_no_more_are_counted_than_were_made():
    shown = preview(pa.table({"a": range(ROWS_MAX + 1)}))
    assert len(shown["rows"]) == ROWS_SHOWN
    assert (shown["rows_total"], shown["is_more"]) == (ROWS_MAX, True)


@pytest.mark.full
def test_however_wide_it_is_it_travels_with_its_task():
    wide = pa.table({f"c{number}{'🦉' * 500}": ["🦉" * 2_000] * 500 for number in range(300)})
    shown = preview(wide)
    assert all(len(cell) <= CELL_CHARS_MAX + 1 for cell in shown["rows"][0])
    assert is_plain(shown)
    assert len(pack(shown)[1]) <= INLINE_BYTES_MAX
    assert shown["columns_left"] == 200


def test_an_answer_without_rows_or_columns_is_one():
    assert preview(pa.table({"a": pa.array([], pa.int64())}))["rows"] == []
    assert preview(pa.table({}))["columns"] == []
