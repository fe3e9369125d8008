"""What a store promises about the past: pages of history, one ended run, stories, housekeeping."""

from collections.abc import Sequence

import pytest

from rota.core.bounds import HISTORY_PAGE_MAX, ROWS_PER_TIDY
from rota.core.errors import Refused
from rota.core.history import Ended, HistoryQuery, ListAudits
from rota.core.ids import Epoch, Millis
from rota.core.records import Audit, Run, Task
from rota.core.states import RunState
from rota.ports import Candidate, Fenced, Store
from tests.contract.bench import Bench, Promises, batch, disk_of
from tests.contract.records import filled, with_fields
from tests.contract.samples import a_one_task_run, a_run, one_of_each, rows_of, story_of

promise = Promises()

FOREVER = 2**62


async def archive(store: Store, epoch: Epoch, *runs: Ended) -> None:
    """These runs, put and moved to history in this order."""
    for ended in runs:
        await store.commit(epoch, batch(rows_of(ended), stories=story_of(ended.run)))
        await store.commit(epoch, batch(archives=[(ended.run.tenant, ended.run.id)]))


def ended_at(at: Millis, run: str, **fields: object) -> Ended:
    """A one-task run that ended then."""
    row = filled(Run, 100 * len(run), id=run, **{"tenant": "t", "ended_at": at, "created_at": at + 1, **fields})
    assert row.solo is not None, "a filled run has its task inside"
    return Ended(row, (row.solo,), ())


def ids(runs: Sequence[Run]) -> list[str]:
    return [run.id for run in runs]


# Pages.


@promise
async def history_is_told_page_by_page_from_the_newest_end(bench: Bench) -> None:
    store, epoch = await bench.reign()
    ends = {"a": 500, "b": 100, "c": 900, "d": 500, "e": 500, "f": 0, "g": 700, "h": 500}
    await archive(store, epoch, *[ended_at(at, run) for run, at in ends.items()])
    for limit in (1, 2, 3, len(ends), HISTORY_PAGE_MAX):
        runs = await bench.pages(store, HistoryQuery(tenant="t", limit=limit))
        assert sorted(ids(runs)) == sorted(ends), "every run is on one page and on no other"
        assert [run.ended_at for run in runs] == sorted(ends.values(), reverse=True)
    full = await store.history(HistoryQuery(tenant="t", limit=len(ends)))
    assert full.next == "", "a last page that is full is still the last"


