"""How a stream stands, as whoever runs it writes it down for others; and what a coordinator is asked about streams.

The file `standing.json` in a stream's folder is all that others read, so that a coordinator needs neither the engine
nor the state of a stream. It is written whole and put in place by a rename; what cannot be read is shown as that.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from rota.core.ids import Millis
from rota.core.questions import Question
from rota.wire.plainfiles import read_plain
from rota.wire.wishes import ENDING, SAVEPOINTS, is_name, read_wishes

FILE = "standing.json"
# Where it is written first; an incarnation has a name of its own.
ASIDE = "_standing-"
SAVEPOINTS_SHOWN_MAX = 200
# Whoever runs a stream writes about once a second. One that is silent for so long is gone, or in a very long round.
SILENT_MS = 30_000
# In the order in which people should see them.
STATES = ("broken", "failed", "silent", "running", "paused", "stopped", "over", "new")
# How it ended, if it did.
End = Literal["", "over", "stopped", "failed"]


class Mark(Struct, frozen=True, kw_only=True):
    """How far an operator has come; None before its first rows and after its last.

    `waiting`: how many rows wait in it for others, of so many that may. `reads_only`: so many do that only these
    partitions are read, until they have caught up.
    """

    operator: str
    watermark_at: Millis | None = None
    waiting: int = 0
    waiting_max: int = 0
    reads_only: tuple[str, ...] = ()


class Step(Struct, frozen=True, kw_only=True):
    """Some seconds of a stream's life, until `at`: how many rows it read in them, and how far it was behind then."""

    at: Millis
    rows: int = 0
    lag_ms: int | None = None


class Told(Struct, frozen=True, kw_only=True):
    """What is in the file. Times of checkpoints and rounds are those of the present incarnation.

    `ended`: how it ended, if it did: `over` (no more rows can come), `stopped` or `failed`.
    """

    told_at: Millis
    holder: str = ""
    incarnation: int = 0
    run: str = ""
    task: str = ""
    guarantee: str = ""
    ended: End = ""
    trouble: str = ""
    round: int = 0
    rows: int = 0
    rows_per_s: float = 0
    round_ms: float = 0
    published_at: Millis = 0
    checkpoint_ms: float = 0
    checkpoint_p50_ms: float = 0
    checkpoint_worst_ms: float = 0
    state_rows: int = 0
    state_bytes: int = 0
    marks: tuple[Mark, ...] = ()
    counts: dict[str, int] = {}
    # Rounds that can be gone on from, the oldest first.
    restorable: tuple[int, ...] = ()
    steps: tuple[Step, ...] = ()


class Progress(Struct, frozen=True, kw_only=True):
    """How far an operator has come, and how far behind now that is; None before its first rows and after its last.

    A stream that has ended is behind nothing. `waiting` of `waiting_max` rows wait in it for others; if these are many,
    only the partitions in `reads_only` are read.
    """

    operator: str
    watermark_at: Millis | None = None
    lag_ms: int | None = None
    waiting: int = 0
    waiting_max: int = 0
    reads_only: tuple[str, ...] = ()


class StreamView(Struct, frozen=True, kw_only=True):
    """A stream as it stands. `lag_ms` is that of the operator that is furthest behind.

    `trouble`: why it failed, or what of it cannot be read, or which wish could not be met. `worker` has the task that
    runs it, as far as that is known.
    """

    name: str
    folder: str
    state: str
    trouble: str = ""
    paused: bool = False
    guarantee: str = ""
    round: int = 0
    rows: int = 0
    rows_per_s: float = 0
    round_ms: float = 0
    watermark_at: Millis | None = None
    lag_ms: int | None = None
    progress: tuple[Progress, ...] = ()
    state_rows: int = 0
    state_bytes: int = 0
    published_at: Millis = 0
    checkpoint_ms: float = 0
    checkpoint_p50_ms: float = 0
    checkpoint_worst_ms: float = 0
    late: int = 0
    dead: int = 0
    skipped: int = 0
    refused: int = 0
    counts: dict[str, int] = {}
    told_at: Millis = 0
    holder: str = ""
    incarnation: int = 0
    run: str = ""
    task: str = ""
    worker: str = ""
    # What was asked for and not done yet, in words.
    wanted: tuple[str, ...] = ()
    restorable: tuple[int, ...] = ()
    savepoints: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()


class ListStreams(Question, frozen=True, kw_only=True, tag="ListStreams"):
    """The streams in the folders that the coordinator knows; `run`: only those that a task of that run runs."""

    run: str = ""


class StreamsView(Struct, frozen=True, kw_only=True):
    """Streams by their names, as they were `as_of`. `left_out`: how many more there are than are looked at."""

    as_of: Millis = 0
    streams: tuple[StreamView, ...] = ()
    folders: tuple[str, ...] = ()
    left_out: int = 0


