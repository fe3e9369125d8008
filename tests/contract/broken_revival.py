"""Stores that each break something about runs that leave history; see `broken_stores.py`."""

from typing import Any

import msgspec

from rota.core.history import Ended
from rota.core.ids import Epoch, Millis, RunKey
from rota.core.model import Graph
from rota.core.records import Batch, Growth, Key, Record, Run, Story
from rota.ports import Kept, StoreRefused
from tests.contract import store_revival as revival
from tests.contract.bench import Promise
from tests.contract.row_store import Platter, Row, RowStore


class RevivesNothing(RowStore):
    """A part of the batch that nobody knew of."""

    def revive(self, tenant: str, run: str, created_at: Millis) -> None:
        pass


class LeavesItInHistory(RowStore):
    """Copied, and not moved."""

    def revive(self, tenant: str, run: str, created_at: Millis) -> None:
        history = list(self.platter.history)
        super().revive(tenant, run, created_at)
        self.platter.history = history


class LeavesGrowthsInHistory(RowStore):
    """One of the tables was forgotten."""

    def bring_back(self, records: list[Record]) -> None:
        super().bring_back([record for record in records if not isinstance(record, Growth)])


class TellsAnew(RowStore):
    """A run that lives again begins its story again."""

    def revive(self, tenant: str, run: str, created_at: Millis) -> None:
        super().revive(tenant, run, created_at)
        told: list[tuple[Row, Story]] = [(part, self.read(part)) for part in self.platter.stories]
        key = (tenant, run, created_at)
        self.platter.stories = [part for part, story in told if (story.tenant, story.run, story.created_at) != key]


class RevivesLast(RowStore):
    """A run that the batch puts is alive already when its turn comes to leave history."""

    async def commit(self, epoch: Epoch, batch: Batch) -> None:
        await super().commit(epoch, msgspec.structs.replace(batch, revives=[]))
        for key in batch.revives:
            self.revive(*key)


class KeepsACopyForLater(RowStore):
    """What was hidden in history while the run lived is seen again when it has ended."""

    def archive(self, key: RunKey) -> None:
        super().archive(key)
        copies = vars(self.platter).setdefault("copies", {})
        if key in copies:
            self.platter.history.insert(0, copies.pop(key))
        elif self.platter.history:
            copies[key] = self.platter.history[-1]


class ArchivesWhatWasThere(RowStore):
    """History is written from what was archived before."""

    def archive(self, key: RunKey) -> None:
        before: dict[RunKey, Row] = vars(self.platter).setdefault("before", {})
        super().archive(key)
        if self.platter.history:
            self.platter.history[-1] = before.setdefault(key, self.platter.history[-1])


class TripsOverWhatIsNotThere(RowStore):
    """Reviving twice is an error."""

    def revive(self, tenant: str, run: str, created_at: Millis) -> None:
        if not any(self.is_meant(ended.run, tenant, run, created_at) for _, ended in self.told_of_history()):
            raise StoreRefused("no such run in history")
        super().revive(tenant, run, created_at)


class RevivesById(RowStore):
    """A where clause without the instant."""

    def is_meant(self, ended: Run, tenant: str, run: str, created_at: Millis) -> bool:
        return (ended.tenant, ended.id) == (tenant, run)


class OverwritesTheLiving(RowStore):
    """Insert or replace."""

    def revive(self, tenant: str, run: str, created_at: Millis) -> None:
        self.platter.rows.pop(("Run", tenant, run), None)
        super().revive(tenant, run, created_at)


class HidesInMemory(RowStore):
    """That a run has left history is known to the process that took it out."""

    def __init__(self, platter: Platter | None = None) -> None:
        super().__init__(platter)
        copies = vars(self.platter).setdefault("hidden", [])
        self.platter.history += [row for row in copies if row not in self.platter.history]

    def revive(self, tenant: str, run: str, created_at: Millis) -> None:
        before = list(self.platter.history)
        super().revive(tenant, run, created_at)
        vars(self.platter)["hidden"] += [row for row in before if row not in self.platter.history]


class RevivesBeforeItCompares(RowStore):
    """A transaction of its own."""

    async def commit(self, epoch: Epoch, batch: Batch) -> None:
        for key in batch.revives:
            self.revive(*key)
        await super().commit(epoch, batch)


class RevivesBeforeTheGap(RowStore):
    """The epoch is compared before anything is done, and after that only for the rest."""

    async def commit(self, epoch: Epoch, batch: Batch) -> None:
        self.compare(epoch)
        self.written(batch)
        for key in batch.revives:
            self.revive(*key)
        await super().commit(epoch, batch)


class GoesOnMoving(RowStore):
    """The archiver has a list of what it is to move, and does not look whether it is still ended."""

    def archive(self, key: RunKey) -> None:
        vars(self.platter).setdefault("moving", {}).update(dict.fromkeys(self.parts(key)))
        super().archive(key)

    async def tidy(self, epoch: Epoch, now: Millis, keep_ms: Millis) -> int:
        moving: dict[Key, None] = vars(self.platter).setdefault("moving", {})
        left = [key for key in moving if key in self.platter.rows]
        self.drop(left)
        return len(left) or await super().tidy(epoch, now, keep_ms)


