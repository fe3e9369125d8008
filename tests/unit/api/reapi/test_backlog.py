"""What a backlog decides, one event after the other: no loop, no line, no clock."""

import pytest
from msgspec import msgpack, structs

from rota.api.reapi import events as ev
from rota.api.reapi.backlog import (
    AGES_MIN,
    GRACE_MS,
    NOT_ASKED_FOR,
    NOT_WANTED,
    WALKED_MS,
    Backlog,
    ended_for_others,
)
from rota.api.reapi.ongoing import Conclusion, Ongoing, Operation, Stage
from rota.core import changes as ch
from rota.core.ids import Digest
from rota.core.model import PriorityClass, Queue
from rota.core.questions import RunView
from rota.core.records import Story
from rota.core.states import NEEDS_ATTENTION, SUCCESS, RunState
from rota.kinds.build.naming import OperationName
from rota.kinds.build.scheduling import Asked
from rota.wire.builds import BuildResult, BuildWork, encode_build

HERE = "grpc://here:1"
WORK = BuildWork(instance="", action=Digest("ab" * 32, 3), content=HERE)
ASKED = Asked(tenant="t", work=WORK, queue="builds", since=900)
RESULT = encode_build(BuildResult(exit_code=0))
RUN = "build-abababababab-0000000000000001"
NOW = 1_000_000


class House:
    """A front end with one caller."""

    def __init__(self) -> None:
        self.backlog = Backlog("t", self)
        self.now = NOW
        # Whether a caller with another token wants everything.
        self.is_wanted_by_another = False

    def where(self) -> str:
        return HERE

    def queue_of(self, instance: str) -> str:
        return "builds"

    def is_wanted(self, tenant: str, run: str) -> bool:
        return self.is_wanted_by_another or self.backlog.is_wanted(run, self.now)

    def handle(self, event: ev.Event) -> list[ev.Intent]:
        return self.backlog.handle(event, self.now)

    def submitted(self, run: str = RUN, asked: Asked = ASKED) -> Ongoing:
        assert self.handle(ev.Submitting(run, asked)) == []
        assert self.handle(ev.Submitted(run, run)) == []
        ongoing = self.backlog.get(run)
        assert ongoing is not None
        return ongoing

    def tell(self, run: str, *changes: ch.Change) -> list[ev.Intent]:
        return self.handle(ev.Told(Story("t", run, 1, 0, 1, msgpack.encode(list(changes)))))

    def end(self, run: str, state: RunState = RunState.CANCELLED, reason: str = "") -> list[ev.Intent]:
        return self.tell(run, ch.RunEnded("t", run, state, 1, reason))


@pytest.fixture
def house() -> House:
    return House()


def listening(ongoing: Ongoing, number: str = "1") -> Operation:
    operation = ongoing.operation(OperationName("", ongoing.run, number))
    operation.streams = 1
    return operation


def view_of(run: str, state: RunState = RunState.RUNNING, reason: str = "", created_at: int = NOW) -> RunView:
    return RunView(
        tenant="t",
        id=run,
        name="build",
        kind="build",
        graph="",
        state=state,
        priority=PriorityClass.NORMAL,
        created_at=created_at,
        started_at=0,
        ended_at=0,
        paused=False,
        reason=reason,
        fault="",
        schedule="",
        slot_at=0,
        parent="",
        params=encode_build(WORK),
        total=1,
        tasks={},
        story=1,
    )


# Submissions.


def test_what_is_on_its_way_is_neither_shared_nor_judged(house: House) -> None:
    house.handle(ev.Submitting(RUN, ASKED))
    assert house.backlog.same("", WORK.action) is None
    assert house.handle(ev.Caught()) == [], "that the coordinator does not know it means nothing yet"
    house.now += GRACE_MS * 2
    assert house.handle(ev.Ticked()) == []
    house.handle(ev.Submitted(RUN, RUN))
    assert house.backlog.same("", WORK.action) is house.backlog.get(RUN)


def test_what_was_refused_is_as_if_it_had_never_been(house: House) -> None:
    house.handle(ev.Submitting(RUN, ASKED))
    assert house.handle(ev.NotSubmitted(RUN)) == []
    assert (house.backlog.under_way, house.backlog.oldest_at) == ([], None)


