"""Python functions in threads of this process: the same calls, without the walls."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rota
from rota.core.commands import Outcome
from rota.core.decide.leases import Input, Offer
from rota.core.model import FailureClass
from rota.ports import BlobRef
from rota.stores.blobs import ObjectBlobs, open_blobs
from rota.wire.values import PLAIN, pack, unpack
from rota.wire.work import OutputOf, ParamOf, PythonWork, StoredValue, Value, decode_value, encode_value, encode_work
from rota.worker.runners.thread import ThreadRunner
from rota.worker.sync import AttemptOver

LET_GO = threading.Event()
REACHED = threading.Event()
RAN: list[str] = []


def add(left: Any, right: Any) -> Any:
    return left + right


async def add_soon(left: int, right: int) -> int:
    await asyncio.sleep(0)
    return left + right


def fence() -> int:
    return rota.context().fence


def wait() -> str:
    REACHED.set()
    LET_GO.wait()
    return "late"


def listen() -> None:
    cancelled = rota.context().cancelled
    REACHED.set()
    RAN.append("asked to stop" if cancelled.wait(30) else "never asked")


def note() -> None:
    RAN.append("ran")


def skip() -> None:
    raise rota.Skip("not today")


def a_lock() -> object:
    return threading.Lock()


def exit_now() -> None:
    raise SystemExit(4)


def offer(function: Callable[..., Any], *args: Any, **changes: Any) -> Offer:
    arguments = tuple(arg if isinstance(arg, OutputOf | ParamOf) else Value(*pack(arg)) for arg in args)
    work = PythonWork(function=f"{__name__}:{function.__qualname__}", args=arguments)
    known: dict[str, Any] = {
        "tenant": "acme",
        "run": "run",
        "task": 0,
        "task_id": "task",
        "fence": 1,
        "attempt": 1,
        "kind": "python",
        "work": encode_work(work),
        "params": b"",
        "timeout_ms": 0,
        "lease_ms": 30_000,
    }
    return Offer(**{**known, **changes})


async def begun(runner: ThreadRunner) -> "asyncio.Task[AttemptOver]":
    """An attempt that has a thread and waits in it."""
    REACHED.clear()
    attempt = asyncio.create_task(runner.run(offer(wait)))
    await asyncio.to_thread(REACHED.wait)
    return attempt


def value_of(over: AttemptOver) -> Any:
    assert over.result is not None, over.error
    value = decode_value(over.result)
    assert isinstance(value, Value)
    return unpack(value.encoding, value.content, trusted=True)


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[ThreadRunner, ObjectBlobs], Awaitable[None]]], None]:
    LET_GO.clear()
    REACHED.clear()

    async def run(test: Callable[[ThreadRunner, ObjectBlobs], Awaitable[None]]) -> None:
        blobs = open_blobs("memory:///")
        runner = ThreadRunner(blobs, tmp_path, slots=2)
        try:
            await asyncio.wait_for(test(runner, blobs), 30)
        finally:
            LET_GO.set()
            await runner.close()

    return lambda test: asyncio.run(run(test))


def test_functions_are_called_and_their_values_come_back(play: Any) -> None:
    async def test(runner: ThreadRunner, blobs: ObjectBlobs) -> None:
        assert value_of(await runner.run(offer(add, 1, 2))) == 3
        assert value_of(await runner.run(offer(add, (1,), (2,)))) == (1, 2)
        assert value_of(await runner.run(offer(add_soon, 1, 2))) == 3
        params = msgspec.msgpack.encode({"day": 4})
        assert value_of(await runner.run(offer(add, 1, ParamOf("day"), params=params))) == 5
        overs = await asyncio.gather(*(runner.run(offer(fence, fence=number)) for number in range(1, 20)))
        assert [value_of(over) for over in overs] == list(range(1, 20))
        assert runner.taken == 0

    play(test)


def test_ends_of_every_kind_are_told_apart(play: Any) -> None:
    async def test(runner: ThreadRunner, blobs: ObjectBlobs) -> None:
        assert (await runner.run(offer(skip))).outcome is Outcome.SKIPPED
        assert "sys.exit(4)" in (await runner.run(offer(exit_now))).error
        assert (await runner.run(offer(a_lock))).failure is FailureClass.FATAL
        over = await runner.run(offer(add, 1, "x"))
        assert over.failure is FailureClass.USER
        assert over.error.endswith("TypeError: unsupported operand type(s) for +: 'int' and 'str'")
        assert (await runner.run(offer(add, work=b"\xff"))).failure is FailureClass.FATAL

    play(test)


def test_large_values_go_through_the_blobs(play: Any) -> None:
    async def test(runner: ThreadRunner, blobs: ObjectBlobs) -> None:
        over = await runner.run(offer(add, b"x" * 70_000, b"y"))
        assert over.result is not None
        stored = decode_value(over.result)
        assert isinstance(stored, StoredValue)
        assert stored.ref.name == "acme/run/task/1-1/result"
        inputs = (Input("up", (over.result,)),)
        assert value_of(await runner.run(offer(len_of, OutputOf("up"), inputs=inputs))) == 70_001
        lost = encode_value(StoredValue(PLAIN, BlobRef("acme/gone", 1, "0" * 64)))
        over = await runner.run(offer(len_of, OutputOf("up"), inputs=(Input("up", (lost,)),)))
        assert (over.failure, over.lost) == (FailureClass.INPUT_LOST, ("up",))

    play(test)


def len_of(value: bytes) -> int:
    return len(value)


def test_a_timeout_is_reported_and_the_slot_stays_taken(play: Any) -> None:
    async def test(runner: ThreadRunner, blobs: ObjectBlobs) -> None:
        over = await runner.run(offer(wait, timeout_ms=50))
        assert over.failure is FailureClass.TIMEOUT
        assert "slot" in over.error
        assert runner.taken == 1
        assert value_of(await runner.run(offer(add, 1, 2))) == 3
        LET_GO.set()

    play(test)


def test_a_cancelled_attempt_is_abandoned_and_its_slot_comes_back_with_its_end(play: Any) -> None:
    async def test(runner: ThreadRunner, blobs: ObjectBlobs) -> None:
        attempts = [await begun(runner) for _ in range(2)]
        for attempt in attempts:
            attempt.cancel()
            with pytest.raises(asyncio.CancelledError):
                await attempt
        assert runner.taken == 2
        waiting = asyncio.create_task(runner.run(offer(add, 1, 2)))
        assert not (await asyncio.wait((waiting,), timeout=0.05))[0]
        LET_GO.set()
        assert value_of(await waiting) == 3

    play(test)


def test_a_thread_cannot_be_killed_but_it_can_be_asked_to_stop(play: Any) -> None:
    async def test(runner: ThreadRunner, blobs: ObjectBlobs) -> None:
        RAN.clear()
        attempt = asyncio.create_task(runner.run(offer(listen)))
        await asyncio.to_thread(REACHED.wait)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        # Those that come after it have its slot when it has ended.
        await asyncio.gather(*(runner.run(offer(add, 1, 2)) for _ in range(4)))
        assert (await runner.run(offer(listen, timeout_ms=20))).failure is FailureClass.TIMEOUT
        while runner.taken:
            await asyncio.sleep(0)
        assert RAN == ["asked to stop", "asked to stop"]

    play(test)


def test_an_attempt_that_was_given_up_while_it_waited_for_a_thread_never_runs(play: Any) -> None:
    async def test(runner: ThreadRunner, blobs: ObjectBlobs) -> None:
        RAN.clear()
        hung = [await begun(runner) for _ in range(2)]
        late = await runner.run(offer(note, timeout_ms=20))
        assert late.failure is FailureClass.TIMEOUT
        LET_GO.set()
        await asyncio.gather(*hung)
        assert (await runner.run(offer(add, 1, 2))).outcome is Outcome.SUCCESS
        assert RAN == []

    play(test)


def test_a_function_that_is_redefined_is_the_new_one(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(runner: ThreadRunner, blobs: ObjectBlobs) -> None:
        first = offer(fence, fence=3)
        assert value_of(await runner.run(first)) == 3
        monkeypatch.setitem(globals(), "fence", lambda: "new")
        assert value_of(await runner.run(first)) == "new"

    play(test)


@pytest.mark.parametrize("is_script", [False, True])
def test_who_needs_a_module_that_another_thread_is_loading_waits_for_it(
    play: Any, tmp_path: Path, is_script: bool
) -> None:
    name = f"loaded_slowly_{is_script}"
    file = tmp_path / f"{name}.py"
    text = f"from {__name__} import LET_GO, REACHED\nREACHED.set()\nLET_GO.wait()\ndef late():\n    return 7\n"
    file.write_text(text)
    where = {"file": str(file)} if is_script else {"path": str(tmp_path)}
    work = encode_work(PythonWork(function=f"{name}:late", **where))

    async def test(runner: ThreadRunner, blobs: ObjectBlobs) -> None:
        first = asyncio.create_task(runner.run(offer(add, work=work)))
        await asyncio.to_thread(REACHED.wait)
        second = asyncio.create_task(runner.run(offer(add, work=work, fence=2)))
        while runner.taken < 2:
            await asyncio.sleep(0)
        LET_GO.set()
        assert [value_of(over) for over in await asyncio.gather(first, second)] == [7, 7]

    play(test)
