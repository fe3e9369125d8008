"""Contracts of functions whose mistakes no commit shows: they are checked at every call while a seed runs."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from rota.core.buckets import Bucket
from rota.core.demand import score
from rota.core.fits import fits
from rota.core.ids import Millis
from rota.core.live import LiveWorker
from rota.core.match import Index
from rota.core.model import Allocation
from rota.core.order import Account, Purse


@contextmanager
def checked_contracts(violations: list[str]) -> Generator[None]:
    """Check the accounts of fair share and the choice of workers. What is wrong is listed: the loop survives errors."""
    settle, charge, pick = Purse.settle, Purse.charge, Index.pick_worker
    Purse.settle = _checked_accounts(settle, violations)
    Purse.charge = _checked_accounts(charge, violations)
    Index.pick_worker = _checked_choice(pick, violations)
    try:
        yield
    finally:
        Purse.settle, Purse.charge, Index.pick_worker = settle, charge, pick


def _balance(account: Account) -> int:
    """What an account has paid for: what it used, less what it was charged too much."""
    return account.used - account.credit


def _checked_accounts(change: Any, violations: list[str]) -> Any:
    """P-SHARE: a charge, or the settlement of one, moves all three balances by exactly its cost at their prices."""

    def checked(purse: Purse, cost: int) -> None:
        accounts = (purse.of_class, purse.of_tenant, purse.of_run)
        prices = (purse.factor, purse.of_tenant.price, 1)
        before = [_balance(account) for account in accounts]
        used = [account.used for account in accounts]
        change(purse, cost)
        for account, price, was, had in zip(accounts, prices, before, used, strict=True):
            if _balance(account) != was + cost * price:
                violations.append(f"P-SHARE: a cost of {cost} at {price} moved a balance by {_balance(account) - was}")
            if account.used < had or account.credit < 0:
                violations.append("P-SHARE: virtual time went back, or a credit was spent twice")

    return checked


def _checked_choice(pick: Any, violations: list[str]) -> Any:
    """P-LRU: of the workers that fit and meet most preferences, the one that was used as the queue says is chosen."""

    def checked(index: Index, bucket: Bucket, now: Millis) -> LiveWorker | None:
        found = pick(index, bucket, now)
        alone = bool(bucket.demand.signature.avoid) and index.is_alone(bucket, now)
        able = [
            worker
            for shape in index.shapes.values()
            for worker in shape.workers.values()
            if not fits(bucket.demand, worker, now, alone=alone)
        ]
        best = max((score(bucket.demand, worker.values) for worker in able), default=0)
        used = [worker.used for worker in able if score(bucket.demand, worker.values) == best]
        newest = bucket.demand.allocation is Allocation.MOST_RECENTLY_USED
        wanted = (max(used) if newest else min(used)) if used else None
        if wanted != (found.used if found is not None else None):
            chosen = found.row.id if found is not None else "none"
            violations.append(f"P-LRU: {chosen} was chosen, the last use of the right one was {wanted}")
        return found

    return checked