def test_who_is_given_another_run_reads_how_that_one_stands(house: House) -> None:
    house.handle(ev.Submitting(RUN, ASKED))
    (intent,) = house.handle(ev.Submitted(RUN, "build-other"))
    other = house.backlog.get("build-other")
    assert intent == ev.Read(other)  # type: ignore[arg-type] - and so it is there
    assert house.backlog.under_way == [other]
    house.handle(ev.Submitting("build-third", ASKED))
    assert house.handle(ev.Submitted("build-third", "build-other")) == [], "it is known by now"
    assert house.backlog.under_way == [other]


# What is heard.


def test_stages_are_told_once_and_the_end_when_it_is_kept(house: House) -> None:
    ongoing = house.submitted()
    listening(ongoing)
    started = ch.AttemptStarted("t", RUN, 0, 7, 1)
    assert house.tell(RUN, started) == [ev.Tell(ongoing)]
    assert ongoing.stage is Stage.EXECUTING
    assert house.tell(RUN, started) == []
    over = ch.AttemptEnded("t", RUN, 0, 7, SUCCESS, 1, RESULT, None, "", 0)
    (keep,) = house.tell(RUN, over, ch.RunEnded("t", RUN, RunState.SUCCESS, 1, ""))
    assert isinstance(keep, ev.Keep)
    assert (keep.end.result, keep.end.fence, ongoing.conclusion) == (RESULT, 7, None)
    assert house.backlog.same("", WORK.action) is ongoing, "until it can be found in the cache"
    assert house.tell(RUN, started) == [], "what is over is over"
    assert house.handle(ev.Kept(ongoing, keep.end)) == [ev.Tell(ongoing)]
    assert (ongoing.conclusion, house.backlog.same("", WORK.action)) == (keep.end, None)


def test_what_is_over_is_forgotten_when_the_last_client_has_gone(house: House) -> None:
    ongoing = house.submitted()
    operation = listening(ongoing)
    house.handle(ev.Kept(ongoing, Conclusion(RunState.SUCCESS, RESULT)))
    assert house.backlog.under_way == [ongoing]
    house.handle(ev.Left(ongoing, operation))
    assert house.backlog.under_way == []


def test_a_parked_action_is_ended_and_has_failed(house: House) -> None:
    ongoing = house.submitted()
    told = house.tell(RUN, ch.TaskEnded("t", RUN, 0, NEEDS_ATTENTION, 1, None, "no gpu"))
    assert told == [ev.End(ongoing, "parked: no gpu")]
    (keep,) = house.end(RUN)
    assert isinstance(keep, ev.Keep)
    assert (keep.end.state, keep.end.error) == (RunState.FAILED, "no gpu")


def test_a_run_that_nobody_knows_any_more_has_failed(house: House) -> None:
    ongoing = house.submitted()
    (keep,) = house.handle(ev.Seen(ongoing, None))
    assert isinstance(keep, ev.Keep)
    assert keep.end.state is RunState.FAILED


def test_whoever_catches_up_reads_everything_and_takes_on_what_belongs_here(house: House) -> None:
    mine = house.submitted()
    elsewhere = structs.replace(WORK, content="grpc://elsewhere:1")
    found = ((view_of("build-a"), WORK), (view_of("build-b"), elsewhere), (view_of(RUN), WORK))
    intents = house.handle(ev.Caught(found))
    assert intents == [ev.Read(each) for each in house.backlog.under_way]
    assert [each.run for each in house.backlog.under_way] == [RUN, "build-a"]
    assert house.backlog.get(RUN) is mine


def test_a_caller_that_is_turned_away_is_told_so(house: House) -> None:
    ongoing = house.submitted()
    listening(ongoing)
    assert house.handle(ev.TurnedAway("auth.wrong: no")) == [ev.Tell(ongoing)]
    assert ongoing.conclusion is not None
    assert house.backlog.under_way == []
    assert house.handle(ev.Submitted(RUN, RUN)) == []


# Who wants what.


def test_the_last_client_that_cancels_ends_it_and_the_run_says_who_that_was(house: House) -> None:
    ongoing = house.submitted()
    first, second = listening(ongoing, "1"), listening(ongoing, "2")
    assert house.handle(ev.Cancelled(ongoing, first)) == [ev.Tell(ongoing)]
    assert house.handle(ev.Cancelled(ongoing, second)) == [
        ev.Tell(ongoing),
        ev.End(ongoing, f"{NOT_WANTED}: 1 2"),
    ]


def test_a_client_with_another_token_keeps_it_alive(house: House) -> None:
    ongoing = house.submitted()
    house.is_wanted_by_another = True
    assert house.handle(ev.Cancelled(ongoing, listening(ongoing))) == [ev.Tell(ongoing)]
    house.now += GRACE_MS * 2
    assert house.handle(ev.Ticked()) == []


