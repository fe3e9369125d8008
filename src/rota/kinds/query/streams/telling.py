"""Whoever runs a stream tells others how it stands: numbers about its rounds, in a file that anybody may read.

Nothing depends on it but what people see, so a file that cannot be written stops no stream.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Protocol

from msgspec import structs

from rota.kinds.query.streams.manifests import Manifest
from rota.kinds.query.streams.pressure import Crowd
from rota.kinds.query.streams.watermarks import END, NEVER
from rota.wire.standings import ASIDE, End, Mark, Step, Told, read_told, write_told
from rota.wire.wishes import ENDING

TELL_EVERY_MS = 1_000
# An hour.
STEP_MS = 30_000
STEPS_KEPT = 120
# Over how long rows a second are counted, and how many checkpoints the times are of.
RATE_MS = 10_000
TIMES_KEPT = 500
TROUBLE_CHARS_MAX = 2_000


class Subject(Protocol):
    """What is told of: a stream at work."""

    @property
    def now_ms(self) -> Callable[[], int]:
        """Its clock."""
        ...

    @property
    def last(self) -> Manifest | None:
        """Its newest round."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """All that was counted."""
        ...

    @property
    def crowds(self) -> Sequence[Crowd]:
        """Where rows wait for others."""
        ...


class Teller:
    """What one incarnation tells, from when it has taken over."""

    def __init__(self, folder: Path, subject: Subject, about: Told, restorable: dict[int, int]) -> None:
        """`about` is what does not change: who it is, and what it promises.

        `restorable`: rounds with state, by their places in the chain.
        """
        self._folder = folder
        self._subject = subject
        self._now_ms = subject.now_ms
        self._about = about
        self._trouble = ""
        # How many rows had been read at an instant, for the rate.
        self._read: deque[tuple[int, int]] = deque()
        self._rounds: deque[float] = deque(maxlen=TIMES_KEPT)
        self._checkpoints: deque[float] = deque(maxlen=TIMES_KEPT)
        self._worst_ms = 0.0
        self._restorable = dict(restorable)
        self._state = (0, 0)
        self._told_at = 0
        self._steps: deque[Step] = deque(maxlen=STEPS_KEPT)
        # What others left behind, readable or not, is only missed on a chart.
        with suppress(OSError, ValueError):
            before = read_told(folder)
            self._steps.extend(before.steps if before is not None else ())
        with suppress(OSError):
            for path in folder.glob(f"{ASIDE}*"):
                path.unlink(missing_ok=True)
        self._adopt()
        self.tell()

    def _adopt(self) -> None:
        last = self._subject.last
        self._step_rows = rows = rows_read(last)
        self._read.clear()
        self._read.append((self._now_ms(), rows))
        if last is not None:
            self._note_state(last)

    def restored(self) -> None:
        """It went back to another round."""
        self._adopt()
        self.tell()

    def _note_state(self, manifest: Manifest) -> None:
        if manifest.has_state:
            pieces = [piece for piece in manifest.pieces if piece.kind == "state"]
            self._state = sum(piece.rows for piece in pieces), sum(piece.bytes for piece in pieces)
            self._restorable[manifest.position] = manifest.round

    def published(self, manifest: Manifest, checkpoint_ms: float) -> None:
        """A round was published, and how long that took of its time."""
        self._rounds.append(manifest.took_ms)
        self._checkpoints.append(checkpoint_ms)
        self._worst_ms = max(self._worst_ms, checkpoint_ms)
        self._read.append((self._now_ms(), rows_read(manifest)))
        self._note_state(manifest)
        self.tell_now_and_then()

    def tell_now_and_then(self) -> None:
        """Tell, if the last time is so long ago; however often it is called."""
        if self._now_ms() - self._told_at >= TELL_EVERY_MS:
            self.tell()

    def refused(self, text: str) -> None:
        """What was wanted of it cannot be done."""
        self._trouble = text[:TROUBLE_CHARS_MAX]
        self.tell()

    def ended(self, how: End, trouble: str = "") -> None:
        """This incarnation is over."""
        self._trouble = (trouble or self._trouble)[:TROUBLE_CHARS_MAX]
        self.tell(ended=how)

    def tell(self, ended: End = "") -> None:
        """Write down how it stands now."""
        now = self._told_at = self._now_ms()
        marks = self._marks()
        self._step(now, marks)
        with suppress(OSError):
            if not self._is_deposed():
                write_told(self._folder, self._told(now, marks, ended))

    def _is_deposed(self) -> bool:
        """Whether a later incarnation has told something: this one need not know yet that it is over."""
        with suppress(ValueError):
            return _is_later(read_told(self._folder), self._about)
        return False

    def _told(self, now: int, marks: tuple[Mark, ...], ended: End) -> Told:
        last, times = self._subject.last, self._checkpoints
        return structs.replace(
            self._about,
            told_at=now,
            ended=ended,
            trouble=self._trouble,
            round=last.round if last else 0,
            rows=rows_read(last),
            rows_per_s=self._rate(now),
            round_ms=round(median(self._rounds), 3) if self._rounds else 0,
            published_at=last.published_at_ms if last else 0,
            checkpoint_ms=round(times[-1], 3) if times else 0,
            checkpoint_p50_ms=round(median(times), 3) if times else 0,
            checkpoint_worst_ms=round(self._worst_ms, 3),
            state_rows=self._state[0],
            state_bytes=self._state[1],
            marks=marks,
            counts=dict(self._subject.counts),
            restorable=self._still_there(),
            steps=tuple(self._steps),
        )

    def _marks(self) -> tuple[Mark, ...]:
        last, crowds = self._subject.last, {each.operator: each for each in self._subject.crowds}
        return tuple(
            _crowded(
                Mark(operator=name, watermark_at=None if clock.mark in (NEVER, END) else clock.mark),
                crowds.get(name),
            )
            for name, clock in (last.clocks if last else {}).items()
        )

    def _rate(self, now: int) -> float:
        """Rows a second, lately."""
        while len(self._read) > 1 and now - self._read[1][0] >= RATE_MS:
            self._read.popleft()
        (since, before), (_, rows) = self._read[0], self._read[-1]
        return round((rows - before) * 1_000 / (now - since), 1) if now > since else 0

    def _step(self, now: int, marks: tuple[Mark, ...]) -> None:
        """One more step of the trend, if it is time for one."""
        newest = self._steps[-1].at if self._steps else 0
        if now - newest < STEP_MS:
            return
        rows = rows_read(self._subject.last)
        lag_ms = max((now - each.watermark_at for each in marks if each.watermark_at is not None), default=None)
        self._steps.append(Step(at=now, rows=max(0, rows - self._step_rows), lag_ms=lag_ms))
        self._step_rows = rows

    def _still_there(self) -> tuple[int, ...]:
        """Rounds that can be gone on from: old ones are removed as the stream goes on."""
        with suppress(OSError):
            names = {path.name for path in (self._folder / "rounds").iterdir()}
            self._restorable = {at: each for at, each in self._restorable.items() if f"{at:012d}{ENDING}" in names}
        return tuple(sorted(dict.fromkeys(self._restorable.values())))


def _is_later(told: Told | None, about: Told) -> bool:
    """Whether what was told is of a later incarnation than this."""
    return told is not None and told.incarnation > about.incarnation


def told_failed(folder: Path, about: Told, now_ms: int, trouble: str) -> None:
    """Tell that an incarnation ended before its first round, beside what its stream has told before."""
    before = None
    with suppress(OSError, ValueError):
        before = read_told(folder)
    if _is_later(before, about):
        return
    told = structs.replace(
        before or about,
        told_at=now_ms,
        holder=about.holder,
        incarnation=about.incarnation,
        guarantee=about.guarantee,
        run=about.run,
        task=about.task,
        ended="failed",
        trouble=trouble[:TROUBLE_CHARS_MAX],
    )
    with suppress(OSError):
        write_told(folder, told)


def _crowded(mark: Mark, crowd: Crowd | None) -> Mark:
    """How far an operator has come, with the rows that wait in it."""
    if crowd is None:
        return mark
    return structs.replace(mark, waiting=crowd.waiting, waiting_max=crowd.waiting_max, reads_only=crowd.waits_for)


def rows_read(manifest: Manifest | None) -> int:
    """How many rows were read from all sources since the stream began."""
    if manifest is None:
        return 0
    sources = dict.fromkeys(name.rpartition("/")[0] for name in manifest.offsets)
    return sum(manifest.counts.get(f"{name}.rows", 0) for name in sources)
