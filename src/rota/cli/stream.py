"""`rota stream`: see streams, pause, save and restore them; by their names at a coordinator, or by their folders.

A stream is run by the program that put it together; all that others need to know, or want of it, is in its folder. A
coordinator that knows the folder says the same to everybody who may ask it, and keeps who asked for what.
"""

import argparse
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli.reaching import reach
from rota.cli.showing import finish, one_line, put, put_json, put_table, say, show_time

if TYPE_CHECKING:
    from rota.wire.standings import Progress, StreamView

EXAMPLES = """
  rota stream list                       those that the coordinator knows
  rota stream list /data/streams         those in a folder
  rota stream show clicks
  rota stream show ./clicks              by its folder
  rota stream pause clicks
  rota stream resume clicks
  rota stream savepoint clicks before-upgrade --stop
  rota stream restore clicks before-upgrade
"""
_VERBS = {
    "list": "list streams, and how each stands",
    "show": "say how one stands: throughput, watermarks, state, checkpoints",
    "pause": "have it stand still after its round",
    "resume": "let it go on",
    "savepoint": "have its last round kept under a name",
    "restore": "have it go on from an older round or a savepoint, now or when it is started again",
}


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, text in _VERBS.items():
        described = verbs.add_parser(verb, help=text, description=text)
        if verb == "list":
            described.add_argument("stream", metavar="DIR", nargs="?", default="", help="the folder to look in")
        else:
            what = "the stream's name at the coordinator, or its folder, as a path with a /"
            described.add_argument("stream", metavar="STREAM", help=what)
        if verb == "savepoint":
            described.add_argument("which", metavar="NAME", help="what to call it")
            described.add_argument("--stop", action="store_true", help="and stop after it")
        elif verb == "restore":
            described.add_argument("which", metavar="ROUND", help="the number of a round, or the name of a savepoint")
        finish(described, run)


def run(options: argparse.Namespace) -> int:
    """Do what the verb says."""
    if options.verb == "list":
        _list(options)
    elif options.verb == "show":
        _show(options)
    else:
        _steer(options)
    return 0


def _is_folder(options: argparse.Namespace) -> bool:
    """Whether a folder is meant: a name has no slash, and `.` is nobody's name."""
    return os.sep in options.stream or options.stream in (".", "..")


def _read(options: argparse.Namespace) -> "StreamView":
    if not _is_folder(options):
        with reach(options) as rota:
            return rota.stream(options.stream)
    from rota.app.clocks import wall_clock
    from rota.wire.standings import view_stream

    folder = _folder(options)
    return view_stream(folder, folder.resolve().name, wall_clock())


def _folder(options: argparse.Namespace) -> Path:
    from rota.core.errors import Refused
    from rota.wire.standings import is_stream

    folder = Path(options.stream).absolute()
    if not is_stream(folder):
        raise Refused("stream.unknown", f"there is no stream in {folder}", "`rota stream list DIR` looks for some.")
    return folder


def _list(options: argparse.Namespace) -> None:
    from rota.wire.views import as_plain

    found, left_out, where = _found(options)
    if options.json:
        put_json([as_plain(each) for each in found])
    elif not found:
        say(f"no streams in {where}")
    else:
        put_table(
            ("STREAM", "STATE", "ROUND", "ROWS/S", "LAG", "STATE BYTES", "CHECKPOINT", "SET ASIDE"),
            (_row(each) for each in found),
        )
    if left_out:
        say(f"and {left_out:,} more, which are not looked at")


def _found(options: argparse.Namespace) -> "tuple[list[StreamView], int, str]":
    """The streams, how many more there are, and where."""
    if not options.stream:
        with reach(options) as rota:
            known = rota.streams()
        return list(known.streams), known.left_out, " or ".join(known.folders)
    from rota.app.clocks import wall_clock
    from rota.wire.standings import is_stream, view_stream

    above, now = Path(options.stream), wall_clock()
    _check_folder(above)
    folders = [path.parent for path in sorted(above.glob("**/identity")) if is_stream(path.parent)]
    # The folder itself has no name below itself.
    names = [str(each.relative_to(above)) if each != above else each.resolve().name for each in folders]
    return [view_stream(*each, now) for each in zip(folders, names, strict=True)], 0, str(above)


def _check_folder(path: Path) -> None:
    """Refuse what is no folder, in which nobody has looked for streams."""
    from rota.core.errors import Refused

    if not path.exists():
        raise Refused("stream.unknown", f"there is no folder {path}", "Name one that streams are in.")
    if not path.is_dir():
        raise Refused("stream.folder", f"{path} is no folder", "Name one that streams are in.")


def _row(view: "StreamView") -> tuple[str, ...]:
    return (
        view.name,
        view.state,
        f"{view.round:,}",
        f"{view.rows_per_s:,.0f}",
        _span(view.lag_ms),
        f"{view.state_bytes:,}",
        f"{view.checkpoint_ms:,.1f} ms" if view.checkpoint_ms else "-",
        f"{view.late + view.dead + view.skipped + view.refused:,}",
    )


