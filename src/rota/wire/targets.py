"""Where queries write: files are put aside first, each under its attempt's own name, and published together.

What is published is what accepted reports have named. Publishing may be done twice, and goes on where another was
killed.
"""

import os
import shutil
from collections.abc import Sequence
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from rota.core.errors import Refused

Form = Literal["parquet", "csv"]
Mode = Literal["error", "append", "overwrite"]

# Whoever reads a folder of files passes over names that begin like this.
ASIDE = "_rota-"


class Target(Struct, frozen=True):
    """A folder that a query writes to, and what becomes of what is there: nothing may be, it stays, or it goes."""

    folder: str
    form: Form
    mode: Mode = "error"


def check_target(target: Target) -> None:
    """Refuse a folder that cannot be written to, or must not be."""
    if "://" in target.folder:
        text = f"queries write to folders, and {target.folder} is elsewhere"
        raise Refused("query.target", text, "Name a folder that all workers share.", path="path")
    if target.mode not in ("error", "append", "overwrite"):
        raise Refused(
            "field.value", f"there is no mode {target.mode!r}", "It is error, append or overwrite.", path="mode"
        )
    folder = Path(target.folder)
    if folder.exists() and not folder.is_dir():
        raise Refused("query.target", f"{folder} is a file", "Name a folder.", path="path")
    if target.mode == "error" and folder.is_dir() and (left := _published(folder)):
        text = f"there is something in {folder} already: {left[0].name}"
        raise Refused("query.target", text, "Say whether to append to it or to overwrite it.", path="mode")


def aside(target: Target, run: str, task: int, fence: int) -> str:
    """Where an attempt of a task puts its file."""
    return f"{target.folder}/{ASIDE}{_short(run)}/{task:05d}-{fence}.{target.form}"


def published_name(target: Target, run: str, task: int) -> str:
    """What the file of a task is called in the end."""
    return f"{target.folder}/part-{task:05d}-{_short(run)}.{target.form}"


def publish(target: Target, run: str, files: Sequence[tuple[int, str]]) -> None:
    """Make files seen, by the number of their task. Raises FileNotFoundError if one is gone; then nothing was seen."""
    names = [(file, published_name(target, run, task)) for task, file in files]
    lost = [file for file, name in names if not Path(file).exists() and not Path(name).exists()]
    if lost:
        raise FileNotFoundError(lost[0])
    folder = Path(target.folder)
    others = [path for path in _published(folder) if str(path) not in [name for _, name in names]]
    if target.mode == "error" and others:
        text = f"there is something in {folder} since the query began: {others[0].name}"
        raise Refused("query.target", text, "Write elsewhere, or say what becomes of it.", path="mode")
    for file, name in names:
        if Path(file).exists():
            Path(file).replace(name)
    if target.mode == "overwrite":
        for path in others:
            path.unlink(missing_ok=True)
    _sync(folder)
    discard(target, run)


def discard(target: Target, run: str) -> None:
    """Remove what was put aside."""
    shutil.rmtree(f"{target.folder}/{ASIDE}{_short(run)}", ignore_errors=True)


class FileWriter:
    """Writes batches to one file; it is on the disk when this is closed."""

    def __init__(self, path: str, schema: Any, form: Form) -> None:
        # Only whoever writes needs Arrow, and its types are of no use to a checker.
        pa: Any
        csv: Any
        parquet: Any
        pa, csv, parquet = (import_module(name) for name in ("pyarrow", "pyarrow.csv", "pyarrow.parquet"))
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self.rows = 0
        fields = [pa.field(field.name, _plain(pa, field.type), field.nullable) for field in schema]
        self._schema = pa.schema(fields)
        self._file: Any = (parquet.ParquetWriter if form == "parquet" else csv.CSVWriter)(path, self._schema)
        self._batch = pa.RecordBatch

    def write(self, batch: Any) -> None:
        """Add rows."""
        columns = [column.cast(field.type) for column, field in zip(batch.columns, self._schema, strict=True)]
        self._file.write_batch(self._batch.from_arrays(columns, schema=self._schema))
        self.rows += batch.num_rows

    def close(self) -> None:
        """Bring the file to its end."""
        self._file.close()
        _sync(Path(self._path))


def _plain(pa: Any, kind: Any) -> Any:
    """Views of texts are how the engine holds them, and not what others read everywhere."""
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


def _published(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith(("_", ".")))


def _short(run: str) -> str:
    return sha256(run.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
