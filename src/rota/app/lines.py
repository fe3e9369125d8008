"""The line to the coordinator in this process."""

from typing import Any

from rota.api.auth import Principal
from rota.api.desk import Desk
from rota.api.line import DeskLine
from rota.control.driver import CoordinatorDriver
from rota.core.commands import ClientCommand
from rota.core.errors import Unavailable
from rota.core.questions import Question


class NearLine(DeskLine):
    """To the coordinator in this process."""

    def __init__(self, desk: Desk, driver: CoordinatorDriver, who: Principal, tenant: str) -> None:
        super().__init__(desk, who, tenant)
        self.driver = driver

    async def ask(self, request: ClientCommand | Question) -> Any:
        """See the protocol."""
        try:
            return await super().ask(request)
        except Unavailable:
            if self.driver.failed is not None:
                raise RuntimeError("Rota met an error of its own and has stopped") from self.driver.failed
            if self.driver.is_stopped:
                raise RuntimeError("this Rota is closed") from None
            raise
