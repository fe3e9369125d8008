"""How a command describes itself to argparse."""

import argparse
from typing import Protocol


class Commands(Protocol):
    """What `add_subparsers` returns, as far as a command needs it; argparse keeps the class itself private."""

    def add_parser(
        self,
        name: str,
        *,
        help: str | None,  # noqa: A002 - the name of the argument is argparse's choice
        description: str | None,
    ) -> argparse.ArgumentParser:
        """Add a command and return its parser."""
        ...
