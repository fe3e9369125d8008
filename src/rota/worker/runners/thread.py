"""The thread runner: Python functions in this very process, for notebooks, tests and the lowest latency.

What it gives up for that: what code prints is not captured, it goes where this process prints. Code shares this
process's memory, environment and fate. And a thread cannot be killed: when an attempt is cancelled or takes too long it
is abandoned, its outcome is thrown away, and its slot stays taken until it ends by itself.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rota.core.decide.leases import Offer
from rota.core.model import FailureClass
from rota.ports import Blobs
from rota.wire.values import pack, unpack
from rota.wire.work import PythonWork, StoredValue, Value, decode_python, encode_value
from rota.worker.runners.calls import Call, Done, perform
from rota.worker.runners.outcomes import context_of, failed, over, timed_out
from rota.worker.runners.parcels import InputsLost, NotMoved, Parcels
from rota.worker.runners.sequels import inline_bytes_max
from rota.worker.sync import AttemptOver

WORKS_KEPT_MAX = 1_024


class ThreadRunner:
    """Runs `python` work in threads of this process, as many at once as it has slots; more wait for one."""

    def __init__(self, blobs: Blobs, folder: Path, *, slots: int = 4) -> None:
        self._parcels = Parcels(blobs, folder / "scratch")
        self._slots = slots
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._taken = 0
        self._works: dict[bytes, PythonWork] = {}

    @property
    def taken(self) -> int:
        """Slots in use, by attempts that run or wait and by threads that were abandoned."""
        return self._taken

    async def run(self, offer: Offer) -> AttemptOver:
        """Run one attempt; cancelling abandons it, and does not end it."""
        try:
            work = self._work(offer.work)
        except msgspec.MsgspecError as error:
            return failed(offer, FailureClass.FATAL, f"its work is not a Python call that can be read: {error}")
        if offer.bundle is not None:
            # One process holds one module of a name, and bundles have many versions of each.
            text = "its code is in a bundle, and this worker runs code in threads, where two versions cannot be apart"
            return failed(offer, FailureClass.FATAL, f"{text}. Run it on a worker without --threads.")
        try:
            deadline = asyncio.get_running_loop().time() + offer.timeout_ms / 1_000 if offer.timeout_ms else None
            stored = await self._fetch(offer, deadline) if offer.inputs else {}
            done = await self._perform(offer, work, stored, deadline)
            if done is None:
                return timed_out(offer, "; a thread cannot be killed, so its slot stays taken until it ends")
            return await self._finish(offer, work, done)
        except TimeoutError:
            return timed_out(offer, " before its code was called")
        except InputsLost as error:
            return failed(offer, FailureClass.INPUT_LOST, str(error), error.tasks)
        except NotMoved as error:
            return failed(offer, FailureClass.INTERNAL, str(error))

    async def close(self) -> None:
        """Let idle threads end. An abandoned one ends with its function, or with the process."""
        for _ in self._threads:
            self._jobs.put(None)
        self._threads.clear()
        self._parcels.close()

    def _work(self, packed: bytes) -> PythonWork:
        work = self._works.get(packed)
        if work is None:
            if len(self._works) >= WORKS_KEPT_MAX:
                self._works.clear()
            work = self._works[packed] = decode_python(packed)
        return work

    async def _fetch(self, offer: Offer, deadline: float | None) -> dict[str, bytes]:
        async with asyncio.timeout_at(deadline):
            return await self._parcels.open(offer)

    async def _perform(
        self, offer: Offer, work: PythonWork, stored: dict[str, bytes], deadline: float | None
    ) -> Done | None:
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Done] = loop.create_future()
        left_s = None if deadline is None else max(0, deadline - loop.time())
        deadline_at = None if left_s is None else time.time_ns() // 1_000_000 + round(left_s * 1_000)
        context = context_of(offer, work.zone, deadline_at, may_grow=work.may_grow)

        def open_stored(value: StoredValue) -> Any:
            return unpack(value.encoding, stored[value.ref.name], trusted=True)

        def settle(done: Done) -> None:
            self._taken -= 1
            if not reply.done():
                reply.set_result(done)

        is_wanted = True

        def job() -> None:
            if not is_wanted:
                # Given up while it waited for a thread: another worker may have it by now, and it must not run here.
                done = Done(offer.fence, "failed", error="given up before it began")
            else:
                done = perform_it()
            # A loop that was closed meanwhile has nobody who waits any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, done)

        def perform_it() -> Done:
            call = Call(work, context, offer.inputs, open_stored, pack, False, offer.first_started_at)
            return perform(call)

        self._taken += 1
        if self._taken > len(self._threads) < self._slots:
            self._start_thread()
        self._jobs.put(job)
        try:
            if left_s is not None:
                await asyncio.wait((reply,), timeout=left_s)
                return reply.result() if reply.done() else None
            return await reply
        finally:
            is_wanted = False
            if not reply.done() or reply.cancelled():
                context.cancelled.set()

    async def _finish(self, offer: Offer, work: PythonWork, done: Done) -> AttemptOver:
        if done.outcome != "success" or done.content is None:
            return over(offer, done, None)
        is_shared = not work.is_preparing and (bool(work.maps) or offer.map_index >= 0)
        if len(done.content) <= inline_bytes_max(is_shared=is_shared):
            return over(offer, done, encode_value(Value(done.encoding, done.content)))
        return over(offer, done, await self._parcels.publish(offer, done.encoding, done.content))

    def _start_thread(self) -> None:
        name = f"rota-runner-{len(self._threads)}"
        thread = threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()


def _serve(jobs: "queue.SimpleQueue[Callable[[], None] | None]") -> None:
    while (job := jobs.get()) is not None:
        job()
