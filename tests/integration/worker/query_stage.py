"""Query runners with real processes, and queries that are cut and run on them task by task."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import datafusion as df
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from rota.core.commands import Outcome
from rota.core.decide.leases import Input, Offer
from rota.kinds.query.cutting import cut
from rota.kinds.query.settings import PLANNING
from rota.kinds.query.stages import Stage
from rota.wire.plans import has_code
from rota.wire.plans.checking import ENGINE
from rota.wire.plans.files import places_in
from rota.wire.queries import QUERY, Fragment, StageOutput, decode_output, encode_fragment
from rota.wire.values import unpack
from rota.wire.work import StoredValue, decode_value
from rota.worker.runners.queries.exchange import Exchanges
from rota.worker.runners.queries.runner import QueryRunner, Reach
from rota.worker.sync import AttemptOver
from tests.integration.playing import played
from tests.integration.worker.stage import PATIENCE_S, open_stage
from tests.integration.worker.stage import Stage as Worker

RUN = "run/1"
ROWS = 20_000


class Runners:
    """Query runners on one machine, each with a folder of its own, or with one that all share."""

    def __init__(self, worker: Worker, tokens: Iterable[str], **options: Any) -> None:
        self.worker = worker
        self.folder = worker.folder
        shared = options.pop("shared", "")
        memory_bytes = options.pop("memory_bytes", 0)
        self.exchanges = [
            Exchanges(
                worker.folder / f"exchange-{number}",
                worker=f"w{number}",
                shared=str(worker.folder / shared) if shared else "",
                run_as=worker.supervisor.run_as,
                **options,
            )
            for number, _ in enumerate(tokens)
        ]
        self.each = [
            QueryRunner(
                worker.process, exchanges, reach=Reach(token=lambda token=token: token), memory_bytes=memory_bytes
            )
            for exchanges, token in zip(self.exchanges, tokens, strict=True)
        ]
        self._fences = itertools.count(1)

    @property
    def first(self) -> QueryRunner:
        return self.each[0]

    def table(self, name: str = "t", files: int = 2, rows: int = ROWS) -> str:
        """Rows `k` from 0 on, `g` of seven groups and `s`, a text, in some files."""
        folder = self.folder / name
        folder.mkdir()
        folder.chmod(0o755)
        for number in range(files):
            keys = range(number, rows, files)
            texts = [f"text of row {key}" for key in keys]
            pq.write_table(
                pa.table({"k": keys, "g": [key % 7 for key in keys], "s": texts}), folder / f"{number}.parquet"
            )
        return str(folder)

    def offer(self, stage: Stage, number: int = 0, inputs: tuple[Input, ...] = (), **changes: Any) -> Offer:
        fragment = Fragment(
            engine=ENGINE,
            output=stage.output,
            schema=stage.schema.serialize().to_pybytes(),
            plan=stage.plan,
            exchanges=stage.exchanges,
            tasks=stage.tasks,
            is_whole=stage.is_whole,
            has_code=has_code(stage.plan),
            places=places_in(stage.plan),
        )
        return self.offer_of(fragment, f"{stage.id}[{number}]", number, inputs, **changes)

    def offer_of(
        self,
        fragment: Fragment,
        task_id: str = "stage-1[0]",
        number: int = 0,
        inputs: tuple[Input, ...] = (),
        **changes: Any,
    ) -> Offer:
        offer = Offer(
            tenant="acme",
            run=RUN,
            task=number,
            task_id=task_id,
            fence=next(self._fences),
            attempt=1,
            kind=QUERY,
            work=encode_fragment(fragment),
            params=b"",
            timeout_ms=0,
            lease_ms=30_000,
            inputs=inputs,
            map_index=number,
        )
        return replace(offer, **changes)

    async def run(self, stages: tuple[Stage, ...]) -> pa.Table:
        """Run all stages, task after task on runner after runner; the answer."""
        results: dict[str, tuple[bytes, ...]] = {}
        turn = itertools.cycle(self.each)
        for stage in stages:
            overs = [await next(turn).run(self.offer(stage, number, inputs(results))) for number in range(stage.tasks)]
            results[stage.id] = tuple(result_of(over) for over in overs)
        pieces = [await self.opened(result) for result in results[stages[-1].id]]
        return pa.concat_tables(pieces)

    async def opened(self, result: bytes) -> pa.Table:
        value = decode_value(result)
        content = await self.worker.blobs.get(value.ref) if isinstance(value, StoredValue) else value.content
        return unpack(value.encoding, content)

    def files(self, number: int = 0) -> list[str]:
        """What is in the folder of a runner."""
        home = self.exchanges[number]._home  # pyright: ignore[reportPrivateUsage]  # it is what is looked at
        return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())


def inputs(results: dict[str, tuple[bytes, ...]]) -> tuple[Input, ...]:
    return tuple(Input(stage, given, is_group=True) for stage, given in results.items())


def result_of(over: AttemptOver) -> bytes:
    assert over.outcome is Outcome.SUCCESS, over.error
    assert over.result is not None
    return over.result


def output_of(over: AttemptOver) -> StageOutput:
    return decode_output(result_of(over))


def planned(sql: str, partitions: int = 2, udfs: Iterable[Any] = (), **tables: str) -> tuple[Stage, ...]:
    """The stages of a query over tables of Parquet files."""
    config = df.SessionConfig()
    for name, value in PLANNING:
        config = config.set(name, value)
    context = df.SessionContext(config.with_target_partitions(partitions))
    for name, place in tables.items():
        context.register_parquet(name, place)
    for each in udfs:
        context.register_udf(each)
    return cut(context.sql(sql).execution_plan(), context)


@asynccontextmanager
async def open_runners(folder: Path, tokens: Iterable[str] = ("",), **options: Any) -> AsyncIterator[Runners]:
    worker_options = {name: options.pop(name) for name in ("run_as", "memory_bytes_max") if name in options}
    async with open_stage(folder, **worker_options) as worker:
        runners = Runners(worker, tuple(tokens), **options)
        try:
            yield runners
        finally:
            await asyncio.gather(*(each.close() for each in runners.each))


def querying(**options: Any) -> Callable[[Callable[[Runners], Awaitable[None]]], Callable[[Path], None]]:
    """Run an asynchronous test with query runners of its own."""

    def decorate(test: Callable[[Runners], Awaitable[None]]) -> Callable[[Path], None]:
        async def play(folder: Path) -> None:
            async with asyncio.timeout(PATIENCE_S), open_runners(folder, **options) as runners:
                await test(runners)

        return played(test, play)

    return decorate
