"""Load: clients that submit chains, fan-outs and retries with pools, survive whatever happens, and write it all down.

What each client asks for follows from the seed. A command that was not answered is sent again under the same id; now
and then one that was answered is sent again too, and must be answered the same.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct, structs

import rota
from rota.app.embedded import AsyncRota
from rota.client.blocking import BlockingClient
from rota.client.threads import LoopThread
from rota.core.errors import Refused, Unavailable
from rota.core.model import Graph
from tests.integration.deadlines import until
from tests.rig.history import History
from tests.rig.journal import Call, Disturbance, Notebook, Tapped, code_of, read_attempts, steady_ns
from tests.rig.ledger import Ledger
from tests.rig.rules import SUBMIT
from tests.rig.tasks import flaky, gather, step

NARROW, WIDE = "narrow", "wide"
# What `definitions` puts into each server's file; the checker is told the same.
POOLS: dict[str, int] = {NARROW: 2, WIDE: 6}
DIAL_AGAIN_S = 0.1
# How long a client waits for a run before it looks whether it still should.
AWAIT_S = 5.0


def definitions(pools: Mapping[str, int] | None = None) -> str:
    """The pools of the load, as a part of a file of settings."""
    return "\n".join(f"[pools.{name}]\nslots = {slots}\n" for name, slots in (pools or POOLS).items())


class Job(Struct, frozen=True):
    """One run to ask for: a graph, and what its last task must give."""

    graph: Graph
    last: str
    result: int


def chain(folder: str, length: int, ms: int) -> Job:
    """Tasks one after the other; each hands a number on."""

    @rota.workflow(name=f"chain-{length}")
    def build():
        given: Any = 0
        for number in range(length):
            given = step.override(id=f"link-{number}", pool={WIDE: 1})(folder, ms, given)

    return Job(build.build(), f"link-{length - 1}", length)


def fan(folder: str, width: int, ms: int) -> Job:
    """One, then many beside each other in a narrow pool, then one that takes all they gave."""

    @rota.workflow(name=f"fan-{width}")
    def build():
        first = step.override(id="first")(folder, ms)
        parts = [step.override(id=f"part-{number}", pool={NARROW: 1})(folder, ms, first) for number in range(width)]
        gather.override(id="gather")(folder, ms, parts)

    return Job(build.build(), "gather", 2 * width)


def retries(folder: str, fails: int, ms: int) -> Job:
    """One that fails a few times and then does not, and one after it."""

    @rota.workflow(name=f"retries-{fails}")
    def build():
        tried = flaky.override(id="tried", retries=fails, retry_delay=0.05, pool={NARROW: 1})(folder, ms, fails)
        step.override(id="after")(folder, ms, tried)

    return Job(build.build(), "after", 2)


def job(chance: Random, folder: str) -> Job:
    """Some job."""
    ms = chance.choice((1, 5, 20, 100, 400))
    match chance.randrange(3):
        case 0:
            return chain(folder, chance.randint(1, 5), ms)
        case 1:
            return fan(folder, chance.randint(2, 8), ms)
        case _:
            return retries(folder, chance.randint(0, 2), ms)


class LoadClient:
    """One client in a thread of its own."""

    def __init__(self, load: "Load", number: int) -> None:
        self.name = f"client-{number}"
        self._load = load
        self._chance = Random(f"{load.seed}-{self.name}")
        # What it submitted and was told so, and what must come of it.
        self.open: deque[tuple[str, Job]] = deque()
        self.wrong: list[str] = []
        self.failed: BaseException | None = None
        self._loop = LoopThread()
        self._rota: AsyncRota | None = None
        self.thread = threading.Thread(target=self._live, name=self.name, daemon=True)

    def _live(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.failed = error
        finally:
            if self._rota is not None:
                with suppress(Refused, Unavailable):
                    self._loop.call(self._rota.close())
            self._loop.stop()

    def _work(self) -> None:
        client = self._dial()
        number = 0
        while not self._load.stopping.is_set() and number < self._load.runs_max:
            number += 1
            one = job(self._chance, self._load.folder)
            name = f"{self.name}-{number}"
            if self._submit(client, one, name):
                self.open.append((name, one))
                if self._chance.random() < 0.2:
                    self._submit(client, one, name)
            while len(self.open) >= self._load.open_max:
                self._await(client, *self.open.popleft())
        while self.open and not self._load.giving_up.is_set():
            self._await(client, *self.open.popleft())

    def _dial(self) -> BlockingClient:
        while True:
            try:
                self._rota = self._loop.call(AsyncRota.connect(self._load.url))
                break
            except Unavailable:
                assert not self._load.giving_up.wait(DIAL_AGAIN_S), f"{self.name} never reached anybody"
        self._rota.line = Tapped(self._rota.line, self.name, self._load.notebook)
        return BlockingClient(self._loop, self._rota)

    def _submit(self, client: BlockingClient, one: Job, name: str) -> bool:
        """Whether it was acknowledged; if not, nobody knows."""
        return bool(
            self._ask(
                lambda: client.submit(one.graph, run=name, command_id=f"submit-{name}").id,
                Call(client=self.name, what=SUBMIT, command_id=f"submit-{name}", run=name, began_ns=steady_ns()),
            )
        )

    def _await(self, client: BlockingClient, name: str, one: Job) -> None:
        """What became of a run is what must."""
        call = Call(client=self.name, what="await", run=name, began_ns=steady_ns())
        result = self._ask(lambda: str(client.run(name).result(one.last, timeout_s=AWAIT_S)), call)
        if result not in ("", str(one.result)):
            self.wrong.append(f"{name} gave {result}, and should give {one.result}")

    def _ask(self, do: Callable[[], str], call: Call) -> str:
        """Ask until there is an answer; each trouble that the client's own patience let through is written down."""
        while True:
            try:
                answer = do()
            except Unavailable as error:
                self._write(call, code=code_of(error))
                if self._load.giving_up.wait(error.retry_after_ms / 1_000):
                    self._load.notebook.add(call)
                    return ""
                continue
            except TimeoutError:
                if self._load.giving_up.is_set():
                    return ""
                continue
            except Exception as error:
                self._write(call, code=code_of(error))
                self.wrong.append(f"{call.what} {call.run}: {error}")
                return ""
            self._write(call, answer=answer)
            return answer

    def _write(self, call: Call, *, answer: str = "", code: str = "") -> None:
        self._load.notebook.add(structs.replace(call, ended_ns=steady_ns(), answer=answer, code=code))


