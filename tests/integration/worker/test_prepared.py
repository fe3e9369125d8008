"""What the runners do with what workflows ask: mapping, branches, sensors, templates, prepared commands, stopping."""

import asyncio
import re
from typing import Any

import msgspec
import pytest
from msgspec import structs

from rota.core.commands import Outcome
from rota.core.decide.leases import Input
from rota.core.model import FailureClass
from rota.wire.values import unpack
from rota.wire.work import (
    Branches,
    CommandWork,
    OutputOf,
    Over,
    ParamOf,
    PythonWork,
    Sensor,
    StoredValue,
    TemplateOf,
    Value,
    decode_value,
    encode_value,
    plain,
)
from rota.worker.runners import AT_ONCE
from tests.integration.worker.stage import Stage, python_work, staged, told, value_of

NOON = 1_794_830_400_000  # 2026-11-16T12:00Z


def work(function: str, *args: object, **fields: Any) -> PythonWork:
    return structs.replace(python_work(function, *args), **fields)


def given(task: str, *values: object, is_group: bool = False) -> tuple[Input, ...]:
    return (Input(task, tuple(encode_value(plain(value)) for value in values), is_group),)


@staged()
async def test_an_attempt_knows_its_workflow_and_what_the_run_is_about(stage: Stage) -> None:
    call = work("know", context="ctx", zone="America/New_York")
    known = {"graph": "etl", "version": 3, "logical_at": NOON, "map_index": 7, "timeout_ms": 60_000}
    assert value_of(await stage.run(stage.offer(call, **known))) == {
        "workflow": "etl",
        "version": 3,
        "map_index": 7,
        "logical_date": "2026-11-16T07:00:00-05:00",
        "limited": True,
    }
    assert stage.log().endswith(b" INFO I am extract[0]\n")


@staged()
async def test_templates_are_rendered_in_the_process_that_runs_the_code(stage: Stage) -> None:
    text = "{{ workflow }} v{{ version }} {{ ds }} {{ ts_nodash }} {{ params.day }} {{ run_id }} {{ attempt }}"
    call = work("echoed", args=(TemplateOf(text),))
    facts = {"graph": "etl", "version": 3, "logical_at": NOON, "params": msgspec.msgpack.encode({"day": "{{ ds }}"})}
    said = value_of(await stage.run(stage.offer(call, **facts)))
    assert said == ["etl v3 2026-11-16 20261116T120000 {{ ds }} run/1 1"], "a value is no template"


@staged()
async def test_a_template_that_finds_nothing_fails_for_good_and_says_what_there_is(stage: Stage) -> None:
    call = work("echoed", args=(TemplateOf("{{ params.night }}"),))
    over = await stage.run(stage.offer(call, params=msgspec.msgpack.encode({"day": 1})))
    assert (over.outcome, over.failure) == (Outcome.FAILED, FailureClass.FATAL)
    assert re.search(r"'night'.*\bday\b", over.error)


@staged()
async def test_a_template_cannot_escape_even_if_nobody_checked_it(stage: Stage) -> None:
    for text in ("{{ params.__class__ }}", "{{ params|attr('__class__') }}", "{{ 'x' * 2000000 }}"):
        over = await stage.run(stage.offer(work("echoed", args=(TemplateOf(text),))))
        assert (over.outcome, over.failure) == (Outcome.FAILED, FailureClass.FATAL), over.result


@staged()
async def test_a_date_of_the_run_arrives_as_one(stage: Stage) -> None:
    call = work("echoed", args=(ParamOf("day", "date"), ParamOf("at", "datetime"), ParamOf("day")))
    packed = msgspec.msgpack.encode({"day": "2026-11-16", "at": "2026-11-16T12:00:00+00:00"})
    day, at, text = value_of(await stage.run(stage.offer(call, params=packed)))
    assert (day.year, at.hour, text) == (2026, 12, "2026-11-16")


@staged()
async def test_each_of_a_mapped_task_gets_its_element(stage: Stage) -> None:
    over = Over((("a", plain([1, 2])), ("b", OutputOf("up"))))
    call = work("echoed", over=over)
    seen = [
        value_of(await stage.run(stage.offer(call, map_index=index, inputs=given("up", {"x": 1, "y": 2, "z": 3}))))
        for index in range(6)
    ]
    pairs = [("x", 1), ("y", 2), ("z", 3)]
    assert seen == [[a, b] for a in (1, 2) for b in pairs]
    beyond = await stage.run(stage.offer(call, map_index=6, inputs=given("up", {"x": 1, "y": 2, "z": 3})))
    assert (beyond.failure, "'extract[0]'" in beyond.error) == (FailureClass.FATAL, True)


