"""Writing graphs down: ids, edges, options, parameters, and what is said about mistakes."""

import threading
from typing import Any

import pytest

import rota
from rota.core.errors import Refused
from rota.core.model import Graph, PoolNeed, TaskSpec
from rota.wire.values import unpack
from rota.wire.work import (
    DictOf,
    HttpWork,
    ListOf,
    OutputOf,
    ParamOf,
    Value,
    decode_command,
    decode_http,
    decode_python,
)
from tests.refusals import refused
from tests.unit.kinds.authored import Shop, other, plain


def build(function: Any, **fields: Any) -> dict[str, TaskSpec]:
    graph: Graph = rota.workflow(**fields)(function).build() if fields else rota.workflow(function).build()
    return {spec.id: spec for spec in graph.tasks}


def edges(specs: dict[str, TaskSpec]) -> dict[str, tuple[str, ...]]:
    return {id: spec.upstream for id, spec in specs.items() if spec.upstream}


def arguments(spec: TaskSpec) -> tuple[Any, ...]:
    return decode_python(spec.work).args


# Ids.


def test_a_task_is_called_like_its_function_and_numbered_when_it_comes_again():
    def g():
        plain()
        plain()
        plain.override(id="mine")()
        plain()

    assert list(build(g)) == ["plain", "plain_2", "mine", "plain_3"]


def test_a_number_that_is_taken_is_passed_over():
    def g():
        plain()
        plain.override(id="plain_2")()
        plain()

    assert list(build(g)) == ["plain", "plain_2", "plain_3"]


def test_an_id_that_was_chosen_twice_is_refused():
    def g():
        plain.override(id="mine")()
        rota.command("true", id="mine")

    with refused("graph.duplicate_id", "'g'", "'mine'", path="id"):
        build(g)


def test_an_id_that_is_too_long_is_refused_where_it_is_written():
    def g():
        plain.override(id="x" * 251)()

    with refused("field.size", " 250 ", "'xxx", path="id"):
        build(g)


def test_a_command_is_called_like_its_program():
    def g():
        rota.command("date +%H")
        rota.command(["/usr/bin/env", "true"])

    assert list(build(g)) == ["date", "env"]


# Edges.


def test_an_output_that_is_passed_on_is_an_edge_with_its_value():
    def g():
        other(plain(1), also=plain(2))

    spec = build(g)["other"]
    assert spec.upstream == spec.inputs == ("plain", "plain_2")
    work = decode_python(spec.work)
    assert work.args == (OutputOf("plain"),)
    assert work.kwargs == (("also", OutputOf("plain_2")),)


def test_arrows_are_edges_without_a_value():
    def g():
        a, b, c, d = (plain.override(id=name)() for name in "abcd")
        a >> b >> [c, d]
        d << c
        e = plain.override(id="e")().after(a, [b, c])
        [a, b] >> e

    specs = build(g)
    assert edges(specs) == {"b": ("a",), "c": ("b",), "d": ("b", "c"), "e": ("a", "b", "c")}
    assert all(spec.inputs == () for spec in specs.values())


def test_an_edge_is_counted_once_however_often_it_is_written():
    def g():
        a = plain()
        b = other(a, a, [a])
        a >> b
        b.after(a)

    assert edges(build(g)) == {"other": ("plain",)}


def test_outputs_and_parameters_are_found_in_lists_tuples_and_dictionaries():
    def g(day: str):
        other([plain(1), (plain(2), 3)], {"k": plain(4), "day": [day]}, ("x", 1))

    spec = build(g)["other"]
    assert spec.upstream == ("plain", "plain_2", "plain_3")
    listed, mapped, constant = arguments(spec)
    assert listed == ListOf((OutputOf("plain"), ListOf((OutputOf("plain_2"), _value(3)), is_tuple=True)))
    assert isinstance(mapped, DictOf)
    assert mapped.items[0] == (_value("k"), OutputOf("plain_3"))
    assert mapped.items[1] == (_value("day"), ListOf((ParamOf("day"),)))
    assert isinstance(constant, Value), "what holds no output is a value as a whole"
    assert unpack(constant.encoding, constant.content, trusted=True) == ("x", 1)


