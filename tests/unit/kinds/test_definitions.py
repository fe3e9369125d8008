"""What is said about a workflow: parameters from its signature, its schedule, options, templates in its tasks."""

import enum
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
import pytest

import rota
from rota.core.calendar import Misfire, ScheduleSpec
from rota.core.errors import Refused
from rota.core.model import Param, ParamType
from rota.kinds.workflow.authoring import WorkflowFunction
from rota.testing import run_workflow
from rota.wire.work import ParamOf, TemplateOf, decode_command, decode_http, decode_python
from tests.refusals import refused
from tests.unit.kinds.authored import other, plain


def workflow(function: Any = None, **options: Any) -> WorkflowFunction:
    def nothing() -> None:
        plain()

    return rota.workflow(**options)(function or nothing)


# Parameters.


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def packed(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (str, {"type": ParamType.STRING}),
        (int, {"type": ParamType.INTEGER}),
        (float, {"type": ParamType.NUMBER}),
        (bool, {"type": ParamType.BOOLEAN}),
        (list[int], {"type": ParamType.ARRAY}),
        (dict[str, int], {"type": ParamType.OBJECT}),
        (date, {"type": ParamType.DATE}),
        (datetime, {"type": ParamType.DATETIME}),
        (int | None, {"type": ParamType.INTEGER, "nullable": True}),
        (int | str, {"type": ParamType.ANY}),
        (Any, {"type": ParamType.ANY}),
        (object, {"type": ParamType.ANY}),
        (Literal["a", "b"], {"type": ParamType.STRING, "choices": (packed("a"), packed("b"))}),
        (Literal[1, "b"], {"type": ParamType.ANY, "choices": (packed(1), packed("b"))}),
        (Colour, {"type": ParamType.STRING, "choices": (packed("red"), packed("blue"))}),
        (
            Annotated[int, rota.Param(least=1, most=10, doc="how many")],
            {"type": ParamType.INTEGER, "least": 1, "most": 10, "doc": "how many"},
        ),
        (
            Annotated[str | None, "other", rota.Param(pattern="[a-z]+")],
            {"type": ParamType.STRING, "nullable": True, "pattern": "[a-z]+"},
        ),
        ("no.such.Thing", {"type": ParamType.ANY}),
        ("int", {"type": ParamType.INTEGER}),
    ],
    ids=str,
)
def test_annotations_say_what_a_parameter_is(said: Any, expected: dict[str, Any]):
    def g(value) -> None:
        plain()

    g.__annotations__["value"] = said
    assert workflow(g).param_specs == (Param(name="value", **expected),)


def test_defaults_are_kept_as_a_run_would_be_given_them():
    def g(day: date = date(2026, 1, 2), colour: Colour = Colour.RED, n: int | None = None) -> None:
        plain()

    made = workflow(g)
    assert [param.default for param in made.param_specs] == [packed("2026-01-02"), packed("red"), packed(None)]
    assert made.params({"day": date(2026, 3, 4)}) == {"day": "2026-03-04", "colour": "red", "n": None}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n": 0}, r"'g': 0 .*\(at params\.n\)"),
        ({"n": "5"}, r"'g': '5' .*\(at params\.n\)"),
        ({"day": "2026-02-30"}, r"'g': '2026-02-30' .*\(at params\.day\)"),
        ({"colour": "green"}, r"'g': 'green' .*\(at params\.colour\)"),
        ({"night": 1}, r"'g': .*'night' \(at params\)"),
        ({"day": object()}, r"field\.type: .*'g': .* object .*\(at params\)"),
    ],
)
def test_what_a_run_is_given_is_checked_before_it_is_sent(given: dict[str, Any], said: str):
    def g(n: Annotated[int, rota.Param(least=1)] = 1, day: date = date(2026, 1, 1), colour: Colour = Colour.RED):
        plain()

    with pytest.raises(Refused, match=said):
        workflow(g).params(given)


def test_an_annotation_that_cannot_be_looked_up_leaves_the_others_their_types():
    def g(where: "Elsewhere | None" = None, n: "Annotated[int, rota.Param(least=1)]" = 1):  # noqa: F821 - the point
        plain()

    where, n = workflow(g).param_specs
    assert (where.type, where.nullable) == (ParamType.ANY, True)
    assert (n.type, n.least) == (ParamType.INTEGER, 1)


