"""A claim has one outcome: the same report again is answered as before, a different one is refused, on every store."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import product

import msgspec
import pytest

from rota.api.auth import ANYONE
from rota.api.items import submit_work
from rota.api.sessions import Sessions
from rota.control.driver import CoordinatorDriver
from rota.core.bounds import TimeLimits
from rota.core.errors import Refused
from rota.core.questions import ListTasks, TasksPage
from rota.core.states import TERMINAL
from rota.ports import Candidate, Store
from rota.wire import sessions as ss
from rota.wire.items import SubmitWork, WorkItem
from tests.contract.adapters import ADAPTERS, Adapter

TENANT = "default"
Report = tuple[ss.Ending, object]
COMPLETE, FAIL, RELEASE = ss.Ending.COMPLETE, ss.Ending.FAIL, ss.Ending.RELEASE
REPORTS: list[Report] = [
    (COMPLETE, None),
    (COMPLETE, {"answer": 1}),
    (COMPLETE, {"answer": 2}),
    (FAIL, "one error"),
    (FAIL, "another error"),
    (RELEASE, None),
]
# Whether the failure that is reported is tried again.
TRIES = (1, 3)
CASES = [(first, second, tries) for first, second, tries in product(REPORTS, REPORTS, TRIES)]


def name_of(number: int) -> str:
    return f"item-{number:03}"


async def leading(store: Store) -> tuple[CoordinatorDriver, Sessions]:
    driver = CoordinatorDriver(store, TimeLimits(), lambda: time.time_ns() // 1_000_000, who=Candidate("c"))
    driver.start()
    while not await driver.reigns():
        await asyncio.sleep(0.01)
    return driver, Sessions(driver)


async def finish(sessions: Sessions, lease: ss.WorkLease, report: Report, token: str = "") -> str:
    """The code of the refusal; empty if it was taken."""
    ending, payload = report
    try:
        await sessions.answer(
            ANYONE,
            ss.FinishWork(
                tenant=TENANT,
                session="s",
                item=lease.item,
                fence=lease.fence,
                token=token or lease.token,
                ending=ending,
                result=msgspec.msgpack.encode(payload) if ending is COMPLETE and payload is not None else b"",
                error=str(payload) if ending is FAIL else "",
            ),
        )
    except Refused as refused:
        return refused.code
    return ""


async def prepare(driver: CoordinatorDriver, sessions: Sessions) -> dict[str, ss.WorkLease]:
    """Every case is an item of its own, claimed."""
    for number, (_, _, tries) in enumerate(CASES):
        name, work = name_of(number), WorkItem(title="t", max_attempts=tries)
        await submit_work(driver, ANYONE, SubmitWork(tenant=TENANT, command_id=name, item=name, work=work))
    await sessions.answer(ANYONE, ss.RegisterSession(tenant=TENANT, session="s", limit=len(CASES) * 2))
    found: dict[str, ss.WorkLease] = {}
    for number in range(len(CASES)):
        claim = ss.ClaimWork(tenant=TENANT, session="s", command_id=f"claim-{number}", item=name_of(number))
        (lease,) = await sessions.answer(ANYONE, claim)
        found[lease.item] = lease
    return found


async def states(driver: CoordinatorDriver) -> list[object]:
    found: list[object] = []
    for number in range(len(CASES)):
        page, _ = await driver.ask(ListTasks(tenant=TENANT, run=name_of(number)))
        assert isinstance(page, TasksPage)
        # A failure that is tried again is queued after a while.
        found += [(task.state if task.state in TERMINAL else "open", task.error) for task in page.tasks]
    return found


async def check_second_reports(
    adapter: Adapter, between: Callable[[CoordinatorDriver, Store], Awaitable[tuple[CoordinatorDriver, Store]]]
) -> None:
    store = await adapter.make_store()
    driver, sessions = await leading(store)
    leases = await prepare(driver, sessions)
    for number, (first, _, _) in enumerate(CASES):
        assert await finish(sessions, leases[name_of(number)], first) == ""
    before = await states(driver)
    driver, store = await between(driver, store)
    again = Sessions(driver)
    wrong: list[str] = []
    for number, (first, second, tries) in enumerate(CASES):
        expected = "" if first == second else "lease.ended"
        for _ in range(2):
            code = await finish(again, leases[name_of(number)], second)
            if code != expected:
                wrong.append(f"{first} then {second} of {tries} tries: {code!r}, not {expected!r}")
    assert wrong == []
    assert await states(driver) == before, "no second report changes anything"
    await driver.stop()
    await adapter.close([store])


each_store = pytest.mark.parametrize(
    "adapter", [one for one in ADAPTERS if not one.is_for_housekeeping], ids=lambda adapter: adapter.name
)


@each_store
def test_a_second_report_is_answered_as_the_first_or_refused(adapter: Adapter) -> None:
    async def nothing(driver: CoordinatorDriver, store: Store) -> tuple[CoordinatorDriver, Store]:
        return driver, store

    asyncio.run(check_second_reports(adapter, nothing))


@each_store
def test_so_it_is_after_a_failover(adapter: Adapter) -> None:
    async def fail_over(driver: CoordinatorDriver, store: Store) -> tuple[CoordinatorDriver, Store]:
        epoch = driver.machine.leadership.epoch
        await driver.stop()
        store = await adapter.reopen(store, epoch)
        return (await leading(store))[0], store

    asyncio.run(check_second_reports(adapter, fail_over))


def test_another_token_is_refused_whatever_it_says() -> None:
    async def main() -> None:
        adapter = ADAPTERS[0]
        store = await adapter.make_store()
        driver, sessions = await leading(store)
        leases = await prepare(driver, sessions)
        for number, (first, second, _) in enumerate(CASES):
            lease = leases[name_of(number)]
            assert await finish(sessions, lease, first) == ""
            assert await finish(sessions, lease, second, "other") == "lease.token"
        await driver.stop()
        await adapter.close([store])

    asyncio.run(main())