@promise
async def a_run_that_ends_between_two_pages_moves_no_other(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await archive(store, epoch, *[ended_at(at, f"r{at}") for at in range(100, 106)])
    first = await store.history(HistoryQuery(tenant="t", limit=2))
    await archive(store, epoch, ended_at(999, "new"))
    rest = await bench.pages(store, HistoryQuery(tenant="t", limit=2, after=first.next))
    assert ids([*first.runs, *rest]) == [f"r{at}" for at in range(105, 99, -1)]


@promise
async def history_finds_what_is_asked_for_and_nothing_else(bench: Bench) -> None:
    store, epoch = await bench.reign()
    bad = {"state": RunState.FAILED}
    runs = [
        ended_at(100, "a", name="etl", kind="workflow", **bad),
        ended_at(200, "b", name="etl", kind="query", state=RunState.SUCCESS),
        ended_at(300, "c", name="etl2", kind="workflow", state=RunState.CANCELLED),
        ended_at(400, "d", name="ETL", kind="workflow", **bad),
        ended_at(400, "e", tenant="u", name="etl", kind="workflow", **bad),
    ]
    await archive(store, epoch, *runs)

    async def found(**asked: object) -> list[str]:
        return ids(await bench.pages(store, HistoryQuery(**{"tenant": "t", "limit": 1, **asked})))

    assert await found() == ["d", "c", "b", "a"]
    assert await found(tenant="u") == ["e"]
    assert await found(tenant="nobody") == []
    assert await found(name="etl") == ["b", "a"]
    assert await found(kind="workflow") == ["d", "c", "a"]
    assert await found(states=(RunState.FAILED,)) == ["d", "a"]
    assert await found(states=(RunState.CANCELLED, RunState.SUCCESS)) == ["c", "b"]
    assert await found(ended_from=200) == ["d", "c", "b"]
    assert await found(ended_to=200) == ["a"]
    assert await found(ended_from=200, ended_to=400) == ["c", "b"]
    assert await found(name="etl", kind="workflow", states=(RunState.FAILED,), ended_from=1, ended_to=101) == ["a"]


@promise
async def history_is_found_by_all_labels_that_are_asked_for(bench: Bench) -> None:
    store, epoch = await bench.reign()
    odd = 'v","w"]\\ ["ü%_'
    runs = [
        ended_at(100, "a", labels=(("target", "//x"), ("kind", "test"))),
        ended_at(200, "b", labels=(("target", "//x"),)),
        ended_at(300, "c", labels=(("n", odd),)),
        ended_at(400, "d", labels=()),
        ended_at(500, "e", labels=(("x", '["target","//x"]'),)),
    ]
    await archive(store, epoch, *runs)

    async def found(*labels: tuple[str, str]) -> list[str]:
        return ids(await bench.pages(store, HistoryQuery(tenant="t", limit=1, labels=labels)))

    assert await found() == ["e", "d", "c", "b", "a"]
    assert await found(("target", "//x")) == ["b", "a"]
    assert await found(("kind", "test"), ("target", "//x")) == ["a"]
    assert await found(("target", "//")) == []
    assert await found(("n", odd)) == ["c"]
    assert await found(("n", "v")) == []


@promise
async def a_place_that_no_page_gave_is_refused(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await archive(store, epoch, ended_at(100, "a"))
    for nonsense in ("x", "1", "a.b.c", "100.", f"100.{10**30}"):
        with pytest.raises(Refused) as refused:
            await store.history(HistoryQuery(tenant="t", after=nonsense))
        assert refused.value.path == "after"


# One run.


@promise
async def of_several_runs_with_one_id_the_newest_is_found_or_the_one_that_is_named(bench: Bench) -> None:
    store, epoch = await bench.reign()
    runs = [a_run(), a_one_task_run(start=20_000), a_run(start=40_000)]
    await archive(store, epoch, *runs)
    newest = await store.ended("t", "r")
    assert newest is not None
    assert newest.run.created_at == runs[-1].run.created_at
    for run in runs:
        found = await store.ended("t", "r", run.run.created_at)
        assert found is not None
        assert found == run
        assert await store.stories("t", "r", run.run.created_at) == story_of(run.run)


@promise
async def only_ended_runs_are_found_in_history(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.commit(epoch, batch(rows_of(a_run()), stories=story_of()))
    created_at = a_run().run.created_at
    assert await store.ended("t", "r") is None
    assert await store.ended("t", "r", created_at) is None
    assert await store.stories("t", "r", created_at) == story_of()
    await store.commit(epoch, batch(archives=[("t", "r")]))
    assert await store.ended("t", "r") == a_run()
    for tenant, run, at in (("u", "r", 0), ("t", "R", 0), ("t", "r", created_at + 1)):
        assert await store.ended(tenant, run, at) is None
        assert await store.stories(tenant, run, at or created_at) == []


@promise
async def a_run_that_is_not_live_any_more_can_be_changed_by_no_put(bench: Bench) -> None:
    """The id is free at once, also while the first run is still being moved."""
    store, epoch = await bench.reign()
    first, second = a_run(), a_run(start=40_000)
    await archive(store, epoch, first)
    await store.commit(epoch, batch(rows_of(second), stories=story_of(second.run)))
    told = [*story_of(first.run), *story_of(second.run)]
    await bench.expect(store, epoch, disk_of(rows_of(second), [first], told))
    await tidy(store, epoch)
    await bench.expect(store, epoch, disk_of(rows_of(second), [first], told))


# Housekeeping.


async def tidy(store: Store, epoch: Epoch, now: Millis = 0, keep_ms: Millis = FOREVER) -> int:
    """Slice after slice until nothing is left to do; how many rows that were."""
    rows = 0
    for _ in range(100):
        slice_rows = await store.tidy(epoch, now, keep_ms)
        rows += slice_rows
        if not slice_rows:
            return rows
    raise AssertionError("housekeeping does not come to an end")


@promise
async def nobody_can_tell_how_far_housekeeping_has_come(bench: Bench) -> None:
    """Moving is done in slices and may stop after any of them; history and the living look the same throughout."""
    store, epoch = await bench.reign()
    live = rows_of(a_run(run="live", start=20_000))
    run = filled(Run, tenant="t", id="large", solo=None)
    large = Ended(run, tuple(Task("t", "large", idx) for idx in range(2 * ROWS_PER_TIDY + 1)), a_run().growths)
    large = Ended(run, large.tasks, tuple(with_fields(growth, run="large") for growth in large.growths))
    small = [a_run(), a_one_task_run(run="one")]
    await archive(store, epoch, large, *small)
    await store.commit(epoch, batch([*live, *one_of_each(60_000)]))
    before = await bench.disk(store, epoch)
    for _ in range(10):
        rows = await store.tidy(epoch, 0, FOREVER)
        assert rows <= ROWS_PER_TIDY, "a slice that is not bounded"
        await bench.expect(store, epoch, before)
        store = await bench.reopen(store, epoch)
        epoch = await bench.elect_after_death(store)
        if not rows:
            break
    assert await store.tidy(epoch, 0, FOREVER) == 0, "tidied, and still not tidy"
    await bench.expect(store, epoch, before)


@promise
async def what_ended_long_ago_is_removed_with_all_that_is_its_own(bench: Bench) -> None:
    store, epoch = await bench.reign()
    old = [with_end(a_run(run="old"), 1_000), with_end(a_one_task_run(run="old one", start=20_000), 1_000)]
    edge, new = with_end(a_run(run="edge", start=40_000), 1_001), with_end(a_run(tenant="u", start=60_000), 5_000)
    live = with_end(a_run(run="live", start=80_000), 10)
    await archive(store, epoch, *old, edge, new)
    await store.commit(epoch, batch(rows_of(live), stories=story_of(live.run)))
    told = [story for run in (edge, new, live) for story in story_of(run.run)]
    assert await tidy(store, epoch, 3_000, 2_000) >= len(old)
    await bench.expect(store, epoch, disk_of(rows_of(live), [edge, new], told))
    for ended in old:
        assert await store.stories("t", ended.run.id, ended.run.created_at) == []
    assert await tidy(store, epoch, 3_000, 2_000) == 0
    await tidy(store, epoch, 10_000, 0)
    await bench.expect(store, epoch, disk_of(rows_of(live), stories=story_of(live.run)))


@promise
async def removing_one_run_leaves_another_with_its_id(bench: Bench) -> None:
    store, epoch = await bench.reign()
    old, new = with_end(a_run(), 1_000), with_end(a_run(start=40_000), 2_000)
    live = a_run(start=80_000)
    await archive(store, epoch, old, new)
    await store.commit(epoch, batch(rows_of(live), stories=story_of(live.run)))
    await tidy(store, epoch, 1_500, 0)
    told = [*story_of(new.run), *story_of(live.run)]
    await bench.expect(store, epoch, disk_of(rows_of(live), [new], told))


@promise
async def removal_goes_in_slices_too(bench: Bench) -> None:
    store, epoch = await bench.reign()
    runs = [ended_at(at, f"r{at}") for at in range(30)]
    run = filled(Run, tenant="t", id="large", solo=None, ended_at=5)
    large = Ended(run, tuple(Task("t", "large", idx) for idx in range(2 * ROWS_PER_TIDY)), ())
    await archive(store, epoch, *runs, large)
    for _ in range(200):
        rows = await store.tidy(epoch, 100, 0)
        store = await bench.reopen(store, epoch)
        epoch = await bench.elect_after_death(store)
        if not rows:
            break
    await bench.expect(store, epoch, disk_of())


def with_end(ended: Ended, at: Millis) -> Ended:
    """The same run, ended then."""
    return Ended(with_fields(ended.run, ended_at=at), ended.tasks, ended.growths)


# Audits.


def audits(count: int, tenant: str = "t") -> list[Audit]:
    return [filled(Audit, 100 * number, tenant=tenant, at=number) for number in range(count)]


@promise
async def who_asked_for_what_is_told_page_by_page_from_the_newest(bench: Bench) -> None:
    store, epoch = await bench.reign()
    asked = audits(7)
    for number, audit in enumerate(asked):
        await store.commit(epoch, batch(audits=[audit, *audits(1, f"u{number}")]))
    for limit in (1, 3, 7, 100):
        found: list[Audit] = []
        page = await store.audits(ListAudits(tenant="t", limit=limit))
        found += page.audits
        while page.next:
            page = await store.audits(ListAudits(tenant="t", limit=limit, before=page.next))
            found += page.audits
        assert found == asked[::-1]
    assert (await store.audits(ListAudits(tenant="nobody"))).audits == ()


@promise
async def a_commit_that_is_fenced_leaves_no_audit(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.release(epoch)
    newer = await store.elect(Candidate("other"))
    assert newer is not None
    with pytest.raises(Fenced):
        await store.commit(epoch, batch(audits=audits(1)))
    assert (await store.audits(ListAudits(tenant="t"))).audits == ()


@promise
async def audits_are_kept_as_long_as_history(bench: Bench) -> None:
    store, epoch = await bench.reign()
    asked = audits(2_500)
    await store.commit(epoch, batch(audits=asked))
    while await store.tidy(epoch, 2_489 + 1_000, 1_000):
        pass
    assert (await store.audits(ListAudits(tenant="t"))).audits == tuple(asked[2_490:][::-1])
