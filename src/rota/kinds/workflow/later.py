"""What is known only when a run is there: nobody can compute with it, or decide by it, while a workflow is written."""

from abc import ABC, abstractmethod
from typing import Any, NoReturn

# What would look at a value. Arrows are not among them, nor `is` and `isinstance`, which look at the thing itself.
_LOOKS = (
    *("bool", "iter", "next", "len", "contains", "getitem", "setitem", "delitem", "reversed"),
    *("str", "format", "int", "float", "complex", "index", "bytes", "round"),
    *("eq", "ne", "lt", "le", "gt", "ge"),
    *("neg", "pos", "abs", "invert"),
    *(
        f"{side}{name}"
        for name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "and", "or", "xor")
        for side in ("", "r")
    ),
)


class Later(ABC):
    """Stands for a value of a run while the workflow is written down. It can be passed on, and nothing else."""

    __slots__ = ()

    @abstractmethod
    def told(self) -> str:
        """What it is, for messages."""

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self.told()} is inside an object, where it cannot be found. "
            "Pass it as an argument of its own, or in a list, a tuple or a dictionary."
        )


def _look(later: Later, *_others: object) -> NoReturn:
    raise TypeError(
        f"{later.told()} is not known while the workflow is written down. Pass it to a task, and look at it there; "
        "or make it a constant of the module."
    )


for _name in _LOOKS:
    # Not in the class: one that defines how it is compared could not be a key any more.
    setattr(Later, f"__{_name}__", _look)
