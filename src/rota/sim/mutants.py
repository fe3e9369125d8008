"""Canary mutants: deliberate mistakes, one per rule, that the simulator must catch. They prove that the rig can fail.

A mutant replaces one piece of source text in one module, in a process of its own, before that module is imported. The
text must occur exactly once, so a mutant that no longer fits the code fails loudly instead of testing nothing.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from rota.sim.mistakes import Edit, Mutant
from rota.sim.mistakes_of_builds import OF_BUILDS
from rota.sim.mistakes_of_items import OF_ITEMS
from rota.sim.mistakes_of_leases import OF_LEASES
from rota.sim.mistakes_of_limits import OF_LIMITS
from rota.sim.mistakes_of_the_loop import OF_THE_LOOP
from rota.sim.mistakes_of_workflows import OF_WORKFLOWS

__all__ = ["BY_NAME", "MUTANTS", "Edit", "Mutant", "install", "mutate", "source_path"]

MUTANTS: tuple[Mutant, ...] = OF_THE_LOOP + OF_LEASES + OF_LIMITS + OF_WORKFLOWS + OF_BUILDS + OF_ITEMS
BY_NAME: dict[str, Mutant] = {mutant.name: mutant for mutant in MUTANTS}


class _Loader(importlib.abc.SourceLoader):
    def __init__(self, mutant: Mutant, path: str) -> None:
        self.mutant = mutant
        self.path = path

    def get_filename(self, fullname: str) -> str:
        del fullname
        return self.path

    def get_data(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def exec_module(self, module: ModuleType) -> None:
        source = mutate(self.mutant, module.__name__, Path(self.path).read_text(encoding="utf-8"))
        exec(compile(source, self.path, "exec"), module.__dict__)  # noqa: S102 - our own source, changed on purpose


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if all(edit.module != fullname for edit in self.mutant.edits):
            return None
        place = source_path(fullname)
        return importlib.util.spec_from_file_location(fullname, place, loader=_Loader(self.mutant, str(place)))


def source_path(module: str) -> Path:
    """The file of a module of ours, or of a package's own module."""
    place = Path(__file__).parent.parent.joinpath(*module.split(".")[1:])
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def mutate(mutant: Mutant, module: str, source: str) -> str:
    """The changed source of a module; refuses a mutant that does not fit the code exactly once."""
    for edit in mutant.edits:
        if edit.module != module:
            continue
        found = source.count(edit.old)
        if found != 1:
            raise ValueError(f"mutant {mutant.name}: its text occurs {found} times in {module}, not once")
        source = source.replace(edit.old, edit.new)
    return source


def install(mutant: Mutant) -> None:
    """Have the modules imported with their mistake. Must come before anything imports them."""
    for edit in mutant.edits:
        assert edit.module not in sys.modules, f"{edit.module} is imported already; mutants need their own process"
    sys.meta_path.insert(0, _Finder(mutant))
