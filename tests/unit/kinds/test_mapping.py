"""Tasks that are mapped over lists: how many there are, what each gets, and who says so."""

import re
from typing import Any

import pytest

import rota
from rota.core.model import TaskSpec
from rota.testing import Trial, run_workflow
from rota.wire.work import OutputOf, Over, decode_http, decode_python
from tests.refusals import refused


@rota.task
def give(value: Any) -> Any:
    return value


@rota.task
def pair(x: Any, y: Any = None) -> list[Any]:
    return [x, y]


@rota.task
def gather(values: list[Any]) -> Any:
    return values


def build(function: Any) -> dict[str, TaskSpec]:
    return {spec.id: spec for spec in rota.workflow(function).build().tasks}


def run(function: Any, **params: Any) -> Trial:
    return run_workflow(rota.workflow(function), params)


def outcomes(trial: Trial, task: str = "pair") -> list[Any]:
    """What the tasks of a mapped one gave, in order."""
    found = {id: value for id, value in trial.results.items() if id.partition("[")[0] == task}
    return [found[id] for id in sorted(found, key=lambda id: int(id.partition("[")[2].rstrip("]") or 0))]


CASES: list[tuple[str, Any, list[Any]]] = [
    ("one list", lambda: pair.expand(x=[1, 2]), [[1, None], [2, None]]),
    ("a tuple", lambda: pair.expand(x=(1, 2)), [[1, None], [2, None]]),
    ("a range", lambda: pair.expand(x=range(2)), [[0, None], [1, None]]),
    ("a dictionary", lambda: pair.expand(x={"a": 1}, y=[5, 6]), [[("a", 1), 5], [("a", 1), 6]]),
    ("two lists", lambda: pair.expand(x=[1, 2], y=["a", "b"]), [[1, "a"], [1, "b"], [2, "a"], [2, "b"]]),
    ("partial", lambda: pair.partial(y=9).expand(x=[1, 2]), [[1, 9], [2, 9]]),
    ("rows", lambda: pair.expand_kwargs([{"x": 1}, {"x": 2, "y": 3}]), [[1, None], [2, 3]]),
    ("rows and partial", lambda: pair.partial(y=9).expand_kwargs([{"x": 1}]), [[1, 9]]),
    ("an output", lambda: pair.expand(x=give([1, 2])), [[1, None], [2, None]]),
    ("an output of one", lambda: pair.expand(x=give([1])), [[1, None]]),
    ("a dictionary of an output", lambda: pair.expand(x=give({"a": 1})), [[("a", 1), None]]),
    ("output and list", lambda: pair.expand(x=give([1, 2]), y=[3, 4]), [[1, 3], [1, 4], [2, 3], [2, 4]]),
    ("list and output", lambda: pair.expand(x=[3, 4], y=give([1, 2])), [[3, 1], [3, 2], [4, 1], [4, 2]]),
    ("two outputs", lambda: pair.expand(x=give([1, 2]), y=give([3, 4])), [[1, 3], [1, 4], [2, 3], [2, 4]]),
    ("rows of an output", lambda: pair.expand_kwargs(give([{"x": 1}, {"x": 2}])), [[1, None], [2, None]]),
    ("outputs in a list", lambda: pair.expand(x=[give(1), give(2)]), [[1, None], [2, None]]),
    ("one element", lambda: pair.expand(x=[1]), [[1, None]]),
    ("templates", lambda: pair.expand(x=["{{ task_id }}", "{{ map_index }}"]), [["pair[0]", None], ["1", None]]),
    ("mapped over mapped", lambda: pair.expand(x=give.expand(value=[1, 2]), y=[0]), [[1, 0], [2, 0]]),
    ("mapped over one", lambda: pair.expand(x=give.expand(value=[7])), [[7, None]]),
    (
        "through and through",
        lambda: pair.expand(x=give.override(id="inner").expand(value=give([1, 2])), y=[3, 4]),
        [[1, 3], [1, 4], [2, 3], [2, 4]],
    ),
]


