"""The line to the coordinator in this process."""

from typing import Any

from rota.api.auth import Principal
from rota.api.desk import Desk
from rota.client.watching import Watching
from rota.control.driver import CoordinatorDriver
from rota.core.commands import ClientCommand
from rota.core.errors import Unavailable
from rota.core.questions import Question
from rota.core.records import Story


class NearLine:
    """To the coordinator in this process."""

    def __init__(self, desk: Desk, driver: CoordinatorDriver, who: Principal, tenant: str) -> None:
        self.tenant = tenant
        self._desk = desk
        self._driver = driver
        self._who = who

    async def ask(self, request: ClientCommand | Question) -> Any:
        """See the protocol."""
        try:
            return await self._desk.ask(self._who, request)
        except Unavailable:
            if self._driver.failed is not None:
                raise RuntimeError("Rota met an error of its own and has stopped") from self._driver.failed
            if self._driver.is_stopped:
                raise RuntimeError("this Rota is closed") from None
            raise

    def watch(self, run: str) -> Watching:
        """See the protocol."""
        watching = Watching()

        def tell(stories: list[Story] | None) -> None:
            if stories is None:
                watching.lose()
                return
            for story in stories:
                watching.tell(story)

        watching.end = self._desk.watch(self._who, self.tenant, run, tell)
        return watching
