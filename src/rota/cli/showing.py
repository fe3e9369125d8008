"""How things look on a terminal, and as JSON."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence

from rota.cli.reaching import FOLDER_HELP, add_place


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option that every command has which prints data."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_run(parser: argparse.ArgumentParser) -> None:
    """Which run a command is about."""
    parser.add_argument("run_id", metavar="RUN", help="the run's id, see `rota runs`")


def add_task(parser: argparse.ArgumentParser) -> None:
    """Which task of the run a command is about."""
    parser.add_argument("task", metavar="TASK", help="the task's id; one of a mapped task as NAME[3]")


def add_folder(parser: argparse.ArgumentParser) -> None:
    """The option that says where the data is, for commands that need the folder itself."""
    parser.add_argument("--data", metavar="DIR", help=FOLDER_HELP)


def finish(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    """What every command has that asks a coordinator, and what it does."""
    add_place(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def say(line: str) -> None:
    """A line that is not data."""
    sys.stderr.write(line + "\n")


def put(line: str) -> None:
    """A line of data."""
    sys.stdout.write(line + "\n")


def put_json(value: object) -> None:
    """Data for programs."""
    from rota.wire.views import as_json

    sys.stdout.write(as_json(value, indent=1) + "\n")


def put_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as what is in them."""
    lines = [tuple(headings), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        cells = zip(line, widths, strict=True)
        put(one_line("  ".join(cell.ljust(width) for cell, width in cells)).rstrip())


def one_line(text: str) -> str:
    """Text of others on one line, without what a terminal would obey."""
    return "".join(char if char.isprintable() else " " for char in text)


def show_time(at: int) -> str:
    """An instant in local time, with its zone; in words where there is no date for it."""
    from rota.core.spans import moment_of, show_beyond

    if not at:
        return ""
    moment = moment_of(at)
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z}" if moment is not None else show_beyond(at)


def show_count(count: int, what: str) -> str:
    """How many there are of something: `1 task`, `2 tasks`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def show_counts(tasks: dict[str, int]) -> str:
    """How many tasks are where."""
    return ", ".join(f"{count} {state}" for state, count in sorted(tasks.items()))