def test_a_default_that_its_own_parameter_would_refuse_is_refused_with_the_line():
    def g(n: Annotated[int, rota.Param(least=5)] = 1):
        plain()

    line = g.__code__.co_firstlineno
    with refused("field.value", f"test_definitions.py:{line}: ", "'g': 1 ", path="params[0].default"):
        workflow(g)

    def h(what: object = object()):
        plain()

    with pytest.raises(TypeError, match=r"'h', .*'what': <object object .*> "):
        workflow(h)


def test_an_instant_without_a_zone_is_in_that_of_the_workflow():
    @rota.task
    def seen(at: datetime) -> str:
        return at.isoformat()

    @rota.workflow(timezone="Europe/Berlin")
    def g(at: datetime = datetime(2026, 7, 1, 12)):  # noqa: DTZ001 - the point
        seen(at)

    assert run_workflow(g).results["seen"] == "2026-07-01T12:00:00+02:00"
    assert run_workflow(g, {"at": "2026-12-01T12:00:00"}).results["seen"] == "2026-12-01T12:00:00+01:00"
    assert run_workflow(g, {"at": "2026-12-01T12:00:00Z"}).results["seen"] == "2026-12-01T12:00:00+00:00"
    with refused("field.value", "'g'", " 2026-03-29T02:30:00 ", "Europe/Berlin", path="params.at"):
        g.params({"at": "2026-03-29T02:30:00"})

    def h(at: datetime = datetime(2026, 3, 29, 2, 30)):  # noqa: DTZ001 - the point
        seen(at)

    with refused("field.value", "'h'", " 2026-03-29T02:30:00 ", "Europe/Berlin", path="params.at"):
        workflow(h, timezone="Europe/Berlin")


def test_a_float_that_was_written_as_a_whole_number_arrives_as_a_float():
    @rota.task
    def seen(x: float) -> str:
        return repr(x)

    @rota.workflow
    def g(x: float = 1):
        seen(x)

    assert run_workflow(g).results["seen"] == "1.0"
    assert run_workflow(g, {"x": 2}).results["seen"] == "2.0"


def test_a_date_arrives_as_a_date():
    @rota.task
    def kinds(*values: object) -> list[str]:
        return [type(value).__name__ for value in values]

    @rota.workflow
    def g(day: date, at: datetime, text: str):
        kinds(day, at, [text, {"k": day}])

    made = run_workflow(g, {"day": "2026-01-01", "at": datetime(2026, 1, 1, tzinfo=UTC), "text": "x"})
    assert made.results["kinds"] == ["date", "datetime", "list"]
    assert decode_python(g.build().tasks[0].work).args[0] == ParamOf("day", "date")


