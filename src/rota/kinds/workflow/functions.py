"""Naming a function so that another process can find it; one that has no such name travels pickled.

In a bundle a function is named from the bundle's root, so that the same code is the same graph wherever it was written.
Nothing travels pickled there: a pickle of code has the paths of the machine it was made on in it.
"""

import sys
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from rota.wire.scripts import SCRIPT
from rota.wire.values import Unserialisable, pack
from rota.wire.work import PythonWork

_INSTALLED = ("site-packages", "dist-packages")

# In the names of functions that are written inside others.
LOCALS = ".<locals>."
# The root of the bundle whose workflows are being compiled, if any are.
bundle_root: ContextVar[Path | None] = ContextVar("bundle_root", default=None)


def refer(function: Any) -> PythonWork:
    """How to find a function again: by module and name if that leads back to it, else by value."""
    root = bundle_root.get()
    if root is not None:
        return _in_bundle(function, root)
    module_name, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
    module = sys.modules.get(module_name)
    if module is None:
        return _by_value(function, None)
    found = _look_up(module, name)
    if getattr(found, "__rota_function__", found) is not function:
        return _by_value(function, module)
    if module_name in ("__main__", SCRIPT):
        file = _script_of(module)
        return PythonWork(function=f"{SCRIPT}:{name}", file=file) if file else _by_value(function, module)
    return PythonWork(
        function=f"{module_name}:{name}", path=_import_path(module_name, module), script=_running_script()
    )


def _in_bundle(function: Any, root: Path) -> PythonWork:
    """By its name below the root, or among what workers have installed."""
    module_name, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
    module = sys.modules.get(module_name)
    found = _look_up(module, name.partition(LOCALS)[0]) if module is not None else None
    # One that is written inside a workflow's function is found by writing that workflow down again.
    is_inside = LOCALS in name and hasattr(found, "__rota_inside__")
    if module is None or not (is_inside or getattr(found, "__rota_function__", found) is function):
        what = name or type(function).__qualname__
        raise Unserialisable(f"{what} has no name by which a worker could find it. Define it with `def` in the module.")
    path = _import_path(module_name, module)
    if path and Path(path) != root:
        text = f"{module_name} is at {path}, outside of what is deployed"
        raise Unserialisable(f"{text}. Deploy the folder that has both, or install it on the workers.")
    return PythonWork(function=f"{module_name}:{name}")


def root_of(function: Any) -> Path | None:
    """The root of the bundle that a function was imported from; None if it is not a function of a module."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    path = _import_path(module.__name__, module) if module is not None else ""
    return Path(path) if path else None


def _by_value(function: Any, module: ModuleType | None) -> PythonWork:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    where = module.__name__ if module is not None else ""
    pickled = pack(function, f"the function {name!r}")[1]
    if module is None:
        return PythonWork(function=f":{name}", pickled=pickled)
    if where in ("__main__", SCRIPT):
        # The rest of the script may be meant by name.
        return PythonWork(function=f"{SCRIPT}:{name}", pickled=pickled, file=_script_of(module))
    path = _import_path(where, module)
    return PythonWork(function=f"{where}:{name}", pickled=pickled, path=path, script=_running_script())


def _script_of(module: ModuleType) -> str:
    """The file of a script; empty for a notebook or a prompt, which has none to load it from again."""
    file = getattr(module, "__file__", None)
    return str(Path(file).absolute()) if file else ""


def _running_script() -> str:
    """The script that writes this down, if it is one: of its classes may be what its other tasks return."""
    module = sys.modules.get(SCRIPT) or sys.modules.get("__main__")
    file = _script_of(module) if module is not None else ""
    # Not a tool that runs others: pytest, or the command of this package.
    return "" if any(part in (*_INSTALLED, "bin") for part in Path(file).parts) else file


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
    return "" if any(part in _INSTALLED for part in folder.parts) else str(folder)
