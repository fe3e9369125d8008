"""The client for ordinary programs: the same surface without `await`.

An event loop in a thread of its own does the work; every call hands it over and waits. Interrupting a wait (Ctrl-C)
cancels the call and leaves the run as it is.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from rota.client.deploying import SLOTS_SHOWN_MAX, Slots
from rota.client.happenings import Happening
from rota.client.runs import Client, GraphLike, Run
from rota.core.bounds import BACKFILL_ACTIVE_RUNS
from rota.core.model import Graph, Pairs, Queue, TaskSpec, Tenant
from rota.core.questions import BackfillView, PoolView, RunView, TaskView, WorkerView, WorkflowView
from rota.core.reasons import Reason
from rota.core.records import Audit
from rota.wire.instants import When

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


class BlockingRun:
    """One run, live or ended."""

    def __init__(self, thread: LoopThread, run: Run) -> None:
        self._thread = thread
        self._run = run

    @property
    def id(self) -> str:
        """The run's id."""
        return self._run.id

    @property
    def joined(self) -> bool:
        """Whether it is somebody else's, which a submission with the same key was answered with."""
        return self._run.joined

    def status(self) -> RunView:
        """How the run stands."""
        return self._thread.call(self._run.status())

    def wait(self, timeout_s: float | None = None) -> RunView:
        """Wait until the run has ended. Raises TimeoutError; the run goes on then."""
        return self._thread.call(self._run.wait(timeout_s))

    def result(self, task: str = "", timeout_s: float | None = None) -> Any:
        """Wait for the run, and give what a task returned: the one named, or the last one if there is only one.

        Of a mapped task it is the list of what its tasks returned. Raises RunFailed if the run did not succeed and no
        task was named.
        """
        return self._thread.call(self._run.result(task, timeout_s))

    def tasks(self, *names: str, states: Iterable[str] = ()) -> list[TaskView]:
        """The run's tasks, or some of them."""
        return self._thread.call(self._run.tasks(*names, states=states))

    def task(self, name: str) -> TaskView:
        """One task. The name of a mapped task, which is several, is refused."""
        return self._thread.call(self._run.task(name))

    def events(self) -> Iterator[Happening]:
        """What happened and what happens, until the run has ended."""
        return self._thread.walk(self._run.events())

    def why(self, task: str) -> tuple[Reason, ...]:
        """Why a task waits; empty if it has ended."""
        return self._thread.call(self._run.why(task))

    def story(self, task: str = "") -> list[str]:
        """What happened, told in lines."""
        return self._thread.call(self._run.story(task))

    def happened(self, task: str = "") -> list[Happening]:
        """The same as data: what happened so far to the run, or to one of its tasks."""
        return self._thread.call(self._run.happened(task))

    def logs(self, task: str, attempt: int = 0, *, follow: bool = False) -> Iterator[bytes]:
        """What an attempt printed; the newest attempt unless told otherwise.

        `follow` goes on until the attempt has ended, and waits for one that has not begun.
        """
        return self._thread.walk(self._run.logs(task, attempt, follow=follow))

    def cancel(self, reason: str = "cancelled on request") -> None:
        """End the run and everything in it."""
        self._thread.call(self._run.cancel(reason))

    def pause(self, *, paused: bool = True) -> None:
        """Hold the run's waiting tasks back, or let them go on."""
        self._thread.call(self._run.pause(paused=paused))

    def clear(self, *tasks: str, downstream: bool = True, only_failed: bool = False) -> None:
        """Run ended tasks again, with a fresh budget; all of them if none are named."""
        self._thread.call(self._run.clear(*tasks, downstream=downstream, only_failed=only_failed))

    def would_clear(self, *tasks: str, downstream: bool = True, only_failed: bool = False) -> tuple[str, ...]:
        """Which tasks `clear` with the same words would run again."""
        return self._thread.call(self._run.would_clear(*tasks, downstream=downstream, only_failed=only_failed))

    def mark(self, *tasks: str, to: str) -> None:
        """Say what tasks came to, whatever they are doing: success, failed or skipped."""
        self._thread.call(self._run.mark(*tasks, to=to))

    def retry(self, *tasks: str) -> None:
        """Try tasks now that wait for another try, and run those again that failed for good or were cancelled.

        With what failed because of them; all of both sorts if none are named.
        """
        self._thread.call(self._run.retry(*tasks))

    def note(self, task: str, note: str) -> None:
        """Say something about a task, for whoever looks at it next."""
        self._thread.call(self._run.note(task, note))

    def move(self, version: int = 0) -> None:
        """Give the run another version of its workflow; 0 is the present one. What it has done is kept."""
        self._thread.call(self._run.move(version))

    def resolve(self, task: str, way_out: str = "requeue") -> None:
        """Take a parked task out of needs_attention: requeue, fail or cancel it."""
        self._thread.call(self._run.resolve(task, way_out))


