"""Writing a graph down in Python: `@task`, `@graph`, `command`.

Inside a function decorated with `@graph`, calling a task does not run it: it adds a node and gives its output, which
other tasks take as an argument. That is the edge. Outside of a graph a task is the plain function it was, so it can be
tested as one.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Generic, ParamSpec, TypeVar, overload

from msgspec import Struct, structs

from rota.core.errors import Refused
from rota.core.model import Graph, PoolNeed, RetryPolicy, TaskSpec
from rota.core.trigger import TriggerRule
from rota.kinds.workflow.functions import refer
from rota.wire.values import pack
from rota.wire.work import (
    COMMAND,
    PYTHON,
    Argument,
    CommandWork,
    OutputOf,
    ParamOf,
    PythonWork,
    Value,
    encode_work,
)

P = ParamSpec("P")
R = TypeVar("R")


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


class Parameter:
    """A parameter of a graph: known when a run starts, not while the graph is written down."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __bool__(self) -> bool:
        raise _too_early(f"the parameter {self.name!r}")

    def __iter__(self) -> Any:
        raise _too_early(f"the parameter {self.name!r}")


def _too_early(what: str) -> TypeError:
    return TypeError(
        f"{what} is not known while the graph is written down. Pass it to a task, and look at it there; "
        "or make it a constant of the module."
    )


class Draft:
    """A graph while it is being written down."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.specs: dict[str, TaskSpec] = {}
        self.functions: dict[str, Callable[..., Any]] = {}
        self._taken: dict[str, int] = {}

    def add(self, id: str, kind: str, work: bytes, options: Options, upstream: Iterable[str]) -> Output:
        """Add a node; a name that is taken gets a number."""
        named = id
        while named in self.specs:
            if options.id:
                raise Refused("graph.duplicate_id", f"two tasks of graph {self.name!r} are called {id!r}", path="id")
            self._taken[id] = self._taken.get(id, 1) + 1
            named = f"{id}_{self._taken[id]}"
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

    def link(self, before: Iterable["Output | Sequence[Output]"], after: Output) -> None:
        """Make one task wait for others."""
        spec = self.specs[after.id]
        names = tuple(dict.fromkeys((*spec.upstream, *(one.id for one in _outputs(before)))))
        self.specs[after.id] = structs.replace(spec, upstream=names)


_draft: ContextVar[Draft | None] = ContextVar("draft", default=None)


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


class Task(Generic[P, R]):
    """A function that can be a task of a graph."""

    def __init__(self, function: Callable[P, R], options: Options) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        # What a runner calls when it finds this under its name.
        self.__rota_function__ = function
        self.options = options
        self._signature = inspect.signature(function)
        self._reference: PythonWork | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """In a graph: a new task, and its output. Elsewhere: the function."""
        draft = _draft.get()
        if draft is None:
            return self.function(*args, **kwargs)
        return self._add(draft, args, kwargs)  # pyright: ignore[reportReturnType] - in a graph an output stands for it

    def with_options(self, **options: Any) -> "Task[P, R]":
        """The same function as a task with other options."""
        return Task(self.function, structs.replace(self.options, **options))

    def _add(self, draft: Draft, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Output:
        name = self.options.id or self.function.__name__
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"task {name!r}: {error}") from None
        upstream: list[str] = []
        if self._reference is None:
            self._reference = refer(self)
        work = structs.replace(
            self._reference,
            args=tuple(_argument(value, upstream) for value in args),
            kwargs=tuple((key, _argument(value, upstream)) for key, value in kwargs.items()),
        )
        output = draft.add(name, PYTHON, encode_work(work), self.options, upstream)
        draft.functions[output.id] = self.function
        return output


def _argument(value: Any, upstream: list[str]) -> Argument:
    if isinstance(value, Output):
        upstream.append(value.id)
        return OutputOf(value.id)
    if isinstance(value, Parameter):
        return ParamOf(value.name)
    return Value(*pack(value, "an argument of a task"))


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(**options: Any) -> Callable[[Callable[P, R]], Task[P, R]]: ...


def task(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Make a function a task: `@task`, or `@task(retries=3, timeout_s=60)`."""
    said = Options(**options)

    def decorate(function: Callable[P, R]) -> Task[P, R]:
        return Task(function, said)

    return decorate if function is None else decorate(function)