# Schedules.


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"schedule": "@daily"}, {"cron": "@daily"}),
        ({"schedule": " */5 * * * * "}, {"cron": "*/5 * * * *"}),
        ({"schedule": "@once"}, {"cron": "@once"}),
        ({"schedule": "@continuous"}, {"cron": "@continuous", "max_active_runs": 1}),
        ({"schedule": 90}, {"every_ms": 90_000}),
        ({"schedule": timedelta(hours=1)}, {"every_ms": 3_600_000}),
        (
            {"schedule": "@daily", "timezone": "Europe/Berlin", "start": "2026-01-01", "end": date(2026, 7, 1)},
            {"cron": "@daily", "zone": "Europe/Berlin", "start_at": 1_767_222_000_000, "end_at": 1_782_943_199_999},
        ),
        (
            {"schedule": "0 6 * * *", "start": "2026-11-16", "end": "2026-11-16"},
            {"cron": "0 6 * * *", "start_at": 1_794_787_200_000, "end_at": 1_794_873_599_999},
        ),
        (
            {"schedule": "@daily", "timezone": "Europe/Berlin", "start": datetime(2026, 1, 1, tzinfo=UTC)},
            {"cron": "@daily", "zone": "Europe/Berlin", "start_at": 1_767_225_600_000},
        ),
        ({"schedule": "@daily", "catchup": True}, {"cron": "@daily", "catch_up": True, "max_active_runs": 16}),
        (
            {"schedule": "@daily", "catchup": True, "max_active_runs": 3},
            {"cron": "@daily", "catch_up": True, "max_active_runs": 3},
        ),
        ({"schedule": "@daily", "max_active_runs": 3}, {"cron": "@daily", "max_active_runs": 3}),
        ({"schedule": "@daily", "misfire": "skip"}, {"cron": "@daily", "misfire": Misfire.SKIP}),
    ],
    ids=str,
)
def test_a_schedule_is_what_was_said(options: dict[str, Any], expected: dict[str, Any] | None):
    assert workflow(**options).schedule == (None if expected is None else ScheduleSpec(**expected))


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"schedule": "* * *"}, "schedule.cron", "has 3 fields, not five"),
        ({"schedule": "61 * * * *"}, "schedule.cron", "cannot be read"),
        ({"schedule": "@dayly"}, "schedule.cron", r"'@dayly' .*@daily"),
        ({"schedule": "0 0 30 2 *"}, "schedule.cron", "'0 0 30 2 \\*' never fires"),
        ({"schedule": " "}, "schedule.cron", r"'nothing': .*\(at schedule\)"),
        ({"schedule": 0.5}, "schedule.interval", " 0.5: 500 ms "),
        ({"schedule": timedelta(0)}, "schedule.interval", r"datetime.timedelta\(0\): 0 ms"),
        ({"schedule": timedelta(days=-1)}, "schedule.interval", ": -1 day "),
        ({"schedule": 1e12}, "schedule.interval", r"Use 1.0 s to 3660 days\."),
        ({"schedule": float("nan")}, "field.value", ": nan "),
        ({"schedule": float("inf")}, "field.value", ": inf "),
        ({"schedule": "@daily", "start": "2300-01-01"}, "schedule.window", "start_at is 2300-01-01T00:00:00Z"),
        ({"schedule": "@daily", "timezone": "Europe/Berlinn"}, "schedule.zone", r"'Europe/Berlinn' .* Europe/Berlin\?"),
        ({"timezone": "Mars"}, "schedule.zone", "'Mars' .*IANA"),
        ({"schedule": "@daily", "start": "2026-02-30"}, "field.value", r"'2026-02-30' .*\(at start\)"),
        ({"schedule": "@daily", "end": "soon"}, "field.value", r"'soon' .*\(at end\)"),
        (
            {"schedule": "@daily", "timezone": "Europe/Berlin", "start": "2026-03-29T02:30"},
            "field.value",
            r" 2026-03-29T02:30:00 .*Europe/Berlin.*\(at start\)",
        ),
        ({"schedule": "@daily", "start": "2026-02-02", "end": "2026-01-01"}, "schedule.window", "end_at is"),
        ({"schedule": "@daily", "misfire": "never"}, "schedule.policy", r"'never' .*\(at misfire\)"),
        ({"start": "2026-01-01"}, "schedule.window", "there is none"),
    ],
    ids=str,
)
def test_a_schedule_that_makes_no_sense_is_refused_where_it_is_written(options: Any, code: str, said: str):
    with pytest.raises(Refused, match=said) as caught:
        workflow(**options)
    assert caught.value.code == code
    assert "test_definitions.py:" in caught.value.reason


# Options of workflows and tasks.


