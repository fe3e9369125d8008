"""Memory is bounded by what lives: whatever comes and goes leaves nothing behind, wherever it was noted."""

from collections import deque

import pytest

from rota.control.tally import Tally
from rota.core import commands as cm
from rota.core.bounds import RECEIPTS_KEPT_MS, RECEIPTS_KEPT_MS_LEAST
from rota.core.calendar import ScheduleSpec
from rota.core.decide import decision
from rota.core.images import take_batch
from rota.core.model import PoolNeed, PriorityClass, RetryPolicy
from rota.core.state import TIMERS_SLACK, State
from rota.core.states import RunState
from tests.unit.core.world import TENANT, World, graph, task

CONTAINERS = (dict, list, set, deque, bytearray)
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# Heaps keep a few entries that will be ignored; what leaked once per tenant would be far beyond it.
SLACK = 80
TENANTS = 150


def sizes(state: State) -> dict[str, int]:
    """Every container that can be reached from the state, by the path to it; those under one path are added up."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    todo: list[tuple[str, object]] = [("state", state)]
    while todo:
        path, value = todo.pop()
        if id(value) in seen or isinstance(value, str | bytes | int | tuple | type(None)):
            continue
        seen.add(id(value))
        if isinstance(value, CONTAINERS):
            found[path] = found.get(path, 0) + len(value)
        if isinstance(value, dict):
            todo += [(f"{path}.key", key) for key in value]
            todo += [(f"{path}.value", item) for item in value.values()]
        elif isinstance(value, list | deque):
            for item in value:
                parts = item if isinstance(item, tuple) else (item,)
                todo += [(f"{path}.item", part) for part in parts]
        elif type(value).__module__.startswith("rota.core"):
            slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
            names = [*getattr(value, "__dict__", {}), *slots]
            todo += [(f"{path}.{name}", getattr(value, name)) for name in names if hasattr(value, name)]
    return found


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Containers that hold more than they did, beyond the slack of heaps."""
    return {path: (before.get(path, 0), size) for path, size in after.items() if size > before.get(path, 0) + SLACK}


def come_and_go(world: World, tenant: str, number: int) -> None:
    """A short life with everything in it that leaves a note somewhere."""
    priority = list(PriorityClass)[number % 4]
    world.pool("p", tenant=tenant, slots=2)
    world.pool("rate", tenant=tenant, starts_per_minute=1)
    world.worker(f"w-{tenant}", tenant=tenant, slots=2, properties=(("site", tenant),))
    needs = (PoolNeed("p", 1, tenant), PoolNeed("rate"))
    whole = graph(
        task("limited", timeout_ms=20 * DAY_MS, pools=needs, requires=(("site", tenant),)),
        task("cooling", retry=RetryPolicy(retries=5, delay_ms=20 * DAY_MS)),
        task("waiting", pools=needs),
        name=f"g-{tenant}",
        max_active_tasks=2,
        run_timeout_ms=25 * DAY_MS,
    )
    world.submit(whole, "done", tenant=tenant, priority=priority, merge=tenant, share=tenant)
    world.submit(whole, "stopped", tenant=tenant, priority=priority, share="all")
    for granted in world.turn():
        world.start(granted)
        if granted.tenant == tenant and granted.task == 1:
            world.fail(granted)
    world.client(
        cm.PutSchedule,
        tenant=tenant,
        schedule="s",
        graph=whole,
        spec=ScheduleSpec(every_ms=HOUR_MS, start_at=world.now),
    )
    world.fire_due()
    for run in [run for owner, run in world.state.runs if owner == tenant]:
        world.client(cm.CancelRun, tenant=tenant, run=run)
    world.follow_up()
    world.client(cm.DropSchedule, tenant=tenant, schedule="s")
    world.client(cm.DropPool, tenant=tenant, name="p")
    world.client(cm.DropPool, tenant=tenant, name="rate")
    world.client(cm.ForgetWorker, tenant=tenant, worker=f"w-{tenant}")


def settled(world: World) -> dict[str, int]:
    """The sizes of everything once what has ended was archived and written, and its answers were kept long enough."""
    world.advance(RECEIPTS_KEPT_MS + 10 * 60_000)
    world.turn()
    take_batch(world.state, world.now)
    Tally().turned(world.state)
    return sizes(world.state)


@pytest.mark.slow
def test_many_short_tenants_leave_nothing_behind():
    world = World()
    world.worker("w", slots=3)
    come_and_go(world, "first", 0)
    before = settled(world)
    for number in range(TENANTS):
        come_and_go(world, f"t{number}", number)
        if number % 50 == 10:
            world.advance(60_000)
    assert {run.row.state for run in world.state.runs.values()} == {RunState.CANCELLED}
    middle = sizes(world.state)
    assert grown(before, middle), "while they live there is more to keep"
    assert grown(before, settled(world)) == {}


