"""Bodies with graphs are decoded in slices, and come to the same as when they are decoded at once."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.api.http import large_bodies as lb
from rota.api.http.bodies import DeployBody, GraphBody, SubmitBody, graph_fields, task_from
from rota.api.http.large_bodies import is_large, parse_large
from rota.api.http.reading import ITEMS_MAX, check_items, count_items, parse, read_json
from rota.api.http.runs import ENDPOINTS as RUNS
from rota.api.http.workflows import ENDPOINTS as WORKFLOWS
from rota.core.errors import Refused
from rota.core.model import Graph
from tests.refusals import refused

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
# Most are as they should be, some are not.
TASKS = st.fixed_dictionaries(
    {"id": st.text(min_size=1, max_size=5)},
    optional={
        "command": st.just({"shell": "true"}) | st.just({"argv": ["a"], "env": {"A": "{[,"}}) | st.just({}),
        "http": st.just({"url": "http://a"}) | st.builds(lambda value: {"url": "http://a", "json": value}, VALUES),
        "work": st.just("AAAA") | st.just("!"),
        "kind": st.sampled_from(["", "command", "python"]),
        "upstream": st.lists(st.text(max_size=3), max_size=2),
        "requires": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
        "width": st.integers(-1, 3) | st.just("x"),
        "retry": st.just({"retries": 2}) | st.just({"tries": 2}),
        "taks": st.just(1),
    },
)
GRAPHS = st.fixed_dictionaries(
    {"name": st.just("g"), "tasks": st.lists(TASKS, max_size=4) | st.just("none")},
    optional={"max_active_runs": st.integers(0, 3), "bundle": st.just({"name": "b", "size": 1, "sha256": "c"})},
)
BODIES = st.fixed_dictionaries(
    {},
    optional={"graph": GRAPHS, "params": st.dictionaries(st.text(max_size=3), VALUES, max_size=3), "digest": st.text()},
)


def at_once(content: bytes, kind: type[Any]) -> Any:
    """How a body was read before there were slices: the oracle."""
    body = parse(content, kind)
    graph = None
    if body.graph is not None:
        tasks = [task_from(task, f"graph.tasks[{place}]") for place, task in enumerate(body.graph.tasks)]
        graph = Graph(**{**graph_fields(body.graph), "tasks": tuple(tasks)})
    return kind(**{**{name: getattr(body, name) for name in kind.__struct_fields__}, "graph": graph})


def outcome(read: Any) -> Any:
    try:
        return read()
    except Refused as wrong:
        return wrong.code, wrong.path, wrong.hint


@settings(max_examples=300)
@given(BODIES, st.sampled_from([SubmitBody, DeployBody]))
def test_a_body_in_slices_is_the_body_at_once(body: dict[str, Any], kind: type[Any]):
    content = json.dumps(body).encode()
    sliced = outcome(lambda: asyncio.run(parse_large(content, kind)))
    whole = outcome(lambda: at_once(content, kind))
    if isinstance(whole, tuple):
        # Of several mistakes another one may be found first.
        assert isinstance(sliced, tuple)
        assert sliced[0].split(".")[0] in ("field", "http")
        if sliced[1] == whole[1]:
            assert sliced == whole
    else:
        assert sliced == whole


@pytest.mark.parametrize(
    ("task", "code", "path"),
    [
        ({"id": 5, "command": {"shell": "x"}}, "field.type", "graph.tasks[1].id"),
        ({"id": "b", "command": {"shel": "x"}}, "field.type", "graph.tasks[1].command.shel"),
        ({"id": "b", "comand": {"shell": "x"}}, "field.type", "graph.tasks[1].comand"),
        ({"id": "b"}, "field.value", "graph.tasks[1]"),
        ("b", "field.type", "graph.tasks[1]"),
    ],
)
def test_a_mistake_in_a_task_is_told_with_its_place(task: Any, code: str, path: str):
    graph = {"name": "g", "tasks": [{"id": "a", "command": {"shell": "true"}}, task]}
    with refused(code, path=path) as caught:
        asyncio.run(parse_large(json.dumps({"graph": graph}).encode(), SubmitBody))
    if path.endswith("comand"):
        assert "command" in caught.value.hint, "the field that was probably meant"


def test_parameters_and_tasks_are_bounded_by_themselves():
    many = b"[" + b"{}," * ITEMS_MAX + b"{}]"
    with refused("field.size", path="params"):
        asyncio.run(parse_large(b'{"params":{"x":' + many + b"}}", SubmitBody))
    long = b'"' + b"x" * lb.TASK_BYTES_MAX + b'"'
    with refused("field.size", path="graph.tasks[0]"):
        asyncio.run(parse_large(b'{"graph":{"name":"g","tasks":[{"id":' + long + b"}]}}", SubmitBody))
    task = b'{"id":"a","http":{"url":"http://a","json":[' + b"{}," * lb.TASK_ITEMS_MAX + b"{}]}}"
    with refused("field.size", path="graph.tasks[0]"):
        asyncio.run(parse_large(b'{"graph":{"name":"g","tasks":[' + task + b"]}}", SubmitBody))


@pytest.mark.parametrize("kind", [SubmitBody, DeployBody])
def test_every_field_but_the_tasks_is_bounded_by_itself(kind: type[Any]):
    """Whatever its type is: it is refused before it is decoded."""
    many = b"{" + b",".join(b'"%d":"%d"' % (number, number) for number in range(ITEMS_MAX + 1)) + b"}"
    empty = b'"graph":{"name":"g","tasks":[]}'
    for name in kind.__struct_fields__:
        if name != "graph":
            with refused("field.size", path=name):
                asyncio.run(parse_large(b"{" + empty + b',"%s":' % name.encode() + many + b"}", kind))
    for name in GraphBody.__struct_fields__:
        if name != "tasks":
            graph = b'{"graph":{"tasks":[],"name":"g","%s":' % name.encode() + many + b"}}"
            with refused("field.size", path=f"graph.{name}"):
                asyncio.run(parse_large(graph, kind))


@given(VALUES)
def test_no_value_escapes_the_count(value: Any):
    def values(inside: Any) -> int:
        parts: list[Any] = (
            [*inside.values()] if isinstance(inside, dict) else inside if isinstance(inside, list) else []
        )
        return len(parts) + sum(values(part) for part in parts)

    assert count_items(msgspec.json.encode(value)) >= values(value)


def test_a_body_of_pieces_is_counted_as_it_comes():
    sent = 0

    async def receive() -> Any:
        nonlocal sent
        sent += 1
        return {"type": "http.request", "body": b"{}," * 1_000, "more_body": sent < 1_000}

    from starlette.datastructures import Headers

    with refused("field.size"):
        asyncio.run(read_json(receive, Headers({"content-type": "application/json"}), 1 << 30, 10_000))
    check_items(b"[" + b"1," * 9 + b"1]", 11)
    with refused("field.size", path="params"):
        check_items(b"[" + b"1," * 99 + b"1]", 11, "params")


def test_every_body_with_a_graph_is_read_in_slices():
    bodies = [each.body for each in (*RUNS, *WORKFLOWS) if each.body is not None]
    assert {kind for kind in bodies if "graph" in kind.__struct_fields__} == {kind for kind in bodies if is_large(kind)}
