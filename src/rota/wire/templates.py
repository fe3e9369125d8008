"""Templates: text with `{{ … }}` in it, checked where it is written and rendered where user code runs.

Jinja's sandbox, made tighter: nothing can be loaded, changed or reached by names that begin with an underscore, a name
that is not known is an error, and what comes out is bounded. Values are never templates: what a parameter holds is put
in as it is.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from rota.core.errors import Refused

OUTPUT_CHARS_MAX = 1_000_000
# What every template may use.
NAMES = (
    "attempt",
    "ds",
    "ds_nodash",
    "fence",
    "logical_date",
    "map_index",
    "params",
    "run_id",
    "task_id",
    "ts",
    "ts_nodash",
    "version",
    "workflow",
)
_HINT = f"A template knows {', '.join(NAMES)}. Text that is meant as it stands: rota.literal(…)."


class Unrendered(Exception):
    """A template that could not be rendered; the text says which and why."""


def is_template(text: str) -> bool:
    """Whether a text is to be rendered."""
    return "{{" in text or "{%" in text


def check_template(text: str, params: Iterable[str]) -> None:
    """Refuse a template that cannot be read, asks for what is not there or reaches for what it must not have."""
    from jinja2 import TemplateSyntaxError, meta, nodes  # only for who writes templates

    def refuse(line: int, why: str) -> Refused:
        return Refused("template.bad", f"line {line} of {_shown(text)}: {why}", _HINT)

    try:
        tree = _environment().parse(text)
    except TemplateSyntaxError as error:
        raise refuse(error.lineno, error.message or "it cannot be read") from None
    for node in tree.find_all((nodes.Import, nodes.FromImport, nodes.Include, nodes.Extends, nodes.Block)):
        raise refuse(node.lineno, "a template cannot use others")
    for node in tree.find_all((nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Filter, nodes.Call)):
        for name in _names_in(node):
            if name.startswith("_") or "__" in name:
                raise refuse(node.lineno, f"{name!r} begins with an underscore, and is out of reach")
    try:
        asked = sorted(meta.find_undeclared_variables(tree))
    except TemplateSyntaxError as error:
        # A filter or a test that there is not.
        raise refuse(error.lineno, error.message or "it cannot be read") from None
    for name in asked:
        if name not in NAMES and name not in _environment().globals:
            raise refuse(_line_of(tree, name), f"{name!r} is not known")
    given = tuple(params)
    for node in tree.find_all((nodes.Getattr, nodes.Getitem)):
        name = _param_in(node)
        if name is not None and name not in given and not hasattr(dict, name):
            has = ", ".join(given) or "none"
            raise refuse(node.lineno, f"there is no parameter {name!r}; the workflow has {has}")


def _names_in(node: Any) -> list[str]:
    """Names that a node reaches by, as far as they can be read without running anything."""
    from jinja2 import nodes

    match node:
        case nodes.Name():
            return [node.name]
        case nodes.Getattr():
            return [node.attr]
        case nodes.Getitem():
            asked = [node.arg]
        case _:
            # |attr("…"), |map(attribute="…") and texts to be formatted are other ways to reach something.
            asked = [*node.args, *(pair.value for pair in node.kwargs)]
            if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
                asked.append(node.node.node)
    texts = [each.value for each in asked if isinstance(each, nodes.Const) and isinstance(each.value, str)]
    return [text for text in texts if isinstance(node, nodes.Getitem | nodes.Filter) or "__" in text]


def _param_in(node: Any) -> str | None:
    """The parameter that a node asks for: `params.day` or `params["day"]`."""
    from jinja2 import nodes

    if not isinstance(node.node, nodes.Name) or node.node.name != "params":
        return None
    if isinstance(node, nodes.Getattr):
        return node.attr
    return node.arg.value if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str) else None


def _line_of(tree: Any, name: str) -> int:
    from jinja2 import nodes

    return next((node.lineno for node in tree.find_all(nodes.Name) if node.name == name), 1)


def render(text: str, names: Mapping[str, Any]) -> str:
    """The text that a template makes of these names."""
    from jinja2 import TemplateError

    try:
        pieces: list[str] = []
        chars = 0
        for piece in _compiled(text).generate(names):
            chars += len(piece)
            if chars > OUTPUT_CHARS_MAX:
                raise Unrendered(f"the template {_shown(text)} makes more than {OUTPUT_CHARS_MAX:,} characters")
            pieces.append(piece)
        return "".join(pieces)
    except TemplateError as error:
        raise Unrendered(f"the template {_shown(text)} cannot be rendered: {error}") from error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise Unrendered(f"the template {_shown(text)} cannot be rendered: {why}") from error


def _shown(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}…")


@lru_cache(maxsize=256)
def _compiled(text: str) -> Any:
    return _environment().from_string(text)


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import StrictUndefined
    from jinja2.exceptions import SecurityError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Missing(StrictUndefined):
        """Something that was asked for and is not there, by name."""

        @property
        def _undefined_message(self) -> str:
            name, held = self._undefined_name, self._undefined_obj
            if isinstance(held, Mapping):
                keys = ", ".join(sorted(map(str, held))) or "nothing"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - of anything
                return f"there is no {name!r}; there is {keys}"
            return self._undefined_hint or f"{name!r} is not known"

    class Sandbox(ImmutableSandboxedEnvironment):
        """Bounds what one operator can make, which comes before any bound on the output."""

        intercepted_binops = frozenset({"*", "**", "%"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if not _is_small(operator, left, right):
                raise SecurityError(f"{operator} makes something too large")
            return super().call_binop(context, operator, left, right)

    # Nothing is worked out while a template is read: whoever checks it must not be the one to run it.
    environment = Sandbox(undefined=Missing, optimized=False, autoescape=False, keep_trailing_newline=True)
    quote: Callable[[Any], str] = lambda value: shlex.quote(str(value))  # noqa: E731 - one line says it
    environment.filters["quote"] = quote
    environment.globals = {"range": environment.globals["range"], "dict": dict}
    return environment


def _is_small(operator: str, left: Any, right: Any) -> bool:
    if operator == "%":
        # Of a text it is formatting, with widths that can be anything.
        return not isinstance(left, str)
    if operator == "**":
        return isinstance(left, int | float) and isinstance(right, int | float) and abs(left) < 1e6 and abs(right) <= 64
    for one, other in ((left, right), (right, left)):
        if not isinstance(one, int | float) and isinstance(other, int) and len(one) * other > OUTPUT_CHARS_MAX:
            return False
    return True
