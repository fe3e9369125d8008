"""The safety net: one deterministic pass over everything, which should find nothing to do.

The engine works in proportion to what changed; this looks at all of it. Every phase runs even if an earlier one
failed, and the first error is handed back. In tests it is the oracle; in production it runs once a minute, in slices.
"""

from collections.abc import Callable, Iterator

from rota.core.commands import Command, StartRuns, Tick
from rota.core.ids import Millis
from rota.core.state import State
from rota.core.states import RunState


def review_runs(state: State, now: Millis) -> Iterator[Command]:  # noqa: ARG001 - phases have one shape
    """Runs whose countdowns, cooldowns, cascades or deadlines might have been missed."""
    for key in list(state.runs):
        yield Tick(tenant=key[0], kind="review", key=key)


def start_runs(state: State, now: Millis) -> Iterator[Command]:  # noqa: ARG001 - phases have one shape
    """Runs that wait for their graph's cap."""
    for tenant, name in list(state.waiting_runs):
        yield StartRuns(tenant=tenant, name=name)


def look_at_schedules(state: State, now: Millis) -> Iterator[Command]:  # noqa: ARG001 - phases have one shape
    """Slots that are due."""
    for key in list(state.schedules):
        yield Tick(tenant=key[0], kind="schedule", key=key)


def reap(state: State, now: Millis) -> Iterator[Command]:
    """Leases that have run out and runs that nothing moves any more, once the coordinator has settled."""
    for key in list(state.workers):
        yield Tick(tenant=key[0], kind="worker", key=key)
    for lease in list(state.leases.values()):
        if 0 < lease.limit_at <= now - state.stalled_ms:
            yield Tick(tenant=lease.run.row.tenant, kind="overrun", key=(*lease.run.key, lease.task.idx))
    if now - state.born_at < state.limits.settle_ms:
        return
    for run in list(state.runs.values()):
        if run.row.state is RunState.RUNNING and not run.moving and not run.row.pending:
            yield Tick(tenant=run.row.tenant, kind="orphan", key=run.key)


PHASES: tuple[Callable[[State, Millis], Iterator[Command]], ...] = (review_runs, start_runs, look_at_schedules, reap)


def look_again(state: State) -> None:
    """Have matching look at every bucket and worker once more."""
    for bucket in state.index.buckets.values():
        if bucket.live:
            state.index.fresh[bucket] = None
    for worker in state.workers.values():
        state.index.hungry[worker] = None


def step(state: State, now: Millis, carry_out: Callable[[Command], None]) -> Exception | None:
    """Run every phase; the first error that a phase itself met is returned after all have run."""
    first: Exception | None = None
    for phase in PHASES:
        try:
            for command in phase(state, now):
                carry_out(command)
        except Exception as error:
            first = first or error
    look_again(state)
    return first