def _value(value: object) -> Value:
    import msgspec

    return Value("plain", msgspec.msgpack.encode(value))


def test_an_output_inside_an_object_is_refused_with_what_to_do():
    class Box:
        def __init__(self, held: object) -> None:
            self.held = held

    def g():
        other(Box(plain()))

    with pytest.raises(TypeError, match=r"'other', argument 1: .*\.Box .*'plain' .*\binside\b"):
        build(g)


def test_an_output_of_another_graph_is_refused():
    kept: list[Any] = []

    def first():
        kept.append(plain())

    build(first)

    def second():
        other(kept[0])

    with pytest.raises(TypeError, match=r"'other', argument 1: .*'plain' .*workflow"):
        build(second)

    def third():
        kept[0] >> plain()

    with pytest.raises(TypeError, match=r"'plain' and 'plain' .*workflows"):
        build(third)


def test_an_arrow_to_something_else_is_refused():
    def g():
        plain() >> [plain(), 5]  # pyright: ignore[reportOperatorIssue] - on purpose

    with pytest.raises(TypeError, match=r"^5 .*task"):
        build(g)


@pytest.mark.parametrize(
    "use",
    [
        *(bool, list, len, str, int, float, abs),
        *(lambda it: it["x"], lambda it: f"{it}", lambda it: "x" in it, lambda it: "%s" % it),  # noqa: UP031 - on purpose
        *(lambda it: it == 1, lambda it: it != 1, lambda it: it > 1, lambda it: it <= 1, lambda it: it in [1]),
        *(
            lambda it: it + 1,
            lambda it: 1 + it,
            lambda it: "x" + it,
            lambda it: it * 2,
            lambda it: it % 2,
            lambda it: -it,
        ),
        *(lambda it: it & 1, lambda it: {"a": 1} | it),
    ],
)
def test_an_output_or_parameter_that_is_used_too_early_says_what_to_do(use: Any):
    def of_output():
        use(plain())

    def of_parameter(day: str):
        use(day)

    with pytest.raises(TypeError, match=r"output of 'plain' .*\bknown\b.* task, "):
        build(of_output)
    with pytest.raises(TypeError, match=r"parameter 'day' .*\bknown\b.* task, "):
        build(of_parameter)


def test_an_output_can_be_a_key_and_be_looked_for_by_what_it_is():
    def g():
        one = plain()
        assert {one: 1}[one] == 1
        assert one is not plain()
        assert one in [one]

    build(g)


@pytest.mark.parametrize("retries", [-1, -2])
def test_a_task_cannot_be_tried_again_fewer_times_than_never(retries: int):
    def g():
        plain.override(retries=retries)()

    line = g.__code__.co_firstlineno + 1
    with refused("field.value", f"test_authoring.py:{line}: ", f" {retries} ", path="retries"):
        build(g)


def test_a_parameter_is_not_silently_unequal_to_everything():
    def g(day: str):
        if day == "monday":
            plain()

    with pytest.raises(TypeError, match=r"parameter 'day' .*\bknown\b"):
        build(g)


# Arguments.


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -1, 2**80, 1.5, "text", b"bytes", [1, [2]], {"a": {"b": None}}, (1, 2), {1: 2}, {3, 4}, range(3)],
    ids=repr,
)
def test_arguments_of_every_sort_arrive_as_they_were(value: object):
    def g():
        other(value)

    (argument,) = arguments(build(g)["other"])
    arrived = unpack(argument.encoding, argument.content, trusted=True)
    assert arrived == value
    assert type(arrived) is type(value)


def test_an_argument_that_cannot_be_sent_is_named():
    def g():
        other(1, lock=threading.Lock())

    with pytest.raises(TypeError, match=r"'other', lock: .*_thread\.lock\b"):
        build(g)


def test_arguments_that_do_not_fit_the_function_are_refused_where_they_are_written():
    def g():
        plain(1, 2, 3)

    with pytest.raises(TypeError, match="task 'plain': too many positional arguments"):
        build(g)


