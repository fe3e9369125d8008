"""Stores that each break something, as an adapter might: the contract must notice every one of them.

A sentence for each says what its author did. `BROKEN` names the promise that was written to notice it.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Struct

from rota.core.errors import Refused
from rota.core.history import AuditsPage, Ended, HistoryQuery, ListAudits, Page
from rota.core.ids import Epoch, RunKey
from rota.core.model import Queue
from rota.core.records import Batch, Key, Record, Run, Story, Task, key_of
from rota.ports import Candidate, Fenced, StoreRefused
from tests.contract import store_history as history
from tests.contract import store_reigns as reigns
from tests.contract import store_rows as rows
from tests.contract.bench import Promise
from tests.contract.row_store import Platter, Row, RowStore

# Rows.


class ComesFurnished(RowStore):
    """A new database has a default queue in it."""

    def __init__(self, platter: Platter | None = None) -> None:
        super().__init__(platter)
        queue = Queue(tenant="", name="default")
        self.platter.rows.setdefault(key_of(queue), self.write(queue))


class ForgetsAField(RowStore):
    """A column was added to the struct and not to the table."""

    def read(self, row: Row) -> Any:
        record = super().read(row)
        if isinstance(record, Task):
            record.tier = 0
        return record


class ForgetsTheTaskInside(RowStore):
    """The run's row has no room for its task."""

    def write(self, record: Struct) -> Row:
        return super().write(msgspec.structs.replace(record, solo=None) if isinstance(record, Run) else record)


class SwapsColumns(RowStore):
    """Two columns of one type, in the wrong order."""

    def read(self, row: Row) -> Any:
        record = super().read(row)
        if isinstance(record, Run):
            record.started_at, record.ended_at = record.ended_at, record.started_at
        return record


class ReadsNumbersForFlags(RowStore):
    """SQLite has no booleans, and nobody turned the numbers back."""

    def read(self, row: Row) -> Any:
        record = super().read(row)
        if isinstance(record, Run):
            record.paused = int(record.paused)  # pyright: ignore[reportAttributeAccessIssue] - the mistake itself
        return record


class ReadsTextForStates(RowStore):
    """Text that equals a state and is none."""

    def read(self, row: Row) -> Any:
        record = super().read(row)
        if isinstance(record, Task):
            record.state = record.state.value  # pyright: ignore[reportAttributeAccessIssue] - the mistake itself
        return record


class ReadsEmptyForNothing(RowStore):
    """Empty bytes and no bytes are one to it."""

    def read(self, row: Row) -> Any:
        record = super().read(row)
        if isinstance(record, Task):
            record.result = record.result or None
        return record


class Merges(RowStore):
    """A put updates the columns it has something for."""

    def put(self, puts: dict[Key, Row]) -> None:
        for key, row in puts.items():
            table, old = self.platter.rows.get(key, row)
            values = msgspec.msgpack.decode(old)
            values.update({name: value for name, value in msgspec.msgpack.decode(row[1]).items() if value})
            self.platter.rows[key] = (table, msgspec.msgpack.encode(values))


class InsertsOnly(RowStore):
    """What is there stays as it is."""

    def put(self, puts: dict[Key, Row]) -> None:
        for key, row in puts.items():
            self.platter.rows.setdefault(key, row)


class DropsNothing(RowStore):
    """The delete was forgotten."""

    def drop(self, drops: list[Key]) -> None:
        pass


class TripsOverAMissingRow(RowStore):
    """A delete of nothing is an error."""

    def drop(self, drops: list[Key]) -> None:
        if not all(key in self.platter.rows for key in drops):
            raise StoreRefused("nothing to delete")
        super().drop(drops)


class WritesAsItReads(RowStore):
    """Rows are written while the batch is still being read."""

    def written(self, batch: Batch) -> tuple[dict[Key, Row], list[Key], list[RunKey], list[Row]]:
        for record in batch.puts:
            self.platter.rows[self.key(record)] = self.write(record)
        return super().written(batch)


class CutsText(RowStore):
    """A column type with an end."""

    def read(self, row: Row) -> Any:
        record = super().read(row)
        if isinstance(record, Task):
            record.error = record.error[:255]
        return record


