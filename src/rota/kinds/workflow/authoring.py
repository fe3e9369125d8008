"""Writing a workflow down in Python: `@workflow`, around calls of its tasks.

The function is called once, when the workflow is built. Its parameters are those of each run.
"""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from difflib import get_close_matches
from types import NoneType
from typing import Any, TypedDict, Unpack, cast, overload
from zoneinfo import ZoneInfo

from rota.core.calendar import ScheduleSpec
from rota.core.errors import Refused
from rota.core.graph import check_graph
from rota.core.model import Graph, Param, ParamType
from rota.core.params import check_declared, check_params, default_of
from rota.kinds.workflow.draft import TASKS_PER_WORKFLOW_MAX, Draft, current
from rota.kinds.workflow.functions import bundle_root, root_of
from rota.kinds.workflow.options import Seconds, TaskOptions, check_options, millis
from rota.kinds.workflow.parameters import params_of, stand_ins
from rota.kinds.workflow.places import RefusedAt, place_of
from rota.kinds.workflow.schedules import schedule_of
from rota.kinds.workflow.wiring import specs_of
from rota.running import unpack_params
from rota.wire.given import packed, priority_class
from rota.wire.instants import When, check_instants

_SECONDS = (int, float, timedelta)
# What is not checked by who reads it.
_KINDS: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "schedule": (str, *_SECONDS, NoneType),
    "start": (date, str, NoneType),
    "end": (date, str, NoneType),
    "timezone": (str,),
    "catchup": (bool,),
    "max_active_runs": (int,),
    "max_active_tasks": (int,),
    "run_timeout": _SECONDS,
    "default_args": (dict,),
    "paused": (bool, NoneType),
    "description": (str,),
}
_TASK = re.compile(r"graph\.tasks\[([0-9]+)\]")


class WorkflowOptions(TypedDict, total=False):
    """What may be said about a workflow. 0 means no limit."""

    # The function's unless told otherwise.
    name: str
    # A cron text, a preset such as @daily, @once, @continuous, a timedelta or seconds.
    schedule: str | timedelta | float | None
    # The first and the last instant of the schedule; without a time zone of their own, in the workflow's. An end that
    # is a day means all of it.
    start: When | None
    end: When | None
    # Where the clock of its schedule hangs, also for `ds`; UTC unless told otherwise.
    timezone: str
    # Whether instants that were missed are made up for.
    catchup: bool
    # What becomes of an instant that passed while nobody looked: run_latest or skip.
    misfire: str
    # How many of its runs, and how many tasks of each, may be active at once.
    max_active_runs: int
    max_active_tasks: int
    # A run that takes longer is ended.
    run_timeout: Seconds
    # Options of its tasks, where they say nothing.
    default_args: TaskOptions
    # The class of its runs: urgent, high, normal or low.
    priority: str
    # How it is when it is first deployed; None leaves it as it is.
    paused: bool | None
    # For people; the function's docstring unless told otherwise.
    description: str