def test_every_run_of_a_tenant_that_stays_leaves_nothing_behind():
    world = World()
    world.worker("w", slots=3)
    world.submit(task("stays", kind="rare"), "stays")

    def live(number: int) -> None:
        run = f"r{number}"
        world.submit(graph(task("x"), task("never", kind="rare"), name=run), run)
        for granted in world.turn():
            world.succeed(granted)
        world.client(cm.CancelRun, run=run)
        world.follow_up()

    live(0)
    before = settled(world)
    for number in range(1, 3 * SLACK):
        live(number)
    assert grown(before, settled(world)) == {}


def test_the_walk_sees_what_is_kept_by_mistake():
    world = World()
    before = sizes(world.state)
    for number in range(2 * SLACK):
        world.state.books.tenant(PriorityClass.LOW, f"t{number}")
    (leaked,) = grown(before, sizes(world.state)).items()
    assert leaked == ("state.index.books.tenants", (0, 2 * SLACK))


# Timers.


def test_timers_of_what_has_ended_go_with_it():
    world = World()
    world.worker("w")
    world.submit(graph(task("x", timeout_ms=1_000), run_timeout_ms=5_000))
    (granted,) = world.turn()
    world.start(granted)
    assert {kind for kind, *_ in world.state.armed} >= {"overrun", "deadline"}
    world.succeed(granted)
    assert {kind for kind, *_ in world.state.armed}.isdisjoint({"overrun", "deadline"})


def test_a_timer_that_is_moved_again_and_again_takes_no_more_room():
    state = World().state
    for number in range(10 * TIMERS_SLACK):
        state.set_timer(number, "due", "t", "r", 0)
    assert len(state.timers) <= TIMERS_SLACK + 3
    assert [state.due_timer(10**9), state.due_timer(10**9)] == [("due", ("t", "r", 0)), None]


def test_a_timer_that_was_dropped_never_comes_up():
    state = World().state
    for number in range(10 * TIMERS_SLACK):
        state.set_timer(number, "due", "t", "r", number)
    for number in range(1, 10 * TIMERS_SLACK):
        state.drop_timer("due", "t", "r", number)
    assert len(state.timers) <= TIMERS_SLACK + 3
    assert [state.due_timer(10**9), state.due_timer(10**9)] == [("due", ("t", "r", 0)), None]


# Receipts.


def pause(world: World, number: int) -> cm.PauseRun:
    command = cm.PauseRun(tenant=TENANT, command_id=f"p{number}", run="r", paused=number % 2 == 0)
    world.do(command)
    return command


def test_beyond_their_number_the_oldest_receipts_go_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decision, "RECEIPTS_MAX", 5)
    world = World()
    world.submit(task("x"))
    for number in range(5):
        pause(world, number)
        world.advance(RECEIPTS_KEPT_MS_LEAST)
    assert len(world.state.receipts) == 5
    last = pause(world, 5)
    assert [command_id for _, command_id in world.state.receipts] == ["p2", "p3", "p4", "p5"]
    assert world.do(last).is_repeat


def test_no_receipt_goes_before_its_least_time_however_many_there_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decision, "RECEIPTS_MAX", 5)
    world = World()
    world.submit(task("x"))
    asked = [pause(world, number) for number in range(20)]
    world.advance(RECEIPTS_KEPT_MS_LEAST - 1)
    assert all(world.do(command).is_repeat for command in asked)
    world.advance(1)
    for number in range(20, 40):
        pause(world, number)
    assert len(world.state.receipts) == 20, "two went for each that came"


def test_a_run_that_is_archived_makes_room_for_its_receipt(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decision, "RECEIPTS_MAX", 3)
    world = World()
    world.worker("w", slots=10)
    for number in range(10):
        world.submit(task("x"), f"r{number}")
    for granted in world.turn():
        world.succeed(granted)
    world.advance(10 * 60_000)
    assert not world.state.runs
    world.submit(task("x"), "last")
    for granted in world.turn():
        world.succeed(granted)
    world.advance(10 * 60_000)
    assert len(world.state.receipts) < 10


def test_receipts_go_after_an_hour_in_the_order_in_which_they_came_also_after_a_restart():
    world = World()
    world.submit(task("x"))
    for number in range(4):
        pause(world, number)
        world.advance(60_000)
    after = world.restarted()
    assert [command_id for _, command_id in after.state.receipts] == ["p0", "p1", "p2", "p3"]
    after.advance(RECEIPTS_KEPT_MS - 4 * 60_000 - 1)
    assert len(after.state.receipts) == 4
    after.advance(1)
    assert [command_id for _, command_id in after.state.receipts] == ["p1", "p2", "p3"]
    after.advance(180_000)
    assert not after.state.receipts
    assert ("receipts",) not in after.state.armed
