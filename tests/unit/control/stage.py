"""A coordinator on a stage: the real machine over a real memory disk, with time, store and workers moved by hand.

The store answers at once unless a kind of request is `withheld`; then the request waits in `unanswered` until the test
answers it. A `Speaker` is a worker's side of one stream that says exactly what it is told to say.
"""

from collections.abc import Callable
from typing import Any

from rota.control.coordinator import Coordinator
from rota.control.events import (
    Answer,
    Asked,
    AskHolds,
    CloseStream,
    Commit,
    CommitOutcome,
    Committed,
    Elect,
    Elected,
    Escalate,
    Event,
    FrameCame,
    HoldsSaid,
    Intent,
    Load,
    Loaded,
    Release,
    Send,
    StreamClosed,
    Tell,
    Woke,
)
from rota.control.loop import Loop
from rota.core import commands as cm
from rota.core.bounds import TimeLimits
from rota.core.cluster import cluster_id
from rota.core.decide.leases import Offer
from rota.core.ids import Fence
from rota.core.model import Capacity, Graph, TaskSpec
from rota.core.questions import Question
from rota.core.records import Batch, Run, Task
from rota.core.states import RunState, TaskState
from rota.ports import Fenced
from rota.stores.memory import MemoryDisk
from rota.wire.frames import CoordinatorFrame, WorkerFrame

BEGIN = 1_000_000_000
TENANT = "t"

DONE = CommitOutcome.DONE
FENCED = CommitOutcome.FENCED
UNKNOWN = CommitOutcome.UNKNOWN
REFUSED = CommitOutcome.REFUSED
UNAVAILABLE = CommitOutcome.UNAVAILABLE

Judge = Callable[[Batch], bool]


def accepts_all(batch: Batch) -> bool:
    """A store without objections."""
    return True