# Options.


def test_options_become_what_the_scheduler_knows():
    def g():
        plain.override(
            retries=3,
            retry_delay=1.5,
            backoff=2,
            execution_timeout=0.25,
            trigger_rule="all_done",
            queue="heavy",
            requires={"gpu_count": 2},
            pool="db",
            priority=5,
            teardown=True,
        )()

    spec = build(g)["plain"]
    assert (spec.retry.retries, spec.retry.delay_ms, spec.retry.multiplier) == (3, 1500, 2)
    assert (spec.timeout_ms, spec.trigger_rule, spec.queue, spec.priority) == (250, "all_done", "heavy", 5)
    assert (spec.requires, spec.pools) == ((("gpu_count", "2"),), (PoolNeed("db", 1),))
    assert (spec.is_setup, spec.is_teardown) == (False, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retrys": 1}, "no option .retrys.; did you mean .retries."),
        ({"retries": "3"}, r"Expected `int`, got `str` - at `\$\.retries`"),
        ({"execution_timeout": "5"}, r"Invalid ISO8601 duration - at `\$\.execution_timeout`"),
        ({"pool": ["db"]}, r"got `array` - at `\$\.pool`"),
    ],
)
def test_an_option_that_does_not_exist_or_fit_is_refused_at_once(options: dict[str, Any], said: str):
    with pytest.raises(TypeError, match=said):
        rota.task(**options)
    with pytest.raises(TypeError, match=said):
        plain.override(**options)

    def g():
        rota.command("true", **options)

    with pytest.raises(TypeError, match=said):
        build(g)


def test_a_trigger_rule_that_does_not_exist_is_refused_with_those_that_do():
    def g():
        plain.override(trigger_rule="all_good")()

    with refused("field.value", "'all_good'", " all_success, ", path="trigger_rule"):
        build(g)


def test_only_what_can_be_called_is_a_task():
    with pytest.raises(TypeError, match=r"@task .* 5$"):
        rota.task(5)  # pyright: ignore[reportCallIssue, reportArgumentType] - on purpose


# Graphs.


def test_a_graph_has_its_functions_name_or_another_and_its_own_limits():
    @rota.workflow(name="etl", max_active_runs=1)
    def g():
        plain()

    assert (g.build().name, g.build().max_active_runs) == ("etl", 1)
    assert g.build() is g.build(), "written down once"


def test_parameters_of_a_graph_are_those_of_its_runs():
    @rota.workflow
    def g(day: str, count: int = 3):
        plain(count)

    assert g.params({"day": "monday"}) == {"day": "monday", "count": 3}
    with refused("field.value", "'g'", "'day'", path="params.day"):
        g.params({})
    with refused("field.value", "'g'", "'night'", path="params"):
        g.params({"day": "x", "night": "y"})
    (argument,) = arguments(g.build().tasks[0])
    assert argument == ParamOf("count")


@pytest.mark.parametrize("function", [lambda *days: None, lambda **days: None, lambda day, /: None])
def test_parameters_without_a_name_cannot_be_given_to_a_run(function: Any):
    with pytest.raises(TypeError, match=r"'g': \**days? .*name"):
        rota.workflow(name="g")(function)


def test_outside_of_a_graph_functions_are_what_they_were():
    assert plain(4) == 4

    @rota.workflow
    def g(value: int):
        return plain(value) + 1

    assert g(3) == 4
    assert plain.__name__ == "plain"
    with pytest.raises(TypeError, match=r"command\(\) .*@workflow"):
        rota.command("true")


def test_a_graph_within_a_graph_adds_its_tasks():
    @rota.workflow
    def part(value: int):
        return plain(value)

    def g():
        other(part(1), part(2))

    assert edges(build(g)) == {"other": ("plain", "plain_2")}


def test_a_mistake_leaves_no_half_written_graph_behind():
    @rota.workflow
    def broken():
        plain()
        raise KeyError("x")

    with pytest.raises(KeyError):
        broken.build()
    assert plain(5) == 5, "outside of a graph again"