class StopsAtNul(RowStore):
    """Text as C sees it."""

    def read(self, row: Row) -> Any:
        record = super().read(row)
        if isinstance(record, Task):
            record.error = record.error.partition("\0")[0]
        return record


class StopsAtAThousand(RowStore):
    """One page of a batch."""

    def put(self, puts: dict[Key, Row]) -> None:
        super().put(dict(list(puts.items())[:1_000]))


class KeepsWhatItIsGiven(RowStore):
    """Records are kept by reference."""

    def write(self, record: Struct) -> Row:
        row = super().write(record)
        vars(self.platter).setdefault("given", {})[row] = record
        return row

    def read(self, row: Row) -> Any:
        return vars(self.platter)["given"][row]


class LendsWhatItKeeps(RowStore):
    """Loading hands out the very records that are kept."""

    def read(self, row: Row) -> Any:
        lent = vars(self.platter).setdefault("lent", {})
        if row not in lent:
            lent[row] = super().read(row)
        return lent[row]


class IgnoresTenants(RowStore):
    """The tenant is a column and not part of the key."""

    def key(self, record: Record) -> Key:
        table, _, *rest = key_of(record)
        return (table, "", *rest)


class JoinsKeysWithASlash(RowStore):
    """A key is a path, and a name may have a slash in it."""

    def key(self, record: Record) -> Key:
        return ("/".join(map(str, key_of(record))),)

    def drop(self, drops: list[Key]) -> None:
        super().drop([("/".join(map(str, key)),) for key in drops])


class FoldsCase(RowStore):
    """A collation that thinks A is a."""

    def key(self, record: Record) -> Key:
        return tuple(
            part.casefold() if isinstance(part, str) and at else part for at, part in enumerate(key_of(record))
        )


# History and stories.


class ArchivesByPrefix(RowStore):
    """All tasks whose path begins with that of the run."""

    def parts(self, key: RunKey) -> list[Key]:
        rows = [row for row in self.platter.rows if row[0] in ("Task", "Growth")]
        return [row for row in rows if row[1] == key[0] and str(row[2]).startswith(key[1])]


class ArchivesForEveryTenant(RowStore):
    """A where clause without the tenant."""

    def parts(self, key: RunKey) -> list[Key]:
        return [row for row in self.platter.rows if row[0] in ("Task", "Growth") and row[2] == key[1]]


class LeavesGrowthsBehind(RowStore):
    """A run's growths stay with the living."""

    def parts(self, key: RunKey) -> list[Key]:
        return [part for part in super().parts(key) if part[0] == "Task"]


class ArchivesAgain(RowStore):
    """An archive that does not look whether it was done before."""

    def archive(self, key: RunKey) -> None:
        run = self.platter.rows.get(("Run", *key))
        super().archive(key)
        if run is not None:
            self.platter.rows[("Run", *key)] = run


class ReplacesHistory(RowStore):
    """History has one row for each id."""

    def archive(self, key: RunKey) -> None:
        super().archive(key)
        kept = {(ended.run.tenant, ended.run.id): self.write(ended) for ended in map(self.read, self.platter.history)}
        self.platter.history = list(kept.values())


class TripsOverAnUnknownRun(RowStore):
    """Archiving what is not there is an error."""

    def archive(self, key: RunKey) -> None:
        if ("Run", *key) not in self.platter.rows:
            raise StoreRefused("no such run")
        super().archive(key)


class ArchivesFirst(RowStore):
    """History is written before the puts of the same batch."""

    def apply(self, puts: dict[Key, Row], drops: list[Key], archives: list[RunKey], stories: list[Row]) -> None:
        super().apply({}, [], archives, [])
        super().apply(puts, drops, [], stories)


class TellsTheNewestFirst(RowStore):
    """Stories in the order of a stack."""

    def apply(self, puts: dict[Key, Row], drops: list[Key], archives: list[RunKey], stories: list[Row]) -> None:
        super().apply(puts, drops, archives, [])
        self.platter.stories[:0] = stories


class ForgetsTheStoriesOfTheDead(RowStore):
    """Stories go when their run goes."""

    def archive(self, key: RunKey) -> None:
        super().archive(key)
        self.platter.stories.clear()


class KeepsTheOrderOfArchiving(RowStore):
    """Pages go by when a run was archived, not by when it ended."""

    def place(self, run: Run, at: int) -> tuple[int, int]:
        return at, at


