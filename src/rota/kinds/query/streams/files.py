"""A folder of files as a source: every file that appears in it is read once, in the order in which files were seen.

Files must appear whole: write them under a name that begins with `_` or `.`, and rename them.
"""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rota.core.errors import Refused
from rota.kinds.query.streams.columns import FileForm, shown_columns, told_columns
from rota.kinds.query.streams.ledger import Entry, Ledger
from rota.kinds.query.streams.policies import Policies, Unusable
from rota.kinds.query.streams.rounds import Offset, partition_name
from rota.kinds.query.streams.scanning import Ahead, Scan, Scanned, group_sizes, read_scanned, spans, unanswered
from rota.wire.capabilities import Source

_ENDINGS: dict[str, tuple[str, ...]] = {
    "parquet": (".parquet",),
    "csv": (".csv",),
    "json": (".json", ".jsonl", ".ndjson"),
    "arrow": (".arrow", ".feather", ".ipc"),
}

# What a row takes at least, of those that nobody has counted: rather too few of them in a round than too many.
_ROW_BYTES = 32
# How many times as long as looking takes nobody looks again.
_LOOKS_SHARE = 10


class Files:
    """Files of one form in a folder and in those below it. An offset is the number of a file, and of a row in it."""

    can = Source.REWINDABLE | Source.SPLITTABLE

    def __init__(
        self,
        path: str | os.PathLike[str],
        form: FileForm = "parquet",
        *,
        schema: pa.Schema | None = None,
        partitions: int = 1,
        bounded: bool = False,
    ) -> None:
        """`schema`: what is read; that of the first file unless told. `bounded`: it ends with what is there at first.

        `partitions`: into how many parts files are dealt, by their names; each has a watermark of its own.
        """
        if form not in _ENDINGS:
            text = f"files of the form {form!r} are not read"
            raise Refused("field.value", text, f"There are {', '.join(_ENDINGS)}.", path="form")
        if partitions < 1:
            raise Refused("field.value", "there is at least one partition", path="partitions")
        self._path = Path(path).absolute()
        self._form: FileForm = form
        self._is_declared = schema is not None
        self._is_bounded = bounded
        self.partitions = partitions
        if bounded:
            self.can |= Source.BOUNDED
        self.schema = told_columns(schema, form) if schema is not None else self._first_schema()
        self.called = f"{form} files in {self._path} ({partitions} partitions)"
        self._ledger: Ledger | None = None
        self._has_looked = False
        self._looks_from = 0.0
        self._ahead = Ahead()

    def open(self, folder: Path) -> None:
        """Read which files were seen before, and look anew."""
        self._ledger = Ledger(folder, self.partitions)
        self._has_looked = False
        self._looks_from = 0.0
        self._ahead = Ahead()

    def remembered(self) -> bytes:
        """Which file has which number."""
        return self._seen.packed()

    def recall(self, remembered: bytes) -> None:
        """Number files as they were there."""
        if not self._seen.recall(remembered):
            text = f"{self.called} were seen in another order in this folder"
            raise Refused("stream.source", text, "Restore it in a folder where none were seen.", path="restore")

    def check_known(self, partition: int, offset: Offset) -> None:
        """So many files must have been seen."""
        self._files(partition, offset)

    @property
    def _seen(self) -> Ledger:
        assert self._ledger is not None, "it is opened before it is read"
        return self._ledger

    def look(self, now_ms: int) -> None:
        """Write down files that are new."""
        began = time.perf_counter()
        if self._has_looked and (self._is_bounded or began < self._looks_from):
            return
        if not self._path.is_dir():
            raise Refused("stream.source", f"{self._path} is no folder any more", "See that it is there.")
        self._has_looked = True
        entries: list[tuple[int, str, Entry]] = []
        for name in self._listed():
            if name in self._seen:
                continue
            path = self._path / name
            try:
                known = path.stat()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise unanswered(path, error) from None
            entry = Entry(name, known.st_size, known.st_mtime_ns, self._rows_of(path), self._seen.partition_of(name))
            entries.append((known.st_mtime_ns, name, entry))
        self._seen.add([entry for *_, entry in sorted(entries, key=lambda each: each[:2])])
        # A folder of very many files takes long to look through, and rows are worth more of the time.
        now = time.perf_counter()
        self._looks_from = now + _LOOKS_SHARE * (now - began)

    def _listed(self) -> Iterator[str]:
        """The names of all files of this form, seen from the folder. Only plain files are some."""
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                found = sorted(os.scandir(self._path / folder), key=lambda each: each.name)
            except (FileNotFoundError, NotADirectoryError):
                # It went while we looked.
                continue
            except OSError as error:
                # Also if it may not be read: to pass it over would be to lose its rows.
                raise unanswered(self._path / folder, error) from None
            for each in found:
                name = os.path.join(folder, each.name)  # noqa: PTH118 - a name among very many
                if _is_passed_over(each.name):
                    continue
                if each.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif each.name.endswith(_ENDINGS[self._form]) and _is_plain(each):
                    _check_text(self._path, name)
                    yield name

    def would_read(self, path: Path) -> bool:
        """Whether a file there would be one of these."""
        below = Path(os.path.realpath(path.parent), path.name)
        root = os.path.realpath(self._path)
        if not below.is_relative_to(root) or not path.name.endswith(_ENDINGS[self._form]):
            return False
        return not any(_is_passed_over(part) for part in below.relative_to(root).parts)

    def _rows_of(self, path: Path) -> int:
        """How many rows a file has, where that is written in it. A file that lies is found out when it is read."""
        try:
            if self._form == "parquet":
                return sum(group_sizes(pq.read_metadata(path)))
            if self._form == "arrow":
                # Not mapped: whoever cuts a file short meanwhile would end this process.
                with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as file:
                    return sum(file.get_batch(number).num_rows for number in range(file.num_record_batches))
        except (pa.ArrowException, OSError):
            return -1
        return -1

    # Offsets.

    def beginning(self, partition: int) -> Offset:
        """The first row of the first file."""
        return (0, 0)

    def end_of_range(self, partition: int, begin: Offset, rows_max: int) -> Offset:
        """As many rows as are wanted. A file whose rows nobody has counted is read as a whole, whatever it has."""
        files = self._seen.of(partition)
        number, row = begin
        left = rows_max
        while number < len(files) and left > 0:
            rows = files[number].rows
            if rows < 0:
                about = max(1, files[number].bytes // _ROW_BYTES)
                if about > left and (number, row) != begin:
                    return (number, row)
                left -= about
            elif rows - row > left:
                return (number, row + left)
            else:
                left -= rows - row
            number, row = number + 1, 0
        return (number, row)

    def is_over(self, partition: int, begin: Offset) -> bool:
        """Whether that was the last file, and no more can come."""
        return self._is_bounded and self._has_looked and begin[0] >= len(self._seen.of(partition))

    # Rows.

    def read(self, partition: int, begin: Offset, end: Offset, policies: Policies, refused: Unusable) -> pa.Table:
        """Rows of the files of a range."""
        return read_scanned(self.scanned(partition, begin, end), self.schema, policies, refused, self._ahead)

    def scanned(self, partition: int, begin: Offset, end: Offset) -> Scanned:
        """A range for somebody else to read."""
        seen = self._files(partition, end)
        files = tuple(seen[number] for number, _ in spans(begin, end))
        return Scanned(self._scan(partition), files, begin[1], end[1])

    def _files(self, partition: int, end: Offset) -> list[Entry]:
        """Files up to an offset. A range that a rival has planned may have some that only it has seen so far."""
        return self._seen.at_least(partition, end[0] + (end[1] > 0))

    def _scan(self, partition: int) -> Scan:
        where = partition_name(str(self._path), partition)
        return Scan(path=str(self._path), form=self._form, is_declared=self._is_declared, where=where)

    def _first_schema(self) -> pa.Schema:
        if not self._path.is_dir():
            raise Refused("stream.source", f"there is no folder {self._path}", "Make it first.", path="path")
        first = min(self._listed(), key=lambda name: Path(name).parts, default=None)
        if first is None:
            text = f"there is no {self._form} file in {self._path} to see its columns"
            raise Refused("stream.source", text, "Give a schema.", path="schema")
        return shown_columns(self._path / first, self._form)


def _is_passed_over(name: str) -> bool:
    """Whether a file is being written, or is no row's business; and so with all that is in a folder of that name."""
    return name.startswith(("_", "."))


def _is_plain(entry: "os.DirEntry[str]") -> bool:
    """Whether this is a file with an end, or a link to one."""
    try:
        return entry.is_file()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise unanswered(Path(entry.path), error) from None


def _check_text(folder: Path, name: str) -> None:
    """Refuse a file whose name cannot be written down. To pass it over would be to lose its rows."""
    try:
        name.encode()
    except UnicodeEncodeError:
        text = f"a file in {folder} has a name that is not UTF-8: {os.fsencode(name)!r}"
        raise Refused("stream.source", text, "Rename or remove it.", path="path") from None
