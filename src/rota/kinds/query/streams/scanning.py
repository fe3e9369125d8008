"""Rows of files that a folder was seen to have: read by whoever drives a stream, or by tasks of its rounds."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from rota.kinds.query.streams.ledger import Entry
from rota.kinds.query.streams.parsing import Unfit, fit_table, read_csv, read_json
from rota.kinds.query.streams.policies import Policies, Refuse
from rota.kinds.query.streams.rounds import Offset

FileForm = Literal["parquet", "csv", "json", "arrow"]
# From which row to which of a file is read; None for its end.
Span = tuple[int, int | None]


class Scan(Struct, frozen=True, kw_only=True):
    """Files of one form in a folder, and which columns they have. `is_declared`: they may have more."""

    path: str
    form: FileForm
    is_declared: bool
    where: str


class Scanned(Struct, frozen=True):
    """A range of a folder, as it travels to a task: its files, from a row of the first to a row of the last."""

    scan: Scan
    files: tuple[Entry, ...]
    first: int
    last: int


def spans(begin: Offset, end: Offset) -> Iterator[tuple[int, Span]]:
    """The files of a range by their numbers, and what of each is read."""
    for number in range(begin[0], end[0] + (end[1] > 0)):
        yield number, (begin[1] if number == begin[0] else 0, end[1] if number == end[0] else None)


def read_scanned(scanned: Scanned, schema: pa.Schema, policies: Policies, refused: Refuse) -> pa.Table:
    """The rows of a range."""
    count = len(scanned.files)
    end = (count - 1, scanned.last) if scanned.last else (count, 0)
    found = [
        read_file(scanned.scan, schema, scanned.files[number], span, policies, refused, is_first=span[0] == 0)
        for number, span in spans((0, scanned.first), end)
    ]
    return pa.concat_tables([schema.empty_table(), *found])


def read_file(
    scan: Scan,
    schema: pa.Schema,
    entry: Entry,
    span: Span,
    policies: Policies,
    refused: Refuse,
    *,
    is_first: bool,
) -> pa.Table:
    """Rows of a file, if it is the one that was seen; what cannot be read goes where policies say.

    `is_first`: its first rows are asked for. Its columns are told of then, and not again with each range of it; that it
    is gone or damaged may be so for some ranges only, and is told for each.
    """
    path = Path(scan.path, entry.name)
    try:
        known = path.stat()
        if (known.st_size, known.st_mtime_ns) != (entry.bytes, entry.changed_at_ns):
            refused.take(policies.missing, f"file {entry.name} was changed since it was seen", scan.where, [])
        else:
            return _parsed(scan, schema, path, span, policies, refused)
    except FileNotFoundError:
        refused.take(policies.missing, f"file {entry.name} is gone", scan.where, [])
    except Unfit as unfit:
        told = refused if is_first else Refuse()
        told.take(policies.schema, f"file {entry.name}: {unfit}", scan.where, [])
    except (pa.ArrowException, UnicodeDecodeError) as error:
        refused.take(policies.poison, f"file {entry.name} cannot be read: {error}", scan.where, [])
    return schema.empty_table()


def _parsed(scan: Scan, schema: pa.Schema, path: Path, span: Span, policies: Policies, refused: Refuse) -> pa.Table:
    if scan.form in ("csv", "json"):
        read = read_csv if scan.form == "csv" else read_json
        where = f"{scan.where}/{path.relative_to(scan.path)}"
        return _slice(read(path, schema, where, policies, refused, may_have_more=scan.is_declared), span)
    table = read_parquet(path, span) if scan.form == "parquet" else read_arrow(path, span)
    return fit_table(table, schema, may_have_more=scan.is_declared)


def _slice(table: pa.Table, span: Span) -> pa.Table:
    first, last = span
    return table.slice(first, None if last is None else last - first)


def read_parquet(path: Path, span: Span = (0, None)) -> pa.Table:
    """Rows of a Parquet file; only groups of rows are read that have some of them."""
    with pq.ParquetFile(path) as file:
        sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        groups, skipped = _touched(sizes, span)
        return _within(file.read_row_groups(groups), span, skipped)


def read_arrow(path: Path, span: Span = (0, None)) -> pa.Table:
    """Rows of an Arrow file. It is not mapped: whoever cuts it short would end this process."""
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as file:
        batches: list[Any] = [file.get_batch(number) for number in range(file.num_record_batches)]
        groups, skipped = _touched([batch.num_rows for batch in batches], span)
        return _within(pa.Table.from_batches([batches[number] for number in groups], file.schema), span, skipped)


def _touched(sizes: Sequence[int], span: Span) -> tuple[list[int], int]:
    """Which of these groups have rows of a span, and how many rows are before them."""
    first, last = span[0], span[1] if span[1] is not None else sum(sizes)
    found: list[int] = []
    begins, skipped = 0, 0
    for number, size in enumerate(sizes):
        if begins < last and begins + size > first:
            found.append(number)
        elif not found:
            skipped += size
        begins += size
    return found, skipped


def _within(table: pa.Table, span: Span, skipped: int) -> pa.Table:
    first, last = span
    return _slice(table, (first - skipped if table.num_rows else 0, None if last is None else last - skipped))
