"""The worker's driver: carries frames between the Sync machine and a coordinator, and attempts to their runners.

It takes no decision: when to speak, what to start and when to stop by itself is the machine's to say.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import structs

from rota.alarm import Alarm
from rota.core.commands import Outcome
from rota.core.decide.leases import Offer
from rota.core.ids import Fence, Millis
from rota.core.model import FailureClass
from rota.wire.frames import CoordinatorFrame, WorkerFrame
from rota.worker.runners import AT_ONCE, Runner
from rota.worker.sync import (
    UNRENEWED,
    AttemptGone,
    AttemptOver,
    Connect,
    Connected,
    Disconnect,
    Disconnected,
    DrainAsked,
    Event,
    FrameCame,
    Intent,
    Left,
    Send,
    StartAttempt,
    StopAttempt,
    SyncMachine,
)

# An address that swallows what is sent to it must not keep the worker from trying the next one.
DIAL_S = 10.0


class Link(Protocol):
    """An open stream to a coordinator."""

    def send(self, frame: WorkerFrame) -> None:
        """Say something."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


# Opens a stream; what comes on it goes to the function given, None when the stream is gone.
Dial = Callable[[Callable[[CoordinatorFrame | None], None]], Awaitable[Link]]


class WorkerDriver:
    """One worker in this process."""

    def __init__(
        self,
        machine: SyncMachine,
        dial: Dial,
        runners: Mapping[str, Runner],
        clock: Callable[[], Millis],
        failing: Callable[[BaseException], None],
    ) -> None:
        """`failing` hears of an error of ours, after which this worker does nothing any more."""
        self.machine = machine
        self.clock = clock
        self.left = asyncio.Event()
        self.failed: BaseException | None = None
        self._failing = failing
        self._dial = dial
        self._runners = runners
        self._link: Link | None = None
        self._line = 0
        self._events: deque[Event] = deque()
        self._attempts: dict[Fence, asyncio.Task[None]] = {}
        self._dying: dict[asyncio.Task[None], None] = {}
        self._dialling: asyncio.Task[None] | None = None
        self._alarm = Alarm(self._schedule)
        self._pumping = False
        self._stopped = False

    def start(self) -> None:
        """Connect and take work; call inside a running event loop."""
        self._schedule()

    def drain(self, within_ms: Millis) -> None:
        """Take no more work; what is not finished in time is handed back unspent. `left` says when it is done."""
        self._post(DrainAsked(self.clock() + within_ms))

    async def stop(self) -> None:
        """Kill what is left and hang up."""
        self._stopped = True
        self._alarm.stop()
        doomed = [*self._attempts.values(), *self._dying]
        if self._dialling is not None:
            doomed.append(self._dialling)
        for task in doomed:
            task.cancel()
        await asyncio.gather(*doomed, return_exceptions=True)
        self._hang_up()
        runners = dict.fromkeys(self._runners.values())
        # All of them, whatever one of them meets.
        ended = await asyncio.gather(*(runner.close() for runner in runners), return_exceptions=True)
        for trouble in ended:
            if trouble is not None:
                raise trouble

    # The machine.

    def _post(self, event: Event) -> None:
        self._events.append(event)
        self._schedule()

    def _schedule(self) -> None:
        if not self._pumping and not self._stopped:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        if self._stopped or self.failed is not None:
            return
        now = self.clock()
        try:
            while self._events:
                self.machine.offer(self._events.popleft(), now)
            for intent in self.machine.turn(now):
                self._carry_out(intent)
        except Exception as error:
            # An error of ours: without leases that are renewed, work must not go on.
            self.failed = error
            self._hang_up()
            for fence in list(self._attempts):
                self._kill(fence, at_once=True)
            self.left.set()
            self._failing(error)
            return
        self._alarm.set(self.machine.wake_at(now), now)

    def _carry_out(self, intent: Intent) -> None:
        match intent:
            case Send():
                if self._link is not None:
                    self._link.send(intent.frame)
            case StartAttempt():
                task = asyncio.get_running_loop().create_task(self._attempt(intent.offer))
                self._attempts[intent.offer.fence] = task
            case StopAttempt():
                self._kill(intent.fence, at_once=intent.cause == UNRENEWED)
            case Connect():
                self._dialling = asyncio.get_running_loop().create_task(self._connect())
            case Disconnect():
                self._hang_up()
            case Left():
                self.left.set()

    # The stream.

    async def _connect(self) -> None:
        self._line += 1
        line = self._line

        def hear(frame: CoordinatorFrame | None) -> None:
            if line != self._line:
                return
            if frame is None:
                self._line += 1
                self._link = None
                self._post(Disconnected())
            else:
                self._post(FrameCame(frame))

        try:
            async with asyncio.timeout(DIAL_S):
                link = await self._dial(hear)
        except Exception:  # nobody there, or nobody who answers: the machine knows when to try again
            self._post(Disconnected())
            return
        if line != self._line:
            # It was given up while it was being made.
            link.close()
            return
        self._link = link
        self._post(Connected())

    def _hang_up(self) -> None:
        self._line += 1
        link, self._link = self._link, None
        if link is not None:
            link.close()

    # Attempts.

    async def _attempt(self, offer: Offer) -> None:
        over = await self._run(offer)
        if self._attempts.pop(offer.fence, None) is not None:
            self._post(structs.replace(over, salt=secrets.randbits(63)))

    async def _run(self, offer: Offer) -> AttemptOver:
        runner = self._runners.get(offer.kind)
        if runner is None:
            text = f"this worker has no runner for {offer.kind!r}; it has {', '.join(self._runners)}"
            return AttemptOver(offer.fence, Outcome.FAILED, failure=FailureClass.FATAL, error=text)
        try:
            return await runner.run(offer)
        except Exception as error:  # a runner that raises is broken; the attempt is not to blame
            text = f"the runner failed: {type(error).__name__}: {error}"
            return AttemptOver(offer.fence, Outcome.FAILED, failure=FailureClass.INTERNAL, error=text)

    def _kill(self, fence: Fence, *, at_once: bool) -> None:
        task = self._attempts.pop(fence, None)
        if task is None:
            self._post(AttemptGone(fence))
            return

        def gone(done: asyncio.Task[None]) -> None:
            self._dying.pop(done, None)
            self._post(AttemptGone(fence))

        self._dying[task] = None
        task.add_done_callback(gone)
        task.cancel(AT_ONCE if at_once else None)
