"""A `rota server` and a `rota worker` that the tests of a module share; each test is a tenant of its own there."""

from itertools import count

import rota
from tests.integration.service.stage import Stage, until_present


class Pair:
    """The two processes, and clients of theirs that see nothing of each other."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        stage.start_server()
        stage.start_worker("worker", slots=4)
        with rota.connect(stage.url) as client:
            until_present(client, "worker")
        self._numbers = count(1)

    @property
    def url(self) -> str:
        return self.stage.url

    def tenant(self) -> str:
        """One that nobody else has."""
        return f"tenant-{next(self._numbers)}"

    def connect(self, *, trust: bool = True) -> rota.Rota:
        return rota.connect(self.url, tenant=self.tenant(), trust=trust)
