"""The run's logical date as the default of a parameter: a concrete value of each run, in the workflow's time zone."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import commands as cm
from rota.core.calendar import AT_MAX, ScheduleSpec, local_time
from rota.core.model import Graph, Param, ParamType
from rota.core.params import LOGICAL_DATE_TYPES, check_declared, logical_date
from rota.core.workflow_questions import view_workflow
from tests.refusals import check_refusal, refused
from tests.unit.core.world import TENANT, World, graph, task

pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode
T = ParamType
HOUR_MS = 3_600_000
ONE = graph(task("a"), name="w")
DAY = Param(name="day", type=T.DATE, defaults_to_logical_date=True)
AT = Param(name="at", type=T.DATETIME, defaults_to_logical_date=True)
TEXT = Param(name="text", type=T.STRING, defaults_to_logical_date=True)
GOAL = Param(name="goal", type=T.INTEGER, default=pack(100))
DECLARED = (GOAL, DAY, AT, TEXT)
# An instant in UTC, a time zone, and what its clocks and calendar show then.
ON_CLOCKS = [
    ("2026-11-16T23:30", "UTC", "2026-11-16T23:30:00+00:00"),
    # Around midnight, ahead of UTC and behind it.
    ("2026-11-16T22:59", "Europe/Berlin", "2026-11-16T23:59:00+01:00"),
    ("2026-11-16T23:00", "Europe/Berlin", "2026-11-17T00:00:00+01:00"),
    ("2026-11-16T14:59", "Asia/Tokyo", "2026-11-16T23:59:00+09:00"),
    ("2026-11-16T15:00", "Asia/Tokyo", "2026-11-17T00:00:00+09:00"),
    ("2026-11-17T04:59", "America/New_York", "2026-11-16T23:59:00-05:00"),
    ("2026-11-17T05:00", "America/New_York", "2026-11-17T00:00:00-05:00"),
    ("2026-11-16T09:59", "Pacific/Kiritimati", "2026-11-16T23:59:00+14:00"),
    ("2026-11-16T10:00", "Pacific/Kiritimati", "2026-11-17T00:00:00+14:00"),
    ("2026-11-17T10:59", "Pacific/Pago_Pago", "2026-11-16T23:59:00-11:00"),
    ("2026-11-16T18:15", "Asia/Kathmandu", "2026-11-17T00:00:00+05:45"),
    # The days on which clocks change: the hour that is left out, and the one that comes twice.
    ("2026-03-29T00:59", "Europe/Berlin", "2026-03-29T01:59:00+01:00"),
    ("2026-03-29T01:00", "Europe/Berlin", "2026-03-29T03:00:00+02:00"),
    ("2026-10-25T00:30", "Europe/Berlin", "2026-10-25T02:30:00+02:00"),
    ("2026-10-25T01:30", "Europe/Berlin", "2026-10-25T02:30:00+01:00"),
    ("2026-10-25T22:30", "Europe/Berlin", "2026-10-25T23:30:00+01:00"),
    # A midnight that is left out, and one that comes twice.
    ("2018-11-04T03:00", "America/Sao_Paulo", "2018-11-04T01:00:00-02:00"),
    ("2018-02-18T01:30", "America/Sao_Paulo", "2018-02-17T23:30:00-02:00"),
    ("2018-02-18T02:30", "America/Sao_Paulo", "2018-02-17T23:30:00-03:00"),
    # A day that was left out: Samoa had no 30 December 2011.
    ("2011-12-30T09:59", "Pacific/Apia", "2011-12-29T23:59:00-10:00"),
    ("2011-12-30T10:00", "Pacific/Apia", "2011-12-31T00:00:00+14:00"),
]


def millis(text: str) -> int:
    """An instant in UTC, in milliseconds."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


def params_of(world: World, run: str = "r") -> dict[str, object]:
    return unpack(world.run(run).row.params)


def expected(shown: str) -> dict[str, object]:
    return {"goal": 100, "day": shown[:10], "at": shown, "text": shown}


def deploy(world: World, whole: Graph = ONE, **fields: object) -> None:
    world.client(cm.DeployWorkflow, graph=whole, **{"params": DECLARED, **fields})


def runs_of(world: World, schedule: str) -> list[str]:
    return [run.row.id for run in world.state.runs.values() if run.row.schedule == schedule]


