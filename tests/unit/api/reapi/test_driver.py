"""The memory of a front end, over a coordinator that is lost, slow to answer, or shared with others."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec import structs

from rota.api.reapi.driver import BacklogDriver
from rota.api.reapi.ongoing import Conclusion, Ongoing
from rota.core import changes as ch
from rota.core.errors import Unavailable
from rota.core.ids import Digest
from rota.core.states import NEEDS_ATTENTION, SUCCESS, RunState
from rota.kinds.build.naming import new_name
from rota.kinds.build.scheduling import Asked
from rota.wire.builds import BuildResult, BuildWork, encode_build
from tests.unit.api.reapi.wire import Wire

HERE = "grpc://here:1"
WORK = BuildWork(instance="", action=Digest("ab" * 32, 3), content=HERE)
ASKED = Asked(tenant="t", work=WORK, queue="builds", since=5)
RESULT = encode_build(BuildResult(exit_code=0))


class Front:
    """The front end that a backlog is in."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.kept: list[Conclusion] = []
        self.now = 1_000
        self.backlog = BacklogDriver(self.wire, lambda: self.now, self._keep, lambda line: None, self)  # type: ignore[arg-type] - as far as it is needed

    def changed(self, at: int) -> None:
        """Nobody evicts anything."""

    def where(self) -> str:
        return HERE

    def queue_of(self, instance: str) -> str:
        return "builds"

    def is_wanted(self, tenant: str, run: str) -> bool:
        return self.backlog.is_wanted(run)

    async def _keep(self, tenant: str, ongoing: Ongoing, end: Conclusion) -> None:
        self.kept.append(end)


def with_front(work: Callable[[Front], Awaitable[None]]) -> None:
    async def inside() -> None:
        front = Front()
        front.backlog.start()
        try:
            async with asyncio.timeout(10):
                await work(front)
        finally:
            await front.backlog.close()

    asyncio.run(inside())


async def ended(front: Front, ongoing: Ongoing) -> Conclusion:
    while ongoing.conclusion is None:
        await front.backlog.has_changed(ongoing, 10)
    return ongoing.conclusion


def test_an_end_is_kept_and_told_with_its_result() -> None:
    async def work(front: Front) -> None:
        ongoing, operation = await front.backlog.submit(ASKED)
        front.backlog.attach(operation)
        over = ch.AttemptEnded("t", ongoing.run, 0, 7, SUCCESS, 1, RESULT, None, "", 0)
        front.wire.say(ongoing.run, over, ch.RunEnded("t", ongoing.run, RunState.SUCCESS, 1, ""))
        end = await ended(front, ongoing)
        assert (end.result, end.fence, front.kept) == (RESULT, 7, [end])
        front.backlog.detach(ongoing, operation)
        assert front.backlog.is_idle

    with_front(work)


def test_a_submission_on_its_way_outlives_its_coordinator() -> None:
    async def work(front: Front) -> None:
        calls = 0

        async def lose_the_first() -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                front.wire.lose()
                # The watch is back before the command is.
                before = front.wire.watching
                while front.wire.watching is before:
                    await asyncio.sleep(0)
                await front.backlog.ready()
                raise Unavailable("leader.none", "it died.", retry_after_ms=1)

        await front.backlog.ready()
        front.wire.hold = lose_the_first
        ongoing, _ = await front.backlog.submit(ASKED)
        assert (calls, ongoing.conclusion, ongoing.run in front.wire.runs) == (2, None, True)

    with_front(work)


def test_an_action_that_was_parked_is_ended_and_its_client_told_why() -> None:
    async def work(front: Front) -> None:
        ongoing, operation = await front.backlog.submit(ASKED)
        front.backlog.attach(operation)
        text = "no registered worker could run this for 150 s"
        front.wire.say(ongoing.run, ch.TaskEnded("t", ongoing.run, 0, NEEDS_ATTENTION, 1, None, text))
        while not front.wire.cancelled:
            await asyncio.sleep(0)
        assert ongoing.conclusion is None, "nobody is told before it is durable"
        front.wire.say(ongoing.run, ch.RunEnded("t", ongoing.run, RunState.CANCELLED, 1, "parked"))
        end = await ended(front, ongoing)
        assert (end.state, end.error) == (RunState.FAILED, text)

    with_front(work)


@pytest.mark.parametrize("polls", [True, False])
def test_a_cancel_leaves_the_run_to_others_who_still_want_it(polls: bool) -> None:
    async def work(front: Front) -> None:
        ongoing, mine = await front.backlog.submit(ASKED)
        front.backlog.attach(mine)
        if polls:
            other = await front.backlog.find(type(mine.name)("", ongoing.run, "ffff"))
            assert other is not None
        await front.backlog.cancel(ongoing, mine)
        assert len(front.wire.cancelled) == (0 if polls else 1)

    with_front(work)


def test_inputs_are_in_use_from_when_they_began_to_be_looked_through() -> None:
    async def work(front: Front) -> None:
        await front.backlog.submit(ASKED)
        assert front.backlog.oldest_at == ASKED.since

    with_front(work)


def test_an_action_is_found_here_until_it_can_be_found_in_the_cache() -> None:
    async def work(front: Front) -> None:
        arrived, go = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            arrived.set()
            await go.wait()

        front.wire.hold = hold
        submitting = asyncio.ensure_future(front.backlog.submit(ASKED))
        await arrived.wait()
        assert front.backlog.same("", WORK.action) is None, "it may still be refused"
        go.set()
        ongoing, _ = await submitting
        assert front.backlog.same("", WORK.action) is ongoing
        assert front.backlog.same("other", WORK.action) is None
        mine = front.backlog.join(ongoing)
        assert ongoing.operation(mine.name) is mine
        over = ch.AttemptEnded("t", ongoing.run, 0, 7, SUCCESS, 1, RESULT, None, "", 0)
        front.wire.say(ongoing.run, over, ch.RunEnded("t", ongoing.run, RunState.SUCCESS, 1, ""))
        while front.backlog.same("", WORK.action) is not None:
            assert not front.kept, "it is kept before it is forgotten here"
            await asyncio.sleep(0)
        assert len(front.kept) == 1

    with_front(work)


def test_an_action_that_is_not_to_be_kept_is_shared_with_nobody() -> None:
    async def work(front: Front) -> None:
        await front.backlog.submit(structs.replace(ASKED, is_shared=False))
        assert front.backlog.same("", WORK.action) is None

    with_front(work)


def test_an_action_is_listed_under_its_client_s_name_or_not_yet() -> None:
    elsewhere, here = Ongoing("r", WORK, 1), Ongoing("r", WORK, 1, ASKED)
    assert [operation.name.number for operation in elsewhere.listed()] == ["0"], "its clients are at another front end"
    assert here.listed() == []
    operation = here.operation(new_name("", "r"))
    assert here.listed() == [operation]
