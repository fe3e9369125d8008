"""Queries that were asked for: how they stand, and their answers, which can be read more than once."""

import asyncio
import shutil
import tempfile
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
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
        import polars

        return polars.from_arrow(self.to_arrow(timeout_s))

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
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema) if batch.num_columns else batch


class LocalQuery(QueryHandle):
    """A query that runs in a thread of this process; its answer is in a file until the handle is dropped."""

    def __init__(self, id: str, frame: "df.DataFrame", sql: str) -> None:
        self.id = id
        self.schema = frame.schema()
        self._sql = sql
        self._frame = frame
        self._state = RunState.RUNNING
        self._error: Refused | None = None
        self._stop = threading.Event()
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
        """It stops at its next batch; nothing in this process can stop the engine before that."""
        self._stop.set()

    def _run(self) -> None:
        try:
            with pa.OSFile(str(self._file), "wb") as file, pa.ipc.new_file(file, self.schema) as writer:
                for batch in batches_of(self._frame, self.schema):
                    if self._stop.is_set():
                        raise Refused("run.ended", f"query {self.id} was cancelled")
                    writer.write_batch(batch)
            self._state = RunState.SUCCESS
        except Refused as refused:
            self._state, self._error = RunState.CANCELLED, refused
        except BaseException as error:
            # A panic of the engine is not an Exception.
            self._state, self._error = RunState.FAILED, refusal(error, self._sql)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(self._file)) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
