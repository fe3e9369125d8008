"""Since when actions are under way, as the content is told: it evicts nothing that was used since then."""

from collections.abc import Awaitable
from contextlib import ExitStack
from typing import Any

from rota.api.reapi.desks import Desks
from rota.client.line import FarLine
from rota.core.ids import Millis


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