class GetStream(Question, frozen=True, kw_only=True, tag="GetStream"):
    """One of them."""

    stream: str


_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_decode = msgspec.json.Decoder(Told).decode


def write_told(folder: Path, told: Told) -> None:
    """Put the file in place, as a whole. It is not flushed: after a loss of power the next round says it anew."""
    aside = folder / f"{ASIDE}{told.incarnation}"
    aside.write_bytes(_encode(told))
    aside.replace(folder / FILE)


def read_told(folder: Path) -> Told | None:
    """What is in the file; None if there is none. Raises ValueError with what is wrong with it."""
    try:
        content = read_plain(folder / FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{FILE} cannot be read: {error.strerror}") from None
    try:
        return _decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{FILE} cannot be read: {error}") from None


def is_stream(folder: Path) -> bool:
    """Whether a folder is that of a stream."""
    return os.path.isdir(folder / "rounds") and os.path.isfile(folder / "identity")  # noqa: PTH112, PTH113 - no errors


def view_stream(folder: Path, name: str, now: Millis) -> StreamView:
    """How the stream in a folder stands, whatever state its files are in.

    They may be anybody's: whatever one of them has must not keep people from hearing of all other streams.
    """
    try:
        view = _view(folder, name, now)
        # A number that no answer can hold would spoil the answer about all of them.
        _pack(view)
        return view
    except Exception as error:
        trouble = f"its files cannot be read: {type(error).__name__}: {error}"
        return StreamView(name=name, folder=str(folder), state="broken", trouble=trouble)


def _view(folder: Path, name: str, now: Millis) -> StreamView:
    broken = ""
    told: Told | None = None
    paused, wanted = False, ()
    try:
        told = read_told(folder)
        wishes = read_wishes(folder)
        paused, wanted = wishes.paused, tuple(each.words for each in wishes.pending)
    except ValueError as wrong:
        broken = str(wrong)
    known = told or Told(told_at=0)
    progress = tuple(_progress(each, None if known.ended else now) for each in known.marks)
    furthest = min((each for each in progress if each.watermark_at is not None), key=_watermark, default=None)
    return StreamView(
        name=name,
        folder=str(folder),
        state="broken" if broken else _state(told, now, paused=paused),
        trouble=broken or known.trouble,
        paused=paused,
        guarantee=known.guarantee,
        round=known.round,
        rows=known.rows,
        rows_per_s=known.rows_per_s if not known.ended and now - known.told_at <= SILENT_MS else 0,
        round_ms=known.round_ms,
        watermark_at=furthest.watermark_at if furthest else None,
        lag_ms=furthest.lag_ms if furthest else None,
        progress=progress,
        state_rows=known.state_rows,
        state_bytes=known.state_bytes,
        published_at=known.published_at,
        checkpoint_ms=known.checkpoint_ms,
        checkpoint_p50_ms=known.checkpoint_p50_ms,
        checkpoint_worst_ms=known.checkpoint_worst_ms,
        late=_counted(known, "late"),
        dead=_counted(known, "dead"),
        skipped=_counted(known, "skipped"),
        refused=_counted(known, "refused"),
        counts=known.counts,
        told_at=known.told_at,
        holder=known.holder,
        incarnation=known.incarnation,
        run=known.run,
        task=known.task,
        wanted=wanted,
        restorable=known.restorable,
        savepoints=savepoints_in(folder),
        steps=known.steps,
    )


def _state(told: Told | None, now: Millis, *, paused: bool) -> str:
    if told is None:
        return "new"
    if told.ended:
        return told.ended
    if now - told.told_at > SILENT_MS:
        return "silent"
    return "paused" if paused else "running"


def _progress(mark: Mark, now: Millis | None) -> Progress:
    """How far it is behind `now`; nobody waits for one that has ended. Rows from the future are ahead of nobody."""
    at = mark.watermark_at
    lag_ms = None if at is None or now is None else max(0, now - at)
    return Progress(
        operator=mark.operator,
        watermark_at=at,
        lag_ms=lag_ms,
        waiting=mark.waiting,
        waiting_max=mark.waiting_max,
        reads_only=mark.reads_only if now is not None else (),
    )


def _watermark(progress: Progress) -> Millis:
    return progress.watermark_at or 0


def _counted(told: Told, sort: str) -> int:
    return sum(count for name, count in told.counts.items() if name.endswith(f".{sort}"))


def savepoints_in(folder: Path) -> tuple[str, ...]:
    """The names of a stream's savepoints; of very many the first. A link leads elsewhere, and is left alone."""
    path, found = folder / SAVEPOINTS, list[str]()
    with suppress(OSError):
        if not path.is_symlink():
            found = [each.stem for each in path.iterdir() if each.suffix == ENDING and is_name(each.stem)]
    return tuple(sorted(found)[:SAVEPOINTS_SHOWN_MAX])


def is_text(name: str) -> bool:
    """Whether a name of a file can be told to others: it may be any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
