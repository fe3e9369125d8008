"""A SQL session: tables, functions, and the queries over them."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

import datafusion as df
import pyarrow as pa

from rota.app.embedded import Rota
from rota.app.remote import RemoteOptions
from rota.app.sql.cluster import Choices
from rota.app.sql.frames import DataFrame
from rota.app.sql.handles import QueryHandle
from rota.app.sql.runtimes import ClusterRuntime, EmbeddedRuntime, ExecutionRuntime
from rota.app.working import ENGINE_SHARE
from rota.core.errors import Refused
from rota.kinds.query.catalogs import Catalog
from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.iceberg import open_iceberg
from rota.kinds.query.parameters import Given, names_in, numbered
from rota.kinds.query.sources import TableSource
from rota.wire.capabilities import Sink
from rota.wire.folders import open_folder
from rota.wire.queries import Compression
from rota.worker.properties import memory_kb

PathLike = str | os.PathLike[str]


class QueryOptions(TypedDict, total=False):
    """What may be chosen about queries on workers; `Choices` says what each means."""

    partitions: int
    strict: bool
    compression: Compression
    timeout_s: float
    queue: str
    parent: str


class Session:
    """SQL over tables. `Session()` runs queries in this process; `connect` and `on` have workers run them."""

    def __init__(
        self,
        *,
        files: bool = False,
        reads_only: bool = False,
        settings: Mapping[str, str] | None = None,
        runtime: ExecutionRuntime | None = None,
    ) -> None:
        """`files`: statements may name files in place of tables. `reads_only`: they may not define or write anything.

        `settings` are DataFusion's, by their full names.
        """
        self.runtime: ExecutionRuntime = runtime or EmbeddedRuntime()
        self.engine = SqlEngine(
            {**self.runtime.settings, **(settings or {})},
            files=files,
            reads_only=reads_only,
            # The engine does not count all that it holds.
            memory_bytes=int((memory_kb() << 10) * ENGINE_SHARE),
        )

    @classmethod
    def connect(
        cls, url: str | None = None, *, remote: RemoteOptions | None = None, **choices: Unpack[QueryOptions]
    ) -> Self:
        """Have queries run by the workers of a coordinator elsewhere; without a URL, where `ROTA_COORDINATOR` says.

        `remote` says how it is spoken to, such as `{"token": …}`. Files that are registered must be reachable for
        workers under the same names.
        """
        chosen = Choices(**choices)
        options = remote or {}
        ca = os.fspath(options.get("ca") or "")
        return cls(runtime=ClusterRuntime(Rota.connect(url, **options), chosen, owns=True, ca=ca))

    @classmethod
    def on(cls, rota: Rota, **choices: Unpack[QueryOptions]) -> Self:
        """Have queries run by the workers of a coordinator that is connected, or embedded here."""
        return cls(runtime=ClusterRuntime(rota, Choices(**choices), owns=False))

    # Queries.

    def sql(self, statement: str, params: Given = ()) -> DataFrame:
        """What a statement gives; `params` are for its `$1`, `?` (by place) or `$name` (by name)."""
        created = self.engine.created_table(statement, params)
        if created is None:
            return DataFrame(self, self.engine.sql(statement, params), statement)
        rows = self.runtime.rows_of_created(self.engine, created, statement)
        # Without rows the engine runs the query itself.
        frame = self.engine.sql(statement, params) if rows is None else self.engine.create_table(created, rows)
        return DataFrame(self, frame, statement, makes_rows=True)

    def submit(self, statement: str, params: Given = ()) -> QueryHandle:
        """Begin to run a statement."""
        return self.sql(statement, params).submit()

    async def sql_async(self, statement: str, params: Given = ()) -> pa.Table:
        """The answer to a statement, for programs that wait with `await`; who stops waiting ends it."""
        submitting = asyncio.ensure_future(asyncio.to_thread(self.submit, statement, params))
        try:
            handle = await asyncio.shield(submitting)
            handle.is_ours_alone = True
            return await handle.to_arrow_async()
        except asyncio.CancelledError:
            handle = await submitting
            await asyncio.to_thread(handle.cancel, "its program gave up")
            raise

    def prepare(self, statement: str) -> "Prepared":
        """A statement that is given its parameters later, as often as one likes."""
        return Prepared(self, numbered(statement))

    def table(self, name: str) -> DataFrame:
        """A table by its name."""
        return DataFrame(self, self.engine.table(name))

    dataframe = table

    def frame(self, frame: df.DataFrame) -> DataFrame:
        """A frame of the engine's own, made with `DataFrame.inner`."""
        return DataFrame(self, frame)

    # Tables.

    def tables(self) -> list[str]:
        """The names of all tables, in full."""
        return list(self.engine.tables())

    def source(self, name: str) -> TableSource:
        """What a table is made of, and what can be counted on when it is read (`rota.wire.capabilities.Source`)."""
        return self.engine.source(name)

    def sink(self, folder: PathLike) -> Sink:
        """What can be counted on when an answer is written to a folder or a URL."""
        return open_folder(os.fspath(folder)).capabilities

    def register_table(self, name: str, table: Any) -> None:
        """Make something known as a table: a frame, an Arrow table or batches, or what pandas and Polars have."""
        if isinstance(table, DataFrame):
            self.engine.register_view(name, table.inner)
        elif hasattr(table, "__datafusion_table_provider__"):
            self.engine.register_table(name, table)
        else:
            self.engine.register_arrow(name, table)

    def register_record_batches(self, name: str, batches: Sequence[pa.RecordBatch]) -> None:
        """A table that is in memory; it travels with the queries that read it."""
        self.engine.register_batches(name, batches)

    def register_parquet(self, name: str, path: PathLike, **options: Any) -> None:
        """A table that is a Parquet file, or a folder of them, here or at a URL."""
        self.engine.register_parquet(name, path, **options)

    def register_csv(self, name: str, path: PathLike, **options: Any) -> None:
        """A table that is a CSV file, or a folder of them."""
        self.engine.register_csv(name, path, **options)

    def register_json(self, name: str, path: PathLike, **options: Any) -> None:
        """A table that is a file of JSON lines, or a folder of them."""
        self.engine.register_json(name, path, **options)

    def register_path(self, name: str, path: PathLike) -> None:
        """A table that is a file or a folder of files, of what their names end with; Parquet unless that says more."""
        self.engine.register_path(name, path)

    def register_catalog(self, catalog: Catalog) -> None:
        """Make the tables of a catalog known as `catalog.namespace.table`."""
        self.engine.register_catalog(catalog)

    def register_iceberg(self, name: str, **properties: Any) -> None:
        """A catalog of Iceberg, by the properties that pyiceberg takes; each statement reads one snapshot of a table.

        Such as `register_iceberg("lake", type="sql", uri="sqlite:////data/lake.db", warehouse="file:///data/lake")`.
        """
        self.engine.register_catalog(open_iceberg(name, properties))

    def drop_table(self, name: str) -> None:
        """Forget a table; its files stay where they are."""
        self.engine.drop(name)

    def read_parquet(self, path: PathLike, **options: Any) -> DataFrame:
        """A Parquet file, or a folder of them."""
        return self._read(self.engine.context.read_parquet, path, options)

    def read_csv(self, path: PathLike, **options: Any) -> DataFrame:
        """A CSV file, or a folder of them."""
        return self._read(self.engine.context.read_csv, path, options)

    def read_json(self, path: PathLike, **options: Any) -> DataFrame:
        """A file of JSON lines, or a folder of them."""
        return self._read(self.engine.context.read_json, path, options)

    def _read(self, read: Callable[..., df.DataFrame], path: PathLike, options: dict[str, Any]) -> DataFrame:
        with self.engine.reading(path):
            return DataFrame(self, read(self.engine.place(path), **options))

    # Functions.

    def register_udf(
        self,
        function: Callable[..., pa.Array],
        inputs: Sequence[pa.DataType],
        output: pa.DataType,
        *,
        name: str = "",
        volatility: str = "immutable",
    ) -> None:
        """A function of Arrow arrays that gives an array of as many rows. On workers it is code that they run."""
        called = name or function.__name__
        self.engine.register_udf(df.udf(function, list(inputs), output, volatility, called))

    def register_udaf(
        self,
        accumulator: Callable[[], df.Accumulator],
        inputs: Sequence[pa.DataType],
        output: pa.DataType,
        state: Sequence[pa.DataType],
        *,
        name: str,
        volatility: str = "immutable",
    ) -> None:
        """A function of groups: `accumulator` makes a `datafusion.Accumulator` for each."""
        self.engine.register_udaf(df.udaf(accumulator, list(inputs), output, list(state), volatility, name))

    def close(self) -> None:
        """Let go of everything; a session with a coordinator elsewhere hangs up."""
        self.runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Prepared:
    """A statement with parameters, known to be well formed."""

    def __init__(self, session: Session, statement: str) -> None:
        self._session = session
        self.statement = statement
        self.parameters = names_in(statement)

    def bind(self, *values: Any, **named: Any) -> DataFrame:
        """The statement with these values, by place or by name."""
        if values and named:
            raise Refused("query.parameter", "values are given by place and by name", "Choose one.", path="params")
        return self._session.sql(self.statement, named or values)