@pytest.mark.parametrize(("at", "zone", "shown"), ON_CLOCKS)
def test_every_way_of_making_a_run_gives_it_its_logical_date_in_the_time_zone_of_the_workflow(
    at: str, zone: str, shown: str
):
    slot = millis(at)
    # By hand, about another instant; by hand, about now; and of a graph that is not deployed.
    world = World(now=slot)
    deploy(world, zone=zone)
    world.client(cm.SubmitRun, run="now", workflow="w")
    world.client(cm.SubmitRun, run="graph", graph=ONE, declared=DECLARED, zone=zone)
    world.advance(40 * HOUR_MS)
    world.client(cm.SubmitRun, run="then", workflow="w", logical_at=slot)
    world.client(cm.SubmitRun, run="graph then", graph=ONE, declared=DECLARED, zone=zone, logical_at=slot)
    # By a schedule, and by a backfill.
    calendar = World(now=slot - 1)
    deploy(calendar, schedule=ScheduleSpec(every_ms=HOUR_MS, start_at=slot, zone=zone))
    calendar.advance(1)
    calendar.client(cm.StartBackfill, backfill="b", workflow="w", start_at=slot, end_at=slot)
    calendar.fire_due()
    (scheduled,), (filled,) = runs_of(calendar, "w"), runs_of(calendar, "b")
    found = [params_of(world, run) for run in ("now", "graph", "then", "graph then")]
    found += [params_of(calendar, run) for run in (scheduled, filled)]
    assert found == [expected(shown)] * 6
    # Every value is stored with its run.
    again = calendar.restarted()
    assert [params_of(again, run) for run in (scheduled, filled)] == [expected(shown)] * 2


@given(st.integers(0, AT_MAX), st.sampled_from(sorted({zone for _, zone, _ in ON_CLOCKS})))
def test_a_value_names_the_instant_and_the_day_of_the_zone(at: int, zone: str):
    moment = datetime.fromisoformat(logical_date(AT, at, zone))
    assert round(moment.timestamp() * 1_000) == at
    assert logical_date(TEXT, at, zone) == logical_date(AT, at, zone)
    assert logical_date(DAY, at, zone) == local_time(at, zone).date().isoformat()
    assert local_time(at, zone).utcoffset() == moment.astimezone(ZoneInfo(zone)).utcoffset() == moment.utcoffset()


def test_a_value_that_a_run_is_given_counts_more_in_every_way():
    given_values = {"day": "2020-02-29", "text": "x"}
    slot = millis("2026-11-16T06:00")
    world = World(now=slot - 1)
    deploy(world, schedule=ScheduleSpec(every_ms=HOUR_MS, start_at=slot))
    world.advance(1)
    world.client(cm.SubmitRun, run="hand", workflow="w", params=pack(given_values))
    world.client(cm.SubmitRun, run="graph", graph=ONE, declared=DECLARED, params=pack(given_values))
    world.client(cm.StartBackfill, backfill="b", workflow="w", start_at=slot, end_at=slot, params=pack(given_values))
    world.fire_due()
    for run in ("hand", "graph", *runs_of(world, "b")):
        assert params_of(world, run) == {**expected("2026-11-16T06:00:00+00:00"), **given_values}
    nullable = Param(name="day", type=T.DATE, nullable=True, defaults_to_logical_date=True)
    world.client(cm.SubmitRun, run="none", graph=ONE, declared=(nullable,), params=pack({"day": None}))
    assert params_of(world, "none") == {"day": None}


@pytest.mark.parametrize("fields", [{"workflow": "w"}, {"graph": ONE, "declared": DECLARED}])
def test_a_repeated_command_is_the_same_run_though_time_has_passed(fields: dict[str, object]):
    world = World(now=millis("2026-11-16T23:59"))
    deploy(world)
    command = cm.SubmitRun(tenant=TENANT, command_id="once", run="r", params=pack({"goal": 7}), **fields)
    world.do(command)
    before = params_of(world)
    world.advance(HOUR_MS)
    assert world.do(command).is_repeat
    assert params_of(world) == before
    other = msgspec.structs.replace(command, params=pack({"goal": 8}))
    check_refusal(world.refusal(other), "command.id_reused")


def test_a_backfill_goes_on_with_its_dates_after_other_versions_were_deployed():
    slot = millis("2026-11-16T00:00")
    world = World(now=slot + 100 * HOUR_MS)
    world.worker("w", slots=1)
    daily = ScheduleSpec(cron="0 0 * * *", zone="Asia/Tokyo")
    deploy(world, schedule=daily)
    end_at = slot + 72 * HOUR_MS
    world.client(cm.StartBackfill, backfill="b", workflow="w", start_at=slot, end_at=end_at, max_active_runs=1)
    days: list[object] = []
    for number in range(3):
        world.fire_due()
        days.append(params_of(world, runs_of(world, "b")[-1])["day"])
        deploy(world, graph(task(f"t{number}"), name="w"), params=(GOAL,), schedule=daily)
        for granted in world.turn():
            world.succeed(granted)
    assert days == ["2026-11-17", "2026-11-18", "2026-11-19"]


REFUSED = [
    *(Param(name="p", type=kind, defaults_to_logical_date=True) for kind in T if kind not in LOGICAL_DATE_TYPES),
    Param(name="p", type=T.DATE, default=pack("2026-11-16"), defaults_to_logical_date=True),
    Param(name="p", type=T.STRING, choices=(pack("2026-11-16"),), defaults_to_logical_date=True),
    Param(name="p", type=T.STRING, pattern="[0-9-]+", defaults_to_logical_date=True),
    Param(name="p", type=T.STRING, least=1, defaults_to_logical_date=True),
    Param(name="p", type=T.STRING, most=100, defaults_to_logical_date=True),
]


