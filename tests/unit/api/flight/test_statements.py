"""Statements that were begun or prepared: whose they are, how long they are kept, how many there may be."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from rota.api.flight.statements import Bounds, Statements, owner_of
from rota.core.errors import Refused, Unavailable

ALICE, BOB = owner_of("alice"), owner_of("bob")


class Asked:
    """A query that only knows how it was ended; `trouble` is raised when it is."""

    schema = pa.schema([])

    def __init__(self, trouble: Exception | None = None) -> None:
        self.trouble = trouble
        self.ended: list[str] = []

    def stream(self, timeout_s: float | None = None) -> pa.RecordBatchReader:
        raise TimeoutError

    def cancel(self, reason: str = "") -> None:
        if self.trouble is not None:
            raise self.trouble
        self.ended.append(reason)


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def statements(clock: Clock) -> Statements:
    return Statements(Bounds(statements_max=4, of_one_caller_max=3, prepared_max=3, grace_s=60, kept_s=300), clock)


def begin(statements: Statements, owner: bytes = ALICE, query: Asked | None = None) -> tuple[bytes, Asked]:
    asked = query or Asked()
    handle, _ = statements.begin(owner, lambda: asked)
    return handle, asked


def test_what_others_have_begun_is_as_unknown_as_what_never_was(statements: Statements) -> None:
    handle, asked = begin(statements)
    assert statements.find(ALICE, handle).query is asked
    told: list[str] = []
    for owner, wanted in ((BOB, handle), (ALICE, b"nothing"), (BOB, b"nothing"), (ALICE, b"")):
        with pytest.raises(Refused) as caught:
            statements.find(owner, wanted)
        told.append(str(caught.value))
    assert len(dict.fromkeys(told)) == 1
    assert "run.unknown" in told[0]


def test_what_others_have_prepared_can_neither_be_run_nor_bound_nor_dropped(statements: Statements) -> None:
    handle = statements.prepare(ALICE, "select ?")
    for call in (
        lambda: statements.prepared(BOB, handle),
        lambda: statements.bind(BOB, handle, (1,)),
    ):
        with pytest.raises(Refused, match=r"run\.unknown"):
            call()
    statements.unprepare(BOB, handle)
    statements.bind(ALICE, handle, (1,))
    assert (statements.prepared(ALICE, handle).sql, statements.prepared(ALICE, handle).values) == ("select ?", (1,))
    statements.unprepare(ALICE, handle)
    statements.unprepare(ALICE, handle)
    with pytest.raises(Refused):
        statements.prepared(ALICE, handle)


def test_a_query_that_nobody_fetches_is_ended_after_the_grace(statements: Statements, clock: Clock) -> None:
    handle, asked = begin(statements)
    clock.now += 60
    statements.sweep()
    assert not asked.ended, "not yet"
    statements.find(ALICE, handle)
    clock.now += 60
    statements.sweep()
    assert not asked.ended, "it was asked for meanwhile"
    clock.now += 1
    statements.sweep()
    assert asked.ended == ["nobody fetched it"]
    with pytest.raises(Refused):
        statements.find(ALICE, handle)


def test_no_fetch_starts_while_a_query_is_ended(statements: Statements, clock: Clock) -> None:
    found: list[str] = []

    class FetchedAtItsEnd(Asked):
        def cancel(self, reason: str = "") -> None:
            try:
                statements.find(ALICE, handle)
            except Refused as refused:
                found.append(refused.code)
            super().cancel(reason)

    handle, asked = begin(statements, query=FetchedAtItsEnd())
    clock.now += 61
    statements.sweep()
    assert (asked.ended, found) == (["nobody fetched it"], ["run.unknown"])


def test_a_query_that_somebody_waits_for_is_left_alone_for_as_long(statements: Statements, clock: Clock) -> None:
    handle, asked = begin(statements)
    begun = statements.find(ALICE, handle)
    with statements.reading(begun):
        clock.now += 10_000
        statements.sweep()
        statements.give_up(begun, "another one has gone")
        assert not asked.ended
    clock.now += 60
    statements.sweep()
    assert not asked.ended, "the grace begins when the last one has gone"
    clock.now += 1
    statements.sweep()
    assert asked.ended


def test_an_answer_can_be_fetched_again_for_a_while_and_is_then_forgotten(statements: Statements, clock: Clock) -> None:
    handle, asked = begin(statements)
    begun = statements.find(ALICE, handle)
    with statements.reading(begun):
        begun.is_over = True
    clock.now += 300
    statements.sweep()
    assert statements.find(ALICE, handle) is begun
    clock.now += 301
    statements.sweep()
    with pytest.raises(Refused):
        statements.find(ALICE, handle)
    assert not asked.ended, "it has ended by itself"


def test_a_caller_who_goes_ends_its_query_once(statements: Statements) -> None:
    handle, asked = begin(statements)
    begun = statements.find(ALICE, handle)
    statements.give_up(begun, "gone")
    assert asked.ended == ["gone"]
    begun.is_over = True
    statements.give_up(begun, "again")
    assert asked.ended == ["gone"]


def test_what_has_ended_by_itself_is_forgotten_like_what_is_ended(statements: Statements, clock: Clock) -> None:
    handle, _ = begin(statements, query=Asked(Refused("run.ended", "it is over")))
    clock.now += 61
    statements.sweep()
    with pytest.raises(Refused):
        statements.find(ALICE, handle)


def test_what_cannot_be_ended_now_is_ended_later(statements: Statements, clock: Clock) -> None:
    _, asked = begin(statements, query=Asked(Unavailable("leader.none", "nobody is there")))
    clock.now += 61
    statements.sweep()
    asked.trouble = None
    statements.sweep()
    assert asked.ended == ["nobody fetched it"]


def test_too_many_at_once_are_turned_away_and_one_caller_cannot_take_all(statements: Statements) -> None:
    handles = [begin(statements)[0] for _ in range(3)]
    with pytest.raises(Unavailable, match=r"service\.busy: 3 "):
        begin(statements)
    begin(statements, BOB)
    with pytest.raises(Unavailable, match=r"service\.busy: 4 "):
        begin(statements, BOB)
    statements.find(ALICE, handles[0]).is_over = True
    begin(statements)


def test_those_that_are_being_begun_count_too(statements: Statements) -> None:
    inside, go_on = threading.Semaphore(0), threading.Event()

    def slowly() -> Asked:
        inside.release()
        assert go_on.wait(30)
        return Asked()

    with ThreadPoolExecutor(3) as threads:
        begun = [threads.submit(statements.begin, ALICE, slowly) for _ in range(3)]
        for _ in begun:
            assert inside.acquire(timeout=30)
        with pytest.raises(Unavailable):
            begin(statements)
        go_on.set()
        assert len({each.result(30)[0] for each in begun}) == 3


def test_a_statement_that_is_refused_leaves_no_trace(statements: Statements) -> None:
    def refuse() -> Asked:
        raise Refused("query.syntax", "no")

    for _ in range(10):
        with pytest.raises(Refused):
            statements.begin(ALICE, refuse)
    begin(statements)


def test_old_answers_make_room_before_their_time(statements: Statements) -> None:
    handles: list[bytes] = []
    for _ in range(20):
        handles.append(begin(statements)[0])
        statements.find(ALICE, handles[-1]).is_over = True
    statements.find(ALICE, handles[-1])
    with pytest.raises(Refused):
        statements.find(ALICE, handles[0])


def test_the_prepared_statement_that_was_used_least_recently_makes_room(statements: Statements) -> None:
    first, second, third = (statements.prepare(ALICE, f"select {number}") for number in range(3))
    statements.prepared(ALICE, first)
    statements.prepare(BOB, "select 3")
    assert statements.prepared(ALICE, first)
    assert statements.prepared(ALICE, third)
    with pytest.raises(Refused, match=r"Prepare it again\."):
        statements.prepared(ALICE, second)


def test_closing_ends_what_goes_on_and_what_comes_late(statements: Statements) -> None:
    _, asked = begin(statements)
    over, done = begin(statements, BOB)
    statements.find(BOB, over).is_over = True
    statements.close()
    (reason,) = asked.ended
    assert (bool(reason), done.ended) == (True, [])
    _, late = begin(statements)
    assert late.ended == [reason]


def test_closing_does_not_wait_for_a_coordinator_that_is_gone(statements: Statements) -> None:
    class Counted(Asked):
        tried = 0

        def cancel(self, reason: str = "") -> None:
            Counted.tried += 1
            raise Unavailable("leader.none", "nobody is there")

    for _ in range(3):
        begin(statements, query=Counted())
    statements.close()
    assert Counted.tried == 1


def test_readers_of_many_threads_are_counted_right(statements: Statements) -> None:
    handle, _ = begin(statements)
    begun = statements.find(ALICE, handle)

    def read() -> None:
        for _ in range(500):
            with statements.reading(begun):
                pass

    with ThreadPoolExecutor(8) as threads:
        for each in [threads.submit(read) for _ in range(8)]:
            each.result(60)
    assert begun.readers == 0
