"""What a store promises about what it keeps: rows, history, stories."""

from collections.abc import Iterable
from itertools import product

import pytest

from rota.core.bounds import (
    CHANGES_PER_COMMIT_MAX,
    ERROR_CHARS_MAX,
    ID_CHARS_MAX,
    PARAMS_BYTES_MAX,
    RESULT_BYTES_MAX,
    WORK_BYTES_MAX,
)
from rota.core.history import Ended
from rota.core.model import TaskSpec
from rota.core.records import RECORD_TYPES, Growth, Record, Run, Story, Task, key_of
from rota.ports import Fenced, StoreRefused
from tests.contract.bench import NEIGHBOURS, Bench, Promises, assert_same, batch, disk_of
from tests.contract.records import bare, filled, key_values, with_fields
from tests.contract.samples import (
    a_one_task_run,
    a_run,
    new_images,
    one_of_each,
    rows_of,
    run_of,
    scribble,
    story_of,
)

promise = Promises()


# Rows.


async def records_come_back(bench: Bench, records: Iterable[Record]) -> None:
    """What is committed is what is loaded: every field, with its exact type. Tried with generated records too."""
    given = list(records)
    expected = disk_of(given)
    store, epoch = await bench.reign()
    await store.commit(epoch, batch(given))
    await bench.expect(store, epoch, expected)
    rival, later = await bench.overtake(store, epoch)
    await bench.expect(rival, later, expected)


