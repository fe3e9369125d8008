"""The journal of a service: what an operator should know, one line of JSON each, never more than a bounded number.

A cause that repeats writes ten lines a second; the rest of that second is one line that says how many there were.
"""

import sys
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from rota.control.events import Escalate, Tell
from rota.core.ids import Millis

LINES_PER_SECOND = 10
TEXT_CHARS_MAX = 1_000
# There are some dozens; more at once is a mistake that must not fill memory.
KINDS_MAX = 200
OTHER = "other"

_encode = msgspec.json.Encoder().encode


class _Second:
    """How much one kind has said in one second."""

    __slots__ = ("began_at", "said", "unsaid")

    def __init__(self, began_at: Millis) -> None:
        self.began_at = began_at
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
    """A listener for drivers and gates."""

    def __init__(self, clock: Callable[[], Millis], write: Callable[[str], None] = write_to_stderr) -> None:
        self._clock = clock
        self._write = write
        self._seconds: dict[str, _Second] = {}

    def __call__(self, said: Tell | Escalate) -> None:
        """Write a line, unless its kind has said enough in this second."""
        now = self._clock()
        self._sum_up(now)
        kind, about = _content(said)
        second = self._seconds.get(kind)
        if second is None:
            if len(self._seconds) >= KINDS_MAX:
                kind = OTHER
            second = self._seconds.setdefault(kind, _Second(now))
        if second.said < LINES_PER_SECOND and kind != OTHER:
            second.said += 1
            self._line(now, kind, about)
        else:
            second.unsaid += 1

    def close(self) -> None:
        """Say what was left out so far."""
        self._sum_up(self._clock() + 1_000)

    def _sum_up(self, now: Millis) -> None:
        # The oldest comes first.
        while self._seconds:
            kind, second = next(iter(self._seconds.items()))
            if now - second.began_at < 1_000:
                return
            del self._seconds[kind]
            if second.unsaid:
                self._line(now, kind, {"more": str(second.unsaid)})

    def _line(self, now: Millis, kind: str, about: dict[str, str]) -> None:
        at = datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="milliseconds")
        cut = {name: value[:TEXT_CHARS_MAX] for name, value in about.items()}
        self._write(_encode({"at": at, "what": kind, **cut}).decode() + "\n")


def _content(said: Tell | Escalate) -> tuple[str, dict[str, str]]:
    if isinstance(said, Tell):
        # A detail cannot pass itself off as the time or the kind of its line.
        return said.what, {name if name not in ("at", "what") else f"_{name}": value for name, value in said.about}
    about = {"tenant": said.tenant, "run": said.run, "task": str(said.task), "tier": str(said.tier)}
    return "starved", about
