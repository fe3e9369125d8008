"""Groups, chains, branches, conditions, setups and teardowns: what waits for what, and what may be skipped."""

from typing import Any

import pytest

import rota
from rota.core.errors import Refused
from rota.core.model import TaskSpec
from rota.testing import run_workflow
from rota.wire.work import Branches, decode_python
from tests.refusals import refused
from tests.unit.kinds.authored import plain


def build(function: Any, **options: Any) -> dict[str, TaskSpec]:
    graph = rota.workflow(**options)(function).build() if options else rota.workflow(function).build()
    return {spec.id: spec for spec in graph.tasks}


def edges(specs: dict[str, TaskSpec]) -> dict[str, tuple[str, ...]]:
    return {id: spec.upstream for id, spec in specs.items() if spec.upstream}


def named(*ids: str) -> list[Any]:
    return [plain.override(id=id)() for id in ids]


# Groups.


def test_tasks_of_a_group_have_its_name_before_theirs_and_groups_nest():
    def g():
        with rota.task_group("load"):
            plain()
            with rota.task_group("inner"):
                plain.override(id="mine")()
                plain()
            plain()
        plain()

    assert list(build(g)) == ["load.plain", "load.inner.mine", "load.inner.plain", "load.plain_2", "plain"]


def test_an_arrow_to_a_group_is_to_its_first_tasks_and_one_from_it_is_from_its_last():
    def g():
        (first,) = named("first")
        with rota.task_group("load") as load:
            a, b, c, _d = named("a", "b", "c", "d")
            a >> b >> c
        (last,) = named("last")
        first >> load >> last
        load << plain()

    assert edges(build(g)) == {
        "load.a": ("first", "plain"),
        "load.b": ("load.a",),
        "load.c": ("load.b",),
        "load.d": ("first", "plain"),
        "last": ("load.c", "load.d"),
    }


def test_a_group_does_not_keep_what_follows_waiting_for_its_teardowns():
    def g():
        with rota.task_group("load") as load:
            made, work, gone = named("made", "work", "gone")
            made >> work >> gone.as_teardown(setups=made)
        load >> plain()

    assert edges(build(g))["plain"] == ("load.work",)


def test_groups_can_follow_groups_and_be_in_lists():
    def g():
        groups = []
        for name in "xyz":
            with rota.task_group(name) as group:
                named("a", "b")
            groups.append(group)
        groups[0] >> [groups[1], groups[2]]

    assert edges(build(g)) == dict.fromkeys(("y.a", "y.b", "z.a", "z.b"), ("x.a", "x.b"))


def test_a_function_can_be_a_group_each_time_it_is_called():
    @rota.task_group
    def load(value: int) -> Any:
        return plain(plain(value))

    @rota.task_group("clean", retries=2)
    def tidy() -> None:
        plain()

    def g():
        load(1)
        out = load(2)
        tidy() << out

    specs = build(g)
    assert edges(specs) == {
        "load.plain_2": ("load.plain",),
        "load_2.plain_2": ("load_2.plain",),
        "clean.plain": ("load_2.plain_2",),
    }
    assert specs["clean.plain"].retry.retries == 2
    assert load(5) == 5, "outside of a workflow it is the function it was"


def test_options_come_from_the_task_then_its_group_then_its_workflow():
    def g():
        plain()
        with rota.task_group("outer", retries=2, queue="heavy"):
            plain()
            with rota.task_group("inner", retries=3):
                plain()
                plain.override(retries=4)()
                rota.command("true")

    specs = build(g, default_args={"retries": 1, "priority": 7})
    assert {id: (spec.retry.retries, spec.queue, spec.priority) for id, spec in specs.items()} == {
        "plain": (1, "default", 7),
        "outer.plain": (2, "heavy", 7),
        "outer.inner.plain": (3, "heavy", 7),
        "outer.inner.plain_2": (4, "heavy", 7),
        "outer.inner.true": (3, "heavy", 7),
    }


def test_two_groups_or_a_group_and_a_task_of_one_name_are_refused_with_their_lines():
    def groups():
        with rota.task_group("load"):
            plain()
        with rota.task_group("load"):
            plain()

    def group_and_task():
        plain.override(id="load")()
        with rota.task_group("load"):
            plain()

    for function in (groups, group_and_task):
        with pytest.raises(Refused, match=r"are called 'load': at .*test_wiring\.py:\d+ and .*test_wiring\.py:\d+"):
            build(function)