def _span(lag_ms: int | None) -> str:
    from rota.core.spans import show_span

    return "-" if lag_ms is None else show_span(lag_ms)


def _show(options: argparse.Namespace) -> None:
    from rota.wire.views import as_plain

    view = _read(options)
    if options.json:
        put_json(as_plain(view))
        return
    put(one_line(f"{view.name}: {view.state}, round {view.round:,} by incarnation {view.incarnation}"))
    for name, text in _facts(view):
        put(one_line(f"{name:<12}{text}"))


def _facts(view: "StreamView") -> list[tuple[str, str]]:
    found = [("folder", view.folder)]
    if view.trouble:
        found.append(("trouble", view.trouble))
    if view.paused:
        found.append(("paused", "yes; `rota stream resume` lets it go on"))
    if view.told_at:
        found.append(("run by", f"{_runner(view)}; last heard {show_time(view.told_at)}"))
        found.append(("promises", view.guarantee))
    found += [
        ("throughput", f"{view.rows_per_s:,.0f} rows/s, {view.rows:,} in all; a round takes {view.round_ms:,.1f} ms"),
        ("state", f"{view.state_rows:,} {'row' if view.state_rows == 1 else 'rows'}, {view.state_bytes:,} bytes"),
        (
            "checkpoint",
            f"{show_time(view.published_at) or 'none'}; took {view.checkpoint_ms:,.1f} ms, "
            f"median {view.checkpoint_p50_ms:,.1f}, worst {view.checkpoint_worst_ms:,.1f}",
        ),
        (
            "set aside",
            f"{view.late:,} late, {view.dead:,} dead letters, {view.skipped:,} skipped, {view.refused:,} refused",
        ),
    ]
    for each in view.progress:
        found.append(("watermark", f"{each.operator}: {_watermark(each)}"))
        if each.waiting_max:
            found.append(("waiting", _waiting(each)))
    found += [("count", f"{name}: {count:,}") for name, count in sorted(view.counts.items())]
    found += [("wanted", each) for each in view.wanted]
    if view.restorable:
        found.append(("rounds", "kept with state: " + ", ".join(str(each) for each in view.restorable)))
    found += [("savepoint", name) for name in view.savepoints]
    return found


def _watermark(each: "Progress") -> str:
    from rota.core.spans import show_instant

    if each.watermark_at is None:
        return "none"
    behind = f", {_span(each.lag_ms)} behind" if each.lag_ms is not None else ""
    return f"{show_time(each.watermark_at) or show_instant(each.watermark_at)}{behind}"


def _waiting(each: "Progress") -> str:
    held = f"; only {', '.join(each.reads_only)} is read until that has caught up" if each.reads_only else ""
    return f"{each.operator}: {each.waiting:,} of {each.waiting_max:,} rows{held}"


def _runner(view: "StreamView") -> str:
    if not view.run:
        return view.holder
    where = f" on {view.worker}" if view.worker else ""
    return f"run {view.run}, task {view.task}{where} ({view.holder})"


def _steer(options: argparse.Namespace) -> None:
    from rota.wire.views import as_plain

    which, stop = getattr(options, "which", ""), getattr(options, "stop", False)
    if _is_folder(options):
        _ask_folder(options, which, stop=stop)
        view = _read(options)
    else:
        with reach(options) as rota:
            view = rota.steer_stream(options.stream, options.verb, which, stop=stop)
    if options.json:
        put_json(as_plain(view))
        return
    words = " ".join(each for each in (options.verb, which, "and stop" if stop else "") if each)
    put(one_line(f"{view.name} is asked to {words}; {_when(view)}"))


def _when(view: "StreamView") -> str:
    """When that is heeded."""
    if view.state in ("running", "paused"):
        return "whoever runs it heeds that after its round"
    return f"it is {view.state}, and whoever starts it heeds that first"


def _ask_folder(options: argparse.Namespace, which: str, *, stop: bool) -> None:
    """Ask in the folder itself; a round to restore may be a file of another folder, too."""
    from rota.core.errors import Refused
    from rota.wire.standings import read_told
    from rota.wire.wishes import Wish, ask, check_round, check_wish

    folder = _folder(options)
    if options.verb == "restore" and os.sep in which:
        path = Path(which).absolute()
        check_round(path)
        ask(folder, Wish(id=f"cli-{secrets.token_hex(8)}", verb="restore", which=str(path)))
        return
    try:
        told = read_told(folder)
    except ValueError as wrong:
        raise Refused("stream.folder", f"{folder}: {wrong}", "Remove that file; it is written anew.") from None
    wish = Wish(id=f"cli-{secrets.token_hex(8)}", verb=options.verb, which=which, stop=stop)
    check_wish(folder, wish, told.restorable if told is not None else ())
    ask(folder, wish)
