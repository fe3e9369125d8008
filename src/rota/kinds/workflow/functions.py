"""Naming a function so that another process can find it; one that has no such name travels pickled."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from rota.wire.values import pack
from rota.wire.work import PythonWork

# The name under which a script is loaded that was not started as one.
SCRIPT = "__rota_script__"


def refer(task: Any) -> PythonWork:
    """How to find a task's function again: by module and name if that leads back to it, else by value."""
    module = sys.modules.get(task.__module__)
    name = task.__qualname__
    if module is None or _look_up(module, name) not in (task, task.function):
        return _by_value(task)
    file = getattr(module, "__file__", None)
    if task.__module__ in ("__main__", SCRIPT):
        # A notebook or a prompt has no file to load it from again.
        return PythonWork(function=f"{SCRIPT}:{name}", file=str(Path(file).resolve())) if file else _by_value(task)
    return PythonWork(function=f"{task.__module__}:{name}", path=_import_path(task.__module__, module))


def _by_value(task: Any) -> PythonWork:
    name = f"{task.__module__}:{task.__qualname__}"
    return PythonWork(function=name, pickled=pack(task.function, f"the function {name}")[1])


def _look_up(module: ModuleType, name: str) -> object:
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _import_path(name: str, module: ModuleType) -> str:
    """The folder from which a module is imported; empty if it comes with the interpreter's own paths."""
    file = getattr(module, "__file__", None)
    if not file:
        return ""
    folder = Path(file).resolve().parent
    for _ in range(name.count(".") + (1 if Path(file).name == "__init__.py" else 0)):
        folder = folder.parent
    return "" if any(part in ("site-packages", "dist-packages") for part in folder.parts) else str(folder)