class RepeatsTheLastOfAPage(RowStore):
    """A place that is met again."""

    def is_past(self, place: tuple[int, int], after: tuple[int, int] | None) -> bool:
        return after is None or place <= after


class CountsPages(RowStore):
    """A page is so many runs further on, whoever came meanwhile."""

    async def history(self, query: HistoryQuery) -> Page:
        seen = int(query.after or 0)
        whole = await super().history(msgspec.structs.replace(query, after="", limit=1_000))
        shown = whole.runs[seen : seen + query.limit]
        more = len(whole.runs) > seen + query.limit
        return Page(shown, str(seen + query.limit) if more else "")

    def read_after(self, after: str) -> tuple[int, int] | None:
        return None


class MisreadsAnyPlace(RowStore):
    """A place that cannot be read is the beginning."""

    def read_after(self, after: str) -> tuple[int, int] | None:
        try:
            return super().read_after(after)
        except Refused:
            return None


class IncludesTheEnd(RowStore):
    """Off by one."""

    def is_asked_for(self, run: Run, query: HistoryQuery) -> bool:
        return super().is_asked_for(run, msgspec.structs.replace(query, ended_to=query.ended_to and query.ended_to + 1))


class FindsAnyLabel(RowStore):
    """One of the labels that are asked for is enough."""

    def is_asked_for(self, run: Run, query: HistoryQuery) -> bool:
        asked = super().is_asked_for(run, msgspec.structs.replace(query, labels=()))
        return asked and (not query.labels or any(label in run.labels for label in query.labels))


class FindsTheOldest(RowStore):
    """The first that matches."""

    def told_of_history(self) -> list[tuple[int, Ended]]:
        return list(super().told_of_history())[::-1]


class FindsTheLivingAmongTheDead(RowStore):
    """History is everything."""

    async def ended(self, tenant: str, run: str, created_at: int = 0) -> Ended | None:
        row = self.platter.rows.get(("Run", tenant, run))
        return await super().ended(tenant, run, created_at) if row is None else Ended(self.read(row), (), ())


class SharesStories(RowStore):
    """One id, one story."""

    async def stories(self, tenant: str, run: str, created_at: int) -> list[Story]:
        told: list[Story] = [self.read(row) for row in self.platter.stories]
        return [part for part in told if (part.tenant, part.run) == (tenant, run)]


class PutsIntoHistory(RowStore):
    """A run in history is still the run of that id."""

    def put(self, puts: dict[Key, Row]) -> None:
        super().put(puts)
        for at, row in enumerate(self.platter.history):
            ended: Ended = self.read(row)
            found = puts.get(("Run", ended.run.tenant, ended.run.id))
            if found is not None:
                self.platter.history[at] = self.write(Ended(self.read(found), ended.tasks, ended.growths))


class LosesWhatItMoves(RowStore):
    """Tasks are removed in one transaction, and written in the next."""

    async def tidy(self, epoch: Epoch, now: int, keep_ms: int) -> int:
        for at, row in enumerate(self.platter.history):
            ended: Ended = self.read(row)
            if ended.growths:
                self.platter.history[at] = self.write(Ended(ended.run, ended.tasks, ()))
                return 1
        return await super().tidy(epoch, now, keep_ms)


class RemovesTooMuch(RowStore):
    """An instant too early."""

    def is_expired(self, run: Run, before: int) -> bool:
        return run.ended_at <= before + 1


class RemovesStoriesById(RowStore):
    """A where clause without the instant."""

    def forget(self, row: Row, run: Run) -> None:
        super().forget(row, run)
        told: list[tuple[Row, Story]] = [(part, self.read(part)) for part in self.platter.stories]
        self.platter.stories = [part for part, story in told if (story.tenant, story.run) != (run.tenant, run.id)]


class RemovesAFew(RowStore):
    """Zero is said while something is left."""

    async def tidy(self, epoch: Epoch, now: int, keep_ms: int) -> int:
        rows = await super().tidy(epoch, now, keep_ms)
        return rows if rows and len(self.platter.history) > 5 else 0


