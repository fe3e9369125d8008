"""What every store promises, each promise a function that a store is put through.

`test_store_contract.py` runs all of them on every adapter; `test_contract_notices.py` shows them stores that break
them. A promise is told from the port alone: what it does not ask for, a store may do as it likes. Two things are never
asked, because no coordinator does them: one batch that both puts and drops a key, and an epoch used through a store
that was not given it, except to be refused.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import product

import pytest
from msgspec import Struct

from rota.core.bounds import (
    CHANGES_PER_COMMIT_MAX,
    ERROR_CHARS_MAX,
    ID_CHARS_MAX,
    PARAMS_BYTES_MAX,
    RESULT_BYTES_MAX,
    WORK_BYTES_MAX,
)
from rota.core.ids import EPOCH_MAX, Epoch
from rota.core.model import TaskSpec
from rota.core.records import RECORD_TYPES, Growth, Record, Run, Story, Task, key_of
from rota.ports import Fenced, Store, StoreRefused
from tests.contract.adapters import Bench, Disk, Ended, batch, ended_image, rows
from tests.contract.records import bare, fields_of, filled, image, key_fields, named

Promise = Callable[[Bench], Awaitable[None]]
PROMISES: list[Promise] = []

# Names that a careless key would take for one another: by case, prefix, separator, pattern, form or end.
NEIGHBOURS = ("a", "A", "ab", "a/b", "b", "a:b", "a%", "_", "\u00e9", "e\u0301", "1", "10")


def promise(kept: Promise) -> Promise:
    """Put a promise on the list."""
    PROMISES.append(kept)
    return kept


# What the promises are tried with.


def one_of_each(start: int = 0) -> list[Record]:
    """A filled record of every type; the run has its only task inside."""
    return [filled(cls, start + 1_000 * number) for number, cls in enumerate(RECORD_TYPES)]


def a_run(tenant: str = "t", run: str = "r", start: int = 0) -> Ended:
    """A run of several tasks, with everything that moves to history with it."""
    tasks = [filled(Task, start + 100 * idx, tenant=tenant, run=run, idx=idx) for idx in (1, 2, 10, 11)]
    growths = [filled(Growth, start + 500 * part, tenant=tenant, run=run, number=part) for part in (0, 1)]
    return Ended(filled(Run, start, tenant=tenant, id=run, solo=None), tasks, growths)


def records_of(*runs: Ended) -> list[Record]:
    """The rows of runs."""
    return [record for run in runs for record in (run.run, *run.tasks, *run.growths)]


def story_of(tenant: str = "t", run: str = "r", parts: Iterable[int] = (0, 1, 2)) -> list[Story]:
    """Parts of one run's story."""
    return [filled(Story, 10 * part, tenant=tenant, run=run, number=part) for part in parts]


def scribble(record: Struct) -> None:
    """Change every field of a record in place, as far as its type allows."""
    other = filled(type(record), start=700_000)
    for field in fields_of(type(record)):
        value = getattr(record, field.name)
        if isinstance(value, Struct):
            scribble(value)
        elif not record.__struct_config__.frozen:
            setattr(record, field.name, getattr(other, field.name))


@asynccontextmanager
async def unchanged(bench: Bench, store: Store, epoch: Epoch) -> AsyncIterator[Disk]:
    """Nothing that is stored may change in here."""
    before = await bench.disk(store, epoch)
    yield before
    assert await bench.disk(store, epoch) == before


# Rows.


async def records_come_back(bench: Bench, records: Iterable[Record]) -> None:
    """What is committed is what is loaded: every field, with its exact type. Tried with generated records too."""
    given = list(records)
    expected = rows(given)
    store, epoch = await bench.reign()
    await store.commit(epoch, batch(given))
    assert await bench.load(store, epoch) == expected
    rival, later = await bench.overtake(store, epoch)
    assert await bench.load(rival, later) == expected, "another process reads something else"


