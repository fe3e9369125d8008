"""For code that a worker runs: what it may know of its attempt, and the ways to end one besides returning.

Imports next to nothing, because every process that runs user code imports it.
"""

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from datetime import datetime, timedelta


class Skip(Exception):
    """Raise it to end the attempt as skipped; what follows is decided by its trigger rules."""


class Fail(Exception):
    """Raise it to fail for good: the attempt is not tried again, however many retries are left."""


class Reschedule(Exception):
    """Raise it to give the slot back and be run again later, at no cost: for waiting without occupying a worker.

    Either `delay`, in seconds or as a timedelta, or `at`, a datetime with a time zone.
    """

    def __init__(self, delay: "float | timedelta" = 0, *, at: "datetime | None" = None) -> None:
        super().__init__(f"until {at}" if at is not None else f"in {delay}")
        if at is not None and at.tzinfo is None:
            raise ValueError("Reschedule(at=…) needs a datetime with a time zone, such as datetime.now(UTC)")
        self.delay_ms = round(1_000 * (delay if isinstance(delay, int | float) else delay.total_seconds()))
        self.at_ms = None if at is None else round(1_000 * at.timestamp())

    def resume_at(self, now: int) -> int:
        """The instant to come back at, in milliseconds."""
        return now + max(0, self.delay_ms) if self.at_ms is None else self.at_ms


class Context:
    """Which attempt this is. `fence` only ever grows: keep it beside what you write elsewhere and refuse older ones."""

    __slots__ = ("_packed", "_params", "attempt", "deadline_at", "fence", "run", "task", "tenant")

    def __init__(
        self, tenant: str, run: str, task: str, attempt: int, fence: int, deadline_at: int | None, packed: bytes
    ) -> None:
        self.tenant = tenant
        self.run = run
        self.task = task
        self.attempt = attempt
        self.fence = fence
        # When the attempt is killed, in milliseconds since 1970; None if nothing limits it.
        self.deadline_at = deadline_at
        self._packed = packed
        self._params: dict[str, Any] | None = None

    @property
    def params(self) -> dict[str, Any]:
        """The run's parameters."""
        if self._params is None:
            self._params = unpack_params(self._packed)
        return self._params

    def __repr__(self) -> str:
        return f"<attempt {self.run}/{self.task}#{self.attempt} of {self.tenant}, fence {self.fence}>"


def unpack_params(packed: bytes) -> dict[str, Any]:
    """A run's parameters by name; none if the run was given none."""
    if not packed:
        return {}
    import msgspec  # most attempts never look at their parameters

    return msgspec.msgpack.decode(packed, type=dict[str, Any])


_of_thread: ContextVar[Context | None] = ContextVar("rota_context", default=None)
_of_process: list[Context] = []


def context() -> Context:
    """The attempt that the calling code belongs to. Threads that it started see the same, in a process of its own."""
    found = _of_thread.get()
    if found is not None:
        return found
    if _of_process:
        return _of_process[-1]
    raise LookupError("no attempt is running here: rota.context() is for code that a worker runs")


class Entered:
    """For runners: makes a context the current one for a while."""

    def __init__(self, current: Context, *, owns_process: bool) -> None:
        self._current = current
        self._owns_process = owns_process

    def __enter__(self) -> None:
        self._token = _of_thread.set(self._current)
        if self._owns_process:
            _of_process.append(self._current)

    def __exit__(self, *exc: object) -> None:
        _of_thread.reset(self._token)
        if self._owns_process:
            _of_process.clear()


class Loading:
    """For runners: a script is being loaded for the sake of its functions. It must not start again."""

    current: ClassVar[list[str]] = []

    def __init__(self, file: str) -> None:
        self._file = file

    def __enter__(self) -> None:
        Loading.current.append(self._file)

    def __exit__(self, *exc: object) -> None:
        Loading.current.pop()
