"""Tasks: functions that a workflow calls without running them.

Inside a function decorated with `@workflow`, calling a task adds it and gives its output, which other tasks take as an
argument. That is the edge. Outside of a workflow a task is the plain function it was, so it can be tested as one.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from msgspec import Struct, structs

from rota.core.errors import Refused
from rota.core.model import Graph
from rota.core.model import Param as ParamOfRuns
from rota.core.spans import show_span
from rota.kinds.workflow.arguments import Taken
from rota.kinds.workflow.draft import Draft, Output, current
from rota.kinds.workflow.functions import refer
from rota.kinds.workflow.mapping import Plan, mapped_over_lists, mapped_over_rows
from rota.kinds.workflow.options import Seconds, TaskOptions, check_options, millis
from rota.kinds.workflow.parameters import LogicalDate
from rota.kinds.workflow.places import RefusedAt, place_of
from rota.kinds.workflow.template_fields import COMMAND_TASK, as_text, as_texts, take_fields
from rota.running import Context, context
from rota.wire.values import Unserialisable
from rota.wire.web import TIMEOUT_MS_MAX
from rota.wire.work import COMMAND, HTTP, PYTHON, AnyWork, CommandWork, HttpWork, PythonWork, Sensor

if TYPE_CHECKING:
    import pyarrow

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

# A request that says nothing else is given up after so many seconds.
REQUEST_S = 60
# Each look is an attempt of its own, which goes through the scheduler.
POKE_MS_MIN = 100
WEEK_S = 7 * 24 * 3_600
# As many as a query may have (`rota.kinds.query.sizing`).
SQL_PARTITIONS_MAX = 512


class Role(Struct, frozen=True):
    """What a function is called for: its result, or what its result decides, runs or sends."""

    kind: Literal["python", "command", "http"] = "python"
    # See `draft.Node`.
    branching: str = ""
    sensor: Sensor | None = None
    may_grow: bool = False
    # Of a command: what stands beside the line that its function returns.
    fields: dict[str, Any] = {}


_PLAIN = Role()


class Task(Generic[P, R]):
    """A function that can be a task of a workflow, or all of one: `rota.submit(task, {"argument": 1})`."""

    def __init__(self, function: Callable[P, R], said: TaskOptions, role: Role = _PLAIN) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        # What a runner calls when it finds this under its name.
        self.__rota_function__ = function
        self.said = said
        self.role = role
        self.name = said.get("id") or _name_of(function)
        self.signature, self.context = _signature_of(function)
        self._check_defaults()
        self._alone: Any = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """In a workflow: a new task, and its output. Elsewhere: the function."""
        draft = current.get()
        if draft is None:
            return self.function(*args, **kwargs)
        self.check_arguments(args, kwargs)
        taken = self.taken(draft)
        work = structs.replace(
            self.reference(draft),
            args=tuple(taken.take(f"argument {number}", value) for number, value in enumerate(args, start=1)),
            kwargs=tuple((key, taken.take(key, value)) for key, value in kwargs.items()),
        )
        return self.add(draft, work, taken)  # pyright: ignore[reportReturnType] - an output stands for it

    def _check_defaults(self) -> None:
        """Refuse the logical date as a default: it is of a run, and a task gets it from its workflow."""
        parameters = self.signature.parameters.values() if self.signature is not None else ()
        for each in parameters:
            if isinstance(each.default, LogicalDate):
                text = f"task {self.name!r}: rota.logical_date() is for parameters of a workflow, not of a task"
                hint = f"Pass {each.name} from a parameter of the workflow, or read ctx.logical_date in the task."
                raise RefusedAt(Refused("field.value", text, hint, path=each.name), place_of(self.function))

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """A task among a class's methods is bound like any other."""
        if instance is None:
            return self
        bind = getattr(self.function, "__get__", None)
        return self if bind is None else Task(bind(instance, owner), self.said, self.role)

    def override(self, **options: Unpack[TaskOptions]) -> "Task[P, R]":
        """The same function as a task with other options."""
        return Task(self.function, cast(TaskOptions, {**self.said, **check_options(options)}), self.role)

    def partial(self, **fixed: Any) -> "Partial":
        """Arguments that are the same for all of a mapped task: `scale.partial(by=2).expand(x=[1, 2, 3])`."""
        return Partial(self, fixed)

    def expand(self, **lists: Any) -> Any:
        """As many tasks as there are elements: of each list one, in every combination, the last varying fastest.

        A list is a list, a tuple, a dictionary (then an element is a pair), or what another task gives.
        """
        return Partial(self, {}).expand(**lists)

    def expand_kwargs(self, rows: Any) -> Any:
        """As many tasks as there are rows: a list of dictionaries of arguments, or what another task gives."""
        return Partial(self, {}).expand_kwargs(rows)

    # For clients: a task alone is a workflow.

    def build(self) -> Graph:
        """A graph of this task alone; the function's parameters are those of its runs."""
        return self._workflow().build()

    def functions(self) -> dict[str, Callable[..., Any]]:
        """The function, by the id of its task."""
        return self._workflow().functions()

    def params(self, given: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a run, checked."""
        return self._workflow().params(given)

    @property
    def param_specs(self) -> tuple[ParamOfRuns, ...]:
        """The parameters of its runs."""
        return self._workflow().param_specs

    def _workflow(self) -> Any:
        if self._alone is None:
            from rota.kinds.workflow.authoring import WorkflowFunction  # which knows this module

            parameters = self.signature.parameters.values() if self.signature is not None else ()
            first = [each.name for each in parameters if each.kind is each.POSITIONAL_ONLY]
            # However many more it takes, a run gives none.
            named = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]

            def alone(**params: Any) -> None:
                call = cast(Callable[..., Any], self)
                call(*(params.pop(name) for name in first), **params)

            fields = [each.replace(kind=each.KEYWORD_ONLY) for each in named]
            alone.__signature__ = inspect.Signature(fields)  # pyright: ignore[reportFunctionMemberAccess] - inspect looks for it
            alone.__annotations__ = getattr(self.function, "__annotations__", {})
            # What the annotations mean, and where it was written, is known from there.
            alone.__wrapped__ = self.function  # pyright: ignore[reportFunctionMemberAccess] - inspect and typing look for it
            self._alone = WorkflowFunction(alone, {"name": self.name})
        return self._alone

    # For what adds tasks to a draft.

    def check_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse arguments that the function does not take."""
        try:
            if self.signature is not None:
                self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"task {self.name!r}: {error}") from None

    def taken(self, draft: Draft) -> Taken:
        """What takes the arguments of one task."""
        return Taken(draft, self.name, by_name=bool(self.reference(draft).file))

    def reference(self, draft: Draft) -> PythonWork:
        """The call of the function, without arguments."""
        try:
            found = draft.reference(self.function, refer)
        except Unserialisable as error:
            raise TypeError(f"task {self.name!r}: {error}") from None
        role = self.role
        return structs.replace(found, context=self.context, sensor=role.sensor, may_grow=role.may_grow, zone=draft.zone)

    def add(self, draft: Draft, call: PythonWork, taken: Taken) -> Output:
        """Add a task that makes a call with what was taken."""
        said, role = self.said, self.role
        work: AnyWork = call
        if role.kind == COMMAND:
            fields = take_fields(COMMAND_TASK, taken, role.fields)
            work = CommandWork(call=structs.replace(call, is_preparing=True, fields=fields))
        elif role.kind == HTTP:
            said, timeout_ms = limited(draft, said)
            work = HttpWork(timeout_ms=timeout_ms, call=structs.replace(call, is_preparing=True))
        kind = {COMMAND: COMMAND, HTTP: HTTP}.get(role.kind, PYTHON)
        output = draft.add(self.name, kind, work, said, taken.upstream)
        draft.nodes[output.id].branching = role.branching
        draft.functions[output.id] = self.function
        return output