def command(
    line: str | Sequence[str], /, *, env: dict[str, str] | None = None, cwd: str = "", **options: Any
) -> Output:
    """A task that runs a program: a line for the shell, or a list of words that is run as it is."""
    draft = _draft.get()
    if draft is None:
        raise TypeError("command() makes a task of a graph: call it inside a function decorated with @graph")
    said = Options(**options)
    shell = isinstance(line, str)
    words = line.split() if shell else [str(word) for word in line]
    if not words:
        raise Refused("field.value", "a command needs at least one word", path="command")
    work = CommandWork(
        argv=() if shell else tuple(words),
        shell=line if isinstance(line, str) else "",
        env=tuple((env or {}).items()),
        cwd=cwd,
    )
    name = said.id or words[0].rsplit("/", 1)[-1]
    return draft.add(name, COMMAND, encode_work(work), said, ())


class GraphFunction:
    """A function that writes a graph down. Its parameters become the parameters of each run."""

    def __init__(self, function: Callable[..., object], fields: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = str(fields.pop("name", "") or function.__name__)
        self._fields = fields
        self._built: Graph | None = None
        self._functions: dict[str, Callable[..., Any]] = {}
        signature = inspect.signature(function)
        self.defaults: dict[str, Any] = {}
        self.required: list[str] = []
        for parameter in signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise TypeError(f"graph {self.name!r}: {parameter} cannot be a parameter of a run; give it a name")
            if parameter.default is parameter.empty:
                self.required.append(parameter.name)
            else:
                self.defaults[parameter.name] = parameter.default

    def build(self) -> Graph:
        """The graph as the scheduler knows it. Written down once; runs differ only in their parameters."""
        if self._built is None:
            draft = Draft(self.name)
            token = _draft.set(draft)
            try:
                self.function(**{name: Parameter(name) for name in (*self.required, *self.defaults)})
            finally:
                _draft.reset(token)
            self._built = Graph(name=self.name, tasks=tuple(draft.specs.values()), **self._fields)
            self._functions = draft.functions
        return self._built

    def functions(self) -> dict[str, Callable[..., Any]]:
        """The functions of the graph's tasks, by the tasks' ids."""
        self.build()
        return self._functions

    def params(self, given: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a run: what was given, and the defaults of the rest."""
        unknown = [name for name in given if name not in self.defaults and name not in self.required]
        missing = [name for name in self.required if name not in given]
        if unknown or missing:
            what = f"has no parameter {unknown[0]!r}" if unknown else f"needs the parameter {missing[0]!r}"
            known = ", ".join((*self.required, *self.defaults)) or "none"
            raise Refused("field.value", f"graph {self.name!r} {what}", f"Its parameters: {known}.", path="params")
        return {**self.defaults, **given}

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        """Call the function as it is: its tasks run here and now, one after the other."""
        return self.function(*args, **kwargs)


@overload
def graph(function: Callable[..., object], /) -> GraphFunction: ...


@overload
def graph(**fields: Any) -> Callable[[Callable[..., object]], GraphFunction]: ...


def graph(function: Callable[..., object] | None = None, /, **fields: Any) -> Any:
    """Make a function a graph: `@graph`, or `@graph(name="etl", max_active_runs=1)`."""

    def decorate(function: Callable[..., object]) -> GraphFunction:
        return GraphFunction(function, dict(fields))

    return decorate if function is None else decorate(function)


__all__ = ["GraphFunction", "Options", "Output", "PythonWork", "Task", "command", "graph", "task"]
