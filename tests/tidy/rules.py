"""The house rules that no linter knows. Each is a function from a file's text to complaints, `line: what is wrong`."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator

MODULE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70
VAGUE_NAMES = ("base", "common", "data", "handler", "handlers", "helpers", "info", "manager", "misc", "utils")

# Put together from parts, so that this file does not break its own rules.
_UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")
_MACHINE_PATH = re.compile(r"(?<![\w./}-])/(work|root|farm)/")
_SUPPRESSION = re.compile(
    r"#\s*(?:noqa(?::\s*[A-Z]+\d+(?:\s*,\s*[A-Z]+\d+)*)?|(?:type|pyright):\s*ignore(?:\[[\w\s,-]*\])?)(?P<reason>.*)"
)
_REASON_LETTERS_MIN = 8

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_KEEPS_ORDER = ("deque", "dict", "enumerate", "iter", "list", "map", "next", "tuple", "zip")
_FORGETS_ORDER = ("all", "any", "frozenset", "set", "sum")


def has_vague_name(path_parts: tuple[str, ...]) -> Iterator[str]:
    """A module says what is in it; these names say only that something is."""
    for part in path_parts:
        if part.removesuffix(".py") in VAGUE_NAMES:
            yield f"{part} does not say what it holds"


def is_too_long(text: str) -> Iterator[str]:
    """A module is read in one sitting."""
    lines = text.count("\n")
    if lines > MODULE_LINES_MAX:
        yield f"{lines} lines; past {MODULE_LINES_MAX} it is two modules"


def has_long_function(text: str) -> Iterator[str]:
    """A function fits a screen."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _Function):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{node.lineno}: {node.name} has {lines} lines, more than {FUNCTION_LINES_MAX}"


def sleeps(text: str) -> Iterator[str]:
    """Waiting for a while is a guess; wait for the thing itself."""
    if "sleep" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(value=ast.Name(id="time"), attr="sleep"):
                yield f"{node.lineno}: time.sleep"
            case ast.ImportFrom(module="time", names=names) if any(name.name == "sleep" for name in names):
                yield f"{node.lineno}: sleep taken from time"
            case _:
                pass


def prints(text: str) -> Iterator[str]:
    """Only the command line writes to the terminal."""
    if "print(" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{node.lineno}: print"


def is_unfinished(text: str) -> Iterator[str]:
    """What is left to do belongs in an issue."""
    yield from _lines_with(_UNFINISHED, text)


def names_a_machine_path(text: str) -> Iterator[str]:
    """A path that exists on one machine only."""
    yield from _lines_with(_MACHINE_PATH, text)


def lacks_final_newline(text: str) -> Iterator[str]:
    """A text file ends with one newline."""
    if text and (not text.endswith("\n") or text.endswith("\n\n")):
        yield "does not end with exactly one newline"


def suppresses_without_reason(text: str) -> Iterator[str]:
    """Whoever silences a checker says why, after the code and on the same line."""
    if not _SUPPRESSION.search(text):
        return  # reading tokens takes long, and most files have nothing to find
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        found = _SUPPRESSION.search(token.string)
        if found and sum(map(str.isalpha, found["reason"])) < _REASON_LETTERS_MIN:
            yield f"{token.start[0]}: {token.string}"


def iterates_over_set(text: str) -> Iterator[str]:
    """The order of a set changes with the hash seed, and a seed must replay the same bytes.

    Sees set expressions, and names that the same function or the module's top level binds or annotates as a set.
    Making a set, a sum or a yes-or-no out of a set is fine: the order is gone again before anybody can see it.
    """
    tree = ast.parse(text)
    of_module = _set_names(tree.body)
    reported: dict[int, str] = {}
    for scope in (tree, *(node for node in ast.walk(tree) if isinstance(node, _Function))):
        names = of_module if scope is tree else (*of_module, *_set_names(list(ast.walk(scope))))
        for iterated in _iterated(scope):
            if _is_set(iterated, names):
                reported[iterated.lineno] = f"{iterated.lineno}: iterates over the set {ast.unparse(iterated)}"
    yield from (reported[line] for line in sorted(reported))


def _iterated(scope: ast.AST) -> Iterator[ast.expr]:
    """What is iterated over in an order that can be seen."""
    unordered = [part for node in ast.walk(scope) for part in _parts_whose_order_is_lost(node)]
    for node in ast.walk(scope):
        if any(node is part for part in unordered):
            continue
        match node:
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                yield node.iter
            case ast.Starred(value=value) | ast.YieldFrom(value=value):
                yield value
            case ast.Call(func=ast.Name(id=name), args=args) if name in _KEEPS_ORDER:
                yield from args
            case ast.Call(func=ast.Attribute(attr="join" | "extend" | "fromkeys"), args=[value, *_]):
                yield value
            case _:
                pass


def _parts_whose_order_is_lost(node: ast.AST) -> list[ast.AST]:
    match node:
        case ast.Set(elts=elements):
            return [*elements]
        case ast.SetComp(generators=generators):
            return [*generators]
        case ast.Call(func=ast.Name(id=name), args=[ast.GeneratorExp(generators=generators)]) if name in _FORGETS_ORDER:
            return [*generators]
        case _:
            return []


def _is_set(node: ast.expr, names: tuple[str, ...]) -> bool:
    match node:
        case ast.Set() | ast.SetComp() | ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Name(id=name):
            return name in names
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
            return _is_set(left, names) or _is_set(right, names)
        case _:
            return False


def _set_names(nodes: list[ast.stmt] | list[ast.AST]) -> tuple[str, ...]:
    names: list[str] = []
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_set(value, ()):
                names.append(name)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind) if _says_set(kind):
                names.append(name)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if _is_set(value, ()):
                names.append(name)
            case ast.arg(arg=name, annotation=ast.expr() as kind) if _says_set(kind):
                names.append(name)
            case _:
                pass
    return tuple(names)


def _says_set(annotation: ast.expr) -> bool:
    return bool(re.match(r"(Final\[)?(set|frozenset|Set|AbstractSet)\b", ast.unparse(annotation)))


def _lines_with(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if pattern.search(line):
            yield f"{number}: {line.strip()}"
