"""Views as JSON has them: what is opened, what is only named, and that shapes and values agree."""

import json

import msgspec
import pytest
from msgspec import Struct

from rota.core.ids import BlobRef
from rota.core.model import Capacity, Pool, PriorityClass, PropertyRule, Queue
from rota.core.questions import PoolView, RunView, TaskView, WorkerView
from rota.core.reasons import Reason
from rota.core.states import Phase, RunState, TaskState
from rota.wire import views
from rota.wire.views import as_json, as_plain, show_params, show_result
from rota.wire.work import StoredValue, Value, encode_value, plain

RUN = RunView(
    tenant="t",
    id="r",
    name="n",
    kind="workflow",
    graph="g",
    state=RunState.RUNNING,
    priority=PriorityClass.LOW,
    created_at=1,
    started_at=2,
    ended_at=0,
    paused=False,
    reason="",
    fault="",
    schedule="",
    slot_at=0,
    parent="",
    params=msgspec.msgpack.encode({"n": 1, "raw": b"\xff"}),
    total=1,
    tasks={"none": 1},
    story=1,
)
TASK = TaskView(
    run="r",
    idx=0,
    id="a",
    kind="command",
    state=TaskState.SUCCESS,
    phase=Phase.COMPLETED,
    attempt=1,
    interruptions=0,
    worker="w",
    fence=1 << 60,
    eligible_at=0,
    assigned_at=0,
    started_at=0,
    ended_at=0,
    due_at=0,
    failure=None,
    error="",
    result=encode_value(plain([1])),
)
CAPACITY = Capacity(slots=2, properties=(("isa", "a"), ("isa", "b"), ("cpu_count", "4")))
WORKER = WorkerView(
    tenant="t",
    id="w",
    incarnation="i",
    capacity=CAPACITY,
    present=True,
    draining=False,
    quarantined_until=0,
    seen_at=5,
    leases=0,
)
QUEUE = Queue(tenant="t", name="q", properties=(("cpu_count", PropertyRule.MINIMUM),))
POOL = PoolView(pool=Pool(tenant="t", name="p", slots=3), taken=2, by_key={"k": 1})
REASON = Reason("pool.full", "full", (("pool", "p"),))


def test_values_are_opened_only_where_that_is_safe():
    assert show_result(None) is None
    assert show_result(encode_value(plain({"a": [1, None]}))) == {"a": [1, None]}
    assert show_result(encode_value(plain(b"\xff"))) == "/w=="
    pickled = Value("pickle", b"cposix\nsystem\n(S'echo'\ntR.")
    assert show_result(encode_value(pickled)) == {"size": len(pickled.content), "encoding": "pickle"}
    stored = StoredValue("plain", BlobRef("some/where", 5000, "digest"))
    assert show_result(encode_value(stored)) == {"stored": "some/where", "size": 5000, "encoding": "plain"}


@pytest.mark.parametrize("content", [b"\xc1", b"not msgpack at all", b"\x93", msgspec.msgpack.encode(5)])
def test_bytes_that_nobody_can_read_are_only_measured(content: bytes):
    unknown = {"size": len(content), "encoding": "unknown"}
    assert show_result(content) == unknown
    assert show_params(content) == unknown
    broken = encode_value(Value("plain", b"\xc1"))
    assert show_result(broken) == {"size": len(broken), "encoding": "unknown"}


def test_fences_are_text_and_pairs_are_objects():
    assert as_plain(TASK)["fence"] == str(1 << 60)
    assert as_plain(RUN)["params"] == {"n": 1, "raw": "/w=="}
    assert as_plain(WORKER)["capacity"]["properties"] == {"isa": ["a", "b"], "cpu_count": ["4"]}
    assert as_plain(QUEUE)["properties"] == {"cpu_count": "minimum"}
    assert as_plain(REASON)["about"] == {"pool": "p"}
    assert as_plain(POOL) == {
        "tenant": "t",
        "name": "p",
        "slots": 3,
        "slots_per_key": 0,
        "starts_per_minute": 0,
        "burst": 1,
        "taken": 2,
        "by_key": {"k": 1},
    }


@pytest.mark.parametrize(
    ("view", "shape"),
    [
        (RUN, views.RunShape),
        (TASK, views.TaskShape),
        (WORKER, views.WorkerShape),
        (QUEUE, views.QueueShape),
        (POOL, views.PoolShape),
        (REASON, views.ReasonShape),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_view_has_the_shape_that_is_told_of_it(view: Struct, shape: type[Struct]):
    shown = json.loads(json.dumps(as_plain(view)))
    assert json.loads(msgspec.json.encode(msgspec.convert(shown, shape))) == shown
    assert list(shown) == list(shape.__struct_fields__)


def test_a_shape_can_leave_fields_out_and_take_others():
    made = views.shape_of(Queue, name="Made", without=("tenant",), optional=True, colour=(str, msgspec.NODEFAULT))
    assert msgspec.convert({"name": "q", "colour": "red"}, made).properties == {}  # pyright: ignore[reportAttributeAccessIssue] - made here
    for wrong in ({"name": "q"}, {"name": "q", "colour": "red", "tenant": "t"}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, made)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [float("nan"), float("inf"), 1.5]}, '{"a": [null, null, 1.5]}'),
        ("ü", '"ü"'),
        (10**30, str(10**30)),
        ({(1, 2): {3}}, '{"(1, 2)": [3]}'),
    ],
)
def test_json_is_valid_whatever_the_value(value: object, text: str):
    assert as_json(value) == text
    json.loads(as_json(value, indent=1), parse_constant=pytest.fail)
