"""Schedules as definitions: what is refused at the door, what is counted when one changes, what writes nothing."""

from rota.core import commands as cm
from rota.core.bounds import ID_CHARS_MAX, SCHEDULE_ID_CHARS_MAX
from rota.core.calendar import AT_MAX, ScheduleSpec
from rota.core.graph import check_id
from rota.core.records import Schedule
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
    world.submit(task("y"), f"s@{slot}")
    world.submit(task("y"), f"s@{slot}+2")
    world.advance(MINUTE_MS)
    assert world.run(f"s@{slot}+3").row.slot_at == slot
