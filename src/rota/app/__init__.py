"""The composition root: the one place that names concrete stores, runners and ways in.

What is offered here is imported when it is first used: a front end, which has to be back quickly, needs no coordinator.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.app.embedded import AsyncRota, Rota

    connect = Rota.connect

__all__ = ["DEFAULT_FOLDER", "AsyncRota", "Rota", "connect"]

DEFAULT_FOLDER = ".rota"


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'rota.app' has no attribute {name!r}")
    embedded = import_module("rota.app.embedded")
    return embedded.Rota.connect if name == "connect" else getattr(embedded, name)
