"""Rounds on workers: each is one run, whose tasks read rows, own the state by key groups, and spread what is between.

Whoever drives the stream decides which rows a round reads, has it run, and publishes what came of it: the names of the
pieces that tasks have written, and the rows that leave the stream. It never has the state. The stream's folder must be
one that workers share.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from msgspec import structs

from rota.app.sql.cluster import ABANDON_MS, trouble_of
from rota.app.sql.runtimes import ClusterRuntime
from rota.core.errors import Refused, Unavailable
from rota.core.states import RunState
from rota.kinds.query.cutting import Uncut, whole
from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.stages import Stage
from rota.kinds.query.streams.computing import Pieces
from rota.kinds.query.streams.files import Files
from rota.kinds.query.streams.manifests import Manifest, pieces_of
from rota.kinds.query.streams.pieces import PIECES, Damaged, Piece, Place, read_piece, write_pieces
from rota.kinds.query.streams.pipeline import Computed, Pipeline, SourceNode, ViewNode, set_aside
from rota.kinds.query.streams.policies import Unusable
from rota.kinds.query.streams.rounds import Plan, Range, partition_name
from rota.kinds.query.streams.segments import Given, Kept, segments_of
from rota.kinds.query.streams.steps import Reading, SentView, Told, decode_told, schema_bytes
from rota.kinds.query.streams.watermarks import Clock
from rota.wire.flushing import flush
from rota.wire.plans.tree import Unsliceable, read
from rota.wire.queries import decode_output

# What a run of a round is called among graphs.
ROUND = "round"


class ComputingFar:
    """Rounds as runs of a coordinator; state as pieces in the stream's folder."""

    is_kept = True

    def __init__(
        self, pipeline: Pipeline, parallelism: int, folder: Path, runtime: ClusterRuntime, wanted: tuple[str, ...]
    ) -> None:
        """`wanted` are nodes whose rows go to sinks or to whoever iterates."""
        self._pipeline = pipeline
        self._parallelism = parallelism
        self._folder = folder.absolute()
        self._runtime = runtime
        self._wanted = wanted
        self._kept = Kept(parallelism, {})
        self._before = self._kept
        self._views = _Views(pipeline)
        # Before a task has something in it that must not be lost.
        (self._folder / PIECES).mkdir(parents=True, exist_ok=True)
        flush(self._folder)

    def begin(self) -> None:
        """There are no pieces."""
        self._kept = Kept(self._parallelism, {})

    def take(self, manifest: Manifest, path: Path) -> None:
        """The pieces of a round, wherever they are; those who will own them read them."""
        found: dict[str, list[tuple[Piece, Place]]] = {}
        for piece, place in pieces_of(path.absolute(), "state"):
            if piece.table:
                found.setdefault(piece.node, []).append((piece, place))
        self._kept = Kept(manifest.parallelism, found)

    def kept(self) -> Mapping[str, int]:
        """Of all pieces."""
        return {
            name: sum(piece.rows for piece, _ in self._kept.pieces.get(name, ())) for name in self._pipeline.operators()
        }

    def state(self) -> tuple[Pieces, list[Piece]]:
        """The pieces of the last round, which those have written who own them."""
        pieces = [piece for each in self._kept.pieces.values() for piece, _ in each]
        assert all(piece.file for piece in pieces), "whoever owns a piece has it in a file of its own"
        return [], pieces

    def files(self) -> Sequence[str]:
        """Where those pieces are."""
        return [piece.file for each in self._kept.pieces.values() for piece, _ in each]

    def compute(self, plan: Plan, clocks: Mapping[str, Clock], aside: str) -> Computed:
        """Have a round run, and take what its tasks tell."""
        self._before = self._kept
        done = Computed(dict(clocks), {}, {}, {}, {})
        given = Given(
            plan=plan,
            clocks=clocks,
            kept=self._kept,
            parallelism=self._parallelism,
            folder=str(self._folder),
            aside=aside,
            readings=self._readings(plan, aside, done),
            views=self._views.sent(),
            wanted=self._wanted,
        )
        segments = segments_of(self._pipeline, given)
        told = self._run(segments.stages, plan) if segments.stages else {}
        for reading in (each for readings in given.readings.values() for each in readings):
            if reading.rows is not None:
                Path(reading.rows[1].path).unlink(missing_ok=True)
        done.clocks.update(segments.clocks)
        self._go_on(told, segments.clocks, done)
        self._collect([each for tasks in told.values() for each in tasks], done)
        return done

    def undo(self) -> None:
        """Pieces are never changed; what no round names is removed in time."""
        self._kept = self._before

    def _go_on(self, told: Mapping[str, Sequence[Told]], idle: Iterable[str], done: Computed) -> None:
        """State and time after a round: as those tell who own it, and as before for operators that were idle."""
        pieces = {name: list(self._kept.pieces.get(name, ())) for name in idle}
        for head, tasks in told.items():
            if head in self._pipeline.operators():
                state = [piece for each in tasks for piece in each.pieces if piece.kind == "state"]
                pieces[head] = [(piece, self._place(piece)) for piece in state]
                # They have all come to the same.
                done.clocks[head] = next(each.clock for each in tasks if each.clock is not None)
        self._kept = Kept(self._parallelism, pieces)

    def close(self) -> None:
        """Let go of what views were planned with."""
        self._views.close()

    def _place(self, piece: Piece) -> Place:
        return Place(str(self._folder / piece.file), piece.offset, piece.bytes, piece.sha256)

    # Sources.

    def _readings(self, plan: Plan, aside: str, done: Computed) -> dict[str, list[Reading]]:
        """What is read by tasks: files, and of other sources what is read here and put down for them."""
        found: dict[str, list[Reading]] = {}
        for name, node in self._pipeline.sources().items():
            refused = Unusable()
            for each in plan.ranges:
                if each.source == name:
                    found.setdefault(name, []).append(self._reading(node, each, aside, refused))
            set_aside(name, refused, done)
        return found

    def _reading(self, node: SourceNode, each: Range, aside: str, refused: Unusable) -> Reading:
        source = node.source
        reading = Reading(
            source=each.source,
            partition=partition_name(each.source, each.partition),
            schema=schema_bytes(self._pipeline.schema_of(each.source)),
            policies=node.policies,
        )
        if isinstance(source, Files):
            return structs.replace(reading, files=source.scanned(each.partition, each.begin, each.end))
        rows = self._pipeline.rows_of(each, refused)
        file = f"{aside}/{each.source}-{each.partition}.rows"
        piece = Piece(kind="rows", node=each.source, partition=each.partition)
        (put_down,) = write_pieces(self._folder, file, [(piece, rows)], is_kept=False)
        return structs.replace(reading, rows=(put_down, self._place(put_down)))

    # Running.

    def _run(self, stages: tuple[Stage, ...], plan: Plan) -> dict[str, list[Told]]:
        """Have stages run; what their tasks tell, by stage."""
        run = self._runtime.submit_stages(stages, ROUND, {"stream": self._folder.name, "round": str(plan.round)})
        try:
            view = run.wait(abandon_ms=ABANDON_MS)
        except BaseException:
            # Nobody is left who could publish it; whatever stands against that is less worth telling.
            with suppress(Refused, Unavailable):
                run.cancel("its stream gave up")
            raise
        if view.state is not RunState.SUCCESS:
            raise trouble_of(run, view, f"round {plan.round}, run")
        found: dict[str, list[Told]] = {}
        for stage in stages:
            found[stage.id] = told_by(stage, [task.result for task in run.tasks(stage.id)])
        return found

    def _collect(self, told: Sequence[Told], done: Computed) -> None:
        """Rows that leave the stream, and counts."""
        rows: dict[str, list[pa.Table]] = {}
        for each in told:
            for name, count in each.counts.items():
                done.counts[name] = done.counts.get(name, 0) + count
            leaving = [piece for piece in each.pieces if piece.kind == "rows"]
            for piece in leaving:
                rows.setdefault(piece.node, []).append(self._left(piece))
            for file in dict.fromkeys(piece.file for piece in leaving):
                (self._folder / file).unlink(missing_ok=True)
        for name, tables in rows.items():
            node, _, side = name.partition(".")
            into = {"": done.given, "late": done.late, "dead": done.dead}[side]
            known = [into[node]] if node in into else []
            into[node] = pa.concat_tables([*known, *tables])

    def _left(self, piece: Piece) -> pa.Table:
        try:
            return read_piece(piece, self._place(piece))
        except Damaged as damage:
            raise Refused("stream.corrupt", str(damage), "Start the stream again: the round is made again.") from None


