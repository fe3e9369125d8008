"""Run a workflow in this process with virtual time, for tests of your own.

    from rota.testing import run_workflow

    def test_the_report_names_the_day():
        trial = run_workflow(etl, {"day": "2026-11-16"}, replace={"fetch": lambda day: [1, 2, 3]})
        assert trial.state == "success"
        assert trial.results["report"] == "2026-11-16: 6"

The coordinator and the worker's protocol are the real ones; only time, the disk and the processes are not. Functions
are called here, one after the other. Retry delays, sensors and schedules take no time: the clock jumps.
"""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from heapq import heappop, heappush
from inspect import signature
from typing import Any

from msgspec import Struct, structs

from rota.client.given import declared_of
from rota.control.coordinator import Coordinator
from rota.control.events import (
    Answer,
    Asked,
    AskHolds,
    Commit,
    CommitOutcome,
    Committed,
    Elect,
    Elected,
    Event,
    FrameCame,
    HoldsSaid,
    Intent,
    Load,
    Loaded,
    Send,
    Woke,
)
from rota.core.bounds import POOL_SLOTS_MAX, TimeLimits
from rota.core.cluster import cluster_id
from rota.core.commands import ClientCommand, Command, Outcome, PutPool, PutQueue, SubmitRun
from rota.core.decide.leases import Offer
from rota.core.errors import Refused, Unavailable
from rota.core.ids import DEFAULT_TENANT, CommandId, Incarnation, Millis, RunId, TaskId, WorkerId
from rota.core.model import DEFAULT_QUEUE_PROPERTIES, Capacity, FailureClass, Graph, Pool, Queue
from rota.core.questions import GetRun, ListTasks, Question, RunView, TasksPage, TaskView
from rota.core.states import RUN_TERMINAL, SUCCESS
from rota.core.story import story_lines
from rota.kinds.workflow.authoring import WorkflowFunction
from rota.kinds.workflow.tasks import Task
from rota.stores.memory import MemoryDisk
from rota.wire.given import packed
from rota.wire.instants import When, instant
from rota.wire.values import pack, unpack
from rota.wire.work import (
    AnyWork,
    CommandWork,
    HttpWork,
    PythonWork,
    Unprepared,
    Value,
    decode_command,
    decode_http,
    decode_python,
    decode_value,
    encode_value,
    prepared_command,
)
from rota.worker import sync
from rota.worker.environment import of_attempt, of_command
from rota.worker.runners.calls import Call, Done, perform
from rota.worker.runners.outcomes import context_of

TENANT = DEFAULT_TENANT
RUN = RunId("trial")
BEGIN_AT: Millis = 1_767_225_600_000  # 2026-01-01
VIRTUAL_MS_MAX = 366 * 24 * 3_600_000
PLENTY = 1_000_000_000

_passed: ContextVar[list[int] | None] = ContextVar("passed", default=None)


def pass_time(seconds: float) -> None:
    """In a function under test: let this attempt take that long, in virtual time."""
    passed = _passed.get()
    if passed is None:
        raise LookupError("pass_time() is for functions that run_workflow() calls")
    passed[0] += round(seconds * 1000)


class Trial(Struct, frozen=True):
    """How a workflow went. `results` has what each successful task returned, `tasks` everything known about each."""

    state: str
    reason: str
    results: dict[TaskId, Any]
    tasks: dict[TaskId, TaskView]
    story: list[str]
    took_ms: Millis


def run_workflow(
    workflow: WorkflowFunction | Task[Any, Any] | Graph,
    params: Mapping[str, Any] | None = None,
    *,
    replace: Mapping[str, Callable[..., Any]] | None = None,
    logical_date: When | None = None,
    slots: int = 8,
    begin_at: Millis = BEGIN_AT,
) -> Trial:
    """Run a workflow to its end and say how it went.

    `replace` gives tasks another function, by their ids; it is called with the arguments of the one it stands for, and
    with none if it stands for a command or a request that no function makes. Commands that are not replaced are run;
    requests must be replaced.
    """
    graph = workflow if isinstance(workflow, Graph) else workflow.build()
    given = dict(params or {}) if isinstance(workflow, Graph) else workflow.params(dict(params or {}))
    unknown = [id for id in replace or {} if id not in {spec.id for spec in graph.tasks}]
    if unknown:
        raise Refused("task.unknown", f"workflow {graph.name!r} has no task {unknown[0]!r} to replace", path="replace")
    # The functions themselves, not copies of them: a test may want to look at what they closed over.
    own = {} if isinstance(workflow, Graph) else workflow.functions()
    world = _World(own, replace or {}, _capacity(graph, slots), begin_at)
    for definition in _definitions(graph):
        world.ask(definition)
    zone = workflow.zone if isinstance(workflow, WorkflowFunction) else "UTC"
    logical_at = instant(logical_date, zone, "logical_date") if logical_date is not None else 0
    declared, declared_zone = declared_of(workflow)
    world.ask(
        SubmitRun(
            tenant=TENANT,
            command_id=CommandId(RUN),
            run=RUN,
            graph=graph,
            params=packed(given),
            logical_at=logical_at,
            declared=declared,
            zone=declared_zone,
        )
    )
    return world.finish()


