"""The journal of a service: what an operator should know, one line of JSON each, never more than a bounded number.

A cause that repeats writes ten lines a second, or one in half a minute if it is of those that repeat by themselves; the
rest of that time is one line that says how many there were.
"""

import sys
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from rota.alarm import Alarm
from rota.app.clocks import wall_clock
from rota.config.masking import mask_text
from rota.control.events import Escalate, Level, Tell
from rota.core.ids import Millis
from rota.core.ladder import Tier

LINES_PER_SECOND = 10
RECENT_LINES = 500
# What a process says each time it tries again: an operator should hear of it, and not at every try.
RARE = (
    "coordinator.away",
    "elect.failed",
    "leader.unknown",
    "logs.unshipped",
    "store.away",
    "vacancy.failed",
    "worker.refused",
)
RARE_EVERY_MS = 30_000
TEXT_CHARS_MAX = 1_000
# Nobody can do a task, and it will be parked before long.
TASK_STARVED = "task.starved"
# There are some dozens; more at once is a mistake that must not fill memory.
KINDS_MAX = 200
# What counts as one and the same: what is told, and of some things why, so that one noisy cause hides no other.
Kind = tuple[str, str]
OTHER = ("other", "")

# Every event, and how loud it is unless whoever tells it is louder. docs/reference/journal.md says what each means.
LEVELS: dict[str, Level] = {
    "advertised": Level.WARNING,
    "auth.refused": Level.WARNING,
    "auth.reload_failed": Level.ERROR,
    "auth.reloaded": Level.INFO,
    "builds": Level.INFO,
    "builds.off": Level.WARNING,
    "commit.refused": Level.ERROR,
    "commit.retry": Level.WARNING,
    "coordinator.away": Level.WARNING,
    "coordinator.failed": Level.ERROR,
    "duty.ended": Level.WARNING,
    "elect.failed": Level.WARNING,
    "epoch.overtaken": Level.WARNING,
    "exposed": Level.WARNING,
    "fault": Level.ERROR,
    "frontend.ended": Level.WARNING,
    "garbage.failed": Level.WARNING,
    "grpc": Level.INFO,
    "holds.failed": Level.WARNING,
    "leader.unknown": Level.WARNING,
    "logs.unshipped": Level.WARNING,
    "loop.paused": Level.WARNING,
    "match": Level.INFO,
    "other": Level.WARNING,
    "queries.off": Level.WARNING,
    "queries.table": Level.WARNING,
    "recorder.failed": Level.ERROR,
    "reign.began": Level.INFO,
    "release.failed": Level.WARNING,
    "request.failed": Level.ERROR,
    "spawner.ended": Level.INFO,
    "spawner.failed": Level.WARNING,
    "spawner.started": Level.INFO,
    "starved": Level.INFO,
    "step_down": Level.WARNING,
    "store.away": Level.WARNING,
    "store.crowded": Level.WARNING,
    TASK_STARVED: Level.WARNING,
    "tidy.failed": Level.WARNING,
    "vacancy.failed": Level.WARNING,
    "worker.begins": Level.INFO,
    "worker.failed": Level.ERROR,
    "worker.joined": Level.INFO,
    "worker.moved": Level.WARNING,
    "worker.quarantined": Level.WARNING,
    "worker.recovered": Level.INFO,
    "worker.refused": Level.WARNING,
}
_LOUD = [*Level]

_encode = msgspec.json.Encoder().encode


class _Span:
    """How much one kind has said in its time."""

    __slots__ = ("ends_at", "lines_max", "said", "unsaid")

    def __init__(self, kind: Kind, now: Millis) -> None:
        is_rare = kind[0] in RARE
        self.ends_at = now + (RARE_EVERY_MS if is_rare else 1_000)
        self.lines_max = 1 if is_rare else 0 if kind == OTHER else LINES_PER_SECOND
        self.said = 0
        self.unsaid = 0


def write_to_stderr(line: str) -> None:
    """Everything that is not data goes there. A reader that is gone must not stop the service."""
    try:
        sys.stderr.write(line)
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


class Journal:
    """A listener for drivers and gates.

    `clock` never runs back, and decides; `wall` is only what is written. A day that is set back stops no lines.
    """

    def __init__(
        self,
        clock: Callable[[], Millis],
        write: Callable[[str], None] = write_to_stderr,
        wall: Callable[[], Millis] = wall_clock,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._write = write
        self._spans: dict[Kind, _Span] = {}
        self._alarm: Alarm | None = None
        # What was written last, for whoever asks what goes on.
        self.recent: deque[str] = deque(maxlen=RECENT_LINES)

    def start(self) -> None:
        """From now on say what was left out by itself, also if nothing else happens; this needs a running loop."""
        self._alarm = Alarm(self._sum_up)

    def close(self) -> None:
        """Say what was left out so far."""
        if self._alarm is not None:
            self._alarm.stop()
            self._alarm = None
        for kind, span in self._spans.items():
            self._say_left_out(kind, span)
        self._spans.clear()

    def __call__(self, said: Tell | Escalate) -> None:
        """Write a line, unless its kind has said enough for now."""
        self._sum_up()
        now = self._clock()
        kind, about = _content(said)
        own = said.level if isinstance(said, Tell) else Level.INFO
        level = max(own, LEVELS.get(kind[0], Level.INFO), key=_LOUD.index)
        if kind not in self._spans and len(self._spans) >= KINDS_MAX:
            kind = OTHER
        span = self._spans.get(kind)
        if span is None:
            span = self._spans[kind] = _Span(kind, now)
        if span.said < span.lines_max:
            span.said += 1
            self._line(kind[0], about, level)
            return
        span.unsaid += 1
        if self._alarm is not None:
            self._alarm.set(span.ends_at, now)

    def _sum_up(self) -> None:
        """Say what was left out of the spans that are over, and be called again when the next one is."""
        now = self._clock()
        for kind, span in [each for each in self._spans.items() if each[1].ends_at <= now]:
            del self._spans[kind]
            self._say_left_out(kind, span)
        if self._alarm is not None:
            ends = [span.ends_at for span in self._spans.values() if span.unsaid]
            if ends:
                self._alarm.set(min(ends), now)

    def _say_left_out(self, kind: Kind, span: _Span) -> None:
        if span.unsaid:
            what, cause = kind
            about = {**({"cause": cause} if cause else {}), "more": str(span.unsaid)}
            self._line(what, about, LEVELS.get(what, Level.INFO))

    def _line(self, what: str, about: dict[str, str], level: Level = Level.INFO) -> None:
        at = datetime.fromtimestamp(self._wall() / 1000, UTC).isoformat(timespec="milliseconds")
        cut = {name: mask_text(value[:TEXT_CHARS_MAX]) for name, value in about.items()}
        line = _encode({"at": at, "level": level.value, "what": what, **cut}).decode()
        self.recent.append(line)
        self._write(line + "\n")


def _content(said: Tell | Escalate) -> tuple[Kind, dict[str, str]]:
    if isinstance(said, Tell):
        # A detail cannot pass itself off as the time or the kind of its line.
        about = {name if name not in ("at", "what", "level") else f"_{name}": value for name, value in said.about}
        return (said.what, about.get("cause", "")), about
    about = {"tenant": said.tenant, "run": said.run, "task": str(said.task), "tier": str(said.tier)}
    if said.why:
        about["reason"] = said.why
    return (TASK_STARVED if _is_event(said) else "starved", ""), about


def _is_event(said: Escalate) -> bool:
    """The tier at which whoever looks after the service is to hear of a task, once."""
    return said.is_new and said.tier == Tier.EVENT
