"""From an offer to what its code may know of it, and from how that ended to what is reported."""

import os
import signal
from collections.abc import Sequence

from rota.core.commands import Outcome
from rota.core.decide.leases import Offer
from rota.core.model import FailureClass
from rota.running import Context
from rota.worker.channel import CONNECTION_LOST
from rota.worker.runners.calls import Done, cut
from rota.worker.supervisor.driver import Ended
from rota.worker.sync import AttemptOver

LAST_LINES = 20


def context_of(offer: Offer, zone: str, deadline_at: int | None, *, may_grow: bool = False) -> Context:
    """What code in this very process may know of its attempt."""
    return Context(
        tenant=offer.tenant,
        run=offer.run,
        task=offer.task_id,
        attempt=offer.attempt,
        fence=offer.fence,
        workflow=offer.graph,
        version=offer.version,
        map_index=offer.map_index,
        logical_at=offer.logical_at,
        deadline_at=deadline_at,
        packed=offer.params,
        zone=zone,
        may_grow=may_grow,
    )


def over(offer: Offer, done: Done, result: bytes | None) -> AttemptOver:
    """The report on a call that came to its end."""
    return AttemptOver(
        fence=offer.fence,
        outcome=Outcome(done.outcome),
        result=result,
        failure=FailureClass(done.failure),
        error=cut(done.error),
        resume_at=done.resume_at,
        expands=done.expands,
        skips=done.skips,
        grows=done.grows,
    )


def failed(offer: Offer, failure: FailureClass, error: str, lost: tuple[str, ...] = ()) -> AttemptOver:
    """The report on an attempt that failed."""
    return AttemptOver(fence=offer.fence, outcome=Outcome.FAILED, failure=failure, error=cut(error), lost=lost)


def no_room(offer: Offer, why: str) -> AttemptOver:
    """The report on an attempt for which this worker has no room now: it costs nothing, and the worker is let be."""
    return AttemptOver(fence=offer.fence, outcome=Outcome.RELEASED, error=cut(why))


def timed_out(offer: Offer, ending: str) -> AttemptOver:
    """The report on an attempt that took too long."""
    text = f"took longer than its time limit of {offer.timeout_ms:,} ms{ending}"
    return failed(offer, FailureClass.TIMEOUT, text)


def died(offer: Offer, ended: Ended, tails: Sequence[str]) -> AttemptOver:
    """The report on an attempt whose process ended without a word."""
    code = os.waitstatus_to_exitcode(ended.status)
    failure = FailureClass.USER
    if ended.out_of_memory:
        failure = FailureClass.OUT_OF_MEMORY
        how = "killed by SIGKILL while the kernel counted a kill for lack of memory"
    elif ended.was_killed:
        how = "cut its connection to the worker, and was killed; it must not close files that it did not open"
    elif code < 0:
        how = f"killed by {_signal_name(-code)}"
    else:
        how = f"the process exited with code {code} before the task returned"
        if code == CONNECTION_LOST:
            how += "; it must not close files that it did not open"
    return failed(offer, failure, how + last_lines(tails))


def last_lines(tails: Sequence[str]) -> str:
    """The end of what was printed, to stderr if anything was, as an appendix to an error."""
    for tail in reversed(tails):
        shown = "\n".join(tail.rstrip().splitlines()[-LAST_LINES:])
        if shown:
            return f"\n{shown}"
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
