"""Where a session's queries run: in this process, or as stages on workers.

Both take the same plans and give the same handles; a session does not know which one it has.
"""

import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import pyarrow as pa

from rota.app.embedded import Rota
from rota.app.sql.cluster import Choices, ClusterQuery, live_slots
from rota.app.sql.handles import LocalQuery, QueryHandle, batches_of
from rota.client.blocking import BlockingRun
from rota.core.errors import Refused, Unavailable
from rota.kinds.query.engine import CreatedTable, SqlEngine
from rota.kinds.query.graphs import bundle_of, graph_of
from rota.kinds.query.plans import LogicalPlan, PhysicalPlan, Wishes, frame_here, logical_plan, physical_plan
from rota.kinds.query.settings import PLANNING
from rota.kinds.query.stages import Stage
from rota.wire.targets import FileWriter, Target, aside, discard, publish, retract
from rota.worker.runners.queries.exchange import machine

# How long no answer is left with a worker, after one could not be fetched from there.
UNREACHED_S = 600.0


class ExecutionRuntime(Protocol):
    """Runs what an engine has planned."""

    # How an engine has to plan for it.
    settings: Mapping[str, str]

    def accept_plan(self, engine: SqlEngine, asked: LogicalPlan, sql: str) -> QueryHandle:
        """Begin to run a query."""
        ...

    def read(self, engine: SqlEngine, asked: LogicalPlan, sql: str) -> pa.RecordBatchReader:
        """The answer of a query that is asked for once."""
        ...

    def write(self, engine: SqlEngine, asked: LogicalPlan, sql: str, target: Target) -> int:
        """Write the answer of a query; how many rows it has. Nothing is seen before all of it is written."""
        ...

    def plan(self, engine: SqlEngine, asked: LogicalPlan) -> PhysicalPlan | None:
        """Into which stages it would be cut; None where it is not."""
        ...

    def rows_of_created(self, engine: SqlEngine, created: CreatedTable, sql: str) -> pa.Table | None:
        """What the query of a CREATE TABLE … AS gives; None to have the engine run it, without a limit of time.

        Refused if a query may not run in this process.
        """
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...


def new_id() -> str:
    """What a query in this process is called."""
    return f"query-{secrets.token_hex(6)}"


def _write_here(answer: pa.RecordBatchReader, target: Target) -> int:
    run = new_id()
    put_aside = aside(target, run, 0, 0)
    try:
        file = FileWriter(put_aside, answer.schema, target.form)
        try:
            for batch in answer:
                file.write(batch)
            file.close()
        except BaseException:
            file.give_up()
            raise
        publish(target, run, [(0, put_aside)])
    finally:
        discard(target, run)
    return file.rows


class EmbeddedRuntime:
    """Runs queries in this process, as the engine itself would."""

    settings: Mapping[str, str] = {}

    def accept_plan(self, engine: SqlEngine, asked: LogicalPlan, sql: str) -> QueryHandle:
        """Begin to run a query in a thread."""
        return LocalQuery(new_id(), frame_here(engine, asked), asked.schema, sql)

    def read(self, engine: SqlEngine, asked: LogicalPlan, sql: str) -> pa.RecordBatchReader:
        """The answer, computed while it is read."""
        frame = frame_here(engine, asked)

        def batches() -> Iterator[pa.RecordBatch]:
            with engine.complaining(sql):
                yield from batches_of(frame, asked.schema)

        return pa.RecordBatchReader.from_batches(asked.schema, batches())

    def write(self, engine: SqlEngine, asked: LogicalPlan, sql: str, target: Target) -> int:
        """Write the answer as one file."""
        return _write_here(self.read(engine, asked, sql), target)

    def plan(self, engine: SqlEngine, asked: LogicalPlan) -> PhysicalPlan | None:
        """It is not cut."""
        return None

    def rows_of_created(self, engine: SqlEngine, created: CreatedTable, sql: str) -> pa.Table | None:
        """All queries run in this process, and have no limit of time."""
        return None

    def close(self) -> None:
        """It holds nothing."""