class Partial:
    """A task with some of its arguments, about to be mapped over the others."""

    def __init__(self, task: Task[Any, Any], fixed: dict[str, Any]) -> None:
        self._task = task
        self._fixed = fixed

    def partial(self, **fixed: Any) -> "Partial":
        """More arguments that are the same for all."""
        return Partial(self._task, {**self._fixed, **fixed})

    def expand(self, **lists: Any) -> Any:
        """See `Task.expand`."""
        draft = self._draft("expand")
        if not lists:
            raise TypeError(f"task {self._task.name!r}: expand() needs at least one list to map over")
        self._task.check_arguments((), self._together(lists, "expand"))
        return self._add(draft, mapped_over_lists(draft, self._task.name, self._task.taken(draft), lists))

    def expand_kwargs(self, rows: Any) -> Any:
        """See `Task.expand_kwargs`."""
        draft = self._draft("expand_kwargs")
        for row in cast("list[Any]", rows) if isinstance(rows, list | tuple) else ():
            if isinstance(row, dict):
                self._task.check_arguments((), self._together(cast(dict[str, Any], row), "expand_kwargs"))
        return self._add(draft, mapped_over_rows(draft, self._task.name, self._task.taken(draft), rows))

    def _together(self, lists: dict[str, Any], what: str) -> dict[str, Any]:
        for name in lists:
            if name in self._fixed:
                raise TypeError(f"task {self._task.name!r}: {name!r} is given in both partial() and {what}()")
        return {**self._fixed, **lists}

    def _draft(self, what: str) -> Draft:
        draft = current.get()
        if draft is None:
            text = f"{what}() makes tasks of a workflow: call it inside a function decorated with @workflow"
            raise TypeError(f"{text}; elsewhere, call the function in a loop")
        if self._task.role.branching:
            raise TypeError(f"task {self._task.name!r} decides what follows, and cannot be mapped")
        return draft

    def _add(self, draft: Draft, plan: Plan) -> Output:
        taken = plan.taken
        kwargs = tuple((key, taken.take(key, value)) for key, value in self._fixed.items())
        work = structs.replace(self._task.reference(draft), kwargs=kwargs, over=plan.over)
        output = self._task.add(draft, work, taken)
        node = draft.nodes[output.id]
        node.is_mapped, node.over, node.factor = True, plan.source, plan.factor
        return output