def _capacity(graph: Graph, slots: int) -> Capacity:
    """A worker that has whatever the graph asks for."""
    asked = dict.fromkeys(pair for spec in graph.tasks for pair in spec.requires)
    plenty = dict.fromkeys((name, str(PLENTY)) for name, _ in asked)
    return Capacity(slots=slots, properties=(*asked, *plenty))


def _definitions(graph: Graph) -> Iterator[ClientCommand]:
    """The queues and pools that the graph names. Nobody falls silent here, and no pool is full."""
    for name in dict.fromkeys(("default", *(spec.queue for spec in graph.tasks))):
        queue = Queue(tenant=TENANT, name=name, properties=DEFAULT_QUEUE_PROPERTIES, worker_timeout_ms=0)
        yield PutQueue(tenant=TENANT, command_id=CommandId(f"queue-{name}"), queue=queue)
    for name in dict.fromkeys(need.pool for spec in graph.tasks for need in spec.pools):
        pool = Pool(tenant=TENANT, name=name, slots=POOL_SLOTS_MAX)
        yield PutPool(tenant=TENANT, command_id=CommandId(f"pool-{name}"), pool=pool)


class _World:
    """The real machines around a virtual clock."""

    def __init__(
        self,
        own: Mapping[str, Callable[..., Any]],
        replace: Mapping[str, Callable[..., Any]],
        capacity: Capacity,
        begin_at: Millis,
    ) -> None:
        # An attempt takes no real time, so leases need not be short; nothing ever falls silent here.
        limits = TimeLimits(lease_ms=24 * 3_600_000, beat_ms_max=24 * 3_600_000, stall_ms=3_600_000)
        self.now = begin_at
        self.begin_at = begin_at
        self.disk = MemoryDisk()
        self.coordinator = Coordinator(limits, self.now)
        self.worker = sync.SyncMachine(TENANT, WorkerId("trial"), Incarnation("1"), capacity, limits)
        self._own = own
        self._replace = replace
        self._stream = 0
        self._answers: dict[int, object] = {}
        self._over: list[tuple[Millis, int, sync.AttemptOver]] = []
        self._killed: dict[int, None] = {}
        self._number = 0
        self._handle(Woke())
        self._work()

    def ask(self, request: Command | Question) -> Any:
        """Ask the coordinator something; it answers at once, because its disk does."""
        self._number += 1
        token = self._number
        self._handle(Asked(token, request))
        self._work()
        value = self._answers.pop(token)
        if isinstance(value, Refused | Unavailable):
            raise value
        return value

    def finish(self) -> Trial:
        """Let time pass until the run has ended."""
        view: RunView = self.ask(GetRun(tenant=TENANT, run=RUN))
        while view.state not in RUN_TERMINAL:
            self._pass()
            view = self.ask(GetRun(tenant=TENANT, run=RUN))
        page: TasksPage = self.ask(ListTasks(tenant=TENANT, run=RUN, limit=10_000))
        tasks = {task.id: task for task in page.tasks}
        names = {task.idx: task.id for task in page.tasks}
        results = {task.id: _open(task) for task in page.tasks if task.state is SUCCESS}
        told = story_lines(self.disk.stories[(TENANT, RUN)], self.begin_at, lambda idx: names.get(idx, str(idx)))
        return Trial(view.state, view.reason, results, tasks, list(told), view.ended_at - view.created_at)

    def _pass(self) -> None:
        """Jump to the next instant at which anything can happen."""
        at = min(self.coordinator.wake_at(self.now), self.worker.wake_at(self.now))
        if self._over:
            at = min(at, self._over[0][0])
        if at - self.begin_at > VIRTUAL_MS_MAX:
            raise TimeoutError("the run has not ended after a year of virtual time; see `why` of its tasks")
        self.now = max(self.now, at)
        while self._over and self._over[0][0] <= self.now:
            over = heappop(self._over)[2]
            if over.fence not in self._killed:
                self.worker.offer(over, self.now)
        self._handle(Woke())
        self._work()

    # The coordinator.

    def _handle(self, event: Event) -> None:
        todo = self.coordinator.handle(event, self.now)
        while todo:
            following: list[Intent] = []
            for intent in todo:
                answer = self._carry_out(intent)
                if answer is not None:
                    following += self.coordinator.handle(answer, self.now)
            todo = following

    def _carry_out(self, intent: Intent) -> Event | None:
        match intent:
            case Commit():
                self.disk.commit(intent.epoch, intent.batch)
                return Committed(intent.ticket, CommitOutcome.DONE)
            case Elect():
                return Elected(intent.ticket, self.disk.elect())
            case Load():
                return Loaded(intent.ticket, self.disk.load(intent.epoch), cluster=cluster_id(self.disk.identity))
            case AskHolds():
                return HoldsSaid(intent.ticket, self.disk.holds(intent.epoch))
            case Send():
                self.worker.offer(sync.FrameCame(intent.frame), self.now)
            case Answer():
                self._answers[intent.token] = intent.value
            case _:
                pass
        return None

    # The worker.

    def _work(self) -> None:
        while intents := self.worker.turn(self.now):
            for intent in intents:
                match intent:
                    case sync.Connect():
                        self._stream += 1
                        self.worker.offer(sync.Connected(), self.now)
                    case sync.Send():
                        self._handle(FrameCame(self._stream, intent.frame))
                    case sync.StartAttempt():
                        self._attempt(intent.offer)
                    case sync.StopAttempt():
                        self._killed[intent.fence] = None
                    case _:
                        pass

    def _attempt(self, offer: Offer) -> None:
        passed = [0]
        token = _passed.set(passed)
        try:
            over = self._perform(offer)
        finally:
            _passed.reset(token)
        if offer.timeout_ms and passed[0] > offer.timeout_ms:
            passed[0] = offer.timeout_ms
            text = f"took longer than its time limit of {offer.timeout_ms:,} ms"
            over = sync.AttemptOver(offer.fence, Outcome.FAILED, failure=FailureClass.TIMEOUT, error=text)
        self._number += 1
        heappush(self._over, (self.now + passed[0], self._number, over))

    def _perform(self, offer: Offer) -> sync.AttemptOver:
        id = offer.task_id.partition("[")[0]
        stand_in = self._replace.get(id)
        work = _decode(offer)
        if work is None or (isinstance(work, HttpWork) and stand_in is None):
            text = f"run_workflow() cannot run tasks of kind {offer.kind!r}; replace {offer.task_id!r}"
            return sync.AttemptOver(offer.fence, Outcome.FAILED, failure=FailureClass.FATAL, error=text)
        if stand_in is not None:
            call = work if isinstance(work, PythonWork) else work.call
            # One that no function makes has no arguments.
            known = call if call is not None and id in self._own else PythonWork()
            maps = () if isinstance(work, CommandWork) else work.maps
            # It goes by its own name.
            known = structs.replace(known, function="", file="", is_preparing=False, maps=maps)
            return _over(offer, self._call(offer, known, stand_in))
        if isinstance(work, PythonWork):
            return _over(offer, self._call(offer, work, self._own.get(id)))
        assert isinstance(work, CommandWork), "requests are replaced"
        if work.call is None:
            return _command(offer, work)
        done = self._call(offer, work.call, self._own.get(id))
        if done.outcome != "success" or done.content is None:
            return _over(offer, done)
        try:
            return _command(offer, prepared_command(work, unpack(done.encoding, done.content, trusted=True)))
        except Unprepared as error:
            return sync.AttemptOver(offer.fence, Outcome.FAILED, failure=FailureClass.FATAL, error=str(error))

    def _call(self, offer: Offer, work: PythonWork, function: Callable[..., Any] | None) -> Done:
        if function is not None:
            asks = work.context if work.context in signature(function).parameters else ""
            work = structs.replace(work, context=asks)
        context = context_of(offer, work.zone, None)
        first_at = offer.first_started_at
        call = Call(work, context, offer.inputs, _never, pack, False, first_at, function, now=lambda: self.now)
        return perform(call)