class ClusterRuntime:
    """Runs queries as stages of tasks on the workers of a coordinator."""

    settings: Mapping[str, str] = dict(PLANNING)

    def __init__(self, rota: Rota, choices: Choices, *, owns: bool, may_run_here: bool = True, ca: str = "") -> None:
        """`owns`: whether the connection ends with the session. `ca`: the file of who vouches for workers.

        `may_run_here`: whether a query that cannot be sent anywhere runs in this process, or is refused.
        """
        self._rota = rota
        self._choices = choices
        self._owns = owns
        self._may_run_here = may_run_here
        self._ca = ca
        # While workers cannot be reached from here, answers are not left with them.
        self._fetches_from = 0.0
        # A query that is out of memory is planned again by whoever waits for it, maybe in another thread.
        self._planning = threading.Lock()

    def accept_plan(self, engine: SqlEngine, asked: LogicalPlan, sql: str) -> QueryHandle:
        """Cut a query and submit it. One that cannot be sent anywhere runs in this process, and says so."""
        handle = self._accept(engine, asked, sql, is_kept=self._may_run_here)
        if asked.makes_rows:
            handle.unstaged = "it makes a table in this process, and its query ran here"
        return handle

    def _accept(self, engine: SqlEngine, asked: LogicalPlan, sql: str, *, is_kept: bool) -> QueryHandle:
        """`is_kept`: the answer is kept like all results; otherwise a large one stays with the worker for a while."""
        plan = self.plan(engine, asked)
        if not plan.stages and not self._may_run_here:
            text = f"this query cannot be sent to workers: {plan.unstaged}"
            raise Refused("query.unstaged", text, "Run it in a program, with a session of its own.", path="sql")
        if not plan.stages:
            handle = LocalQuery(new_id(), engine.frame_of(asked.plan), asked.schema, sql, self._choices.timeout_s)
            handle.unstaged = f"{plan.unstaged}; it runs in this process"
            return handle
        is_near = not is_kept and time.monotonic() >= self._fetches_from
        return self._submit(engine, asked, plan, near=machine() if is_near else "")

    def _submit(
        self, engine: SqlEngine, asked: LogicalPlan, plan: PhysicalPlan, *, target: Target | None = None, near: str = ""
    ) -> ClusterQuery:
        wishes = self._wishes()

        def again(partitions: int) -> PhysicalPlan:
            return self._plan(engine, asked, Wishes(partitions=partitions, strict=wishes.strict))

        def unreached() -> None:
            self._fetches_from = time.monotonic() + UNREACHED_S

        return ClusterQuery(
            self._rota, plan, again, self._choices, target=target, near=near, ca=self._ca, unreached=unreached
        )

    def write(self, engine: SqlEngine, asked: LogicalPlan, sql: str, target: Target) -> int:
        """Have each task of the last stage write a file."""
        plan = self.plan(engine, asked)
        if not plan.stages:
            return _write_here(self.read(engine, asked, sql), target)
        handle = self._submit(engine, asked, plan, target=target)
        handle.is_ours_alone = True
        try:
            return handle.to_arrow().column(0)[0].as_py()
        except BaseException:
            # Whatever stands against that is less worth telling than what went wrong.
            with suppress(Refused, Unavailable):
                handle.cancel("its program gave up")
            with suppress(Refused, OSError):
                # In this order: what is not put aside any more cannot be published by a worker that has not heard.
                discard(target, handle.id)
                retract(target, handle.id, plan.stages[-1].tasks)
            raise

    def read(self, engine: SqlEngine, asked: LogicalPlan, sql: str) -> pa.RecordBatchReader:
        """The answer, once all of it is there."""
        handle = self._accept(engine, asked, sql, is_kept=False)
        handle.is_ours_alone = True
        try:
            return handle.stream()
        except BaseException as error:
            if not isinstance(error, Refused):
                # Nobody is left who could ask for it.
                handle.cancel("its program gave up")
            raise

    def submit_stages(self, stages: Sequence[Stage], name: str, labels: Mapping[str, str]) -> BlockingRun:
        """Have stages run that somebody has cut; `name` is that of their graph."""
        packed = bundle_of(stages)
        graph = graph_of(
            stages,
            bundle=self._rota.put_bundle(packed) if packed else None,
            queue=self._choices.queue,
            timeout_ms=round(self._choices.timeout_s * 1_000),
            compression=self._choices.compression,
            name=name,
        )
        return self._rota.submit(graph, labels=dict(labels), parent=self._choices.parent, is_new=True)

    def plan(self, engine: SqlEngine, asked: LogicalPlan) -> PhysicalPlan:
        """Into which stages it is cut."""
        return self._plan(engine, asked, self._wishes())

    def _plan(self, engine: SqlEngine, asked: LogicalPlan, wishes: Wishes) -> PhysicalPlan:
        with self._planning:
            return physical_plan(engine, asked, self._slots, wishes)

    def rows_of_created(self, engine: SqlEngine, created: CreatedTable, sql: str) -> pa.Table | None:
        """Run the query in this process, no longer than a query may take. A strict session refuses it."""
        if self._choices.strict:
            text = "CREATE TABLE … AS runs its query in this process, and not by several tasks"
            hint = "Leave strict out, or register the answer: register_table(name, session.sql(…).to_arrow())."
            raise Refused("query.unstaged", text, hint, path="sql")
        is_there = not created.replaces and engine.context.table_exist(created.quoted_name())
        if not self._choices.timeout_s or is_there:
            return None
        if created.has_constraints():
            text = "a CREATE TABLE … AS with constraints cannot be limited in time"
            raise Refused("query.unsupported", text, "Leave out the constraints, or timeout_s.", path="sql")
        asked = logical_plan(engine, engine.frame_of(created.query))
        handle = LocalQuery(new_id(), engine.frame_of(asked.plan), asked.schema, sql, self._choices.timeout_s)
        try:
            return handle.to_arrow()
        except BaseException:
            handle.cancel()
            raise

    def close(self) -> None:
        """Hang up."""
        if self._owns:
            self._rota.close()

    def _slots(self) -> int:
        return max(1, live_slots(self._rota))

    def _wishes(self) -> Wishes:
        return Wishes(partitions=self._choices.partitions, strict=self._choices.strict)
