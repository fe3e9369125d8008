"""A graph while it is being written down: its tasks, their outputs, and what waits for what."""

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any

from msgspec import Struct, structs

from rota.core.bounds import ID_CHARS_MAX
from rota.core.errors import Refused
from rota.core.model import PoolNeed, RetryPolicy, TaskSpec
from rota.core.trigger import TriggerRule
from rota.wire.work import PythonWork


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be said about a task besides what it runs. Times are in seconds here, as people write them."""

    id: str = ""
    retries: int = 0
    retry_delay_s: float = 0
    retry_multiplier: int = 1
    timeout_s: float = 0
    trigger_rule: str = "all_success"
    queue: str = "default"
    requires: dict[str, str | int] = {}
    pools: dict[str, int] = {}
    priority: int = 0
    setup: bool = False
    teardown: bool = False


class Output:
    """What a task of a graph will give. `a >> b` makes b wait for a without taking what it gives."""

    __slots__ = ("draft", "id")

    def __init__(self, draft: "Draft", id: str) -> None:
        self.draft = draft
        self.id = id

    def after(self, *others: "Output | Sequence[Output]") -> "Output":
        """Wait for others."""
        self.draft.link(others, self)
        return self

    def __rshift__(self, other: "Output | Sequence[Output]") -> "Output | Sequence[Output]":
        for one in _outputs((other,)):
            self.draft.link((self,), one)
        return other

    def __lshift__(self, other: "Output | Sequence[Output]") -> "Output | Sequence[Output]":
        self.draft.link((other,), self)
        return other

    def __rrshift__(self, others: "Sequence[Output]") -> "Output":
        self.draft.link(others, self)
        return self

    def __bool__(self) -> bool:
        raise _too_early(f"the output of {self.id!r}")

    def __iter__(self) -> Any:
        raise _too_early(f"the output of {self.id!r}")

    def __getitem__(self, key: object) -> Any:
        raise _too_early(f"the output of {self.id!r}")

    def __format__(self, spec: str) -> str:
        raise _too_early(f"the output of {self.id!r}")

    def __reduce__(self) -> Any:
        raise _too_deep(f"the output of {self.id!r}")

    def __repr__(self) -> str:
        return f"<output of task {self.id!r}>"


class Parameter:
    """A parameter of a graph: known when a run starts, not while the graph is written down."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __bool__(self) -> bool:
        raise _too_early(f"the parameter {self.name!r}")

    def __iter__(self) -> Any:
        raise _too_early(f"the parameter {self.name!r}")

    def __getitem__(self, key: object) -> Any:
        raise _too_early(f"the parameter {self.name!r}")

    def __eq__(self, other: object) -> bool:
        raise _too_early(f"the parameter {self.name!r}")

    __hash__ = object.__hash__

    def __format__(self, spec: str) -> str:
        raise _too_early(f"the parameter {self.name!r}")

    def __reduce__(self) -> Any:
        raise _too_deep(f"the parameter {self.name!r}")

    def __repr__(self) -> str:
        return f"<parameter {self.name!r}>"


def _too_early(what: str) -> TypeError:
    return TypeError(
        f"{what} is not known while the graph is written down. Pass it to a task, and look at it there; "
        "or make it a constant of the module."
    )


def _too_deep(what: str) -> TypeError:
    return TypeError(
        f"{what} is inside an object, where it cannot be found. "
        "Pass it as an argument of its own, or in a list, a tuple or a dictionary."
    )


class Draft:
    """A graph while it is being written down."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.specs: dict[str, TaskSpec] = {}
        self.functions: dict[str, Callable[..., Any]] = {}
        self._references: dict[int, PythonWork] = {}
        self._kept: list[Callable[..., Any]] = []
        self._numbers: dict[str, int] = {}
        # What waits for what, besides the outputs it takes.
        self._links: dict[str, dict[str, None]] = {}

    def add(self, id: str, kind: str, work: bytes, options: Options, upstream: Iterable[str]) -> Output:
        """Add a node; a name that is taken gets a number."""
        if not 0 < len(id) <= ID_CHARS_MAX:
            raise Refused("field.size", f"a task's id has 1 to {ID_CHARS_MAX} characters: {id[:50]!r}", path="id")
        named = id
        if named in self.specs and options.id:
            raise Refused("graph.duplicate_id", f"two tasks of graph {self.name!r} are called {id!r}", path="id")
        while named in self.specs:
            self._numbers[id] = self._numbers.get(id, 1) + 1
            named = f"{id}_{self._numbers[id]}"
        inputs = tuple(dict.fromkeys(upstream))
        self.specs[named] = TaskSpec(
            id=named,
            kind=kind,
            work=work,
            upstream=inputs,
            inputs=inputs,
            trigger_rule=_rule(options.trigger_rule),
            is_setup=options.setup,
            is_teardown=options.teardown,
            queue=options.queue,
            requires=tuple((name, str(value)) for name, value in options.requires.items()),
            pools=tuple(PoolNeed(pool, amount) for pool, amount in options.pools.items()),
            priority=options.priority,
            retry=RetryPolicy(
                retries=options.retries,
                delay_ms=round(options.retry_delay_s * 1000),
                multiplier=options.retry_multiplier,
            ),
            timeout_ms=round(options.timeout_s * 1000),
        )
        return Output(self, named)

    def reference(self, function: Callable[..., Any], refer: Callable[[Any], PythonWork]) -> PythonWork:
        """How a function is found, worked out once for all its tasks in this graph."""
        found = self._references.get(id(function))
        if found is None:
            found = self._references[id(function)] = refer(function)
            # So that no other function gets its number.
            self._kept.append(function)
        return found

    def link(self, before: Iterable["Output | Sequence[Output]"], after: Output) -> None:
        """Make one task wait for others."""
        names = self._links.setdefault(after.id, {})
        for one in _outputs(before):
            if one.draft is not self or after.draft is not self:
                raise TypeError(f"{one.id!r} and {after.id!r} are tasks of different graphs")
            names[one.id] = None

    def finish(self) -> tuple[TaskSpec, ...]:
        """The tasks, with everything that each waits for."""
        return tuple(
            structs.replace(spec, upstream=tuple(dict.fromkeys((*spec.upstream, *self._links[spec.id]))))
            if spec.id in self._links
            else spec
            for spec in self.specs.values()
        )


def _outputs(items: "Iterable[Output | Sequence[Output]]") -> list[Output]:
    found: list[Output] = []
    for item in items:
        for one in (item,) if isinstance(item, Output) else item:
            if not isinstance(one, Output):  # pyright: ignore[reportUnnecessaryIsInstance] - users do not run a type checker
                raise TypeError(f"{one!r} is not a task of this graph")
            found.append(one)
    return found


def _rule(name: str) -> TriggerRule:
    try:
        return TriggerRule(name)
    except ValueError:
        known = ", ".join(TriggerRule)
        raise Refused("field.value", f"{name!r} is no trigger rule", f"Use one of {known}.", path="rule") from None


# The graph that is being written down here and now, if any.
current: ContextVar[Draft | None] = ContextVar("draft", default=None)
