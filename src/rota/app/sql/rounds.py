"""Statements of rounds on workers: each is a query like any other, cut into stages, and a run of its own.

Rows and state do not travel with plans, which pass through the coordinator: they are put down in the stream's folder,
where workers read them. The folder must be one that they share.
"""

import secrets
import shutil
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rota.app.sql.runtimes import EmbeddedRuntime, ExecutionRuntime
from rota.app.sql.session import Session
from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.plans import logical_plan
from rota.kinds.query.streams.asking import Asking

# Into how many files rows are put, and how many are worth one.
_FILES_MAX = 8
_ROWS_LEAST = 8_192
_NUMBERS = count()


def asking_of(session: Session, folder: Path) -> tuple[Asking, Asking]:
    """Where statements of views, over a session's tables, and those of operators are asked."""
    if isinstance(session.runtime, EmbeddedRuntime):
        return Asking(session.engine), Asking(SqlEngine(), is_own=True)
    own = SqlEngine(dict(session.runtime.settings))
    below = folder / "exchange" / secrets.token_hex(6)
    return FarAsking(session.engine, session.runtime, below), FarAsking(own, session.runtime, below)


def tidy(folder: Path, asking: Asking) -> None:
    """Remove what others have put down for workers who came before, and were killed or deposed."""
    own = asking.folder if isinstance(asking, FarAsking) else None
    if (folder / "exchange").is_dir():
        for path in (folder / "exchange").iterdir():
            if path != own:
                shutil.rmtree(path, ignore_errors=True)


class FarAsking(Asking):
    """Questions that workers answer."""

    def __init__(self, engine: SqlEngine, runtime: ExecutionRuntime, folder: Path) -> None:
        super().__init__(engine)
        self._runtime = runtime
        self.folder = folder
        self._folders: dict[str, Path] = {}

    def know(self, name: str, table: pa.Table) -> None:
        """Put rows down as files, as many as tasks could read side by side; those before them go."""
        if not table.num_rows:
            # Nothing to read travels lightly.
            super().know(name, table)
            self._remove(name)
            return
        below = self.folder / f"{next(_NUMBERS)}-{name}"
        below.mkdir(parents=True, exist_ok=True)
        size = max(_ROWS_LEAST, -(-table.num_rows // _FILES_MAX))
        for number, begin in enumerate(range(0, table.num_rows, size)):
            pq.write_table(table.slice(begin, size), below / f"{number}.parquet", compression="none")
        self.engine.register_parquet(name, below)
        self._remove(name)
        self._folders[name] = below

    def _remove(self, name: str) -> None:
        if name in self._folders:
            shutil.rmtree(self._folders.pop(name), ignore_errors=True)

    def _answer(self, sql: str) -> pa.Table:
        frame = self.engine.sql(sql)
        with self.engine.complaining(sql):
            asked = logical_plan(frame)
        return self._runtime.read(self.engine, asked, sql).read_all()
