"""Graphs: checked once at the door, then laid out for counting.

A node is a `TaskSpec` with `width` tasks. Tasks are numbered through the graph; a node's tasks are consecutive. Edges
join nodes, so a stage of N tasks that feeds a stage of M costs one countdown, not N times M.
"""

import re
from array import array
from hashlib import sha256

import msgspec

from rota.core.bounds import (
    DELAY_MS_MAX,
    EDGES_PER_GRAPH_MAX,
    ID_CHARS_MAX,
    NODES_PER_GRAPH_MAX,
    POOL_SLOTS_MAX,
    POOLS_PER_TASK_MAX,
    PRIORITY_MAX,
    REQUIREMENTS_MAX,
    RETRIES_MAX,
    SERVICE_RETRIES,
    SETUPS_PER_GRAPH_MAX,
    TASKS_PER_GRAPH_MAX,
    TEXT_CHARS_MAX,
    WORK_BYTES_MAX,
)
from rota.core.buckets import Bucket
from rota.core.demand import Signature
from rota.core.edges import check_edges
from rota.core.errors import Refused
from rota.core.ids import GraphDigest, Millis, TaskId
from rota.core.model import Expansion, Graph, PoolNeed, RetryPolicy, TaskSpec
from rota.core.records import Growth
from rota.core.snapshot import effective_rule, relevant_setups
from rota.core.spans import show_number
from rota.core.trigger import TriggerRule

_encode = msgspec.msgpack.Encoder(order="deterministic").encode

# Defaults need no checking; large graphs consist of little else.
_PLAIN = TaskSpec(id=TaskId("plain"))
# `extract[3]` is the fourth task of the group `extract`, and nothing else.
_NUMBERED = re.compile(r"\[[0-9]+\]\Z")


def graph_digest(graph: Graph) -> GraphDigest:
    """The name of a definition: the hash of its content. What cannot be written down is refused here."""
    try:
        return GraphDigest(sha256(_encode(graph)).hexdigest())
    except (OverflowError, UnicodeEncodeError) as error:
        raise Refused("field.value", f"the graph cannot be written down: {error}", path="graph") from None


def check_id(value: str, *path: str) -> None:
    """An id is short, printable, has no blanks at its ends and leads nowhere else in an address."""
    is_short = 0 < len(value) <= ID_CHARS_MAX
    if not is_short or not value.isprintable() or value != value.strip() or value in (".", ".."):
        hint = f"Use 1 to {ID_CHARS_MAX} printable characters without blanks at the ends, and not . or .. alone."
        raise Refused("field.value", f"{value[:40]!r} is not a usable id", hint, path=".".join(path))


def check_text(value: str, *path: str, chars_max: int = TEXT_CHARS_MAX) -> None:
    """Free text is short and can be kept by every store: no NUL, no half characters."""
    if len(value) > chars_max or "\0" in value or not is_encodable(value):
        raise Refused(
            "field.value",
            f"{value[:40]!r} cannot be kept",
            f"Use at most {chars_max} characters, without NUL and half characters.",
            path=".".join(path),
        )


def is_encodable(value: str) -> bool:
    """Whether a text has no surrogate without its other half."""
    return value.isascii() or all(not "\ud800" <= letter <= "\udfff" for letter in value)


def check_number(value: int, least: int, most: int, *path: str) -> None:
    """A number is inside what makes sense for it."""
    if not least <= value <= most:
        said, low, high = (show_number(number, path[-1]) for number in (value, least, most))
        raise Refused("field.value", f"{said} is out of range", f"Use {low} to {high}.", path=".".join(path))


def check_size(value: bytes, most: int, *path: str) -> None:
    """A payload is small enough to live in the coordinator's memory."""
    if len(value) > most:
        raise Refused(
            "field.size",
            f"{len(value)} bytes are more than {most}",
            "Read it in a task, or have a task return it.",
            path=".".join(path),
        )