class TidiesForAnybody(RowStore):
    """Housekeeping needs no epoch."""

    async def tidy(self, epoch: Epoch, now: int, keep_ms: int) -> int:
        return await super().tidy(self.platter.epoch, now, keep_ms)


class AuditsTheOldestFirst(RowStore):
    """No order was asked for."""

    async def audits(self, query: ListAudits) -> AuditsPage:
        page = await super().audits(query)
        return AuditsPage(page.audits[::-1], page.next)


class AuditsBeforeItCompares(RowStore):
    """Who asked is written on the side."""

    async def commit(self, epoch: Epoch, batch: Batch) -> None:
        self.platter.audits.extend(batch.audits)
        await super().commit(epoch, Batch(batch.puts, batch.drops, batch.archives, batch.stories))


class KeepsAuditsForEver(RowStore):
    """Housekeeping knows runs only."""

    async def tidy(self, epoch: Epoch, now: int, keep_ms: int) -> int:
        kept, self.platter.audits = self.platter.audits, []
        try:
            return await super().tidy(epoch, now, keep_ms)
        finally:
            self.platter.audits = kept


# Reigns.


class StartsCountingAgain(RowStore):
    """The epoch is the process's own."""

    def __init__(self, platter: Platter | None = None) -> None:
        super().__init__(platter)
        if self.platter.holder is None:
            self.platter.epoch = 0


class DiesHoldingOn(RowStore):
    """Nobody finds out that the holder has died."""

    def die(self, epoch: Epoch) -> None:
        pass


class DiesForAll(RowStore):
    """Whoever dies takes the lock along."""

    def die(self, epoch: Epoch) -> None:
        self.platter.holder = None


class ElectsEverybody(RowStore):
    """Nobody looks at the lock."""

    async def elect(self, who: Candidate) -> Epoch | None:
        self.platter.holder = None
        return await super().elect(who)


class IsReentrant(RowStore):
    """A session may take its own lock again, as an advisory lock can."""

    mine: Epoch = -1

    async def elect(self, who: Candidate) -> Epoch | None:
        if self.platter.holder == self.mine:
            self.platter.holder = None
        epoch = await super().elect(who)
        self.mine = self.mine if epoch is None else epoch
        return epoch


class LooksThenTakes(RowStore):
    """Time passes between looking at the lock and taking it."""

    async def elect(self, who: Candidate) -> Epoch | None:
        if self.platter.holder is not None:
            return None
        await asyncio.sleep(0)
        self.platter.holder = None
        return await super().elect(who)


class WaitsForTheLock(RowStore):
    """An election that ends when it is won."""

    async def elect(self, who: Candidate) -> Epoch | None:
        while self.platter.holder is not None:
            await asyncio.sleep(0)
        return await super().elect(who)


class ReusesEpochs(RowStore):
    """An epoch is given back with the lock."""

    async def release(self, epoch: Epoch) -> None:
        if self.platter.holder == epoch:
            self.platter.epoch -= 1
        await super().release(epoch)


class BumpsBeforeItKnows(RowStore):
    """The epoch grows with every election, won or not."""

    async def elect(self, who: Candidate) -> Epoch | None:
        if self.platter.holder is not None:
            self.platter.epoch += 1
        return await super().elect(who)


class HoldsForAnybody(RowStore):
    """Whether the lock is held at all."""

    async def holds(self, epoch: Epoch) -> bool:
        return self.platter.holder is not None


class CallsNobodyZero(RowStore):
    """A free lock is held by 0, and so 0 holds a free lock."""

    async def holds(self, epoch: Epoch) -> bool:
        return (self.platter.holder or 0) == epoch


class ReleasesForAnybody(RowStore):
    """Whoever asks frees the lock."""

    async def release(self, epoch: Epoch) -> None:
        self.platter.holder = None


class AcceptsOldEpochs(RowStore):
    """A comparison the wrong way round."""

    def compare(self, epoch: Epoch) -> None:
        if epoch > self.platter.epoch:
            raise Fenced("too new")


class FencesByTheLock(RowStore):
    """Who is fenced is asked of the lock, and a free lock fences nobody."""

    def compare(self, epoch: Epoch) -> None:
        if self.platter.holder not in (None, epoch):
            raise Fenced("held by another")


