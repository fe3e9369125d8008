"""Groups of tasks: `with task_group("load"):`, or a function decorated with `@task_group`."""

import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from rota.kinds.workflow.draft import Group, current
from rota.kinds.workflow.options import TaskOptions, check_options

P = ParamSpec("P")
R = TypeVar("R")


class GroupFunction(Generic[P, R]):
    """A function whose tasks are a group, each time it is called."""

    def __init__(self, function: Callable[P, R], name: str, options: TaskOptions) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._name = name
        self._options = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """In a workflow: a new group, and what the function returns, or the group if it returns nothing."""
        draft = current.get()
        if draft is None:
            return self.function(*args, **kwargs)
        group = draft.open_group(self._name, self._options, is_chosen=False)
        try:
            given = self.function(*args, **kwargs)
        finally:
            draft.close_group()
        return group if given is None else given  # pyright: ignore[reportReturnType] - a group can stand at an arrow


class OpenGroup:
    """`with task_group("load"):` makes what is written inside a group; also a decorator."""

    def __init__(self, name: str, options: TaskOptions) -> None:
        self._name = name
        self._options = options

    def __enter__(self) -> Group:
        draft = current.get()
        if draft is None:
            raise TypeError(
                "task_group() groups tasks of a workflow: use it inside a function decorated with @workflow"
            )
        if not self._name:
            raise TypeError('a group needs a name: task_group("load")')
        return draft.open_group(self._name, self._options, is_chosen=True)

    def __exit__(self, *exc: object) -> None:
        draft = current.get()
        assert draft is not None, "a workflow is not finished within a group"
        draft.close_group()

    def __call__(self, function: Callable[P, R]) -> GroupFunction[P, R]:
        """Decorate a function."""
        return GroupFunction(function, self._name or function.__name__, self._options)


@overload
def task_group(function: Callable[P, R], /) -> GroupFunction[P, R]: ...


@overload
def task_group(name: str = "", /, **options: Unpack[TaskOptions]) -> OpenGroup: ...


def task_group(name: Any = "", /, **options: Any) -> Any:
    """A group of tasks. Its options are those of its tasks, where they say nothing."""
    if "id" in options:
        raise TypeError('the name of a group comes first: task_group("load")')
    said = check_options(options)
    if callable(name):
        return GroupFunction(name, getattr(name, "__name__", "group"), said)
    return OpenGroup(name, said)