def check_spec(spec: TaskSpec, path: str) -> None:
    """Every number and name of one task."""
    check_id(spec.id, path, "id")
    if spec.id.endswith("]") and _NUMBERED.search(spec.id):
        raise Refused(
            "field.value",
            f"{spec.id!r} reads like one task of a group",
            "Do not end an id with a number in square brackets.",
            path=f"{path}.id",
        )
    if spec.kind is not _PLAIN.kind:
        check_id(spec.kind, path, "kind")
    if spec.queue is not _PLAIN.queue:
        check_id(spec.queue, path, "queue")
    check_size(spec.work, WORK_BYTES_MAX, path, "work")
    check_number(spec.width, 0, TASKS_PER_GRAPH_MAX, path, "width")
    check_number(spec.priority, -PRIORITY_MAX, PRIORITY_MAX, path, "priority")
    check_number(spec.timeout_ms, 0, DELAY_MS_MAX, path, "timeout_ms")
    check_number(len(spec.requires), 0, REQUIREMENTS_MAX, path, "requires")
    check_number(len(spec.pools), 0, POOLS_PER_TASK_MAX, path, "pools")
    if spec.retry is not _PLAIN.retry:
        check_retry(spec.retry, f"{path}.retry")
    if spec.pools:
        check_pools(spec, path)
    if spec.inputs:
        check_inputs(spec, path)
    if spec.expansion is not None:
        check_expansion(spec, spec.expansion, path)
    for name, value in spec.requires:
        check_id(name, path, "requires")
        check_text(value, path, "requires", name)


def check_inputs(spec: TaskSpec, path: str) -> None:
    """A task can only take results that it waits for."""
    for name in spec.inputs:
        if name not in spec.upstream:
            raise Refused(
                "graph.unknown_upstream",
                f"task {spec.id!r} takes the result of {name!r} and does not wait for it",
                "Name it in `upstream` too.",
                path=f"{path}.inputs",
            )


def check_expansion(spec: TaskSpec, expansion: Expansion, path: str) -> None:
    """A task is mapped over an upstream, and one mapped over an empty list is a single task."""
    if expansion.over and expansion.over not in spec.upstream:
        raise Refused(
            "graph.unknown_upstream",
            f"task {spec.id!r} is mapped over {expansion.over!r} and does not wait for it",
            "Name it in `upstream` too.",
            path=f"{path}.expansion.over",
        )
    if expansion.is_empty:
        check_number(spec.width, 1, 1, path, "width")


def check_retry(retry: RetryPolicy, path: str) -> None:
    """The numbers of a retry policy."""
    check_number(retry.retries, SERVICE_RETRIES, RETRIES_MAX, path, "retries")
    for name in ("timeout_retries", "memory_retries", "internal_retries"):
        check_number(getattr(retry, name) or 0, 0, RETRIES_MAX, path, name)
    check_number(retry.delay_ms, 0, DELAY_MS_MAX, path, "delay_ms")
    check_number(retry.delay_ms_max, 0, DELAY_MS_MAX, path, "delay_ms_max")
    check_number(retry.multiplier, 1, 100, path, "multiplier")


def check_pools(spec: TaskSpec, path: str) -> None:
    """What a task takes from pools."""
    if len({need.pool for need in spec.pools}) != len(spec.pools):
        raise Refused(
            "field.value", f"task {spec.id!r} names a pool twice", "Add the amounts up.", path=f"{path}.pools"
        )
    for position, need in enumerate(spec.pools):
        check_id(need.pool, f"{path}.pools[{position}].pool")
        check_text(need.key, f"{path}.pools[{position}].key")
        check_number(need.amount, 1, POOL_SLOTS_MAX, f"{path}.pools[{position}].amount")


