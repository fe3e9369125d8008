"""Leases as a thing to be linearized: pull workers that claim, finish, forget and finish too late.

Of each task at most one fence is live, fences grow, and an outcome counts only under the live one. A lease that nobody
renews ends by itself at some time after its length, or never: that is an operation of unknown outcome like any other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from random import Random
from typing import Any

from msgspec import Struct, structs

from rota.control.driver import CoordinatorDriver
from rota.core.commands import ClaimTask, Command, Outcome, PutQueue, RegisterWorker, Report, SubmitRun
from rota.core.decide.leases import Judgement, Offer
from rota.core.errors import Refused, Unavailable
from rota.core.ids import DEFAULT_TENANT, Fence
from rota.core.model import Capacity, FailureClass, Graph, Queue, RetryPolicy, TaskSpec
from tests.rig.journal import steady_ns
from tests.rig.linear import Op, Verdict, check_each

GRANT, FINISH, FAIL, LAPSE = "grant", "finish", "fail", "lapse"
QUEUE = "pulled"
RUN = "leased"
RETRIES = 100
AGAIN_S = 0.01
LEASE_MS = 1_000

# A coordinator counts whole milliseconds: a lease that began late in one of them ends early in another.
TICK_MS = 1

# Carries a command to whoever leads: the word that is answered, and its detail. Raises Refused or Unavailable.
Ask = Callable[[Command], Awaitable[tuple[object, object]]]

_COUNTED = (Judgement.ACCEPTED, Judgement.DUPLICATE)


class Holding(Struct, frozen=True):
    """How a task stands: who holds it, the newest fence, the last that had an outcome, and whether it is over."""

    live: Fence = 0
    newest: Fence = 0
    concluded: Fence = 0
    is_over: bool = False


class Leases:
    """The model of one task."""

    initial = Holding()

    def step(self, state: Holding, op: Op) -> Holding | None:
        """See `tests.rig.linear.Model`."""
        match op.does:
            case ("grant",):
                fence = op.answer
                assert isinstance(fence, int), "a claim whose fence nobody knows is not written down"
                if state.live or state.is_over or fence <= state.newest:
                    return None
                return structs.replace(state, live=fence, newest=fence)
            case ("finish" | "fail" as what, int() as fence):
                return self._end(state, op, fence, is_over=what == FINISH)
            case ("lapse", fence):
                return structs.replace(state, live=0) if state.live == fence else state
            case _:
                raise AssertionError(f"a lease does not {op.does}")

    def _end(self, state: Holding, op: Op, fence: Fence, *, is_over: bool) -> Holding | None:
        counts = state.live == fence
        if op.ended_ns is not None:
            was_said_to_count = op.answer in _COUNTED
            # Said again it is a repetition, of whatever was said first.
            if was_said_to_count and not counts:
                return state if state.concluded == fence else None
            if counts and not was_said_to_count:
                return None
        if not counts:
            return state
        return structs.replace(state, live=0, concluded=fence, is_over=is_over)


def check_leases(ops: Iterable[Op], lease_ms: int = LEASE_MS) -> dict[Hashable, Verdict]:
    """Whether the leases of each task could have been one after the other."""
    every = list(ops)
    shortest_ns = (lease_ms - TICK_MS) * 1_000_000
    lapses = [
        Op(client="time", about=op.about, does=(LAPSE, op.answer), began_ns=op.began_ns + shortest_ns)
        for op in every
        if op.does == (GRANT,)
    ]
    return check_each([*every, *lapses], Leases())


def among(drivers: Sequence[CoordinatorDriver], chance: Random) -> Ask:
    """Ask one of those that believe they lead, of however many there are by then; for a moment that may be two."""

    async def ask(command: Command) -> tuple[object, object]:
        leading = [driver for driver in drivers if driver.is_leader and not driver.is_stopped]
        if not leading:
            raise Unavailable("leader.none", retry_after_ms=round(AGAIN_S * 1_000))
        return await chance.choice(leading).ask(command)

    return ask


class LeaseLoad:
    """Pull workers at one run of many tasks, until it has ended or they are told to stop."""

    def __init__(self, ask: Ask, *, seed: int, workers: int = 3, tasks: int = 30, lease_ms: int = LEASE_MS) -> None:
        self.ops: list[Op] = []
        self.stopping = asyncio.Event()
        self._ask = ask
        self._seed = seed
        self._workers = workers
        self._tasks = tasks
        self._done: dict[int, None] = {}
        self._lease_ms = lease_ms

    async def run(self) -> list[Op]:
        """What was seen."""
        queue = Queue(tenant=DEFAULT_TENANT, name=QUEUE, pull=True)
        await self._until_answered(PutQueue(tenant=DEFAULT_TENANT, command_id="queue", queue=queue))
        retry = RetryPolicy(retries=RETRIES)
        specs = tuple(TaskSpec(id=f"t{number}", queue=QUEUE, retry=retry) for number in range(self._tasks))
        graph = Graph(name="leases", tasks=specs)
        await self._until_answered(SubmitRun(tenant=DEFAULT_TENANT, command_id="submit", run=RUN, graph=graph))
        async with asyncio.TaskGroup() as group:
            for number in range(1, self._workers + 1):
                group.create_task(self._live(f"puller-{number}"))
        return self.ops

    async def _live(self, name: str) -> None:
        chance = Random(f"{self._seed}-{name}")
        capacity = Capacity(slots=1_000, pull=True)
        register = RegisterWorker(tenant=DEFAULT_TENANT, worker=name, incarnation="life", capacity=capacity)
        await self._until_answered(register)
        number = 0
        # What it has forgotten for now, and when it will remember: sooner or later than somebody else has the task.
        late: list[tuple[int, Offer, Outcome]] = []
        while (len(self._done) < self._tasks or late) and not self.stopping.is_set():
            number += 1
            offer = await self._claim(name, f"{name}-{number}")
            if offer is not None:
                outcome = Outcome.FAILED if chance.random() < 0.2 else Outcome.SUCCESS
                if chance.random() < 0.2:
                    after_ms = self._lease_ms * chance.uniform(0.5, 4)
                    late.append((steady_ns() + round(after_ms * 1e6), offer, outcome))
                else:
                    await self._report(name, offer, outcome)
                    if chance.random() < 0.2:
                        await self._report(name, offer, outcome)
            for entry in [entry for entry in late if entry[0] < steady_ns()]:
                late.remove(entry)
                await self._report(name, *entry[1:])
            await asyncio.sleep(chance.random() * 2 * AGAIN_S)

    async def _claim(self, name: str, command_id: str) -> Offer | None:
        command = ClaimTask(
            tenant=DEFAULT_TENANT,
            command_id=command_id,
            worker=name,
            incarnation="life",
            lease_ms=self._lease_ms,
        )
        began_ns = steady_ns()
        answer = await self._until_answered(command)
        # Nothing to claim; or a repetition whose lease has ended meanwhile, of which we know neither task nor use.
        if answer is None or not isinstance(answer[1], Offer):
            return None
        offer = answer[1]
        self.ops.append(
            Op(
                client=name,
                about=offer.task_id,
                does=(GRANT,),
                answer=offer.fence,
                began_ns=began_ns,
                ended_ns=steady_ns(),
            )
        )
        return offer

    async def _report(self, name: str, offer: Offer, outcome: Outcome) -> None:
        command = Report(
            tenant=offer.tenant,
            run=offer.run,
            task=offer.task,
            worker_tenant=DEFAULT_TENANT,
            worker=name,
            incarnation="life",
            fence=offer.fence,
            outcome=outcome,
            failure=FailureClass.USER,
        )
        does = (FINISH if outcome is Outcome.SUCCESS else FAIL, offer.fence)
        began_ns = steady_ns()
        answer = await self._until_answered(command)
        ended_ns = None if answer is None else steady_ns()
        said: Any = None if answer is None else answer[0]
        self.ops.append(
            Op(client=name, about=offer.task_id, does=does, answer=said, began_ns=began_ns, ended_ns=ended_ns)
        )
        # A repetition, too, says that it was taken: the answer to the first time was lost with its coordinator.
        if said in (Judgement.ACCEPTED, Judgement.DUPLICATE) and outcome is Outcome.SUCCESS:
            self._done[offer.task] = None

    async def _until_answered(self, command: Command) -> tuple[object, object] | None:
        """The answer; None if it never came before the end, so that nobody knows."""
        while not self.stopping.is_set():
            try:
                return await self._ask(command)
            except Unavailable:
                await asyncio.sleep(AGAIN_S)
            except Refused as refused:
                if refused.code != "worker.unknown":
                    raise
                return None
        return None
