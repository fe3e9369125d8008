"""What comes out of a fragment, written down: a file for each part of an exchange, or an answer."""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from rota.core.errors import Refused
from rota.wire.queries import Part
from rota.worker.runners.queries.parts import measure, part_name

# It has no types that a checker could use.
_pa: Any = import_module("pyarrow")

# Views of short strings hold 16 bytes each. More than this for each row, and most of a buffer is likely of rows that
# are not in the batch any more: after a filter the views still hold all of it, and all of it would be written.
_VIEW_BYTES_MAX = 48
_VIEWS_SPARED_BYTES = 4_096


def read_schema(packed: bytes) -> Any:
    """The schema that was declared for what comes out."""
    return _pa.ipc.read_schema(_pa.py_buffer(packed))


def counted(rows: int, schema: Any) -> Any:
    """How many rows there were, as an answer of one column."""
    return _pa.RecordBatch.from_arrays([_pa.array([rows], schema.field(0).type)], schema=schema)


def positional(schema: Any) -> Any:
    """The schema of an exchange's files: by number, because names may be there twice; with a column, if there is none.

    Without columns a batch would forget how many rows it has.
    """
    fields = [_pa.field(f"c{number}", field.type) for number, field in enumerate(schema)]
    return _pa.schema(fields or [_pa.field("c0", _pa.int8())])


def fitted(batch: Any, schema: Any) -> Any:
    """A batch with the names and types that were declared, and with nothing in it that none of its rows has."""
    if not batch.num_columns and not len(schema):
        return batch
    if not batch.num_columns:
        return _pa.RecordBatch.from_arrays([_pa.nulls(batch.num_rows, _pa.int8())], schema=schema)
    columns = [_column(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return _pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(column: Any, kind: Any) -> Any:
    if column.type in (_pa.string_view(), _pa.binary_view()) and _is_inflated(column):
        through = _pa.large_string() if column.type == _pa.string_view() else _pa.large_binary()
        column = column.cast(through).cast(column.type)
    if column.type != kind:
        # A cast would drop what the other type has no room for.
        raise Refused("query.failed", f"the engine gave a column of {column.type} where it promised {kind}")
    return column


def _is_inflated(column: Any) -> bool:
    held = sum(buffer.size for buffer in column.buffers()[2:] if buffer is not None)
    return held > _VIEW_BYTES_MAX * len(column) + _VIEWS_SPARED_BYTES


class PartWriter:
    """Writes the parts of an output. One that stays empty has no file."""

    def __init__(self, folder: str, schema: Any, compression: str) -> None:
        self._folder = folder
        self._schema = positional(schema)
        self._options = _pa.ipc.IpcWriteOptions(compression=compression or None)
        self._dictionaries = any(_has_dictionary(field.type) for field in self._schema)
        self._open: dict[int, Any] = {}
        self._rows: dict[int, int] = {}

    def write(self, part: int, batch: Any) -> None:
        """Add rows to a part."""
        if part not in self._open:
            self._open[part] = self._begin(part)
            self._rows[part] = 0
        self._open[part].write_batch(fitted(batch, self._schema))
        self._rows[part] += batch.num_rows

    def close(self) -> tuple[Part, ...]:
        """Bring all files to their end; what was written."""
        found: list[Part] = []
        for part in sorted(self._open):
            self._open.pop(part).close()
            if self._dictionaries:
                self._unify(part)
            file = os.open(self._path(part), os.O_RDONLY | os.O_CLOEXEC)
            try:
                size, checksum = measure(file)
            finally:
                os.close(file)
            found.append(Part(part, size, self._rows[part], checksum))
        return tuple(found)

    def abandon(self) -> None:
        """Let go of what was not brought to its end."""
        self._open.clear()

    def _path(self, part: int) -> str:
        return f"{self._folder}/{part_name(part)}"

    def _begin(self, part: int) -> Any:
        if self._dictionaries:
            return _pa.ipc.new_stream(f"{self._path(part)}-stream", self._schema)
        return _pa.ipc.new_file(self._path(part), self._schema, options=self._options)

    def _unify(self, part: int) -> None:
        """A file has one dictionary for each column, and each batch may have come with its own."""
        stream = f"{self._path(part)}-stream"
        with _pa.memory_map(stream) as source, _pa.ipc.open_stream(source) as batches:
            table = batches.read_all().unify_dictionaries()
            with _pa.ipc.new_file(self._path(part), self._schema, options=self._options) as file:
                file.write_table(table)
        os.unlink(stream)  # noqa: PTH108 - a name among names


def _has_dictionary(kind: Any) -> bool:
    return _pa.types.is_dictionary(kind) or any(
        _has_dictionary(kind.field(number).type) for number in range(kind.num_fields)
    )


class AnswerWriter:
    """Takes an answer batch by batch: in memory while it is small enough to travel, then where large ones go."""

    def __init__(self, schema: Any, large: Callable[[], "LargeAnswer"], inline_bytes_max: int) -> None:
        """`large` begins a large answer."""
        self._schema = schema
        self._begin = large
        self._inline_bytes_max = inline_bytes_max
        self._small: list[Any] = []
        self._small_bytes = 0
        self._large: LargeAnswer | None = None

    def write(self, batch: Any) -> None:
        """Add rows."""
        batch = fitted(batch, self._schema)
        if self._large is not None:
            self._large.write(batch)
            return
        self._small.append(batch)
        self._small_bytes += batch.nbytes
        if self._small_bytes > self._inline_bytes_max:
            self._spill()

    def close(self) -> "bytes | LargeAnswer":
        """All of it if it can travel, or where it is."""
        if self._large is None:
            sink = _pa.BufferOutputStream()
            with _pa.ipc.new_stream(sink, self._schema) as stream:
                for batch in self._small:
                    stream.write_batch(batch)
            packed = sink.getvalue()
            if packed.size <= self._inline_bytes_max:
                return packed.to_pybytes()
        large = self._spill() if self._large is None else self._large
        large.close()
        return large

    def _spill(self) -> "LargeAnswer":
        large = self._large = self._begin()
        for batch in self._small:
            large.write(batch)
        self._small = []
        return large


class LargeAnswer(Protocol):
    """Where an answer goes that is too large to travel."""

    def write(self, batch: Any) -> None:
        """Add rows."""
        ...

    def close(self) -> None:
        """Bring it to its end."""
        ...


class StoredAnswer:
    """One that is kept for good: a stream in a file, for somebody else to store."""

    def __init__(self, path: str, schema: Any) -> None:
        self._stream = _pa.ipc.new_stream(path, schema)

    def write(self, batch: Any) -> None:
        """Add rows."""
        self._stream.write_batch(batch)

    def close(self) -> None:
        """Bring it to its end."""
        self._stream.close()


class KeptHere:
    """One that stays with this worker: the only part of an output."""

    def __init__(self, folder: str, schema: Any) -> None:
        self._writer = PartWriter(folder, schema, "")
        self.parts: tuple[Part, ...] = ()

    def write(self, batch: Any) -> None:
        """Add rows."""
        self._writer.write(0, batch)

    def close(self) -> None:
        """Bring it to its end."""
        self.parts = self._writer.close()
