"""From stages to a graph: each stage is a group of tasks of kind `query`."""

import platform
import sys
from collections.abc import Sequence

import pyarrow as pa
from msgspec import structs

from rota.core.bounds import WORK_BYTES_MAX
from rota.core.ids import BlobRef, TaskId
from rota.core.model import QUERIES_QUEUE, Graph, Pairs, RetryPolicy, TaskSpec
from rota.kinds.query.stages import Stage
from rota.wire.bundles import BundleFile, pack_bundle
from rota.wire.plans import has_code
from rota.wire.plans.checking import ENGINE, check_engine
from rota.wire.plans.files import places_in
from rota.wire.plans.stores import stores_in
from rota.wire.queries import (
    QUERY,
    Answered,
    Compression,
    Fragment,
    Output,
    Published,
    Texts,
    Written,
    encode_fragment,
)
from rota.wire.stores import store_of
from rota.wire.targets import Target

GRAPH = "query"
PUBLISH = "publish"
# The answer of a query that writes.
COUNTED = pa.schema([pa.field("count", pa.int64())])
# Failures of code are tried again as often as the service says; a query that is out of memory is cut finer instead.
RETRY = RetryPolicy(retries=-1, memory_retries=0)
# A larger plan travels in a bundle; what is left is for the fragment around it, and for what the plans look like.
PLAN_BYTES_MAX = WORK_BYTES_MAX - 48 * 1024


def requirements() -> Pairs:
    """What a worker has to be: rows are spread by hash values, which every task has to compute alike."""
    return (
        ("cpu_arch", platform.machine()),
        ("datafusion", ENGINE.partition(" ")[2]),
        ("python", f"{sys.version_info.major}.{sys.version_info.minor}"),
    )


def bundle_of(stages: Sequence[Stage]) -> bytes | None:
    """The plans that are too large to travel with their tasks, if there are any: those that have tables in them."""
    large = [BundleFile(member_of(stage), stage.plan) for stage in stages if is_large(stage)]
    return pack_bundle(large) if large else None


def graph_of(
    stages: Sequence[Stage],
    *,
    bundle: BlobRef | None = None,
    queue: str = QUERIES_QUEUE,
    timeout_ms: int = 0,
    compression: Compression = "",
    target: Target | None = None,
    near: str = "",
    name: str = GRAPH,
    texts: Texts = (),
) -> Graph:
    """The graph of a query. `timeout_ms` is for all of it; `bundle` is where its large plans are.

    `texts` are all plans, for people.
    `near` is the machine of who reads the answer at once, and only once; `""` for one that is kept.
    With a `target` the last stage writes there, and one more task publishes what all of it has written.
    """
    check_engine()
    needs = requirements()
    *before, last = stages
    tasks = [_task(stage, needs, queue, compression) for stage in before]
    if target is not None:
        last = structs.replace(last, output=Written(target))
    elif near:
        last = structs.replace(last, output=Answered(near))
    tasks.append(_task(last, needs, queue, compression, texts))
    if target is not None:
        tasks.append(_publishing(last, target, needs, queue))
    return Graph(name=name, kind=QUERY, tasks=tuple(tasks), run_timeout_ms=timeout_ms, bundle=bundle)


def specs_within(task: str, stages: Sequence[Stage], schema: pa.Schema, texts: Texts = ()) -> tuple[TaskSpec, ...]:
    """Stages as tasks that another task goes on as, and whose answer it takes; `schema` is that of the answer."""
    check_engine()
    *before, last = (_within(task, stage) for stage in stages)
    last = structs.replace(last, schema=schema, output=Answered(is_taken=True))
    needs = requirements()
    tasks = [_task(stage, needs, QUERIES_QUEUE, "") for stage in before]
    return (*tasks, _task(last, needs, QUERIES_QUEUE, "", texts))


def _within(task: str, stage: Stage) -> Stage:
    return structs.replace(
        stage,
        id=f"{task}.{stage.id}",
        upstream=tuple(f"{task}.{name}" for name in stage.upstream),
        exchanges=tuple(structs.replace(each, stage=f"{task}.{each.stage}") for each in stage.exchanges),
    )


def _publishing(last: Stage, target: Target, needs: Pairs, queue: str) -> TaskSpec:
    schema = COUNTED.serialize().to_pybytes()
    output = Published(target, last.id)
    fragment = Fragment(engine=ENGINE, output=output, schema=schema, is_whole=True, stores=_stores(b"", output))
    return TaskSpec(
        id=TaskId(PUBLISH),
        kind=QUERY,
        work=encode_fragment(fragment),
        upstream=(TaskId(last.id),),
        inputs=(TaskId(last.id),),
        queue=queue,
        requires=needs,
        retry=RETRY,
    )


def _task(stage: Stage, needs: Pairs, queue: str, compression: Compression, texts: Texts = ()) -> TaskSpec:
    read = stage.physical if stage.is_logical else stage.plan
    # Which files a step reads is in its plans; what a function reads, and what cannot be encoded, is not known.
    is_open = stage.is_step or (stage.is_logical and (has_code(stage.plan) or not read))
    fragment = Fragment(
        engine=ENGINE,
        output=stage.output,
        schema=stage.schema.serialize().to_pybytes(),
        plan=b"" if is_large(stage) else stage.plan,
        bundled=member_of(stage) if is_large(stage) else "",
        exchanges=stage.exchanges,
        tasks=stage.tasks,
        is_whole=stage.is_whole,
        compression=compression,
        has_code=has_code(stage.plan),
        stores=_stores(read or stage.plan, stage.output),
        places=None if is_open else places_in(read),
        is_step=stage.is_step,
        is_logical=stage.is_logical,
        settings=stage.settings,
        texts=texts,
    )
    return TaskSpec(
        id=TaskId(stage.id),
        kind=QUERY,
        work=encode_fragment(fragment),
        upstream=tuple(map(TaskId, stage.upstream)),
        inputs=tuple(map(TaskId, stage.upstream)),
        width=stage.tasks,
        queue=queue,
        requires=needs,
        retry=RETRY,
    )


def _stores(plan: bytes, output: Output) -> tuple[str, ...]:
    """The buckets of a stage: those that it reads, and the one that it writes to."""
    written = output.target.folder if isinstance(output, Written | Published) else ""
    return tuple(sorted({*stores_in(plan), store_of(written) if "://" in written else ""} - {""}))


def is_large(stage: Stage) -> bool:
    """Whether a plan is too large to travel with its tasks."""
    return len(stage.plan) > PLAN_BYTES_MAX


def member_of(stage: Stage) -> str:
    """What its plan is called in a bundle."""
    return f"{stage.id}.plan"