def test_a_task_alone_is_a_graph_of_one():
    assert plain.build().name == "plain"
    assert [spec.id for spec in plain.build().tasks] == ["plain"]
    assert plain.params({}) == {"value": 0}
    assert plain.functions().keys() == {"plain"}
    assert other.params({}) == {}, "however many more it takes, a run gives none"
    with refused("field.value", "'other'", "'values'", path="params"):
        other.params({"values": 1})


def test_a_method_is_bound_like_any_other():
    shop = Shop("corner")

    def g():
        shop.bound("tea")
        Shop.static("milk")
        Shop.bound(shop, "bread")

    assert list(build(g)) == ["bound", "static", "bound_2"]
    assert shop.bound("tea") == "corner: tea"

    def broken():
        shop.bound()  # pyright: ignore[reportCallIssue] - on purpose

    with pytest.raises(TypeError, match=r"'bound': missing .*'item'"):
        build(broken)


# Commands.


def test_a_command_is_a_line_for_the_shell_or_words():
    def g():
        rota.command("echo 'a b' | wc", id="line", env={"N": 1}, cwd="/tmp")  # pyright: ignore[reportArgumentType] - a number is common
        rota.command(["echo", 5], id="words")  # pyright: ignore[reportArgumentType] - likewise

    specs = build(g)
    line, words = decode_command(specs["line"].work), decode_command(specs["words"].work)
    assert (line.shell, line.argv, line.env, line.cwd) == ("echo 'a b' | wc", (), (("N", "1"),), "/tmp")
    assert (words.shell, words.argv) == ("", ("echo", "5"))
    assert specs["line"].kind == "command"


@pytest.mark.parametrize("line", ["", "  ", []])
def test_an_empty_command_is_refused(line: Any):
    def g():
        rota.command(line)

    with refused("field.value", path="command"):
        build(g)


def test_a_request_is_called_like_its_host_and_keeps_what_was_said():
    @rota.workflow
    def asking():
        rota.http(
            "post", "https://example.org/hook?x=1", json={"a": 1}, headers={"X-N": 5}, execution_timeout=5, retries=2
        )  # pyright: ignore[reportArgumentType] - a number is common
        rota.http("PUT", "https://example.org", body="text", accepted=[200, 409], id="mine")

    posted, put = asking.build().tasks
    assert (posted.id, posted.kind, posted.timeout_ms, posted.retry.retries) == ("post-example.org", "http", 5_000, 2)
    assert decode_http(posted.work) == HttpWork(
        method="POST",
        url="https://example.org/hook?x=1",
        headers=(("X-N", "5"), ("Content-Type", "application/json")),
        body=b'{"a":1}',
        timeout_ms=5_000,
    )
    assert decode_http(put.work) == HttpWork(method="PUT", url="https://example.org", body=b"text", accepted=(200, 409))


@pytest.mark.parametrize(
    ("args", "options", "hint"),
    [
        (("FETCH", "https://example.org"), {}, "Use GET, POST"),
        (("GET", "ldap://example.org"), {}, "Write http"),
        (("GET", "https://example.org"), {"execution_timeout": 301}, "execution_timeout"),
        (("GET", "https://example.org"), {"body": "x"}, "Use POST"),
        (("GET", "https://u:p@example.org"), {}, "Authorization"),
    ],
)
def test_a_request_that_cannot_be_sent_is_refused_where_it_is_written(args: Any, options: Any, hint: str):
    @rota.workflow
    def asking():
        rota.http(*args, **options)

    with pytest.raises(Refused, match=hint):
        asking.build()


def test_a_request_is_written_inside_a_graph_and_has_one_body():
    with pytest.raises(TypeError, match=r"http\(\) .*@workflow"):
        rota.http("GET", "https://example.org")

    @rota.workflow
    def asking():
        rota.http("POST", "https://example.org", body="x", json=1)

    with pytest.raises(TypeError, match="one body"):
        asking.build()
