"""A plain store that machines share, and ones that each break what such a store promises beyond the rest."""

import asyncio
from weakref import WeakKeyDictionary

from rota.core.ids import Epoch
from rota.ports import Candidate, Look
from tests.contract import store_sharing as sharing
from tests.contract.bench import Promise
from tests.contract.row_store import Platter, RowStore


class Sign:
    """What everybody on a platter sees beside the rows."""

    def __init__(self) -> None:
        self.leader: Candidate | None = None
        self.freed = asyncio.Event()


_SIGNS: WeakKeyDictionary[Platter, Sign] = WeakKeyDictionary()


class SharedRowStore(RowStore):
    """The SharedStore port over a platter."""

    def __init__(self, platter: Platter | None = None) -> None:
        super().__init__(platter)
        self.sign = _SIGNS.setdefault(self.platter, Sign())
        self.epoch: Epoch = 0

    async def elect(self, who: Candidate) -> Epoch | None:
        epoch = await super().elect(who)
        if epoch is not None:
            self.sign.leader = who
            self.epoch = epoch
        return epoch

    async def release(self, epoch: Epoch) -> None:
        if self.platter.holder == epoch:
            self.say_free()
        await super().release(epoch)

    def say_free(self) -> None:
        self.sign.freed.set()
        self.sign.freed = asyncio.Event()

    async def look(self) -> Look:
        identity = self.platter.identity
        epoch = self.platter.epoch if identity else 0
        return Look(server="rows 1.0", identity=identity, epoch=epoch, leader=await self.leader())

    async def leader(self) -> Candidate | None:
        return self.sign.leader if self.platter.holder is not None else None

    async def vacancy(self) -> None:
        await self.sign.freed.wait()

    async def close(self) -> None:
        await self.release(self.epoch)


class MakesWhatItLooksFor(SharedRowStore):
    """Looks by way of what makes it."""

    async def look(self) -> Look:
        identity = await self.identity()
        return Look(server="rows 1.0", identity=identity, epoch=self.platter.epoch, leader=await self.leader())


class NamesNobody(SharedRowStore):
    """An empty row is taken for a leader without a name."""

    async def leader(self) -> Candidate | None:
        return await super().leader() or Candidate("")


class NamesWhoTries(SharedRowStore):
    """Signs before the lock is taken."""

    async def elect(self, who: Candidate) -> Epoch | None:
        self.sign.leader = who
        return await super().elect(who)


class KeepsTheName(SharedRowStore):
    """Looks at the name alone, and not whether the lock is held."""

    async def leader(self) -> Candidate | None:
        return self.sign.leader


class NamesTheFirst(SharedRowStore):
    """The name is inserted, and never replaced."""

    async def elect(self, who: Candidate) -> Epoch | None:
        before = self.sign.leader
        epoch = await super().elect(who)
        self.sign.leader = before or self.sign.leader
        return epoch


class SaysNothing(SharedRowStore):
    """Who releases the lock tells nobody."""

    def say_free(self) -> None:
        return


class FailsWhenGivenUp(SharedRowStore):
    """A connection per wait, and there are only so many."""

    async def vacancy(self) -> None:
        self.waited = getattr(self, "waited", 0) + 1
        if self.waited > 5:
            raise ConnectionError("too many connections")
        await super().vacancy()


class ListensOnce(SharedRowStore):
    """The subscription ends with the wait that made it."""

    is_over = False

    async def vacancy(self) -> None:
        if self.is_over:
            await asyncio.Event().wait()
        self.is_over = True
        await super().vacancy()


class HoldsOnClosed(SharedRowStore):
    """Closing leaves the lock to the end of the process."""

    async def close(self) -> None:
        return


BROKEN_SHARING: list[tuple[type[SharedRowStore], Promise]] = [
    (MakesWhatItLooksFor, sharing.looking_makes_nothing_and_tells_what_there_is),
    (NamesNobody, sharing.before_the_first_election_nobody_leads),
    (NamesWhoTries, sharing.everybody_hears_who_was_elected),
    (KeepsTheName, sharing.who_gave_up_the_lock_does_not_lead),
    (NamesTheFirst, sharing.the_successor_of_a_leader_that_died_is_named),
    (SaysNothing, sharing.who_waits_for_a_vacancy_hears_of_a_release),
    (FailsWhenGivenUp, sharing.waiting_for_a_vacancy_may_be_given_up),
    (ListensOnce, sharing.a_waiting_that_is_given_up_does_not_spoil_the_next),
    (HoldsOnClosed, sharing.closing_gives_the_lock_back),
]
