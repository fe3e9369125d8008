"""Dependencies: the files of a bundle that a workflow's code uses. They decide whether a workflow has changed.

A workflow depends on its file, on the modules of the bundle that this imports, and on theirs. Imports are found in the
text, wherever they are written, and among the modules that were loaded when the workflow was compiled. A module that
is named in a text of the code (`"reports.daily:main"`, `"report.py"`, `"helpers"`) counts as imported.

What cannot be found out is never left out, because a workflow that counts as unchanged goes on with the files it has:

- Files that are not Python count for every workflow. What configuration files name counts, too.
- Code that imports by computed names, starts programs, unpickles, or lists folders may use any file, and so may a
  task that is a command: then the workflow depends on the whole bundle.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import PurePosixPath

from msgspec import Struct

from rota.wire.bundles import BundleFile

# Modules with which code reaches others without an import statement that names them.
_OPAQUE_MODULES = frozenset(
    [
        "builtins",
        "cloudpickle",
        "dill",
        "imp",
        "importlib",
        "joblib",
        "pickle",
        "pkgutil",
        "pkg_resources",
        "pty",
        "pydoc",
        "runpy",
        "shelve",
        "subprocess",
        "zipimport",
    ]
)
# Functions, as names of their own.
_OPAQUE_NAMES = frozenset(("__builtins__", "__import__", "compile", "eval", "exec"))
# Functions and methods, whatever they are found in.
_OPAQUE_ATTRIBUTES = frozenset(
    [
        "__import__",
        "addsitedir",
        "copytree",
        "create_subprocess_exec",
        "create_subprocess_shell",
        "fwalk",
        "import_string",
        "iterdir",
        "listdir",
        "locate",
        "make_archive",
        "meta_path",
        "path_hooks",
        "popen",
        "posix_spawn",
        "posix_spawnp",
        "read_pickle",
        "scandir",
        "subprocess_exec",
        "subprocess_shell",
        "system",
        "walk",
        "execl",
        "execle",
        "execlp",
        "execlpe",
        "execv",
        "execve",
        "execvp",
        "execvpe",
        "spawnl",
        "spawnle",
        "spawnlp",
        "spawnlpe",
        "spawnv",
        "spawnve",
        "spawnvp",
        "spawnvpe",
    ]
)
_OPAQUE_IN_SYS = frozenset(("modules", "path"))
# Packages that unpickle what they load.
_UNPICKLING_PACKAGES = frozenset(("torch",))
_OPAQUE_TEXTS = frozenset(("__builtins__", "__import__", "importlib"))
_GLOBS = frozenset(("glob", "iglob", "rglob"))
# Files in which modules are named for libraries that import them.
_CONFIGURATION = (".cfg", ".conf", ".env", ".ini", ".json", ".json5", ".toml", ".yaml", ".yml")
# Data of this size is not configuration.
_CONFIGURATION_BYTES_MAX = 1 << 20
_PYTHON = ".py"
# These find whole words, so that a long text takes no longer than its length.
_DOTTED_WORD = re.compile(r"[\w.:]+")
_PATH_WORD = re.compile(r"[^\s\"'`=:,;()<>|&]+")
_ENDS_IN_PYTHON = re.compile(r"\.py\b")


class Scan(Struct, frozen=True):
    """One Python file: the modules it may import, the texts in it, and whether it may use any file."""

    modules: tuple[str, ...] = ()
    # Modules of which it imports everything that they name.
    starred: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    is_opaque: bool = False


def imported_modules(tree: ast.AST, package: str) -> Iterator[str]:
    """The modules that a file may import anywhere, functions included; some of them may not be modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            start = _start_of(node, package)
            if start:
                yield start
            for alias in node.names:
                yield f"{start}.{alias.name}" if start else alias.name


def _start_of(node: ast.ImportFrom, package: str) -> str:
    """The module that names are imported from; empty for the root."""
    start = node.module or ""
    if not node.level:
        return start
    parts = package.split(".") if package else []
    above = parts[: len(parts) - node.level + 1]
    return ".".join([*above, start] if start else above)


