"""Large requests: whatever the client packs is read back as it was, and nothing is decoded to learn its size."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import commands as cm
from rota.core.calendar import ScheduleSpec
from rota.core.errors import Refused
from rota.core.model import Graph, TaskSpec
from rota.wire import large_requests as lr
from rota.wire.large_requests import SMALL_BYTES_MAX, SPLIT, number_of, pack_large, read_head
from rota.wire.requests import PutBundle, Request, pack, read_large_request
from tests.refusals import refused

BY = {"tenant": "t", "command_id": "c"}


def specs(count: int, work: bytes = b"") -> tuple[TaskSpec, ...]:
    return tuple(TaskSpec(id=f"t{number}", work=work, upstream=(f"t{number - 1}",)[:number]) for number in range(count))


def large(count: int, work: bytes) -> list[Any]:
    graph = Graph(name="g", tasks=specs(count, work))
    return [
        cm.SubmitRun(**BY, run="r", graph=graph, params=b"p"),
        cm.DeployWorkflow(**BY, graph=graph, schedule=ScheduleSpec(cron="0 3 * * *")),
        cm.PutSchedule(**BY, schedule="s", spec=ScheduleSpec(cron="0 3 * * *"), graph=graph),
        cm.GrowRun(**BY, run="r", specs=graph.tasks),
        PutBundle(tenant="t", sha256="0" * 64, content=work * count),
    ]


def read(content: bytes | memoryview) -> Request:
    steps = read_large_request(read_head(bytes(content)))
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


@pytest.mark.parametrize("body", large(300, b"x" * 2_000), ids=lambda body: type(body).__name__)
def test_a_large_request_travels_in_parts_and_comes_back_as_it_was(body: Any):
    content = pack(Request(300, body))
    head = read_head(content)
    assert (head.number, head.tag, number_of(content)) == (300, type(body).__name__, 300)
    assert head.parts, "it has parts"
    assert len(head.body) < 1_000, "and little besides"
    assert read(content) == Request(300, body)


def test_every_type_that_has_parts_was_tried():
    assert {type(body).__name__ for body in large(1, b"")} == set(SPLIT)


@given(st.lists(st.integers(0, 3_000), max_size=40), st.integers(0, (1 << 64) - 1))
def test_tasks_of_any_sizes_come_back_in_their_order(sizes: list[int], number: int):
    tasks = tuple(TaskSpec(id=f"t{place}", work=b"w" * (100 * size)) for place, size in enumerate(sizes))
    body = cm.GrowRun(**BY, run="r", specs=tasks)
    content = pack_large(number, body)
    assert content is not None
    assert read(content) == Request(number, body)
    assert all(len(part) <= lr.PART_BYTES_MAX for part in read_head(content).parts)


@given(st.integers(0, (1 << 64) - 1), st.sampled_from(["GetRun", "SubmitRun", "x" * 40, ""]), st.binary(max_size=300))
def test_a_head_says_what_decoding_would(number: int, tag: str, rest: bytes):
    content = msgspec.msgpack.encode([number, {"type": tag, "rest": rest}])
    head = read_head(content)
    assert (head.number, head.tag) == (number, tag)
    assert number_of(content) == number
    assert msgspec.msgpack.decode(head.body) == {"type": tag, "rest": rest}


@given(st.binary(max_size=200))
def test_bytes_of_any_sort_have_a_head_or_are_refused(content: bytes):
    number_of(content)
    try:
        head = read_head(content)
    except Refused as wrong:
        assert wrong.code == "field.type"
        return
    assert head.size <= len(content)


@given(st.data())
def test_a_request_that_is_cut_short_is_refused(data: st.DataObject):
    content = pack_large(7, cm.GrowRun(**BY, run="r", specs=specs(20, b"x" * 50)))
    assert content is not None
    with pytest.raises(Refused) as caught:
        read(content[: data.draw(st.integers(0, len(content) - 1))])
    assert caught.value.code == "field.type"


def test_what_is_wrong_in_a_part_is_refused():
    body = msgspec.msgpack.encode(cm.GrowRun(**BY, run="r"))
    for part in (b"", b"\x80", msgspec.msgpack.encode([{"id": 5}]), msgspec.msgpack.encode([{"id": "a", "what": 1}])):
        with refused("field.type"):
            read(msgspec.msgpack.encode([1, part, msgspec.Raw(body)]))


def test_more_tasks_in_one_part_than_one_turn_decodes_are_refused():
    many = msgspec.msgpack.encode([{"id": "a"}] * (lr.TASKS_PER_PART_MAX + 1))
    with refused("field.type"):
        read(msgspec.msgpack.encode([1, many, cm.GrowRun(**BY, run="r")]))


def test_parts_and_bodies_that_are_too_large_are_refused():
    grow = cm.GrowRun(**BY, run="r")
    with refused("field.size"):
        read(msgspec.msgpack.encode([1, b"x" * (lr.PART_BYTES_MAX + 1), grow]))
    with refused("field.size"):
        read(msgspec.msgpack.encode([1, cm.GrowRun(**BY, run="r" * (lr.BODY_BYTES_MAX + 1))]))


def test_parts_where_none_belong_are_refused():
    with refused("field.type"):
        read(msgspec.msgpack.encode([1, b"x", cm.CancelRun(**BY, run="r")]))
    with refused("field.type", path="graph"):
        read(
            msgspec.msgpack.encode([1, msgspec.msgpack.encode([{"id": "a"}]), cm.SubmitRun(**BY, run="r", digest="d")])
        )


def test_a_small_request_has_no_parts():
    request = Request(1, cm.GrowRun(**BY, run="r", specs=specs(10)))
    content = pack(request)
    assert len(content) <= SMALL_BYTES_MAX
    assert content == msgspec.msgpack.encode(request)
