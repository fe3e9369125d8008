"""What is typed for a workflow: its parameters and its dates, read before anything is asked."""

import argparse
import json
import math
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rota.core.model import Param


def add_params(parser: argparse.ArgumentParser) -> None:
    """The parameters of runs."""
    parser.add_argument(
        "--param",
        action="append",
        type=pair,
        default=[],
        metavar="NAME=VALUE",
        help="a parameter: as it is where the workflow wants a text or a date, else JSON",
    )
    parser.add_argument(
        "--param-json",
        action="append",
        type=json_pair,
        dest="param",
        metavar="NAME=JSON",
        help="a parameter that is JSON whatever the workflow wants: null where a text may be left out",
    )


class Json(NamedTuple):
    """What was written as JSON."""

    value: Any


def read_params(given: Iterable[tuple[str, str | Json]], declared: "Iterable[Param]") -> dict[str, Any]:
    """What was typed, by what the workflow says of its parameters: the text 123 is no number where it wants text."""
    from rota.core.model import ParamType

    in_words = (ParamType.STRING, ParamType.DATE, ParamType.DATETIME)
    texts = {param.name for param in declared if param.type in in_words}
    found: dict[str, Any] = {}
    for name, value in given:
        if isinstance(value, Json):
            found[name] = value.value
        else:
            found[name] = value if name in texts else _read(value)
    return found


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def pair(text: str) -> tuple[str, str]:
    """A name and what it stands for."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def json_pair(text: str) -> tuple[str, Json]:
    """A name, and what it stands for in JSON."""
    name, value = pair(text)
    try:
        return name, Json(json.loads(value))
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=JSON: {error}") from None


def date(text: str) -> str:
    """A date or an instant in ISO form. In which time zone it is, the workflow says, if it does not itself."""
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no date such as 2026-11-16 or 2026-11-16T12:00: {error}"
        ) from None
    return text


def seconds(text: str) -> float:
    """A span of time up to an hour."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found <= 3_600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds up to an hour")
    return found


def count(text: str) -> int:
    """A number of things, at least one."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return number
