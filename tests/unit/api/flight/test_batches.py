"""Answers on their way to drivers: types that they know, in messages that they take."""

import pyarrow as pa

from rota.api.flight.batches import pieces
from rota.wire.plain import plain_schema


def put_together(batch: pa.RecordBatch, bytes_max: int = 8 << 20) -> tuple[list[pa.RecordBatch], pa.Table]:
    schema = plain_schema(batch.schema)
    found = list(pieces(batch, schema, bytes_max))
    return found, pa.Table.from_batches(found, schema)


def test_views_of_texts_become_texts_wherever_they_are() -> None:
    view = pa.string_view()
    schema = pa.schema(
        [
            pa.field("a", view, False),
            ("b", pa.binary_view()),
            ("c", pa.list_(view)),
            ("d", pa.large_list(view)),
            ("e", pa.list_(view, 2)),
            ("f", pa.struct([("x", view), ("y", pa.int8())])),
            ("g", pa.map_(view, pa.list_(view))),
            ("h", pa.decimal128(10, 2)),
        ]
    )
    plain = plain_schema(schema)
    assert "view" not in str(plain)
    assert plain.names == schema.names
    assert not plain.field("a").nullable
    assert plain.field("h").type == schema.field("h").type
    row = {"a": "å", "b": b"\xff", "c": ["x", None], "d": [], "e": ["1", "2"], "f": {"x": None, "y": 1}}
    given = pa.Table.from_pylist([{**row, "g": [("k", ["v"])], "h": None}], schema=plain)
    columns = [given.column(name).combine_chunks() for name in ("a", "b")]
    batch = pa.RecordBatch.from_arrays([columns[0].cast(view), columns[1].cast(pa.binary_view())], names=["a", "b"])
    _, table = put_together(batch)
    assert table.to_pylist() == [{"a": "å", "b": b"\xff"}]
    assert table.schema.types == [pa.string(), pa.binary()]


def test_a_large_batch_is_sent_in_pieces_of_which_none_is_too_large() -> None:
    batch = pa.record_batch({"n": list(range(1_000)), "text": pa.array(["x" * 1_000] * 1_000, pa.string_view())})
    found, table = put_together(batch, 100_000)
    assert len(found) > 8
    assert all(piece.nbytes <= 100_000 for piece in found)
    assert table.column("n").to_pylist() == list(range(1_000))


def test_one_large_row_is_sent_all_the_same() -> None:
    found, table = put_together(pa.record_batch({"text": ["x" * 1_000, "", "y" * 1_000]}), 100)
    assert [piece.num_rows for piece in found] == [1, 1, 1]
    assert table.num_rows == 3


def test_batches_without_rows_or_columns_go_through() -> None:
    assert put_together(pa.record_batch({"a": pa.array([], pa.string_view())}))[1].num_rows == 0
    bare = pa.record_batch({"a": [1, 2]}).select([])
    assert [piece.num_rows for piece in put_together(bare)[0]] == [bare.num_rows]


def test_names_that_come_twice_stay_apart() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["x"], pa.string_view()), pa.array([1])], names=["a", "a"])
    _, table = put_together(batch)
    assert [column.to_pylist() for column in table.columns] == [["x"], [1]]