def test_mistakes_with_groups_say_what_to_do():
    def empty():
        with rota.task_group("load") as load:
            plain() >> load

    def nameless():
        with rota.task_group():
            plain()

    def nothing():
        with rota.task_group("load") as load:
            pass
        plain() >> load

    with pytest.raises(TypeError, match=r'task_group\("load"\)'):
        build(nameless)
    with pytest.raises(TypeError, match=r"'load' .*tasks"):
        build(nothing)
    with pytest.raises(Refused, match=r"graph\.cycle"):
        build(empty)
    with pytest.raises(TypeError, match=r"^task_group\(\) .*@workflow"), rota.task_group("x"):
        pass


# Chains.


def test_a_chain_joins_neighbours_and_lists_of_one_length_side_by_side():
    def g():
        a, b, c, d, e, f = named(*"abcdef")
        rota.chain(a, [b, c], [d, e], f)

    assert edges(build(g)) == {"b": ("a",), "c": ("a",), "d": ("b",), "e": ("c",), "f": ("d", "e")}


def test_a_chain_of_lists_that_do_not_match_is_refused():
    def g():
        a, b, c = named(*"abc")
        rota.chain([a, b], [c])

    with pytest.raises(TypeError, match=r"^chain\(\): .* 2 .* 1 "):
        build(g)


# Circles.


def test_a_circle_is_refused_with_the_lines_of_its_tasks():
    def g():
        a, b, c = plain.override(id="a")(), plain.override(id="b")(), plain.override(id="c")()
        a >> b >> c >> a

    line = g.__code__.co_firstlineno + 1
    with pytest.raises(Refused) as caught:
        build(g)
    assert caught.value.code == "graph.cycle"
    assert caught.value.reason.count(f"test_wiring.py:{line}") == 3
    assert "'a' (" in caught.value.reason


def test_an_empty_workflow_is_refused_with_its_line():
    def g():
        pass

    line = g.__code__.co_firstlineno
    with pytest.raises(Refused, match=rf"graph\.empty: .*test_wiring\.py:{line}: workflow 'g': .* has no tasks"):
        build(g)


def test_what_the_scheduler_refuses_of_a_task_is_said_with_its_line():
    def g():
        plain()
        plain.override(retries=1_000)()

    line = g.__code__.co_firstlineno + 2
    with refused("field.value", f"test_wiring.py:{line}: ", "'g': 1000 ", path="graph.tasks[1].retry.retries"):
        build(g)


def test_too_many_tasks_are_refused():
    def g():
        for number in range(20):
            plain.override(id=f"t{number}").expand(value=list(range(10_000)))

    with pytest.raises(Refused, match=r"graph\.width: .* it has 200,000 tasks, and 100,000 are the most"):
        build(g)


# Branches.


@rota.task.branch
def choose(value: object = None) -> Any:
    return value


def branches(spec: TaskSpec) -> Branches:
    found = decode_python(spec.work).branches
    assert found is not None
    return found


def test_a_branch_knows_what_follows_it_and_what_that_leads_to():
    def g():
        a, b, c, join = named("a", "b", "c", "join")
        chosen = choose("a")
        chosen >> [a, b, c, join]
        a >> join
        b >> c >> plain()

    assert branches(build(g)["choose"]) == Branches(
        (("a", ("a", "join")), ("b", ("b", "c")), ("c", ("c",)), ("join", ("join",))),
        ("a", "b", "c", "join"),
    )


def test_a_branch_may_choose_a_group_by_name_and_never_skips_a_teardown():
    def g():
        made = plain.override(id="made", setup=True)()
        chosen = choose("load")
        made >> chosen
        with rota.task_group("load") as load:
            a, b, _c = named("a", "b", "c")
            a >> b
        with rota.task_group("elsewhere"):
            plain()
        gone = plain.override(id="gone")().as_teardown(setups=made)
        chosen >> [load, gone]

    assert branches(build(g)["choose"]) == Branches(
        (("load.a", ("load.a",)), ("load.c", ("load.c",)), ("load", ("load.a", "load.c"))), ("load.a", "load.c")
    )