@staged()
async def test_rows_of_arguments_and_results_of_a_mapped_task_are_mapped_over(stage: Stage) -> None:
    rows = work("echoed", over=Over(rows=OutputOf("up")))
    inputs = given("up", [{"a": 1}, {"a": 2, "b": 3}])
    assert value_of(await stage.run(stage.offer(rows, map_index=1, inputs=inputs))) == [2, 3]
    each = work("echoed", over=Over((("a", OutputOf("up")),)))
    inputs = given("up", "p", "q", is_group=True)
    assert value_of(await stage.run(stage.offer(each, map_index=1, inputs=inputs))) == ["q"]
    bad = await stage.run(stage.offer(rows, map_index=0, inputs=given("up", [5])))
    assert re.search(r"\bexpand_kwargs\(\).*\b0\b.*\bint\b", bad.error)


@staged()
async def test_who_is_mapped_over_says_how_wide(stage: Stage) -> None:
    over = await stage.run(stage.offer(work("echoed_one", [1, 2, 3], maps=(("down", 1), ("wide", 2)))))
    assert over.expands == (("down", 3), ("wide", 6))
    over = await stage.run(stage.offer(work("echoed_one", None, maps=(("down", 1),))))
    assert (over.outcome, over.failure) == (Outcome.FAILED, FailureClass.FATAL)
    assert "'down'" in over.error


@staged()
async def test_a_branch_skips_what_it_does_not_choose(stage: Stage) -> None:
    branches = Branches((("a", ("a", "join")), ("b", ("b",))), ("a", "b", "join"))
    over = await stage.run(stage.offer(work("echoed_one", "a", branches=branches)))
    assert (value_of(over), over.skips) == ("a", ("b",))
    over = await stage.run(stage.offer(work("echoed_one", "d", branches=branches)))
    assert (over.outcome, over.failure) == (Outcome.FAILED, FailureClass.FATAL)


@staged()
async def test_a_condition_that_does_not_hold_skips_what_follows(stage: Stage) -> None:
    condition = Branches(unless=("a", "b"), is_condition=True)
    assert (await stage.run(stage.offer(work("echoed_one", 0, branches=condition)))).skips == ("a", "b")
    assert (await stage.run(stage.offer(work("echoed_one", 1, branches=condition)))).skips == ()


@staged()
async def test_a_sensor_comes_back_until_it_sees_or_has_no_patience_left(stage: Stage) -> None:
    sensor = Sensor(60_000, 3_600_000)
    again = await stage.run(stage.offer(work("echoed_one", None, sensor=sensor)))
    assert again.outcome is Outcome.RESCHEDULE
    assert value_of(await stage.run(stage.offer(work("echoed_one", "it", sensor=sensor)))) == "it"
    late = {"first_started_at": 1}
    over = await stage.run(stage.offer(work("echoed_one", None, sensor=sensor), **late))
    assert (over.outcome, over.failure) == (Outcome.FAILED, FailureClass.FATAL)
    assert "3,600 s" in over.error
    soft = structs.replace(sensor, soft_fail=True)
    assert (await stage.run(stage.offer(work("echoed_one", None, sensor=soft), **late))).outcome is Outcome.SKIPPED
    # Of what went wrong otherwise it makes a failure like any other.
    assert (await stage.run(stage.offer(work("fail", sensor=soft), **late))).failure is FailureClass.USER


# Commands.


@staged()
async def test_a_function_prepares_a_command_and_both_print_to_one_log(stage: Stage) -> None:
    call = work("words_of", "one two", is_preparing=True)
    over = await stage.run(stage.offer(CommandWork(call=call, env=(("N", "1"),))))
    assert value_of(over) == "one two extract[0]"
    assert stage.log() == b"preparing\none two extract[0]\n"


@staged()
async def test_a_command_line_of_templates_and_outputs(stage: Stage) -> None:
    call = PythonWork(
        function="rota.wire.work:prepared",
        kwargs=(("line", TemplateOf("echo {{ params.day | quote }} $N")), ("env", plain({"N": 5}))),
        is_preparing=True,
    )
    packed = msgspec.msgpack.encode({"day": "a b; exit 3"})
    assert value_of(await stage.run(stage.offer(CommandWork(call=call), params=packed))) == "a b; exit 3 5"


