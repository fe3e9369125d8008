"""Templates in fields of commands and requests: each field of the table is checked when written, and rendered."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota.core.model import Graph
from rota.kinds.workflow.tasks import Decorators
from rota.kinds.workflow.template_fields import COMMAND_CALL, COMMAND_TASK, HTTP_CALL, TEMPLATED
from rota.running import Context
from rota.testing import run_workflow
from rota.wire.values import pack, unpack
from rota.wire.work import COMMAND, decode_command, decode_http
from rota.worker.runners.calls import Call, perform
from tests.refusals import refused

NOON = 1_794_830_400_000  # 2026-11-16T12:00Z
DAY = "2026-11-16"
FIELDS = [(way, field) for way, fields in TEMPLATED.items() for field in fields]

# A template in each field; in which field of what is run or sent it is found again, and as what.
SAMPLES: dict[str, tuple[Any, str, Any]] = {
    "line": ("echo {{ ds }}", "line", f"echo {DAY}"),
    "env": ({"D": "{{ ds }}", "N": 1}, "env", {"D": DAY, "N": "1"}),
    "cwd": ("/data/{{ ds }}", "cwd", f"/data/{DAY}"),
    "url": ("https://example.org/{{ ds }}", "url", f"https://example.org/{DAY}"),
    "headers": ({"X-Day": "{{ ds }}"}, "headers", {"X-Day": DAY}),
    "body": ("day={{ ds }}", "body", f"day={DAY}".encode()),
    "json": ({"days": ["{{ ds }}"]}, "body", f'{{"days":["{DAY}"]}}'.encode()),
}


def write(way: str, field: str, value: Any) -> None:
    """A task with a value in one of its fields, written inside a workflow."""
    if way == COMMAND_CALL:
        rota.command(value) if field == "line" else rota.command("true", **{field: value})
    elif way == HTTP_CALL:
        rota.http("POST", value) if field == "url" else rota.http("POST", "https://example.org", **{field: value})
    else:
        assert way == COMMAND_TASK, "a new way to write tasks needs a place here"

        @rota.task.command(**{field: value})
        def made() -> str:
            return "true"

        made()


def built(way: str, field: str, value: Any) -> Graph:
    """A workflow of that task alone."""

    @rota.workflow
    def alone() -> None:
        write(way, field, value)

    return alone.build()


def prepared(way: str, field: str, value: Any) -> dict[str, Any]:
    """What would be run or sent by a task with that value in that field."""
    (spec,) = built(way, field, value).tasks
    work = decode_command(spec.work) if spec.kind == COMMAND else decode_http(spec.work)
    assert work.call is not None, "it is put together where the code runs"
    context = Context(tenant="t", run="r", task=spec.id, attempt=1, fence=1, logical_at=NOON)
    done = perform(Call(work.call, context, (), unopened, pack, False))
    assert (done.outcome, done.content is None) == ("success", False), done.error
    return unpack(done.encoding, done.content or b"")


def unopened(stored: object) -> Any:
    raise AssertionError(f"nothing is stored elsewhere: {stored}")


@pytest.mark.parametrize(("way", "field"), FIELDS)
def test_a_template_is_rendered_in_every_field_of_the_table(way: str, field: str) -> None:
    template, found_in, rendered = SAMPLES[field]
    assert prepared(way, field, template)[found_in] == rendered


@pytest.mark.parametrize(("way", "field"), FIELDS)
def test_a_bad_template_is_refused_where_it_is_written(way: str, field: str) -> None:
    template = SAMPLES[field][0]
    for bad in ("{{ nights }}", "{{ params.nothing }}", "{{ ds"):
        with refused("template.bad", path=field):
            built(way, field, _replaced(template, "{{ ds }}", bad))


@pytest.mark.parametrize(("way", "field"), FIELDS)
def test_a_literal_is_left_as_it_stands(way: str, field: str) -> None:
    template, found_in, rendered = SAMPLES[field]
    literal = _each_text(template, rota.literal)
    assert prepared(way, field, literal)[found_in] == _replaced(rendered, DAY, "{{ ds }}")


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    """The value with every text in it changed."""
    if isinstance(value, bytes):
        return change(value.decode()).encode()
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_each_text(item, change) for item in value]
    return {key: _each_text(item, change) for key, item in value.items()} if isinstance(value, dict) else value


def _replaced(value: Any, old: str, new: str) -> Any:
    return _each_text(value, lambda text: text.replace(old, new))


# Parameters of these functions that are rendered nowhere: names, numbers, and what is chosen when it is written.
NOT_RENDERED: dict[str, set[str]] = {
    HTTP_CALL: {"method", "accepted"},
    "@task.short_circuit": {"ignore_downstream_trigger_rules"},
    "@task.sensor": {"poke_interval", "timeout", "soft_fail"},
    "@task.sql": {"statement", "partitions"},
}


def test_every_parameter_is_in_the_table_or_known_not_to_be_rendered() -> None:
    ways: dict[str, Callable[..., Any]] = {COMMAND_CALL: rota.command, HTTP_CALL: rota.http}
    ways |= {f"@task.{name}": each for name, each in vars(Decorators).items() if not name.startswith("_")}
    said = {way: [*TEMPLATED.get(way, ()), *NOT_RENDERED.get(way, ())] for way in ways}
    taken = {
        way: [name for name in inspect.signature(each).parameters if name not in ("self", "function", "options")]
        for way, each in ways.items()
    }
    assert {way: sorted(names) for way, names in taken.items()} == {way: sorted(names) for way, names in said.items()}


def test_a_command_of_a_function_has_its_variables_and_folder_rendered(tmp_path: Any) -> None:
    (tmp_path / DAY).mkdir()

    @rota.task.command(env={"D": "{{ ds }}", "I": "{{ map_index }}"}, cwd=f"{tmp_path}/{{{{ ds }}}}")
    def show(word: str) -> str:
        return f'echo {word} $D $I "$(basename $PWD)"'

    @rota.task.command(env={"D": "{{ ds }}", "E": "kept"})
    def own() -> dict[str, Any]:
        return {"line": "echo $D $E", "env": {"D": "own"}}

    @rota.workflow
    def etl() -> None:
        show.expand(word=["a", "b"])
        show.override(id="alone")("c")
        own()

    trial = run_workflow(etl, logical_date=DAY)
    assert trial.state == "success", trial.story
    assert trial.results == {
        "show[0]": f"a {DAY} 0 {DAY}",
        "show[1]": f"b {DAY} 1 {DAY}",
        "alone": f"c {DAY} -1 {DAY}",
        "own": "own kept",
    }
