"""Rows of files that a folder was seen to have: read by whoever drives a stream, or by tasks of its rounds."""

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.streams.columns import FileForm
from rota.kinds.query.streams.csv_rows import read_csv
from rota.kinds.query.streams.json_rows import read_json
from rota.kinds.query.streams.ledger import Entry
from rota.kinds.query.streams.parsing import Aside, Unfit, fit_table
from rota.kinds.query.streams.policies import Policies, Unusable
from rota.kinds.query.streams.rounds import Offset

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


class Ahead:
    """Rows that were read beyond those that were asked for, since more of a file is read at once than a round wants.

    What they are depends on the file alone, so it does not matter who has them. There is one table for each partition.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Entry, int, pa.Table]] = {}

    def take(self, where: str, entry: Entry, span: Span) -> pa.Table | None:
        """Rows of a span of a file, if they are there."""
        known, first, table = self._kept.get(where, (None, 0, None))
        end = entry.rows if span[1] is None else span[1]
        if known != entry or table is None or span[0] < first or end > first + table.num_rows:
            return None
        self._release(where, first + table.num_rows, end)
        return _slice(table, (span[0] - first, end - first))

    def keep(self, where: str, entry: Entry, first: int, table: pa.Table, span: Span) -> None:
        """Keep what was read from row `first` on, if something comes after the span."""
        self._kept[where] = (entry, first, table)
        self._release(where, first + table.num_rows, span[1])

    def _release(self, where: str, end: int, taken: int | None) -> None:
        if taken is None or taken >= end:
            del self._kept[where]


def read_scanned(
    scanned: Scanned, schema: pa.Schema, policies: Policies, refused: Unusable, ahead: Ahead | None = None
) -> pa.Table:
    """The rows of a range."""
    count = len(scanned.files)
    end = (count - 1, scanned.last) if scanned.last else (count, 0)
    reader = _Reader(scanned.scan, schema, policies, refused, ahead or Ahead())
    found = [reader.read(scanned.files[number], span) for number, span in spans((0, scanned.first), end)]
    return pa.concat_tables([schema.empty_table(), *found])


class _Reader(Struct, frozen=True):
    """Reads files of one folder, if they are those that were seen; what cannot be read goes where policies say."""

    scan: Scan
    schema: pa.Schema
    policies: Policies
    refused: Unusable
    ahead: Ahead

    def read(self, entry: Entry, span: Span) -> pa.Table:
        """Rows of a file.

        That its columns are others is told with its first rows, and not again with each range of it; that it is gone or
        damaged, or that values do not fit, may be so for some ranges only, and is told for each.
        """
        path, where = Path(self.scan.path, entry.name), self.scan.where
        try:
            known = path.stat()
            if (known.st_size, known.st_mtime_ns) == (entry.bytes, entry.changed_at_ns):
                return self._rows(path, entry, span)
            self.refused.take(self.policies.missing, f"file {entry.name} was changed since it was seen", where, [])
        except FileNotFoundError:
            self.refused.take(self.policies.missing, f"file {entry.name} is gone", where, [])
        except Unfit as unfit:
            told = self.refused if span[0] == 0 or unfit.is_of_rows else Unusable()
            told.take(self.policies.schema, f"file {entry.name}: {unfit}", where, [])
        except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise unanswered(path, error) from None
            self.refused.take(self.policies.poison, f"file {entry.name} cannot be read: {error}", where, [])
        return self.schema.empty_table()

    def _rows(self, path: Path, entry: Entry, span: Span) -> pa.Table:
        scan = self.scan
        if scan.form in ("csv", "json"):
            read = read_csv if scan.form == "csv" else read_json
            aside = Aside(self.policies.poison, f"{scan.where}/{entry.name}", self.refused)
            return _slice(read(path, self.schema, aside, may_have_more=scan.is_declared), span)
        if (found := self.ahead.take(scan.where, entry, span)) is not None:
            return found
        first, table = read_parquet(path, span) if scan.form == "parquet" else read_arrow(path)
        table = fit_table(table, self.schema, may_have_more=scan.is_declared)
        self.ahead.keep(scan.where, entry, first, table, span)
        return _slice(table, (span[0] - first, None if span[1] is None else span[1] - first))


def unanswered(path: Path, error: OSError) -> Refused:
    """What is said of a disk that does not answer, or does not let us read: that is no fault of a file."""
    text = f"{path} cannot be read: {error.strerror}"
    return Refused(
        "stream.source", text, "See that its disk answers and that it may be read, and start the stream again."
    )


def _slice(table: pa.Table, span: Span) -> pa.Table:
    first, last = span
    return table.slice(first, None if last is None else last - first)


def group_sizes(known: pq.FileMetaData) -> list[int]:
    """How many rows each group of a Parquet file has."""
    return [known.row_group(number).num_rows for number in range(known.num_row_groups)]


def read_parquet(path: Path, span: Span) -> tuple[int, pa.Table]:
    """All groups of rows of a Parquet file that have some of a span, and the number of their first row."""
    with pq.ParquetFile(path) as file:
        sizes = group_sizes(file.metadata)
        begins = [0, *accumulate(sizes)]
        last = begins[-1] if span[1] is None else span[1]
        groups = [at for at in range(len(sizes)) if begins[at] < last and begins[at + 1] > span[0]]
        return begins[groups[0]] if groups else span[0], file.read_row_groups(groups)


def read_arrow(path: Path) -> tuple[int, pa.Table]:
    """All rows of an Arrow file. It is not mapped: whoever cuts it short would end this process."""
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as file:
        return 0, file.read_all()