def told_by(stage: Stage, results: Sequence[bytes | None]) -> list[Told]:
    """What all tasks of a stage tell. Without one of them a round would be published without its part of the state."""
    found = [decode_told(decode_output(each).told) for each in results if each is not None]
    if len(found) != stage.tasks:
        text = f"{len(found)} of {stage.tasks} tasks of {stage.id} have told what they came to"
        raise Refused("stream.corrupt", text, "Start the stream again: the round is made again.")
    return found


class _Views:
    """Views as plans for workers, made anew for each round: tables beside a stream may have changed."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        # Only looked at here, for the columns of what is not there yet.
        self._folder = TemporaryDirectory(prefix="rota-views-")
        self._leaves: dict[str, str] = {}
        for name in dict.fromkeys(node.reads for node in pipeline.nodes.values() if isinstance(node, ViewNode)):
            self._leaves[name] = f"rota-rows-of-{name}.arrow"
            path = Path(self._folder.name, self._leaves[name])
            with pa.ipc.new_file(str(path), pipeline.schema_of(name)):
                pass
            pipeline.engine.context.deregister_table(name)
            pipeline.engine.context.register_arrow(name, str(path))

    def sent(self) -> dict[str, SentView]:
        """All of them, by their names."""
        views = {name: node for name, node in self._pipeline.nodes.items() if isinstance(node, ViewNode)}
        return {name: self._sent(name, node) for name, node in views.items()}

    def close(self) -> None:
        """Remove what stood for rows."""
        self._folder.cleanup()

    def _sent(self, name: str, node: ViewNode) -> SentView:
        return SentView(
            name=name,
            reads=node.reads,
            sql=node.sql,
            plan=_plan(self._pipeline.engine, name, node.sql),
            leaf=self._leaves[node.reads],
            schema=schema_bytes(node.schema),
            on_error=node.on_error,
        )


def _plan(engine: SqlEngine, name: str, sql: str) -> bytes:
    """The plan of a view, which one task has to be able to run."""
    engine.set_partitions(1)
    frame = engine.sql(sql)
    with engine.complaining(sql):
        planned = frame.execution_plan()
        try:
            (stage,) = whole(planned, engine.context)
            read(stage.plan)
        except (Uncut, Unsliceable) as error:
            text = f"view {name} cannot be sent to workers: {error}"
            hint = "Have the stream computed in this process, with a session that has no workers."
            raise Refused("query.unstaged", text, hint, path="sql") from None
    return stage.plan
