"""Stories on their way to a watcher, and happenings made of them."""

import asyncio

import pytest

from rota.client import watching as module
from rota.client.happenings import Happening, happenings
from rota.client.watching import Interrupted, Watching
from rota.core import changes as ch
from rota.core.model import FailureClass
from rota.core.records import Growth, Run, Story
from rota.core.states import RunState, TaskState
from rota.core.story import RunChange


def story(number: int) -> Story:
    return Story("t", "r", 1, number, 5, b"")


def test_stories_are_read_in_order_also_those_that_came_before_anybody_read():
    async def use() -> list[int]:
        watching = Watching()
        watching.tell(story(0))
        watching.tell(story(1))
        first = await anext(watching)
        waiting = asyncio.create_task(anext(watching))
        watching.tell(story(2))
        return [first.number, (await waiting).number, (await anext(watching)).number]

    assert asyncio.run(use()) == [0, 1, 2]


def test_what_is_lost_is_said_after_what_was_told_and_every_time():
    async def use() -> None:
        watching = Watching()
        ends: list[int] = []
        watching.end = lambda: ends.append(1)
        watching.tell(story(0))
        watching.lose()
        watching.lose()
        watching.tell(story(1))
        assert (await anext(watching)).number == 0
        for _ in range(2):
            with pytest.raises(Interrupted):
                await anext(watching)
        assert ends == [1], "ended once"

    asyncio.run(use())


def test_whoever_reads_too_slowly_is_cut_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "BEHIND_MAX", 3)

    async def use() -> list[int]:
        watching = Watching()
        for number in range(10):
            watching.tell(story(number))
        seen: list[int] = []
        with pytest.raises(Interrupted):
            while True:
                seen.append((await anext(watching)).number)
        return seen

    assert asyncio.run(use()) == [0, 1, 2]


def test_it_can_be_lost_before_anybody_says_how_it_ends():
    watching = Watching()
    watching.lose()
    watching.close()


OF_RUN = ("t", "r")
EXAMPLES: list[tuple[RunChange, list[tuple[str | None, str]]]] = [
    (ch.RunSubmitted(Run("t", "r", "g", "n")), [(None, "queued")]),
    (ch.RunStarted(*OF_RUN, 1), [(None, "running")]),
    (ch.RunEnded(*OF_RUN, RunState.FAILED, 1, "why"), [(None, "failed")]),
    (ch.RunReopened(*OF_RUN, 1), [(None, "queued")]),
    (ch.RunPaused(*OF_RUN, True, 1), [(None, "")]),
    (ch.RunStopping(*OF_RUN, RunState.CANCELLED, 1, "why"), [(None, "")]),
    (ch.RunFaulted(*OF_RUN, 1, "ours"), [(None, "")]),
    (ch.RunGrew(*OF_RUN, Growth("t", "r", 0), 1), [(None, "")]),
    (ch.PendingSet(*OF_RUN, ()), [(None, "")]),
    (ch.RunArchived(*OF_RUN, 1), [(None, "")]),
    (ch.TasksScheduled(*OF_RUN, (0, 2), 1), [("a", "queued"), ("c", "queued")]),
    (ch.TasksSettled(*OF_RUN, (1,), TaskState.SKIPPED, 1), [("b", "skipped")]),
    (ch.TasksReset(*OF_RUN, (1,), 1, "cleared", True), [("b", "none")]),
    (ch.TaskRequeued(*OF_RUN, 1, 1, "retry"), [("b", "queued")]),
    (ch.TaskAmended(*OF_RUN, 1, None, 1), [("b", "")]),
    (ch.TaskMarked(*OF_RUN, 1, TaskState.SUCCESS, 1), [("b", "success")]),
    (ch.TaskNoted(*OF_RUN, 1, "so", 1), [("b", "")]),
    (ch.RunMoved(*OF_RUN, "d", 2, (), ((0, 1),), 1), [(None, "")]),
    (ch.TaskEnded(*OF_RUN, 1, TaskState.FAILED, 1, FailureClass.FATAL, "why"), [("b", "failed")]),
    (ch.TaskStarved(*OF_RUN, 1, 1, 1, 1), [("b", "")]),
    (ch.LeaseGranted(*OF_RUN, 1, 7, "t", "w", "i", 2, 1, 30), [("b", "assigned")]),
    (ch.AttemptStarted(*OF_RUN, 1, 7, 1), [("b", "running")]),
    (ch.AttemptEnded(*OF_RUN, 1, 7, TaskState.UP_FOR_RETRY, 1, None, None, "oops", 9), [("b", "up_for_retry")]),
    (ch.LeaseReturned(*OF_RUN, 1, 7, TaskState.QUEUED, 1, "silent", True), [("b", "queued")]),
    (ch.ReportRefused(*OF_RUN, 1, 7, "late", 1), [("b", "")]),
    (ch.RunUnblocked(*OF_RUN, "other", 1), [(None, "")]),
    (ch.RunApproved(*OF_RUN, True, "ann", "fine", 1), [(None, "")]),
    (ch.TokenReplaced(*OF_RUN, 1, 7, "hash", 1), [("b", "")]),
    (ch.RunNoted(*OF_RUN, "so", 1), [(None, "")]),
    (ch.RevokedLeaseEnded(*OF_RUN, 1, 7, 1), [("b", "")]),
]


@pytest.mark.parametrize(("change", "moves"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_every_change_of_a_run_is_something_that_happened(change: RunChange, moves: list[tuple[str | None, str]]):
    names = "abc"
    found = list(happenings(5, change, lambda idx: names[idx]))
    assert [(each.task, each.state) for each in found] == moves
    for each in found:
        assert each.at == 5
        assert each.what == type(change).__name__
        assert each.what not in each.text, "it is said beside"
        assert (each.idx is None) == (each.task is None)
        assert each.task is None or names[each.idx or 0] == each.task


def test_a_change_of_many_tasks_is_told_of_each_alone():
    first, second = happenings(5, ch.TasksScheduled(*OF_RUN, (0, 2), 1), lambda idx: "abc"[idx])
    assert (first.text, second.text) == ("a", "c")


def test_every_change_that_a_story_may_hold_is_among_the_examples():
    assert {type(change) for change, _ in EXAMPLES} == set(RunChange.__args__)


def test_a_happening_has_who_did_it_and_what_went_wrong():
    (granted,) = happenings(5, EXAMPLES[20][0])
    assert (granted.worker, granted.attempt) == ("w", 2)
    (ended,) = happenings(5, EXAMPLES[22][0])
    assert ended.error == "oops"
    assert Happening(at=1, what="x", text="x").task is None