def module_files(module: str, is_file: Callable[[str], bool]) -> Iterator[str]:
    """The files that importing a module reads: those of the packages it is in, and its own."""
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        place = PurePosixPath(*parts[:length])
        for name in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if is_file(str(name)):
                yield str(name)


def scan(name: str, content: bytes) -> Scan:
    """What one Python file says about other files. One that cannot be parsed may use any."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Scan(is_opaque=True)
    package = ".".join(PurePosixPath(name).parts[:-1])
    imported = dict.fromkeys(imported_modules(tree, package))
    aliases = _aliases(tree, package)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    starred: list[str] = []
    texts: list[str] = []
    is_opaque = any(module.partition(".")[0] in _OPAQUE_MODULES for module in imported) or "logging.config" in imported
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(names=[ast.alias(name="*")]):
                starred.append(_start_of(node, package))
            case ast.Call() if _unpickles(node, aliases):
                is_opaque = True
            case ast.ImportFrom() if any(_is_opaque_name(node.module or "", alias.name) for alias in node.names):
                is_opaque = True
            case ast.Name() if node.id in _OPAQUE_NAMES:
                is_opaque = True
            case ast.Attribute():
                dotted = _dotted(node, aliases)
                imported.update(dict.fromkeys((dotted,) if dotted else ()))
                owner = dotted.rpartition(".")[0]
                is_opaque = is_opaque or _is_opaque_name(owner, node.attr)
            case ast.Call() if _name_of(node.func) in _GLOBS and not _lists_other_files(node):
                is_opaque = True
            case ast.Constant(value=str()) if id(node) not in docstrings:
                texts.append(str(node.value))
                is_opaque = is_opaque or node.value in _OPAQUE_TEXTS
            case _:
                pass
    return Scan(tuple(imported), tuple(starred), tuple(texts), is_opaque)


def _aliases(tree: ast.AST, package: str) -> dict[str, str]:
    """The names that import statements bind, and the modules or members of modules that they stand for."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                found[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom):
            start = _start_of(node, package)
            for alias in node.names:
                found[alias.asname or alias.name] = f"{start}.{alias.name}" if start else alias.name
    return found


def _dotted(node: ast.Attribute, aliases: Mapping[str, str]) -> str:
    """An attribute of an imported name in full: `reports.daily` may be a module that other code has imported."""
    parts = [node.attr]
    inner = node.value
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    if not isinstance(inner, ast.Name) or inner.id not in aliases:
        return ""
    return ".".join((aliases[inner.id], *reversed(parts)))


def _is_opaque_name(owner: str, name: str) -> bool:
    if owner == "sys":
        return name in _OPAQUE_IN_SYS or name in _OPAQUE_ATTRIBUTES
    if name == "load" and owner.partition(".")[0] in _UNPICKLING_PACKAGES:
        return True
    return name in _OPAQUE_ATTRIBUTES


def _unpickles(call: ast.Call, aliases: Mapping[str, str]) -> bool:
    """Whether `numpy.load`, or a function with its option, may be allowed to unpickle."""
    for keyword in call.keywords:
        if keyword.arg == "allow_pickle":
            return not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
    match call.func:
        case ast.Attribute():
            function = _dotted(call.func, aliases)
        case ast.Name():
            function = aliases.get(call.func.id, "")
        case _:
            function = ""
    # The option may be given by its position, or among others that are put together.
    has_more = len(call.args) > 2 or any(keyword.arg is None for keyword in call.keywords)
    return function == "numpy.load" and (has_more or any(isinstance(each, ast.Starred) for each in call.args))


def _name_of(function: ast.expr) -> str:
    match function:
        case ast.Attribute():
            return function.attr
        case ast.Name():
            return function.id
        case _:
            return ""


def _lists_other_files(call: ast.Call) -> bool:
    """Whether a pattern is written out and cannot match a Python file: `folder.glob("*.sql")`."""
    match call.args[:1]:
        case [ast.Constant(value=str(pattern))]:
            suffix = PurePosixPath(pattern).suffix
            return suffix.isascii() and suffix[1:].isalnum() and suffix != _PYTHON
        case _:
            return False


