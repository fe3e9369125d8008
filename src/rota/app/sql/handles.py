"""Queries that were asked for: how they stand, and their answers, which can be read more than once."""

import asyncio
import shutil
import tempfile
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct

from rota.core.errors import Refused
from rota.core.states import RunState
from rota.kinds.query.complaints import refusal

if TYPE_CHECKING:
    import datafusion as df

CANCELLED = "cancelled on request"


class StageProgress(Struct, frozen=True):
    """How far one stage is."""

    id: str
    tasks: int
    running: int = 0
    done: int = 0


class Progress(Struct, frozen=True):
    """How far a query is, stage by stage."""

    stages: tuple[StageProgress, ...]

    @property
    def fraction(self) -> float:
        """From 0 to 1, by tasks."""
        tasks = sum(stage.tasks for stage in self.stages)
        return sum(stage.done for stage in self.stages) / tasks if tasks else 1.0


class QueryHandle(ABC):
    """One query. Its answer can be read again and again, as a stream or whole."""

    id: str
    schema: pa.Schema
    # Why it runs as one task although it might have been several; "" if nothing stands against that.
    unstaged: str = ""
    # Whether it is for nobody but whoever waits for it in this program.
    is_ours_alone: bool = False

    @abstractmethod
    def status(self) -> RunState:
        """How it stands."""

    @abstractmethod
    def progress(self) -> Progress:
        """How far it is."""

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for its end. Raises Refused if it failed, TimeoutError if it goes on."""

    @abstractmethod
    def cancel(self, reason: str = CANCELLED) -> None:
        """End it; what it has computed so far is never seen."""

    @abstractmethod
    def _batches(self) -> Iterator[pa.RecordBatch]:
        """The answer of a query that has succeeded."""

    def stream(self, timeout_s: float | None = None) -> pa.RecordBatchReader:
        """The answer as a stream, as soon as all of it is there."""
        self.wait(timeout_s)
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def to_arrow(self, timeout_s: float | None = None) -> pa.Table:
        """The answer as a table."""
        return self.stream(timeout_s).read_all()

    def to_pandas(self, timeout_s: float | None = None) -> Any:
        """The answer as a pandas frame."""
        return self.to_arrow(timeout_s).to_pandas()

    def to_polars(self, timeout_s: float | None = None) -> Any:
        """The answer as a Polars frame."""
        return polars_frame(self.to_arrow(timeout_s))

    # For programs that wait with `await`.

    async def wait_async(self, timeout_s: float | None = None) -> None:
        """Like `wait`."""
        await asyncio.to_thread(self.wait, timeout_s)

    async def to_arrow_async(self, timeout_s: float | None = None) -> pa.Table:
        """Like `to_arrow`."""
        return await asyncio.to_thread(self.to_arrow, timeout_s)

    async def stream_async(self, timeout_s: float | None = None) -> AsyncIterator[pa.RecordBatch]:
        """The batches of the answer."""
        reader = await asyncio.to_thread(self.stream, timeout_s)
        while (batch := await asyncio.to_thread(_next, reader)) is not None:
            yield batch


def _next(reader: pa.RecordBatchReader) -> pa.RecordBatch | None:
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None


def batches_of(frame: "df.DataFrame", schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """What a frame gives, computed while it is read: all partitions at once, since some of them wait for others."""
    for found in frame.execute_stream():
        yield named(found.to_pyarrow(), schema)


def named(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch under the names that were asked for. One without columns would forget how many rows it has."""
    if not batch.num_columns:
        return batch
    if batch.schema.types != schema.types:
        # Arrow would convert the values, and drop what the other type has no room for.
        text = f"the engine promised columns of {_types(schema)} and gave {_types(batch.schema)}"
        raise Refused("query.failed", text, "Cast the columns of the statement to the types that you want.", path="sql")
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _types(schema: pa.Schema) -> str:
    return ", ".join(map(str, schema.types))


class LocalQuery(QueryHandle):
    """A query that runs in a thread of this process; its answer is in a file until the handle is dropped."""

    def __init__(self, id: str, frame: "df.DataFrame", schema: pa.Schema, sql: str, timeout_s: float = 0) -> None:
        """`timeout_s`: how long it may take; 0 for no limit."""
        self.id = id
        self._timeout_s = timeout_s
        self.schema = schema
        self._sql = sql
        self._frame = frame
        self._state = RunState.RUNNING
        self._error: Refused | None = None
        self._stop = threading.Event()
        self._cancel: Callable[[], None] | None = None
        folder = tempfile.mkdtemp(prefix="rota-query-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._file = Path(folder) / "answer.arrow"
        self._thread = threading.Thread(target=self._run, name=f"rota-{id}", daemon=True)
        self._thread.start()

    def status(self) -> RunState:
        """How it stands."""
        return self._state

    def progress(self) -> Progress:
        """One task, whatever it does inside."""
        is_over = not self._thread.is_alive()
        return Progress((StageProgress("stage-1", 1, int(not is_over), int(is_over)),))

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for its end."""
        # The thread itself: one that lets go of the engine's things while the interpreter ends takes the process down.
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"query {self.id} goes on after {timeout_s} s")
        if self._error is not None:
            raise self._error

    def cancel(self, reason: str = CANCELLED) -> None:
        """Stop waiting for the engine, which ends as soon as it looks up from a batch."""
        self._stop.set()
        if (cancel := self._cancel) is not None:
            cancel()

    def _run(self) -> None:
        try:
            asyncio.run(self._drain())
            self._state = RunState.SUCCESS
        except TimeoutError:
            text = f"query {self.id} took longer than the {self._timeout_s:g} s that it may take"
            self._state = RunState.FAILED
            self._error = Refused("query.failed", text, "Give it more time with timeout_s.", path="sql")
        except asyncio.CancelledError:
            self._state = RunState.CANCELLED
            self._error = Refused("run.ended", f"query {self.id} was cancelled")
        except Refused as refused:
            self._state, self._error = RunState.FAILED, refused
        except BaseException as error:
            # A panic of the engine is not an Exception.
            self._state, self._error = RunState.FAILED, refusal(error, self._sql)

    async def _drain(self) -> None:
        """Write the answer to its file. One batch may take the engine as long as all of the query."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "it runs in a loop of its own"

        def cancel() -> None:
            with suppress(RuntimeError):
                # The loop is closed when the query has ended.
                loop.call_soon_threadsafe(task.cancel)

        self._cancel = cancel
        if self._stop.is_set():
            raise asyncio.CancelledError
        with pa.OSFile(str(self._file), "wb") as file, pa.ipc.new_stream(file, self.schema) as writer:
            async with asyncio.timeout(self._timeout_s or None):
                async for found in self._frame.execute_stream():
                    writer.write_batch(named(found.to_pyarrow(), self.schema))
                    # A batch that is there already is no reason to look at the time.
                    await asyncio.sleep(0)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(self._file)) as file, pa.ipc.open_stream(file) as reader:
            yield from reader


def polars_frame(table: pa.Table) -> Any:
    """A table as a Polars frame; refuses types that Polars does not have, such as intervals."""
    import polars

    try:
        return polars.from_arrow(table)
    except polars.exceptions.PolarsError as error:
        hint = "Cast that column to text, or use to_arrow()."
        raise Refused("query.type", f"Polars cannot hold the answer: {error}", hint, path="sql") from None
