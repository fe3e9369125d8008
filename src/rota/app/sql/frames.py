"""Frames: queries that are put together step by step, and run when their answer is asked for."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import datafusion as df
import pyarrow as pa
from msgspec import structs

from rota.app.sql.handles import QueryHandle, polars_frame
from rota.kinds.query.plans import LogicalPlan, logical_plan
from rota.wire.targets import Form, Mode, Target, check_columns, check_target

if TYPE_CHECKING:
    from rota.app.sql.session import Session

Expr = df.Expr | str
Explained = Literal["logical", "physical", "stages"]


class DataFrame:
    """What a query gives. Nothing is computed until an answer is asked for, and then afresh each time."""

    def __init__(self, session: "Session", frame: df.DataFrame, sql: str = "", *, makes_rows: bool = False) -> None:
        self._session = session
        # Whether its statement has made a table of the session from a query.
        self._makes_rows = makes_rows
        self._sql = sql
        # The engine's own frame, for what there is no method for here; `Session.frame` takes it back.
        self.inner = frame

    @property
    def schema(self) -> pa.Schema:
        """Names and types of its columns."""
        return self.plan().schema

    @property
    def columns(self) -> list[str]:
        """Names of its columns."""
        return self.schema.names

    # Steps.

    def select(self, *columns: Expr) -> "DataFrame":
        """These columns or expressions."""
        return self._with(lambda frame: frame.select(*columns))

    def filter(self, *conditions: Expr) -> "DataFrame":
        """The rows for which all of these hold."""
        return self._with(lambda frame: frame.filter(*conditions))

    def with_column(self, name: str, value: Expr) -> "DataFrame":
        """One more column, or another in place of one."""
        return self._with(lambda frame: frame.with_column(name, value))

    def rename(self, old: str, new: str) -> "DataFrame":
        """A column under another name."""
        return self._with(lambda frame: frame.with_column_renamed(old, new))

    def drop(self, *columns: str) -> "DataFrame":
        """All but these columns."""
        return self._with(lambda frame: frame.drop(*columns))

    def aggregate(self, by: Sequence[Expr] | Expr, aggregates: Sequence[df.Expr] | df.Expr) -> "DataFrame":
        """One row for each group."""
        keys = [by] if isinstance(by, df.Expr | str) else list(by)
        wanted = [aggregates] if isinstance(aggregates, df.Expr) else list(aggregates)
        return self._with(lambda frame: frame.aggregate(keys, wanted))

    def join(self, other: "DataFrame", on: str | Sequence[str], how: str = "inner") -> "DataFrame":
        """Rows of both that have the same values in these columns."""
        return self._with(lambda frame: frame.join(other.inner, on=on, how=how))  # pyright: ignore[reportCallIssue, reportArgumentType] - `how` is one of several texts

    def sort(self, *by: Expr) -> "DataFrame":
        """In this order."""
        return self._with(lambda frame: frame.sort(*by))

    def limit(self, count: int, offset: int = 0) -> "DataFrame":
        """At most so many rows."""
        return self._with(lambda frame: frame.limit(count, offset))

    def distinct(self) -> "DataFrame":
        """Each row once."""
        return self._with(lambda frame: frame.distinct())

    def union(self, other: "DataFrame", *, distinct: bool = False) -> "DataFrame":
        """The rows of both."""
        return self._with(lambda frame: frame.union(other.inner, distinct))

    def intersect(self, other: "DataFrame") -> "DataFrame":
        """The rows that are in both."""
        return self._with(lambda frame: frame.intersect(other.inner))

    def except_all(self, other: "DataFrame") -> "DataFrame":
        """The rows that are not in the other."""
        return self._with(lambda frame: frame.except_all(other.inner))

    def _with(self, step: Any) -> "DataFrame":
        with self._session.engine.complaining():
            return DataFrame(self._session, step(self.inner))

    # Answers.

    def plan(self) -> LogicalPlan:
        """What is asked."""
        with self._session.engine.complaining(self._sql):
            asked = logical_plan(self._session.engine, self.inner)
        return structs.replace(asked, makes_rows=True) if self._makes_rows else asked

    def submit(self) -> QueryHandle:
        """Begin to compute it."""
        return self._session.runtime.accept_plan(self._session.engine, self.plan(), self._sql)

    def stream(self) -> pa.RecordBatchReader:
        """The answer as a stream."""
        return self._session.runtime.read(self._session.engine, self.plan(), self._sql)

    def to_arrow(self) -> pa.Table:
        """The answer as a table."""
        return self.stream().read_all()

    def to_pandas(self) -> Any:
        """The answer as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The answer as a Polars frame."""
        return polars_frame(self.to_arrow())

    def to_pylist(self) -> list[dict[str, Any]]:
        """The answer as a list of dictionaries."""
        return self.to_arrow().to_pylist()

    def count(self) -> int:
        """How many rows there are."""
        return sum(batch.num_rows for batch in self.stream())

    def write_parquet(self, folder: str | os.PathLike[str], *, mode: Mode = "error") -> int:
        """Write the answer as Parquet into a folder; how many rows. Nothing is seen before all of it is written.

        What is in the folder already is an error, stays (`append`), or goes when the new files are seen (`overwrite`).
        """
        return self._write(folder, "parquet", mode)

    def write_csv(self, folder: str | os.PathLike[str], *, mode: Mode = "error") -> int:
        """Likewise as CSV."""
        return self._write(folder, "csv", mode)

    def _write(self, folder: str | os.PathLike[str], form: Form, mode: Mode) -> int:
        place = os.fspath(folder)
        target = Target(place.rstrip("/") if "://" in place else os.path.abspath(place), form, mode)  # noqa: PTH100 - a URL is not a path
        check_target(target)
        check_columns(target.form, self.schema)
        return self._session.runtime.write(self._session.engine, self.plan(), self._sql, target)

    def explain(self, what: Explained = "stages") -> str:
        """How it would be computed: the logical plan, the engine's physical plan, or the stages of tasks."""
        asked = self.plan()
        if what == "logical":
            return asked.show()
        engine = self._session.engine
        planned = self._session.runtime.plan(engine, asked)
        if what == "stages" and planned is not None:
            return planned.show()
        if planned is not None:
            return planned.text
        with engine.complaining(self._sql):
            return engine.frame_of(asked.plan).execution_plan().display_indent()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The answer for whoever speaks Arrow's C interface, such as pandas, Polars or DuckDB."""
        return self.stream().__arrow_c_stream__(requested_schema)
