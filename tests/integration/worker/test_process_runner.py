"""Python functions in warm processes: what goes in, what comes out, and what each kind of end is called."""

import asyncio
import re
import signal
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from rota.core.commands import Outcome
from rota.core.decide.leases import Input
from rota.core.errors import headline
from rota.core.model import FailureClass
from rota.ports import BlobRef
from rota.wire.values import PICKLE, PLAIN, unpack
from rota.wire.work import (
    OutputOf,
    ParamOf,
    PythonWork,
    StoredValue,
    decode_value,
    encode_value,
    plain,
)
from rota.worker.runners.pool import Recycling
from rota.worker.runners.process import ProcessRunner
from tests.integration.worker.stage import Stage, group, python_work, staged, value_of


@staged()
async def test_a_function_is_called_and_its_value_comes_back(stage: Stage) -> None:
    assert value_of(await stage.call("add", 2, 3)) == 5
    assert value_of(await stage.call("add", (1,), (2,))) == (1, 2)
    assert value_of(await stage.call("add_soon", 2, 3)) == 5
    assert value_of(await stage.run(stage.offer(python_work("add", 2, right=3)))) == 5


@staged()
async def test_arguments_come_from_outputs_and_parameters(stage: Stage) -> None:
    one = encode_value(plain([1]))
    work = python_work("add", OutputOf("many"), OutputOf("single"))
    inputs = (group("many", one, None), Input("single", (one,)))
    assert value_of(await stage.run(stage.offer(work, inputs=inputs))) == [[1], None, 1]
    params = msgspec.msgpack.encode({"day": "monday"})
    assert value_of(await stage.call("add", "on ", ParamOf("day"), params=params)) == "on monday"
    over = await stage.call("add", "on ", ParamOf("night"), params=params)
    assert over.failure is FailureClass.FATAL
    assert re.search(r"'night'.*\bday\b", over.error)


@staged()
async def test_a_group_of_one_is_still_a_list(stage: Stage) -> None:
    inputs = (group("many", encode_value(plain(7))),)
    assert value_of(await stage.call("add", OutputOf("many"), [8], inputs=inputs)) == [7, 8]


@staged()
async def test_a_pickled_function_is_called(stage: Stage) -> None:
    import cloudpickle

    factor = 3
    work = PythonWork(pickled=cloudpickle.dumps(lambda value: value * factor), args=(plain(14),))
    assert value_of(await stage.run(stage.offer(work))) == 42


@staged()
async def test_a_script_is_loaded_without_its_main_part(stage: Stage) -> None:
    script = stage.folder / "etl.py"
    script.write_text(
        "import beside\n"
        "class Row:\n    pass\n"
        "def extract():\n    return [beside.NAME, __name__, Row()]\n"
        "if __name__ == '__main__':\n    raise SystemExit('the program was run again')\n"
    )
    (stage.folder / "beside.py").write_text("NAME = 'beside'\n")
    over = await stage.run(stage.offer(PythonWork(function="__main__:extract", file=str(script))))
    assert over.outcome is Outcome.SUCCESS, over.error
    work = PythonWork(function="etl:Row", file=str(script))
    assert (await stage.run(stage.offer(work))).outcome is Outcome.SUCCESS
    gone = PythonWork(function="etl:Row", file=str(stage.folder / "gone.py"))
    assert (await stage.run(stage.offer(gone))).failure is FailureClass.FATAL


@staged()
async def test_code_knows_its_attempt(stage: Stage) -> None:
    params = msgspec.msgpack.encode({"day": 1})
    offer = stage.offer(python_work("about_me"), attempt=3, fence=77, params=params, timeout_ms=50_000)
    known = value_of(await stage.run(offer))
    assert known.pop("deadline_at") > 1_600_000_000_000
    assert known == {
        "tenant": "acme",
        "run": "run/1",
        "task": "extract[0]",
        "attempt": 3,
        "fence": 77,
        "params": {"day": 1},
        "fence_in_thread": 77,
    }


@staged()
async def test_code_may_skip_fail_for_good_or_come_back_later(stage: Stage) -> None:
    skipped = await stage.call("skip")
    assert (skipped.outcome, skipped.error) == (Outcome.SKIPPED, "nothing new today")
    failed = await stage.call("fail")
    assert (failed.outcome, failed.failure) == (Outcome.FAILED, FailureClass.FATAL)
    assert failed.error == "account closed"
    later = await stage.call("reschedule", 3_600)
    assert later.outcome is Outcome.RESCHEDULE
    soon = await stage.call("reschedule", 0)
    assert 3_590_000 < later.resume_at - soon.resume_at <= 3_600_000


# Failures.