def limited(draft: Draft, said: TaskOptions) -> tuple[TaskOptions, int]:
    """The options of a request, with the time limit that it has if nobody said one."""
    limit_ms = millis(draft.options(said).get("execution_timeout", REQUEST_S))
    if "execution_timeout" not in said:
        # What a workflow says of all its tasks is not meant to refuse a request.
        limit_ms = min(limit_ms, TIMEOUT_MS_MAX)
    if not 0 < limit_ms <= TIMEOUT_MS_MAX:
        text = f"a request cannot be given {show_span(limit_ms)}"
        hint = f"Use up to {show_span(TIMEOUT_MS_MAX)}."
        raise Refused("field.value", text, hint, path="execution_timeout")
    return cast(TaskOptions, {**said, "execution_timeout": limit_ms / 1_000}), limit_ms


def _signature_of(function: Callable[..., Any]) -> tuple[inspect.Signature | None, str]:
    """What a function takes, and the parameter that is given the context, if it has one."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        # Some that are written in C have none.
        return None, ""
    asked = signature.parameters.get("ctx")
    if asked is None or asked.annotation not in (Context, "Context", "rota.Context"):
        return signature, ""
    return signature.replace(parameters=[each for each in signature.parameters.values() if each is not asked]), "ctx"


def _name_of(function: Any) -> str:
    if isinstance(function, functools.partial):
        return _name_of(function.func)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - of anything
    name = getattr(function, "__name__", type(function).__name__)
    return "task" if name == "<lambda>" else name


class Decorators:
    """`@task`, and what else a function can be: `@task.branch`, `@task.sensor`…"""

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def __call__(self, /, **options: Unpack[TaskOptions]) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def __call__(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Make a function a task: `@task`, or `@task(retries=3, execution_timeout=60)`."""
        return _decorated(function, options, _PLAIN)

    @overload
    def branch(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def branch(self, /, **options: Unpack[TaskOptions]) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def branch(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """A task that says which of those directly after it run: an id, a list of ids, a group's name, or None."""
        return _decorated(function, options, Role(branching="branch"))

    @overload
    def short_circuit(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def short_circuit(
        self, /, *, ignore_downstream_trigger_rules: bool = True, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def short_circuit(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        ignore_downstream_trigger_rules: bool = True,
        **options: Any,
    ) -> Any:
        """A task after which nothing runs, teardowns excepted, unless it returns something true.

        Without `ignore_downstream_trigger_rules` only those directly after it are skipped; the rest is up to its rules.
        """
        branching = "condition" if ignore_downstream_trigger_rules else "condition_direct"
        return _decorated(function, options, Role(branching=branching))

    @overload
    def sensor(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def sensor(
        self,
        /,
        *,
        poke_interval: Seconds = 60,
        timeout: Seconds = WEEK_S,
        soft_fail: bool = False,
        **options: Unpack[TaskOptions],
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def sensor(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        poke_interval: Seconds = 60,
        timeout: Seconds = WEEK_S,
        soft_fail: bool = False,
        **options: Any,
    ) -> Any:
        """A task that is called again and again until it returns something true; it holds no slot meanwhile.

        After `timeout`, counted from its first start, it has failed for good, or is skipped with `soft_fail`.
        """
        for name, value in (("poke_interval", poke_interval), ("timeout", timeout)):
            if not isinstance(value, int | float | timedelta) or millis(value) < 0:  # pyright: ignore[reportUnnecessaryIsInstance] - users do not run a type checker
                raise TypeError(f"{name} is in seconds, or a timedelta, and not {value!r}")
        if millis(poke_interval) < POKE_MS_MIN:
            text = f"a sensor that looks every {millis(poke_interval)} ms keeps a worker busy with looking"
            hint = f"Use at least {POKE_MS_MIN / 1_000} s, or look again and again in the task itself."
            raise Refused("field.value", text, hint, path="poke_interval")
        return _decorated(function, options, Role(sensor=Sensor(millis(poke_interval), millis(timeout), soft_fail)))

    @overload
    def command(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def command(
        self, /, *, env: Mapping[str, str] | None = None, cwd: str = "", **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def command(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        **options: Any,
    ) -> Any:
        """A task that runs the program its function returns: a line for the shell, or a list of words.

        The variables in `env` and the folder `cwd` may be templates.
        """
        fields: dict[str, Any] = {}
        if env:
            fields["env"] = as_texts(env)
        if cwd:
            fields["cwd"] = as_text(cwd)
        return _decorated(function, options, Role(COMMAND, fields=fields))

    @overload
    def http(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def http(self, /, **options: Unpack[TaskOptions]) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def http(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """A task that sends the request its function returns, a `rota.Request`, and gives what is answered."""
        return _decorated(function, options, Role(HTTP))

    def sql(
        self, statement: str, /, *, partitions: int = 0, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, Any]], "Task[P, pyarrow.Table]"]:
        """A task that gives what a statement gives, as an Arrow table.

        The function's arguments are tables by their names: what other tasks gave (Arrow tables, frames, lists of
        dictionaries), or where files are. Those that the statement has as `$name` are values. What the function
        returns, if anything, is a dictionary of more of them.

        If there is much to read, the statement runs as stages of the same run. `partitions` says into how many parts
        data is split; 1 is all in one task, 0 is as many as there are processors, if it is worth it.
        """
        said = check_options(cast(dict[str, Any], options))
        if not isinstance(partitions, int) or not 0 <= partitions <= SQL_PARTITIONS_MAX:  # pyright: ignore[reportUnnecessaryIsInstance] - users do not run a type checker
            raise TypeError(f"partitions is a number from 0 to {SQL_PARTITIONS_MAX}, and not {partitions!r}")

        def decorate(function: Callable[P, Any]) -> "Task[P, pyarrow.Table]":
            signature = inspect.signature(function)

            @functools.wraps(function)
            def asked(*args: P.args, **kwargs: P.kwargs) -> "pyarrow.Table":
                # Where it runs, and nowhere else: it takes a while to load.
                from rota.kinds.query.statement import answer

                task = _growing_task()
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                given: dict[str, Any] = {**bound.arguments, **(function(*args, **kwargs) or {})}
                # If the task goes on as stages, they stand for the table.
                return cast("pyarrow.Table", answer(statement, given, task=task, partitions=partitions))

            return Task(asked, said, Role(may_grow=True))

        return decorate


def _growing_task() -> str:
    """The task of which this is the attempt, if it may go on as others."""
    try:
        here = context()
    except LookupError:
        return ""
    return here.task if here.take_growth() else ""


def _decorated(function: Callable[..., Any] | None, options: dict[str, Any], role: Role) -> Any:
    said = check_options(options)

    def decorate(function: Callable[..., Any]) -> Task[..., Any]:
        if not callable(function):
            raise TypeError(f"@task is for functions, not for {function!r}")
        return Task(function, said, role)

    return decorate if function is None else decorate(function)


task = Decorators()
