"""What the work and the clients write down is read back as it was."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rota.client.watching import Watching
from rota.core.errors import Refused, Unavailable
from rota.core.questions import ListPools
from rota.running import Context, Entered
from tests.rig.journal import (
    BEGAN,
    DONE,
    FAILED,
    TICK,
    TICK_S,
    Call,
    Line,
    Notebook,
    Tapped,
    attempts_of,
    read_attempts,
    read_lines,
    take,
    told,
)


def line(phase: str, at_ns: int, fence: int = 7, task: str = "t") -> Line:
    return Line("r", task, 1, fence, 100, phase, at_ns)


def attempting(fence: int) -> Entered:
    return Entered(Context(tenant="default", run="r", task="t", attempt=1, fence=fence), owns_process=False)


def test_an_attempt_leaves_its_beginning_its_end_and_that_it_lived_in_between(tmp_path: Path):
    with attempting(7), told(tmp_path):
        take(tmp_path, round(TICK_S * 2_500))
    with attempting(8), pytest.raises(ValueError, match="as told"), told(tmp_path):
        raise ValueError("as told")
    phases = [(each.fence, each.phase) for each in read_lines(tmp_path)]
    assert phases[0] == (7, BEGAN)
    assert (7, TICK) in phases
    assert phases[-3:] == [(7, DONE), (8, BEGAN), (8, FAILED)]
    done, failed = read_attempts(tmp_path)
    assert (done.run, done.task, done.fence, done.outcome, done.starts) == ("r", "t", 7, DONE, 1)
    assert done.seen_ns - done.began_ns >= TICK_S * 2 * 1e9
    assert (failed.fence, failed.outcome) == (8, FAILED)


def test_where_nobody_has_written_there_is_nothing(tmp_path: Path):
    assert read_attempts(tmp_path) == []


def test_an_attempt_that_was_killed_ran_until_it_was_last_heard_of():
    (killed,) = attempts_of([line(BEGAN, 10), line(TICK, 60)])
    assert (killed.began_ns, killed.seen_ns, killed.outcome) == (10, 60, "")


def test_a_lease_that_was_begun_twice_is_one_attempt_that_says_so():
    (twice,) = attempts_of([line(BEGAN, 10), line(BEGAN, 20), line(DONE, 30)])
    assert (twice.starts, twice.began_ns, twice.seen_ns) == (2, 10, 30)


def test_fences_and_tasks_are_kept_apart():
    assert len(attempts_of([line(BEGAN, 1), line(BEGAN, 2, fence=8), line(BEGAN, 3, task="u")])) == 3


class Answering:
    """A line that says what it is told to."""

    tenant = "acme"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def ask(self, request: Any) -> Any:
        answer = self.answers.pop(0)
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def watch(self, run: str) -> Watching:
        return Watching()


def test_every_request_is_written_down_with_what_came_of_it_but_not_those_that_were_given_up():
    notebook = Notebook()
    tapped = Tapped(Answering("yes", Unavailable("leader.none"), Refused("run.unknown", "no"), None), "c", notebook)

    async def ask() -> None:
        question = ListPools(tenant=tapped.tenant)
        assert await tapped.ask(question) == "yes"
        for kind in (Unavailable, Refused):
            with pytest.raises(kind):
                await tapped.ask(question)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(tapped.ask(question), 0.01)

    asyncio.run(ask())
    assert tapped.tenant == "acme"
    assert [(each.client, each.what, each.code) for each in notebook.tries] == [
        ("c", "ListPools", ""),
        ("c", "ListPools", "leader.none"),
        ("c", "ListPools", "run.unknown"),
    ]
    assert notebook.codes() == {"leader.none": 1, "run.unknown": 1}
    assert all(each.began_ns <= each.ended_ns for each in notebook.tries)


def test_a_call_is_acknowledged_if_it_was_answered_and_not_with_an_error():
    call = Call(client="c", what="submit", began_ns=1)
    assert not call.is_acknowledged
    assert Call(client="c", what="submit", began_ns=1, ended_ns=2).is_acknowledged
    assert not Call(client="c", what="submit", began_ns=1, ended_ns=2, code="store.full").is_acknowledged
