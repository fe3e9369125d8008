"""One client's side of the desk: its requests as they come, and the answers as they are found."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from msgspec import Raw

from rota.api.auth import Principal
from rota.api.desk import Desk
from rota.core.errors import Refused, Unavailable
from rota.core.records import Story
from rota.wire.requests import Request, Response, Unwatch, Watch, answered, number_of, read_request, troubled

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
        self._watching: dict[int, Callable[[], None]] = {}
        self._asking: dict[asyncio.Task[None], None] = {}

    @abstractmethod
    def say(self, response: Response) -> None:
        """Answer the client. It must not wait."""

    def take(self, content: bytes | Raw) -> None:
        """A message came."""
        try:
            request = read_request(content)
        except Refused as refused:
            # Whoever waits for the answer must hear of it, though we did not understand the question.
            self.say(troubled(number_of(content), refused))
            return
        self.take_request(request)

    def take_request(self, request: Request) -> None:
        """A request came."""
        match request.body:
            case Watch():
                self._watch(request.number, request.body)
            case Unwatch(number=number):
                end = self._watching.pop(number, None)
                if end is not None:
                    end()
            case _:
                task = asyncio.get_running_loop().create_task(self._ask(request))
                self._asking[task] = None
                task.add_done_callback(lambda done: self._asking.pop(done, None))

    async def _ask(self, request: Request) -> None:
        assert not isinstance(request.body, Watch | Unwatch), "watching is not asked"
        try:
            self.say(answered(request.number, await self._desk.ask(self._who, request.body)))
            self._note(request, "ok")
        except (Refused, Unavailable) as trouble:
            self.say(troubled(request.number, trouble))
            self._note(request, trouble.code)
        except Exception as error:  # an error of ours; whoever asked must not wait for ever
            text = f"the coordinator met an error: {type(error).__name__}: {error}."
            self.say(troubled(request.number, Unavailable("leader.none", text)))
            self._note(request, "error")

    def _watch(self, number: int, watch: Watch) -> None:
        def tell(stories: list[Story] | None) -> None:
            if stories is None:
                self._watching.pop(number, None)
                lost = Unavailable("leader.none", "watching was interrupted; begin again.")
                self.say(troubled(number, lost))
                return
            self.say(answered(number, stories, more=True))

        try:
            self._watching[number] = self._desk.watch(self._who, watch.tenant, watch.run, tell)
        except Refused as refused:
            self.say(troubled(number, refused))

    def close(self) -> None:
        """The client is gone."""
        for end in self._watching.values():
            end()
        for task in list(self._asking):
            task.cancel()