@pytest.mark.parametrize("param", REFUSED)
def test_what_may_not_fit_every_logical_date_is_refused_where_it_is_declared(param: Param):
    with refused("field.value", "'p'", path="params[0].default"):
        check_declared((param,))


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"zone": "Europe/Berln"}, "schedule.zone", "zone"),
        ({"zone": "Europe/Berlin", "schedule": ScheduleSpec(cron="@daily", zone="UTC")}, "field.value", "zone"),
    ],
)
def test_a_zone_that_is_none_or_not_that_of_the_schedule_is_refused(fields: dict[str, object], code: str, path: str):
    world = World()
    check_refusal(world.refusal(world.command(cm.DeployWorkflow, graph=ONE, **fields)), code, path=path)


def test_parameters_of_a_deployed_workflow_cannot_be_declared_again():
    world = World()
    deploy(world)
    command = world.command(cm.SubmitRun, run="r", workflow="w", declared=DECLARED)
    check_refusal(world.refusal(command), "field.value", path="declared")


@pytest.mark.parametrize(
    ("of_version", "of_schedule", "zone"),
    [
        ("Asia/Tokyo", "Asia/Tokyo", "Asia/Tokyo"),
        ("Asia/Tokyo", None, "Asia/Tokyo"),
        # Deployed before versions had a zone.
        ("", "Asia/Tokyo", "Asia/Tokyo"),
        ("", None, "UTC"),
    ],
)
def test_a_version_without_a_zone_has_that_of_its_schedule_in_every_way(
    of_version: str, of_schedule: str | None, zone: str
):
    slot = millis("2026-11-16T15:00")
    world = World(now=slot - 1)
    spec = None if of_schedule is None else ScheduleSpec(cron="0 * * * *", zone=of_schedule, start_at=slot)
    deploy(world, schedule=spec, zone=of_version)
    workflow = world.state.workflows[(TENANT, "w")]
    (version,) = workflow.versions
    workflow.versions = (msgspec.structs.replace(version, zone=of_version),)
    world.advance(1)
    world.client(cm.SubmitRun, run="hand", workflow="w", logical_at=slot)
    if spec is not None:
        world.client(cm.StartBackfill, backfill="b", workflow="w", start_at=slot, end_at=slot)
    world.fire_due()
    made = list(world.state.runs)
    assert len(made) == (1 if spec is None else 3)
    day = local_time(slot, zone).date().isoformat()
    assert {params_of(world, run)["day"] for _, run in made} == {day}
    assert view_workflow(world.state, workflow).zone == zone


TWO = graph(task("a"), task("b"), name="w")
REGION = Param(name="region", type=T.STRING)


@pytest.mark.parametrize(
    ("declared", "given_values", "now_declared", "expected_values"),
    [
        ((), {}, (), {}),
        ((), {}, (DAY,), {"day": "2026-11-17"}),
        ((GOAL,), {"goal": 7}, (DAY, GOAL), {"goal": 7, "day": "2026-11-17"}),
        ((), {}, (GOAL, AT), {"goal": 100, "at": "2026-11-17T00:00:00+09:00"}),
        # What it has is kept: a value, an earlier default, and what the version does not declare any more.
        ((DAY,), {"day": "2020-02-29"}, (DAY,), {"day": "2020-02-29"}),
        ((GOAL,), {}, (Param(name="goal", type=T.INTEGER, default=pack(5)),), {"goal": 100}),
        ((REGION,), {"region": "eu"}, (GOAL,), {"region": "eu", "goal": 100}),
        ((REGION,), {"region": "eu"}, (REGION,), {"region": "eu"}),
        ((), {}, (Param(name="note", type=T.STRING, nullable=True, default=pack(None)),), {"note": None}),
    ],
)
def test_a_run_that_is_moved_gets_what_the_other_version_declares_besides(
    declared: tuple[Param, ...],
    given_values: dict[str, object],
    now_declared: tuple[Param, ...],
    expected_values: dict[str, object],
):
    slot = millis("2026-11-16T15:00")
    world = World(now=slot + HOUR_MS)
    deploy(world, params=declared)
    world.client(cm.SubmitRun, run="r", workflow="w", logical_at=slot, params=pack(given_values))
    world.turn()
    deploy(world, TWO, params=now_declared, zone="Asia/Tokyo")
    world.client(cm.MoveRun, run="r")
    found = world.run().row
    assert (found.version, unpack(found.params) if found.params else {}) == (2, expected_values)
    assert world.restarted().run().row.params == found.params


def test_a_run_is_not_moved_to_a_version_with_a_parameter_that_it_has_not_and_that_has_no_default():
    world = World()
    deploy(world)
    world.client(cm.SubmitRun, run="r", workflow="w")
    world.turn()
    deploy(world, TWO, params=(*DECLARED, REGION))
    refusal = world.refusal(world.command(cm.MoveRun, run="r"))
    check_refusal(refusal, "field.value", "'region'", path="params.region")
