"""The mechanical scheduler: sweeps expired leases, wakes sessions, climbs the ladder. It never claims.

What it decides, `rota.core.cycle` decides; this reads snapshots, calls it, and carries out its plan. A cycle goes on
where it can: an error about one lease, run, session, wake or row is remembered and raised at the end, with the result,
as `CycleFailed`. Only if snapshots cannot be read there is nothing to go on with.

Pausing fails closed: while it cannot be read whether all is paused, nobody is woken.
"""

import asyncio
from collections.abc import Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from rota.core.cycle import Plan, cycle
from rota.core.errors import Refused
from rota.core.ids import DEFAULT_TENANT, Millis, RunId
from rota.core.wakes import WakeMemory
from rota.kinds.agent.climbing import Climbing, Rows
from rota.kinds.agent.options import Option, chosen
from rota.kinds.agent.outcomes import CycleFailed, Stopped
from rota.kinds.agent.snapshots import (
    SUMMED,
    AgentRun,
    CycleResult,
    RebuildResult,
    RunSnapshot,
    SessionSnapshot,
    Stats,
    WakeTarget,
)
from rota.kinds.agent.sources import ExpiredLeaseRecovery, SessionSource, TaskSource, Waker
from rota.kinds.agent.viewing import Sight, look
from rota.kinds.agent.waking import deliver

# So many ids are named in one line of the log.
_IDS_TOLD_MAX = 20


class Snapshots(Struct, frozen=True):
    """What there is at the beginning of a cycle."""

    pending: Sequence[RunSnapshot]
    active: Sequence[AgentRun]
    sessions: Sequence[SessionSnapshot]


