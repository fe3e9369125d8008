"""The SQL engine of a session: parses, optimises and plans statements over the session's tables.

It is a DataFusion context behind a door: what comes out of it is frames and plans, and what it complains about is a
refusal with a code (`complaints`).
"""

import os
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import datafusion as df
import msgspec
import pyarrow as pa
from datafusion.expr import CreateMemoryTable, EmptyRelation
from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.catalogs import Bridge, Catalog, catalog_trouble, check_catalog_name
from rota.kinds.query.complaints import refusal
from rota.kinds.query.parameters import Given, is_create, is_of_prepared, numbered, values_of
from rota.kinds.query.sources import TableSource, source_of
from rota.wire.capabilities import Source
from rota.wire.stores import knock, named_stores, register, store_of

PathLike = str | os.PathLike[str]

_PARTITIONS = "datafusion.execution.target_partitions"
_ON_TRIAL = "rota_on_trial"

# The engine looks at a statement when it is prepared, so none that writes can be executed.
_PREPARES_ONLY = df.SQLOptions().with_allow_ddl(False).with_allow_dml(False)
_READS_ONLY = df.SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)

# The parts of a table's name, as the engine shows a node that makes one.
_NAME_PARTS = re.compile(r'(?:catalog|schema|table): ("(?:[^"\\]|\\.)*")')


class CreatedTable(Struct, frozen=True):
    """What a CREATE TABLE … AS makes: its query, and the node as the engine shows it."""

    query: df.LogicalPlan
    shown: str
    may_exist: bool
    replaces: bool

    def quoted_name(self) -> str:
        """The name in SQL."""
        parts = [msgspec.json.decode(part) for part in _NAME_PARTS.findall(self.shown)]
        return ".".join('"' + part.replace('"', '""') + '"' for part in parts)

    def has_constraints(self) -> bool:
        """Whether it says more of the table than its rows."""
        return "constraints=" in _NAME_PARTS.sub("", self.shown)