class Stage:
    """One coordinator, its disk, its clock, and everything it has said."""

    def __init__(self, *, limits: TimeLimits | None = None, disk: MemoryDisk | None = None) -> None:
        self.now = BEGIN
        self.disk = disk or MemoryDisk()
        self.limits = limits or TimeLimits()
        self.coordinator = Coordinator(self.limits, self.now)
        self.withheld: tuple[type[Intent], ...] = ()
        self.accepts: Judge = accepts_all
        self.unanswered: list[Any] = []
        self.log: list[Intent] = []
        self.on_turn: Callable[[], None] = lambda: None
        self.answers: dict[int, Answer] = {}
        self.frames: dict[int, list[CoordinatorFrame]] = {}
        self._token = 0

    # Events.

    def give(self, event: Event) -> list[Intent]:
        """One event, and everything that follows from it while the store answers."""
        todo = self._handle(event)
        seen: list[Intent] = []
        while todo:
            intent = todo.pop(0)
            seen.append(intent)
            todo += self._carry_out(intent)
        return seen

    def _handle(self, event: Event) -> list[Intent]:
        intents = self.coordinator.handle(event, self.now)
        self.log += intents
        self.on_turn()
        return intents

    def _carry_out(self, intent: Intent) -> list[Intent]:
        if isinstance(intent, self.withheld):
            self.unanswered.append(intent)
            return []
        match intent:
            case Elect():
                return self._handle(Elected(intent.ticket, self.disk.elect()))
            case AskHolds():
                return self._handle(HoldsSaid(intent.ticket, self.disk.holds(intent.epoch)))
            case Load():
                return self._handle(self._read(intent))
            case Commit():
                return self._handle(self._write(intent))
            case Release():
                self.disk.release(intent.epoch)
            case Answer():
                assert intent.token not in self.answers, "nobody is answered twice"
                self.answers[intent.token] = intent
            case Send():
                self.frames.setdefault(intent.stream, []).append(intent.frame)
            case CloseStream() | Tell() | Escalate():
                pass
        return []

    def _write(self, commit: Commit, outcome: CommitOutcome = DONE, error: str = "", code: str = "") -> Committed:
        if outcome is DONE and not self.accepts(commit.batch):
            outcome, error = REFUSED, "the store objects"
        if outcome is DONE:
            self.disk.commit(commit.epoch, commit.batch)
        return Committed(commit.ticket, outcome, error, code)

    def _identity(self) -> str:
        return self.disk.identity

    def _read(self, load: Load) -> Loaded:
        try:
            return Loaded(load.ticket, self.disk.load(load.epoch), cluster=cluster_id(self._identity()))
        except Fenced as fenced:
            return Loaded(load.ticket, None, str(fenced))

    def wake(self) -> list[Intent]:
        """Time has passed, or not."""
        return self.give(Woke())

    def rest(self) -> None:
        """Go on until another turn would bring nothing."""
        self.wake()
        while self.coordinator.loop is not None and self.coordinator.loop.wanted_at <= self.now:
            self.wake()

    def advance(self, ms: int) -> None:
        """Let time pass as the machine asks for it."""
        end = self.now + ms
        while (at := self.coordinator.wake_at(self.now)) <= end:
            self.now = max(at, self.now)
            self.wake()
        self.now = end

    # The store.

    def only(self, kind: type[Any]) -> Any:
        """The one request of a kind that waits for the store."""
        (found,) = [intent for intent in self.unanswered if isinstance(intent, kind)]
        return found

    def waits(self, kind: type[Any]) -> bool:
        """Whether a request of that kind waits for the store."""
        return any(isinstance(intent, kind) for intent in self.unanswered)

    def end_commit(self, outcome: CommitOutcome = DONE, error: str = "", code: str = "") -> list[Intent]:
        """The store answers the commit that is under way."""
        commit = self.only(Commit)
        self.unanswered.remove(commit)
        return self.give(self._write(commit, outcome, error, code))

    def end_load(self) -> list[Intent]:
        """The store has read everything."""
        load = self.only(Load)
        self.unanswered.remove(load)
        return self.give(self._read(load))

    # Clients.

    def ask(self, command: cm.Command | Question) -> int:
        """A client asks; the token by which its answer is known."""
        self._token += 1
        self.give(Asked(self._token, command))
        return self._token

    def answer(self, token: int) -> object:
        """What a client was told."""
        return self.answers[token].value

    def submit(self, run: str = "r", *tasks: TaskSpec, command_id: str = "", **fields: object) -> int:
        """A client submits a run of these tasks, or of a single one."""
        whole = Graph(name=str(fields.pop("name", "g")), tasks=tasks or (TaskSpec(id="x"),), **fields)
        return self.ask(cm.SubmitRun(tenant=TENANT, command_id=command_id or f"c-{run}", run=run, graph=whole))

    # Looking.

    @property
    def loop(self) -> Loop:
        """The loop of the reign that is under way."""
        assert self.coordinator.loop is not None, "nobody leads"
        return self.coordinator.loop

    @property
    def proven_until(self) -> int:
        """Until when the coordinator believes in itself."""
        return self.coordinator.leadership.proven_until

    def said(self, kind: type[Any]) -> list[Any]:
        """Everything of a kind that the coordinator has asked for."""
        return [intent for intent in self.log if isinstance(intent, kind)]

    def told(self) -> list[str]:
        """What an operator was told, by name."""
        return [intent.what for intent in self.said(Tell)]

    def run(self, run: str = "r") -> Run:
        """A live run's row."""
        return self.loop.state.runs[(TENANT, run)].row

    def task(self, run: str = "r", idx: int = 0) -> Task:
        """A task of a live run."""
        return self.loop.state.runs[(TENANT, run)].tasks[idx]

    def states(self, run: str = "r") -> list[TaskState]:
        """The tasks of a live run that have left `none`."""
        return [row.state for row in self.loop.state.runs[(TENANT, run)].tasks.values()]

    def result(self, run: str = "r") -> RunState:
        """Where a live run stands."""
        return self.run(run).state


def reigning(**fields: Any) -> Stage:
    """A stage whose coordinator has been elected and has loaded."""
    stage = Stage(**fields)
    stage.wake()
    assert stage.coordinator.loop is not None, "a free lock and a store that answers make a leader"
    return stage


