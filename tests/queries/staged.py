"""Stages run in this process, the way workers run them: bound, drained, written to files, read again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import datafusion as df
import pyarrow as pa
from datafusion.object_store import LocalFileSystem

from rota.kinds.query.cutting import Uncut, cut, whole
from rota.kinds.query.settings import EXECUTING, PLANNING
from rota.kinds.query.stages import Stage
from rota.wire.plans.binding import Piece, bind
from rota.wire.queries import Answered, Gathered, Hashed

BROADCAST = "datafusion.optimizer.hash_join_single_partition_threshold"
NO_BROADCAST = ((BROADCAST, "0"), (f"{BROADCAST}_rows", "0"))
SORT_MERGE = (("datafusion.optimizer.prefer_hash_join", "false"),)
SPLIT_FILES = (("datafusion.optimizer.repartition_file_min_size", "1"),)

Settings = Sequence[tuple[str, str]]


def planner(partitions: int, settings: Settings = ()) -> df.SessionContext:
    """A context whose plans can be cut."""
    config = df.SessionConfig().with_target_partitions(partitions)
    for name, value in (*PLANNING, *settings):
        config = config.set(name, value)
    return df.SessionContext(config)


def executor(folder: Path, stores: int = 0, settings: Settings = ()) -> df.SessionContext:
    """A context that knows no table, as a worker has it, and that reaches the folders of other workers."""
    config = df.SessionConfig()
    for name, value in (*settings, *EXECUTING):
        config = config.set(name, value)
    context = df.SessionContext(config)
    for number in range(stores):
        (folder / f"w{number}").mkdir(exist_ok=True)
        context.register_object_store("s3://", LocalFileSystem(str(folder / f"w{number}")), f"w{number}")
    return context


class Stages:
    """The stages of one query, run one after the other in `folder`; their files in as many `stores` as there are."""

    def __init__(self, stages: Sequence[Stage], folder: Path, stores: int = 0) -> None:
        self.stages = stages
        self._folder = folder
        self._stores = stores
        self._written: dict[str, list[list[Piece]]] = {}
        self._answers: list[pa.RecordBatch] = []

    def answer(self) -> pa.Table:
        """What the last stage gives, in the order of its tasks."""
        for stage in self.stages:
            tasks = [None] if stage.is_whole else list(range(stage.tasks))
            self._written[stage.id] = [self._run(stage, task) for task in tasks]
        schema = self.stages[-1].schema
        columns = [f"c{index}" for index in range(len(schema))]
        table = pa.Table.from_batches(
            [pa.RecordBatch.from_arrays(batch.columns, names=columns) for batch in self._answers],
            pa.schema([pa.field(name, kind) for name, kind in zip(columns, schema.types, strict=True)]),
        )
        return table.rename_columns(schema.names)

    def _run(self, stage: Stage, task: int | None) -> list[Piece]:
        sources = [self._written[exchange.stage] for exchange in stage.exchanges]
        context = executor(self._folder, self._stores, stage.settings)
        if stage.is_logical:
            asked = df.LogicalPlan.from_bytes(context, stage.plan)
            plan = context.create_dataframe_from_logical_plan(asked).execution_plan()
        else:
            plan = df.ExecutionPlan.from_bytes(context, bind(stage.plan, stage.exchanges, sources, task))
        match stage.output:
            case Hashed(parts):
                assert plan.partition_count == parts
            case Gathered():
                assert plan.partition_count == 1, "gathered outputs are one file"
            case _:
                assert task is None or plan.partition_count == 1
        return asyncio.run(self._drain(stage, task, plan, context))

    async def _drain(
        self, stage: Stage, task: int | None, plan: df.ExecutionPlan, context: df.SessionContext
    ) -> list[Piece]:
        async def drain(partition: int) -> list[pa.RecordBatch]:
            batches = [batch.to_pyarrow() async for batch in context.execute(plan, partition)]
            return [batch for batch in batches if batch.num_rows]

        parts = await asyncio.gather(*(drain(partition) for partition in range(plan.partition_count)))
        for batches in parts:
            for batch in batches:
                assert batch.schema.types == stage.schema.types, "the schema was found without running anything"
        if isinstance(stage.output, Answered):
            self._answers += (batch for batches in parts for batch in batches)
            return []
        return [
            self._write(stage, task, part, batches) for part, batches in enumerate(parts) if batches
        ]  # there is no file for an empty part

    def _write(self, stage: Stage, task: int | None, part: int, batches: Sequence[pa.RecordBatch]) -> Piece:
        number = task or 0
        where = f"w{number % self._stores}" if self._stores else "all of them"
        path = self._folder / where / stage.id / f"t{number}-a1" / f"p{part}.arrow"
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = len(stage.schema)
        kinds = stage.schema.types if columns else [pa.int8()]
        schema = pa.schema([pa.field(f"c{index}", kind) for index, kind in enumerate(kinds)])
        with pa.ipc.new_file(str(path), schema) as file:
            for batch in batches:
                arrays = batch.columns if columns else [pa.nulls(batch.num_rows, pa.int8())]
                file.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
        size = path.stat().st_size
        if self._stores:
            return Piece(part, f"s3://{where}/", str(path.relative_to(self._folder / where)), size)
        return Piece(part, "file:///", str(path), size)


def stages_of(context: df.SessionContext, sql: str, again_bytes: int = 0) -> tuple[Stage, ...]:
    """The stages of a statement, cut wherever it can be; one, if it cannot."""
    plan = context.sql(sql).execution_plan()
    try:
        return cut(plan, context, again_bytes)
    except Uncut:
        return whole(plan, context)


def run_staged(context: df.SessionContext, sql: str, folder: Path, stores: int = 0, again_bytes: int = 0) -> pa.Table:
    """The answer of a statement that is planned, cut and run in stages."""
    return Stages(cut(context.sql(sql).execution_plan(), context, again_bytes), folder, stores).answer()