class NeedsTheLock(RowStore):
    """Who lost the lock is fenced, overtaken or not."""

    def compare(self, epoch: Epoch) -> None:
        super().compare(epoch)
        if self.platter.holder != epoch:
            raise Fenced("no lock")


class LetsZeroWrite(RowStore):
    """Before the first election the epoch is 0, and 0 is the epoch."""

    def compare(self, epoch: Epoch) -> None:
        if epoch != self.platter.epoch:
            raise Fenced("passed")


class LoadsForAnybody(RowStore):
    """Reading needs no epoch."""

    async def load(self, epoch: Epoch) -> AsyncIterator[Record]:
        async for record in super().load(self.platter.epoch):
            yield record


class DropsBeforeItCompares(RowStore):
    """Part of the batch is outside the transaction."""

    async def commit(self, epoch: Epoch, batch: Batch) -> None:
        self.drop(batch.drops)
        await super().commit(epoch, batch)


class TellsBeforeItCompares(RowStore):
    """Stories are outside the transaction."""

    async def commit(self, epoch: Epoch, batch: Batch) -> None:
        stories, batch.stories = batch.stories, []
        self.platter.stories.extend(map(self.write, stories))
        await super().commit(epoch, batch)


class ComparesOnlyBefore(RowStore):
    """The epoch is compared, and then a commit takes as long as it takes."""

    async def commit(self, epoch: Epoch, batch: Batch) -> None:
        self.compare(epoch)
        written = self.written(batch)
        await self.gap()
        self.apply(*written)


class ReadsAsItGoes(RowStore):
    """A load that reads each row when it is asked for."""

    async def load(self, epoch: Epoch) -> AsyncIterator[Record]:
        self.compare(epoch)
        for key in list(self.platter.rows):
            if key in self.platter.rows:
                yield self.read(self.platter.rows[key])