def branching(value: object, **rules: str) -> dict[str, str]:
    """How a run goes in which a branch stands before two ways that meet again."""

    @rota.workflow
    def g():
        left, right = plain.override(id="left")(), plain.override(id="right")()
        after = plain.override(id="after")()
        join = plain.override(id="join", **rules)()
        choose(value) >> [left, right, join]
        left >> after >> join
        right >> join

    trial = run_workflow(g)
    return {id: str(task.state) for id, task in trial.tasks.items()} | {"run": trial.state}


OK, SKIPPED = "success", "skipped"


@pytest.mark.parametrize(
    ("value", "rule", "expected"),
    [
        ("left", "none_failed_min_one_success", (OK, SKIPPED, OK, OK)),
        ("right", "none_failed_min_one_success", (SKIPPED, OK, SKIPPED, OK)),
        (["left", "right"], "all_success", (OK, OK, OK, OK)),
        ("left", "all_success", (OK, SKIPPED, OK, SKIPPED)),
        (None, "none_failed_min_one_success", (SKIPPED, SKIPPED, SKIPPED, SKIPPED)),
        ([], "all_done", (SKIPPED, SKIPPED, SKIPPED, SKIPPED)),
        ("join", "none_failed", (SKIPPED, SKIPPED, SKIPPED, OK)),
    ],
)
def test_a_branch_runs_what_it_chooses_and_skips_the_rest(value: object, rule: str, expected: tuple[str, ...]):
    seen = branching(value, trigger_rule=rule)
    assert tuple(seen[id] for id in ("left", "right", "after", "join")) == expected
    assert seen["run"] == OK


def test_a_branch_that_chooses_what_does_not_follow_fails_and_is_not_tried_again():
    @rota.workflow
    def g():
        choose.override(retries=3)("after") >> plain.override(id="left")() >> plain.override(id="after")()

    trial = run_workflow(g)
    assert (trial.state, trial.tasks["choose"].attempt) == ("failed", 1)
    assert trial.tasks["choose"].error.endswith("it may choose 'left'")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("each", {"each": OK, "known": SKIPPED, "last": OK}),
        ("known", {"each": SKIPPED, "known": OK, "last": SKIPPED}),
        (None, {"each": SKIPPED, "known": SKIPPED, "last": SKIPPED}),
    ],
)
def test_a_branch_may_skip_tasks_that_are_mapped_whether_or_not_their_number_is_known(value: Any, expected: Any):
    @rota.task
    def listed() -> list[int]:
        return [1, 2]

    @rota.workflow
    def g():
        each = plain.override(id="each").expand(value=listed())
        known = plain.override(id="known").expand(value=[1, 2])
        choose(value) >> [each, known]
        each >> plain.override(id="last")()

    seen: dict[str, set[str]] = {}
    for id, task in run_workflow(g).tasks.items():
        seen.setdefault(id.partition("[")[0], set()).add(str(task.state))
    assert {id: seen[id] for id in expected} == {id: {state} for id, state in expected.items()}


# Conditions.


@pytest.mark.parametrize(
    ("value", "ignores", "expected"),
    [
        (1, True, (OK, OK, OK, OK)),
        (0, True, (SKIPPED, SKIPPED, SKIPPED, OK)),
        (0, False, (SKIPPED, OK, SKIPPED, OK)),
        (1, False, (OK, OK, OK, OK)),
    ],
)
def test_a_condition_that_does_not_hold_skips_what_follows(value: int, ignores: bool, expected: tuple[str, ...]):
    @rota.task.short_circuit(ignore_downstream_trigger_rules=ignores)
    def holds() -> int:
        return value

    @rota.workflow
    def g():
        made = plain.override(id="made")()
        direct, done, further = named("direct", "done", "further")
        gone = plain.override(id="gone")().as_teardown(setups=made)
        made >> holds() >> direct >> [further, plain.override(id="always", trigger_rule="all_done")()]
        [direct, done] >> gone

    trial = run_workflow(g)
    assert tuple(str(trial.tasks[id].state) for id in ("direct", "always", "further", "gone")) == expected
    assert trial.state == OK


# Setups and teardowns.


def test_a_teardown_waits_for_its_setups_and_for_what_was_said():
    def g():
        made, work, gone = named("made", "work", "gone")
        made >> work >> gone.as_teardown(setups=made, on_failure_fail_run=True)

    specs = build(g)
    assert edges(specs) == {"work": ("made",), "gone": ("made", "work")}
    assert (specs["made"].is_setup, specs["gone"].is_teardown, specs["gone"].on_failure_fail_run) == (True, True, True)