class Speaker:
    """A worker's side of one stream, without a will of its own."""

    def __init__(
        self,
        stage: Stage,
        name: str = "w",
        *,
        stream: int = 1,
        slots: int = 1,
        incarnation: str = "i1",
        epoch: int = 0,
        cluster: str = "",
    ) -> None:
        self.stage = stage
        self.name = name
        self.stream = stream
        self.capacity = Capacity(slots=slots)
        self.incarnation = incarnation
        self.epoch = epoch
        self.cluster = cluster
        self.session = ""
        self.number = 0
        self.ack = 0
        self.held: dict[Fence, Offer] = {}
        self._read = 0

    def greet(self) -> "Speaker":
        """Frame 0."""
        greeting = WorkerFrame(
            tenant=TENANT,
            worker=self.name,
            incarnation=self.incarnation,
            epoch=self.epoch,
            number=0,
            capacity=self.capacity,
            cluster=self.cluster,
        )
        self.stage.give(FrameCame(self.stream, greeting))
        return self

    def join(self) -> "Speaker":
        """Greet, and answer the welcome with an empty list."""
        self.greet()
        self.present()
        return self

    def hear(self) -> list[CoordinatorFrame]:
        """Frames that came since the last look; what they offer is held from now on."""
        came = self.stage.frames.get(self.stream, [])[self._read :]
        self._read += len(came)
        for frame in came:
            self.session = self.session or frame.session
            self.ack = frame.number
            for fence in frame.stop:
                self.held.pop(fence, None)
            for offer in frame.start:
                self.held[offer.fence] = offer
        return came

    def frame(self, **fields: Any) -> WorkerFrame:
        """The next frame, without sending it."""
        self.number += 1
        checksum = 0
        for fence in self.held:
            checksum ^= fence
        plain: dict[str, Any] = {
            "tenant": TENANT,
            "worker": self.name,
            "incarnation": self.incarnation,
            "epoch": self.epoch,
            "number": self.number,
            "session": self.session,
            "ack": self.ack,
            "count": len(self.held),
            "checksum": checksum,
        }
        return WorkerFrame(**{**plain, **fields})

    def say(self, **fields: Any) -> list[CoordinatorFrame]:
        """Hear what has come, say the next frame, and hear the answer."""
        self.hear()
        self.stage.give(FrameCame(self.stream, self.frame(**fields)))
        self.stage.rest()
        return self.hear()

    def beat(self) -> list[CoordinatorFrame]:
        """Nothing new."""
        return self.say()

    def present(self, *reports: cm.Report, **fields: Any) -> list[CoordinatorFrame]:
        """A complete list of what is held."""
        self.hear()
        return self.say(complete=True, held=tuple(self.held), reports=reports, **fields)

    def word(self, offer: Offer, outcome: cm.Outcome, **fields: Any) -> cm.Report:
        """A report on an offer; one that ends it also lets go of it."""
        if outcome is not cm.Outcome.STARTED:
            self.held.pop(offer.fence, None)
        return cm.Report(
            tenant=offer.tenant,
            run=offer.run,
            task=offer.task,
            worker_tenant=TENANT,
            worker=self.name,
            incarnation=self.incarnation,
            fence=offer.fence,
            outcome=outcome,
            **fields,
        )

    def report(self, offer: Offer, outcome: cm.Outcome, **fields: Any) -> list[CoordinatorFrame]:
        """Say one report."""
        self.hear()
        return self.say(reports=(self.word(offer, outcome, **fields),))

    def start(self, offer: Offer) -> None:
        """The attempt has begun."""
        self.report(offer, cm.Outcome.STARTED)

    def succeed(self, offer: Offer) -> None:
        """The attempt went well."""
        self.report(offer, cm.Outcome.SUCCESS)

    def take(self) -> Offer:
        """The one offer that has come."""
        self.stage.rest()
        (offer,) = [offer for frame in self.hear() for offer in frame.start]
        return offer

    def hang_up(self) -> None:
        """The stream is gone."""
        self.stage.give(StreamClosed(self.stream))

    def is_closed(self) -> bool:
        """Whether the coordinator has closed the stream."""
        return any(intent.stream == self.stream for intent in self.stage.said(CloseStream))
