"""The line to the coordinator in this process, and reading logs from its folder."""

from typing import Any

from rota.api.auth import Principal
from rota.api.desk import Desk, LogReader
from rota.api.line import DeskLine
from rota.control.driver import CoordinatorDriver
from rota.core.commands import ClientCommand
from rota.core.errors import Unavailable
from rota.core.questions import Question
from rota.wire.requests import LogPiece, ReadLog
from rota.worker.logs import LogFolder, read_on


class NearLine(DeskLine):
    """To the coordinator in this process."""

    def __init__(self, desk: Desk, driver: CoordinatorDriver, who: Principal) -> None:
        super().__init__(desk, who, who.tenant)
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


def reader_of(logs: LogFolder) -> LogReader:
    """Reads logs as they grow. An attempt that was interrupted goes on in a file of its own, and is read to its end."""

    async def read(request: ReadLog) -> LogPiece:
        found = logs.find(request.tenant, request.run, request.task)
        if request.attempt:
            found = [path for path in found if path.name.startswith(f"{request.attempt}-")]
        if not found:
            return LogPiece(b"", "")
        name, _, offset = request.cursor.partition(":")
        start = int(offset) if name == found[-1].name else 0
        content, end = read_on(found[-1], start)
        return LogPiece(content, f"{found[-1].name}:{end}")

    return read
