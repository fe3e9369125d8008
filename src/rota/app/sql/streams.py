"""Streams in this process: sources, windows, views and sinks by name, and the rounds that go through them."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
from msgspec import Struct, structs

from rota.app.sql.rounds import ComputingFar
from rota.app.sql.runtimes import ClusterRuntime
from rota.app.sql.session import PathLike, Session
from rota.app.sql.started import Running, tell_failure
from rota.core.errors import Refused
from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.streams import given as door
from rota.kinds.query.streams.aggregates import check_aggregates
from rota.kinds.query.streams.asking import Asking, row_schema
from rota.kinds.query.streams.calling import CallbackSink
from rota.kinds.query.streams.chain import Chain, file_of, rounds_in
from rota.kinds.query.streams.computing import Computing, ComputingHere
from rota.kinds.query.streams.connectors import StreamSink, StreamSource
from rota.kinds.query.streams.delivery import Outlet
from rota.kinds.query.streams.distinct import Distinct, DistinctOperator
from rota.kinds.query.streams.files import FileForm, Files
from rota.kinds.query.streams.flushing import unwritable
from rota.kinds.query.streams.generated import Rate, Tables
from rota.kinds.query.streams.joining import Join, JoinOperator
from rota.kinds.query.streams.manifests import read_pieces
from rota.kinds.query.streams.pieces import Damaged
from rota.kinds.query.streams.pipeline import Pipeline, Side, SourceNode
from rota.kinds.query.streams.policies import HOUR_MS, Policies, Policy
from rota.kinds.query.streams.postgres import PostgresSink
from rota.kinds.query.streams.refusing import Refusals
from rota.kinds.query.streams.sinks import FolderSink, SideSink
from rota.kinds.query.streams.stream import Options, Round, Stream
from rota.kinds.query.streams.windowing import Window, open_window
from rota.kinds.query.streams.windows import Shape, session, sliding, tumbling
from rota.wire.capabilities import Guarantee, guarantee_of, in_words
from rota.wire.targets import Form

IDLE_S = 30.0
EVERY_S = 0.02
ROWS_PER_S_MAX = 1_000_000_000
_DIGITS_MAX = 20
# What files of a stream's own folder may be called at their ends.
_OWN_ENDINGS = (".parquet", ".json", ".jsonl", ".arrow")
_SIDES: dict[str, Side] = {"late": "late", "dead": "dead"}


class Part(Struct, frozen=True):
    """A part of a stream, and how often it lets a row count."""

    called: str
    can: str
    guarantee: Guarantee

    def __str__(self) -> str:
        return f"{self.called}: {self.guarantee} ({self.can})"


class StreamSession:
    """A stream: put together from parts with names, started, paused, saved and restored.

    Its folder has all that it must not forget. Whoever starts a stream in the same folder goes on where it was, and
    deposes whoever was at it.
    """

    def __init__(
        self,
        folder: PathLike,
        *,
        tables: Session | None = None,
        rows_max: int = 100_000,
        parallelism: int = 1,
        keep: int = 10,
        state_every: int = 1,
        every_s: float = EVERY_S,
        incarnation: int = 0,
    ) -> None:
        """`tables`: a session whose tables views may join with; if it has workers, rounds are computed there.

        `rows_max`: about how many rows a round reads.

        `parallelism`: in how many partitions state is kept. `keep`: how many rounds with state are kept, for restoring
        them. `state_every`: how many rounds share one state; after a crash, those since then are read again.
        `every_s`: how long to wait for more rows before a round that would be small. `incarnation`: a number that only
        grows, such as the fence of a task (`rota.context().fence`); the next one unless it is given.
        """
        door.check_counts(rows_max=rows_max, keep=keep, state_every=state_every)
        door.whole(parallelism, "parallelism", most=door.PARTITIONS_MAX)
        door.millis(every_s, "every_s")
        door.whole(incarnation, "incarnation", least=0)
        if tables is not None:
            door.check_kind(tables, Session, "tables")
        self.folder = Path(door.place(folder, "folder")).absolute()
        self._tables = tables or Session()
        self._pipeline = Pipeline(Asking(self._tables.engine), Asking(SqlEngine(), is_own=True))
        self._outlets: list[Outlet] = []
        self._every_s = every_s
        self._options = Options(
            rows_max=rows_max, parallelism=parallelism, keep=keep, state_every=state_every, incarnation=incarnation
        )
        self._lateness: dict[str, int] = {}

    # Sources.

    def register_source(
        self, name: str, source: StreamSource, *, idle_s: float = IDLE_S, policies: Policies | None = None
    ) -> None:
        """Rows from a source of one's own (`rota.kinds.query.streams.connectors.StreamSource`).

        `idle_s`: after how long without rows one of its partitions holds up time no longer; 0 for never.
        """
        door.check_part(source, StreamSource, "source")
        door.check_schema(source.schema, "source")
        door.whole(source.partitions, "partitions", most=door.PARTITIONS_MAX)
        if policies is not None:
            door.check_kind(policies, Policies, "policies")
        node = SourceNode(source, policies or Policies(), door.millis(idle_s, "idle_s"))
        self._pipeline.add(door.text(name, "name"), node, row_schema(source.schema), source.called)

    def register_files(
        self,
        name: str,
        path: PathLike,
        form: FileForm = "parquet",
        *,
        schema: pa.Schema | None = None,
        partitions: int = 1,
        bounded: bool = False,
        idle_s: float = IDLE_S,
        on_poison: Policy = "dead_letter",
        on_schema: Policy = "fail",
        on_missing: Policy = "fail",
    ) -> None:
        """Every file that appears in a folder, once; `bounded` for those that are there when it begins.

        `on_poison`: lines that cannot be read. `on_schema`: files with other columns. `on_missing`: files that are gone
        or changed before they were read.
        """
        door.check_policies(on_poison=on_poison, on_schema=on_schema, on_missing=on_missing)
        door.choice(form, get_args(FileForm), "form")
        door.whole(partitions, "partitions", most=door.PARTITIONS_MAX)
        door.is_true(bounded, "bounded")
        if schema is not None:
            door.check_kind(schema, pa.Schema, "schema")
        policies = Policies(poison=on_poison, schema=on_schema, missing=on_missing)
        source = Files(door.place(path, "path"), form, schema=schema, partitions=partitions, bounded=bounded)
        self.register_source(name, source, idle_s=idle_s, policies=policies)

    def register_rate(
        self, name: str, rows_per_s: int, *, keys: int = 10, partitions: int = 1, rows: int = 0, from_ms: int = 0
    ) -> None:
        """So many rows a second in each partition: `at`, `key` and `value`.

        `rows`: how many there are in each; 0 for no end. `from_ms`: when they begin; 0 for when it is started first.
        """
        door.whole(rows_per_s, "rows_per_s", most=ROWS_PER_S_MAX)
        door.whole(keys, "keys")
        door.whole(partitions, "partitions", most=door.PARTITIONS_MAX)
        door.whole(rows, "rows", least=0)
        door.whole(from_ms, "from_ms", least=0)
        self.register_source(name, Rate(rows_per_s, keys=keys, partitions=partitions, rows=rows, from_ms=from_ms))

    def register_rows(self, name: str, *tables: pa.Table) -> None:
        """Tables in memory, one for each partition. They end."""
        door.check_tables(tables, "tables")
        try:
            source = Tables(*tables)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            text = f"a table has columns of other types than the first: {error}"
            raise Refused("query.type", text, "Give tables with the same columns.", path="tables") from None
        self.register_source(name, source)

    # What is computed.

    def register_window(
        self,
        name: str,
        source: str,
        *,
        time: str,
        aggregates: Mapping[str, str],
        by: Sequence[str] = (),
        tumbling_s: float = 0,
        sliding_s: tuple[float, float] | None = None,
        session_s: float = 0,
        watermark_delay_s: float = 0,
        allowed_lateness_s: float = 0,
        on_no_time: Policy = "dead_letter",
        on_far_future: Policy = "dead_letter",
        ahead_s: float = HOUR_MS / 1_000,
    ) -> None:
        """Rows by windows of the time in a column: `tumbling_s`, `sliding_s=(size, slide)`, or `session_s` of silence.

        `aggregates` are columns by their names, such as `{"n": "count(*)"}`, for each value of the columns `by`.
        `watermark_delay_s`: how far out of order rows may come. `allowed_lateness_s`: for how long after that a window
        is given again if rows for it come; its rows have a `revision` then. Rows that are later go to `NAME.late`.
        `on_no_time` and `on_far_future` (more than `ahead_s` from now): what becomes of rows that would spoil time.
        """
        schema = self._schema_of(source, "source")
        shape = _shape(tumbling_s, sliding_s, session_s)
        door.check_policies(on_no_time=on_no_time, on_far_future=on_far_future)
        self._check_given_once(name, source)
        policies = Policies(no_time=on_no_time, far_future=on_far_future, ahead_ms=door.millis(ahead_s, "ahead_s"))
        wanted = door.mapping(aggregates, "aggregates")
        window = Window(
            name=door.text(name, "name"),
            source=source,
            shape=shape,
            time=door.text(time, "time"),
            by=door.names(by, "by"),
            aggregates=tuple(wanted.items()),
            delay_ms=door.millis(watermark_delay_s, "watermark_delay_s"),
            lateness_ms=door.millis(allowed_lateness_s, "allowed_lateness_s"),
            policies=policies,
        )
        check_aggregates(wanted, source, schema, self._pipeline.asking)
        operator = open_window(window, schema, self._pipeline.asking)
        # What becomes of bad rows may be another policy at the next start: that is the way out of a failure.
        self._pipeline.add(name, operator, operator.schema, structs.replace(window, policies=Policies()))
        self._lateness[name] = window.lateness_ms

    def _schema_of(self, name: str, path: str) -> pa.Schema:
        return self._pipeline.schema_of(door.text(name, path))

    def _check_given_once(self, name: str, source: str) -> None:
        if self._lateness.get(self._pipeline.head(source), 0):
            text = f"{source} is given again when rows are late, and {name} would count both"
            raise Refused("query.unsupported", text, "Have no allowed lateness there.", path="source")

    def register_distinct(
        self, name: str, source: str, *, on: Sequence[str], time: str, ttl_s: float, watermark_delay_s: float = 0
    ) -> None:
        """The first row for each value of the columns `on`, and the next one from `ttl_s` after it on, by their times.

        A row that is older than what is remembered goes to `NAME.late`.
        """
        schema = self._schema_of(source, "source")
        self._check_given_once(name, source)
        distinct = Distinct(
            name=door.text(name, "name"),
            source=source,
            on=door.names(on, "on"),
            time=door.text(time, "time"),
            ttl_ms=door.millis(ttl_s, "ttl_s", least_ms=1),
            delay_ms=door.millis(watermark_delay_s, "watermark_delay_s"),
        )
        operator = DistinctOperator(distinct, schema, self._pipeline.asking)
        self._pipeline.add(name, operator, operator.schema, distinct)

    def register_join(
        self,
        name: str,
        left: str,
        right: str,
        *,
        on: Sequence[str],
        time: tuple[str, str],
        within_s: tuple[float, float],
        watermark_delay_s: float = 0,
        waiting_max: int = 1_000_000,
    ) -> None:
        """Rows of two streams with the same values `on` columns, the right one from so long to so long after the left.

        `time` names the column of each, `within_s` may be negative. No more than `waiting_max` rows wait: if many do,
        only what time waits for is read, and if they have to be more, the stream fails, to go on with a larger one.
        Columns of the right one that are on the left, too, are called `right_…`. Rows from before what was waited for
        are in `NAME.late`.
        """
        door.check_counts(waiting_max=waiting_max)
        schemas = self._schema_of(left, "left"), self._schema_of(right, "right")
        for source in (left, right):
            self._check_given_once(name, source)
        times, within = door.pair(time, "time", '("at", "at")'), door.pair(within_s, "within_s", "(0, 60)")
        join = Join(
            name=door.text(name, "name"),
            left=left,
            right=right,
            on=door.names(on, "on"),
            times=(door.text(times[0], "time"), door.text(times[1], "time")),
            least_ms=door.millis(within[0], "within_s", least_ms=-door.SECONDS_MAX * 1_000),
            most_ms=door.millis(within[1], "within_s", least_ms=-door.SECONDS_MAX * 1_000),
            delay_ms=door.millis(watermark_delay_s, "watermark_delay_s"),
            waiting_max=waiting_max,
        )
        operator = JoinOperator(join, *schemas, self._pipeline.asking)
        # Of how many rows may wait, its state knows nothing.
        self._pipeline.add(name, operator, operator.schema, structs.replace(join, waiting_max=0))

    def register_view(self, name: str, sql: str, *, on_error: Policy = "fail") -> None:
        """A statement over the rows of one stream: select, filter, join with tables of the session.

        `on_error`: what becomes of a row that it cannot be computed for, such as one that divides by zero.
        """
        door.check_policies(on_error=on_error)
        self._pipeline.add_view(door.text(name, "name"), door.text(sql, "sql"), on_error)

    # Sinks.

    def register_sink(self, name: str, sink: StreamSink) -> None:
        """Where the rows of a stream go; `NAME.late` and `NAME.dead` are those that were set aside."""
        node, _, side = door.text(name, "name").partition(".")
        self._schema_of(node, "name")
        if side and side not in _SIDES:
            raise Refused("field.value", f"{node} has no {side}", "There are late and dead.", path="name")
        door.check_part(sink, StreamSink, "sink")
        others = [each.sink for each in self._outlets if each.name == name and each.sink is not None]
        if isinstance(sink, CallbackSink):
            sink.tell_apart(others)
        if any(each.called == sink.called for each in others):
            raise Refused("field.value", f"{name} goes to {sink.called} already", path="sink")
        of_node = _SIDES.get(side, "given")
        sink.check(name, self._pipeline.side_schema(node, of_node))
        self._outlets.append(Outlet(node, of_node, sink))

    def write_files(self, name: str, folder: PathLike, form: Form = "parquet") -> None:
        """A file for each round in a folder; rows are seen exactly once."""
        self.register_sink(name, FolderSink(folder, form))

    def call(self, name: str, function: Callable[[pa.Table, int], object], *, on_refused: Policy = "fail") -> None:
        """Call a function with the rows of each round and its number, at least once.

        `on_refused`: what becomes of the rows of a round for which it raises.
        """
        self.register_sink(name, CallbackSink(function, refusals=self._refusals(name, on_refused)))

    def upsert(self, name: str, url: str, table: str, keys: Sequence[str], *, on_refused: Policy = "fail") -> None:
        """Rows into a table of PostgreSQL, the newest for each value of `keys`; they count exactly once.

        `on_refused`: what becomes of a row that lacks a key, or that the table refuses for a constraint or a type.
        """
        refusals, gone = self._refusals(name, on_refused), self._pipeline.gives_gone(name)
        sink = PostgresSink(url, table, door.names(keys, "keys"), gone=gone, refusals=refusals)
        self.register_sink(name, sink)

    def _refusals(self, name: str, on_refused: Policy) -> Refusals:
        """What a sink does with rows that it refuses; each sink of a node has a folder of its own for them."""
        door.check_policies(on_refused=on_refused)
        others = sum(outlet.name == name for outlet in self._outlets)
        return Refusals(on_refused, self.folder / "refused" / (f"{name}-{others + 1}" if others else name))

    # What it promises.

    def parts(self) -> list[Part]:
        """All sources and sinks, with what can be counted on."""
        found = [
            Part(f"{name} ({node.source.called})", in_words(node.source.can), guarantee_of(node.source.can))
            for name, node in self._pipeline.sources().items()
        ]
        for outlet in self._all_outlets():
            if outlet.sink is not None:
                called = f"{outlet.name} ({outlet.sink.called})"
                found.append(Part(called, in_words(outlet.sink.can), guarantee_of(outlet.sink.can)))
            else:
                found.append(Part(f"{outlet.name} (whoever iterates)", "nothing", Guarantee.AT_LEAST_ONCE))
        return found

    def guarantee(self) -> Guarantee:
        """How often a row counts: the least of all parts."""
        return min((each.guarantee for each in self.parts()), default=Guarantee.EXACTLY_ONCE)

    def _all_outlets(self) -> tuple[Outlet, ...]:
        """Sinks; whoever iterates, for ends without one; and folders for what is set aside and has no other place."""
        found = list(self._outlets)
        named = [outlet.name for outlet in found]
        found += (Outlet(name, "given", None) for name in self._pipeline.ends() if name not in named)
        for side in _SIDES.values():
            nodes = self._pipeline.operators() if side == "late" else self._pipeline.nodes
            for node in nodes:
                if f"{node}.{side}" not in named:
                    found.append(Outlet(node, side, SideSink(self.folder / side / node)))
        return tuple(found)

    # Running.

    def start(
        self, *, follow: bool = True, restore: PathLike | int = "", now_ms: Callable[[], int] | None = None
    ) -> Running:
        """Take the stream over, and iterate over its rounds. Nothing is computed between two of them.

        `follow`: wait for more rows when there are none, or while it is paused; otherwise it is over then, and goes on
        with the next start.
        `restore`: the number of a round, the name of a savepoint, or the file of one, instead of the newest round.
        """
        door.is_true(follow, "follow")
        if now_ms is not None:
            door.check_callable(now_ms, "now_ms")
        wanted = _restored(restore)
        if not self._pipeline.sources():
            raise Refused("field.value", "the stream has no source", "Register one.", path="source")
        outlets = self._all_outlets()
        self._check_apart(outlets)
        stream = Stream(
            self._pipeline, self._computing(outlets), self.folder, outlets, self._options, now_ms or _now_ms
        )
        promised = str(self.guarantee())
        try:
            again = self._begin(stream, wanted)
        except BaseException as error:
            tell_failure(self.folder, stream, promised, error)
            stream.close()
            raise
        return Running(stream, self.folder, again, follow=follow, every_s=self._every_s, guarantee=promised)

    def _check_apart(self, outlets: Sequence[Outlet]) -> None:
        """Refuse a stream that would read what it writes."""
        written = {f"the stream's folder {self.folder}": [self.folder / f"x{ending}" for ending in _OWN_ENDINGS]}
        for outlet in outlets:
            if isinstance(outlet.sink, FolderSink) and (sample := outlet.sink.sample()):
                written[f"{outlet.name} ({outlet.sink.called})"] = [sample]
        for name, node in self._pipeline.sources().items():
            for what, samples in written.items():
                if isinstance(node.source, Files) and any(node.source.would_read(each) for each in samples):
                    text = f"{name} ({node.source.called}) would read what the stream writes: {what}"
                    hint = "Choose a folder that does not lie in that of the source, or a name that begins with _."
                    raise Refused("field.value", text, hint, path="folder")

    def _begin(self, stream: Stream, restore: str | int) -> Round | None:
        try:
            return stream.begin(file_of(self.folder, restore) if restore != "" else None)
        except OSError as error:
            where = Path(str(error.filename))
            if where.is_relative_to(self.folder) or self.folder.is_relative_to(where):
                raise unwritable(self.folder, error) from error
            # That of a source or a sink of one's own.
            raise

    def _computing(self, outlets: Sequence[Outlet]) -> Computing:
        """Workers compute rounds if the session has some; otherwise this process does."""
        runtime, parallelism = self._tables.runtime, self._options.parallelism
        if not isinstance(runtime, ClusterRuntime):
            return ComputingHere(self._pipeline, parallelism)
        wanted = tuple(dict.fromkeys(outlet.node for outlet in outlets if outlet.side == "given"))
        return ComputingFar(self._pipeline, parallelism, self.folder, runtime, wanted)

    def state(self, name: str) -> dict[str, pa.Table]:
        """What a window or a join keeps, as of the newest round with state; also while others run the stream."""
        known = [each for each in rounds_in(self.folder) if each.has_state]
        if not known or door.text(name, "name") not in self._pipeline.operators():
            return {}
        found = {table: [empty] for table, empty in self._pipeline.operators()[name].beginning().items()}
        try:
            pieces = read_pieces(Chain(self.folder).path(known[-1].position), "state")
        except FileNotFoundError:
            # Whoever runs it has made so many rounds meanwhile that this one was removed.
            return self.state(name)
        except Damaged as damage:
            text = f"round {known[-1].round} of {self.folder} cannot be read: {damage}"
            raise Refused("stream.corrupt", text, "Start the stream: it is made again from an older one.") from None
        for piece, table in pieces:
            if piece.node == name:
                found[piece.table].append(table)
        return {table: pa.concat_tables(parts) for table, parts in found.items()}

    def run(self) -> list[Round]:
        """Make all rounds that there is something to read for now; what they gave."""
        with self.start(follow=False) as running:
            return list(running)


def _shape(tumbling_s: float, sliding_s: Any, session_s: float) -> Shape:
    shapes: tuple[Any, ...] = (tumbling_s, sliding_s, session_s)
    given = [each for each in shapes if each is not None and not (isinstance(each, int | float) and each == 0)]
    if len(given) != 1:
        hint = "Give one of tumbling_s, sliding_s and session_s."
        raise Refused("field.value", f"a window has one shape, and {len(given)} were given", hint, path="tumbling_s")
    if given[0] is sliding_s:
        return sliding(*door.pair(sliding_s, "sliding_s", "(60, 10)"))
    return tumbling(tumbling_s) if given[0] is tumbling_s else session(session_s)


def _restored(which: Any) -> str | int:
    """What to go on from: the number of a round, the name of a savepoint, or a file; nothing if that is not said."""
    if isinstance(which, os.PathLike):
        return str(Path(door.place(which, "restore")).absolute())
    if isinstance(which, str) and which.isdecimal():
        # No round has as many digits, and of very many Python makes no number.
        return door.whole(int(which[:_DIGITS_MAX]), "restore", least=0)
    if isinstance(which, str):
        return door.place(which, "restore") if which else ""
    return door.whole(which, "restore", least=0)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
