"""Schedules as definitions: what is refused at the door, what is counted when one changes, what writes nothing."""

from rota.core import commands as cm
from rota.core.bounds import ID_CHARS_MAX, SCHEDULE_ID_CHARS_MAX
from rota.core.calendar import AT_MAX, ScheduleSpec
from rota.core.graph import check_id
from rota.core.model import PriorityClass
from rota.core.records import Schedule
from rota.core.spans import show_slot
from tests.unit.core.world import TENANT, World, graph, task

MINUTE_MS = 60_000
EACH_MINUTE = ScheduleSpec(every_ms=MINUTE_MS, catch_up=True, max_active_runs=1)
GRAPH = graph(task("x"), name="s")


def put(world: World, spec: ScheduleSpec = EACH_MINUTE, schedule: str = "s", **fields: object) -> Schedule:
    world.client(cm.PutSchedule, schedule=schedule, spec=spec, **{"graph": GRAPH, **fields})
    world.fire_due()
    return world.state.schedules[(TENANT, schedule)]


# Names.


def test_the_longest_id_of_a_schedule_leaves_room_for_the_ids_of_its_runs():
    check_id(f"{'s' * SCHEDULE_ID_CHARS_MAX}@{AT_MAX}+{10**9}", "run")
    world = World()
    put(world, schedule="s" * SCHEDULE_ID_CHARS_MAX)
    world.advance(2 * MINUTE_MS)
    assert all(len(run) <= ID_CHARS_MAX for _, run in world.state.runs)
    assert world.state.runs


def test_an_id_too_long_for_its_runs_is_refused_at_the_door_with_the_limit():
    world = World()
    command = world.command(cm.PutSchedule, schedule="s" * (SCHEDULE_ID_CHARS_MAX + 1), graph=GRAPH, spec=EACH_MINUTE)
    refused = world.refusal(command)
    assert (refused.code, refused.path) == ("field.size", "schedule")
    assert str(SCHEDULE_ID_CHARS_MAX) in refused.hint


def test_a_slot_whose_name_is_taken_gets_a_number():
    world = World(now=MINUTE_MS * 1_000_000)
    put(world, ScheduleSpec(every_ms=MINUTE_MS))
    slot = world.now + MINUTE_MS
    name = f"s@{show_slot(slot)}"
    world.submit(task("y"), name)
    world.submit(task("y"), f"{name}+2")
    world.advance(MINUTE_MS)
    assert world.run(f"{name}+3").row.slot_at == slot


# Changing one.


def test_slots_that_were_held_back_when_the_calendar_changed_are_counted_as_missed():
    world = World()
    held = put(world)
    world.advance(5 * MINUTE_MS)
    assert (held.fired, held.missed) == (1, 0), "the cap lets one through and holds the others"
    changed = put(world, ScheduleSpec(every_ms=2 * MINUTE_MS, catch_up=True, max_active_runs=1))
    assert (changed.fired, changed.missed, changed.cursor) == (1, 4, world.now)
    assert world.restarted().state.schedules[(TENANT, "s")].missed == 4


def test_a_calendar_that_changes_with_nothing_held_back_has_missed_nothing():
    world = World()
    put(world, ScheduleSpec(every_ms=MINUTE_MS))
    world.advance(5 * MINUTE_MS)
    changed = put(world, ScheduleSpec(every_ms=2 * MINUTE_MS))
    assert (changed.fired, changed.missed) == (5, 0)


def test_slots_of_a_paused_schedule_count_as_missed_when_its_calendar_changes():
    world = World()
    put(world, paused=True)
    paused = world.state.schedules[(TENANT, "s")]
    assert paused.cursor is None
    put(world)
    put(world, paused=True)
    world.advance(3 * MINUTE_MS)
    assert put(world, ScheduleSpec(every_ms=2 * MINUTE_MS), paused=True).missed == 3


def test_a_schedule_that_is_put_as_it_is_writes_nothing():
    world = World()
    put(world)
    world.advance(3 * MINUTE_MS)
    again = world.client(cm.PutSchedule, schedule="s", graph=GRAPH, spec=EACH_MINUTE)
    assert (again.changes, again.answer) == ([], "s")
    for other in ({"paused": True}, {"priority": PriorityClass.HIGH}, {"graph": graph(task("y"), name="s")}):
        assert world.client(cm.PutSchedule, **{"schedule": "s", "graph": GRAPH, "spec": EACH_MINUTE, **other}).changes
