"""Rota as a register: pools whose slots are written and read by many clients at once, for the linearizability check.

`PutPool` overwrites, and listing pools reads all of them at one moment. Every value is written once. Clients have no
patience of their own: whatever the line says is what happened, so that the history has the gaps that there were.
"""

import asyncio
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from random import Random

from rota.app.remote import open_line
from rota.client.operating import Operating
from rota.client.threads import LoopThread
from rota.core.commands import PutPool
from rota.core.errors import Unavailable
from rota.core.ids import DEFAULT_TENANT
from rota.core.model import Pool
from tests.integration.deadlines import until
from tests.rig.history import Gap, gaps
from tests.rig.journal import Disturbance, Notebook, Tapped, steady_ns
from tests.rig.linear import READ, WRITE, Op, Register, Verdict, check_each, with_reads_as_old_as, without_idle

AGAIN_S = 0.02
THINK_S = 0.01


class RegisterLoad:
    """Clients that write and read a few registers until they are told to stop."""

    def __init__(self, urls: Sequence[str], *, seed: int, clients: int = 4, registers: int = 2) -> None:
        """Client n talks to the n-th of `urls`, and they begin anew after the last: some may know only one server."""
        self.names = [f"register-{number}" for number in range(1, registers + 1)]
        self.notebook = Notebook()
        self._urls = urls
        self._seed = seed
        self._clients = clients
        self._ops: list[Op] = []
        self._value = 0
        self._stopping = asyncio.Event()
        self._thread = LoopThread()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> "RegisterLoad":
        """Begin."""
        self._thread.call(self._start())
        return self

    async def _start(self) -> None:
        for number in range(self._clients):
            work = self._live(f"register-client-{number + 1}", self._urls[number % len(self._urls)])
            self._tasks.append(asyncio.create_task(work))

    @property
    def answered(self) -> int:
        """How many operations were answered so far."""
        return sum(op.ended_ns is not None for op in list(self._ops))

    def until_answered(self, count: int, patience_s: float = 60) -> None:
        """Until so many more were."""
        goal = self.answered + count
        until(lambda: self.answered >= goal or self._over(), f"{count} more operations to be answered", patience_s)
        assert not self._over(), "a client has failed; `stop` says how"

    def _over(self) -> bool:
        return any(task.done() for task in self._tasks)

    def stop(self) -> list[Op]:
        """End, and give what was seen. What is under way has an unknown outcome. It may be called twice."""
        if not self._thread.loop.is_closed():
            try:
                self._thread.call(self._stop())
            finally:
                self._thread.stop()
        return list(self._ops)

    async def _stop(self) -> None:
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    def verdicts(self, *, reads_as_old_as_ms: int = 0) -> dict[Hashable, Verdict]:
        """What each register came to. `reads_as_old_as_ms`: reads may tell what was so that long before."""
        ops = with_reads_as_old_as(self._ops, reads_as_old_as_ms)
        parts = {name: without_idle(op for op in ops if op.about == name) for name in self.names}
        return check_each((op for part in parts.values() for op in part), Register())

    def gaps(self, disturbances: Iterable[Disturbance]) -> tuple[Gap, ...]:
        """How long nothing could be written, to within about 20 ms."""
        return gaps(disturbances, self.notebook.tries)

    # One client.

    async def _live(self, name: str, url: str) -> None:
        chance = Random(f"{self._seed}-{name}")
        while not self._stopping.is_set():
            try:
                line = await open_line(url, DEFAULT_TENANT)
            except Unavailable:
                await self._pause(AGAIN_S)
                continue
            client = Operating(Tapped(line, name, self.notebook), patience_s=0.0)
            try:
                await self._work(client, name, chance)
            finally:
                await line.close()

    async def _work(self, client: Operating, name: str, chance: Random) -> None:
        while not self._stopping.is_set():
            if chance.random() < 0.5:
                await self._read(client, name)
            else:
                await self._write(client, name, chance)
            await self._pause(chance.random() * 2 * THINK_S)

    async def _read(self, client: Operating, name: str) -> None:
        began_ns = steady_ns()
        try:
            found = {view.pool.name: view.pool.slots for view in await client.pools()}
        except Unavailable:
            await self._pause(AGAIN_S)
            return
        ended_ns = steady_ns()
        self._ops += [
            Op(client=name, about=each, does=(READ,), answer=found.get(each), began_ns=began_ns, ended_ns=ended_ns)
            for each in self.names
        ]

    async def _write(self, client: Operating, name: str, chance: Random) -> None:
        """Once; or until it is answered, under the same id. Both are what clients do."""
        self._value += 1
        about, value, is_stubborn = chance.choice(self.names), self._value, chance.random() < 0.5
        pool = Pool(tenant=client.line.tenant, name=about, slots=value)
        command = PutPool(tenant=pool.tenant, command_id=f"write-{self._seed}-{value}", pool=pool)
        began_ns, ended_ns = steady_ns(), None
        while ended_ns is None and not self._stopping.is_set():
            with suppress(Unavailable):
                await client.ask(command)
                ended_ns = steady_ns()
                break
            await self._pause(AGAIN_S)
            if not is_stubborn:
                break
        self._ops.append(Op(client=name, about=about, does=(WRITE, value), began_ns=began_ns, ended_ns=ended_ns))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
