"""Whose turn it is: weighted classes, then tenants, then runs, by virtual time.

Each class, tenant and run has an account. A grant is charged at once with the time its signature usually takes; the
end of the lease charges what was missing or notes a credit. Virtual time only grows, so a heap whose keys are late is
put right while it is read (docs/decisions/0003). Whoever had nothing waiting is lifted to the account served last:
idle time is not saved up.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, TypeVar

from rota.core.model import CLASS_WEIGHT, PriorityClass

Item = TypeVar("Item")

ESTIMATE_MS = 1_000
SHARE = 1_000
HEAP_SLACK = 32
# A tenant of weight 1 pays so much for each millisecond, others the part that their weight says.
TENANT_PRICE = 10_000
WEIGHT_MAX = max(CLASS_WEIGHT.values())
CLASSES: tuple[PriorityClass, ...] = tuple(CLASS_WEIGHT)


class Account:
    """What one class, tenant or run has used, in milliseconds of the dominant share."""

    __slots__ = ("credit", "estimate_ms", "floor", "price", "runs", "used", "waiting")

    def __init__(self, price: int = 1) -> None:
        self.price = price
        self.used = 0
        self.estimate_ms = ESTIMATE_MS
        self.credit = 0
        self.waiting = 0
        self.floor = 0
        self.runs = 0

    def charge(self, cost: int) -> None:
        """Add `cost`, after using up what earlier estimates took too much."""
        if self.credit:
            spent = min(self.credit, cost)
            self.credit -= spent
            cost -= spent
        self.used += cost

    def learn(self, took_ms: int) -> None:
        """Remember how long this account's leases take: a moving average over about eight of them."""
        self.estimate_ms = max(1, (self.estimate_ms * 7 + took_ms) // 8)


class Books:
    """All accounts above the runs."""

    __slots__ = ("_prices", "classes", "floor", "shares", "tenants")

    def __init__(self) -> None:
        self.classes: dict[PriorityClass, Account] = {name: Account() for name in CLASSES}
        self.tenants: dict[tuple[PriorityClass, str], Account] = {}
        # Of runs that are charged together.
        self.shares: dict[tuple[PriorityClass, str, str], Purse] = {}
        self.floor = 0
        # Of tenants that were given a weight.
        self._prices: dict[str, int] = {}

    def weigh(self, tenant: str, weight: int) -> None:
        """Serve a tenant by this weight from now on; what it has used stays used."""
        price = self._prices[tenant] = TENANT_PRICE // weight
        for name in CLASSES:
            account = self.tenants.get((name, tenant))
            if account is not None:
                account.price = price

    def order(self) -> list[PriorityClass]:
        """Classes with something waiting, the one that has used least first."""
        classes = self.classes
        waiting = [name for name in CLASSES if classes[name].waiting]
        if len(waiting) > 1:
            waiting.sort(key=lambda name: classes[name].used)
        return waiting

    def tenant(self, priority: PriorityClass, tenant: str) -> Account:
        """The account of a tenant inside a class."""
        account = self.tenants.get((priority, tenant))
        if account is None:
            account = self.tenants[(priority, tenant)] = Account(self._prices.get(tenant, TENANT_PRICE))
        return account

    def purse(self, priority: PriorityClass, tenant: str, share: str = "") -> "Purse":
        """The accounts a new run is charged on: its own, or the ones of its share."""
        account = self.tenant(priority, tenant)
        account.runs += 1
        purse = self.shares.get((priority, tenant, share)) if share else None
        if purse is None:
            purse = Purse(self.classes[priority], account, WEIGHT_MAX // CLASS_WEIGHT[priority])
            if share:
                self.shares[(priority, tenant, share)] = purse
        purse.of_run.runs += 1
        return purse

    def leave(self, priority: PriorityClass, tenant: str, share: str = "") -> bool:
        """A run is gone; whether its tenant has none left in that class, so that its account is gone too.

        A tenant that comes back starts where the others are, like one that is new: what it used is forgotten, and so is
        what it owed. That takes as long as an ended run is kept. So does a share.
        """
        if share:
            purse = self.shares[(priority, tenant, share)]
            purse.of_run.runs -= 1
            if not purse.of_run.runs:
                del self.shares[(priority, tenant, share)]
        account = self.tenants[(priority, tenant)]
        account.runs -= 1
        if account.runs:
            return False
        del self.tenants[(priority, tenant)]
        return True

    def enter(self, purse: "Purse") -> None:
        """A task of a run begins to wait; whoever had nothing waiting starts where the others are."""
        of_class, of_tenant, of_run = purse.of_class, purse.of_tenant, purse.of_run
        if not of_run.waiting:
            if not of_tenant.waiting:
                if not of_class.waiting and of_class.used < self.floor:
                    of_class.used = self.floor
                if of_tenant.used < of_class.floor:
                    of_tenant.used = of_class.floor
            if of_run.used < of_tenant.floor:
                of_run.used = of_tenant.floor
        of_class.waiting += 1
        of_tenant.waiting += 1
        of_run.waiting += 1

    def charge(self, purse: "Purse", share: int, *, in_turn: bool = True) -> int:
        """A grant was made: charge all levels with what such leases usually cost; gives back the run's part.

        Each run has an estimate of its own, so that one is not charged for what another is like. If it was this
        run's turn the floors move to where it stood; a grant out of turn, to a task that had waited too long, says
        nothing about where the others are.
        """
        of_class, of_tenant, of_run = purse.of_class, purse.of_tenant, purse.of_run
        if in_turn:
            if of_class.used > self.floor:
                self.floor = of_class.used
            if of_tenant.used > of_class.floor:
                of_class.floor = of_tenant.used
            if of_run.used > of_tenant.floor:
                of_tenant.floor = of_run.used
        cost = of_run.estimate_ms * share // SHARE or 1
        purse.charge(cost)
        return cost


class Purse:
    """The three accounts that pay for a run's leases, or for those of all runs of a share.

    `factor` makes a low class pay more.
    """

    __slots__ = ("factor", "of_class", "of_run", "of_tenant")

    def __init__(self, of_class: Account, of_tenant: Account, factor: int) -> None:
        self.of_class = of_class
        self.of_tenant = of_tenant
        self.of_run = Account()
        self.factor = factor

    def charge(self, cost: int) -> None:
        """All three pay."""
        self.of_class.charge(cost * self.factor)
        self.of_tenant.charge(cost * self.of_tenant.price)
        self.of_run.charge(cost)

    def leave(self) -> None:
        """A task waits no more."""
        self.of_class.waiting -= 1
        self.of_tenant.waiting -= 1
        self.of_run.waiting -= 1

    def settle(self, difference: int) -> None:
        """A lease ended: charge what the estimate missed, or note what it took too much."""
        if difference > 0:
            self.charge(difference)
        elif difference:
            self.of_class.credit -= difference * self.factor
            self.of_tenant.credit -= difference * self.of_tenant.price
            self.of_run.credit -= difference


class LazyHeap(Generic[Item]):
    """Items by a key that only grows; a key that is late is put right when it comes to the top.

    Items that come and go, or whose key may shrink (`lower`), need `returning`: of several entries for one of them
    the newest counts. Items that are pushed once and leave once do not.
    """

    __slots__ = ("_heap", "_newest", "_number")

    def __init__(self, *, returning: bool) -> None:
        self._heap: list[tuple[int, int, Item]] = []
        self._newest: dict[Item, int] | None = {} if returning else None
        self._number = 0

    def push(self, key: int, item: Item) -> None:
        """Add an item; among equal keys the first in comes first. An item that is inside already stays where it is."""
        if self._newest is None or item not in self._newest:
            self.lower(key, item)

    def lower(self, key: int, item: Item) -> None:
        """Add an item, or say that its key has become smaller."""
        self._number += 1
        if self._newest is not None:
            self._newest[item] = self._number
        heappush(self._heap, (key, self._number, item))

    def discard(self, item: Item) -> None:
        """A returning item has left for good. Its entry goes when it comes to the top, or with others if many."""
        newest = self._newest
        assert newest is not None, "items that leave once are swept"
        if newest.pop(item, None) is not None and len(self._heap) > 2 * len(newest) + HEAP_SLACK:
            self._heap = [entry for entry in self._heap if newest.get(entry[2]) == entry[1]]
            heapify(self._heap)

    def sweep(self, inside: int, key_of: Callable[[Item], int | None]) -> None:
        """Take out items that have left, if there are many: more than `inside`, which is how many have not."""
        if len(self._heap) > 2 * inside + HEAP_SLACK:
            self._heap = [entry for entry in self._heap if key_of(entry[2]) is not None]
            heapify(self._heap)

    def head(self, key_of: Callable[[Item], int | None], patience: int = 1 << 30) -> tuple[int, Item] | None:
        """The item whose turn it is, with its key. `key_of` answers None for an item that has left."""
        heap, newest = self._heap, self._newest
        while heap:
            key, number, item = heap[0]
            if newest is not None and newest.get(item) != number:
                heappop(heap)
                continue
            true = key_of(item)
            if true is None:
                heappop(heap)
                if newest is not None:
                    del newest[item]
            elif true != key and patience > 0:
                patience -= 1
                heapreplace(heap, (true, number, item))
            else:
                return true, item
        return None

    def walk(self, key_of: Callable[[Item], int | None], patience: int = 1 << 30) -> Iterator[Item]:
        """Items in order, without taking them out. After `patience` corrections late keys are taken as they are."""
        heap, newest = self._heap, self._newest
        aside: list[tuple[int, int, Item]] = []
        try:
            while heap:
                key, number, item = heap[0]
                if newest is not None and newest.get(item) != number:
                    heappop(heap)
                    continue
                true = key_of(item)
                if true is None:
                    heappop(heap)
                    if newest is not None:
                        del newest[item]
                    continue
                if true != key and patience > 0:
                    patience -= 1
                    heapreplace(heap, (true, number, item))
                    continue
                yield item
                aside.append(heappop(heap))
        finally:
            for entry in aside:
                heappush(heap, entry)
