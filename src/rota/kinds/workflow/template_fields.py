"""Which fields of commands and requests may be templates: one table for checking, rendering and documentation.

Arguments of functions are not in it: any text among them may be a template.
"""

from collections.abc import Mapping
from typing import Any

from rota.kinds.workflow.arguments import Taken, is_known_later
from rota.wire.values import pack
from rota.wire.work import Argument, Value, check_env

COMMAND_CALL = "rota.command"
COMMAND_TASK = "@task.command"
HTTP_CALL = "rota.http"

# By how a task is written: the fields whose texts are rendered, at any depth of lists and dictionaries.
TEMPLATED: dict[str, tuple[str, ...]] = {
    COMMAND_CALL: ("line", "env", "cwd"),
    COMMAND_TASK: ("env", "cwd"),
    HTTP_CALL: ("url", "headers", "body", "json"),
}


def has_templates(way: str, fields: Mapping[str, Any]) -> bool:
    """Whether a field can only be made where the code runs: a template, an output or a parameter is in it."""
    return any(is_known_later(fields[name]) for name in TEMPLATED[way] if name in fields)


def take_fields(way: str, taken: Taken, fields: Mapping[str, Any]) -> tuple[tuple[str, Argument], ...]:
    """Fields as they travel: those of the table are rendered where the code runs, others are taken as they are."""
    templated = TEMPLATED[way]
    return tuple(
        (name, taken.take(name, value) if name in templated else Value(*pack(value))) for name, value in fields.items()
    )


def as_text(value: Any) -> Any:
    """A word, a variable or a folder of a command as text, unless it is known only later."""
    return value if is_known_later(value) else str(value)


def as_texts(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Variables of a command, likewise. Raises Refused for names that are Rota's own."""
    check_env(str(name) for name in values or {})
    return {str(name): as_text(value) for name, value in (values or {}).items()}