def test_a_workflow_says_what_it_is():
    def g():
        """Counts the sheep.

        Every night.
        """
        plain()

    made = workflow(
        g, priority="high", paused=True, max_active_runs=2, max_active_tasks=3, run_timeout=timedelta(hours=1)
    )
    assert (made.name, made.priority, made.paused, made.doc) == ("g", "high", True, "Counts the sheep.\n\nEvery night.")
    assert made.source.endswith(f"test_definitions.py:{g.__code__.co_firstlineno}")
    graph = made.build()
    assert (graph.max_active_runs, graph.max_active_tasks, graph.run_timeout_ms) == (2, 3, 3_600_000)
    assert workflow(g, description="Sheep", name="sheep").doc == "Sheep"
    assert workflow(g).paused is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shedule": "@daily"}, "workflow .*'shedule'.* 'schedule'"),
        ({"default_args": {"retry": 1}}, "task .*'retry'.* 'retries'"),
        ({"default_args": {"id": "x"}}, r"'nothing': .*\bid\b.*default_args"),
        ({"priority": "higher"}, r"'higher' .*\(at priority\)"),
        ({"max_active_runs": "3"}, "'max_active_runs' .* '3'$"),
        ({"max_active_runs": True}, "'max_active_runs' .* True$"),
        ({"schedule": True}, "'schedule' .* True$"),
        ({"run_timeout": True}, "'run_timeout' .* True$"),
        ({"schedule": ["@daily"]}, r"'schedule' .* \['@daily'\]$"),
        ({"start": 5}, "'start' .* 5$"),
    ],
)
def test_an_option_that_there_is_not_is_refused_with_the_nearest(options: dict[str, Any], said: str):
    with pytest.raises((TypeError, Refused), match=said):
        workflow(**options)


def test_times_are_seconds_or_timedeltas():
    def g():
        plain.override(
            retries=2,
            retry_delay=timedelta(minutes=1),
            backoff=3,
            max_retry_delay=timedelta(hours=2),
            execution_timeout=timedelta(seconds=5),
            depends_on_past=True,
            doc="says something",
        )()
        plain.override(id="later", retry_delay=7_200)()
        plain.override(id="pooled", pool="db", pool_slots=2)()
        plain.override(id="several", pool={"db": 1, "gpu": 2})()

    first, later, pooled, several = workflow(g).build().tasks
    assert (first.retry.delay_ms, first.retry.multiplier, first.retry.delay_ms_max) == (60_000, 3, 7_200_000)
    assert (first.timeout_ms, first.depends_on_past, decode_python(first.work).doc) == (5_000, True, "says something")
    assert later.retry.delay_ms_max == 7_200_000, "the first delay is not cut"
    assert [(need.pool, need.amount) for need in pooled.pools] == [("db", 2)]
    assert [(need.pool, need.amount) for need in several.pools] == [("db", 1), ("gpu", 2)]


@pytest.mark.parametrize(
    ("options", "said"),
    [({"pool_slots": 2}, "pool_slots .*pool=…"), ({"pool": {"a": 1}, "pool_slots": 2}, "several pools.* pool_slots")],
)
def test_how_much_of_a_pool_is_said_once(options: Any, said: str):
    def g():
        plain.override(**options)()

    with pytest.raises(TypeError, match=said):
        workflow(g).build()


# Templates.


def test_texts_with_braces_are_templates_at_any_depth_unless_they_are_literal():
    def g(day: str):
        other(
            "{{ ds }}",
            ["a", {"k": ("{% if day %}x{% endif %}".replace("day", "params.day"), 1)}],
            rota.literal("{{ x }}"),
        )

    first, listed, literal = decode_python(workflow(g).build().tasks[0].work).args
    assert first == TemplateOf("{{ ds }}")
    assert TemplateOf("{% if params.day %}x{% endif %}") in listed.items[1].items[0][1].items
    assert (literal.encoding, msgspec.msgpack.decode(literal.content)) == ("plain", "{{ x }}")


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda: other("{{ ds"), "argument 1: line 1 of '{{ ds'"),
        (lambda: other(x={"a": ["{{ ''.__class__ }}"]}), "x: line 1 .*}}.*'__class__'.* underscore"),
        (lambda: other("{{ params.night }}"), "argument 1: line 1 .*}}.*'night'"),
        (lambda: rota.command("echo {{ nope }}"), "line: line 1 .*}}.*'nope'"),
        (lambda: rota.command("true", env={"A": "{{ nope }}"}), "env: line 1"),
        (lambda: rota.http("GET", "https://{{ nope }}"), "url: line 1"),
        (lambda: rota.http("POST", "https://x.org", json={"a": "{{ nope }}"}), "json: line 1"),
    ],
)
def test_a_template_that_cannot_be_rendered_is_refused_with_task_and_line(write: Any, said: str):
    line = write.__code__.co_firstlineno
    with pytest.raises(Refused, match=said) as caught:
        workflow(write, name="g").build()
    assert caught.value.code == "template.bad"
    assert f"test_definitions.py:{line}: task " in caught.value.reason


