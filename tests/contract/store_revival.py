"""What a store promises about runs that leave history, because somebody wants to change something about them."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from rota.core.bounds import ROWS_PER_TIDY
from rota.core.history import Ended, HistoryQuery
from rota.core.ids import BlobRef, Fence, Millis
from rota.core.model import Graph, TaskSpec
from rota.core.records import Batch, GraphRecord, Growth, Record, Run, Story, Task, key_of
from rota.ports import Fenced, Store
from tests.contract.bench import Bench, Promises, batch, disk_of
from tests.contract.records import filled, with_fields
from tests.contract.samples import a_one_task_run, a_run, one_of_each, rows_of, story_of
from tests.contract.store_history import FOREVER, archive, tidy, with_end

promise = Promises()


def revived(*runs: Ended) -> list[tuple[str, str, Millis]]:
    """What a batch says that revives these."""
    return [(ended.run.tenant, ended.run.id, ended.run.created_at) for ended in runs]


def told(*runs: Ended, parts: Iterable[int] = (0, 1, 2)) -> list[Story]:
    """The stories of runs."""
    return [story for ended in runs for story in story_of(ended.run, parts)]


def a_large_run(**fields: object) -> Ended:
    """A run with more rows than a slice of housekeeping has."""
    run = filled(Run, **{"tenant": "t", "id": "large", "solo": None, **fields})
    growths = (filled(Growth, 500, tenant="t", run="large", number=0),)
    return Ended(run, tuple(Task("t", "large", idx, fence=idx) for idx in range(2 * ROWS_PER_TIDY + 1)), growths)


# Out of history.


@promise
async def a_revived_run_is_live_exactly_as_it_was_archived(bench: Bench) -> None:
    store, epoch = await bench.reign()
    many, one = a_run(), a_one_task_run(run="one", start=20_000)
    rest = [
        a_run(run="r2", start=40_000),
        a_one_task_run(tenant="u", run="one", start=60_000),
        a_run("u", start=80_000),
    ]
    live = one_of_each(start=100_000)
    await archive(store, epoch, many, one, *rest)
    await store.commit(epoch, batch(live))
    await tidy(store, epoch)
    await store.commit(epoch, batch(revives=revived(many)))
    await bench.expect(store, epoch, disk_of([*live, *rows_of(many)], [one, *rest], told(many, one, *rest)))
    await store.commit(epoch, batch(revives=revived(one)))
    await bench.expect(store, epoch, disk_of([*live, *rows_of(many, one)], rest, told(many, one, *rest)))
    for ended in (many, one):
        assert await store.ended("t", ended.run.id) is None
        assert await store.ended("t", ended.run.id, ended.run.created_at) is None
    assert [run.id for run in await bench.pages(store, HistoryQuery(tenant="t", limit=1))] == ["r2"]


@promise
async def what_a_batch_puts_comes_on_top_of_what_it_revives(bench: Bench) -> None:
    store, epoch = await bench.reign()
    ended = a_run()
    await archive(store, epoch, ended)
    run = with_fields(filled(Run, 40_000), tenant="t", id="r", created_at=ended.run.created_at, solo=None)
    changed, new = [filled(Task, 40_000 + idx, tenant="t", run="r", idx=idx) for idx in (2, 3)]
    dropped, more = ended.tasks[0], story_of(ended.run, [3])
    await store.commit(epoch, batch([new, changed, run], [key_of(dropped)], (), more, (), revived(ended)))
    rows = [run, changed, new, *ended.tasks[2:], *ended.growths]
    await bench.expect(store, epoch, disk_of(rows, stories=told(ended, parts=range(4))))


@promise
async def a_run_of_history_that_is_archived_again_is_there_once_with_one_story(bench: Bench) -> None:
    store, epoch = await bench.reign()
    runs = [a_run(), a_one_task_run(run="one", start=20_000)]
    await archive(store, epoch, *runs)
    for turn in range(1, 5):
        # The stories of a one-task run go on where there is no room inside it.
        parts = [3 * turn, 3 * turn + 1, 3 * turn + 2]
        await store.commit(epoch, batch(revives=revived(*runs)))
        runs = [with_end(ended, ended.run.ended_at + 1_000) for ended in runs]
        await store.commit(epoch, batch([ended.run for ended in runs], stories=told(*runs, parts=parts)))
        await bench.expect(store, epoch, disk_of(rows_of(*runs), stories=told(*runs, parts=range(parts[-1] + 1))))
        await store.commit(epoch, batch(archives=[("t", "r"), ("t", "one")]))
        await bench.expect(store, epoch, disk_of(history=runs, stories=told(*runs, parts=range(parts[-1] + 1))))
        await tidy(store, epoch)
        await bench.expect(store, epoch, disk_of(history=runs, stories=told(*runs, parts=range(parts[-1] + 1))))


@promise
async def a_run_revived_and_archived_by_one_batch_is_archived_as_put(bench: Bench) -> None:
    store, epoch = await bench.reign()
    ended = a_run()
    await archive(store, epoch, ended)
    await tidy(store, epoch)
    later = with_end(ended, 77_000)
    both = batch([later.run], (), [("t", "r")], story_of(later.run, [3]), (), revived(ended))
    await store.commit(epoch, both)
    await bench.expect(store, epoch, disk_of(history=[later], stories=told(later, parts=range(4))))


# What is not there.


@promise
async def reviving_what_is_not_in_history_changes_nothing(bench: Bench) -> None:
    store, epoch = await bench.reign()
    ended, live = a_run(), a_run(run="live", start=20_000)
    await archive(store, epoch, ended)
    await store.commit(epoch, batch(rows_of(live), stories=told(live)))
    at = ended.run.created_at
    unknown = [("t", "r", at + 1), ("t", "r", 0), ("u", "r", at), ("t", "R", at), ("r", "t", at), *revived(live)]
    async with bench.unchanged(store, epoch):
        await store.commit(epoch, batch(revives=unknown))
    await store.commit(epoch, batch(revives=[*revived(ended), *revived(ended), *unknown]))
    async with bench.unchanged(store, epoch) as disk:
        await store.commit(epoch, batch(revives=revived(ended)))
    assert disk == disk_of(rows_of(live, ended), stories=told(live, ended))
    other = a_run(run="other", start=40_000)
    await store.commit(epoch, batch(rows_of(other), stories=told(other), revives=revived(other)))
    await bench.expect(store, epoch, disk_of(rows_of(live, ended, other), stories=told(live, ended, other)))


@promise
async def a_run_of_history_is_not_revived_over_a_later_one_of_its_id(bench: Bench) -> None:
    store, epoch = await bench.reign()
    first, second = a_run(), a_one_task_run(start=40_000)
    await archive(store, epoch, first)
    await store.commit(epoch, batch(rows_of(second), stories=told(second)))
    for _ in range(2):
        async with bench.unchanged(store, epoch) as disk:
            await store.commit(epoch, batch(revives=revived(first)))
        assert disk == disk_of(rows_of(second), [first], told(first, second))
        await tidy(store, epoch)
    changed = with_fields(second.run, reason="changed")
    await store.commit(epoch, batch([changed], revives=revived(first)))
    await bench.expect(store, epoch, disk_of([changed], [first], told(first, second)))
    await store.commit(epoch, batch(archives=[("t", "r")]))
    await store.commit(epoch, batch(revives=revived(first)))
    ended = Ended(changed, (changed.solo,) if changed.solo else (), ())
    await bench.expect(store, epoch, disk_of(rows_of(first), [ended], told(first, ended)))
    await store.commit(epoch, batch(archives=[("t", "r")]))
    for one, other in ((first, ended), (ended, first)):
        await store.commit(epoch, batch(revives=revived(one, other)))
        await bench.expect(store, epoch, disk_of(rows_of(one), [other], told(first, ended)))
        await store.commit(epoch, batch(archives=[("t", "r")]))


# Interrupted, overtaken, moved and removed meanwhile.


@promise
async def a_revival_outlives_its_process(bench: Bench) -> None:
    store, epoch = await bench.reign()
    runs = [a_run(), a_one_task_run(run="one", start=20_000)]
    await archive(store, epoch, *runs)
    await tidy(store, epoch)
    for again in (runs[0], runs[1]):
        await store.commit(epoch, batch(revives=revived(again)))
        store = await bench.reopen(store, epoch)
        epoch = await bench.elect_after_death(store)
        rest = [run for run in runs if run is not again]
        await bench.expect(store, epoch, disk_of(rows_of(again), rest, told(*runs)))
        await tidy(store, epoch)
        await bench.expect(store, epoch, disk_of(rows_of(again), rest, told(*runs)))
        await store.commit(epoch, batch(archives=[("t", again.run.id)]))
        await tidy(store, epoch)
        store = await bench.reopen(store, epoch)
        epoch = await bench.elect_after_death(store)
        await bench.expect(store, epoch, disk_of(history=runs, stories=told(*runs)))


@promise
async def a_revival_that_is_fenced_or_refused_changes_nothing(bench: Bench) -> None:
    store, epoch = await bench.reign()
    ended = a_run()
    await archive(store, epoch, ended)
    async with bench.unchanged(store, epoch):
        broken = batch([ended.run], revives=revived(ended))
        broken.puts.append("no record")  # pyright: ignore[reportArgumentType] - what the promise is about
        with pytest.raises(Exception, match=r"."):
            await store.commit(epoch, broken)
    rival, later = await bench.overtake(store, epoch)
    async with bench.unchanged(rival, later):
        for late in (batch(revives=revived(ended)), batch([ended.run], revives=revived(ended))):
            with pytest.raises(Fenced):
                await store.commit(epoch, late)
    await rival.commit(later, batch(revives=revived(ended)))
    await bench.expect(rival, later, disk_of(rows_of(ended), stories=told(ended)))


@promise
async def a_revival_that_was_overtaken_on_its_way_changes_nothing(bench: Bench) -> None:
    """As any commit that stands between its compare and its COMMIT when another is elected."""
    store, epoch = await bench.reign()
    ended = a_run()
    await archive(store, epoch, ended)
    late: Batch = batch([ended.run], revives=revived(ended), stories=story_of(ended.run, [3]))
    landed = disk_of(rows_of(ended), stories=told(ended, parts=range(4)))
    await bench.overtake_on_its_way(store, epoch, late, landed)


@promise
async def a_run_can_be_revived_however_far_it_has_been_moved(bench: Bench) -> None:
    store, epoch = await bench.reign()
    ended, before = a_large_run(), one_of_each(60_000)
    await store.commit(epoch, batch([*before, *rows_of(ended)], stories=told(ended)))
    live, past = disk_of([*before, *rows_of(ended)], stories=told(ended)), disk_of(before, [ended], told(ended))
    for slices in range(4):
        await store.commit(epoch, batch(archives=[("t", "large")]))
        for _ in range(slices):
            await store.tidy(epoch, 0, FOREVER)
        await bench.expect(store, epoch, past)
        if slices % 2:
            store = await bench.reopen(store, epoch)
            epoch = await bench.elect_after_death(store)
        await store.commit(epoch, batch(revives=revived(ended)))
        await bench.expect(store, epoch, live)
        await tidy(store, epoch)
        await bench.expect(store, epoch, live)


@promise
async def a_revived_run_is_not_too_old_however_long_ago_it_ended(bench: Bench) -> None:
    store, epoch = await bench.reign()
    runs = [with_end(a_run(), 1_000), with_end(a_one_task_run(run="one", start=20_000), 1_000)]
    other = with_end(a_run(run="other", start=40_000), 1_000)
    await archive(store, epoch, *runs, other)
    await tidy(store, epoch)
    await store.commit(epoch, batch(revives=revived(*runs)))
    await tidy(store, epoch, 5_000, 0)
    await bench.expect(store, epoch, disk_of(rows_of(*runs), stories=told(*runs)))
    runs = [with_end(ended, 9_000) for ended in runs]
    archives = [("t", "r"), ("t", "one")]
    await store.commit(epoch, batch([ended.run for ended in runs], (), archives, told(*runs, parts=[3])))
    await tidy(store, epoch, 8_999, 0)
    await bench.expect(store, epoch, disk_of(history=runs, stories=told(*runs, parts=range(4))))
    await tidy(store, epoch, 9_000, 0)
    await bench.expect(store, epoch, disk_of())
    for ended in runs:
        assert await store.stories("t", ended.run.id, ended.run.created_at) == []


@promise
async def a_run_is_revived_whole_or_not_at_all_while_it_is_being_removed(bench: Bench) -> None:
    store, epoch = await bench.reign()
    ended = a_large_run(ended_at=1_000)
    empty, whole = disk_of(), disk_of(history=[ended], stories=told(ended))
    await archive(store, epoch, ended)
    await tidy(store, epoch)
    for _ in range(10):
        await store.tidy(epoch, 2_000, 0)
        disk = await bench.disk(store, epoch)
        assert disk in (whole, empty), "half a run is shown"
        await store.commit(epoch, batch(revives=revived(ended)))
        is_there = disk == whole
        await bench.expect(store, epoch, disk_of(rows_of(ended), stories=told(ended)) if is_there else empty)
        if not is_there:
            break
        await store.commit(epoch, batch(archives=[("t", "large")]))
        await tidy(store, epoch)
    # What was begun is brought to an end, also by whoever keeps things longer.
    await tidy(store, epoch)
    again = with_end(a_run(run="large", start=40_000), 9_000)
    await archive(store, epoch, again)
    await bench.expect(store, epoch, disk_of(history=[again], stories=told(again)))


# What it is made of and refers to.


def a_definition(name: str = "g", bundle: BlobRef | None = None) -> GraphRecord:
    return GraphRecord("t", f"digest of {name}", Graph(name=name, tasks=(TaskSpec(id="only"),), bundle=bundle), 7)


def made_of(ended: Ended, graph: GraphRecord) -> Ended:
    return replace(ended, run=with_fields(ended.run, graph=graph.digest, name=graph.graph.name))


@promise
async def the_definition_of_a_revived_run_is_found_throughout(bench: Bench) -> None:
    store, epoch = await bench.reign()
    graph = a_definition()
    first = made_of(with_end(a_run(), 1_000), graph)
    second = made_of(with_end(a_run(run="second", start=40_000), 2_000), graph)
    drop = [key_of(graph)]

    async def found() -> Graph | None:
        return await store.graph("t", graph.digest)

    await store.commit(epoch, batch([graph, *rows_of(first, second)]))
    await store.commit(epoch, batch((), drop, [("t", "r"), ("t", "second")]))
    assert await found() == graph.graph
    await store.commit(epoch, batch([graph], revives=revived(first)))
    await tidy(store, epoch, 2_000, 0)
    assert await found() == graph.graph, "gone with the other run that was made of it"
    await bench.expect(store, epoch, disk_of([graph, *rows_of(first)]))
    first = with_end(first, 5_000)
    await store.commit(epoch, batch([first.run], drop, [("t", "r")]))
    for _ in range(2):
        assert await found() == graph.graph
        await tidy(store, epoch, 4_999, 0)
    await store.commit(epoch, batch([graph], revives=revived(first)))
    assert await found() == graph.graph
    gone: list[Record] = rows_of(first)
    await store.commit(epoch, batch(drops=[*drop, *[key_of(record) for record in reversed(gone)]]))
    await tidy(store, epoch, 5_000, 0)
    assert await found() is None, "kept for nobody"


@promise
async def what_a_revived_run_refers_to_is_kept(bench: Bench) -> None:
    store, epoch = await bench.reign()
    many, one = a_run(), a_one_task_run(run="one", start=20_000)

    async def kept() -> tuple[set[Fence], set[tuple[str, str]]]:
        found = await store.kept()
        return set(found.fences), set(found.runs)

    fences = {task.done_fence for ended in (many, one) for task in ended.tasks}
    runs = {("t", "r"), ("t", "one")}
    await archive(store, epoch, many, one)
    for ended in (many, one):
        await tidy(store, epoch)
        assert await kept() == (fences, runs)
        await store.commit(epoch, batch(revives=revived(ended)))
        assert await kept() == (fences, runs)
    await tidy(store, epoch)
    cleared = with_fields(many.tasks[0], result=None)
    await store.commit(epoch, batch([cleared]))
    assert await kept() == (fences - {cleared.done_fence}, runs), "nobody refers to what was cleared"
    await store.commit(epoch, batch(archives=[("t", "r"), ("t", "one")]))
    await tidy(store, epoch)
    assert await kept() == (fences - {cleared.done_fence}, runs)


@promise
async def a_bundle_is_kept_as_long_as_a_definition_that_names_it(bench: Bench) -> None:
    store, epoch = await bench.reign()
    graphs = [a_definition(name, BlobRef(f"t/.bundles/{name}.zip", 5, name)) for name in ("live", "past")]
    first = made_of(with_end(a_run(), 1_000), graphs[1])
    drop = [key_of(graphs[1])]

    async def kept() -> list[str]:
        return sorted((await store.kept()).bundles)

    both = ["t/.bundles/live.zip", "t/.bundles/past.zip"]
    await store.commit(epoch, batch([a_definition("none"), *graphs, *rows_of(first)]))
    assert await kept() == both
    await store.commit(epoch, batch((), drop, [("t", "r")]))
    for _ in range(2):
        assert await kept() == both, "of a run in history"
        await tidy(store, epoch)
    await tidy(store, epoch, 1_000, 0)
    assert await kept() == both[:1], "nobody names it any more"


@promise
async def a_reader_elsewhere_sees_what_was_revived(bench: Bench) -> None:
    """Followers read history, and keep what they have read."""
    store, epoch = await bench.reign()
    runs = [a_run(), a_run(run="other", start=40_000)]
    await archive(store, epoch, *runs)
    await tidy(store, epoch)
    reader: Store = await bench.join()

    async def seen() -> list[str]:
        return sorted(run.id for run in await bench.pages(reader, HistoryQuery(tenant="t", limit=1)))

    assert await seen() == ["other", "r"]
    await store.commit(epoch, batch(revives=revived(runs[0])))
    for _ in range(2):
        assert await seen() == ["other"]
        assert await reader.ended("t", "r") is None
        assert await reader.stories("t", "r", runs[0].run.created_at) == told(runs[0])
        await tidy(store, epoch)
    await store.commit(epoch, batch(archives=[("t", "r")]))
    assert await seen() == ["other", "r"]
    assert await reader.ended("t", "r") == runs[0]