def test_what_nobody_asks_for_is_given_up_after_the_time_of_its_queue(house: House) -> None:
    house.handle(ev.Caught(queues=(Queue(tenant="t", name="builds", client_action_timeout_ms=5_000),)))
    ongoing = house.submitted()
    operation = listening(ongoing)
    house.now += 100_000
    assert house.handle(ev.Ticked()) == [], "somebody listens"
    house.handle(ev.Left(ongoing, operation))
    house.now += 5_000
    assert house.handle(ev.Ticked()) == []
    house.now += 1
    assert house.handle(ev.Ticked()) == [ev.End(ongoing, f"{NOT_ASKED_FOR} for 5 s")]
    assert house.handle(ev.Ticked()) == [], "once, and again only after the same time"


@pytest.mark.parametrize("reason", ["its client has cancelled it: 9", "no client has asked for it for 60 s"])
def test_what_was_ended_for_others_is_replaced_for_whoever_waits(house: House, reason: str) -> None:
    ongoing = house.submitted()
    operation = listening(ongoing)
    assert house.end(RUN, reason=reason) == [ev.Replace(ongoing, ASKED)]
    following = house.submitted("build-next")
    assert house.handle(ev.Replaced(ongoing, following)) == [ev.Tell(ongoing)]
    assert ongoing.successor is following
    assert house.backlog.get(RUN) is following
    assert following.operations["1"] is operation


@pytest.mark.parametrize("is_listening", [True, False])
def test_what_a_person_cancels_stays_so_and_what_nobody_waits_for_too(house: House, is_listening: bool) -> None:
    ongoing = house.submitted()
    if is_listening:
        listening(ongoing)
    reason = "it is too hot here" if is_listening else "no client has asked for it for 60 s"
    (keep,) = house.end(RUN, reason=reason)
    assert isinstance(keep, ev.Keep)


@pytest.mark.parametrize(
    ("reason", "owed", "cancelled"),
    [
        ("its client has cancelled it: 1 2", True, ["1", "2"]),
        ("no client has asked for it for 60 s", True, []),
        ("cancelled on request", False, []),
    ],
)
def test_the_end_of_a_run_says_for_whom_it_was_ended(
    house: House, reason: str, owed: bool, cancelled: list[str]
) -> None:
    view = view_of(RUN, RunState.CANCELLED, reason)
    (read,) = house.handle(ev.Adopted(view, WORK))
    house.handle(ev.Seen(read.ongoing, view))
    end = read.ongoing.conclusion
    assert end is not None
    assert ended_for_others(end) is owed
    assert not ended_for_others(structs.replace(end, state=RunState.FAILED))
    assert [number for number, each in read.ongoing.operations.items() if each.is_cancelled] == cancelled


def test_a_run_of_the_past_is_told_and_not_kept_again(house: House) -> None:
    view = view_of(RUN, RunState.SUCCESS)
    (read,) = house.handle(ev.Adopted(view, WORK))
    assert house.handle(ev.Seen(read.ongoing, view)) == [ev.Tell(read.ongoing)]
    assert read.ongoing.conclusion is not None
    assert house.backlog.under_way == []


# Inputs that are in use.


def test_inputs_are_in_use_since_the_oldest_action_was_looked_through_whatever_came_first(house: House) -> None:
    ongoing = house.submitted()
    assert house.backlog.oldest_at == ASKED.since
    old = view_of("build-old", created_at=WALKED_MS + 5)
    house.handle(ev.Adopted(old, WORK))
    assert house.backlog.oldest_at == 5
    adopted = house.backlog.get("build-old")
    assert adopted is not None
    house.handle(ev.Seen(adopted, structs.replace(old, state=RunState.FAILED)))
    assert house.backlog.oldest_at == ASKED.since
    house.handle(ev.Kept(ongoing, Conclusion(RunState.SUCCESS, RESULT)))
    assert house.backlog.oldest_at is None


def test_a_long_action_does_not_make_all_later_ones_remembered(house: House) -> None:
    house.submitted()
    for number in range(AGES_MIN * 5):
        short = house.submitted(f"build-{number}", structs.replace(ASKED, since=NOW + number))
        house.handle(ev.Kept(short, Conclusion(RunState.SUCCESS, RESULT)))
    assert house.backlog.oldest_at == ASKED.since
    assert len(house.backlog._ages) <= AGES_MIN + 4  # pyright: ignore[reportPrivateUsage] - its size is the point
