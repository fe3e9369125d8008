"""A stream as it was put together: sources, views, operators; and what one round of it computes.

Nodes are computed in the order in which they were registered, so that each finds what it reads. Computing depends on
nothing but the plan, the state and the rows: that is what makes a round the same round when it is made again.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Literal

import msgspec
import pyarrow as pa
from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.streams.asking import Asking, fitted, row_schema
from rota.kinds.query.streams.connectors import StreamSource
from rota.kinds.query.streams.joining import LATE
from rota.kinds.query.streams.keygroups import split
from rota.kinds.query.streams.operators import Moment, Operator, Rows, State
from rota.kinds.query.streams.policies import DEAD, Policies, Policy, Unusable
from rota.kinds.query.streams.pressure import Crowd
from rota.kinds.query.streams.rounds import Plan, Range, Reading, partition_name
from rota.kinds.query.streams.views import check_no_subquery, check_view, streams_in, viewed
from rota.kinds.query.streams.watermarks import NEVER, Clock
from rota.kinds.query.streams.windowing import GONE, SessionOperator

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)
# The rows of an operator come from one place.
ONE = "0"

# What of a node goes to a sink.
Side = Literal["given", "late", "dead"]


class SourceNode(Struct, frozen=True):
    """A source: what becomes of rows that cannot be read, and after how long without rows it holds nobody up."""

    source: StreamSource
    policies: Policies
    idle_ms: int


class ViewNode(Struct, frozen=True):
    """A statement that is asked for the rows of each round."""

    sql: str
    reads: str
    schema: pa.Schema
    # What becomes of a row that the statement cannot be computed for.
    on_error: Policy = "fail"


Node = SourceNode | ViewNode | Operator


class Computed(Struct, frozen=True):
    """What a round came to: time afterwards, rows by node, late and dead rows by node, and counts."""

    clocks: dict[str, Clock]
    given: dict[str, pa.Table]
    late: dict[str, pa.Table]
    dead: dict[str, pa.Table]
    counts: dict[str, int]

    def counted(self, before: Mapping[str, int]) -> dict[str, int]:
        """All that was counted, with this round."""
        return dict(before) | {name: before.get(name, 0) + count for name, count in self.counts.items()}


class Pipeline:
    """The nodes of a stream."""

    def __init__(self, tables: Asking, asking: Asking) -> None:
        """`tables` knows those that views may join with; `asking` is for operators alone."""
        self._tables = tables
        self.engine = tables.engine
        self.asking = asking
        self.nodes: dict[str, Node] = {}
        self._schemas: dict[str, pa.Schema] = {}
        self._told: list[object] = []

    # Putting it together.

    def schema_of(self, name: str) -> pa.Schema:
        """The columns of a node."""
        if name not in self._schemas:
            known = ", ".join(self.nodes) or "none"
            raise Refused("stream.unknown", f"there is no stream {name!r}", f"There are: {known}.", path="source")
        return self._schemas[name]

    def side_schema(self, name: str, side: Side) -> pa.Schema:
        """The columns of rows that a node gives, or sets aside."""
        node = self.nodes[name]
        if side == "given":
            return self._schemas[name]
        if side == "dead" or isinstance(node, SourceNode | ViewNode):
            return DEAD
        return self._schemas[node.inputs[0]] if len(node.inputs) == 1 else LATE

    def add(self, name: str, node: Node, schema: pa.Schema, *told: object) -> None:
        """Add a node; `told` is what must not change between two starts."""
        if not _NAME.fullmatch(name):
            hint = "Small letters, digits and _, at most 63."
            raise Refused("field.value", f"a stream cannot be called {name!r}", hint, path="name")
        if name in self.nodes or self.engine.context.table_exist(name):
            raise Refused("field.value", f"there is a stream or a table {name!r} already", path="name")
        self.nodes[name] = node
        self._schemas[name] = schema
        self._told.append([name, *told])
        # What statements are planned with, before there are any rows.
        self.engine.register_batches(name, [], schema)

    def add_view(self, name: str, sql: str, on_error: Policy = "fail") -> None:
        """A view, if its statement looks at each row by itself."""
        frame = self.engine.sql(sql, reads_only=True)
        plan = frame.logical_plan()
        reads = streams_in(plan, self.nodes)
        if len(reads) != 1:
            said = f"reads {' and '.join(reads)}" if reads else "reads no stream"
            hint = "A view reads one; register_join joins two." if reads else "Name a source, a window or a view."
            raise Refused("query.unsupported", f"view {name} {said}", hint, path="sql")
        check_no_subquery(name, plan, reads[0])
        check_view(name, plan, reads[0])
        schema = row_schema(frame.schema())
        if len(dict.fromkeys(schema.names)) != len(schema.names):
            text = f"two columns of {name} have the same name: {', '.join(schema.names)}"
            raise Refused("query.column", text, "Give one another name.", path="sql")
        self.add(name, ViewNode(sql, reads[0], schema, on_error), schema, sql)

    def definition(self) -> str:
        """What this stream is, in one line: another one must not go on with its state."""
        told = msgspec.json.encode([self._told, {name: str(schema) for name, schema in self._schemas.items()}])
        return sha256(told).hexdigest()

    def readings(self) -> list[Reading]:
        """Its sources, as planning sees them."""
        return [
            Reading(name, node.source, node.source.partitions, node.idle_ms)
            for name, node in self.nodes.items()
            if isinstance(node, SourceNode)
        ]

    def sources(self) -> dict[str, SourceNode]:
        """Its sources."""
        return {name: node for name, node in self.nodes.items() if isinstance(node, SourceNode)}

    def operators(self) -> dict[str, Operator]:
        """What keeps state."""
        return {name: node for name, node in self.nodes.items() if not isinstance(node, SourceNode | ViewNode)}

    def crowds(self, kept: Mapping[str, int], clocks: Mapping[str, Clock], idle: Collection[str]) -> list[Crowd]:
        """Where rows wait for others, by how many rows each operator has in its state. Nobody waits for idle ones."""
        return [
            Crowd(
                operator=name,
                waiting=kept[name],
                waiting_max=node.waiting_max,
                reached=self._reached(name, clocks),
                idle=(*idle, *clocks.get(name, Clock()).silent),
            )
            for name, node in self.operators().items()
            if node.waiting_max
        ]

    def _reached(self, name: str, clocks: Mapping[str, Clock]) -> dict[str, int]:
        """How far each partition has come that feeds an operator, as it sees them."""
        found: dict[str, int] = {}
        for source in self.operators()[name].inputs:
            behind = self._operator_behind(source)
            if behind is None:
                peaks = clocks.get(name, Clock()).peaks
                reached = {each: peaks.get(each, NEVER) for each in self._partitions(source)}
            else:
                mark = behind[1].mark_after(clocks.get(behind[0], Clock()).mark)
                reached = dict.fromkeys(self._partitions_behind(source), mark)
            found |= {each: min(at, found.get(each, at)) for each, at in reached.items()}
        return found

    def _partitions_behind(self, name: str) -> list[str]:
        """The partitions of all sources that a node reads from, however many operators are between."""
        inputs = self._inputs(name)
        return [each for above in inputs for each in self._partitions_behind(above)] or list(self._partitions(name))

    def ends(self) -> list[str]:
        """Nodes that nobody reads from."""
        read = [each for name in self.nodes for each in self._inputs(name)]
        return [name for name in self.nodes if name not in read]

    def _inputs(self, name: str) -> tuple[str, ...]:
        node = self.nodes[name]
        if isinstance(node, SourceNode):
            return ()
        return (node.reads,) if isinstance(node, ViewNode) else node.inputs

    # State.

    def beginning(self, parallelism: int) -> dict[str, list[State]]:
        """State before all rows."""
        return {name: [node.beginning() for _ in range(parallelism)] for name, node in self.operators().items()}

    def dealt(self, tables: Mapping[tuple[str, str], Sequence[pa.Table]], parallelism: int) -> dict[str, list[State]]:
        """State that was kept in any number of partitions, dealt to so many by key groups."""
        states = self.beginning(parallelism)
        for (name, table), parts in tables.items():
            node = self.operators().get(name)
            if node is None or table not in states[name][0]:
                text = f"there is state of {name} ({table}), which is not in this stream"
                raise Refused("stream.definition", text, "Register what was registered before.")
            empty = states[name][0][table]
            try:
                whole = pa.concat_tables([empty, *parts])
            except pa.ArrowInvalid as error:
                text = f"state of {name} has other columns than this stream: {error}"
                raise Refused("stream.definition", text, "Register what was registered before.") from None
            for state, part in zip(states[name], split(whole, node.keyed_by[table], parallelism), strict=True):
                state[table] = part
        return states

    # A round.

    def compute(
        self, plan: Plan, states: Mapping[str, list[State]], clocks: Mapping[str, Clock]
    ) -> tuple[Computed, dict[str, list[State]]]:
        """What a plan comes to, and the state afterwards."""
        done, after = Computed(dict(clocks), {}, {}, {}, {}), dict(states)
        rows: dict[str, Rows] = {}
        for name, node in self.nodes.items():
            if isinstance(node, SourceNode):
                rows[name] = self._read(name, node, plan, done)
            elif isinstance(node, ViewNode):
                rows[name] = self._viewed(name, node, rows[node.reads], done)
            else:
                rows[name] = self._stepped(name, node, plan, rows, done, after)
            given = [each for each in rows[name].values() if each.num_rows]
            if given:
                done.given[name] = given[0] if len(given) == 1 else pa.concat_tables(given)
                done.counts[f"{name}.rows"] = done.given[name].num_rows
        return done, after

    def _read(self, name: str, node: SourceNode, plan: Plan, done: Computed) -> Rows:
        refused = Unusable()
        found: dict[str, pa.Table] = {}
        for each in plan.ranges:
            if each.source == name:
                found[partition_name(name, each.partition)] = self.rows_of(each, refused)
        set_aside(name, refused, done)
        return found

    def rows_of(self, range_: Range, refused: Unusable) -> pa.Table:
        """The rows of a range, as its source has them; one of somebody's own may give others than it said."""
        name, node = range_.source, self.sources()[range_.source]
        rows = node.source.read(range_.partition, range_.begin, range_.end, node.policies, refused)
        try:
            return fitted(rows, self._schemas[name])
        except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            text = f"{name} ({node.source.called}) gave rows with other columns than it has: {error}"
            raise Refused("stream.source", text, "Let `schema` of the source be what `read` gives.") from None

    def _viewed(self, name: str, node: ViewNode, rows: Rows, done: Computed) -> Rows:
        refused = Unusable()

        def ask(table: pa.Table) -> pa.Table:
            return self._tables.ask(node.sql, node.schema, **{node.reads: table})

        found = viewed(ask, node.schema, node.on_error, rows, refused)
        set_aside(name, refused, done)
        return found

    def _stepped(
        self,
        name: str,
        node: Operator,
        plan: Plan,
        rows: Mapping[str, Rows],
        done: Computed,
        states: dict[str, list[State]],
    ) -> Rows:
        behind = self.behind(name)
        marks = [node_.mark_after(done.clocks.get(each, Clock()).mark) for each, node_ in behind.items()]
        moment = self.moment(name, plan, done.clocks, min(marks, default=None))
        given = {source: rows[source] for source in node.inputs}
        stepped = node.step(states[name], given, moment)
        states[name] = stepped.states
        done.clocks[name] = stepped.clock
        if stepped.late.num_rows:
            done.late[name] = stepped.late
            done.counts[f"{name}.late"] = stepped.late.num_rows
        set_aside(name, stepped.refused, done)
        return {ONE: stepped.given} if stepped.given.num_rows else {}

    def moment(self, name: str, plan: Plan, clocks: Mapping[str, Clock], upstream: int | None) -> Moment:
        """What is known of time when a round reaches an operator; `upstream`: how far those are that it reads from."""
        inputs = self.operators()[name].inputs
        fed = [source for source in inputs if self._operator_behind(source) is None]
        partitions = {each: idle_ms for source in fed for each, idle_ms in self._partitions(source).items()}
        return Moment(plan, clocks.get(name, Clock()), partitions, upstream)

    def behind(self, name: str) -> dict[str, Operator]:
        """The operators whose rows an operator reads, if it does not read those of sources only."""
        found = (self._operator_behind(source) for source in self.operators()[name].inputs)
        return dict(each for each in found if each is not None)

    def head(self, name: str) -> str:
        """The source or the operator that a node's rows are of, seen through views."""
        node = self.nodes[name]
        return self.head(node.reads) if isinstance(node, ViewNode) else name

    def gives_gone(self, name: str) -> bool:
        """Whether a column `gone` of its rows says which are to be removed: those of a session that was given again."""
        if name not in self.nodes or GONE not in self._schemas[name].names:
            return False
        head = self.nodes[self.head(name)]
        return isinstance(head, SessionOperator) and self._schemas[name].field(GONE).type == pa.bool_()

    def _operator_behind(self, name: str) -> tuple[str, Operator] | None:
        """The operator whose rows a node's are, seen through views."""
        node = self.nodes[name]
        if isinstance(node, ViewNode):
            return self._operator_behind(node.reads)
        return None if isinstance(node, SourceNode) else (name, node)

    def _partitions(self, name: str) -> dict[str, int]:
        """The partitions that a node's rows come from, and how long each may be without rows."""
        node = self.nodes[name]
        if isinstance(node, ViewNode):
            return self._partitions(node.reads)
        assert isinstance(node, SourceNode), "whoever asks has looked"
        return {partition_name(name, each): node.idle_ms for each in range(node.source.partitions)}


def set_aside(name: str, refused: Unusable, done: Computed) -> None:
    """Count rows that could not be used, and keep those that are to be kept."""
    if refused.dead:
        done.dead[name] = refused.table()
        done.counts[f"{name}.dead"] = len(refused.dead)
    if refused.skipped:
        done.counts[f"{name}.skipped"] = refused.skipped