def test_what_was_set_up_is_taken_down_though_the_work_failed():
    @rota.task
    def fails() -> None:
        raise ValueError("no")

    @rota.workflow
    def g():
        made = plain.override(id="made")()
        made >> fails() >> plain.override(id="gone")().as_teardown(setups=[made])

    trial = run_workflow(g)
    assert (trial.state, str(trial.tasks["gone"].state)) == ("failed", OK)


def test_a_teardown_by_option_runs_only_if_the_setups_on_the_way_to_it_succeeded():
    @rota.task(setup=True)
    def made() -> None:
        raise rota.Fail("there is no room")

    @rota.workflow
    def g():
        made() >> plain.override(id="work")() >> plain.override(id="gone", teardown=True)()

    trial = run_workflow(g)
    assert {id: str(view.state) for id, view in trial.tasks.items()} == {
        "made": "failed",
        "work": "upstream_failed",
        "gone": "upstream_failed",
    }


def test_teardowns_by_option_belong_to_setups_as_brackets_do():
    def g():
        outer, inner = plain.override(id="outer", setup=True)(), plain.override(id="inner", setup=True)()
        ended = plain.override(id="inner_gone", teardown=True)()
        outer >> inner >> plain() >> ended >> plain.override(id="between")() >> named("outer_gone")[0].as_teardown()

    found = edges(build(g))
    assert found["inner_gone"] == ("plain", "inner")
    assert found["outer_gone"] == ("between", "outer")


def test_several_setups_and_teardowns_around_the_same_work_all_belong_together():
    def g():
        setups = [plain.override(id=id, setup=True)() for id in "ab"]
        setups >> plain() >> [plain.override(id=id, teardown=True)() for id in "yz"]  # pyright: ignore[reportOperatorIssue] - a list may stand there

    found = edges(build(g))
    assert found["y"] == found["z"] == ("plain", "a", "b")


def test_a_teardown_that_names_its_setups_has_no_others():
    def g():
        other, mine = plain.override(id="other", setup=True)(), plain.override(id="mine")()
        other >> mine >> plain() >> named("gone")[0].as_teardown(setups=mine)

    assert edges(build(g))["gone"] == ("mine", "plain")


# Ways to say that the failure of a teardown counts: of the workflow, of the task, and of the teardown.
COUNTED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "as_teardown": ({}, {}, {"on_failure_fail_run": True}),
    "option": ({}, {"on_failure_fail_run": True}, {}),
    "default_args": ({"default_args": {"on_failure_fail_run": True}}, {}, {}),
    "option, not contradicted": ({}, {"on_failure_fail_run": True, "teardown": True}, {"on_failure_fail_run": None}),
}
NOT_COUNTED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}, {}),
    "contradicted": ({}, {"on_failure_fail_run": True}, {"on_failure_fail_run": False}),
}


@pytest.mark.parametrize("ending", ["failed", "upstream_failed"])
@pytest.mark.parametrize("way", [*COUNTED, *NOT_COUNTED])
def test_a_teardown_that_counts_fails_the_run_by_failing_or_by_failing_upstream(way: str, ending: str):
    of_workflow, of_task, of_teardown = {**COUNTED, **NOT_COUNTED}[way]

    @rota.task
    def fails() -> None:
        raise rota.Fail("as told")

    def g():
        made = (plain if ending == "failed" else fails).override(id="made")()
        gone = (fails if ending == "failed" else plain).override(id="gone", **of_task)()
        made >> gone.as_teardown(setups=made, **of_teardown)
        # So that nothing but the teardown decides.
        made >> plain.override(id="last", trigger_rule="all_done")()

    trial = run_workflow(rota.workflow(**of_workflow)(g))
    assert str(trial.tasks["gone"].state) == ending
    assert trial.state == ("failed" if way in COUNTED else "success")


def test_setup_is_an_option_and_a_method():
    def g():
        plain.override(id="a", setup=True)()
        plain.override(id="b")().as_setup()
        plain.override(id="c", teardown=True, on_failure_fail_run=True)()

    specs = build(g)
    assert [spec.is_setup for spec in specs.values()] == [True, True, False]
    assert (specs["c"].is_teardown, specs["c"].on_failure_fail_run) == (True, True)