@pytest.mark.parametrize(("write", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_task_gets_its_element_and_who_takes_them_gets_a_list_in_order(write: Any, expected: list[Any]):
    def g():
        gather(write())

    trial = run(g)
    assert trial.state == "success", [task.error for task in trial.tasks.values()]
    assert outcomes(trial) == expected
    assert trial.results["gather"] == expected


def test_a_parameter_of_the_run_can_be_mapped_over():
    def g(days: list[str], rows: list[dict[str, int]]):
        pair.expand(x=days, y=[1])
        pair.override(id="rowed").expand_kwargs(rows)

    trial = run(g, days=["mon", "tue"], rows=[{"x": 5}])
    assert outcomes(trial) == [["mon", 1], ["tue", 1]]
    assert outcomes(trial, "rowed") == [[5, None]]
    assert {"pair.combine", "rowed.combine"} <= trial.tasks.keys()


@pytest.mark.parametrize("write", [lambda: pair.expand(x=[]), lambda: pair.expand(x=give([]))], ids=["list", "output"])
def test_what_is_mapped_over_nothing_is_skipped(write: Any):
    def g():
        gather(write())
        gather.override(id="regardless", trigger_rule="none_failed")(write())

    trial = run(g)
    states = {id: str(task.state) for id, task in trial.tasks.items() if not id.startswith("give")}
    assert states["gather"] == "skipped"
    assert states["regardless"] == "success"
    assert trial.state == "success"


def test_one_of_a_mapped_task_that_fails_is_one_task():
    @rota.task
    def odd(value: int) -> int:
        if value == 2:
            raise ValueError("two")
        return value

    def g():
        gather.override(trigger_rule="all_done")(odd.expand(value=[1, 2, 3]))

    trial = run(g)
    assert [str(trial.tasks[f"odd[{number}]"].state) for number in range(3)] == ["success", "failed", "success"]
    assert trial.results["gather"] == [1, None, 3]


def test_widths_are_known_while_the_workflow_is_written_or_told_by_who_is_mapped_over():
    def g():
        made = give([1])
        outer = pair.override(id="outer").expand(x=made, y=[1, 2])
        pair.override(id="inner").expand(x=outer, y=[1, 2, 3])
        pair.override(id="known").expand(x=[1, 2], y=[1, 2])

    specs = build(g)
    assert {id: spec.width for id, spec in specs.items()} == {"give": 1, "outer": 0, "inner": 0, "known": 4}
    assert decode_python(specs["give"].work).maps == (("outer", 2), ("inner", 6))
    assert decode_python(specs["outer"].work).over == Over(
        (("x", OutputOf("give")), ("y", decode_python(specs["known"].work).over.each[1][1]))  # pyright: ignore[reportOptionalMemberAccess] - it is mapped
    )


def test_what_is_answered_to_a_request_can_be_mapped_over():
    def g():
        pair.expand(x=rota.http("GET", "https://example.org/list", id="asked"))

    assert decode_http(build(g)["asked"].work).maps == (("pair", 1),)
    trial = run_workflow(rota.workflow(g), replace={"asked": lambda: [1, 2]})
    assert outcomes(trial) == [[1, None], [2, None]]


def test_who_is_mapped_over_and_gives_no_list_has_failed():
    def g():
        pair.expand(x=give(5))

    trial = run(g)
    assert trial.state == "failed"
    assert re.fullmatch(r"'pair' .*\bint", trial.tasks["give"].error)


def test_too_many_elements_are_refused_where_they_are_known():
    def literal():
        pair.expand(x=list(range(101)), y=list(range(100)))

    def told():
        pair.expand(x=give(list(range(10_001))))

    def combined():
        pair.expand(x=give(list(range(101))), y=give(list(range(100))))

    line = literal.__code__.co_firstlineno + 1
    with refused("graph.width", "'pair'", "10,100", "10,000") as caught:
        build(literal)
    assert f"test_mapping.py:{line}" in str(caught.value)
    assert "'pair' would be 10,001 tasks, and 10,000 are the most" in run(told).tasks["give"].error
    assert "these are 10,100 combinations" in run(combined).tasks["pair.combine"].error


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda: pair.expand(x=5), r"task 'pair', x: .*\bint$"),
        (lambda: pair.expand(x="text"), r"task 'pair', x: .*\bstr$"),
        (lambda: pair.partial().expand(), r"task 'pair': expand\(\) .*list"),
        (lambda: pair.expand(z=[1]), "task 'pair': (missing .*'x'|.*unexpected .*'z')"),
        (lambda: pair.partial(x=1).expand(x=[1]), r"task 'pair': 'x' .*partial\(\) .*expand\(\)"),
        (lambda: pair.expand(y=[1]), "task 'pair': missing .*'x'"),
        (lambda: pair.expand_kwargs([{"x": 1}, {"x": 1, "z": 2}]), "task 'pair': .*unexpected .*'z'"),
        (lambda: pair.expand_kwargs([{"y": 1}]), "task 'pair': missing .*'x'"),
        (lambda: pair.partial(x=1).expand_kwargs([{"x": 2}]), r"task 'pair': 'x' .*partial\(\) .*expand_kwargs\(\)"),
        (lambda: pair.expand_kwargs([5]), r"task 'pair': expand_kwargs\(\) .* 5 "),
        (lambda: pair.expand_kwargs(5), r"task 'pair', expand_kwargs\(\): .*\bint$"),
        (lambda: rota.task.branch(lambda x: x).expand(x=[1]), "task 'task' .*mapped"),
    ],
)
def test_mistakes_are_refused_where_they_are_written(write: Any, said: str):
    with pytest.raises(TypeError, match=said):
        build(write)


def test_a_command_cannot_be_mapped_over_and_what_is_mapped_is_mapped_in_a_workflow():
    def g():
        pair.expand(x=rota.command("echo 1"))

    with refused("graph.width", "'pair'", "'echo'", path=f"{__file__}:{g.__code__.co_firstlineno + 1}"):
        build(g)
    with pytest.raises(TypeError, match=r"^expand\(\) .*@workflow"):
        pair.expand(x=[1])
