"""How a stream stands, as its folder tells; whoever runs it need not be asked."""

from pathlib import Path

from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.streams.chain import Chain, rounds_in
from rota.kinds.query.streams.manifests import Manifest
from rota.kinds.query.streams.watermarks import END, NEVER
from rota.kinds.query.streams.wishes import read_wishes


class Progress(Struct, frozen=True):
    """How far an operator has come, and how far behind now that is; None before its first rows and after its last."""

    operator: str
    watermark_ms: int | None
    lag_ms: int | None


class Standing(Struct, frozen=True, kw_only=True):
    """A stream as it stands. Rates and times are those of the rounds that are kept."""

    folder: str
    state: str
    round: int = 0
    rounds_kept: int = 0
    incarnation: int = 0
    published_at_ms: int = 0
    rows_per_s: float = 0
    round_ms: float = 0
    state_bytes: int = 0
    state_rows: int = 0
    progress: tuple[Progress, ...] = ()
    counts: dict[str, int] = {}
    savepoints: tuple[str, ...] = ()


def is_stream(folder: Path) -> bool:
    """Whether a folder is that of a stream."""
    return (folder / "rounds").is_dir() and (folder / "identity").is_file()


def check_stream(folder: Path) -> None:
    """Refuse a folder that is none of a stream, before anything is made in it."""
    if not is_stream(folder):
        raise Refused("stream.unknown", f"there is no stream in {folder}", "`rota stream list DIR` looks for some.")


def standing(folder: Path, now_ms: int) -> Standing:
    """How the stream in a folder stands."""
    check_stream(folder)
    rounds, savepoints = rounds_in(folder), tuple(Chain(folder).savepoints())
    paused = read_wishes(folder).paused
    if not rounds:
        return Standing(folder=str(folder), state="paused" if paused else "new", savepoints=savepoints)
    last = rounds[-1]
    state = "over" if last.is_final else "paused" if paused else "open"
    newest = next((each for each in reversed(rounds) if each.has_state), None)
    kept = [piece for piece in newest.pieces if piece.kind == "state"] if newest else []
    times = sorted(each.took_ms for each in rounds)
    return Standing(
        folder=str(folder),
        state=state,
        round=last.round,
        rounds_kept=len(rounds),
        incarnation=last.incarnation,
        published_at_ms=last.published_at_ms,
        rows_per_s=_rate(rounds),
        round_ms=times[len(times) // 2],
        state_bytes=sum(piece.bytes for piece in kept),
        state_rows=sum(piece.rows for piece in kept),
        progress=tuple(_progress(name, clock.mark, now_ms) for name, clock in last.clocks.items()),
        counts=last.counts,
        savepoints=savepoints,
    )


def _progress(name: str, mark: int, now_ms: int) -> Progress:
    if mark in (NEVER, END):
        return Progress(name, None, None)
    return Progress(name, mark, now_ms - mark)


def _rate(rounds: list[Manifest]) -> float:
    """Rows of all sources a second, from the first round that is kept to the last."""
    first, last = rounds[0], rounds[-1]
    took_ms = last.published_at_ms - first.published_at_ms
    if took_ms <= 0:
        return 0
    sources = dict.fromkeys(each.source for manifest in rounds if manifest.plan for each in manifest.plan.ranges)
    read = sum(last.counts.get(f"{name}.rows", 0) - first.counts.get(f"{name}.rows", 0) for name in sources)
    return round(read / took_ms * 1_000, 1)