class Dependencies:
    """The files of a bundle, and which of them each workflow uses."""

    def __init__(self, files: Iterable[BundleFile]) -> None:
        self._files = {file.name: file for file in files}
        self._python = [name for name in self._files if name.endswith(_PYTHON)]
        self._by_last_name: dict[str, list[str]] = {}
        for name in self._python:
            self._by_last_name.setdefault(PurePosixPath(name).name, []).append(name)
        self._scans: dict[str, Scan] = {}
        self._common = self._find_common()

    def of(self, first: Iterable[str], *, is_opaque: bool = False) -> tuple[str, ...]:
        """The names of all files that code in some files uses, in order. `is_opaque`: it may use any."""
        found: dict[str, None] = {}
        waiting = [*self._common]
        for name in first:
            # A file in a package is imported with the package.
            inits = (str(folder / "__init__.py") for folder in PurePosixPath(name).parents)
            waiting += [name, *(each for each in inits if self._is_file(each))]
        while waiting and not is_opaque:
            name = waiting.pop()
            if name in found:
                continue
            found[name] = None
            if not name.endswith(_PYTHON):
                continue
            scanned = self._scan(name)
            is_opaque = scanned.is_opaque
            for module in scanned.modules:
                waiting += module_files(module, self._is_file)
            for package in scanned.starred:
                waiting += self._starred(package)
            for text in scanned.texts:
                named = self._named_in(text)
                is_opaque = is_opaque or named is None
                waiting += named or ()
        return tuple(sorted(self._files if is_opaque else found))

    def digest(self, names: Iterable[str]) -> str:
        """A digest of files: their names, their contents, and whether they can be executed."""
        total = sha256()
        for name in names:
            file = self._files[name]
            total.update(f"{name}\0{int(file.is_executable)}\0{sha256(file.content).hexdigest()}\n".encode())
        return total.hexdigest()

    def _is_file(self, name: str) -> bool:
        return name in self._files

    def _scan(self, name: str) -> Scan:
        if name not in self._scans:
            self._scans[name] = scan(name, self._files[name].content)
        return self._scans[name]

    def _find_common(self) -> list[str]:
        """What every workflow depends on: the files that are not Python, and the modules that configuration names."""
        found: dict[str, None] = {}
        for name, file in self._files.items():
            if name.endswith(_PYTHON):
                continue
            found[name] = None
            if name.endswith(_CONFIGURATION) and len(file.content) <= _CONFIGURATION_BYTES_MAX:
                found.update(dict.fromkeys(self._modules_in(file.content.decode(errors="replace"))))
        return list(found)

    def _starred(self, package: str) -> Iterator[str]:
        """The submodules that `from package import *` imports: those whose names are texts in it, as in `__all__`."""
        for name in module_files(package, self._is_file):
            for text in self._scan(name).texts:
                yield from module_files(f"{package}.{text}" if package else text, self._is_file)

    def _named_in(self, text: str) -> list[str] | None:
        """The Python files that a text names, by their path or as a module; None if it may mean any of them."""
        found = self._modules_in(text)
        if text.isidentifier():
            # A library may import it: `Celery(include=["helpers"])`.
            found += module_files(text, self._is_file)
        if _PYTHON not in text:
            return found
        for word in _PATH_WORD.findall(text):
            ended = _ENDS_IN_PYTHON.search(word)
            if ended is None:
                continue
            last = word[: ended.end()].rpartition("/")[2]
            if last not in self._by_last_name:
                # It may be the end of a name that is put together, or a pattern.
                return None
            found += self._by_last_name[last]
        return found

    def _modules_in(self, text: str) -> list[str]:
        """The files of modules that a text names with a package or a member: `reports.daily`, `app:main`."""
        words = dict.fromkeys(word for word in _DOTTED_WORD.findall(text) if "." in word or ":" in word)
        modules = (word.partition(":")[0].strip(".") for word in words)
        return [file for module in modules if module for file in module_files(module, self._is_file)]