class WorkflowFunction:
    """A function that writes a workflow down."""

    def __init__(self, function: Callable[..., object], options: WorkflowOptions) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = options.get("name") or function.__name__
        self.source = place_of(function)
        self.doc = options.get("description") or inspect.getdoc(function) or ""
        self.priority = priority_class(options.get("priority", "normal"))
        self.paused = options.get("paused")
        self.param_specs: tuple[Param, ...] = params_of(self.name, function)
        self.zone = options.get("timezone", "UTC")
        self._max_active_runs = options.get("max_active_runs", 0)
        self._max_active_tasks = options.get("max_active_tasks", 0)
        self._run_timeout_ms = millis(options.get("run_timeout", 0))
        self._defaults = check_options(options.get("default_args", {}))
        if "id" in self._defaults:
            raise TypeError(f"workflow {self.name!r}: an id is of one task, and cannot be among default_args")
        self._built: Graph | None = None
        self._functions: dict[str, Callable[..., Any]] = {}
        try:
            check_declared(self.param_specs)
            self.schedule: ScheduleSpec | None = schedule_of(
                options.get("schedule"),
                start=options.get("start"),
                end=options.get("end"),
                timezone=self.zone,
                catchup=options.get("catchup", False),
                misfire=options.get("misfire", "run_latest"),
                max_active_runs=self._max_active_runs,
            )
            defaults = {param.name: default_of(param) for param in self.param_specs if param.default is not None}
            check_instants(self.param_specs, defaults, self.zone)
        except Refused as error:
            raise self._placed(error, self.source) from None

    def build(self) -> Graph:
        """The graph as the scheduler knows it. Written down once; runs differ only in their parameters."""
        if self._built is None:
            given = stand_ins(self.param_specs)
            draft = Draft(self.name, tuple(given), self._defaults, self.zone)
            token = current.set(draft)
            try:
                self.function(**given)
            finally:
                current.reset(token)
            self._built = self._checked(draft)
            self._functions = draft.functions
        return self._built

    def functions(self) -> dict[str, Callable[..., Any]]:
        """The functions of the workflow's tasks, by the tasks' ids."""
        self.build()
        return self._functions

    def __rota_inside__(self, qualname: str) -> Callable[..., Any] | None:
        """A function that is written inside this one. A runner asks for it by the name it has in a bundle."""
        token = bundle_root.set(root_of(self.function))
        try:
            found = self.functions().values()
        finally:
            bundle_root.reset(token)
        return next((each for each in found if getattr(each, "__qualname__", "") == qualname), None)

    def params(self, given: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a run: what was given, and the defaults of the rest but for its logical date."""
        try:
            found = unpack_params(check_params(self.param_specs, packed(given)))
            check_instants(self.param_specs, found, self.zone)
            return found
        except Refused as error:
            raise Refused(error.code, f"workflow {self.name!r}: {error.reason}", error.hint, path=error.path) from None

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        """Call the function as it is: its tasks run here and now, one after the other. Its logical date is now."""
        return self.function(*args, **{**self._dates_of_now(args, kwargs), **kwargs})

    def _dates_of_now(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that a call leaves to the logical date."""
        names = list(inspect.signature(self.function).parameters)
        given = {*names[: len(args)], *kwargs}
        now = datetime.now(ZoneInfo(self.zone))  # noqa: TID251 - a function that is called is about now
        values = {ParamType.DATE: now.date(), ParamType.DATETIME: now, ParamType.STRING: now.isoformat()}
        return {
            param.name: values[param.type]
            for param in self.param_specs
            if param.defaults_to_logical_date and param.name not in given
        }

    def _checked(self, draft: Draft) -> Graph:
        try:
            graph = Graph(
                name=self.name,
                tasks=specs_of(draft),
                max_active_runs=self._max_active_runs,
                max_active_tasks=self._max_active_tasks,
                run_timeout_ms=self._run_timeout_ms,
            )
            total = sum(spec.width or 1 for spec in graph.tasks)
            if total > TASKS_PER_WORKFLOW_MAX:
                text = f"it has {total:,} tasks, and {TASKS_PER_WORKFLOW_MAX:,} are the most"
                raise Refused("graph.width", text, "Give each task more to do.")
            check_graph(graph)
            return graph
        except Refused as error:
            found = _TASK.match(error.path)
            if found is None:
                raise self._placed(error, self.source) from None
            raise self._placed(error, list(draft.nodes.values())[int(found[1])].place) from None

    def _placed(self, error: Refused, place: str) -> Refused:
        """The same refusal, with where it was written."""
        text = f"workflow {self.name!r}: {error.reason}"
        return RefusedAt(Refused(error.code, text, error.hint, path=error.path), place)


@overload
def workflow(function: Callable[..., object], /) -> WorkflowFunction: ...


@overload
def workflow(**options: Unpack[WorkflowOptions]) -> Callable[[Callable[..., object]], WorkflowFunction]: ...


def workflow(function: Callable[..., object] | None = None, /, **options: Any) -> Any:
    """Make a function a workflow: `@workflow`, or `@workflow(schedule="@daily", timezone="Europe/Berlin")`."""
    said = _checked_options(options)

    def decorate(function: Callable[..., object]) -> WorkflowFunction:
        return WorkflowFunction(function, said)

    return decorate if function is None else decorate(function)


def _checked_options(options: Mapping[str, Any]) -> WorkflowOptions:
    known = tuple(WorkflowOptions.__annotations__)
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise TypeError(f"a workflow has no option {name!r}; {hint}")
        wanted = _KINDS.get(name, (object,))
        value = options[name]
        # True is a number to Python, and to nobody else.
        if not isinstance(value, wanted) or (isinstance(value, bool) and not {bool, object} & set(wanted)):
            raise TypeError(f"the option {name!r} of a workflow cannot be {value!r}")
    return cast(WorkflowOptions, options)