def test_commands_and_requests_may_be_templates_and_take_outputs_and_parameters():
    def g(day: str):
        made = plain(5)
        rota.command("echo {{ params.day }}", env={"D": day}, id="line")
        rota.command(["echo", made, day, 7], id="words")
        rota.command("{{ params.day }} x")
        rota.http("POST", "https://example.org/{{ ds }}", json={"n": made}, headers={"X-Day": day}, id="asked")

    specs = {spec.id: spec for spec in workflow(g).build().tasks}
    assert list(specs) == ["plain", "line", "words", "command", "asked"]
    assert specs["words"].inputs == specs["asked"].inputs == ("plain",)
    assert decode_command(specs["line"].work).call is not None
    asked = decode_http(specs["asked"].work).call
    assert asked is not None
    assert (asked.function, asked.is_preparing) == ("rota.running:Request", True)
    trial = run_workflow(workflow(g), {"day": "echo"}, replace={"asked": lambda: "sent"})
    assert [trial.results[id] for id in ("line", "words", "command", "asked")] == ["echo", "5 echo 7", "x", "sent"]


def test_a_function_may_ask_for_its_context_and_it_is_no_argument():
    @rota.task
    def who(x: int, ctx: rota.Context) -> list[Any]:
        return [x, ctx.run, ctx.workflow, ctx.logical_date.isoformat(), ctx.remaining_s, ctx.cancelled.is_set()]

    @rota.workflow(timezone="Asia/Kolkata")
    def g():
        who(1)

    trial = run_workflow(g, logical_date="2026-01-01T00:00:00+00:00")
    assert trial.results["who"] == [1, "trial", "g", "2026-01-01T05:30:00+05:30", None, False]
    assert who.params({"x": 5}) == {"x": 5}, "nor is it a parameter of a task alone"
    pretended = run_workflow(g, replace={"who": lambda x: x + 1})
    assert pretended.results["who"] == 2


# Sensors.


def sensing(see: Any, **options: Any) -> Any:
    @rota.task.sensor(**options)
    def look(ctx: rota.Context) -> Any:
        return see(ctx)

    @rota.workflow
    def g():
        look() >> plain()

    return run_workflow(g, slots=1)


def test_a_sensor_looks_again_after_its_interval_and_gives_what_it_saw():
    trial = sensing(lambda ctx: "seen" if ctx.attempt == 4 else None, poke_interval=600)
    assert trial.results == {"look": "seen", "plain": 0}
    assert trial.took_ms // 60_000 == 30


def test_a_sensor_without_patience_fails_and_is_not_tried_again():
    trial = sensing(lambda ctx: None, poke_interval=timedelta(minutes=10), timeout=timedelta(minutes=25), retries=5)
    assert trial.state == "failed"
    assert " 1,500 s" in trial.tasks["look"].error
    assert trial.took_ms // 60_000 == 25


def test_a_soft_sensor_without_patience_is_skipped_and_what_follows_too():
    trial = sensing(lambda ctx: None, poke_interval=60, timeout=60, soft_fail=True)
    assert {id: str(task.state) for id, task in trial.tasks.items()} == {"look": "skipped", "plain": "skipped"}


def test_a_sensor_takes_seconds():
    with pytest.raises(TypeError, match=r"poke_interval .*timedelta.* '5'$"):
        rota.task.sensor(poke_interval="5")
    for odd in (0, 0.09, timedelta(milliseconds=99)):
        with pytest.raises(Refused, match=r" ms .* 0\.1 s") as caught:
            rota.task.sensor(poke_interval=odd)
        assert (caught.value.code, caught.value.path) == ("field.value", "poke_interval")
    assert rota.task.sensor(poke_interval=0.1) is not None


def test_a_long_time_limit_for_all_tasks_does_not_refuse_a_request():
    def g():
        rota.http("GET", "https://example.org")

    (spec,) = workflow(g, default_args={"execution_timeout": 3_600}).build().tasks
    assert (spec.timeout_ms, decode_http(spec.work).timeout_ms) == (300_000, 300_000)
