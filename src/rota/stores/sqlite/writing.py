"""What a commit does to the tables.

Rows go in by the dozen: a statement for many rows leaves and takes the interpreter's lock once, and a writer thread
that asks for the lock at every row crawls beside a busy loop (decision 0007). Statements of a few fixed sizes are
used, so that each is prepared once.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any

from rota.core.ids import Millis, RunId, RunKey
from rota.core.records import RECORD_NAMES, Batch, Growth, Key, Run, Story, Task
from rota.ports import StoreRefused
from rota.stores.sql.columns import ALONE, AUDIT, GROWTH, RUN, TASK, TOLD_INSIDE_MAX, Row, Value, pack_story
from rota.stores.sqlite.connection import Connection

# Rows per statement, largest first; SQLite takes 32,766 values in one.
_SIZES = (32, 8, 1)

_NUMBER = "SELECT run_no FROM run WHERE tenant = ? AND id = ?"
_TELL = "((SELECT run_no FROM run WHERE tenant = ? AND id = ? AND created_at = ?), ?, ?, ?)"
_ARCHIVE = (
    f"INSERT INTO history_run (run_no, {RUN.listed}, told, moved) SELECT run_no, {RUN.listed}, told,"
    " NOT EXISTS (SELECT 1 FROM task WHERE task.run_no = run.run_no)"
    " AND NOT EXISTS (SELECT 1 FROM growth WHERE growth.run_no = run.run_no)"
    " FROM run WHERE tenant = ? AND id = ?"
)
_FORGET_RUN = "DELETE FROM run WHERE tenant = ? AND id = ?"
# Not what housekeeping has begun to remove, and not in the way of a later run of that id.
_REVIVED = (
    "SELECT run_no, name, graph FROM history_run WHERE tenant = ?1 AND id = ?2 AND created_at = ?3 AND NOT going"
    " AND NOT EXISTS (SELECT 1 FROM run WHERE tenant = ?1 AND id = ?2)"
)
# What the archiver has not moved yet is among the living still, under the same number.
_REVIVE = (
    f"INSERT INTO run (run_no, {RUN.listed}, told) SELECT run_no, {RUN.listed}, told FROM history_run"
    " WHERE run_no = ?1",
    f"INSERT INTO task ({TASK.listed}) SELECT {TASK.listed} FROM history_task WHERE run_no = ?1",
    f"INSERT INTO growth ({GROWTH.listed}) SELECT {GROWTH.listed} FROM history_growth WHERE run_no = ?1",
    *(f"DELETE FROM {table} WHERE run_no = ?1" for table in ("history_task", "history_growth", "history_run")),
)
# A definition that was kept for runs which live again, and which they have brought back.
_TAKE_GRAPH = (
    "DELETE FROM history_graph WHERE tenant = ?1 AND digest = ?3"
    " AND EXISTS (SELECT 1 FROM graph WHERE tenant = ?1 AND digest = ?3)"
    " AND NOT EXISTS (SELECT 1 FROM history_run WHERE tenant = ?1 AND name = ?2 AND graph = ?3)"
)
_KEEP_GRAPH = (
    "INSERT OR REPLACE INTO history_graph SELECT * FROM graph WHERE tenant = ?1 AND digest = ?2 AND EXISTS"
    " (SELECT 1 FROM history_run WHERE tenant = ?1 AND name = json_extract(graph.graph, '$.name') AND graph = ?2)"
)


class Inserts:
    """The statements that put many rows of one table."""

    def __init__(self, head: str, row: str, tail: str = "") -> None:
        self._texts = [(size, f"{head} {', '.join([row] * size)}{tail}") for size in _SIZES]

    def run(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Put these rows, in order."""
        at = 0
        for size, text in self._texts:
            while len(rows) - at >= size:
                bindings: list[Value] = list(chain.from_iterable(islice(rows, at, at + size)))
                connection.execute(text, bindings)
                at += size


def _marks(columns: Iterable[object]) -> str:
    return f"({', '.join('?' for _ in columns)})"


_OWN_KEY = ("tenant", "id")
_PUT_RUNS = Inserts(
    f"INSERT INTO run ({RUN.listed}, told) VALUES",
    _marks((*RUN.columns, "told")),
    " ON CONFLICT (tenant, id) DO UPDATE SET told = CAST(run.told || excluded.told AS BLOB), "
    + ", ".join(f"{name} = excluded.{name}" for name in RUN.columns if name not in _OWN_KEY),
)
_PUT_TASKS = Inserts(f"INSERT OR REPLACE INTO task ({TASK.listed}) VALUES", _marks(TASK.columns))
_PUT_GROWTHS = Inserts(f"INSERT OR REPLACE INTO growth ({GROWTH.listed}) VALUES", _marks(GROWTH.columns))
_PUT_STORIES = Inserts("INSERT INTO story VALUES", _TELL)
_PUT_AUDITS = Inserts(f"INSERT INTO audit ({AUDIT.listed}) VALUES", _marks(AUDIT.columns))
_PUT_ALONE = {
    cls: Inserts(f"INSERT OR REPLACE INTO {name} ({table.listed}) VALUES", _marks(table.columns))
    for cls, (name, table, _) in ALONE.items()
}
_DROPS = {
    RECORD_NAMES[cls]: f"DELETE FROM {name} WHERE {' AND '.join(f'{column} = ?' for column in key)}"
    for cls, (name, _, key) in ALONE.items()
}
_DROP_PARTS = {
    "Task": "DELETE FROM task WHERE run_no = ? AND idx = ?",
    "Growth": "DELETE FROM growth WHERE run_no = ? AND number = ?",
}


