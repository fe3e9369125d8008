"""Calendars: every slot makes one run or is counted as missed, in order, and a backfill makes exactly its own."""

from rota.core.calendar import CONTINUOUS, ONCE, count_slots
from rota.core.ids import Millis, RunKey
from rota.core.model import PriorityClass
from rota.core.records import Batch, Run, Schedule
from rota.core.states import RUN_TERMINAL
from rota.sim.broken import Broken
from rota.sim.models import Model

ScheduleKey = tuple[str, str]


class ScheduleRules:
    """P-SLOT and P-BACKFILL.

    Not in a commit in which somebody changed calendars: one that is taken away and made again begins anew.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.known: dict[ScheduleKey, Schedule] = {}
        self.slots: dict[ScheduleKey, dict[Millis, RunKey]] = {}
        # Every cap there was, and the backfills of which clients were told that they are cancelled.
        self.caps: dict[ScheduleKey, int] = {}
        self.cancelled: dict[ScheduleKey, None] = {}
        self._made: dict[ScheduleKey, list[Run]] = {}
        # Calendars of workflows that were dropped, and the cursor from which they continue when they come back. None:
        # it was made and dropped by one commit, so its rule was never stored.
        self._left: dict[ScheduleKey, tuple[Schedule, Millis | None] | None] = {}

    def submitted(self, run: RunKey, row: Run) -> None:
        """P-SLOT: the run of a slot is made once."""
        if not row.schedule:
            return
        key = (row.tenant, row.schedule)
        fired = self.slots.setdefault(key, {})
        if row.slot_at in fired and row.tenant not in self.model.redefined:
            raise Broken(f"P-SLOT: {key} fired {row.slot_at} as {fired[row.slot_at]} and as {run}")
        if key in self.cancelled:
            raise Broken(f"P-BACKFILL: {run} was made although {key} was cancelled")
        fired[row.slot_at] = run
        self._made.setdefault(key, []).append(row)

    def commit_ends(self, batch: Batch) -> None:
        """Compare the cursors that this commit stored with the runs that it made."""
        puts = {(row.tenant, row.id): row for row in batch.puts if isinstance(row, Schedule)}
        drops = {(str(key[1]), str(key[2])): None for key in batch.drops if key[0] == "Schedule"}
        for key, rows in self._made.items():
            if key not in puts and key not in drops:
                raise Broken(f"P-SLOT: {key} made {rows[0].id} and its cursor was not stored")
        for key, schedule in puts.items():
            self.caps[key] = schedule.spec.max_active_runs
            made = self._made.get(key, [])
            if key[0] not in self.model.redefined:
                self._advanced(key, schedule, made)
            elif key not in self.known and schedule.fired == len(made):
                self._begun(key, schedule, made)
            elif key in self.known and schedule.fired != self.known[key].fired + len(made):
                # Taken away and made again by one commit: only what it made since then counts.
                recent = made[len(made) - schedule.fired :]
                self.slots[key] = {row.slot_at: (row.tenant, row.id) for row in recent}
            self.known[key] = schedule
        for key in drops:
            schedule = self.known.pop(key, None)
            made = self._made.get(key, [])
            if schedule is not None and schedule.backfill and key[0] not in self.model.redefined:
                self._over(key, schedule)
            if schedule is not None and schedule.version and not schedule.backfill:
                # The commit that drops it may have advanced it before.
                self._left[key] = (schedule, max([schedule.cursor or 0, *(row.slot_at for row in made)]) or None)
            elif schedule is None and made and made[-1].version and not made[-1].backfill:
                self._left[key] = None
            else:
                self.slots.pop(key, None)
        self._made.clear()

    def _advanced(self, key: ScheduleKey, new: Schedule, made: list[Run]) -> None:
        """P-SLOT: from one cursor to the next each slot is in one run or among the missed, the older first."""
        old = self.known.get(key)
        slots = [row.slot_at for row in made]
        if slots != sorted(slots):
            raise Broken(f"P-SLOT: {key} made its runs out of order: {slots}")
        if old is None or old.spec != new.spec:
            return
        spec, begin = new.spec, old.cursor
        if begin is None and spec.catch_up and spec.start_at is not None:
            begin = spec.start_at - 1
        if begin is not None:
            self._went_on(key, new, begin, new.missed - old.missed, made)

    def _begun(self, key: ScheduleKey, new: Schedule, made: list[Run]) -> None:
        """A calendar that nobody knew before, or that comes back, and what the commit that brought it made of it."""
        if not new.spec.catch_up or new.spec.start_at is None:
            return
        if key in self._left and self._left[key] is None:
            del self._left[key]
            return
        left = self._left.pop(key, None)
        begin = new.spec.start_at - 1
        if left is not None and left[1] is not None:
            begin = max(begin, left[1])
            if left[0].spec.instants != new.spec.instants:
                return
        self._went_on(key, new, begin, new.missed, made)

    def _went_on(self, key: ScheduleKey, new: Schedule, begin: Millis, missed: int, made: list[Run]) -> None:
        spec, slots = new.spec, [row.slot_at for row in made]
        if new.cursor is not None and spec.cron not in (ONCE, CONTINUOUS):
            if slots and slots[0] <= begin:
                raise Broken(f"P-SLOT: {key} made a run of {slots[0]}, its cursor was {begin} already")
            decided = count_slots(spec, begin, new.cursor)
            if decided != len(slots) + missed or (spec.catch_up and missed):
                raise Broken(f"P-SLOT: {key} went past {decided} slots with {len(slots)} runs and {missed} missed")
        if made and spec.max_active_runs:
            active = sum(self.model.runs[run] not in RUN_TERMINAL for run in self.slots[key].values())
            if active > spec.max_active_runs:
                raise Broken(f"P-BACKFILL: {key} has {active} unfinished runs of {spec.max_active_runs}")
        for row in made:
            is_its_version = row.version == new.version or key[0] in self.model.redefined
            if row.backfill != new.backfill or not is_its_version:
                raise Broken(f"P-BACKFILL: {row.id} is not what {key} makes")
            if row.backfill and row.priority is not PriorityClass.LOW:
                raise Broken(f"P-BACKFILL: {row.id} is of class {row.priority}")

    def _over(self, key: ScheduleKey, schedule: Schedule) -> None:
        """P-BACKFILL: it ends by itself when each of its slots has had its run, and all of them have ended."""
        spec, runs = schedule.spec, self.slots.get(key, {})
        if spec.start_at is None or spec.end_at is None:
            raise Broken(f"P-BACKFILL: {key} has no beginning, or no end")
        wanted = count_slots(spec, spec.start_at - 1, spec.end_at)
        ended = sum(self.model.runs[run] in RUN_TERMINAL for run in runs.values())
        if not len(runs) == wanted == schedule.fired or ended != wanted:
            raise Broken(f"P-BACKFILL: {key} is over with {ended} of {len(runs)} runs ended, for {wanted} slots")
        self.model.facts.note("backfill_over")

    def unfinished(self) -> list[ScheduleKey]:
        """Calendars of workflows that may still make runs."""
        return [key for key, schedule in self.known.items() if schedule.version]
