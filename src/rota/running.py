"""For code that a worker runs: what it may know of its attempt, and the ways to end one besides returning.

Imports next to nothing, because every process that runs user code imports it.
"""

import os
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, timedelta
    from logging import Logger


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


class Request:
    """A request over HTTP, as a function under `@task.http` returns it; the worker sends it."""

    __slots__ = ("accepted", "body", "headers", "method", "url")

    def __init__(
        self,
        method: str,
        url: str,
        *,
        headers: "Mapping[str, str] | None" = None,
        json: Any = None,
        body: "bytes | str" = b"",
        accepted: "Sequence[int]" = (200, 201, 202, 204),
    ) -> None:
        self.method = method.upper()
        self.url = url
        self.headers = {str(name): str(value) for name, value in (headers or {}).items()}
        self.body = body.encode() if isinstance(body, str) else body
        self.accepted = tuple(accepted)
        if json is not None:
            if body:
                raise TypeError("a request has one body: json or body")
            self.body = _as_json(json)
            if "content-type" not in (name.lower() for name in self.headers):
                self.headers["Content-Type"] = "application/json"

    def plain(self) -> dict[str, Any]:
        """For runners: the request in plain values."""
        return {name: getattr(self, name) for name in self.__slots__} | {"accepted": list(self.accepted)}


def _as_json(value: Any) -> bytes:
    import msgspec

    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"this cannot be sent as JSON: {error}") from None


class Cancelled:
    """Whether the attempt was asked to stop. Made so that it may be set at any moment, also by a signal.

    What is asked to stop and goes on is killed a moment later.
    """

    def __init__(self) -> None:
        self._heard, self._said = os.pipe()

    def is_set(self) -> bool:
        """Whether it was."""
        return self.wait(0)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is, or for so many seconds; whether it is."""
        import select

        waiting = select.poll()
        waiting.register(self._heard, select.POLLIN)
        return bool(waiting.poll(None if timeout_s is None else timeout_s * 1_000))

    def set(self, *_: object) -> None:
        """For runners: ask."""
        os.write(self._said, b"!")

    def __del__(self) -> None:
        os.close(self._heard)
        os.close(self._said)


class Context:
    """Which attempt this is. `fence` only ever grows: keep it beside what you write elsewhere and refuse older ones."""

    def __init__(
        self,
        *,
        tenant: str,
        run: str,
        task: str,
        attempt: int,
        fence: int,
        workflow: str = "",
        version: int = 0,
        map_index: int = -1,
        logical_at: int = 0,
        deadline_at: int | None = None,
        packed: bytes = b"",
        zone: str = "UTC",
        watch: "Callable[[Cancelled], None] | None" = None,
        may_grow: bool = False,
    ) -> None:
        self.tenant = tenant
        self.run = run
        self.task = task
        self.attempt = attempt
        self.fence = fence
        self.workflow = workflow
        # Which version of a deployed workflow; 0 if it was not deployed.
        self.version = version
        # Which task of a mapped one, from 0; -1 if it is not mapped.
        self.map_index = map_index
        self.logical_at = logical_at
        # When the attempt is killed, in milliseconds since 1970; None if nothing limits it.
        self.deadline_at = deadline_at
        self.zone = zone
        self._packed = packed
        self._params: dict[str, Any] | None = None
        self._watch = watch
        self._may_grow = may_grow
        self._cancelled: list[Cancelled] = []

    @property
    def params(self) -> dict[str, Any]:
        """The run's parameters."""
        if self._params is None:
            self._params = unpack_params(self._packed)
        return self._params

    @property
    def logical_date(self) -> "datetime":
        """What the run is about: its schedule's instant, or when it was made; in the workflow's time zone."""
        from datetime import UTC, datetime

        at = datetime.fromtimestamp(self.logical_at / 1_000, UTC)
        if self.zone == "UTC":
            return at
        from zoneinfo import ZoneInfo

        return at.astimezone(ZoneInfo(self.zone))

    @property
    def remaining_s(self) -> float | None:
        """How many seconds are left until the attempt is killed; None if nothing limits it."""
        if self.deadline_at is None:
            return None
        import time

        return max(0.0, self.deadline_at / 1_000 - time.time_ns() / 1e9)

    @property
    def cancelled(self) -> Cancelled:
        """Set when the attempt is asked to stop: look at it now and then, put things in order and return."""
        if not self._cancelled:
            made = Cancelled()
            if self._watch is not None:
                self._watch(made)
            # Whoever is first: another thread may have been here meanwhile.
            self._cancelled.append(made)
        return self._cancelled[0]

    def take_growth(self) -> bool:
        """For functions of Rota's own: whether the attempt may end with the task going on as others.

        Said once, to the function that is called for the task, and not to those that it calls.
        """
        may_grow, self._may_grow = self._may_grow, False
        return may_grow

    @property
    def log(self) -> "Logger":
        """A logger of the standard library that writes to the task's log."""
        return _logger()

    def __repr__(self) -> str:
        return f"<attempt {self.run}/{self.task}#{self.attempt} of {self.tenant}, fence {self.fence}>"


def _logger() -> "Logger":
    import logging
    import sys

    logger = logging.getLogger("rota.task")
    if not logger.handlers:

        class ToStderr(logging.Handler):
            """Writes to what stderr is at that moment: it leads to another log with every attempt."""

            def emit(self, record: logging.LogRecord) -> None:
                sys.stderr.write(f"{self.format(record)}\n")
                sys.stderr.flush()

        printer = ToStderr()
        printer.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(printer)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    return logger


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