BROKEN: list[tuple[type[RowStore], Promise]] = [
    (ComesFurnished, rows.a_new_store_is_empty),
    (ForgetsAField, rows.every_field_of_every_record_comes_back),
    (ForgetsTheTaskInside, rows.a_one_task_run_comes_back_with_its_task_inside),
    (SwapsColumns, rows.every_field_of_every_record_comes_back),
    (ReadsNumbersForFlags, rows.every_field_of_every_record_comes_back),
    (ReadsTextForStates, rows.every_default_comes_back),
    (ReadsEmptyForNothing, rows.the_largest_values_come_back),
    (Merges, rows.a_put_replaces_the_whole_row),
    (InsertsOnly, rows.a_put_replaces_the_whole_row),
    (DropsNothing, rows.a_drop_removes_its_row_and_no_other),
    (DropsNothing, rows.a_batch_takes_effect_in_all_its_parts),
    (TripsOverAMissingRow, rows.dropping_what_is_not_there_changes_nothing),
    (WritesAsItReads, rows.a_batch_with_what_is_no_record_is_refused_whole),
    (CutsText, rows.the_largest_values_come_back),
    (StopsAtNul, rows.what_a_column_cannot_hold_is_kept_exactly_or_refused_whole),
    (StopsAtAThousand, rows.ten_thousand_records_commit_at_once),
    (KeepsWhatItIsGiven, rows.changing_a_record_after_its_commit_changes_nothing_stored),
    (KeepsWhatItIsGiven, rows.changing_a_record_after_its_commit_changes_no_history),
    (LendsWhatItKeeps, rows.changing_what_load_gave_changes_nothing_stored),
    (IgnoresTenants, rows.tenants_never_mix),
    (JoinsKeysWithASlash, rows.names_that_look_alike_are_different_rows),
    (FoldsCase, rows.names_that_look_alike_are_different_rows),
    (ArchivesByPrefix, rows.names_that_look_alike_are_different_rows),
    (ArchivesForEveryTenant, rows.archiving_moves_a_run_with_all_that_is_its_own),
    (LeavesGrowthsBehind, rows.archiving_moves_a_run_with_all_that_is_its_own),
    (ArchivesAgain, rows.archiving_twice_is_archiving_once),
    (ReplacesHistory, rows.an_id_used_again_is_another_run_in_history),
    (ForgetsTheTaskInside, rows.archiving_a_one_task_run_keeps_its_task),
    (TripsOverAnUnknownRun, rows.archiving_what_is_not_there_changes_nothing),
    (DropsNothing, rows.a_dropped_task_is_not_archived_with_its_run),
    (ArchivesFirst, rows.a_run_put_and_archived_by_one_batch_is_archived_as_put),
    (TellsTheNewestFirst, rows.a_story_is_told_in_order_and_outlives_its_run),
    (ForgetsTheStoriesOfTheDead, rows.a_story_is_told_in_order_and_outlives_its_run),
    (KeepsTheOrderOfArchiving, history.history_is_told_page_by_page_from_the_newest_end),
    (RepeatsTheLastOfAPage, history.history_is_told_page_by_page_from_the_newest_end),
    (CountsPages, history.a_run_that_ends_between_two_pages_moves_no_other),
    (IncludesTheEnd, history.history_finds_what_is_asked_for_and_nothing_else),
    (FindsAnyLabel, history.history_is_found_by_all_labels_that_are_asked_for),
    (MisreadsAnyPlace, history.a_place_that_no_page_gave_is_refused),
    (FindsTheOldest, history.of_several_runs_with_one_id_the_newest_is_found_or_the_one_that_is_named),
    (SharesStories, history.of_several_runs_with_one_id_the_newest_is_found_or_the_one_that_is_named),
    (FindsTheLivingAmongTheDead, history.only_ended_runs_are_found_in_history),
    (AuditsTheOldestFirst, history.who_asked_for_what_is_told_page_by_page_from_the_newest),
    (AuditsBeforeItCompares, history.a_commit_that_is_fenced_leaves_no_audit),
    (KeepsAuditsForEver, history.audits_are_kept_as_long_as_history),
    (PutsIntoHistory, history.a_run_that_is_not_live_any_more_can_be_changed_by_no_put),
    (LosesWhatItMoves, history.nobody_can_tell_how_far_housekeeping_has_come),
    (RemovesTooMuch, history.what_ended_long_ago_is_removed_with_all_that_is_its_own),
    (RemovesStoriesById, history.removing_one_run_leaves_another_with_its_id),
    (RemovesAFew, history.removal_goes_in_slices_too),
    (TidiesForAnybody, reigns.an_old_epoch_can_neither_commit_nor_load),
    (StartsCountingAgain, rows.everything_survives_the_process_that_wrote_it),
    (DiesHoldingOn, reigns.the_lock_of_a_process_that_died_is_free),
    (DiesForAll, reigns.the_lock_of_a_process_that_died_is_free),
    (ElectsEverybody, reigns.one_writer_at_a_time),
    (IsReentrant, reigns.one_writer_at_a_time),
    (LooksThenTakes, reigns.of_many_that_stand_at_once_one_is_elected),
    (WaitsForTheLock, reigns.an_election_never_blocks),
    (ReusesEpochs, reigns.epochs_strictly_grow),
    (BumpsBeforeItKnows, reigns.an_election_that_is_not_won_fences_nobody),
    (HoldsForAnybody, reigns.holds_is_about_this_very_hold),
    (CallsNobodyZero, reigns.a_free_lock_is_held_by_no_epoch),
    (ReleasesForAnybody, reigns.release_frees_only_ones_own),
    (AcceptsOldEpochs, reigns.an_old_epoch_can_neither_commit_nor_load),
    (FencesByTheLock, reigns.an_old_epoch_is_fenced_also_while_the_lock_is_free),
    (NeedsTheLock, reigns.a_lock_lost_but_not_taken_fences_nobody),
    (LetsZeroWrite, reigns.before_the_first_election_nobody_writes),
    (AcceptsOldEpochs, reigns.an_epoch_that_nobody_was_given_is_fenced),
    (LoadsForAnybody, reigns.an_old_epoch_can_neither_commit_nor_load),
    (WritesAsItReads, reigns.a_fenced_commit_changes_nothing_at_all),
    (DropsBeforeItCompares, reigns.a_fenced_commit_changes_nothing_at_all),
    (TellsBeforeItCompares, reigns.a_fenced_commit_changes_nothing_at_all),
    (ComparesOnlyBefore, reigns.a_commit_that_was_overtaken_on_its_way_changes_nothing),
    (ReadsAsItGoes, reigns.a_load_that_is_overtaken_is_never_a_mixture),
]
