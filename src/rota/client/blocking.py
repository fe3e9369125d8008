"""The client for ordinary programs: the same surface without `await`.

An event loop in a thread of its own does the work; every call hands it over and waits. Interrupting a wait (Ctrl-C)
cancels the call and leaves the run as it is.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from rota.client.blocking_items import BlockingItems
from rota.client.deploying import SLOTS_SHOWN_MAX, Slots
from rota.client.happenings import Happening
from rota.client.run_log import TaskLine
from rota.client.runs import Client, GraphLike, Run
from rota.client.threads import LoopThread
from rota.core.bounds import BACKFILL_ACTIVE_RUNS
from rota.core.ids import BlobRef
from rota.core.model import Graph, Pairs, Queue, TaskSpec, Tenant
from rota.core.overview import Overview
from rota.core.questions import BackfillView, PoolView, RunView, TaskView, WorkerView, WorkflowView
from rota.core.reasons import Reason
from rota.core.records import Audit
from rota.wire.instants import When
from rota.wire.requests import ServiceInside
from rota.wire.standings import StreamsView, StreamView
from rota.wire.wishes import Verb


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

    def wait(self, timeout_s: float | None = None, *, abandon_ms: int = 0) -> RunView:
        """Wait until the run has ended. Raises TimeoutError; the run goes on then.

        With `abandon_ms` it is cancelled when nobody has waited for it for so long, as when this program is killed.
        """
        return self._thread.call(self._run.wait(timeout_s, abandon_ms=abandon_ms))

    def result(self, task: str = "", timeout_s: float | None = None) -> Any:
        """Wait for the run, and give what a task returned: the one named, or the last one if there is only one.

        Of a mapped task it is the list of what its tasks returned. Raises RunFailed if the run did not succeed and no
        task was named.
        """
        return self._thread.call(self._run.result(task, timeout_s))

    def open(self, task: TaskView) -> Any:
        """What a task returned. A pickled value is opened only by a client that trusts its coordinator."""
        return self._thread.call(self._run.open(task))

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

    def log_lines(self, *, follow: bool = False) -> Iterator[TaskLine]:
        """What all attempts of all tasks printed, line by line, task by task in the order in which they started.

        `follow` goes on until the run has ended, with lines as they come.
        """
        return self._thread.walk(self._run.log_lines(follow=follow))

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
        """Say something about a task, for whoever looks at it next; about the run if the task is ""."""
        self._thread.call(self._run.note(task, note))

    def move(self, version: int = 0) -> None:
        """Give the run another version of its workflow; 0 is the present one. What it has done is kept."""
        self._thread.call(self._run.move(version))

    def resolve(self, task: str, way_out: str = "requeue") -> None:
        """Take a parked task out of needs_attention: requeue, fail or cancel it."""
        self._thread.call(self._run.resolve(task, way_out))


class BlockingClient(BlockingItems):
    """Talks to one coordinator as one tenant."""

    def __init__(self, thread: LoopThread, client: Client) -> None:
        super().__init__(thread, client)
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
        parent: str = "",
        is_new: bool = False,
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
            parent=parent,
            is_new=is_new,
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

    def put_bundle(self, content: bytes) -> BlobRef:
        """Have a bundle kept, and say how a graph refers to it."""
        return self._thread.call(self._client.put_bundle(content))

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

    def overview(self) -> Overview:
        """How everything of the tenant stands at once."""
        return self._thread.call(self._client.overview())

    def inspect(self) -> ServiceInside:
        """What goes on inside the coordinator's process."""
        return self._thread.call(self._client.inspect())

    def workers(self) -> tuple[WorkerView, ...]:
        """Who is registered, and how each stands."""
        return self._thread.call(self._client.workers())

    def drain_worker(self, worker: str, *, draining: bool = True) -> None:
        """Give a worker no new work, or give it work again. What it runs goes on."""
        self._thread.call(self._client.drain_worker(worker, draining=draining))

    def end_quarantine(self, worker: str) -> None:
        """Give a worker work again that rests because too much failed on it."""
        self._thread.call(self._client.end_quarantine(worker))

    def forget_worker(self, worker: str) -> None:
        """Strike a worker off the register; what it holds is returned unspent."""
        self._thread.call(self._client.forget_worker(worker))

    def streams(self) -> StreamsView:
        """The streams that the coordinator knows of, and how each stands."""
        return self._thread.call(self._client.streams())

    def stream(self, name: str) -> StreamView:
        """One of them."""
        return self._thread.call(self._client.stream(name))

    def steer_stream(self, name: str, verb: Verb, which: str = "", *, stop: bool = False) -> StreamView:
        """Ask something of one. Whoever runs it heeds that between two rounds."""
        return self._thread.call(self._client.steer_stream(name, verb, which, stop=stop))

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