class Plan:
    """A batch as rows, made before the transaction begins, so that nobody waits meanwhile."""

    __slots__ = ("alone", "archives", "audits", "drops", "growths", "revives", "runs", "stories", "tasks")

    def __init__(self, batch: Batch) -> None:
        self.runs: list[Row] = []
        self.tasks: list[Task] = []
        self.growths: list[Growth] = []
        self.alone: dict[type, list[Row]] = {}
        self.drops: list[Key] = batch.drops
        self.archives: list[RunKey] = batch.archives
        self.revives: list[tuple[str, RunId, Millis]] = batch.revives
        self.stories: list[Row] = []
        self.audits: list[Row] = [AUDIT.write(audit) for audit in batch.audits]
        runs: list[Run] = []
        for record in batch.puts:
            cls = type(record)
            if cls is Task:
                self.tasks.append(record)  # pyright: ignore[reportArgumentType] - its class was just compared
            elif cls is Run:
                runs.append(record)  # pyright: ignore[reportArgumentType] - its class was just compared
            elif cls is Growth:
                self.growths.append(record)  # pyright: ignore[reportArgumentType] - its class was just compared
            elif cls in ALONE:
                self.alone.setdefault(cls, []).append(ALONE[cls][1].write(record))
            else:
                raise StoreRefused(f"{cls.__name__} is no type of record")
        told = self._tell(batch.stories, runs)
        write = RUN.write
        self.runs = [write(run, told.get((run.tenant, run.id), b"")) for run in runs]

    def _tell(self, stories: list[Story], runs: list[Run]) -> dict[RunKey, bytes]:
        """Stories that go into their runs' rows; the others become rows of their own."""
        inside = {(run.tenant, run.id): run.created_at for run in runs if run.solo is not None}
        told: dict[RunKey, bytes] = {}
        for story in stories:
            key = (story.tenant, story.run)
            if inside.get(key) == story.created_at and 0 <= story.number < TOLD_INSIDE_MAX:
                told[key] = told.get(key, b"") + pack_story(story)
            else:
                self.stories.append((*key, story.created_at, story.number, story.at, story.changes))
        return told


class Writer:
    """Carries out plans inside a transaction. Remembers the numbers of runs that have rows of their own for tasks."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._numbers: dict[RunKey, int] = {}

    def forget(self) -> None:
        """Another process may have written since, or a transaction was undone."""
        self._numbers.clear()

    def write(self, plan: Plan) -> None:
        """What leaves history, then puts, drops, stories, archives: what is archived is as it was put, and told.

        Definitions are dropped last: a run that goes to history with this very commit needs its own there.
        """
        connection = self._connection
        revived = [graph for key in plan.revives for graph in self._revive(*key)]
        _PUT_RUNS.run(connection, plan.runs)
        if plan.tasks:
            _PUT_TASKS.run(connection, self._parts(plan.tasks, TASK.write))
        if plan.growths:
            _PUT_GROWTHS.run(connection, self._parts(plan.growths, GROWTH.write))
        for cls, rows in plan.alone.items():
            _PUT_ALONE[cls].run(connection, rows)
        graphs = [key[1:] for key in plan.drops if key[0] == "GraphRecord"]
        if plan.drops:
            self._drop(plan.drops)
        _PUT_STORIES.run(connection, plan.stories)
        _PUT_AUDITS.run(connection, plan.audits)
        for key in plan.archives:
            self._numbers.pop(key, None)
        if plan.archives:
            connection.executemany(_ARCHIVE, dict.fromkeys(plan.archives))
            connection.executemany(_FORGET_RUN, plan.archives)
        connection.executemany(_TAKE_GRAPH, revived)
        if graphs:
            connection.executemany(_KEEP_GRAPH, graphs)
            connection.executemany(_DROPS["GraphRecord"], graphs)

    def _revive(self, tenant: str, run: RunId, created_at: Millis) -> list[Row]:
        """Take a run out of history, under the number it always had; what it was made of, or nothing."""
        found = list(self._connection.execute(_REVIVED, (tenant, run, created_at)))
        for number, _, _ in found:
            for text in _REVIVE:
                self._connection.execute(text, (number,))
        return [(tenant, name, graph) for _, name, graph in found]

    def _parts(self, parts: Sequence[Any], write: Callable[..., Row]) -> list[Row]:
        rows: list[Row] = []
        tenant = run = ""
        number = 0
        for part in parts:
            if part.run != run or part.tenant != tenant or not number:
                tenant, run = part.tenant, part.run
                number = self._number((tenant, run))
                if not number:
                    raise StoreRefused(f"a part of run {run!r} of {tenant!r}, which is not there")
            rows.append(write(part, number))
        return rows

    def _number(self, key: RunKey) -> int:
        number = self._numbers.get(key, 0)
        if not number:
            for (number,) in self._connection.execute(_NUMBER, key):
                self._numbers[key] = number
        return number

    def _drop(self, drops: Sequence[Key]) -> None:
        """Parts of runs first: they are found through their run, which may be dropped with them."""
        runs: list[RunKey] = []
        for key in drops:
            table = str(key[0])
            if table in _DROP_PARTS:
                number = self._number((str(key[1]), RunId(str(key[2]))))
                self._connection.execute(_DROP_PARTS[table], (number, key[3]))
            elif table == "Run":
                runs.append((str(key[1]), RunId(str(key[2]))))
            elif table == "GraphRecord":
                continue
            elif table in _DROPS:
                self._connection.execute(_DROPS[table], key[1:])
            else:
                raise StoreRefused(f"{table} is no type of record")
        for key in runs:
            self._drop_run(key)

    def _drop_run(self, key: RunKey) -> None:
        number = self._number(key)
        self._numbers.pop(key, None)
        for table in ("task", "growth", "story", "run"):
            self._connection.execute(f"DELETE FROM {table} WHERE run_no = ?", (number,))