class SqlEngine:
    """One context, with the tables and functions that were registered."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        files: bool = False,
        reads_only: bool = False,
        memory_bytes: int = 0,
    ) -> None:
        """`settings` are DataFusion's, by their full names. `files`: statements may name files in place of tables.

        `reads_only`: statements may not define or write anything, as those of people whom this process does not know.
        `memory_bytes`: what all queries of this engine may hold together; 0 is no limit.
        """
        config = df.SessionConfig().with_information_schema(True)
        for name, value in (settings or {}).items():
            config = config.set(name, value)
        runtime = df.RuntimeEnvBuilder().with_disk_manager_os()
        if memory_bytes:
            runtime = runtime.with_fair_spill_pool(memory_bytes)
        self.context = df.SessionContext(config, runtime)
        # A session would not see files that came or went after it first listed a folder.
        self.context.sql("SET datafusion.runtime.list_files_cache_limit = '0K'")
        # With how many the next plans are made; 0 if nobody has said.
        self.partitions = 0
        self._bridges: dict[str, Bridge] = {}
        self._stores: dict[str, None] = {}
        self._options = _READS_ONLY if reads_only else df.SQLOptions()
        self._may_name_files = files or not reads_only
        if files:
            self.context = self.context.enable_url_table()

    # Statements.

    def sql(self, text: str, params: Given = (), *, reads_only: bool = False) -> df.DataFrame:
        """What a statement gives, planned and not run. A statement that defines something has done so.

        `reads_only`: refuse such statements.
        """
        if not text.strip():
            raise Refused("query.syntax", "the statement is empty", "Give one.", path="sql")
        named = numbered(text)
        values = values_of(named, params)
        for bridge in self._bridges.values():
            bridge.begin()
        if self._may_name_files:
            for store in named_stores(text):
                with suppress(Refused):
                    # It may be a text like any other; the engine says if it is missing.
                    self._reach(store)
        with self.complaining(text):
            options = _READS_ONLY if reads_only else self._options
            if options is _READS_ONLY and is_of_prepared(named):
                options = _PREPARES_ONLY
            return self.context.sql_with_options(named, options, values or None)

    def created_table(self, text: str, params: Given = ()) -> "CreatedTable | None":
        """The table of a CREATE TABLE … AS, whose query the engine runs when it is given the statement; else None."""
        if not is_create(text):
            return None
        named = numbered(text)
        with self.complaining(text):
            # What is explained is planned and not run.
            explained = self.context.sql_with_options(
                f"EXPLAIN {named}", self._options, values_of(named, params) or None
            )
            (created,) = explained.logical_plan().inputs()
            is_empty = [isinstance(each.to_variant(), EmptyRelation) for each in created.inputs()] == [True]
            found = created.to_variant()
            if not isinstance(found, CreateMemoryTable) or is_empty:
                return None
            (query,) = created.inputs()
            return CreatedTable(query, created.display(), found.if_not_exists(), found.or_replace())

    def create_table(self, created: "CreatedTable", rows: pa.Table) -> df.DataFrame:
        """Carry out a CREATE TABLE … AS with the answer of its query."""
        self.register_arrow(_ON_TRIAL, rows)
        try:
            replace = "OR REPLACE " if created.replaces else ""
            unless = "IF NOT EXISTS " if created.may_exist else ""
            with self.complaining():
                return self.context.sql(
                    f"CREATE {replace}TABLE {unless}{created.quoted_name()} AS SELECT * FROM {_ON_TRIAL}"  # noqa: S608 - the name is in quotes
                )
        finally:
            self.context.deregister_table(_ON_TRIAL)

    def frame_of(self, plan: df.LogicalPlan) -> df.DataFrame:
        """The frame of a logical plan, as the context is set now."""
        with self.complaining():
            return self.context.create_dataframe_from_logical_plan(plan)

    def set_partitions(self, count: int) -> None:
        """With how many partitions the next plans are made."""
        if count != self.partitions:
            self.context.sql(f"SET {_PARTITIONS} = {int(count)}")
            self.partitions = count

    @contextmanager
    def complaining(self, sql: str = "") -> Generator[None]:
        """Turn what the engine complains about into refusals."""
        try:
            yield
        except (Refused, KeyboardInterrupt, GeneratorExit, SystemExit):
            raise
        except BaseException as error:
            # A panic of the engine is not an Exception.
            for name, bridge in self._bridges.items():
                if bridge.trouble is not None:
                    raise catalog_trouble(name, bridge.trouble) from error
            raise refusal(error, sql, self.tables) from error

    @contextmanager
    def reading(self, path: PathLike) -> Generator[None]:
        """The same for what is read from files: which ones the engine does not always say, least of all in a panic."""
        place = os.fspath(path)
        try:
            with self.complaining():
                yield
        except Refused as refused:
            # A bucket is named already, and a URL may have a password in it.
            is_said = "://" in place or place in refused.reason
            if refused.code not in ("query.source", "query.failed") or is_said:
                raise
            hint = refused.hint or "See that it is whole, and of the kind that it was registered as."
            raise Refused("query.source", f"{place} cannot be read: {refused.reason}", hint, path="path") from refused

    # Tables.

    def tables(self) -> tuple[str, ...]:
        """The names of all tables, in full."""
        found: list[str] = []
        for catalog_name in sorted(self.context.catalog_names()):
            catalog = self.context.catalog(catalog_name)
            for schema_name in sorted(catalog.schema_names()):
                if schema_name == "information_schema":
                    continue
                schema = catalog.schema(schema_name)
                found += (f"{catalog_name}.{schema_name}.{name}" for name in sorted(schema.table_names()))
        return tuple(found)

    def table(self, name: str) -> df.DataFrame:
        """A table by its name."""
        with self.complaining():
            if not self.context.table_exist(name):
                raise ValueError(f"table '{name}' not found")
            return self.context.table(name)

    def source(self, name: str) -> TableSource:
        """What a table is made of, and what can be counted on when it is read."""
        frame = self.table(name)
        with self.complaining():
            catalog = self._bridges.get(name.partition(".")[0])
            return source_of(name, frame.execution_plan(), catalog.adds if catalog else Source(0))

    def drop(self, name: str) -> None:
        """Forget a table; its files stay where they are."""
        with self.complaining():
            if not self.context.table_exist(name):
                raise ValueError(f"table '{name}' not found")
            self.context.deregister_table(name)

    def register_parquet(self, name: str, path: PathLike, **options: Any) -> None:
        """A table that is a Parquet file, or a folder of them, here or at a URL."""
        with self.reading(path):
            self._register(name, lambda called: self.context.register_parquet(called, self.place(path), **options))

    def register_csv(self, name: str, path: PathLike, **options: Any) -> None:
        """A table that is a CSV file, or a folder of them."""
        with self.reading(path):
            self._register(name, lambda called: self.context.register_csv(called, self.place(path), **options))

    def register_json(self, name: str, path: PathLike, **options: Any) -> None:
        """A table that is a file of JSON lines, or a folder of them."""
        with self.reading(path):
            self._register(name, lambda called: self.context.register_json(called, self.place(path), **options))

    def register_batches(self, name: str, batches: Sequence[pa.RecordBatch], schema: pa.Schema | None = None) -> None:
        """A table that is in memory. Where a query runs elsewhere, it travels with it."""
        given = list(batches)
        if not given:
            if schema is None:
                raise Refused("field.value", f"table {name!r} has no batches and no schema", path="batches")
            given = [pa.RecordBatch.from_pylist([], schema=schema)]
        self._register(name, lambda called: self.context.register_record_batches(called, [given]))

    def register_path(self, name: str, path: PathLike) -> None:
        """A table that is a file or a folder of files, of what their names end with; Parquet unless that says more."""
        register = {"csv": self.register_csv, "json": self.register_json}.get(_kind_of(os.fspath(path)))
        (register or self.register_parquet)(name, path)

    def register_arrow(self, name: str, table: Any) -> None:
        """A table that is in memory: of Arrow, or of whoever speaks Arrow's C interface."""
        if isinstance(table, pa.RecordBatch):
            self.register_batches(name, [table])
        elif isinstance(table, pa.Table) or hasattr(table, "__arrow_c_stream__"):
            whole = table if isinstance(table, pa.Table) else pa.table(table)
            self.register_batches(name, whole.to_batches(), whole.schema)
        else:
            text = f"a {type(table).__name__} is no table"
            raise Refused("field.value", text, "Give an Arrow table, a frame, or batches.", path=name)

    def register_view(self, name: str, frame: df.DataFrame) -> None:
        """A table that is computed when it is asked for."""
        self._register(name, lambda called: self.context.register_view(called, frame))

    def register_table(self, name: str, table: Any) -> None:
        """A table of the engine's own, or one that can be asked for its provider."""
        self._register(name, lambda called: self.context.register_table(called, table))

    def _register(self, name: str, register: Callable[[str], None]) -> None:
        if not name or name != name.strip():
            raise Refused("field.value", f"a table cannot be called {name!r}", path="name")
        with self.complaining():
            if self.context.table_exist(name):
                # The one that is there stays until it is known that another can take its place.
                register(_ON_TRIAL)
                self.context.deregister_table(_ON_TRIAL)
                self.context.deregister_table(name)
            register(name)

    def place(self, path: PathLike) -> str:
        """Where files are. What is here must be there, and is named in full: others will look for it too."""
        text = os.fspath(path)
        if "://" in text:
            if store := store_of(text):
                text = _as_folder(text)
                self._reach(store, text)
            return text
        if any(mark in text for mark in "*?["):
            return str(Path(text).absolute())
        if not Path(text).exists():
            raise Refused("query.source", f"there is no file or folder {text}", "Check its name.", path="path")
        return str(Path(text).absolute()) + ("/" if Path(text).is_dir() else "")

    def _reach(self, store: str, url: str = "") -> None:
        """Have the engine reach a bucket, by the keys that this process has for it, after knocking at a URL in it."""
        if store and store not in self._stores:
            if url:
                knock(url)
            register(self.context, store)
            self._stores[store] = None

    # Catalogs and functions.

    def register_catalog(self, catalog: Catalog) -> None:
        """Make the tables of a catalog known as `catalog.namespace.table`."""
        check_catalog_name(catalog.name)
        bridge = Bridge(catalog, self.context)
        with self.complaining():
            self.context.register_catalog_provider(catalog.name, bridge)
        self._bridges[catalog.name] = bridge

    def register_udf(self, function: Any) -> None:
        """A function of rows, made with `datafusion.udf`."""
        self.context.register_udf(function)

    def register_udaf(self, function: Any) -> None:
        """A function of groups, made with `datafusion.udaf`."""
        self.context.register_udaf(function)


def _as_folder(url: str) -> str:
    """A URL whose last name has no ending is one of many objects."""
    last = url.rpartition("/")[2]
    return f"{url}/" if last and not any(mark in last for mark in ".*?[") else url


def _kind_of(path: str) -> str:
    """What a table is made of, by the name of its file, or of the first one in its folder."""
    names = [path]
    if "://" in path and _as_folder(path).endswith("/") and store_of(path):
        names = [knock(_as_folder(path))]
    elif Path(path).is_dir():
        names = sorted(each.name for each in Path(path).rglob("*") if each.is_file())[:1]
    ending = Path(names[0]).suffix if names else ""
    return {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}.get(ending, "parquet")
