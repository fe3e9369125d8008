"""Functions as users write them, in a module that can be imported."""

import functools
from typing import Any

import rota


@rota.task
def plain(value: int = 0) -> int:
    return value


@rota.task
def other(*values: object, **named: object) -> None:
    return None


class Shop:
    """Tasks among methods."""

    def __init__(self, name: str) -> None:
        self.name = name

    @rota.task
    def bound(self, item: str) -> str:
        return f"{self.name}: {item}"

    @staticmethod
    @rota.task
    def static(item: str) -> str:
        return item

    def ordinary(self, item: str) -> str:
        return f"{self.name} has {item}"


def multiply(left: int, right: int) -> int:
    return left * right


twice = rota.task(functools.partial(multiply, 2))
unnamed = rota.task(lambda value: value)


class Callable:
    """An object that can be called."""

    def __call__(self, value: int) -> int:
        return value + 1


def nested(offset: int) -> Any:
    @rota.task
    def inner(value: int) -> int:
        return multiply(value, offset)

    return inner
