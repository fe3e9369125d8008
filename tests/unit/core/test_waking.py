"""Whom the coordinator tells of work that waits to be claimed."""

from rota.core import commands as cm
from rota.core.backlog import BacklogLine, GetScheduler, ListBacklog, SchedulerView
from rota.core.cycle import COOLDOWN_MS, Wake
from rota.core.model import Mood, PoolNeed
from rota.core.presence import take_mood
from rota.core.questions import answer
from rota.core.waking import in_order, stir_all, wakes, woke
from tests.unit.core.test_claims import claim, item, session
from tests.unit.core.world import TENANT, World, task


def woken(world: World, *, everybody: bool = False) -> list[tuple[str, str]]:
    """Who was told of what, in this turn."""
    world.turn()
    found = wakes(world.state, world.now, everybody=everybody)
    for wake in found:
        woke(world.state, wake, world.now)
    return [(wake.item[1], wake.session[1]) for wake in found]


def sweep(world: World) -> list[tuple[str, str]]:
    stir_all(world.state, world.now)
    return woken(world, everybody=True)


def test_a_session_is_told_of_new_work_once():
    world = World()
    session(world)
    assert woken(world) == []
    item(world, "one")
    assert woken(world) == [("one", "s")]
    assert woken(world) == []


def test_each_of_several_is_told_to_another_session():
    world = World()
    session(world, "a")
    session(world, "b")
    for name in ("one", "two", "three-more"):
        item(world, name)
    assert sorted(woken(world)) == [("one", "a"), ("three-more", "b")]


def test_a_session_that_becomes_free_is_told_of_what_waits():
    world = World()
    session(world)
    item(world, "one")
    item(world, "two")
    assert woken(world) == [("one", "s")]
    claim(world)
    assert woken(world) == []
    world.do(cm.LeaveWorker(tenant=TENANT, worker="s", incarnation="i1"))
    session(world, "t")
    assert woken(world) == [("one", "t")]


def test_who_is_busy_talking_or_about_to_leave_is_not_told():
    world = World()
    session(world)
    worker = world.state.workers[(TENANT, "s")]
    for mood in (Mood.PROMPTING, Mood.STOPPING):
        take_mood(world.state, worker, mood)
        item(world, f"for-{mood}")
        assert woken(world) == []
    take_mood(world.state, worker, Mood.IDLE)
    assert len(woken(world)) == 1


def test_the_same_is_not_told_again_before_the_cooldown_is_over():
    world = World()
    session(world)
    item(world, "one")
    assert woken(world) == [("one", "s")]
    world.advance(COOLDOWN_MS - 1)
    assert sweep(world) == []
    world.advance(1)
    assert sweep(world) == [("one", "s")]


def test_nobody_is_told_of_what_is_paused():
    world = World()
    session(world, workspace="w")
    world.client(cm.PauseScheduler, scope="workspace=w")
    item(world, "one", workspace="w")
    assert woken(world) == []
    world.client(cm.PauseScheduler, scope="workspace=w", paused=False)
    assert woken(world) == [("one", "s")]


def test_wakes_are_forgotten_when_they_do_not_matter_any_more():
    world = World()
    session(world)
    item(world, "one")
    woken(world)
    assert len(world.state.wakes) == 1
    world.advance(3_600_000)
    stir_all(world.state, world.now)
    assert len(world.state.wakes) == 0


def test_a_wake_gives_nobody_anything():
    world = World()
    session(world)
    item(world, "one")
    before = len(world.changes)
    assert woken(world) == [("one", "s")]
    assert world.changes[before:] == []
    assert not world.state.leases
    assert woke(world.state, Wake((TENANT, "one"), (TENANT, "gone")), world.now) is None


def test_a_heap_is_read_in_order_and_left_alone():
    heap = [(at, "", number, None, 0) for number, at in enumerate([1, 3, 2, 7, 4, 9, 5])]
    assert [entry[0] for entry in in_order(heap)] == sorted(entry[0] for entry in heap)


def test_who_was_heard_of_just_now_is_told_first():
    world = World()
    session(world, "deaf")
    world.silence("deaf")
    world.advance(20_000)
    session(world, "listens")
    item(world, "one")
    assert woken(world) == [("one", "listens")]


def test_who_could_have_what_a_pool_held_back_is_told_when_it_opens():
    world = World()
    world.pool("p", slots=1)
    session(world, "a")
    session(world, "b")
    needs = (PoolNeed("p"),)
    for run in ("one", "two"):
        world.submit(task("x", queue="agents", pools=needs), run)
    world.follow_up()
    woken(world)
    assert claim(world, "a") == "one"
    assert woken(world) == []
    world.do(cm.LeaveWorker(tenant=TENANT, worker="a", incarnation="i1"))
    assert [session for _, session in woken(world)] == ["b"]


# The backlog.


def backlog(world: World, **fields: object) -> list[str]:
    found = answer(world.state, ListBacklog(tenant=TENANT, **fields), world.now)
    assert isinstance(found, tuple)
    return [line.run + ("*" if line.paused else "") for line in found if isinstance(line, BacklogLine)]


def test_the_backlog_is_in_the_order_of_claims_with_what_is_held_back_at_its_end():
    world = World()
    session(world, slots=9)
    item(world, "low", "low")
    item(world, "urgent", "urgent")
    item(world, "paused", "urgent")
    item(world, "elsewhere", "high", workspace="w")
    world.client(cm.PauseRun, run="paused")
    world.client(cm.PauseScheduler, scope="workspace=w")
    assert backlog(world) == ["urgent", "elsewhere*", "low", "paused*"]
    assert backlog(world, limit=1) == ["urgent"]
    assert backlog(world, include_paused=False) == ["urgent", "low"]
    assert backlog(world, scope="workspace=w") == ["elsewhere*"]
    assert [claim(world), claim(world), claim(world)] == ["urgent", "low", ""]


def test_how_the_scheduler_stands():
    world = World()
    session(world, slots=9)
    item(world, "one")
    item(world, "two", capability="flying")
    item(world, "three")
    claim(world)
    world.client(cm.PauseScheduler, reason="night")
    found = answer(world.state, GetScheduler(tenant=TENANT), world.now)
    assert isinstance(found, SchedulerView)
    assert (found.paused, found.queued, found.held, found.starved, found.sessions) == (True, 2, 1, 1, 1)
    assert found.pauses[0].reason == "night"
