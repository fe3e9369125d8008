"""A store that several coordinators of one process share, so that one of them leads and the others follow."""

import asyncio

from rota.core.ids import Epoch
from rota.ports import Candidate, Look
from rota.stores.memory import MemoryDisk, MemoryStore


class Shared(MemoryStore):
    """A memory store that several coordinators of one process share."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        super().__init__(disk)
        self.freed: list[asyncio.Event] = vars(self.disk).setdefault("freed", [])
        self.hints_fail = False
        # How many wait for a vacancy here.
        self.waiting = 0

    async def elect(self, who: Candidate) -> Epoch | None:
        epoch = await super().elect(who)
        if epoch is not None:
            vars(self.disk)["leader"] = who
        return epoch

    async def release(self, epoch: Epoch) -> None:
        await super().release(epoch)
        if not self.disk.holder:
            vars(self.disk)["leader"] = None
            for event in self.freed:
                event.set()

    async def look(self) -> Look:
        return Look(server="rows 1.0", identity=self.disk.identity, epoch=self.disk.epoch, leader=await self.leader())

    async def leader(self) -> Candidate | None:
        if self.hints_fail:
            raise OSError("no hints today")
        return vars(self.disk).get("leader")

    async def vacancy(self) -> None:
        if self.hints_fail:
            raise OSError("no hints today")
        event = asyncio.Event()
        self.freed.append(event)
        self.waiting += 1
        try:
            await event.wait()
        finally:
            self.waiting -= 1

    async def close(self) -> None:
        """Nothing is open."""
