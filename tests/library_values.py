"""Values of the libraries that tasks return, of any size: what a task, an argument and a test have in common."""

import pickle
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa


class Tensor:
    """Pickles as libraries for tensors do: its numbers in a buffer of their own, which the pickler does not copy."""

    def __init__(self, numbers: Any, shape: tuple[int, ...]) -> None:
        self.numbers = memoryview(numbers)
        self.shape = shape

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Tensor, (pickle.PickleBuffer(self.numbers), self.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.shape == other.shape and bytes(self.numbers) == bytes(other.numbers)

    __hash__ = None


@dataclass
class Batch:
    """A dataclass that holds arrays and frames."""

    name: str
    rows: Any
    index: dict[str, Any] = field(default_factory=dict)


class Point(NamedTuple):
    """A tuple with names."""

    x: float
    y: Any


def _numbers(size: int) -> Any:
    return np.arange(size // 8, dtype=np.float64)


def _square(size: int) -> Any:
    side = int((size // 8) ** 0.5)
    return np.arange(side * side, dtype=np.int64).reshape(side, side)


def _frame(size: int) -> pd.DataFrame:
    rows = size // 24
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "price": np.linspace(0, 1, rows) if rows else np.zeros(0),
            "at": pd.date_range("2026-01-01", periods=rows, freq="s", tz="UTC"),
        }
    )


def _labelled(size: int) -> pd.DataFrame:
    frame = _frame(size)
    frame["shop"] = pd.Categorical([("Bern", "Cork", "Graz")[row % 3] for row in range(len(frame))])
    frame["name"] = [f"row {row}" for row in range(len(frame))]
    return frame.set_index(["shop", "id"])


def _table(size: int) -> pa.Table:
    rows = size // 16
    return pa.table({"id": pa.array(range(rows), pa.int64()), "name": pa.array([None] * rows, pa.float64())})


def _dictionary(size: int) -> pa.Array:
    return pa.array([("Bern", "Cork")[row % 2] for row in range(size // 4)], pa.string()).dictionary_encode()


def _nested(size: int) -> dict[str, Any]:
    part = size // 4
    return {
        "arrays": [_numbers(part), (_square(part), None)],
        "frames": {1: _frame(part)},
        "batch": Batch("inner", _numbers(part), {"tensor": Tensor(bytes(16), (4, 4))}),
    }


# Cheap at any size, or close to it: these are also made of 200 MB.
LARGE: dict[str, Callable[[int], Any]] = {
    "bytes": bytes,
    "text": lambda size: "ä" * (size // 2),
    "bytearray": bytearray,
    "array": lambda size: array("d", bytes(size // 8 * 8)),
    "numpy": _numbers,
    "numpy in Fortran's order": lambda size: np.asfortranarray(_square(size)),
    "numpy with gaps": lambda size: _square(2 * size)[:, ::2],
    "numpy that is read-only": lambda size: np.frombuffer(bytes(size), dtype=np.uint8),
    "pandas frame": _frame,
    "pandas series": lambda size: pd.Series(_numbers(size), name="numbers"),
    "polars frame": lambda size: pl.DataFrame({"id": _numbers(size)}),
    "polars series": lambda size: pl.Series("id", _numbers(size)),
    "arrow table": lambda size: pa.table({"id": _numbers(size)}),
    "arrow batch": lambda size: pa.record_batch({"id": pa.array(_numbers(size))}),
    "arrow array": lambda size: pa.array(_numbers(size)),
    "arrow chunks": lambda size: pa.chunked_array([pa.array(_numbers(size // 2)), pa.array(_numbers(size // 2))]),
    "arrow buffer": lambda size: pa.py_buffer(bytes(size)),
    "tensor": lambda size: Tensor(bytes(size), (size,)),
    "tensor that can be written": lambda size: Tensor(bytearray(size), (size,)),
    "dataclass": lambda size: Batch("outer", _numbers(size)),
    "named tuple": lambda size: Point(0.5, _numbers(size)),
    "nested": _nested,
}
# Made element by element.
SMALL: dict[str, Callable[[int], Any]] = {
    "list": lambda size: list(range(size // 4)),
    "dictionary": lambda size: {f"key {number}": number for number in range(size // 16)},
    "set": lambda size: set(range(size // 4)),
    "decimals and instants": lambda size: [Decimal(size), datetime(2026, 1, 1, tzinfo=UTC)] * (size // 64),
    "numpy scalar": np.float32,
    "numpy of objects": lambda size: np.array([f"row {row}" for row in range(size // 16)], dtype=object),
    "numpy of records": lambda size: np.zeros(size // 12, dtype=[("id", "i8"), ("part", "f4")]),
    "numpy of instants": lambda size: np.arange(size // 8).astype("datetime64[s]"),
    "numpy with a mask": lambda size: np.ma.masked_less(_numbers(size), 3.0),
    "numpy without dimensions": lambda size: np.array(float(size)),
    "pandas with labels": _labelled,
    "pandas over arrow": lambda size: _frame(size).convert_dtypes(dtype_backend="pyarrow"),
    "polars with text": lambda size: pl.DataFrame({"name": [f"row {row}" for row in range(size // 16)]}),
    "polars that is lazy": lambda size: pl.DataFrame({"id": _numbers(size)}).lazy(),
    "arrow with nulls": _table,
    "arrow dictionary": _dictionary,
    "arrow schema": lambda size: _table(size).schema,
}
MAKERS = {**LARGE, **SMALL}


def make(name: str, size: int) -> Any:
    """A value of about so many bytes."""
    return MAKERS[name](size)


def same(left: Any, right: Any) -> bool:
    """Whether one value is the other: same type, same content, same labels."""
    if type(left) is not type(right):
        return False
    match left:
        case np.ma.MaskedArray():
            return same(left.filled(0), right.filled(0)) and same(np.ma.getmaskarray(left), np.ma.getmaskarray(right))
        case np.ndarray():
            is_alike = left.dtype == right.dtype and left.shape == right.shape
            return is_alike and left.flags.writeable == right.flags.writeable and bool((left == right).all())
        case pd.DataFrame():
            return left.equals(right) and list(left.dtypes) == list(right.dtypes) and left.index.equals(right.index)
        case pd.Series():
            return left.equals(right) and left.name == right.name
        case pl.LazyFrame():
            return left.collect().equals(right.collect())
        case pl.DataFrame() | pl.Series():
            return left.equals(right) and getattr(left, "schema", None) == getattr(right, "schema", None)
        case pa.Table() | pa.RecordBatch():
            return left.equals(right, check_metadata=True)
        case Batch():
            return left.name == right.name and same(left.rows, right.rows) and same(left.index, right.index)
        case list() | tuple():
            return len(left) == len(right) and all(map(same, left, right))
        case dict():
            return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
        case _:
            return bool(left == right)