@staged()
async def test_a_function_that_prepares_nothing_ends_the_attempt(stage: Stage) -> None:
    over = await stage.run(stage.offer(CommandWork(call=work("no_words", is_preparing=True))))
    assert (over.outcome, over.failure) == (Outcome.FAILED, FailureClass.FATAL)
    assert re.search(r"\bcommand\b.*\bint\b", over.error)
    over = await stage.run(stage.offer(CommandWork(call=work("no_more", is_preparing=True))))
    assert (over.outcome, over.error) == (Outcome.SKIPPED, "nothing to run")


@staged()
async def test_what_is_left_of_the_time_limit_is_for_the_command(stage: Stage) -> None:
    call = work("words_of", "x", is_preparing=True)
    over = await stage.run(stage.offer(CommandWork(call=call), timeout_ms=20_000))
    assert over.outcome is Outcome.SUCCESS
    slow = PythonWork(function="rota.wire.work:prepared", kwargs=(("line", plain("sleep 60")),), is_preparing=True)
    over = await stage.run(stage.offer(CommandWork(call=slow), timeout_ms=2_000))
    assert over.failure is FailureClass.TIMEOUT


# Values.


@staged()
async def test_small_results_travel_and_those_of_many_travel_only_if_they_are_smaller(stage: Stage) -> None:
    assert value_of(await stage.call("wide", 60_000)) == "x" * 60_000
    for over in (
        await stage.call("wide", 66_000),
        await stage.call("wide", 5_000, map_index=0),
        await stage.run(stage.offer(work("listed", 5_000, maps=(("down", 1),)))),
    ):
        assert over.result is not None, over.error
        assert isinstance(decode_value(over.result), StoredValue)


@staged()
async def test_tables_travel_as_arrow(stage: Stage) -> None:
    for rows in (3, 100_000):
        over = await stage.call("arrow_table", rows)
        assert over.result is not None, over.error
        value = decode_value(over.result)
        assert value.encoding == "arrow"
        assert isinstance(value, StoredValue) == (rows > 10)
        if isinstance(value, Value):
            assert unpack(value.encoding, value.content).num_rows == 3, "no pickle: nobody need be trusted"
        taken = await stage.run(
            stage.offer(python_work("rows_of", OutputOf("up")), inputs=(Input("up", (over.result,)),))
        )
        assert value_of(taken) == ["Table", rows]


# Stopping.


@staged()
async def test_code_that_listens_may_put_things_in_order_before_it_is_killed(stage: Stage) -> None:
    fifo, file = stage.fifo(), stage.folder / "order"
    running = asyncio.ensure_future(stage.call("wait_to_be_asked", fifo, str(file)))
    await told(fifo)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert file.read_text() == "in order"
    await stage.shipper.settled()
    assert stage.log() == b"put in order\n"


@staged()
async def test_code_whose_lease_could_not_be_renewed_is_not_asked(stage: Stage) -> None:
    fifo, file = stage.fifo(), stage.folder / "order"
    running = asyncio.ensure_future(stage.call("wait_to_be_asked", fifo, str(file)))
    await told(fifo)
    running.cancel(AT_ONCE)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not file.exists()


@staged()
async def test_code_whose_time_is_over_is_asked_first_too(stage: Stage) -> None:
    fifo, file = stage.fifo(), stage.folder / "order"
    running = asyncio.ensure_future(stage.call("wait_to_be_asked", fifo, str(file), timeout_ms=5_000))
    await told(fifo)
    assert (await running).failure is FailureClass.TIMEOUT
    assert file.read_text() == "in order"


@staged()
async def test_the_next_attempt_in_a_process_does_not_inherit_the_listening(stage: Stage) -> None:
    file = stage.folder / "heard"
    assert (await stage.call("know_cancelled")).outcome is Outcome.SUCCESS
    assert (await stage.call("heard_or_not", str(file))).outcome is Outcome.SUCCESS
    assert file.read_text() == "True"


@staged()
async def test_a_thread_that_listens_first_is_told_how_to(stage: Stage) -> None:
    assert "context().cancelled" in value_of(await stage.call("ask_from_a_thread"))
