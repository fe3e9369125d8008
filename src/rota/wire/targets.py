"""Where queries write: files are put aside first, each under its attempt's own name, and published together.

What is published is what accepted reports have named. Publishing may be done twice, and goes on where another was
killed.
"""

import io
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from typing import Any, Literal

from msgspec import Struct

from rota.core.errors import Refused
from rota.wire.capabilities import FENCED, in_words
from rota.wire.folders import Folder, open_folder

Form = Literal["parquet", "csv"]
Mode = Literal["error", "append", "overwrite"]

# Whoever reads a folder of files passes over names that begin like this.
ASIDE = "_rota-"
_CALLED: dict[Form, str] = {"parquet": "Parquet", "csv": "CSV"}


class Target(Struct, frozen=True):
    """A folder or a URL that a query writes to, and what becomes of what is there.

    Nothing may be there (`error`), it stays (`append`), or it goes (`overwrite`).
    """

    folder: str
    form: Form
    mode: Mode = "error"


class Unpublished(Exception):
    """Files that were put aside and are gone, by the numbers of their tasks."""

    def __init__(self, tasks: tuple[int, ...], first: str) -> None:
        more = f" and {len(tasks) - 1} more" if len(tasks) > 1 else ""
        super().__init__(f"what was put aside is gone: {first}{more}")
        self.tasks = tasks


def check_target(target: Target) -> None:
    """Refuse a folder that cannot be written to, or must not be."""
    if target.mode not in ("error", "append", "overwrite"):
        raise Refused(
            "field.value", f"there is no mode {target.mode!r}", "It is error, append or overwrite.", path="mode"
        )
    folder = open_folder(target.folder)
    if FENCED not in folder.capabilities:
        text = f"{target.folder} can be written to {in_words(folder.capabilities)}, and not twice with one effect"
        raise Refused("query.target", text, "Name a folder or a bucket.", path="path")
    folder.check()
    if target.mode == "error" and (left := _published(folder)):
        text = f"there is something in {target.folder} already: {left[0]}"
        raise Refused("query.target", text, "Say whether to append to it or to overwrite it.", path="mode")
    if target.mode == "overwrite":
        _check_flat(target, _published(folder))


def check_columns(form: Form, schema: Any, path: str = "sql") -> None:
    """Refuse columns that the form has no way to write."""
    pa: Any = import_module("pyarrow")
    plain: Any = import_module("rota.wire.plain")
    for field in plain.plain_schema(schema):
        # A value that is missing is the least that any column may have.
        refused = _unwritten(pa.record_batch([pa.nulls(1, field.type)], [field.name]), form)
        if refused is not None:
            refused.path = path
            raise refused


def _unwritten(batch: Any, form: Form) -> Refused | None:
    """What keeps rows from being written in some form: the first column that cannot be written by itself."""
    pa: Any = import_module("pyarrow")
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            alone = pa.record_batch([column], [name])
            with _writer(io.BytesIO(), alone.schema, form) as file:
                file.write_batch(alone)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            said = str(error).partition("\n")[0]
            text = f"column {name!r} is of type {column.type}, which {_CALLED[form]} cannot hold: {said}"
            other = "Write Parquet, or make a text of it." if form == "csv" else "Make a text of it."
            return Refused("query.type", text, other)
    return None


def _writer(into: Any, schema: Any, form: Form) -> Any:
    """What writes batches in some form. Only whoever writes needs Arrow, and its types are of no use to a checker."""
    csv: Any
    parquet: Any
    csv, parquet = (import_module(name) for name in ("pyarrow.csv", "pyarrow.parquet"))
    return (parquet.ParquetWriter if form == "parquet" else csv.CSVWriter)(into, schema)


def _check_flat(target: Target, names: Sequence[str]) -> None:
    """Refuse to overwrite folders: whoever wrote them may have kept something else there."""
    for name in names:
        if name.endswith("/"):
            text = f"there is a folder {name} in {target.folder}, and only files are overwritten"
            raise Refused("query.target", text, "Remove it, or write elsewhere.", path="mode")