class ExpiresByTheFirstEnd(RowStore):
    """Which stories are too old was written down when their run was archived."""

    def archive(self, key: RunKey) -> None:
        super().archive(key)
        ends: dict[RunKey, Millis] = vars(self.platter).setdefault("ends", {})
        for _, ended in self.told_of_history():
            ends.setdefault((ended.run.tenant, ended.run.id), ended.run.ended_at)

    async def tidy(self, epoch: Epoch, now: Millis, keep_ms: Millis) -> int:
        ends: dict[RunKey, Millis] = vars(self.platter).setdefault("ends", {})
        old = [key for key, end in ends.items() if end <= now - keep_ms]
        told: list[tuple[Row, Story]] = [(part, self.read(part)) for part in self.platter.stories]
        self.platter.stories = [part for part, story in told if (story.tenant, story.run) not in old]
        return await super().tidy(epoch, now, keep_ms)


class RevivesWhatIsLeft(RowStore):
    """A run is removed task by task, and found until the last is gone."""

    async def tidy(self, epoch: Epoch, now: Millis, keep_ms: Millis) -> int:
        for at, row in enumerate(self.platter.history):
            ended: Ended = self.read(row)
            if self.is_expired(ended.run, now - keep_ms) and ended.tasks:
                self.platter.history[at] = self.write(msgspec.structs.replace(ended, tasks=ended.tasks[1_000:]))
                return 1
        return await super().tidy(epoch, now, keep_ms)


class LosesTheDefinition(RowStore):
    """Definitions are kept for runs in history, and the last of those has just left."""

    async def graph(self, tenant: str, digest: str) -> Graph | None:
        made_of = [(ended.run.tenant, ended.run.graph) for _, ended in self.told_of_history()]
        return await super().graph(tenant, digest) if (tenant, digest) in made_of else None


class KeepsWhatHistoryRefersTo(RowStore):
    """What was alive when it was looked through the last time, and what is in history now."""

    async def kept(self) -> Kept:
        whole = await super().kept()
        ended = [ended.run for _, ended in self.told_of_history()]
        return Kept(whole.fences, frozenset((run.tenant, run.id) for run in ended), whole.bundles)


class KeepsBundlesOfTheLiving(RowStore):
    """A definition that no live run needs has no bundle that anybody needs."""

    async def kept(self) -> Kept:
        whole = await super().kept()
        live = [self.read(row) for key, row in self.platter.rows.items() if key[0] == "GraphRecord"]
        bundles = frozenset(record.graph.bundle.name for record in live if record.graph.bundle is not None)
        return Kept(whole.fences, whole.runs, bundles)


class NeverLooksAgain(RowStore):
    """A reader that has read a page has read it."""

    def __init__(self, platter: Platter | None = None) -> None:
        super().__init__(platter)
        self.seen: dict[int, Any] = {}

    def told_of_history(self) -> list[tuple[int, Ended]]:
        self.seen.update(dict(super().told_of_history()))
        return list(self.seen.items())


BROKEN_REVIVAL: list[tuple[type[RowStore], Promise]] = [
    (RevivesNothing, revival.a_revived_run_is_live_exactly_as_it_was_archived),
    (LeavesItInHistory, revival.a_revived_run_is_live_exactly_as_it_was_archived),
    (LeavesGrowthsInHistory, revival.a_revived_run_is_live_exactly_as_it_was_archived),
    (TellsAnew, revival.a_revived_run_is_live_exactly_as_it_was_archived),
    (RevivesLast, revival.what_a_batch_puts_comes_on_top_of_what_it_revives),
    (TellsAnew, revival.a_run_of_history_that_is_archived_again_is_there_once_with_one_story),
    (KeepsACopyForLater, revival.a_run_of_history_that_is_archived_again_is_there_once_with_one_story),
    (ArchivesWhatWasThere, revival.a_run_revived_and_archived_by_one_batch_is_archived_as_put),
    (TripsOverWhatIsNotThere, revival.reviving_what_is_not_in_history_changes_nothing),
    (RevivesById, revival.reviving_what_is_not_in_history_changes_nothing),
    (OverwritesTheLiving, revival.a_run_of_history_is_not_revived_over_a_later_one_of_its_id),
    (HidesInMemory, revival.a_revival_outlives_its_process),
    (RevivesBeforeItCompares, revival.a_revival_that_is_fenced_or_refused_changes_nothing),
    (RevivesBeforeTheGap, revival.a_revival_that_was_overtaken_on_its_way_changes_nothing),
    (GoesOnMoving, revival.a_run_can_be_revived_however_far_it_has_been_moved),
    (ExpiresByTheFirstEnd, revival.a_revived_run_is_not_too_old_however_long_ago_it_ended),
    (RevivesWhatIsLeft, revival.a_run_is_revived_whole_or_not_at_all_while_it_is_being_removed),
    (LosesTheDefinition, revival.the_definition_of_a_revived_run_is_found_throughout),
    (KeepsWhatHistoryRefersTo, revival.what_a_revived_run_refers_to_is_kept),
    (KeepsBundlesOfTheLiving, revival.a_bundle_is_kept_as_long_as_a_definition_that_names_it),
    (NeverLooksAgain, revival.a_reader_elsewhere_sees_what_was_revived),
]
