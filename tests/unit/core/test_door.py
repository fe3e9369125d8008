"""The door: untrusted bytes become a command of ours, or a refusal that names the field. Nothing else may come out."""

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import commands as cm
from rota.core.calendar import Misfire, ScheduleSpec
from rota.core.decide import decide
from rota.core.door import ClientRequest, check_shape
from rota.core.errors import Refused
from rota.core.model import (
    Allocation,
    Capacity,
    Graph,
    Param,
    ParamType,
    Pool,
    PoolNeed,
    PriorityClass,
    PropertyRule,
    Queue,
    RetryPolicy,
    TaskSpec,
    Unservable,
)
from rota.core.trigger import TriggerRule
from tests.effort import examples
from tests.unit.core.world import World

WHOLE = Graph(
    name="g",
    kind="query",
    tasks=(
        TaskSpec(id="a", work=b"\x00\xff", requires=(("cpu_count", "2"),), is_setup=True),
        TaskSpec(
            id="b",
            kind="python",
            upstream=("a",),
            trigger_rule=TriggerRule.ALL_DONE,
            width=3,
            is_teardown=True,
            on_failure_fail_run=True,
            queue="q",
            pools=(PoolNeed("p", 2, "k"),),
            priority=-4,
            retry=RetryPolicy(2, 1, 0, 5, 100, 2, 900, False),
            timeout_ms=7,
        ),
    ),
    max_active_runs=1,
    max_active_tasks=2,
    run_timeout_ms=3,
)
SPEC = ScheduleSpec(cron="0 2 * * *", zone="Europe/Madrid", start_at=1, end_at=2, misfire=Misfire.SKIP)
QUEUE = Queue(
    tenant="t",
    name="q",
    properties=(("gpu", PropertyRule.EXACT),),
    allocation=Allocation.MOST_RECENTLY_USED,
    worker_timeout_ms=5,
    unservable=Unservable.FAIL,
    pull=True,
)
POOL = Pool(tenant="t", name="p", slots=1, slots_per_key=2, starts_per_minute=3, burst=4)

# One of each, with every field away from its default.
EXAMPLES: dict[type[cm.ClientCommand], dict[str, Any]] = {
    cm.SubmitRun: {
        "run": "r",
        "is_fresh": True,
        "graph": WHOLE,
        "digest": "d",
        "priority": PriorityClass.URGENT,
        "params": b"\x00\xfe",
        "parent": "up",
        "workflow": "w",
        "version": 2,
        "logical_at": 5,
        "merge": "k",
        "labels": (("target", "//a:b"),),
        "share": "s",
        "after": ("other",),
        "needs_approval": True,
        "deadline_at": 9,
        "declared": (Param(name="day", type=ParamType.DATE, defaults_to_logical_date=True),),
        "zone": "Europe/Berlin",
    },
    cm.CancelRun: {"run": "r", "reason": "enough"},
    cm.PauseRun: {"run": "r", "paused": False},
    cm.ClearTasks: {"run": "r", "tasks": ("a", "b[1]"), "downstream": False, "only_failed": True},
    cm.MarkTasks: {"run": "r", "tasks": ("a",), "to": cm.Mark.SKIPPED, "reason": "known"},
    cm.ReleaseTasks: {"run": "r", "tasks": ("a",), "reason": "stuck"},
    cm.ApproveRun: {"run": "r", "approved": False, "reason": "not now"},
    cm.PauseScheduler: {"scope": "workspace=w", "paused": False, "reason": "done"},
    cm.SteerStream: {"stream": "clicks", "verb": "savepoint", "which": "x", "stop": True},
    cm.RetryTasks: {"run": "r", "tasks": ("a",)},
    cm.NoteTask: {"run": "r", "task": "a", "note": "known trouble"},
    cm.MoveRun: {"run": "r", "version": 3},
    cm.DeployWorkflow: {
        "graph": WHOLE,
        "params": (Param(name="day", default=b"\x01", choices=(b"\x01",), least=1.5, pattern="x"),),
        "schedule": SPEC,
        "priority": PriorityClass.HIGH,
        "paused": True,
        "source": "etl.py:3",
        "doc": "Every night.",
        "zone": "Europe/Berlin",
        "code": "c" * 64,
    },
    cm.PauseWorkflow: {"workflow": "w", "paused": False},
    cm.DropWorkflow: {"workflow": "w"},
    cm.StartBackfill: {
        "backfill": "b",
        "workflow": "w",
        "start_at": 1,
        "end_at": 2,
        "max_active_runs": 7,
        "params": b"\x80",
    },
    cm.CancelBackfill: {"backfill": "b"},
    cm.GrowRun: {"run": "r", "specs": WHOLE.tasks, "expands": "b", "width": 4},
    cm.ResolveTask: {"run": "r", "task": "a", "exit": cm.Exit.FAIL, "requires": (("os", "linux"),)},
    cm.LoseOutputs: {"run": "r", "tasks": ("a",)},
    cm.PutQueue: {"queue": QUEUE},
    cm.PutPool: {"pool": POOL},
    cm.DropPool: {"name": "p"},
    cm.PutTenant: {"weight": 3},
    cm.PutSchedule: {
        "schedule": "s",
        "graph": WHOLE,
        "spec": SPEC,
        "priority": PriorityClass.LOW,
        "paused": True,
    },
    cm.DropSchedule: {"schedule": "s"},
    cm.DrainWorker: {"worker": "w", "draining": False},
    cm.EndQuarantine: {"worker": "w"},
    cm.ForgetWorker: {"worker": "w"},
    cm.ClaimTask: {
        "worker": "w",
        "incarnation": "i",
        "lease_ms": 9_000,
        "wait_ms": 1_000,
        "least": PriorityClass.HIGH,
        "where": (("channel", "c"),),
        "run": "r",
        "owner": "o",
        "token_hash": "h",
    },
}