class Scheduler:
    """One loop of sweeping and waking over sources of tasks and sessions."""

    def __init__(self, tasks: TaskSource, sessions: SessionSource, waker: Waker, *options: Option) -> None:
        for name, given in (("tasks", tasks), ("sessions", sessions), ("waker", waker)):
            if cast("object", given) is None:
                raise Refused("field.value", f"a scheduler needs {name}", "Give it one.", path=name)
        self._tasks = tasks
        self._sessions = sessions
        self._waker = waker
        self._options = chosen(options)
        self._settings = self._options.settings
        self._stats = Stats()
        self._memory = WakeMemory()
        self._one_at_a_time = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    # The loop.

    async def start(self) -> "asyncio.Task[None]":
        """Begin: a cycle at once, and one after each interval. Asked again, it is the same loop.

        Whoever cancels the task ends the loop for good, in the middle of a cycle if need be.
        """
        if self._stopping.is_set():
            raise Stopped
        if self._loop is None:
            self._loop = asyncio.create_task(self._run(), name="rota agent scheduler")
            self._loop.add_done_callback(lambda _: self._stopping.set())
        return self._loop

    async def shutdown(self, timeout_ms: Millis | None = None) -> None:
        """End the loop and wait for the cycle that is under way.

        Past the time limit it raises `TimeoutError`; the loop still ends after its cycle, and asking again goes on
        waiting for that.
        """
        self._stopping.set()
        if self._loop is None:
            return
        _, unfinished = await asyncio.wait([self._loop], timeout=None if timeout_ms is None else timeout_ms / 1000)
        if unfinished:
            raise TimeoutError("scheduler: a cycle is still under way; ask again to go on waiting")

    async def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self.run_once()
            except Exception:  # whatever it was about, the next cycle may do better
                self._options.logger.exception("scheduler: a cycle met errors")
            await self._rest()

    async def _rest(self) -> None:
        """Wait for an interval, or to be stopped."""
        waits = (
            asyncio.ensure_future(self._options.clock.wait(self._options.interval_ms)),
            asyncio.ensure_future(self._stopping.wait()),
        )
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    # One cycle.

    async def run_once(self) -> CycleResult:
        """Sweep, select, wake and climb once. A second caller waits for the first, and then has a cycle of its own."""
        async with self._one_at_a_time:
            result, errors = CycleResult(), list[Exception]()
            await self._cycle(result, errors)
            if errors:
                raise CycleFailed(errors, result) from ExceptionGroup("in one cycle", errors)
            return result

    async def _cycle(self, result: CycleResult, errors: list[Exception]) -> None:
        now = self._options.clock.now()
        await self._sweep(now, result, errors)
        try:
            found = await self._read()
        except Exception as error:  # without snapshots there is nothing to go on with
            errors.append(error)
            return
        result.pending_runs, result.active_runs = len(found.pending), len(found.active)
        result.sessions_scanned = len(found.sessions)
        result.paused = await self._is_paused(errors)
        if not result.paused:
            await self._select(now, found, result, errors)
        self._record(now, result)

    async def _select(self, now: Millis, found: Snapshots, result: CycleResult, errors: list[Exception]) -> None:
        ladder = self._ladder(now, result, errors)
        rows = await ladder.read_rows() if ladder is not None else Rows({}, whole=True)
        self._memory.forget_until(now - self._settings.remembered_ms)
        for run in found.active:
            # A session claimed it. If it comes back, that is a new offer.
            self._memory.forget_item((DEFAULT_TENANT, RunId(getattr(run, "id", ""))))
        sight = look(found.pending, found.active, found.sessions, rows.known, self._memory, self._settings)
        errors.extend(sight.errors)
        self._memory.keep_offers({item.key: None for item in sight.view.waiting})
        for item in sight.view.waiting:
            offered_at = self._memory.offered.get(item.key)
            if offered_at is not None and offered_at < item.eligible_since <= now:
                # It was claimed and came back between two cycles.
                self._memory.forget_item(item.key)
        plan = cycle(sight.view, now)
        _report(plan, sight, result)
        await self._wake(now, plan, sight, result, errors)
        if ladder is not None:
            await ladder.climb_all(plan.steps, sight.works, rows)

    async def _sweep(self, now: Millis, result: CycleResult, errors: list[Exception]) -> None:
        options = self._options
        recovery = ExpiredLeaseRecovery(now, options.sweep_reason, options.sweep_limit)
        try:
            recovered = await self._tasks.recover_expired_run_leases(recovery, options.actor)
        except Exception as error:  # sessions are woken all the same
            errors.append(error)
            count = self._stats.recovery_errors + 1
            self._stats = replace(self._stats, recovery_errors=count, last_recovery_error=str(error))
            return
        result.recovered_leases = len(recovered)
        result.recovered_run_ids = [one.run_id for one in recovered]

    async def _read(self) -> Snapshots:
        pending = await self._tasks.pending_runs()
        active = await self._tasks.active_runs()
        return Snapshots(pending, active, await self._sessions.sessions())

    async def _is_paused(self, errors: list[Exception]) -> bool:
        store = self._options.pause_store
        if store is None:
            return False
        try:
            return (await store.get_scheduler_pause()).paused
        except Exception as error:  # whoever paused it relies on it
            errors.append(error)
            return True

    def _ladder(self, now: Millis, result: CycleResult, errors: list[Exception]) -> Climbing | None:
        store, actor = self._options.starvation_store, self._options.escalation_actor
        if store is None or actor is None:
            return None
        return Climbing(self._tasks, store, actor, self._settings.thresholds, now, result, errors)

    async def _wake(self, now: Millis, plan: Plan, sight: Sight, result: CycleResult, errors: list[Exception]) -> None:
        reason = self._options.wake_reason
        targets = [WakeTarget(sight.works[wake.item[1]], sight.sessions[wake.session], reason) for wake in plan.wakes]
        result.wake_attempts = len(targets)
        for wake, outcome in zip(plan.wakes, await deliver(self._waker, targets), strict=True):
            if outcome is not None:
                result.wake_failed += 1
                errors.append(outcome)
                self._stats = replace(self._stats, last_wake_error=str(outcome))
                continue
            result.wake_succeeded += 1
            result.selected_run_ids.append(wake.item[1])
            if self._settings.cooldown_ms:
                self._memory.note(wake.item, wake.session, now)
            else:
                self._memory.note_offer(wake.item, now)

    def _record(self, now: Millis, result: CycleResult) -> None:
        sums = {name: getattr(self._stats, name) + getattr(result, name) for name in SUMMED}
        self._stats = replace(self._stats, cycles=self._stats.cycles + 1, last_cycle_at=now, **sums)
        log = self._options.logger
        if result.paused:
            log.info("scheduler: paused; nobody is woken")
        for text, ids in (("no session could claim", result.no_match_run_ids), ("starved", result.starved_run_ids)):
            if ids:
                log.info("scheduler: %s: %d runs: %s", text, len(ids), ", ".join(ids[:_IDS_TOLD_MAX]))

    # Everything else.

    async def rebuild(self) -> RebuildResult:
        """Forget who was woken, once it was read what there is. What is stored of the ladder stays."""
        async with self._one_at_a_time:
            found = await self._read()
            now = self._options.clock.now()
            cleared = self._memory.forget_all()
            self._stats = replace(self._stats, rebuilds=self._stats.rebuilds + 1, last_rebuild_at=now)
            return RebuildResult(
                pending_runs=len(found.pending),
                active_runs=len(found.active),
                sessions_scanned=len(found.sessions),
                cleared_wake_keys=cleared,
                rebuilt_at=now,
            )

    def stats(self) -> Stats:
        """How things stand at this moment."""
        return self._stats


def _report(plan: Plan, sight: Sight, result: CycleResult) -> None:
    result.no_match_run_ids = [id for _, id in plan.no_match]
    result.starved_run_ids = [id for _, id in plan.starved]
    result.no_match_runs = len(plan.no_match)
    result.starved_runs = len(plan.starved)
    result.recently_notified = plan.recently_notified
    result.unclaimable_runs = plan.unclaimable + sight.unclaimable
