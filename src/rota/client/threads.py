"""An event loop in a thread of its own, for programs that do not wait with `await`."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

CLOSED = "this Rota is closed"
# How many items of a stream are fetched before anybody asks for them.
AHEAD_MAX = 1_000


class LoopThread:
    """An event loop in a thread of its own, in the process that made it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self.loop.run_forever, name="rota", daemon=True)
        self._thread.start()

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that the thread lives in, and not a copy that was forked from it."""
        return self._pid == os.getpid()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for it. Whatever interrupts the wait also cancels the work."""
        if trouble := self._trouble():
            work.close()
            raise RuntimeError(trouble)
        done: Future[T] = Future()
        tasks = self._begin(work, lambda task: _hand_over(task, done))
        try:
            return done.result()
        except CancelledError:
            raise RuntimeError(CLOSED) from None
        except BaseException:
            if not done.done():
                self._cancel(tasks)
                wait((done,))
            raise

    def _begin(
        self, work: Coroutine[Any, Any, T], then: Callable[["asyncio.Task[T]"], None]
    ) -> "list[asyncio.Task[T]]":
        """Start something there. Its task is in the list by the time that anything else is called there."""
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(self.loop.create_task(work))
            tasks[0].add_done_callback(then)

        try:
            self.loop.call_soon_threadsafe(begin)
        except RuntimeError:
            work.close()
            raise RuntimeError(CLOSED) from None
        return tasks

    def _cancel(self, tasks: "list[asyncio.Task[T]]") -> None:
        def cancel() -> None:
            tasks[0].cancel()

        # A loop that was closed has cancelled it before.
        with suppress(RuntimeError):
            if self.is_ours:
                self.loop.call_soon_threadsafe(cancel)

    def _trouble(self) -> str:
        if not self.is_ours:
            return f"this Rota belongs to process {self._pid}; make another one in the process that was forked from it"
        if self.loop.is_closed():
            return CLOSED
        if threading.current_thread() is self._thread:
            return "this would wait for itself: use the async client inside the event loop"
        return ""

    def walk(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Go through an async iterator from here; some items are fetched ahead, so that not each one costs a wait."""
        if trouble := self._trouble():
            raise RuntimeError(trouble)
        got: SimpleQueue[tuple[T] | BaseException] = SimpleQueue()
        room = asyncio.Semaphore(AHEAD_MAX)
        tasks = self._begin(_fetch(items, got, room), lambda task: got.put(_end_of(task)))
        said: tuple[T] | BaseException | None = None
        taken = 0
        try:
            while isinstance(said := got.get(), tuple):
                yield from said
                taken += len(said)
                if taken >= AHEAD_MAX // 2:
                    self.loop.call_soon_threadsafe(_make_room, room, taken)
                    taken = 0
        finally:
            # Also if whoever walks has seen enough, or is interrupted: the iterator is closed when this returns.
            self._cancel(tasks)
            while self.is_ours and not isinstance(said, BaseException):
                said = got.get()
        if isinstance(said, asyncio.CancelledError):
            raise RuntimeError(CLOSED)
        if isinstance(said, BaseException) and not isinstance(said, StopAsyncIteration):
            raise said

    def stop(self) -> None:
        """End the loop and its thread; whoever still waits for something there is told."""
        if self.loop.is_closed() or not self.is_ours:
            return
        asyncio.run_coroutine_threadsafe(_cancel_others(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        # What was asked for in the last moment.
        self.loop.run_until_complete(_cancel_others())
        self.loop.close()


def _hand_over(task: "asyncio.Task[T]", done: "Future[T]") -> None:
    if task.cancelled():
        done.cancel()
        done.set_running_or_notify_cancel()
    elif error := task.exception():
        done.set_exception(error)
    else:
        done.set_result(task.result())


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


async def _fetch(
    items: AsyncIterator[T], got: "SimpleQueue[tuple[T] | BaseException]", room: asyncio.Semaphore
) -> None:
    """Put what an iterator gives into a queue."""
    try:
        async for item in items:
            await room.acquire()
            got.put((item,))
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()


def _end_of(task: "asyncio.Task[None]") -> BaseException:
    if task.cancelled():
        return asyncio.CancelledError()
    return task.exception() or StopAsyncIteration()


def _make_room(room: asyncio.Semaphore, count: int) -> None:
    for _ in range(count):
        room.release()
