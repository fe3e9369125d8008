"""Stores that each break what a store promises about its identity."""

import asyncio
import secrets
from collections.abc import AsyncIterator

from rota.core.ids import Epoch
from rota.core.records import Record
from rota.ports import Candidate
from tests.contract import store_identity as identity
from tests.contract.bench import Promise
from tests.contract.row_store import Platter, RowStore


class MakesItWhenOpened(RowStore):
    """The identity is made when the store is opened, not when the disk is."""

    def __init__(self, platter: Platter | None = None) -> None:
        super().__init__(platter)
        self.own = secrets.token_hex(8)

    async def identity(self) -> str:
        return self.own


class ReadsThenMakes(RowStore):
    """A store that finds no identity makes one, and does not look again."""

    async def identity(self) -> str:
        found = self.platter.identity
        await asyncio.sleep(0)
        if not found:
            self.platter.identity = found = secrets.token_hex(8)
        return found


class MakesItWhenElected(RowStore):
    """Each candidate makes an identity before it knows whether it has won."""

    async def elect(self, who: Candidate) -> Epoch | None:
        self.own = secrets.token_hex(8)
        return await super().elect(who)

    async def identity(self) -> str:
        return self.own


class MakesItAgainWhenLoaded(RowStore):
    """The identity is that of a reign."""

    async def load(self, epoch: Epoch) -> AsyncIterator[Record]:
        self.platter.identity = ""
        async for record in super().load(epoch):
            yield record


class HasThatOfTheProgram(RowStore):
    """The identity is the same everywhere."""

    async def identity(self) -> str:
        return "rota"


BROKEN_IDENTITY: list[tuple[type[RowStore], Promise]] = [
    (MakesItWhenOpened, identity.all_processes_on_a_disk_read_the_same_identity),
    (ReadsThenMakes, identity.those_that_ask_at_once_read_the_same_identity),
    (MakesItWhenElected, identity.those_that_stand_for_the_first_election_at_once_are_of_one_cluster),
    (MakesItAgainWhenLoaded, identity.elections_and_loads_leave_the_identity_alone),
    (HasThatOfTheProgram, identity.no_two_disks_have_one_identity),
]
