"""Segments of history: written while others get their turn, looked through without being read, and held by the byte."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from rota.core.records import Run, Task
from rota.core.states import RunState
from rota.ports import Blobs
from rota.stores.blobs import open_blobs
from rota.stores.etcd import segments as module
from rota.stores.etcd.rows import write_row
from rota.stores.etcd.segments import Parts, Past, RunLine, Segment, Segments, merge_segments, write_segment
from tests.integration.etcd_stage import Fate, FatedBlobs

pytestmark = pytest.mark.full


def pasts(numbers: range) -> list[Past]:
    """Runs that ended at these instants; every other one has a result."""
    made: list[Past] = []
    for number in numbers:
        run = Run("t", f"run-{number}", "digest", "name", created_at=number, ended_at=number)
        task = Task("t", run.id, 0, fence=number, done_fence=number)
        task.result = b"1" if number % 2 else None
        line = RunLine(number, "t", run.id, number, number, run.name, run.kind, RunState.SUCCESS)
        made.append(Past(line, write_row(run)[1], Parts([write_row(task)[1]], [], [])))
    return made


async def stored(blobs: Blobs, count: int, size: int) -> list[Segment]:
    return [
        await write_segment(blobs, 1, number, (pasts(range(number * size + 1, (number + 1) * size + 1)), [], []))
        for number in range(count)
    ]


async def longest_wait(work: Sequence[asyncio.Task[Segment | None]]) -> float:
    """The longest that others waited for their turn."""
    longest, before = 0.0, time.perf_counter()
    while not all(task.done() for task in work):
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    return longest


def test_others_get_their_turn_while_segments_are_merged() -> None:
    async def run() -> None:
        blobs = open_blobs("memory:")
        reader = Segments(blobs)
        segments = await stored(blobs, 4, 10_000)
        indexed = [(segment, await reader.index(segment)) for segment in segments]
        began = time.perf_counter()
        merging = asyncio.create_task(merge_segments(blobs, 1, 100, indexed, ()))
        longest = await longest_wait([merging])
        took = time.perf_counter() - began
        assert longest < took / 2, f"{longest:.3f} s of {took:.3f} s were in one piece"
        merged = await merging
        assert merged is not None
        assert (merged.first_end, merged.last_end, merged.last_run) == (1, 40_000, 40_000)
        lines = (await reader.index(merged)).runs
        assert [line.number for line in lines] == list(range(1, 40_001))
        assert (await reader.parts(merged, lines[17])).tasks == pasts(range(18, 19))[0].parts.tasks

    asyncio.run(run())


def test_whose_results_a_run_has_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        blobs = open_blobs("memory:")
        reader = Segments(blobs)
        segments = await stored(blobs, 2, 4)
        before = [line.fences for segment in segments for line in (await reader.index(segment)).runs]
        assert before == [(1,), (), (3,), (), (5,), (), (7,), ()]

        def again(run: bytes, tasks: Sequence[bytes]) -> None:
            raise AssertionError("it is in the index")

        monkeypatch.setattr(module, "result_fences", again)
        merged = await merge_segments(blobs, 1, 9, [(each, await reader.index(each)) for each in segments], ())
        assert merged is not None
        assert [line.fences for line in (await reader.index(merged)).runs] == before

    asyncio.run(run())


def test_a_run_that_is_nowhere_is_looked_for_in_what_is_held_and_nothing_is_read_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        fate = Fate(1_000)
        blobs = open_blobs("memory:")
        segments = await stored(blobs, 5, 100)
        reader = Segments(FatedBlobs(blobs, fate))
        for segment in segments:
            await reader.index(segment)
        assert fate.done == len(segments)
        assert reader.held_bytes == sum(segment.index.size for segment in segments)

        def read(content: bytes) -> None:
            raise AssertionError("the text is not in there")

        monkeypatch.setattr(module, "_lines_of", read)
        for segment in segments:
            assert (await reader.index(segment, "t", "run-of-nobody")).runs == []
            assert (await reader.index(segment, "\ud800")).runs == []
        monkeypatch.undo()
        found = [line.id for segment in segments for line in (await reader.index(segment, "t", "run-250")).runs]
        assert found == ["run-250"], "no other line is read"
        assert fate.done == len(segments), "nothing was read again"

    asyncio.run(run())


def test_no_more_of_the_indexes_is_held_than_was_allowed() -> None:
    async def run() -> None:
        blobs = open_blobs("memory:")
        segments = await stored(blobs, 4, 50)
        size = max(segment.index.size for segment in segments)
        reader = Segments(blobs, bytes_max=2 * size)
        for segment in (*segments, *segments):
            assert len((await reader.index(segment)).runs) == 50
            assert reader.held_bytes <= 2 * size
        small = Segments(blobs, bytes_max=size // 2)
        assert len((await small.index(segments[0])).runs) == 50
        assert small.held_bytes == 0, "one that is larger than all of it is not kept"

    asyncio.run(run())


def test_what_has_left_history_is_not_in_a_segment_that_is_written_anew() -> None:
    async def run() -> None:
        blobs = open_blobs("memory:")
        reader = Segments(blobs)
        indexed = [(each, await reader.index(each)) for each in await stored(blobs, 2, 3)]
        merged = await merge_segments(blobs, 1, 9, indexed, {1: None, 4: None, 5: None})
        assert merged is not None
        assert [line.number for line in (await reader.index(merged)).runs] == [2, 3, 6]
        assert (merged.first_end, merged.last_end, merged.last_run) == (2, 6, 6)
        assert await merge_segments(blobs, 1, 10, indexed, range(1, 7)) is None, "nothing is left of it"

    asyncio.run(run())
