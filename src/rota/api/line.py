"""A line to the desk in this process: what a client needs of a coordinator, without a wire in between."""

from typing import Any

from rota.api.auth import Principal
from rota.api.desk import Desk
from rota.client.watching import Watching
from rota.core.commands import ClientCommand
from rota.core.questions import Question
from rota.core.records import Story


class DeskLine:
    """Asks and watches as somebody, for one tenant."""

    def __init__(self, desk: Desk, who: Principal, tenant: str) -> None:
        self.tenant = tenant
        self.desk = desk
        self._who = who

    async def ask(self, request: ClientCommand | Question) -> Any:
        """See the protocol."""
        return await self.desk.ask(self._who, request)

    def watch(self, run: str) -> Watching:
        """See the protocol."""
        watching = Watching()

        def tell(stories: list[Story] | None) -> None:
            if stories is None:
                watching.lose()
                return
            for story in stories:
                watching.tell(story)

        watching.end = self.desk.watch(self._who, self.tenant, run, tell)
        return watching
