"""`rota debug dump`: everything that somebody needs to find out what is wrong, in one file, without secrets."""

import argparse
from pathlib import Path

from rota.cli.reaching import reach
from rota.cli.showing import finish, put, put_json, say

EXAMPLES = """
  rota debug dump     into rota-debug-….tar.gz, here
  rota debug dump --output /tmp/rota.tar.gz --coordinator grpc://rota.example.org:7433
  rota debug dump --config /etc/rota/server.toml --json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its verbs."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    summary = "write versions, settings, state, workers, metrics, journal, stacks and failures into one file"
    dumped = verbs.add_parser("dump", help=summary, description=summary)
    text = "the file (default rota-debug-DATE.tar.gz); it is for you alone to read"
    dumped.add_argument("--output", type=Path, metavar="FILE", help=text)
    dumped.add_argument("--config", metavar="FILE", help="the settings (default $ROTA_CONFIG, ./rota.toml or .json5)")
    finish(dumped, dump)


def dump(options: argparse.Namespace) -> int:
    """Gather, and say what could not be."""
    from rota.app.clocks import wall_clock
    from rota.cli.bars import Bar
    from rota.cli.dumping import Dump, file_name

    now = wall_clock()
    file: Path = options.output or Path(file_name(now))
    progress = Bar("parts")
    gathered = Dump(options.config, now)
    gathered.take_own(options.data or "")
    with reach(options) as rota:
        gathered.take_from(rota, progress.show)
    progress.clear()
    size = gathered.write(file)
    if options.json:
        put_json({"file": str(file), "bytes": size, "parts": sorted(gathered.parts), "missing": gathered.missing})
        return 0
    for name, why in gathered.missing.items():
        say(f"rota: {name} is not in it: {why}")
    put(str(file))
    say(f"{size:,} bytes. Secrets that are known or look like one are left out; look into it before you send it on.")
    return 0
