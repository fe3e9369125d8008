"""A workflow while it is being written down: its tasks, their outputs, groups of them, and what waits for what."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from itertools import pairwise
from typing import Any, cast

from msgspec import structs

from rota.core.bounds import ID_CHARS_MAX
from rota.core.errors import Refused
from rota.core.model import Expansion
from rota.kinds.workflow.later import Later
from rota.kinds.workflow.options import TaskOptions, spec_fields
from rota.kinds.workflow.places import here
from rota.wire.work import AnyWork, PythonWork

# More than these are not written one by one; `.expand()` makes one line of many.
TASKS_PER_WORKFLOW_MAX = 100_000


class Node:
    """One task while the workflow is written down."""

    __slots__ = (
        "branching",
        "expansion",
        "factor",
        "fields",
        "has_setups",
        "id",
        "inputs",
        "is_mapped",
        "kind",
        "over",
        "place",
        "upstream",
        "width",
        "work",
    )

    def __init__(self, id: str, kind: str, work: AnyWork, fields: dict[str, Any], inputs: Iterable[str]) -> None:
        self.id = id
        self.kind = kind
        self.work = work
        self.fields = fields
        self.inputs = tuple(dict.fromkeys(inputs))
        self.upstream = dict.fromkeys(self.inputs)
        self.place = here()
        # Of a mapped task: how many there are, or, if that is not known, over which task's output and times what.
        self.is_mapped = False
        self.width = 1
        self.expansion: Expansion | None = None
        self.over = ""
        self.factor = 1
        # What its result decides: "branch", "condition" or "condition_direct".
        self.branching = ""
        # Of a teardown: whether somebody said of which setups it is.
        self.has_setups = False


class Arrows(ABC):
    """`a >> b` makes b wait for a without taking what it gives; lists may stand on either side."""

    draft: "Draft"

    @abstractmethod
    def roots(self) -> "list[Output]":
        """Those that wait for what stands before it."""

    @abstractmethod
    def leaves(self) -> "list[Output]":
        """Those that what stands behind it waits for."""

    def after(self, *others: Any) -> Any:
        """Wait for others."""
        self.draft.link(others, self)
        return self

    def __rshift__(self, other: Any) -> Any:
        self.draft.link(self, other)
        return other

    def __lshift__(self, other: Any) -> Any:
        self.draft.link(other, self)
        return other

    def __rrshift__(self, other: Any) -> Any:
        self.draft.link(other, self)
        return self

    def __rlshift__(self, other: Any) -> Any:
        self.draft.link(self, other)
        return self


class Output(Later, Arrows):
    """What a task of a workflow will give."""

    __slots__ = ("draft", "id")

    def __init__(self, draft: "Draft", id: str) -> None:
        self.draft = draft
        self.id = id

    def roots(self) -> "list[Output]":
        """Itself."""
        return [self]

    def leaves(self) -> "list[Output]":
        """Itself."""
        return [self]

    def as_setup(self) -> "Output":
        """Make the task a setup: what lies between it and its teardowns needs it."""
        self.draft.nodes[self.id].fields["is_setup"] = True
        return self

    def as_teardown(self, *, setups: Any = (), on_failure_fail_run: bool | None = None) -> "Output":
        """Make the task a teardown of these setups: it runs when they succeeded, however what lies between ended.

        If none are named, they are those on the way to it. None leaves `on_failure_fail_run` as the task's options say.
        """
        found = self.draft.outputs((setups,))
        for setup in found:
            setup.as_setup()
        self.draft.link(found, self)
        self.draft.nodes[self.id].has_setups = bool(found)
        fields = self.draft.nodes[self.id].fields
        fields["is_teardown"] = True
        if on_failure_fail_run is not None:
            fields["on_failure_fail_run"] = on_failure_fail_run
        return self

    def told(self) -> str:
        """Whose it is."""
        return f"the output of {self.id!r}"

    def __repr__(self) -> str:
        return f"<output of task {self.id!r}>"


class Parameter(Later):
    """A parameter of a workflow: known when a run starts, not while the workflow is written down."""

    __slots__ = ("name", "read")

    def __init__(self, name: str, read: str = "") -> None:
        self.name = name
        # How the runner reads it: as a "date", a "datetime" or as it is.
        self.read = read

    def told(self) -> str:
        """Which it is."""
        return f"the parameter {self.name!r}"

    def __repr__(self) -> str:
        return f"<parameter {self.name!r}>"


class Group(Arrows):
    """Tasks that belong together: their ids begin with its name, and arrows to and from it are theirs."""

    def __init__(self, draft: "Draft", id: str, options: TaskOptions) -> None:
        self.draft = draft
        self.id = id
        self.options = options
        self.place = here()
        # Of its tasks and those of groups within it, in the order in which they were written.
        self.members: dict[str, None] = {}

    def roots(self) -> list[Output]:
        """Its tasks that wait for none of the others."""
        nodes = self._nodes()
        return [Output(self.draft, node.id) for node in nodes if not any(up in self.members for up in node.upstream)]

    def leaves(self) -> list[Output]:
        """Its tasks that none of the others waits for; teardowns are looked through."""
        nodes = self._nodes()
        counted = [node for node in nodes if not node.fields.get("is_teardown")] or nodes
        inner = {up for node in counted for up in node.upstream}
        return [Output(self.draft, node.id) for node in counted if node.id not in inner]

    def _nodes(self) -> list[Node]:
        if not self.members:
            raise TypeError(f"the group {self.id!r} has no tasks yet; write its arrows after its tasks")
        return [self.draft.nodes[id] for id in self.members]

    def __repr__(self) -> str:
        return f"<group {self.id!r}>"


class Draft:
    """A workflow while it is being written down."""

    def __init__(self, name: str, params: Sequence[str], options: TaskOptions, zone: str) -> None:
        self.name = name
        self.params = tuple(params)
        self.zone = zone
        self.nodes: dict[str, Node] = {}
        self.groups: dict[str, Group] = {}
        self.functions: dict[str, Callable[..., Any]] = {}
        self._options = options
        self._open: list[Group] = []
        self._references: dict[int, PythonWork] = {}
        self._kept: list[Callable[..., Any]] = []
        self._numbers: dict[str, int] = {}

    def add(self, name: str, kind: str, work: AnyWork, said: TaskOptions, upstream: Iterable[str]) -> Output:
        """Add a task; a name that is taken gets a number, unless somebody chose it."""
        options = self.options(said)
        id = self._new_id(said.get("id") or name, is_chosen=bool(said.get("id")), what="tasks")
        fields = spec_fields(options)
        for option, field in (("setup", "is_setup"), ("teardown", "is_teardown")):
            if options.get(option):
                fields[field] = True
        if len(self.nodes) >= TASKS_PER_WORKFLOW_MAX:
            text = f"workflow {self.name!r} has more than {TASKS_PER_WORKFLOW_MAX:,} tasks"
            raise Refused("graph.width", text, "Map one task over a list: task.expand(…).", path=here())
        doc = options.get("doc")
        if doc:
            work = structs.replace(work, doc=doc)
        self.nodes[id] = Node(id, kind, work, fields, upstream)
        for group in self._open:
            group.members[id] = None
        return Output(self, id)

    def options(self, said: TaskOptions) -> TaskOptions:
        """Options of a task, with those of its groups and its workflow where it says nothing."""
        defaults = self._open[-1].options if self._open else self._options
        return cast(TaskOptions, {**defaults, **said}) if defaults else said

    def open_group(self, name: str, options: TaskOptions, *, is_chosen: bool) -> Group:
        """Begin a group within those that are open."""
        id = self._new_id(name, is_chosen=is_chosen, what="groups")
        group = Group(self, id, self.options(options))
        self.groups[id] = group
        self._open.append(group)
        return group

    def close_group(self) -> None:
        """End the group that was opened last."""
        self._open.pop()

    def _new_id(self, name: str, *, is_chosen: bool, what: str) -> str:
        id = f"{self._open[-1].id}.{name}" if self._open else name
        if not 0 < len(id) <= ID_CHARS_MAX:
            raise Refused("field.size", f"a task's id has 1 to {ID_CHARS_MAX} characters: {id[:50]!r}", path="id")
        taken = self.nodes.get(id) or self.groups.get(id)
        if taken is not None and is_chosen:
            text = f"two {what} of workflow {self.name!r} are called {id!r}: at {taken.place} and {here()}"
            raise Refused("graph.duplicate_id", text, "Rename one of them.", path="id")
        named = id
        while named in self.nodes or named in self.groups:
            self._numbers[id] = self._numbers.get(id, 1) + 1
            named = f"{id}_{self._numbers[id]}"
        return named

    def reference(self, function: Callable[..., Any], refer: Callable[[Any], PythonWork]) -> PythonWork:
        """How a function is found, worked out once for all its tasks in this workflow."""
        found = self._references.get(id(function))
        if found is None:
            found = self._references[id(function)] = refer(function)
            # So that no other function gets its number.
            self._kept.append(function)
        return found

    def link(self, before: Any, after: Any) -> None:
        """Make some tasks wait for others."""
        ups = self.outputs((before,), at_end=True)
        for down in self.outputs((after,)):
            for up in ups:
                if up.draft is not self or down.draft is not self:
                    raise TypeError(f"{up.id!r} and {down.id!r} are tasks of different workflows")
                self.nodes[down.id].upstream[up.id] = None

    def outputs(self, items: Iterable[Any], *, at_end: bool = False) -> list[Output]:
        """The tasks that outputs, groups and lists of them stand for, seen from before or from behind."""
        found: list[Output] = []
        for item in items:
            if isinstance(item, Arrows):
                found += item.leaves() if at_end else item.roots()
            elif isinstance(item, list | tuple):
                found += self.outputs(cast(Sequence[Any], item), at_end=at_end)
            else:
                raise TypeError(f"{item!r} is not a task of this workflow")
        return found


def chain(*items: Any) -> None:
    """Make each wait for the one before: `chain(a, [b, c], [d, e], f)`. Lists of the same length go side by side."""
    draft = current.get()
    if draft is None:
        raise TypeError("chain() joins tasks of a workflow: call it inside a function decorated with @workflow")
    for before, after in pairwise(items):
        if isinstance(before, list | tuple) and isinstance(after, list | tuple):
            ups, downs = cast(Sequence[Any], before), cast(Sequence[Any], after)
            if len(ups) != len(downs):
                raise TypeError(f"chain(): lists side by side have {len(ups)} and {len(downs)} items; make them equal")
            for up, down in zip(ups, downs, strict=True):
                draft.link(up, down)
        else:
            draft.link(before, after)


# The workflow that is being written down here and now, if any.
current: ContextVar[Draft | None] = ContextVar("draft", default=None)
