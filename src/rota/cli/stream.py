"""`rota stream`: see streams by their folders, pause, save and restore them.

A stream is run by the program that put it together; all that others need to know, or want of it, is in its folder.
"""

import argparse
from pathlib import Path

from rota.cli.showing import add_json, put, put_json, put_table, say, show_time

EXAMPLES = """
  rota stream list /data/streams
  rota stream show /data/streams/clicks
  rota stream pause /data/streams/clicks
  rota stream resume /data/streams/clicks
  rota stream savepoint /data/streams/clicks before-upgrade --stop
  rota stream restore /data/streams/clicks before-upgrade
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, text in (
        ("list", "list the streams whose folders are below one"),
        ("show", "say how one stands: throughput, watermarks, state, rounds"),
        ("pause", "have it stand still after its round"),
        ("resume", "let it go on"),
        ("savepoint", "have its next round kept under a name"),
        ("restore", "have it go on from an older round or a savepoint; whoever runs it has to start it again"),
    ):
        described = verbs.add_parser(verb, help=text, description=text)
        described.add_argument("folder", type=Path, metavar="DIR", help="the folder of the stream, or one above it")
        if verb in ("savepoint", "restore"):
            described.add_argument("which", metavar="NAME" if verb == "savepoint" else "ROUND", help="which one")
        if verb == "savepoint":
            described.add_argument("--stop", action="store_true", help="and stop after it")
        add_json(described)
        described.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do what the verb says."""
    from importlib.util import find_spec

    from rota.core.errors import Refused

    if find_spec("datafusion") is None:
        raise Refused("query.engine", "streams need DataFusion", "Install it: pip install 'rota[query]'.")
    {"list": _list, "show": _show, "savepoint": _save, "restore": _restore}.get(options.verb, _pause)(options)
    return 0


def _list(options: argparse.Namespace) -> None:
    from msgspec import to_builtins

    from rota.app.clocks import wall_clock
    from rota.kinds.query.streams.standing import is_stream, standing

    now = wall_clock()
    folders = [path.parent for path in sorted(options.folder.glob("**/identity")) if is_stream(path.parent)]
    found = [standing(folder, now) for folder in folders]
    if options.json:
        put_json([to_builtins(each) for each in found])
    elif not found:
        say(f"no streams below {options.folder}")
    else:
        put_table(
            ("STREAM", "STATE", "ROUND", "ROWS/S", "LAG", "STATE BYTES"),
            (
                (
                    each.folder,
                    each.state,
                    str(each.round),
                    f"{each.rows_per_s:,.0f}",
                    _lag(max((one.lag_ms for one in each.progress if one.lag_ms is not None), default=None)),
                    f"{each.state_bytes:,}",
                )
                for each in found
            ),
        )


def _show(options: argparse.Namespace) -> None:
    from msgspec import to_builtins

    from rota.app.clocks import wall_clock
    from rota.kinds.query.streams.standing import standing

    found = standing(options.folder, wall_clock())
    if options.json:
        put_json(to_builtins(found))
        return
    put(f"{found.folder}: {found.state}, round {found.round} by incarnation {found.incarnation}")
    put(f"published   {show_time(found.published_at_ms)}; {found.rounds_kept} rounds are kept")
    put(f"throughput  {found.rows_per_s:,.0f} rows/s; a round takes {found.round_ms:,.1f} ms")
    put(f"state       {found.state_rows:,} rows, {found.state_bytes:,} bytes")
    for each in found.progress:
        put(f"watermark   {each.operator}: {show_time(each.watermark_ms or 0) or 'none'}, {_lag(each.lag_ms)} behind")
    for name, count in sorted(found.counts.items()):
        put(f"count       {name}: {count:,}")
    for name in found.savepoints:
        put(f"savepoint   {name}")


def _lag(lag_ms: int | None) -> str:
    from rota.core.spans import show_span

    return "-" if lag_ms is None else show_span(max(0, lag_ms))


def _pause(options: argparse.Namespace) -> None:
    from msgspec import structs, to_builtins

    from rota.kinds.query.streams.standing import check_stream
    from rota.kinds.query.streams.wishes import read_wishes, write_wishes

    check_stream(options.folder)
    wishes = structs.replace(read_wishes(options.folder), paused=options.verb == "pause")
    write_wishes(options.folder, wishes)
    _tell(options, to_builtins(wishes), f"{options.folder} is asked to {options.verb}")


def _save(options: argparse.Namespace) -> None:
    from msgspec import structs, to_builtins

    from rota.kinds.query.streams.chain import check_savepoint
    from rota.kinds.query.streams.standing import check_stream
    from rota.kinds.query.streams.wishes import read_wishes, write_wishes

    check_stream(options.folder)
    check_savepoint(options.folder, options.which)
    wishes = structs.replace(read_wishes(options.folder), savepoint=options.which, stop=options.stop)
    write_wishes(options.folder, wishes)
    _tell(options, to_builtins(wishes), f"{options.folder} is asked for a savepoint {options.which}")


def _restore(options: argparse.Namespace) -> None:
    from rota.app.clocks import wall_clock
    from rota.kinds.query.streams.chain import Chain, file_of, saved_round
    from rota.kinds.query.streams.standing import check_stream

    check_stream(options.folder)
    path = file_of(options.folder, options.which)
    # What cannot be restored deposes nobody.
    definition = saved_round(path).definition
    chain = Chain(options.folder)
    chain.claim(incarnation=0, holder="rota stream restore", definition=definition, now_ms=wall_clock())
    found = chain.adopt(path)
    chain.close()
    told = {"round": found.round, "incarnation": found.incarnation}
    _tell(options, told, f"{options.folder} goes on after round {found.round}; start it again")


def _tell(options: argparse.Namespace, told: object, text: str) -> None:
    if options.json:
        put_json(told)
    else:
        put(text)
