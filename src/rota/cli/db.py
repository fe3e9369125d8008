"""`rota db`: look after a data folder: copy it while it is in use, check it, give unused space back."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli.bars import Bar
from rota.cli.reaching import folder_of
from rota.cli.showing import add_folder, add_json

if TYPE_CHECKING:
    pass


EXIT_BROKEN = 1

EXAMPLES = """
  rota db backup /backup/rota.db     also while it is in use
  rota db check --data /var/lib/rota
  rota db vacuum
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, summary: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        described = verbs.add_parser(name, help=summary, description=summary)
        add_folder(described)
        add_json(described)
        described.set_defaults(run=run)
        return described

    backup = verb("backup", "copy the database into a file, also while it is in use", _backup)
    backup.add_argument("file", type=Path, metavar="FILE", help="the copy")
    backup.add_argument("--force", action="store_true", help="replace FILE if it exists")
    verb("check", "read everything and say what is wrong; exit code 1 if something is", _check)
    verb("vacuum", "give unused space back; needs the folder for itself", _vacuum)


def _backup(options: argparse.Namespace) -> int:
    from rota.stores.sqlite import care

    progress = Bar("pages")
    size = care.backup(Path(folder_of(options)), options.file, force=options.force, progress=progress.show)
    progress.clear()
    _print(options, {"file": str(options.file), "bytes": size}, f"{options.file}: {size:,} bytes")
    return 0


def _check(options: argparse.Namespace) -> int:
    from msgspec import to_builtins

    from rota.app.clocks import wall_clock
    from rota.stores.sqlite import care

    report = care.check(Path(folder_of(options)), wall_clock())
    lines = [
        f"{report.folder}: version {report.version}, epoch {report.epoch}, {report.bytes:,} bytes",
        ", ".join(f"{count:,} {name}" for name, count in report.rows.items()),
        *[f"✗ {fault}" for fault in report.faults],
        "nothing wrong" if not report.faults else f"{len(report.faults)} things are wrong",
    ]
    _print(options, to_builtins(report), "\n".join(lines))
    if report.faults:
        sys.stderr.write(
            "To go back to a copy made by `rota db backup`: stop Rota, move the folder aside,"
            " and put the copy into a new one as rota.db.\n"
        )
    return EXIT_BROKEN if report.faults else 0


def _vacuum(options: argparse.Namespace) -> int:
    from rota.stores.sqlite import care

    before, after = care.vacuum(Path(folder_of(options)))
    _print(options, {"bytes_before": before, "bytes_after": after}, f"{before:,} bytes before, {after:,} after")
    return 0


def _print(options: argparse.Namespace, value: object, text: str) -> None:
    sys.stdout.write((json.dumps(value) if options.json else text) + "\n")