def check_graph(graph: Graph) -> None:
    """Refuse a definition that could not be run, naming the field and what to do."""
    check_id(graph.name, "graph.name")
    check_id(graph.kind, "graph.kind")
    check_number(graph.max_active_runs, 0, POOL_SLOTS_MAX, "graph.max_active_runs")
    check_number(graph.max_active_tasks, 0, POOL_SLOTS_MAX, "graph.max_active_tasks")
    check_number(graph.run_timeout_ms, 0, DELAY_MS_MAX, "graph.run_timeout_ms")
    if not graph.tasks:
        raise Refused("graph.empty", f"graph {graph.name!r} has no tasks", "Add at least one.", path="graph.tasks")
    check_number(len(graph.tasks), 1, NODES_PER_GRAPH_MAX, "graph.tasks")
    check_number(sum(spec.width or 1 for spec in graph.tasks), 1, TASKS_PER_GRAPH_MAX, "graph.tasks")
    check_number(sum(len(spec.upstream) for spec in graph.tasks), 0, EDGES_PER_GRAPH_MAX, "graph.tasks.upstream")
    check_number(sum(spec.is_setup for spec in graph.tasks), 0, SETUPS_PER_GRAPH_MAX, "graph.tasks.is_setup")
    known: dict[TaskId, int] = {}
    for position, spec in enumerate(graph.tasks):
        path = f"graph.tasks[{position}]"
        check_spec(spec, path)
        if spec.id in known:
            raise Refused(
                "graph.duplicate_id",
                f"task {spec.id!r} is defined at {known[spec.id]} and {position}",
                "Rename one of them.",
                path=path,
            )
        known[spec.id] = position
    check_edges(graph.tasks, known)


