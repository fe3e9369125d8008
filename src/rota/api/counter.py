"""One client's side of the desk: its requests as they come, and the answers as they are found.

What one client may have under way is bounded, so that no client costs others their memory or their turn.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from msgspec import Raw

from rota.api.auth import Principal
from rota.api.desk import Desk
from rota.api.request_limits import check_head
from rota.core.errors import Refused, Unavailable
from rota.core.records import Story
from rota.core.tags import tag_of
from rota.wire.large_requests import SMALL_BYTES_MAX, number_of, read_head
from rota.wire.requests import (
    AwaitRun,
    Forget,
    Request,
    Response,
    Watch,
    answered,
    read_large_request,
    read_request,
    troubled,
)
from rota.wire.sessions import AwaitWake, ClaimWork

# What is answered as soon as it can be. Whoever asks for more at once is heard more slowly.
REQUESTS_MAX = 1_000
# What goes on until something happens: watches, waits for the end of a run or for work.
HELD_MAX = 5_000
# So long a client is not heard while it has as many requests under way as it may; then it is told.
ROOM_S = 2.0

# What became of a request, for those who count: `ok`, or the code of the trouble.
Note = Callable[[Request, str], None]


def note_nothing(request: Request, code: str) -> None:
    """Nobody counts."""


class Counter(ABC):
    """Serves one connection; what carries its messages is a subclass."""

    def __init__(self, desk: Desk, who: Principal, note: Note = note_nothing) -> None:
        self._who = who
        self._note = note
        self._desk = desk
        self._is_closed = False
        # How to end what was begun under a number.
        self._asking: dict[int, Callable[[], object]] = {}
        self._held: dict[int, Callable[[], object]] = {}
        self._room = asyncio.Event()

    @abstractmethod
    def send(self, response: Response) -> None:
        """Pass an answer on to the client. It must not wait."""

    def say(self, response: Response) -> None:
        """Answer the client, if it is still there."""
        if not self._is_closed:
            self.send(response)

    async def take(self, content: bytes | memoryview | Raw) -> None:
        """A message came. The next one is taken when there is room for it, or it is clear that there is none."""
        if len(self._asking) >= REQUESTS_MAX:
            await self._wait_for_room()
        if self._is_closed:
            return
        try:
            request = await self._read(content)
        except Refused as refused:
            # Whoever waits for the answer must hear of it, though we did not understand the question.
            self.say(troubled(number_of(content), refused))
            return
        if not self._is_closed:
            self._take_request(request)

    def refuse(self, content: bytes, trouble: Refused | Unavailable) -> None:
        """A message that is not read is answered all the same, if it begins like a request."""
        self.say(troubled(number_of(content), trouble))

    async def _read(self, content: bytes | memoryview | Raw) -> Request:
        """The request in a message. A large one is checked against its limit first, and decoded in several turns."""
        if len(memoryview(content)) <= SMALL_BYTES_MAX:
            return read_request(content)
        head = read_head(content)
        check_head(self._who, head)
        steps = read_large_request(head)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value
            await asyncio.sleep(0)

    async def _wait_for_room(self) -> None:
        self._room.clear()
        try:
            async with asyncio.timeout(ROOM_S):
                await self._room.wait()
        except TimeoutError:
            return

    def _take_request(self, request: Request) -> None:
        if isinstance(request.body, Forget):
            self._forget(request.body.number)
            return
        # Two answers under one number could not be told apart.
        self._forget(request.number)
        body = request.body
        goes_on = isinstance(body, Watch | AwaitRun) or (isinstance(body, AwaitWake | ClaimWork) and body.wait_ms > 0)
        if len(self._held) >= HELD_MAX if goes_on else len(self._asking) >= REQUESTS_MAX:
            what = f"{HELD_MAX:,} watches and waits" if goes_on else f"{REQUESTS_MAX:,} requests"
            self._trouble(request, Unavailable("service.busy", f"this connection has {what} under way already."))
        elif isinstance(request.body, Watch):
            self._watch(request, request.body)
        else:
            begun = self._held if goes_on else self._asking
            task = asyncio.get_running_loop().create_task(self._ask(request), name=tag_of(body))
            begun[request.number] = task.cancel
            task.add_done_callback(lambda _: self._over(begun, request.number, task.cancel))

    def _forget(self, number: int) -> None:
        """End what was begun under this number, if anything was."""
        for begun in (self._asking, self._held):
            end = begun.pop(number, None)
            if end is not None:
                end()
                self._room.set()

    def _over(self, begun: dict[int, Callable[[], object]], number: int, end: Callable[[], object]) -> None:
        # The number may stand for something else by now.
        if begun.get(number) == end:
            del begun[number]
        self._room.set()

    async def _ask(self, request: Request) -> None:
        assert not isinstance(request.body, Watch | Forget), "watching is not asked"
        try:
            self.say(answered(request.number, await self._desk.ask(self._who, request.body)))
            self._note(request, "ok")
        except (Refused, Unavailable) as trouble:
            self._trouble(request, trouble)
        except Exception as error:  # an error of ours; whoever asked must not wait for ever
            self._trouble(request, self._desk.failed(tag_of(request.body), error))

    def _watch(self, request: Request, watch: Watch) -> None:
        number = request.number

        def tell(stories: list[Story] | None) -> None:
            if stories is None:
                self._held.pop(number, None)
                lost = Unavailable("leader.none", "watching was interrupted; begin again.")
                self.say(troubled(number, lost))
                return
            self.say(answered(number, stories, more=True))

        try:
            self._held[number] = self._desk.watch(self._who, watch.tenant, watch.run, tell)
        except Refused as refused:
            self._trouble(request, refused)

    def _trouble(self, request: Request, trouble: Refused | Unavailable) -> None:
        self.say(troubled(request.number, trouble))
        self._note(request, trouble.code)

    def close(self) -> None:
        """The client is gone: everything that was begun for it ends, and nothing is said any more."""
        self._is_closed = True
        self._room.set()
        for number in [*self._asking, *self._held]:
            self._forget(number)