@promise
async def a_new_store_is_empty(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.commit(epoch, batch())
    await bench.expect(store, epoch, disk_of())


@promise
async def every_field_of_every_record_comes_back(bench: Bench) -> None:
    await records_come_back(bench, one_of_each())


@promise
async def every_default_comes_back(bench: Bench) -> None:
    await records_come_back(bench, [bare(cls) for cls in RECORD_TYPES])


@promise
async def a_one_task_run_comes_back_with_its_task_inside(bench: Bench) -> None:
    tasks = (filled(Task), bare(Task), None)
    await records_come_back(bench, [filled(Run, id=f"r{n}", solo=task) for n, task in enumerate(tasks)])


@promise
async def the_largest_values_come_back(bench: Bench) -> None:
    wide, every_byte = "\U0001f41d", bytes(range(256))
    name = wide * ID_CHARS_MAX
    spec = filled(TaskSpec, work=every_byte * (WORK_BYTES_MAX // 256))
    await records_come_back(
        bench,
        [
            filled(Run, tenant=name, id=name, solo=None, params=every_byte * (PARAMS_BYTES_MAX // 256)),
            filled(Task, tenant=name, run=name, idx=2**63 - 1, result=every_byte * (RESULT_BYTES_MAX // 256)),
            filled(Task, tenant=name, run=name, idx=0, error=wide * ERROR_CHARS_MAX, fence=2**63 - 1, result=b""),
            filled(Growth, tenant=name, run=name, specs=(spec,)),
        ],
    )


@promise
async def a_put_replaces_the_whole_row(bench: Bench) -> None:
    """A put is not a merge: what the new image leaves out is gone."""
    store, epoch = await bench.reign()
    full = one_of_each()
    empty = [bare(type(record), **key_values(record)) for record in full]
    for images in (full, empty, new_images(full)):
        expected = disk_of(images)
        await store.commit(epoch, batch(images))
        await bench.expect(store, epoch, expected)


@promise
async def a_drop_removes_its_row_and_no_other(bench: Bench) -> None:
    store, epoch = await bench.reign()
    records = one_of_each() + one_of_each(start=40_000)
    expected = disk_of(records)
    await store.commit(epoch, batch(records))
    for key in reversed(list(expected.rows)):  # a run goes after what is its own
        await store.commit(epoch, batch(drops=[key]))
        del expected.rows[key]
        await bench.expect(store, epoch, expected)


@promise
async def dropping_what_is_not_there_changes_nothing(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.commit(epoch, batch(one_of_each()))
    async with bench.unchanged(store, epoch):
        await store.commit(epoch, batch(drops=[key_of(record) for record in one_of_each(start=40_000)]))


@promise
async def a_batch_takes_effect_in_all_its_parts(bench: Bench) -> None:
    store, epoch = await bench.reign()
    old, new, ended = one_of_each(), one_of_each(start=40_000), a_run(run="ended")
    await store.commit(epoch, batch(old + rows_of(ended)))
    told = story_of(ended.run)
    await store.commit(epoch, batch(new, [key_of(record) for record in old], [("t", "ended")], told))
    await bench.expect(store, epoch, disk_of(one_of_each(start=40_000), [a_run(run="ended")], told))


@promise
async def a_batch_with_what_is_no_record_is_refused_whole(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.commit(epoch, batch(one_of_each()))
    async with bench.unchanged(store, epoch):
        new = one_of_each(start=40_000)
        broken = batch(new, stories=story_of(run_of(new)))
        broken.puts.append("no record")  # pyright: ignore[reportArgumentType] - what the promise is about
        with pytest.raises((StoreRefused, AssertionError, AttributeError, KeyError, TypeError, ValueError)):
            await store.commit(epoch, broken)


@promise
async def what_a_column_cannot_hold_is_kept_exactly_or_refused_whole(bench: Bench) -> None:
    store, epoch = await bench.reign()
    odd_fields = ({"error": "NUL \0"}, {"error": "half a pair \ud83d"}, {"cycles": 2**63}, {"cycles": -(2**63) - 1})
    kept: list[Record] = []
    told: list[Story] = []
    for number, odd in enumerate(odd_fields):
        records = one_of_each(10_000 * number)
        run = run_of(records)
        records.append(filled(Task, tenant=run.tenant, run=run.id, **odd))
        story = story_of(run, parts=[number])
        try:
            await store.commit(epoch, batch(records, stories=story))
        except StoreRefused:
            pass
        else:
            kept += records
            told += story
        await bench.expect(store, epoch, disk_of(kept, stories=told))


@promise
async def ten_thousand_records_commit_at_once(bench: Bench) -> None:
    store, epoch = await bench.reign()
    run = filled(Run, tenant="t", id="r", solo=None)
    tasks = [Task("t", "r", idx, fence=idx) for idx in range(CHANGES_PER_COMMIT_MAX)]
    await store.commit(epoch, batch([run, *tasks]))
    await bench.expect(store, epoch, disk_of([run, *tasks]))
    await store.commit(epoch, batch(archives=[("t", "r")]))
    await bench.expect(store, epoch, disk_of(history=[Ended(run, tuple(tasks), ())]))


@promise
async def changing_a_record_after_its_commit_changes_nothing_stored(bench: Bench) -> None:
    store, epoch = await bench.reign()
    records = one_of_each()
    written = batch(stories=story_of(run_of(records)))
    written.puts.extend(records)
    await store.commit(epoch, written)
    for record in records:
        scribble(record)
    written.puts.clear()
    written.stories.clear()
    told = story_of(run_of(one_of_each()))
    await bench.expect(store, epoch, disk_of(one_of_each(), stories=told))


@promise
async def changing_a_record_after_its_commit_changes_no_history(bench: Bench) -> None:
    store, epoch = await bench.reign()
    records = rows_of(a_run(), a_one_task_run(run="one"))
    await store.commit(epoch, batch(records))
    await store.commit(epoch, batch(archives=[("t", "r"), ("t", "one")]))
    for record in records:
        scribble(record)
    await bench.expect(store, epoch, disk_of(history=[a_run(), a_one_task_run(run="one")]))


@promise
async def changing_what_load_gave_changes_nothing_stored(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.commit(epoch, batch(one_of_each()))
    async with bench.unchanged(store, epoch):
        for record in [record async for record in store.load(epoch)]:
            scribble(record)


@promise
async def tenants_never_mix(bench: Bench) -> None:
    store, epoch = await bench.reign()
    ours = one_of_each()
    theirs = new_images(ours, tenant="another")
    await store.commit(epoch, batch(ours + theirs))
    await bench.expect(store, epoch, disk_of(ours + theirs))
    await store.commit(epoch, batch(drops=[key_of(record) for record in ours]))
    await bench.expect(store, epoch, disk_of(theirs))


@promise
async def names_that_look_alike_are_different_rows(bench: Bench) -> None:
    store, epoch = await bench.reign()
    runs = {
        (tenant, run): Ended(
            bare(Run, number, tenant=tenant, id=run),
            (bare(Task, number, tenant=tenant, run=run, idx=1),),
            (bare(Growth, number, tenant=tenant, run=run, number=1),),
        )
        for number, (tenant, run) in enumerate(product(NEIGHBOURS, NEIGHBOURS))
    }
    await store.commit(epoch, batch(rows_of(*runs.values())))
    await bench.expect(store, epoch, disk_of(rows_of(*runs.values())))
    history: list[Ended] = []
    for name in NEIGHBOURS:
        history.append(runs.pop((name, name)))
        await store.commit(epoch, batch(archives=[(name, name)]))
        await bench.expect(store, epoch, disk_of(rows_of(*runs.values()), history))


# History and stories.


@promise
async def archiving_moves_a_run_with_all_that_is_its_own(bench: Bench) -> None:
    store, epoch = await bench.reign()
    ended, other, elsewhere = a_run(), a_run(run="other", start=20_000), a_run(tenant="u", start=40_000)
    rest = [*rows_of(other, elsewhere), *one_of_each(start=60_000)]
    await store.commit(epoch, batch([*rows_of(ended), *rest]))
    await store.commit(epoch, batch(archives=[("t", "r")]))
    await bench.expect(store, epoch, disk_of(rest, [ended]))


@promise
async def archiving_a_one_task_run_keeps_its_task(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.commit(epoch, batch(rows_of(a_one_task_run())))
    await store.commit(epoch, batch(archives=[("t", "r")]))
    await bench.expect(store, epoch, disk_of(history=[a_one_task_run()]))


@promise
async def archiving_twice_is_archiving_once(bench: Bench) -> None:
    store, epoch = await bench.reign()
    other = a_run(run="other")
    await store.commit(epoch, batch(rows_of(a_run(), other)))
    await store.commit(epoch, batch(archives=[("t", "r"), ("t", "r")]))
    await bench.expect(store, epoch, disk_of(rows_of(other), [a_run()]))
    rival, later = await bench.overtake(store, epoch)
    async with bench.unchanged(rival, later):
        await rival.commit(later, batch(archives=[("t", "r")]))


@promise
async def archiving_what_is_not_there_changes_nothing(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.commit(epoch, batch(rows_of(a_run())))
    async with bench.unchanged(store, epoch):
        await store.commit(epoch, batch(archives=[("t", "unknown"), ("unknown", "r"), ("r", "t")]))


@promise
async def a_run_put_and_archived_by_one_batch_is_archived_as_put(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.commit(epoch, batch(rows_of(a_run())))
    ended = a_run(start=40_000)
    await store.commit(epoch, batch(rows_of(ended), archives=[("t", "r")]))
    await bench.expect(store, epoch, disk_of(history=[ended]))


@promise
async def an_id_used_again_is_another_run_in_history(bench: Bench) -> None:
    """Only ids of living runs are taken; whoever uses that of an ended one must not wipe out what it did."""
    store, epoch = await bench.reign()
    runs, told = [a_run(), a_run(start=40_000)], list[Story]()
    for number, run in enumerate(runs):
        own = story_of(run.run, parts=(0, 1))
        told += own
        await store.commit(epoch, batch(rows_of(run), stories=own))
        await bench.expect(store, epoch, disk_of(rows_of(run), runs[:number], told))
        await store.commit(epoch, batch(archives=[("t", "r")]))
    await bench.expect(store, epoch, disk_of((), runs, told))


@promise
async def a_dropped_task_is_not_archived_with_its_run(bench: Bench) -> None:
    store, epoch = await bench.reign()
    ended = a_run()
    await store.commit(epoch, batch(rows_of(ended)))
    await store.commit(epoch, batch(drops=[key_of(ended.tasks[-1])]))
    await store.commit(epoch, batch(archives=[("t", "r")]))
    await bench.expect(store, epoch, disk_of(history=[Ended(ended.run, ended.tasks[:-1], ended.growths)]))


@promise
async def a_story_is_told_in_order_and_outlives_its_run(bench: Bench) -> None:
    store, epoch = await bench.reign()
    runs = (a_run(), a_one_task_run(run="one", start=20_000), a_run(tenant="u", start=40_000))
    # More parts than a store may keep in one place, with gaps, and of three runs by turns.
    told = [story_of(run.run, parts=(0, 1, 2, 10, 11)) for run in runs]
    for run in runs:
        await store.commit(epoch, batch(rows_of(run), stories=[]))
    for number in range(5):
        part = [story[number] for story in told]
        # With the run's row, as a coordinator does, and without it.
        puts: list[Record] = [with_fields(runs[1].run)] if number % 2 else []
        await store.commit(epoch, batch(puts, stories=part))
    stories = [story for parts in told for story in parts]
    await bench.expect(store, epoch, disk_of(rows_of(*runs), stories=stories))
    await store.commit(epoch, batch(archives=[("t", "r"), ("t", "one")]))
    await bench.expect(store, epoch, disk_of(rows_of(runs[2]), runs[:2], stories))


@promise
async def everything_survives_the_process_that_wrote_it(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.commit(epoch, batch([*one_of_each(), *rows_of(a_run())], stories=story_of()))
    await store.commit(epoch, batch(archives=[("t", "r")]))
    again = await bench.reopen(store, epoch)
    later = await bench.elect_after_death(again)
    assert later > epoch, "an epoch came back after a restart"
    assert_same(await bench.disk(again, later), disk_of(one_of_each(), [a_run()], story_of()))
    with pytest.raises(Fenced):
        await again.commit(epoch, batch())