@staged()
async def test_an_exception_is_told_with_the_users_frames_only(stage: Stage) -> None:
    over = await stage.call("divide_and_explain", 0)
    assert (over.outcome, over.failure) == (Outcome.FAILED, FailureClass.USER)
    first, _, trace = over.error.partition("\n\n")
    assert first == "ValueError: no good divisor"
    assert trace.startswith("Traceback")
    assert trace.endswith(f"\n{first}")
    assert "ZeroDivisionError" in over.error
    assert "return left / right" in over.error
    assert "rota/worker" not in over.error
    wrong = await stage.call("add", 1)
    assert wrong.error == "TypeError: add() missing 1 required positional argument: 'right'"


@staged()
async def test_a_long_traceback_keeps_its_first_line_and_its_end(stage: Stage) -> None:
    over = await stage.call("add", "x" * 10_000, 1)
    assert len(over.error) <= 4_096
    assert headline(over.error).startswith("TypeError: ")
    deep = await stage.call("recurse")
    assert headline(deep.error).startswith("RecursionError: ")
    assert deep.error.splitlines()[-1] == headline(deep.error)


@pytest.mark.parametrize(
    ("function", "args", "error"),
    [
        ("exit_with", (3,), "called sys.exit(3); a task ends by returning"),
        ("exit_with", (0,), "called sys.exit(0); a task ends by returning"),
        ("exit_hard", (5,), "the process exited with code 5 before the task returned\nthe last words"),
        ("kill_myself", (int(signal.SIGTERM),), "killed by SIGTERM"),
        ("kill_myself", (int(signal.SIGKILL),), "killed by SIGKILL"),
    ],
)
def test_the_end_of_a_process_is_the_tasks_failure(
    tmp_path: Path, function: str, args: tuple[object, ...], error: str
) -> None:
    @staged()
    async def play(stage: Stage) -> None:
        over = await stage.call(function, *args)
        assert (over.outcome, over.failure, over.error) == (Outcome.FAILED, FailureClass.USER, error)
        assert value_of(await stage.call("add", 1, 1)) == 2

    play(tmp_path)


@staged()
async def test_a_crash_says_where(stage: Stage) -> None:
    over = await stage.call("segfault")
    assert over.failure is FailureClass.USER
    assert over.error.startswith("killed by SIGSEGV\n")
    assert "in segfault" in over.error


@staged(memory_bytes_max=512 * 1024 * 1024)
async def test_memory_beyond_its_limit_is_called_out_of_memory(stage: Stage) -> None:
    over = await stage.call("exhaust_memory")
    assert (over.outcome, over.failure) == (Outcome.FAILED, FailureClass.OUT_OF_MEMORY)
    assert over.error.endswith("MemoryError")
    assert value_of(await stage.call("add", 1, 1)) == 2


@staged()
async def test_what_takes_too_long_is_killed(stage: Stage) -> None:
    # A process that is there: on a busy machine 300 ms are over before one is started.
    assert value_of(await stage.call("add", 1, 1)) == 2
    over = await stage.call("hang", timeout_ms=300)
    assert (over.outcome, over.failure) == (Outcome.FAILED, FailureClass.TIMEOUT)
    assert re.search(r"\b300 ms\b.*\bkilled\b", over.error)
    assert stage.left() == []


@staged()
async def test_time_spent_before_the_call_counts(stage: Stage) -> None:
    over = await stage.call("add", 1, 1, timeout_ms=1)
    assert over.failure is FailureClass.TIMEOUT
    assert re.search(r"\b1 ms\b(?!.*\bkilled\b)", over.error)
    assert stage.left() == []
    assert value_of(await stage.call("add", 1, 1, timeout_ms=60_000)) == 2


@staged()
async def test_a_value_that_cannot_leave_its_process_is_explained(stage: Stage) -> None:
    over = await stage.call("lock")
    assert over.failure is FailureClass.FATAL
    assert re.search(r"'extract\[0\]'.*\btests\.integration\.worker\.tasks:lock\b.*\b_thread\.lock\b", over.error)
    over = await stage.call("generator")
    assert "Return list(…) of it." in over.error


@staged()
async def test_a_function_that_is_not_there_is_not_tried_again(stage: Stage) -> None:
    for function, error in (
        ("nowhere.at_all:f", "there is no module 'nowhere.at_all'"),
        ("tests.integration.worker.tasks:gone", "there is no 'gone' in the module"),
        ("tests.integration.worker.tasks:CALLS", "is a list and cannot be called"),
    ):
        over = await stage.call(function)
        assert over.failure is FailureClass.FATAL
        assert error in over.error
    over = await stage.process.run(replace(stage.offer(python_work("pid")), work=b"\xff"))
    assert over.failure is FailureClass.FATAL


