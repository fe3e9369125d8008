"""Tasks that are mapped over lists: how many there are, what each gets, and who says so."""

import re
from typing import Any

import pytest

import rota
from rota.core.model import TaskSpec
from rota.core.states import TaskState
from rota.core.trigger import TriggerRule, Verdict, evaluate_trigger_rule
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


def states(trial: Trial) -> dict[str, str]:
    return {id: str(task.state) for id, task in trial.tasks.items()}


# Whatever makes the list, there is nothing in it.
NOTHING: dict[str, Any] = {
    "list": lambda: pair.expand(x=[]),
    "rows": lambda: pair.expand_kwargs([]),
    "output": lambda: pair.expand(x=give([])),
    "rows of an output": lambda: pair.expand_kwargs(give([])),
    "one of two lists": lambda: pair.expand(x=[1, 2], y=[]),
    "a list beside an output": lambda: pair.expand(x=give([1, 2]), y=[]),
    "an output beside a list": lambda: pair.expand(x=[1, 2], y=give([])),
    "two outputs": lambda: pair.expand(x=give([]), y=give([1])),
    "mapped over an empty list": lambda: pair.expand(x=give.expand(value=[])),
    "mapped over an empty output": lambda: pair.expand(x=give.override(id="inner").expand(value=give([]))),
}


@pytest.mark.parametrize("write", NOTHING.values(), ids=NOTHING)
def test_what_is_mapped_over_nothing_is_skipped_and_its_output_is_an_empty_list(write: Any):
    def g():
        mapped = write()
        gather(mapped)
        gather.override(id="regardless", trigger_rule="none_failed")(mapped)
        again = give.override(id="again", trigger_rule="all_done").expand(value=mapped)
        gather.override(id="last", trigger_rule="all_done")(again)

    trial = run(g)
    found = states(trial)
    assert {id: found[id] for id in ("pair[0]", "gather", "regardless", "again[0]", "last")} == {
        "pair[0]": "skipped",
        "gather": "skipped",
        "regardless": "success",
        "again[0]": "skipped",
        "last": "success",
    }
    assert (trial.results["regardless"], trial.results["last"]) == ([], [])
    assert trial.state == "success"


@rota.task
def fail(value: Any = None) -> Any:
    raise rota.Fail("as told")


@rota.task
def skip(value: Any = None) -> Any:
    raise rota.Skip


@rota.task
def half(value: int) -> int:
    if value:
        raise rota.Fail("as told")
    return value


def mapped_over_two(other: Any) -> Any:
    return pair.override(id="both").expand(x=give([1]), y=other)


# What others are mapped over, and what becomes of them whatever their rule.
WITHOUT_A_LIST: dict[str, tuple[Any, str]] = {
    "failed": (fail, "upstream_failed"),
    "skipped": (skip, "skipped"),
    "upstream_failed": (lambda: give(fail()), "upstream_failed"),
    "skipped because of another": (lambda: give(skip()), "skipped"),
    "every task of a mapped one failed": (lambda: fail.expand(value=[1, 2]), "upstream_failed"),
    "every task of a mapped one was skipped": (lambda: skip.expand(value=give([1, 2])), "skipped"),
    "a mapped one whose own list failed": (lambda: give.expand(value=fail()), "upstream_failed"),
    "a mapped one whose own list was skipped": (lambda: give.expand(value=skip()), "skipped"),
    "one of two outputs failed": (lambda: mapped_over_two(fail()), "upstream_failed"),
    "one of two outputs was skipped": (lambda: mapped_over_two(skip()), "skipped"),
}


@pytest.mark.parametrize("rule", [rule.value for rule in TriggerRule])
@pytest.mark.parametrize("source", WITHOUT_A_LIST)
def test_what_is_mapped_over_a_source_without_a_list_shares_its_fate_and_the_rest_goes_on(source: str, rule: str):
    write, fate = WITHOUT_A_LIST[source]

    def g():
        mapped = pair.override(trigger_rule=rule).expand(x=write())
        gather.override(id="clean", trigger_rule="all_done")(mapped)

    trial = run(g)
    if rule == "all_skipped" and source == "every task of a mapped one failed":
        # The first of them to fail settles it, before the source has ended.
        fate = "skipped"
    assert {state for id, state in states(trial).items() if id.startswith("pair[")} == {fate}
    assert (states(trial)["clean"], trial.state) == ("success", "success")


@pytest.mark.parametrize("rule", [rule.value for rule in TriggerRule])
def test_what_is_mapped_over_tasks_of_which_one_failed_is_up_to_its_rule(rule: str):
    def g():
        pair.override(trigger_rule=rule).expand(x=half.expand(value=[0, 1]))

    judged = evaluate_trigger_rule(TriggerRule(rule), [TaskState.SUCCESS, TaskState.FAILED])
    expected = {Verdict.SCHEDULE: "success", Verdict.SKIP: "skipped", Verdict.UPSTREAM_FAILED: "upstream_failed"}
    assert {state for id, state in states(run(g)).items() if id.startswith("pair[")} == {expected[judged]}


@pytest.mark.parametrize(
    "write",
    [
        lambda: pair.expand(x=[1]),
        lambda: pair.expand(x=give([1])),
        lambda: pair.expand_kwargs([{"x": 1}]),
        lambda: pair.expand(x=give([1]), y=give([1])),
        lambda: pair.expand(x=give.expand(value=[1])),
    ],
)
def test_a_mapped_task_of_one_element_is_numbered_however_it_was_mapped(write: Any):
    def g():
        gather(write())

    trial = run(g)
    assert "pair" not in trial.tasks
    assert str(trial.tasks["pair[0]"].state) == "success"
    assert len(trial.results["gather"]) == 1


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
