"""What is typed for a workflow: its parameters and its dates, read before anything is asked."""

import argparse
import json
from datetime import datetime
from typing import Any


def add_params(parser: argparse.ArgumentParser) -> None:
    """The parameters of runs."""
    parser.add_argument(
        "--param", action="append", type=param, default=[], metavar="NAME=VALUE", help="a parameter; JSON, or text"
    )


def param(text: str) -> tuple[str, Any]:
    """One parameter."""
    name, value = pair(text)
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def pair(text: str) -> tuple[str, str]:
    """A name and what it stands for."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def date(text: str) -> str:
    """A date or an instant in ISO form. In which time zone it is, the workflow says, if it does not itself."""
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no date such as 2026-11-16 or 2026-11-16T12:00: {error}"
        ) from None
    return text


def count(text: str) -> int:
    """A number of things, at least one."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return number