PLAIN: dict[str, Any] = {
    "type": "SubmitRun",
    "tenant": "t",
    "command_id": "c",
    "run": "r",
    "graph": {"name": "g", "tasks": [{"id": "x"}]},
}

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.sampled_from(sorted(PLAIN)), inner, max_size=4)
    ),
    max_leaves=12,
)


def with_task(**fields: object) -> dict[str, Any]:
    """A submission whose second task has these fields."""
    return {"graph": {"name": "g", "tasks": [{"id": "x"}, {"id": "y", **fields}]}}


def read_command(content: bytes) -> Any:
    return check_shape(json.loads(content), ClientRequest)


def refusal(content: bytes) -> Refused:
    with pytest.raises(Refused) as caught:
        read_command(content)
    return caught.value


def refused(**fields: object) -> Refused:
    """The refusal of a submission that is right but for these fields."""
    return refusal(json.dumps({**PLAIN, **fields}).encode())


# What is let in.


def test_there_is_an_example_of_every_client_command():
    assert set(EXAMPLES) == set(get_args(ClientRequest))
    assert set(EXAMPLES) == set(cm.ClientCommand.__subclasses__())


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_every_client_command_goes_through_json_and_comes_out_the_same(kind):
    command = kind(tenant="t", command_id="c", salt=2**64 - 1, **EXAMPLES[kind])
    assert read_command(msgspec.json.encode(command)) == command


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_an_example_leaves_no_field_at_its_default(kind):
    command = kind(tenant="t", command_id="c", salt=1, actor="a", **EXAMPLES[kind])
    for field in msgspec.structs.fields(kind):
        assert field.default is msgspec.NODEFAULT or getattr(command, field.name) != field.default, field.name


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_every_client_command_refuses_a_field_it_does_not_have(kind):
    command = msgspec.to_builtins(kind(tenant="t", command_id="c", **EXAMPLES[kind]))
    found = refusal(json.dumps({**command, "colour": "red"}).encode())
    assert found.code == "field.type"
    assert "`colour`" in found.reason


def test_what_is_left_out_has_its_default():
    command = read_command(json.dumps(PLAIN).encode())
    assert isinstance(command, cm.SubmitRun)
    assert (command.priority, command.params, command.salt) == (PriorityClass.NORMAL, b"", 0)