def aside(target: Target, run: str, task: int, fence: int) -> str:
    """Where an attempt of a task puts its file."""
    return f"{target.folder}/{_aside_folder(run)}/{task:05d}-{fence}.{target.form}"


def published_name(target: Target, run: str, task: int) -> str:
    """What the file of a task is called in the end."""
    return f"{target.folder}/part-{task:05d}-{_short(run)}.{target.form}"


def publish(target: Target, run: str, files: Sequence[tuple[int, str]]) -> None:
    """Make files seen, by the number of their task. Raises Unpublished if some are gone; then nothing was seen."""
    folder = open_folder(target.folder)
    names = {_last(file): _last(published_name(target, run, task)) for task, file in files}
    there, put_aside = _published(folder), folder.names(_aside_folder(run))
    lost = {task: file for task, file in files if _last(file) not in put_aside and names[_last(file)] not in there}
    if lost:
        raise Unpublished(tuple(lost), next(iter(lost.values())))
    others = [name for name in there if name not in names.values()]
    if target.mode == "error" and others:
        text = f"there is something in {target.folder} since the query began: {others[0]}"
        raise Refused("query.target", text, "Write elsewhere, or say what becomes of it.", path="mode")
    if target.mode == "overwrite":
        _check_flat(target, others)
    # What is there and not put aside was published by one who was killed in the middle of this.
    folder.reveal([(f"{_aside_folder(run)}/{file}", name) for file, name in names.items() if file in put_aside])
    if target.mode == "overwrite":
        folder.remove(others)
    folder.settle()
    discard(target, run)


def discard(target: Target, run: str) -> None:
    """Remove what was put aside."""
    open_folder(target.folder).remove_all(_aside_folder(run))


def retract(target: Target, run: str, tasks: int) -> None:
    """Take back what was published of a query that was ended meanwhile, unless all of it was."""
    folder = open_folder(target.folder)
    names = [_last(published_name(target, run, task)) for task in range(tasks)]
    seen = [name for name in folder.names() if name in names]
    if len(seen) < tasks:
        folder.remove(seen)


class FileWriter:
    """Writes batches to one file, at a path or a URL; it is there, and stays, when this is closed."""

    def __init__(self, path: str, schema: Any, form: Form) -> None:
        self._pa: Any = import_module("pyarrow")
        plain: Any = import_module("rota.wire.plain")
        self.rows = 0
        self._form: Form = form
        self._folder = open_folder(path.rpartition("/")[0])
        self._name = _last(path)
        self._schema = plain.plain_schema(schema)
        self._into = self._folder.open(self._name)
        try:
            self._file: Any = _writer(self._into, self._schema, form)
        except (self._pa.ArrowInvalid, self._pa.ArrowNotImplementedError):
            self._into.give_up()
            self._into.close()
            check_columns(form, self._schema, path="")
            raise

    def write(self, batch: Any) -> None:
        """Add rows, or refuse values that the form cannot hold."""
        columns = [column.cast(field.type) for column, field in zip(batch.columns, self._schema, strict=True)]
        rows = self._pa.RecordBatch.from_arrays(columns, schema=self._schema)
        try:
            self._file.write_batch(rows)
        except (self._pa.ArrowInvalid, self._pa.ArrowNotImplementedError) as error:
            text = f"there are rows that {_CALLED[self._form]} cannot hold: {error}"
            raise _unwritten(rows, self._form) or Refused("query.type", text, "Make texts of them.") from error
        self.rows += batch.num_rows

    def close(self) -> int:
        """Bring the file to its end; how many bytes it has."""
        self._file.close()
        self._into.close()
        return self._folder.size(self._name)

    def give_up(self) -> None:
        """Let go of a file that was not brought to its end."""
        self._into.give_up()
        with suppress(Exception):
            # Its last words go nowhere.
            self._file.close()
        self._into.close()


def _published(folder: Folder) -> list[str]:
    return [name for name in folder.names() if not name.startswith(("_", "."))]


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _aside_folder(run: str) -> str:
    return f"{ASIDE}{_short(run)}"


def _short(run: str) -> str:
    return sha256(run.encode("utf-8", "surrogatepass")).hexdigest()[:16]