class LiveGraph:
    """A graph laid out for counting; shared by its runs, copied when a run grows."""

    __slots__ = (
        "buckets",
        "by_rank",
        "digest",
        "downs",
        "fed",
        "gone",
        "graph",
        "has_edges",
        "hollow",
        "index",
        "leaf",
        "node_of",
        "over",
        "past",
        "pooled",
        "put_at",
        "rank",
        "retired",
        "rules",
        "setup_downs",
        "setups",
        "sources",
        "specs",
        "start",
        "tenant",
        "total",
        "unknown",
        "up_total",
        "ups",
        "users",
        "width",
    )

    def __init__(self, tenant: str, digest: GraphDigest, graph: Graph, put_at: Millis = 0) -> None:
        self.tenant = tenant
        self.put_at = put_at
        self.digest = digest
        self.graph = graph
        self.users = 0
        self.specs: list[TaskSpec] = []
        self.index: dict[TaskId, int] = {}
        self.ups: list[tuple[int, ...]] = []
        self.downs: list[list[int]] = []
        self.start: list[int] = []
        self.width: list[int] = []
        self.node_of: array[int] | None = None
        # Nodes mapped over nothing: one task stands for them, and it is never run.
        self.hollow: dict[int, None] = {}
        # Tasks of a node that was expanded again, to another width; they are never judged again.
        self.retired: dict[int, int] = {}
        # Tasks that went on as others: by their node, the nodes of those, the last of which they wait for.
        self.fed: dict[int, tuple[int, ...]] = {}
        # Nodes of those that nobody waits for any more: what was planned for them was planned anew.
        self.gone: dict[int, None] = {}
        self.buckets: list[Bucket | None] = []
        # Nodes that take something from pools, to be compared with what those have at each submission.
        self.pooled: list[int] = []
        self.total = 0
        self.unknown = 0
        self._append(graph.tasks)

    def _append(self, specs: tuple[TaskSpec, ...]) -> None:
        for spec in specs:
            self.index[spec.id] = len(self.specs)
            if spec.pools:
                self.pooled.append(len(self.specs))
            if spec.expansion is not None and spec.expansion.is_empty:
                self.hollow = {**self.hollow, len(self.specs): None}
            self.specs.append(spec)
            self.downs.append([])
            self.start.append(self.total if spec.width else -1)
            self.width.append(spec.width)
            self.buckets.append(None)
            self.total += spec.width
            self.unknown += not spec.width
        for spec in specs:
            node = self.index[spec.id]
            ups = tuple(self.index[name] for name in spec.upstream)
            self.ups.append(ups)
            for up in ups:
                self.downs[up].append(node)
        self._measure()

    def _feed(self, name: TaskId, specs: tuple[TaskSpec, ...]) -> None:
        """A task waits for the last of these, and takes what it gives."""
        node, before = self.index[name], len(self.specs)
        self._append(specs)
        last = self.index[specs[-1].id]
        self.fed = {**self.fed, node: tuple(range(before, len(self.specs)))}
        self._join(node, (*self.ups[node], last))
        self.downs[last].append(node)
        self._measure()

    def _let_go(self, name: TaskId) -> None:
        """A task waits no more for those that it went on as."""
        node = self.index[name]
        stages = self.fed[node]
        self.fed = {other: grown for other, grown in self.fed.items() if other != node}
        self.gone = {**self.gone, **dict.fromkeys(stages)}
        self._join(node, tuple(up for up in self.ups[node] if up != stages[-1]))
        for stage in stages:
            del self.index[self.specs[stage].id]
            self.retired = {**self.retired, **dict.fromkeys(self.tasks_of(stage), stage)}
            self.ups[stage], self.downs[stage] = (), []
        self._measure()

    def _join(self, node: int, ups: tuple[int, ...]) -> None:
        spec, names = self.specs[node], tuple(self.specs[up].id for up in ups)
        # Those of the definition are kept; what it is fed with stands behind them.
        added = tuple(name for name in names if name not in spec.upstream)
        inputs = tuple(name for name in spec.inputs if name in names) + added
        self.ups[node] = ups
        self.specs[node] = msgspec.structs.replace(spec, upstream=names, inputs=inputs)

    def _measure(self) -> None:
        self.has_edges = any(self.ups)
        self.up_total = [sum(self.width[up] or 1 for up in ups) for ups in self.ups]
        self.rules = [effective_rule(spec) for spec in self.specs]
        self.by_rank = _order(self.ups, self.downs) if self.has_edges else list(range(len(self.specs)))
        self.rank = self.by_rank
        if self.has_edges:
            self.rank = [0] * len(self.specs)
            for number, node in enumerate(self.by_rank):
                self.rank[node] = number
        if any(width != 1 for width in self.width) or self.start != list(range(self.total)):
            nodes = array("I", bytes(4 * self.total))
            for node, (start, width) in enumerate(zip(self.start, self.width, strict=True)):
                for task in range(start, start + width):
                    nodes[task] = node
            for task, node in self.retired.items():
                nodes[task] = node
            self.node_of = nodes
        else:
            self.node_of = None
        self.leaf = _leaves(self.specs, self.downs)
        for node in self.gone:
            self.leaf[node] = 0
        # Of nodes mapped over the output of another, that one.
        self.over = {
            node: self.index[spec.expansion.over]
            for node, spec in enumerate(self.specs)
            if spec.expansion is not None and spec.expansion.over
        }
        # Nodes over whose output another is mapped: how their own tasks ended is counted.
        self.sources = dict.fromkeys(self.over.values())
        # Nodes that wait for the run before.
        self.past = {node: None for node, spec in enumerate(self.specs) if spec.depends_on_past}
        self.setups: dict[int, tuple[int, ...]] = {}
        self.setup_downs: dict[int, list[int]] = {}
        if any(spec.is_setup for spec in self.specs):
            present = [spec for node, spec in enumerate(self.specs) if node not in self.gone]
            for name, setups in relevant_setups(present).items():
                node = self.index[name]
                if self.rules[node] is TriggerRule.ALL_DONE_SETUP_SUCCESS:
                    self.setups[node] = tuple(up for up in self.ups[node] if self.specs[up].is_setup)
                else:
                    self.setups[node] = tuple(self.index[setup] for setup in setups)
                for setup in self.setups[node]:
                    self.setup_downs.setdefault(setup, []).append(node)

    def node(self, task: int) -> int:
        """The node a task belongs to."""
        return task if self.node_of is None else self.node_of[task]

    def spec(self, task: int) -> TaskSpec:
        """The definition of a task."""
        return self.specs[task if self.node_of is None else self.node_of[task]]

    def task_id(self, task: int) -> TaskId:
        """The name of a task for people: `extract`, or `extract[3]` in a group."""
        node = self.node(task)
        spec = self.specs[node]
        return TaskId(f"{spec.id}[{task - self.start[node]}]") if self.is_group(node) else spec.id

    def is_group(self, node: int) -> bool:
        """Whether a node stands for a group of tasks, however many of them there are."""
        return self.specs[node].width != 1 or self.width[node] != 1 or self.specs[node].expansion is not None

    @property
    def is_single(self) -> bool:
        """Whether the graph is one task that is run, and nothing else."""
        return self.total == 1 and len(self.specs) == 1 and not self.hollow

    @property
    def to_end(self) -> int:
        """How many tasks must end before the run does."""
        return self.total - len(self.retired)

    def tasks_of(self, node: int) -> range:
        """The numbers of a node's tasks; none while its width is not known."""
        return range(self.start[node], self.start[node] + self.width[node]) if self.width[node] else range(0)

    def signature(self, node: int) -> Signature:
        """What the tasks of a node ask for, the graph's own limit included."""
        spec = self.specs[node]
        pools = spec.pools
        if self.graph.max_active_tasks:
            pools = (*pools, PoolNeed(graph_pool(self.graph.name)))
        return Signature(self.tenant, spec.queue, spec.kind, spec.requires, pools)

    def grown(self, growth: Growth) -> "LiveGraph":
        """A private copy with more tasks or fewer, or with the width of a node filled in."""
        copy = object.__new__(LiveGraph)
        for name in LiveGraph.__slots__:
            setattr(copy, name, getattr(self, name))
        copy.users = 0
        copy.specs = list(self.specs)
        copy.index = dict(self.index)
        copy.ups = list(self.ups)
        copy.downs = [list(downs) for downs in self.downs]
        copy.start = list(self.start)
        copy.width = list(self.width)
        copy.buckets = [None] * len(self.specs)
        copy.pooled = list(self.pooled)
        if growth.expands:
            node = copy.index[growth.expands]
            if self.width[node]:
                # It was another width before, or mapped over nothing: those numbers are not used again.
                copy.retired = {**self.retired, **dict.fromkeys(self.tasks_of(node), node)}
                copy.hollow = {other: None for other in self.hollow if other != node}
                copy.unknown += 1
            copy.start[node] = copy.total
            copy.width[node] = growth.width or 1
            copy.total += growth.width or 1
            if not growth.width:
                copy.hollow = {**copy.hollow, node: None}
            copy.unknown -= 1
            copy._measure()
        elif growth.feeds and growth.specs:
            copy._feed(growth.feeds, growth.specs)
        elif growth.feeds:
            copy._let_go(growth.feeds)
        else:
            copy._append(growth.specs)
        return copy


