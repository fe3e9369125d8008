"""`rota db`: look after a data folder: copy it while it is in use, check it, give unused space back."""

import argparse
import json
import sys
from pathlib import Path

from msgspec import to_builtins

from rota.app.clocks import wall_clock
from rota.cli.showing import add_folder, add_json
from rota.stores.sqlite import care

EXIT_BROKEN = 1


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    backup = verbs.add_parser("backup", help="copy the database into a file, also while it is in use")
    backup.add_argument("file", type=Path, metavar="FILE", help="the copy")
    backup.add_argument("--force", action="store_true", help="replace FILE if it exists")
    backup.set_defaults(run=_backup)
    check = verbs.add_parser("check", help="read everything and say what is wrong; exit code 1 if something is")
    check.set_defaults(run=_check)
    vacuum = verbs.add_parser("vacuum", help="give unused space back; needs the folder for itself")
    vacuum.set_defaults(run=_vacuum)
    for verb in (backup, check, vacuum):
        add_folder(verb)
        add_json(verb)


def _backup(options: argparse.Namespace) -> int:
    size = care.backup(Path(options.data), options.file, force=options.force, progress=_progress())
    _print(options, {"file": str(options.file), "bytes": size}, f"{options.file}: {size:,} bytes")
    return 0


def _progress() -> care.Progress | None:
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        sys.stderr.write(f"\r{done:,} of {total:,} pages" + ("\n" if done == total else ""))

    return show


def _check(options: argparse.Namespace) -> int:
    report = care.check(Path(options.data), wall_clock())
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
    before, after = care.vacuum(Path(options.data))
    _print(options, {"bytes_before": before, "bytes_after": after}, f"{before:,} bytes before, {after:,} after")
    return 0


def _print(options: argparse.Namespace, value: object, text: str) -> None:
    sys.stdout.write((json.dumps(value) if options.json else text) + "\n")
