"""Reading logs: piece by piece, across interruptions, to the very end, and never for ever."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from rota.api.logs import read_log
from rota.client import logs
from rota.client.logs import Over, how_it_stands, is_all, stream_log
from rota.core.errors import Refused
from rota.core.questions import TaskView
from rota.core.states import PHASES, TaskState
from rota.stores.blobs import ObjectBlobs, open_blobs
from rota.wire.requests import LogPiece, ReadLog
from tests.refusals import refused

LOG = ReadLog(tenant="acme", run="r", task="t")
NOW = 1_000_000
PATIENCE_S = 20


def view(state: str, attempt: int = 1, fence: int = 1, ended_at: int = 0) -> TaskView:
    return TaskView(
        run="r",
        idx=0,
        id="t",
        kind="python",
        state=TaskState(state),
        phase=PHASES[TaskState(state)],
        attempt=attempt,
        interruptions=0,
        worker="",
        fence=fence,
        eligible_at=0,
        assigned_at=0,
        started_at=0,
        ended_at=ended_at,
        due_at=0,
        failure=None,
        error="",
        result=None,
    )


class Bench:
    """Blobs with logs in them, and a task that is looked at."""

    def __init__(self) -> None:
        self.blobs: ObjectBlobs = open_blobs("memory:///")
        self.view: TaskView | None = view("running")
        self.now = NOW
        self.looks = 0
        self.on_look: Callable[[int], Awaitable[None]] | None = None
        self.requests: list[ReadLog] = []

    async def ship(self, attempt: str, *chunks: bytes, ended: bool = True) -> None:
        for number, chunk in enumerate(chunks):
            end = "-end" if ended and number == len(chunks) - 1 else ""
            await self.blobs.put(f"acme/r/t/{attempt}/log/{number:06d}{end}", chunk)

    async def look(self) -> TaskView | None:
        self.looks += 1
        if self.on_look is not None:
            await self.on_look(self.looks)
        return self.view

    def clock(self) -> int:
        # Time passes only by looking.
        self.now += 10
        return self.now

    async def read(self, request: ReadLog) -> LogPiece:
        self.requests.append(request)
        return await read_log(self.blobs, request)

    async def all(self, attempt: int = 0, *, follow: bool = False) -> bytes:
        log = replace(LOG, attempt=attempt)
        return b"".join([piece async for piece in stream_log(self.read, log, self.look, self.clock, follow=follow)])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LOOK_S_MIN", 0)


def played(test: Callable[[Bench], Awaitable[None]]) -> Callable[[], None]:
    async def play() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await test(Bench())

    def run() -> None:
        asyncio.run(play())

    run.__name__ = test.__name__  # pyright: ignore[reportAttributeAccessIssue] - a function
    return run


@played
async def test_a_log_is_read_in_pieces_of_any_size(bench: Bench) -> None:
    await bench.ship("1-7", b"first\n", b"second\n", b"")
    for bytes_max in (1, 4, 6, 100):
        read, cursor, is_complete = b"", "", False
        while not is_complete:
            piece = await read_log(bench.blobs, replace(LOG, cursor=cursor), bytes_max)
            assert len(piece.content) <= bytes_max
            read, cursor, is_complete = read + piece.content, piece.cursor, piece.is_complete
        assert read == b"first\nsecond\n"
        assert not (await read_log(bench.blobs, replace(LOG, cursor=cursor))).content


@played
async def test_a_log_is_read_as_it_grows(bench: Bench) -> None:
    assert await read_log(bench.blobs, LOG) == LogPiece(b"", "")
    await bench.ship("1-7", b"one ", ended=False)
    piece = await read_log(bench.blobs, LOG)
    assert (piece.content, piece.is_complete) == (b"one ", False)
    await bench.ship("1-7", b"one ", b"two ", ended=False)
    piece = await read_log(bench.blobs, replace(LOG, cursor=piece.cursor))
    assert (piece.content, piece.is_complete) == (b"two ", False)
    piece = await read_log(bench.blobs, replace(LOG, cursor=piece.cursor))
    assert (piece.content, piece.is_complete) == (b"", False)
    await bench.blobs.put("acme/r/t/1-7/log/000002-end", b"")
    assert (await read_log(bench.blobs, replace(LOG, cursor=piece.cursor))).is_complete


@played
async def test_an_attempt_that_was_interrupted_goes_on_under_its_next_fence(bench: Bench) -> None:
    await bench.ship("1-9", b"began", ended=False)
    piece = await read_log(bench.blobs, LOG)
    await bench.ship("1-10", b"began again")
    piece = await read_log(bench.blobs, replace(LOG, cursor=piece.cursor))
    assert (piece.content, piece.is_complete) == (b"began again", True)
    assert (await read_log(bench.blobs, replace(LOG, cursor=piece.cursor))).content == b""


@played
async def test_the_newest_attempt_that_printed_is_read_unless_another_is_named(bench: Bench) -> None:
    await bench.ship("2-3", b"the second")
    await bench.ship("10-5", b"the tenth")
    await bench.blobs.put("acme/r/t/11-6/result", b"large")
    assert (await read_log(bench.blobs, LOG)).content == b"the tenth"
    assert (await read_log(bench.blobs, replace(LOG, attempt=2))).content == b"the second"
    assert (await read_log(bench.blobs, replace(LOG, attempt=3))).content == b""


@pytest.mark.parametrize("cursor", ["x", "1-2", "../../etc.1.2", "1-2.-1.0", "1-2.0.0.0", "1-2.0." + "9" * 40])
def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    with refused("field.value", repr(cursor), path="cursor"):
        asyncio.run(read_log(open_blobs("memory:///"), replace(LOG, cursor=cursor)))


# Following.


@played
async def test_what_is_shipped_after_the_end_is_still_seen(bench: Bench) -> None:
    await bench.ship("1-1", b"one ", ended=False)

    async def on_look(count: int) -> None:
        if count == 3:
            bench.view = view("success", ended_at=bench.now)
        if count == 6:
            await bench.ship("1-1", b"one ", b"two")

    bench.on_look = on_look
    assert await bench.all(follow=True) == b"one two"


@played
async def test_reading_what_has_just_ended_waits_for_its_end_too(bench: Bench) -> None:
    bench.view = view("success", ended_at=NOW)

    async def on_look(count: int) -> None:
        if count == 4:
            await bench.ship("1-1", b"hello")

    bench.on_look = on_look
    assert await bench.all() == b"hello"


@played
async def test_reading_what_still_runs_waits_for_nothing(bench: Bench) -> None:
    await bench.ship("1-1", b"one ", ended=False)
    assert await bench.all() == b"one "
    assert bench.looks == 1


@played
async def test_a_log_whose_worker_died_is_given_up(bench: Bench) -> None:
    await bench.ship("1-1", b"last words", ended=False)
    bench.view = view("failed", ended_at=NOW)
    assert await bench.all(follow=True) == b"last words"
    assert bench.now - NOW >= logs.LAST_CHUNK_MS
    bench.looks = 0
    assert await bench.all(follow=True) == b"last words"
    assert bench.looks <= 2, "it ended long ago: nothing is waited for"


@played
async def test_an_attempt_that_printed_nothing_is_not_waited_for_long(bench: Bench) -> None:
    bench.view = view("success", ended_at=NOW)
    assert await bench.all(follow=True) == b""
    assert logs.FIRST_CHUNK_MS <= bench.now - NOW < logs.LAST_CHUNK_MS


@played
async def test_following_begins_with_the_attempt_that_is_under_way_and_ends_with_it(bench: Bench) -> None:
    await bench.ship("1-1", b"the first")
    bench.view = view("up_for_retry", fence=1)

    async def on_look(count: int) -> None:
        if count == 3:
            bench.view = view("running", 2, 2)
            await bench.ship("2-2", b"the second")
        if count == 5:
            bench.view = view("up_for_retry", 2, 2)

    bench.on_look = on_look
    assert await bench.all(follow=True) == b"the second"


@played
async def test_the_end_of_an_interrupted_attempt_is_that_of_its_last_fence(bench: Bench) -> None:
    await bench.ship("1-1", b"killed half-way ")

    async def on_look(count: int) -> None:
        if count == 3:
            bench.view = view("success", fence=2, ended_at=bench.now)
        if count == 6:
            await bench.ship("1-2", b"done")

    bench.on_look = on_look
    assert await bench.all(follow=True) == b"killed half-way done"


@pytest.mark.parametrize("printed", [True, False])
def test_an_older_log_is_not_taken_for_the_newest_which_is_still_on_its_way(printed: bool) -> None:
    @played
    async def play(bench: Bench) -> None:
        await bench.ship("1-1", b"the first")
        bench.view = view("success", 2, fence=2, ended_at=NOW)

        async def on_look(count: int) -> None:
            if count == 4 and printed:
                await bench.ship("2-2", b"the second")

        bench.on_look = on_look
        assert await bench.all() == (b"the second" if printed else b"the first")

    play()


@pytest.mark.parametrize(
    ("seen", "wanted", "over"),
    [
        (None, 1, Over(logs.LONG_AGO_MS)),
        (view("running"), 1, None),
        (view("running"), 0, None),
        (view("assigned", 2), 1, Over(0)),
        (view("success", 1, 5, NOW - 70), 1, Over(70, 5)),
        (view("success", 1, 5, NOW - 70), 9, Over(logs.LONG_AGO_MS)),
        (view("cancelled", 0, 0, NOW), 0, Over(logs.LONG_AGO_MS)),
        (view("up_for_retry", 1, 5), 1, Over(0, 5)),
        (view("up_for_retry", 1, 5), 2, None),
        (view("queued", 0, 0), 1, None),
    ],
)
def test_whether_an_attempt_has_ended_is_read_from_its_task(
    seen: TaskView | None, wanted: int, over: Over | None
) -> None:
    assert how_it_stands(seen, wanted, NOW) == over


def test_the_end_of_a_log_is_its_mark_or_the_end_of_patience() -> None:
    marked, unmarked = LogPiece(b"", "1-5.0.9", 5, is_complete=True), LogPiece(b"", "1-5.0.9", 5)
    assert is_all(marked, Over(0, 5))
    assert not is_all(unmarked, Over(logs.LAST_CHUNK_MS - 1, 5))
    assert is_all(unmarked, Over(logs.LAST_CHUNK_MS, 5))
    assert not is_all(marked, Over(logs.FIRST_CHUNK_MS - 1, 6))
    assert is_all(marked, Over(logs.FIRST_CHUNK_MS, 6))


@pytest.mark.parametrize("hours_off", [-5, 5])
def test_a_reader_whose_clock_is_hours_off_reads_to_the_end(hours_off: int):
    async def play(bench: Bench) -> None:
        bench.now += hours_off * 3_600_000
        await bench.ship("1-1", b"one ", ended=False)

        async def on_look(number: int) -> None:
            if number == 3:
                # It has ended, and its last words are still on their way.
                bench.view = view("success", ended_at=NOW)
            if number == 9:
                await bench.ship("1-1", b"one ", b"two")

        bench.on_look = on_look
        assert await bench.all(follow=True) == b"one two"

    played(play)()


@played
async def test_the_log_of_another_lease_is_looked_for_only_when_there_may_be_one(bench: Bench) -> None:
    await bench.ship("1-1", b"one ", ended=False)

    async def on_look(count: int) -> None:
        if count == 6:
            bench.view = view("running", fence=2)
        if count == 9:
            await bench.ship("1-2", b"two", ended=False)
        if count == 14:
            await bench.ship("1-2", b"two", b"")
            bench.view = view("success", fence=2, ended_at=bench.now)

    bench.on_look = on_look
    assert await bench.all(follow=True) == b"one two"
    of = {
        attempt: [each.seeks for each in bench.requests if each.cursor.startswith(attempt)]
        for attempt in ("1-1", "1-2")
    }
    # Right after its first words, not while it runs, and again from when there is another lease, or an end.
    assert of["1-1"] == [True, False, False, False, True, True, True, True]
    assert of["1-2"] == [True, False, False, False, False, True]


@played
async def test_a_piece_that_breaks_off_is_read_alone_unless_more_is_sought(bench: Bench) -> None:
    await bench.ship("1-9", b"began", ended=False)
    piece = await read_log(bench.blobs, LOG)
    await bench.ship("1-10", b"began again")
    alone = replace(LOG, cursor=piece.cursor, seeks=False)
    assert (await read_log(bench.blobs, alone)).content == b""
    await bench.ship("1-9", b"began", b"")
    assert (await read_log(bench.blobs, alone)).content == b"began again", "this one is complete"


def test_a_log_that_says_nothing_is_looked_at_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def wait(delay_s: float) -> None:
        waits.append(delay_s)

    monkeypatch.setattr(logs, "LOOK_S_MIN", 0.1)
    monkeypatch.setattr(logs.asyncio, "sleep", wait)

    async def play() -> None:
        bench = Bench()
        await bench.ship("1-1", b"one ", ended=False)

        async def on_look(count: int) -> None:
            if count == 11:
                await bench.ship("1-1", b"one ", b"two", ended=False)
            if count == 14:
                bench.view = view("success", ended_at=bench.now)
            if count == 15:
                await bench.ship("1-1", b"one ", b"two", b"")

        bench.on_look = on_look
        assert await bench.all(follow=True) == b"one two"

    asyncio.run(play())
    # The first look is for what there is; something came with the second, with the eleventh, and then the end.
    grows = [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0]
    assert waits == [*grows, 0.1, 0.2, 0.4, 0.1]


@pytest.mark.parametrize(
    ("tail_bytes", "content"),
    [(0, b"onetwothree"), (1, b"e"), (5, b"three"), (7, b"wothree"), (11, b"onetwothree"), (100, b"onetwothree")],
)
def test_a_log_is_read_from_so_much_before_its_end(tail_bytes: int, content: bytes):
    async def inside() -> None:
        bench = Bench()
        await bench.ship("1-1", b"one", b"two", b"three")
        log = replace(LOG, tail_bytes=tail_bytes)
        piece = await read_log(bench.blobs, log)
        assert (piece.content, piece.is_complete) == (content, True)
        assert (await read_log(bench.blobs, replace(log, cursor=piece.cursor))).content == b""
        with pytest.raises(Refused, match="tail_bytes"):
            await read_log(bench.blobs, replace(LOG, tail_bytes=-1))

    asyncio.run(inside())