class Load:
    """Several clients. Start it, disturb what it is about, `finish` it, and `look` at what came of it."""

    def __init__(
        self, url: str, folder: str, *, seed: int, clients: int = 4, runs_max: int = 1 << 30, open_max: int = 8
    ) -> None:
        """`folder` is where the work leaves its lines. A client has at most `open_max` runs under way at a time."""
        self.url = url
        self.folder = folder
        self.seed = seed
        self.runs_max = runs_max
        self.open_max = open_max
        self.notebook = Notebook()
        # No new runs; and no more waiting either.
        self.stopping = threading.Event()
        self.giving_up = threading.Event()
        self.clients = [LoadClient(self, number) for number in range(1, clients + 1)]

    def start(self) -> "Load":
        """Begin."""
        for client in self.clients:
            client.thread.start()
        return self

    @property
    def acknowledged(self) -> int:
        """How many submissions were acknowledged so far, repetitions among them."""
        return sum(call.what == SUBMIT and call.is_acknowledged for call in self.notebook.calls)

    def until_acknowledged(self, count: int, patience_s: float = 60) -> None:
        """Until so many more submissions were acknowledged."""
        goal = self.acknowledged + count
        until(lambda: self.acknowledged >= goal or self._over(), f"{count} more runs to be acknowledged", patience_s)

    def history(
        self,
        ledger: Ledger,
        disturbances: Sequence[Disturbance] = (),
        *,
        pools: Mapping[str, int] | None = None,
        frozen: Iterable[str] = (),
        clocks_agree: bool = True,
    ) -> History:
        """What was seen of all this, for `judge`. `frozen` are the names of workers that stood still."""
        return History(
            ledger=ledger,
            attempts=read_attempts(Path(self.folder)),
            calls=self.notebook.calls,
            tries=self.notebook.tries,
            disturbances=disturbances,
            pools=POOLS if pools is None else pools,
            frozen=frozenset(frozen),
            clocks_agree=clocks_agree,
        )

    def _over(self) -> bool:
        return not any(client.thread.is_alive() for client in self.clients)

    def finish(self, patience_s: float = 120) -> None:
        """Ask for nothing new, and wait until everything that was acknowledged has ended. Raises what went wrong."""
        self.stopping.set()
        try:
            until(self._over, "all runs to end", patience_s)
        finally:
            self.close()
        for client in self.clients:
            if client.failed is not None:
                raise client.failed
        wrong = [text for client in self.clients for text in client.wrong]
        assert not wrong, "\n".join(wrong)

    def close(self) -> None:
        """Wait for nothing any more; also if it was never finished."""
        self.stopping.set()
        self.giving_up.set()
        for client in self.clients:
            if client.thread.is_alive():
                client.thread.join(60)