class BlockingClient:
    """Talks to one coordinator as one tenant."""

    def __init__(self, thread: LoopThread, client: Client) -> None:
        self._thread = thread
        self._client = client

    def submit(
        self,
        graph: Graph | GraphLike | TaskSpec,
        params: dict[str, Any] | None = None,
        *,
        run: str = "",
        priority: str = "normal",
        command_id: str = "",
        merge: str = "",
        labels: dict[str, str] | None = None,
        share: str = "",
    ) -> BlockingRun:
        """Make a run, or join one; see `Client.submit`. It is durable when this returns."""
        work = self._client.submit(
            graph,
            params,
            run=run,
            priority=priority,
            command_id=command_id,
            merge=merge,
            labels=labels,
            share=share,
        )
        return BlockingRun(self._thread, self._thread.call(work))

    def trigger(
        self,
        name: str,
        params: dict[str, Any] | None = None,
        *,
        logical_date: When | None = None,
        version: int = 0,
        run: str = "",
        priority: str = "normal",
        command_id: str = "",
    ) -> BlockingRun:
        """Make a run of a deployed workflow; see `Client.trigger`."""
        work = self._client.trigger(
            name,
            params,
            logical_date=logical_date,
            version=version,
            run=run,
            priority=priority,
            command_id=command_id,
        )
        return BlockingRun(self._thread, self._thread.call(work))

    def workflows(self) -> tuple[WorkflowView, ...]:
        """The workflows there are, by name."""
        return self._thread.call(self._client.workflows())

    def workflow(self, name: str) -> WorkflowView:
        """One workflow, with its versions, its parameters and its schedule."""
        return self._thread.call(self._client.workflow(name))

    def pause_workflow(self, name: str, *, paused: bool = True) -> None:
        """Start no runs of a workflow and give no worker their tasks. What runs goes on."""
        self._thread.call(self._client.pause_workflow(name, paused=paused))

    def resume_workflow(self, name: str) -> None:
        """Let a paused workflow go on."""
        self._thread.call(self._client.resume_workflow(name))

    def drop_workflow(self, name: str) -> None:
        """Take a workflow away with its schedule; its runs go on."""
        self._thread.call(self._client.drop_workflow(name))

    def backfill(
        self,
        name: str,
        start: When,
        end: When,
        *,
        max_active_runs: int = BACKFILL_ACTIVE_RUNS,
        params: dict[str, Any] | None = None,
        backfill: str = "",
    ) -> str:
        """Make runs for the slots of a workflow's schedule between two instants; see `Deploying.backfill`."""
        work = self._client.backfill(
            name, start, end, max_active_runs=max_active_runs, params=params, backfill=backfill
        )
        return self._thread.call(work)

    def backfill_slots(self, name: str, start: When, end: When, *, limit: int = SLOTS_SHOWN_MAX) -> Slots:
        """The slots that a backfill with the same words is about; nothing is made."""
        return self._thread.call(self._client.backfill_slots(name, start, end, limit=limit))

    def backfills(self) -> tuple[BackfillView, ...]:
        """Backfills that are not over."""
        return self._thread.call(self._client.backfills())

    def cancel_backfill(self, backfill: str) -> None:
        """Make no more runs of a backfill, and cancel those that have not ended."""
        self._thread.call(self._client.cancel_backfill(backfill))

    def run(self, id: str) -> BlockingRun:
        """A run by its id, live or ended."""
        return BlockingRun(self._thread, self._client.run(id))

    def runs(
        self,
        *,
        name: str = "",
        states: Iterable[str] = (),
        labels: Pairs = (),
        limit: int = 100,
        history: bool = True,
    ) -> list[RunView]:
        """Runs, the newest first: live ones, then those in history. `labels`: only those that have all of these."""
        work = self._client.runs(name=name, states=states, labels=labels, limit=limit, history=history)
        return self._thread.call(work)

    def workers(self) -> tuple[WorkerView, ...]:
        """Who is registered, and how each stands."""
        return self._thread.call(self._client.workers())

    def drain_worker(self, worker: str, *, draining: bool = True) -> None:
        """Give a worker no new work, or give it work again. What it runs goes on."""
        self._thread.call(self._client.drain_worker(worker, draining=draining))

    def forget_worker(self, worker: str) -> None:
        """Strike a worker off the register; what it holds is returned unspent."""
        self._thread.call(self._client.forget_worker(worker))

    def pools(self) -> tuple[PoolView, ...]:
        """The pools there are, and what is taken from each."""
        return self._thread.call(self._client.pools())

    def put_pool(
        self, name: str, slots: int = 0, *, slots_per_key: int = 0, starts_per_minute: int = 0, burst: int = 1
    ) -> None:
        """Define a pool, or change it: how many tasks that name it may run at once, and how many may start."""
        work = self._client.put_pool(
            name, slots, slots_per_key=slots_per_key, starts_per_minute=starts_per_minute, burst=burst
        )
        self._thread.call(work)

    def drop_pool(self, name: str) -> None:
        """Remove a pool."""
        self._thread.call(self._client.drop_pool(name))

    def queues(self) -> tuple[Queue, ...]:
        """The queues that were defined; the one called `default` exists without."""
        return self._thread.call(self._client.queues())

    def put_queue(self, name: str, properties: dict[str, str] | None = None, **policy: Any) -> None:
        """Define a queue, or change it; see `Client.put_queue`."""
        self._thread.call(self._client.put_queue(name, properties, **policy))

    def tenants(self) -> tuple[Tenant, ...]:
        """Tenants that have a weight or live runs."""
        return self._thread.call(self._client.tenants())

    def put_tenant(self, tenant: str, weight: int) -> None:
        """Give a tenant its share: under load, tenants are served in proportion to their weights."""
        self._thread.call(self._client.put_tenant(tenant, weight))

    def audits(self, limit: int = 100) -> list[Audit]:
        """Who asked for what, the newest first."""
        return self._thread.call(self._client.audits(limit))