# What is not.


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"run": 3}, "run"),
        ({"priority": "hot"}, "priority"),
        ({"salt": 1.5}, "salt"),
        ({"salt": True}, "salt"),
        ({"params": "%%"}, "params"),
        ({"graph": {"name": "g"}}, "graph"),
        ({"graph": {"name": "g", "tasks": [{"id": "x"}], "colour": 1}}, "graph"),
        (with_task(width="3"), "graph.tasks[1].width"),
        (with_task(trigger_rule="sometimes"), "graph.tasks[1].trigger_rule"),
        (with_task(colour="red"), "graph.tasks[1]"),
        (with_task(upstream="x"), "graph.tasks[1].upstream"),
        (with_task(requires=[["a", "b", "c"]]), "graph.tasks[1].requires[0]"),
        (with_task(retry={"retries": None}), "graph.tasks[1].retry.retries"),
        (with_task(retry={"again": 3}), "graph.tasks[1].retry"),
        (with_task(pools=[{"pool": "p", "slots": 1}]), "graph.tasks[1].pools[0]"),
        ({"type": "Report"}, "type"),
        ({"type": "RegisterWorker"}, "type"),
        ({"type": "Tick"}, "type"),
        ({"type": 7}, "type"),
    ],
)
def test_a_wrong_type_field_or_word_is_refused_by_its_path(fields, path):
    found = refused(**fields)
    assert (found.code, found.path) == ("field.type", path)
    assert found.reason
    assert found.hint


@pytest.mark.parametrize("missing", ["type", "tenant", "command_id", "run"])
def test_a_missing_field_is_named(missing):
    content = {name: value for name, value in PLAIN.items() if name != missing}
    found = refusal(json.dumps(content).encode())
    assert found.code == "field.type"
    assert f"`{missing}`" in found.reason


def test_words_of_the_caller_cannot_pass_for_a_path():
    assert refused(**with_task(trigger_rule="never - at `$.tenant`")).path == "graph.tasks[1].trigger_rule"
    assert refused(**with_task(**{"x - at `$.tenant`": 1})).path == "graph.tasks[1]"
    assert refused(**{"x - at `$.tenant`": 1}).path == ""


@pytest.mark.parametrize(
    "fields",
    [
        with_task(priority=10**30),
        with_task(timeout_ms=2**64),
        with_task(width=-(10**30)),
        {"graph": {"name": "g", "tasks": [{"id": "x"}], "run_timeout_ms": 2**70}},
    ],
    ids=["priority", "timeout", "width", "run timeout"],
)
def test_a_number_beyond_64_bits_is_refused_and_is_no_error_of_the_schedulers(fields):
    world = World()
    with pytest.raises(Refused) as caught:
        decide(world.state, read_command(json.dumps({**PLAIN, **fields}).encode()), world.now)
    assert caught.value.code in ("field.type", "field.value")


def test_a_repeat_with_a_number_beyond_64_bits_is_refused_and_holds_no_run():
    world = World()
    world.do(read_command(json.dumps(PLAIN).encode()))
    with pytest.raises(Refused):
        decide(world.state, read_command(json.dumps({**PLAIN, **with_task(priority=10**30)}).encode()), world.now)


@examples(60)
@given(ANY_JSON)
def test_any_json_is_a_command_or_a_refusal(value):
    try:
        command = read_command(json.dumps(value).encode())
    except Refused as found:
        assert found.code == "field.type"
    else:
        assert isinstance(command, cm.ClientCommand)


@examples(60)
@given(st.sampled_from(sorted(PLAIN)), st.none() | st.booleans() | st.integers(-5, 5) | st.text() | st.lists(st.text()))
def test_any_single_wrong_value_is_a_command_or_a_refusal_at_that_field(name, value):
    try:
        read_command(json.dumps({**PLAIN, name: value}).encode())
    except Refused as found:
        assert found.path == name or found.path.startswith((f"{name}.", f"{name}[")) or f"`{name}`" in found.reason


# The same checks for plain values.


def test_a_plain_value_becomes_a_struct_or_a_refusal_by_its_path():
    assert check_shape({"slots": 2, "queues": ["a"]}, Capacity) == Capacity(slots=2, queues=("a",))
    with pytest.raises(Refused) as caught:
        check_shape({"slots": "2"}, Capacity)
    assert (caught.value.code, caught.value.path) == ("field.type", "slots")
    with pytest.raises(Refused) as caught:
        check_shape({"slot": 2}, Capacity)
    assert "`slot`" in caught.value.reason