def _decode(offer: Offer) -> AnyWork | None:
    match offer.kind:
        case "python":
            return decode_python(offer.work)
        case "command":
            return decode_command(offer.work)
        case "http":
            return decode_http(offer.work)
        case _:
            return None


def _never(stored: object) -> Any:
    raise AssertionError(f"no value is stored elsewhere in a trial: {stored}")


def _over(offer: Offer, done: Done) -> sync.AttemptOver:
    content = None if done.content is None else encode_value(Value(done.encoding, done.content))
    return sync.AttemptOver(
        offer.fence,
        Outcome(done.outcome),
        result=content,
        failure=FailureClass(done.failure),
        error=done.error,
        resume_at=done.resume_at,
        expands=done.expands,
        skips=done.skips,
    )


def _command(offer: Offer, work: CommandWork) -> sync.AttemptOver:
    ended = subprocess.run(  # noqa: S603 - the user's own command
        ["/bin/sh", "-c", work.shell] if work.shell else list(work.argv),
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **of_command(dict(work.env), of_attempt(offer))[0]},
        cwd=work.cwd or None,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode in work.skip_codes:
        return sync.AttemptOver(offer.fence, Outcome.SKIPPED)
    if ended.returncode:
        text = f"exited with code {ended.returncode}\n{ended.stderr or ended.stdout}".rstrip()
        return sync.AttemptOver(offer.fence, Outcome.FAILED, error=text)
    lines = ended.stdout.rstrip().splitlines()
    return sync.AttemptOver(offer.fence, Outcome.SUCCESS, result=encode_value(Value(*pack(lines[-1] if lines else ""))))


def _open(task: TaskView) -> Any:
    if task.result is None:
        return None
    value = decode_value(task.result)
    assert isinstance(value, Value), "no value is stored elsewhere in a trial"
    return unpack(value.encoding, value.content, trusted=True)