# Large values.


@staged()
async def test_a_large_result_goes_to_the_blobs_and_comes_back_as_input(stage: Stage) -> None:
    for function, encoding in (("large", PLAIN), ("large_tuple", PICKLE)):
        over = await stage.call(function, 100_000, fence=500)
        assert over.result is not None
        stored = decode_value(over.result)
        assert isinstance(stored, StoredValue)
        assert stored.encoding == encoding
        assert stored.ref.name == "acme/run%2F1/extract%5B0%5D/1-500/result"
        unpack(encoding, await stage.blobs.get(stored.ref), trusted=True)
        inputs = (Input("first", (over.result,)),)
        expected = 100_000 if encoding == PLAIN else 2
        assert value_of(await stage.call("length", OutputOf("first"), inputs=inputs)) == expected
    assert [path for path in (stage.folder / "scratch").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("function", ["large", "large_tuple"])
def test_100_megabytes_come_back_without_a_third_copy(tmp_path: Path, function: str) -> None:
    # Room for the interpreter, the value and one more copy of it.
    @staged(memory_bytes_max=380 * 1024 * 1024)
    async def play(stage: Stage) -> None:
        over = await stage.call(function, 100 * 1024 * 1024)
        assert over.result is not None, over.error
        stored = decode_value(over.result)
        assert isinstance(stored, StoredValue)
        assert stored.ref.size > 100 * 1024 * 1024

    play(tmp_path)


@staged()
async def test_files_of_a_worker_that_was_killed_are_removed(stage: Stage) -> None:
    left = stage.folder / "scratch" / "4194399-abc"
    left.mkdir(parents=True)
    (left / "7-result").write_text("half a result")
    await stage.call("large", 100_000)
    assert not left.exists()


@staged()
async def test_an_input_that_is_gone_is_named(stage: Stage) -> None:
    lost = encode_value(StoredValue(PLAIN, BlobRef("acme/gone", 5, "0" * 64)))
    inputs = (group("many", encode_value(plain(1)), lost),)
    over = await stage.call("length", OutputOf("many"), inputs=inputs)
    assert (over.outcome, over.failure, over.lost) == (Outcome.FAILED, FailureClass.INPUT_LOST, ("many[1]",))


# Logs.


@staged()
async def test_what_is_printed_is_in_the_log_in_order(stage: Stage) -> None:
    await stage.call("print_both")
    assert stage.log() == b"to stdout\nto stderr\nfrom a child\nno newline"
    await stage.call("add", 1, 1)
    assert stage.log() == b""


@staged()
async def test_a_log_is_capped_and_says_so(stage: Stage) -> None:
    over = await stage.call("printed", 100)
    assert value_of(over) == "done"
    log = stage.log()
    kept, note = log[: 64 * 1024 * 1024], log[64 * 1024 * 1024 :]
    assert kept.endswith(b"x\n")
    assert note == b"\n[rota] 37,748,736 more bytes were dropped: a log holds at most 67,108,864\n"


@staged()
async def test_writing_to_a_closed_stdout_is_the_tasks_own_failure(stage: Stage) -> None:
    over = await stage.call("close_stdout")
    assert over.failure is FailureClass.USER
    assert "OSError: [Errno 9] Bad file descriptor" in over.error
    await stage.call("print_both")
    assert stage.log().startswith(b"to stdout")


# Warm processes.


@staged()
async def test_a_process_is_used_again_for_its_tenant_and_bundle_only(stage: Stage) -> None:
    first = value_of(await stage.call("pid"))
    assert value_of(await stage.call("pid")) == first
    other = value_of(await stage.call("pid", tenant="other"))
    assert other != first
    elsewhere = PythonWork(function="os:getpid", path=str(stage.folder))
    assert value_of(await stage.run(stage.offer(elsewhere))) not in (first, other)
    assert value_of(await stage.call("pid")) == first
    assert value_of(await stage.call("pid", tenant="other")) == other


@staged(recycling=Recycling(ahead=0, idle_max=2))
async def test_many_tenants_at_once_never_share_a_process(stage: Stage) -> None:
    used: dict[int, str] = {}
    for _ in range(3):
        tenants = [f"tenant-{number}" for number in range(4)]
        overs = await asyncio.gather(*(stage.call("pid", tenant=tenant) for tenant in tenants))
        for tenant, over in zip(tenants, overs, strict=True):
            assert used.setdefault(value_of(over), tenant) == tenant


@staged(recycling=Recycling(ahead=0, attempts_max=2, growth_bytes_max=32 * 1024 * 1024))
async def test_a_process_is_recycled_after_some_attempts_or_when_it_has_grown(stage: Stage) -> None:
    pids = [value_of(await stage.call("pid")) for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]
    grown = value_of(await stage.call("grow", 64 * 1024 * 1024))
    assert value_of(await stage.call("pid")) != grown


@staged(recycling=Recycling(ahead=0))
async def test_a_process_that_nobody_needs_for_long_is_ended(stage: Stage) -> None:
    first = value_of(await stage.call("pid"))
    stage.process.end_idle(3_600)
    assert value_of(await stage.call("pid")) == first
    stage.process.end_idle(0)
    assert value_of(await stage.call("pid")) != first


@pytest.mark.parametrize("function", ["leave_thread", "leave_process", "fork_and_return_twice", "replace_streams"])
def test_what_an_attempt_leaves_behind_ends_with_it(tmp_path: Path, function: str) -> None:
    @staged()
    async def play(stage: Stage) -> None:
        first = value_of(await stage.call(function))
        if function != "fork_and_return_twice":
            assert stage.left() == []
            assert value_of(await stage.call("pid")) != first
        assert value_of(await stage.call("add", 1, 1)) == 2

    play(tmp_path)


@staged()
async def test_folder_and_environment_are_put_back(stage: Stage) -> None:
    before = value_of(await stage.call("where_am_i"))
    assert value_of(await stage.call("change_everything")) == before[0]
    assert value_of(await stage.call("where_am_i")) == before


@staged()
async def test_code_that_closes_our_files_fails_and_harms_nobody(stage: Stage) -> None:
    over = await stage.call("close_everything")
    assert over.failure is FailureClass.USER
    assert value_of(await stage.call("add", 1, 1)) == 2


@pytest.mark.parametrize("size", [100, 1 << 31])
def test_code_that_speaks_on_our_connection_fails_and_harms_nobody(tmp_path: Path, size: int) -> None:
    @staged()
    async def play(stage: Stage) -> None:
        over = await stage.call("write_garbage", size)
        assert over.failure is FailureClass.USER
        assert re.match(r".*\bconnection\b", over.error)
        assert stage.left() == []

    play(tmp_path)


@staged()
async def test_an_alarm_does_not_ring_in_the_next_attempt(stage: Stage) -> None:
    first = value_of(await stage.call("leave_alarm"))
    assert value_of(await stage.call("outlive_alarm")) == first


@staged()
async def test_trouble_of_the_blobs_is_not_the_tasks_fault(stage: Stage) -> None:
    blobs = stage.folder / "blobs"
    blobs.rmdir()
    blobs.write_text("a file where a folder should be")
    over = await stage.call("large", 100_000)
    assert over.failure is FailureClass.INTERNAL
    assert re.match(r".*\bresult\b.*\bstored: ", over.error)


@staged()
async def test_a_runner_whose_supervisor_was_closed_says_so(stage: Stage) -> None:
    await stage.call("pid")
    await stage.supervisor.close()
    for over in (await stage.call("pid"), await stage.sh("true")):
        assert over.failure is FailureClass.INTERNAL


@staged(recycling=Recycling(ahead=2))
async def test_processes_are_started_ahead(stage: Stage) -> None:
    await stage.call("pid")
    await stage.process._pool.settled()
    assert len(stage.left()) == 3


@staged()
async def test_many_attempts_run_at_once(stage: Stage) -> None:
    overs = await asyncio.gather(*(stage.call("add", number, number) for number in range(12)))
    assert [value_of(over) for over in overs] == [2 * number for number in range(12)]


def test_the_request_has_the_shape_that_the_child_reads() -> None:
    from rota.worker.runners.child import Given, Request

    assert Request.__struct_fields__ == (
        "tenant",
        "run",
        "task",
        "attempt",
        "fence",
        "deadline_at",
        "work",
        "params",
        "inputs",
        "stored",
        "result_file",
        "workflow",
        "version",
        "logical_at",
        "map_index",
        "first_started_at",
        "code",
    )
    assert Given.__struct_fields__ == Input.__struct_fields__


@staged()
async def test_runners_of_one_worker_remove_their_own_files_and_no_others(stage: Stage) -> None:
    other = ProcessRunner(stage.supervisor, stage.blobs, stage.folder, stage.bundles, recycling=Recycling(ahead=0))
    for runner in (stage.process, other):
        assert (await runner.run(stage.offer(python_work("add", 1, 1)))).outcome is Outcome.SUCCESS
    scratch = stage.folder / "scratch"
    assert len(list(scratch.iterdir())) == 2
    await other.close()
    assert len(list(scratch.iterdir())) == 1
    await stage.process.close()
    assert list(scratch.iterdir()) == []
