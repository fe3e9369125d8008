"""How asking the mechanical scheduler for something can end badly."""

from collections.abc import Sequence

from rota.kinds.agent.snapshots import CycleResult


class Stopped(Exception):
    """A scheduler that was stopped is not started again."""

    def __init__(self) -> None:
        super().__init__("scheduler: stopped; make another one")


class SpawnUnresolvable(Exception):
    """No agent could do what a starved run needs. The tier is skipped and asked again; the ladder goes on."""


class InvalidStatusTransition(Exception):
    """The run has moved on meanwhile. To whoever wanted to park it that is good news."""


class CycleFailed(Exception):
    """A cycle that met errors. What could be done was done, and `result` says what."""

    def __init__(self, errors: Sequence[Exception], result: CycleResult) -> None:
        self.errors = tuple(errors)
        self.result = result
        super().__init__("scheduler: " + "; ".join(str(error) or type(error).__name__ for error in errors))
