"""A coordinator, a store and workers that answer at once, in one process, with virtual time."""

import gc
import time
from collections.abc import Callable

from msgspec import Struct

from rota.control.coordinator import Coordinator
from rota.control.events import (
    Asked,
    Commit,
    CommitOutcome,
    Committed,
    Elect,
    Elected,
    Event,
    FrameCame,
    Intent,
    Load,
    Loaded,
    Send,
    Woke,
)
from rota.core.bounds import TimeLimits
from rota.core.commands import Outcome, Report, SubmitRun
from rota.core.decide.leases import Offer
from rota.core.graph import graph_digest
from rota.core.model import Capacity, Graph
from rota.stores.memory import MemoryDisk
from rota.stores.sqlite import SqliteDisk
from rota.wire.frames import WorkerFrame

BEGIN = 1_790_000_000_000


class Row(Struct):
    """One line of the results."""

    name: str
    value: float
    unit: str
    reach: float
    better: str
    cpu_us_per_unit: float
    note: str = ""

    @property
    def is_reached(self) -> bool:
        """Whether the figure is as good as it should be."""
        return self.value >= self.reach if self.better == "higher" else self.value <= self.reach


class BenchWorker:
    """A worker's side of the stream, as cheap as it can be."""

    __slots__ = ("ack", "checksum", "held", "name", "number", "session", "stream")

    def __init__(self, name: str, stream: int) -> None:
        self.name = name
        self.stream = stream
        self.session = ""
        self.number = 0
        self.ack = 0
        self.held = 0
        self.checksum = 0

    def frame(self, reports: tuple[Report, ...] = (), *, complete: bool = False) -> WorkerFrame:
        """The next frame."""
        self.number += 1
        return WorkerFrame(
            tenant="shared",
            worker=self.name,
            incarnation="1",
            epoch=1,
            number=self.number,
            session=self.session,
            ack=self.ack,
            complete=complete,
            reports=reports,
            count=self.held,
            checksum=self.checksum,
        )


class Rig:
    """Everything in one place."""

    def __init__(
        self,
        workers: int,
        slots: int,
        properties: Callable[[int], tuple[tuple[str, str], ...]] | None = None,
        disk: SqliteDisk | None = None,
    ) -> None:
        self.disk: MemoryDisk | SqliteDisk = disk or MemoryDisk()
        self.now = BEGIN
        self.coordinator = Coordinator(TimeLimits(), self.now)
        self.workers: dict[int, BenchWorker] = {}
        self.offers: list[tuple[BenchWorker, Offer]] = []
        self.answers = 0
        self.pauses: list[float] = []
        self.grants = 0
        self._run([*self._handle(Woke())])
        for number in range(workers):
            self._join(number + 1, slots, properties(number) if properties else ())

    def _join(self, stream: int, slots: int, properties: tuple[tuple[str, str], ...]) -> None:
        worker = self.workers[stream] = BenchWorker(f"w{stream}", stream)
        capacity = Capacity(slots=slots, properties=properties)
        hello = WorkerFrame(tenant="shared", worker=worker.name, incarnation="1", epoch=0, number=0, capacity=capacity)
        self.say(stream, hello)
        self.say(stream, worker.frame(complete=True))

    def say(self, stream: int, frame: WorkerFrame) -> None:
        """A frame reaches the coordinator."""
        self._run(self._handle(FrameCame(stream, frame)))

    def _handle(self, event: Event) -> list[Intent]:
        began = time.perf_counter()
        intents = self.coordinator.handle(event, self.now)
        self.pauses.append(time.perf_counter() - began)
        return intents

    def _run(self, intents: list[Intent]) -> None:
        """Carry out intents and what follows from them."""
        todo = intents
        while todo:
            following: list[Intent] = []
            for intent in todo:
                following += self._carry_out(intent)
            todo = following

    def _carry_out(self, intent: Intent) -> list[Intent]:
        match intent:
            case Commit():
                self.disk.commit(intent.epoch, intent.batch)
                return self._handle(Committed(intent.ticket, CommitOutcome.DONE))
            case Send():
                worker = self.workers[intent.stream]
                frame = intent.frame
                worker.session, worker.ack = frame.session, frame.number
                for offer in frame.start:
                    worker.held += 1
                    worker.checksum ^= offer.fence
                    self.offers.append((worker, offer))
                return []
            case Elect():
                return self._handle(Elected(intent.ticket, self.disk.elect()))
            case Load():
                return self._handle(Loaded(intent.ticket, self.disk.load(intent.epoch)))
            case _:
                return []

    def submit(self, number: int, graph: Graph, digest: str = "") -> None:
        """A client's submission."""
        command = SubmitRun(
            tenant="t", command_id=f"c{number}", run=f"r{number}", graph=None if digest else graph, digest=digest
        )
        self._run(self._handle(Asked(number, command)))

    def submit_many(self, first: int, count: int, graph: Graph) -> None:
        """Submissions that arrive together."""
        digest = graph_digest(graph) if first else ""
        asked = [
            Asked(
                number,
                SubmitRun(
                    tenant="t",
                    command_id=f"c{number}",
                    run=f"r{number}",
                    graph=None if digest else graph,
                    digest=digest,
                ),
            )
            for number in range(first, first + count)
        ]
        self._run(self.coordinator.handle_all(asked, self.now))
        self.rest()

    def rest(self) -> None:
        """Let the coordinator go on until it has nothing to do at this instant."""
        self._run(self._handle(Woke()))
        while self.coordinator.loop is not None and self.coordinator.loop.wanted_at <= self.now:
            self._run(self._handle(Woke()))

    def answer(self, offers: list[tuple[BenchWorker, Offer]], *outcomes: Outcome) -> None:
        """Each worker reports on its offers in one frame."""
        by_worker: dict[int, list[Report]] = {}
        for worker, offer in offers:
            for outcome in outcomes:
                report = Report(
                    tenant=offer.tenant,
                    run=offer.run,
                    task=offer.task,
                    worker_tenant="shared",
                    worker=worker.name,
                    incarnation="1",
                    fence=offer.fence,
                    outcome=outcome,
                )
                by_worker.setdefault(worker.stream, []).append(report)
                if outcome is not Outcome.STARTED:
                    worker.held -= 1
                    worker.checksum ^= offer.fence
        for stream, reports in by_worker.items():
            self.say(stream, self.workers[stream].frame(tuple(reports)))

    def finish_all(self, *, short: bool = False) -> int:
        """Start and complete whatever is offered until nothing more comes; how many tasks that were.

        `short` attempts end before their start was told, so both reports come in one frame, as from a real worker.
        """
        done = 0
        while True:
            self.rest()
            offers, self.offers = self.offers, []
            if not offers:
                return done
            if short:
                self.answer(offers, Outcome.STARTED, Outcome.SUCCESS)
            else:
                self.answer(offers, Outcome.STARTED)
                self.now += 1
                self.answer(offers, Outcome.SUCCESS)
            done += len(offers)


class Stopwatch:
    """CPU seconds of this process, with the collector out of the way."""

    def __enter__(self) -> "Stopwatch":
        gc.collect()
        gc.freeze()
        gc.disable()
        self.began = time.process_time()
        return self

    def __exit__(self, *exc: object) -> None:
        self.cpu_s = time.process_time() - self.began
        gc.enable()
        gc.unfreeze()