def graph_pool(name: str) -> str:
    """The pool that stands for a graph's `max_active_tasks`. Users cannot define a name with an @."""
    return f"@graph/{name}"


def _leaves(specs: list[TaskSpec], downs: list[list[int]]) -> bytearray:
    """Nodes whose outcome decides the run's: the last ones, teardowns aside unless they are told to fail the run."""
    counts = [not spec.is_teardown or spec.on_failure_fail_run for spec in specs]
    if not any(counts):
        counts = [True] * len(specs)
    return bytearray(counts[node] and not any(counts[down] for down in downs[node]) for node in range(len(specs)))


def _order(ups: list[tuple[int, ...]], downs: list[list[int]]) -> list[int]:
    """Nodes, each after all its upstreams: the order in which a cascade judges."""
    missing = [len(above) for above in ups]
    ready = [node for node, count in enumerate(missing) if not count]
    for node in ready:
        for down in downs[node]:
            missing[down] -= 1
            if not missing[down]:
                ready.append(down)
    return ready


def below_of(graph: LiveGraph, nodes: list[int]) -> dict[int, None]:
    """Every node that comes after some of these."""
    seen: dict[int, None] = {}
    queue = [down for node in nodes for down in graph.downs[node]]
    while queue:
        node = queue.pop()
        if node not in seen:
            seen[node] = None
            queue.extend(graph.downs[node])
    return seen
