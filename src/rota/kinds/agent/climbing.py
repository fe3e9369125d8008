"""Carrying out the ladder: `rota.core.ladder` says what each rung asks for, this does it and keeps the rows.

Each row stands alone: an error about one is remembered, and the next is looked at. Before anything is done for a run
its status is read again, because a session may have claimed it since. A row is stored after what it records was done,
so what a tier asks for is done at least once, and twice only if storing failed.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rota.core.cycle import LadderStep
from rota.core.ids import Millis
from rota.core.ladder import PARKED, Rung, Starvation, Thresholds, Tier, climb
from rota.kinds.agent.outcomes import InvalidStatusTransition, SpawnUnresolvable
from rota.kinds.agent.snapshots import CycleResult, RunSnapshot, RunStatus
from rota.kinds.agent.sources import EscalationActor, RunStarvation, RunStarvationMutation, StarvationStore, TaskSource


class Rows(Struct, frozen=True):
    """What is stored of runs that climb. Not `whole`: some could not be read, and have to be asked for by name."""

    known: dict[str, Starvation]
    whole: bool


class Climbing(Struct, frozen=True):
    """The ladder of one cycle, with what it takes to climb it."""

    tasks: TaskSource
    store: StarvationStore
    actor: EscalationActor
    thresholds: Thresholds
    now: Millis
    result: CycleResult
    errors: list[Exception]

    async def read_rows(self) -> Rows:
        """All rows that can be read."""
        known: dict[str, Starvation] = {}
        try:
            stored = await self.store.list_run_starvation()
        except Exception as error:  # the store is asked again in the next cycle, and by name in this one
            self.errors.append(error)
            return Rows(known, whole=False)
        whole = True
        for row in stored:
            try:
                known[row.run_id] = _read(row)
            except Exception as error:  # one bad row must not stop the others
                self.errors.append(error)
                whole = False
        return Rows(known, whole)

    async def climb_all(self, steps: Sequence[LadderStep], works: Mapping[str, RunSnapshot], rows: Rows) -> None:
        """Every step of a plan, then whatever is stored of runs that took none."""
        climbed: dict[str, None] = {}
        for step in steps:
            work = works[step.item[1]]
            climbed[work.run.id] = None
            try:
                await self._climb(work, step, rows)
            except Exception as error:  # the others climb all the same
                self.errors.append(error)
        for run_id in rows.known:
            if run_id not in climbed:
                try:
                    await self._forget_if_over(run_id)
                except Exception as error:  # likewise
                    self.errors.append(error)

    async def _climb(self, work: RunSnapshot, step: LadderStep, rows: Rows) -> None:
        run_id = work.run.id
        rung: Rung = step.rung
        if not await self._is_queued(run_id):
            return
        if not rows.whole and run_id not in rows.known:
            stored, found = await self.store.load_run_starvation(run_id)
            rung = climb(_read(stored) if found and stored is not None else None, self.now, self.thresholds)
        row = rung.row
        if rung.spawn and await self._spawned(work):
            row = replace(row, spawn_requested_at=self.now)
        if rung.event and await self._told(work):
            row = replace(row, event_at=self.now)
        if rung.park and await self._parked(work, row, PARKED[step.cause]):
            await self.store.clear_run_starvation(run_id)
        else:
            await self.store.upsert_run_starvation(_written(run_id, row))

    async def _is_queued(self, run_id: str) -> bool:
        """Whether a run still waits. The row of one that has left the queue goes, unless it left it by being parked."""
        status, found = await self.tasks.get_run_status(run_id)
        if found and status is RunStatus.QUEUED:
            return True
        if not found or status is not RunStatus.NEEDS_ATTENTION:
            await self.store.clear_run_starvation(run_id)
        return False

    async def _forget_if_over(self, run_id: str) -> None:
        """A run that is paused, or has got sessions meanwhile, keeps its count; one that was claimed loses it."""
        await self._is_queued(run_id)

    async def _spawned(self, work: RunSnapshot) -> bool:
        try:
            await self.actor.request_worker_spawn(work)
        except SpawnUnresolvable:
            return False
        except Exception as error:  # a tier that fails does not block those above it
            self.errors.append(error)
            return False
        self.result.spawn_requested += 1
        self.result.spawn_requested_run_ids.append(work.run.id)
        return True

    async def _told(self, work: RunSnapshot) -> bool:
        try:
            await self.actor.emit_run_starved(work, self._age_ms(work))
        except Exception as error:  # likewise
            self.errors.append(error)
            return False
        return True

    async def _parked(self, work: RunSnapshot, row: Starvation, cause: str) -> bool:
        """Whether the run is off the ladder: parked now, or gone from the queue by itself."""
        seconds = self._age_ms(work) // 1000
        try:
            await self.actor.mark_run_needs_attention(work.run.id, f"{cause} for {seconds} s ({row.cycles} cycles)")
        except InvalidStatusTransition:
            return True
        except Exception as error:  # likewise; it is parked in the next cycle
            self.errors.append(error)
            return False
        self.result.needs_attention += 1
        self.result.needs_attention_run_ids.append(work.run.id)
        return True

    def _age_ms(self, work: RunSnapshot) -> Millis:
        return self.now - work.run.waits_since


def _read(row: RunStarvation) -> Starvation:
    return Starvation(
        cycles=row.wake_count,
        tier=Tier(row.escalation_tier),
        first_at=row.first_starved_at,
        last_at=row.last_wake_at,
        spawn_requested_at=row.spawn_requested_at,
        event_at=row.starved_event_at,
    )


def _written(run_id: str, row: Starvation) -> RunStarvationMutation:
    return RunStarvationMutation(
        run_id=run_id,
        wake_count=row.cycles,
        first_starved_at=row.first_at,
        last_wake_at=row.last_at,
        escalation_tier=int(row.tier),
        spawn_requested_at=row.spawn_requested_at,
        starved_event_at=row.event_at,
    )
