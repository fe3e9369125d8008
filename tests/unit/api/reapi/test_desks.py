"""Since when actions are under way, as the content is told: it evicts nothing that was used since then."""

import asyncio
from collections.abc import Awaitable
from contextlib import ExitStack
from typing import Any

from rota.api.reapi.desks import Desks
from rota.api.reapi.ongoing import Ongoing
from rota.client.line import FarLine
from rota.core.ids import Digest, Millis
from rota.wire.builds import BuildWork


class Shelf:
    """As much of a content as is told."""

    def __init__(self) -> None:
        self.since: Millis | None = None

    def keep_since(self, at: Millis | None) -> None:
        self.since = at


def open_line(_token: str, _tenant: str) -> Awaitable[FarLine]:
    raise AssertionError("nobody is asked here")


def test_the_oldest_action_counts_whichever_ends_first() -> None:
    shelf: Any = Shelf()
    times = iter([10, 20, 30])
    desks = Desks(open_line, shelf, lambda: next(times), print, where=str, queues={}, queue="builds")
    first, second, third = ExitStack(), ExitStack(), ExitStack()
    assert [stack.enter_context(desks.accepting()) for stack in (first, second, third)] == [10, 20, 30]
    assert shelf.since == 10
    second.close()
    assert shelf.since == 10
    first.close()
    assert shelf.since == 30
    third.close()
    assert shelf.since is None


def ongoing() -> Ongoing:
    return Ongoing("run", BuildWork(instance="", action=Digest("0" * 64, 1), content="grpc://x"), 0)


def test_what_was_new_before_somebody_waits_for_it_is_not_missed() -> None:
    async def inside() -> bool:
        about = ongoing()
        seen = about.changes
        about.tell()
        return await about.has_changed(seen, 3_600)

    assert asyncio.run(inside())


def test_everybody_who_waits_is_told_and_who_waited_long_enough_is_let_go() -> None:
    async def inside() -> list[bool]:
        about = ongoing()
        waiting = [asyncio.ensure_future(about.has_changed(about.changes, within_s)) for within_s in (0, 3_600, 3_600)]
        await waiting[0]
        about.tell()
        return list(await asyncio.gather(*waiting))

    assert asyncio.run(inside()) == [False, True, True]
