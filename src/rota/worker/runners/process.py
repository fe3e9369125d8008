"""The process runner: calls of Python functions in warm processes that nobody else's code has been in."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rota.core.decide.leases import Offer
from rota.core.model import FailureClass
from rota.ports import Blobs
from rota.wire.work import INLINE_BYTES_MAX, Value, decode_python, encode_value
from rota.worker.bundles.driver import BundleCache, NoBundle
from rota.worker.runners import AT_ONCE
from rota.worker.runners.calls import Done
from rota.worker.runners.outcomes import died, failed, last_lines, over, timed_out
from rota.worker.runners.parcels import InputsLost, NotMoved, Parcels
from rota.worker.runners.pool import Recycling, WarmPool, WarmProcess
from rota.worker.supervisor.driver import Log, NotStarted, Supervisor, SupervisorLost
from rota.worker.supervisor.patience import outlast
from rota.worker.sync import AttemptOver

WORKS_KNOWN_MAX = 1_024
DYING_S = 1.0
# How long code that was asked to stop may take to put things in order.
STOPPING_S = 3.0

_encode = msgspec.msgpack.Encoder().encode


class ProcessRunner:
    """Runs `python` work. Many attempts may run at once; the caller decides how many."""

    def __init__(
        self,
        supervisor: Supervisor,
        blobs: Blobs,
        folder: Path,
        bundles: BundleCache,
        *,
        env: Mapping[str, str] | None = None,
        recycling: Recycling | None = None,
        memory_bytes_max: int = 0,
    ) -> None:
        """`folder` is for passing files, `bundles` has the code of workflows.

        `env` is given to user code on top of what it always has.
        """
        self._supervisor = supervisor
        self._parcels = Parcels(blobs, folder / "scratch", supervisor.run_as)
        self._pool = WarmPool(supervisor, recycling or Recycling(), env, memory_bytes_max)
        self._bundles = bundles
        self._known: dict[bytes, tuple[str, str]] = {}

    async def run(self, offer: Offer) -> AttemptOver:
        """Run one attempt to its end; cancelling kills its process with everything that was started there."""
        try:
            known = self._origin(offer)
        except msgspec.MsgspecError as error:
            return failed(offer, FailureClass.FATAL, f"its work is not a Python call that can be read: {error}")
        deadline = asyncio.get_running_loop().time() + offer.timeout_ms / 1_000 if offer.timeout_ms else None
        stored: dict[str, str] = {}
        code = ""
        try:
            async with asyncio.timeout_at(deadline):
                code = await self._bundles.take(offer)
                if offer.inputs:
                    stored = await self._parcels.fetch(offer)
                # Made before a process is taken: on a full disk it cannot be, and nothing is left to give back.
                self._parcels.folder()
                warm = await self._pool.take((offer.tenant, code, "") if code else (offer.tenant, *known))
            return await self._run(offer, warm, stored, code, deadline)
        except TimeoutError:
            return timed_out(offer, " before its code was called")
        except InputsLost as error:
            return failed(offer, FailureClass.INPUT_LOST, str(error), error.tasks)
        except NotStarted as error:
            return failed(offer, FailureClass.INTERNAL, f"no process could be started for it: {error}")
        except SupervisorLost:
            return failed(offer, FailureClass.INTERNAL, "the supervisor died, and the attempt with it")
        except (NotMoved, NoBundle) as error:
            return failed(offer, FailureClass.INTERNAL, str(error))
        except OSError as error:
            return failed(offer, FailureClass.INTERNAL, f"this worker is out of files or memory: {error}")
        finally:
            self._parcels.discard(offer, stored)
            if code:
                self._bundles.give_back(offer)

    async def close(self) -> None:
        """End the warm processes. Attempts that still run are ended by cancelling them."""
        await self._pool.close()
        self._parcels.close()

    def result_file(self, offer: Offer) -> str:
        """Where an attempt may put its result by itself, and say so (`rota.wire.values.Packed`)."""
        return self._parcels.result_file(offer)

    def end_idle(self, idle_s: float) -> None:
        """End processes that nobody has needed for so long."""
        self._pool.end_idle(idle_s)

    def start_ahead(self) -> None:
        """Start processes before the first attempt asks for one."""
        self._pool.start_ahead()

    def _origin(self, offer: Offer) -> tuple[str, str]:
        """The folder and the script that code without a bundle is imported from."""
        known = self._known.get(offer.work)
        if known is None:
            work = decode_python(offer.work)
            if len(self._known) >= WORKS_KNOWN_MAX:
                self._known.clear()
            known = self._known[offer.work] = (work.path, work.file or work.script)
        return known

    async def _run(
        self, offer: Offer, warm: WarmProcess, stored: dict[str, str], code: str, deadline: float | None
    ) -> AttemptOver:
        left_s = None if deadline is None else max(0, deadline - asyncio.get_running_loop().time())
        try:
            log = self._supervisor.open_log(offer)
        except BaseException:
            self._pool.put_back(warm, 0)
            raise
        reply = warm.ask(offer.fence, self._request(offer, stored, code, left_s), log.ends[0])
        log.let_go()
        try:
            if left_s is not None:
                await asyncio.wait((reply,), timeout=left_s)
            else:
                # Whoever gives up waits on for a moment: the reply must outlive the one who asked.
                await asyncio.shield(reply)
        except asyncio.CancelledError as cancelled:
            is_urgent = AT_ONCE in cancelled.args
            await outlast(self._end(warm, log) if is_urgent else self._stop(offer, warm, reply, log))
            raise
        if not reply.done():
            tails = await outlast(self._stop(offer, warm, reply, log))
            return timed_out(offer, "; killed with everything it started" + last_lines(tails))
        done = reply.result()
        if done is None:
            tails = await outlast(self._see_die(warm, log))
            return died(offer, await warm.child.ended(), tails)
        return await self._finish(offer, warm, log, done)

    async def _finish(self, offer: Offer, warm: WarmProcess, log: Log, done: Done) -> AttemptOver:
        if done.is_spent:
            # Something of the attempt is left in the process or beside it; it ends before the attempt does.
            await outlast(self._end(warm, log))
        else:
            self._pool.put_back(warm, done.grown_bytes)
            await log.complete()
        if done.outcome != "success":
            return over(offer, done, None)
        if done.content is None:
            return over(offer, done, await self._parcels.publish_file(offer, done.encoding))
        if len(done.content) > INLINE_BYTES_MAX:
            return over(offer, done, await self._parcels.publish(offer, done.encoding, done.content))
        return over(offer, done, encode_value(Value(done.encoding, done.content)))

    async def _see_die(self, warm: WarmProcess, log: Log) -> tuple[str, ...]:
        """The connection was cut: usually because the process is dying, and then how it died must be seen."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DYING_S):
                await warm.child.ended()
        return await self._end(warm, log)

    async def _stop(
        self, offer: Offer, warm: WarmProcess, reply: "asyncio.Future[Done | None]", log: Log
    ) -> tuple[str, ...]:
        """Ask it to stop, which ends it unless its code listens; then kill it, before its lease could be over."""
        warm.child.ask_to_stop()
        await asyncio.wait((reply,), timeout=min(STOPPING_S, offer.lease_ms / 10_000))
        return await self._end(warm, log)

    async def _end(self, warm: WarmProcess, log: Log) -> tuple[str, ...]:
        """Kill, and wait until nothing is left and the log is complete; the end of the log."""
        await warm.kill()
        return (await log.complete()).tails

    def _request(self, offer: Offer, stored: dict[str, str], code: str, left_s: float | None) -> bytes:
        deadline_at = None if left_s is None else time.time_ns() // 1_000_000 + round(left_s * 1_000)
        # In the order of `child.Request`, which is not imported here: it is the other side's.
        return _encode(
            (
                offer.tenant,
                offer.run,
                offer.task_id,
                offer.attempt,
                offer.fence,
                deadline_at,
                offer.work,
                offer.params,
                offer.inputs,
                stored,
                self._parcels.result_file(offer),
                offer.graph,
                offer.version,
                offer.logical_at,
                offer.map_index,
                offer.first_started_at,
                code,
            )
        )