@promise
async def a_new_store_is_empty(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.commit(epoch, batch())
    assert await bench.disk(store, epoch) == Disk({}, Counter(), [])


@promise
async def every_field_of_every_record_comes_back(bench: Bench) -> None:
    await records_come_back(bench, one_of_each())


@promise
async def a_one_task_run_comes_back_with_its_task_inside(bench: Bench) -> None:
    runs = [filled(Run, id="full"), bare(Run, id="bare"), filled(Run, id="fresh", solo=bare(Task))]
    runs[2].solo = bare(Task, tenant=runs[2].tenant, run="fresh", idx=0)
    await records_come_back(bench, runs)


@promise
async def every_default_comes_back(bench: Bench) -> None:
    await records_come_back(bench, [bare(cls) for cls in RECORD_TYPES])


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
    store, epoch = await bench.reign()
    full, empty = one_of_each(), [bare(cls, start=90_000) for cls in RECORD_TYPES]
    keys = {type(record): {name: getattr(record, name) for name in key_fields(type(record))} for record in full}
    for images in (full, empty, one_of_each(start=40_000)):
        given = [named(record, keys[type(record)].__getitem__) for record in images]
        expected = rows(given)
        await store.commit(epoch, batch(given))
        assert await bench.load(store, epoch) == expected, "a put is not a merge: what it leaves out is gone"


@promise
async def a_drop_removes_its_row_and_no_other(bench: Bench) -> None:
    store, epoch = await bench.reign()
    records = one_of_each() + one_of_each(start=40_000)
    await store.commit(epoch, batch(records))
    expected = rows(records)
    for record in records:
        await store.commit(epoch, batch(drops=[key_of(record)]))
        del expected[key_of(record)]
        assert await bench.load(store, epoch) == expected


@promise
async def dropping_what_is_not_there_changes_nothing(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.commit(epoch, batch(one_of_each()))
    async with unchanged(bench, store, epoch):
        await store.commit(epoch, batch(drops=[key_of(record) for record in one_of_each(start=40_000)]))


@promise
async def a_batch_takes_effect_in_all_its_parts(bench: Bench) -> None:
    store, epoch = await bench.reign()
    old, ended, new = one_of_each(), a_run(run="ended"), one_of_each(start=40_000)
    await store.commit(epoch, batch(old + records_of(ended)))
    story, drops = story_of(), [key_of(record) for record in old]
    await store.commit(epoch, batch(new, drops, [("t", "ended")], story))
    assert await bench.disk(store, epoch) == Disk(rows(new), Counter([ended_image(ended)]), [*map(image, story)])


@promise
async def a_batch_with_what_is_no_record_is_refused_whole(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.commit(epoch, batch(one_of_each()))
    async with unchanged(bench, store, epoch):
        broken = batch(one_of_each(start=40_000), stories=story_of())
        broken.puts.append("no record")  # pyright: ignore[reportArgumentType] - what the promise is about
        with pytest.raises((StoreRefused, AssertionError, AttributeError, KeyError, TypeError, ValueError)):
            await store.commit(epoch, broken)


@promise
async def what_a_column_cannot_hold_is_kept_exactly_or_refused_whole(bench: Bench) -> None:
    store, epoch = await bench.reign()
    for odd in ({"error": "NUL \0"}, {"error": "half a pair \ud83d"}, {"cycles": 2**63}, {"cycles": -(2**63) - 1}):
        before = await bench.disk(store, epoch)
        record = filled(Task, start=len(before.rows) * 100, **odd)
        expected = before.rows | rows([record])
        try:
            await store.commit(epoch, batch([*one_of_each(40_000), record], stories=story_of(parts=[len(before.rows)])))
        except StoreRefused:
            assert await bench.disk(store, epoch) == before, f"refused, and yet something was written: {odd}"
        else:
            assert await bench.load(store, epoch) == expected | rows(one_of_each(40_000)), f"not kept: {odd}"


@promise
async def ten_thousand_records_commit_at_once(bench: Bench) -> None:
    store, epoch = await bench.reign()
    run, one = filled(Run, tenant="t", id="r", solo=None), filled(Task, tenant="t", run="r", idx=0)
    fields = {field.name: getattr(one, field.name) for field in fields_of(Task)}
    tasks = [Task(**{**fields, "idx": idx}) for idx in range(CHANGES_PER_COMMIT_MAX)]
    expected = rows([run, *tasks])
    await store.commit(epoch, batch([run, *tasks]))
    assert await bench.load(store, epoch) == expected
    await store.commit(epoch, batch(archives=[("t", "r")]))
    assert await bench.disk(store, epoch) == Disk({}, Counter([ended_image(Ended(run, tasks, []))]), [])


@promise
async def changing_a_record_after_its_commit_changes_nothing_stored(bench: Bench) -> None:
    store, epoch = await bench.reign()
    written = batch(one_of_each(), stories=story_of())
    await store.commit(epoch, written)
    expected = Disk(rows(one_of_each()), Counter(), [*map(image, story_of())])
    for record in written.puts:
        scribble(record)
    written.puts.clear()
    written.stories.clear()
    assert await bench.disk(store, epoch) == expected


@promise
async def changing_a_record_after_its_commit_changes_no_history(bench: Bench) -> None:
    store, epoch = await bench.reign()
    (ended, twin), (single, its_twin) = (a_run(), a_run()), (filled(Run, id="one"), filled(Run, id="one"))
    assert its_twin.solo is not None, "a filled run has its task inside"
    records = [*records_of(ended), single]
    await store.commit(epoch, batch(records))
    await store.commit(epoch, batch(archives=[("t", "r"), (single.tenant, "one")]))
    for record in records:
        scribble(record)
    history = Counter([ended_image(twin), ended_image(Ended(its_twin, [its_twin.solo], []))])
    assert await bench.disk(store, epoch) == Disk({}, history, [])


@promise
async def changing_what_load_gave_changes_nothing_stored(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.commit(epoch, batch(one_of_each()))
    async with unchanged(bench, store, epoch):
        for record in [record async for record in store.load(epoch)]:
            scribble(record)


@promise
async def tenants_never_mix(bench: Bench) -> None:
    store, epoch = await bench.reign()
    first = [named(record, lambda field: "a" if field == "tenant" else 1) for record in one_of_each()]
    second = [named(record, lambda field: "b" if field == "tenant" else 1) for record in one_of_each(start=40_000)]
    first, second = [_with_text_keys(record) for record in first], [_with_text_keys(record) for record in second]
    await store.commit(epoch, batch(first + second))
    assert await bench.load(store, epoch) == rows(first + second)
    await store.commit(epoch, batch(drops=[key_of(record) for record in first]))
    assert await bench.load(store, epoch) == rows(second)


def _with_text_keys(record: Record) -> Record:
    """The same, with the 1 of its key as text where the field is text."""
    texts = [field.name for field in fields_of(type(record)) if isinstance(getattr(filled(type(record)), field.name), str)]
    return named(record, lambda name: str(getattr(record, name)) if name in texts else getattr(record, name))
