"""Asking and watching over a connection, whatever carries its messages: each answer finds whoever waits for it."""

import asyncio
from collections.abc import Callable
from typing import Any

from rota.client.watching import Watching
from rota.core.commands import ClientCommand
from rota.core.errors import Refused, Unavailable
from rota.core.questions import Question
from rota.wire.requests import Forget, Request, Response, Watch, open_answer

# Takes an answer; None when there will be none.
Take = Callable[[Response | None], None]


def ignore(response: Response | None) -> None:
    """Nobody waits."""


class Conversation:
    """One connection's requests and answers.

    `send` puts a request on its way. It must not wait; it may refuse one that cannot travel.
    """

    def __init__(self, tenant: str, send: Callable[[Request], None]) -> None:
        self.tenant = tenant
        self.is_lost = False
        # Why, if the other side said so.
        self.trouble: Exception | None = None
        self._send_on = send
        self._number = 0
        self._waiting: dict[int, Take] = {}

    async def ask(self, request: ClientCommand | Question) -> Any:
        """One request, one answer."""
        future: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()

        def take(response: Response | None) -> None:
            if not future.done():
                future.set_result(response)

        number = self._send(request, take)
        try:
            response = await future
        except asyncio.CancelledError:
            # Else the question would be worked on, or waited with, until the connection ends.
            self._forget(number)
            raise
        finally:
            self._waiting.pop(number, None)
        if response is None:
            raise self.trouble or Unavailable("leader.none", "the coordinator hung up.")
        return open_answer(request, response)

    def watch(self, run: str) -> Watching:
        """What happens to a run from now on; to every run of the tenant if none is named."""
        request = Watch(self.tenant, run)
        watching = Watching()

        def take(response: Response | None) -> None:
            try:
                stories = None if response is None else open_answer(request, response)
            except (Refused, Unavailable):
                # Whoever reads goes on with a question; if this is not theirs to see, its answer says so.
                stories = None
            if stories is None:
                watching.lose()
                return
            for story in stories:
                watching.tell(story)

        number = self._send(request, take)

        watching.end = lambda: self._forget(number)
        return watching

    def hear(self, response: Response) -> None:
        """An answer came."""
        take = self._waiting.get(response.number)
        if take is not None:
            take(response)

    def lose(self, trouble: Exception | None = None) -> None:
        """Nothing more will come."""
        self.is_lost = True
        self.trouble = trouble
        for take in list(self._waiting.values()):
            take(None)

    def _forget(self, number: int) -> None:
        if self._waiting.pop(number, None) is not None and not self.is_lost:
            self._send(Forget(number), ignore)

    def _send(self, body: Any, take: Take) -> int:
        self._number += 1
        if self.is_lost:
            take(None)
            return self._number
        self._send_on(Request(self._number, body))
        if take is not ignore:
            self._waiting[self._number] = take
        return self._number
