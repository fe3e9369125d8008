"""Writing a graph down in Python: `@task`, `@graph`, `command`, `http`.

Inside a function decorated with `@graph`, calling a task does not run it: it adds a node and gives its output, which
other tasks take as an argument. That is the edge. Outside of a graph a task is the plain function it was, so it can be
tested as one.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

import msgspec
from msgspec import structs

from rota.core.errors import Refused
from rota.core.model import Graph
from rota.kinds.workflow.arguments import argument
from rota.kinds.workflow.draft import Draft, Options, Output, Parameter, current
from rota.kinds.workflow.functions import refer
from rota.wire.values import Unserialisable
from rota.wire.web import check_request
from rota.wire.work import COMMAND, HTTP, PYTHON, Argument, CommandWork, HttpWork, PythonWork, encode_work

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A function that can be a task of a graph, or all of one: `rota.submit(task, {"argument": 1})`."""

    def __init__(self, function: Callable[P, R], options: Options) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        # What a runner calls when it finds this under its name.
        self.__rota_function__ = function
        self.options = options
        self.name = options.id or _name_of(function)
        self._signature = _signature_of(function)
        self._alone: GraphFunction | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """In a graph: a new task, and its output. Elsewhere: the function."""
        draft = current.get()
        if draft is None:
            return self.function(*args, **kwargs)
        return self._add(draft, args, kwargs)  # pyright: ignore[reportReturnType] - in a graph an output stands for it

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """A task among a class's methods is bound like any other."""
        if instance is None:
            return self
        bind = getattr(self.function, "__get__", None)
        return self if bind is None else Task(bind(instance, owner), self.options)

    def with_options(self, **options: Any) -> "Task[P, R]":
        """The same function as a task with other options."""
        return Task(self.function, _options({**structs.asdict(self.options), **options}))

    def build(self) -> Graph:
        """A graph of this task alone; the function's parameters are those of its runs."""
        return self._graph().build()

    def functions(self) -> dict[str, Callable[..., Any]]:
        """The function, by the id of its task."""
        return self._graph().functions()

    def params(self, given: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a run, checked."""
        return self._graph().params(given)

    def _graph(self) -> "GraphFunction":
        if self._alone is None:
            parameters = self._signature.parameters.values() if self._signature is not None else ()
            first = [each.name for each in parameters if each.kind is each.POSITIONAL_ONLY]
            # However many more it takes, a run gives none.
            named = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]

            def alone(**params: Any) -> None:
                call = cast(Callable[..., Any], self)
                call(*(params.pop(name) for name in first), **params)

            fields = [each.replace(kind=each.KEYWORD_ONLY) for each in named]
            alone.__signature__ = inspect.Signature(fields)  # pyright: ignore[reportFunctionMemberAccess] - inspect looks for it
            self._alone = GraphFunction(alone, {"name": self.name})
        return self._alone

    def _add(self, draft: Draft, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Output:
        try:
            if self._signature is not None:
                self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"task {self.name!r}: {error}") from None
        reference = self._refer(draft)
        upstream: list[str] = []

        def taken(name: str, value: Any) -> Argument:
            try:
                return argument(value, draft, upstream, by_name=bool(reference.file))
            except TypeError as error:
                raise TypeError(f"task {self.name!r}, {name}: {error}") from None

        work = structs.replace(
            reference,
            args=tuple(taken(f"argument {number}", value) for number, value in enumerate(args, start=1)),
            kwargs=tuple((key, taken(key, value)) for key, value in kwargs.items()),
        )
        output = draft.add(self.name, PYTHON, encode_work(work), self.options, upstream)
        draft.functions[output.id] = self.function
        return output

    def _refer(self, draft: Draft) -> PythonWork:
        try:
            return draft.reference(self.function, refer)
        except Unserialisable as error:
            raise TypeError(f"task {self.name!r}: {error}") from None


def _signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:
        # Some that are written in C have none.
        return None


def _name_of(function: Any) -> str:
    if isinstance(function, functools.partial):
        return _name_of(function.func)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - of anything
    name = getattr(function, "__name__", type(function).__name__)
    return "task" if name == "<lambda>" else name


def _options(said: dict[str, Any]) -> Options:
    try:
        return msgspec.convert(said, Options)
    except msgspec.ValidationError as error:
        raise TypeError(f"an option of a task: {error}") from None


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(**options: Any) -> Callable[[Callable[P, R]], Task[P, R]]: ...


def task(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Make a function a task: `@task`, or `@task(retries=3, timeout_s=60)`."""
    said = _options(options)

    def decorate(function: Callable[P, R]) -> Task[P, R]:
        if not callable(function):
            raise TypeError(f"@task is for functions, not for {function!r}")
        return Task(function, said)

    return decorate if function is None else decorate(function)


def command(
    line: str | Sequence[str], /, *, env: dict[str, str] | None = None, cwd: str = "", **options: Any
) -> Output:
    """A task that runs a program: a line for the shell, or a list of words that is run as it is."""
    draft = current.get()
    if draft is None:
        raise TypeError("command() makes a task of a graph: call it inside a function decorated with @graph")
    said = _options(options)
    shell = isinstance(line, str)
    words = line.split() if shell else [str(word) for word in line]
    if not words:
        raise Refused("field.value", "a command needs at least one word", path="command")
    work = CommandWork(
        argv=() if shell else tuple(words),
        shell=line if isinstance(line, str) else "",
        env=tuple((key, str(value)) for key, value in (env or {}).items()),
        cwd=cwd,
    )
    name = said.id or words[0].rsplit("/", 1)[-1]
    return draft.add(name, COMMAND, encode_work(work), said, ())


def http(
    method: str,
    url: str,
    /,
    *,
    headers: dict[str, str] | None = None,
    body: bytes | str = b"",
    json: Any = None,
    accepted: Sequence[int] = (200, 201, 202, 204),
    timeout_s: float = 60,
    **options: Any,
) -> Output:
    """A task that sends a request and gives what is answered: a value if it is JSON, else a text or bytes.

    A status that is not accepted is a failure, tried again as the task's retries say. Definitions are stored as they
    are written: anybody who may read runs may read the headers.
    """
    draft = current.get()
    if draft is None:
        raise TypeError("http() makes a task of a graph: call it inside a function decorated with @graph")
    said = _options({**options, "timeout_s": timeout_s})
    sent = {str(name): str(value) for name, value in (headers or {}).items()}
    if json is not None:
        if body:
            raise TypeError("a request has one body: json or body")
        try:
            body = msgspec.json.encode(json)
        except (TypeError, ValueError) as error:
            raise TypeError(f"this cannot be sent as JSON: {error}") from None
        if "content-type" not in (name.lower() for name in sent):
            sent["Content-Type"] = "application/json"
    work = HttpWork(
        method=method.upper(),
        url=url,
        headers=tuple(sent.items()),
        body=body.encode() if isinstance(body, str) else body,
        accepted=tuple(accepted),
        timeout_ms=round(timeout_s * 1_000),
    )
    host = check_request(work).hostname or ""
    return draft.add(said.id or f"{work.method.lower()}-{host}", HTTP, encode_work(work), said, ())


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
            token = current.set(draft)
            try:
                self.function(**{name: Parameter(name) for name in (*self.required, *self.defaults)})
            finally:
                current.reset(token)
            self._built = Graph(name=self.name, tasks=draft.finish(), **self._fields)
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


__all__ = ["GraphFunction", "Options", "Output", "PythonWork", "Task", "command", "graph", "http", "task"]
