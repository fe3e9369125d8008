"""Scripts: what an attempt does is written in its work, how long it takes and what comes of it on each try."""

import msgspec
from msgspec import Struct

from rota.core.commands import Outcome
from rota.core.decide.leases import Offer
from rota.core.ids import Millis, TaskId
from rota.core.model import FailureClass, RetryPolicy, TaskSpec
from rota.worker.sync import AttemptOver

HANG_MS: Millis = 24 * 3_600_000


class Script(Struct, frozen=True):
    """What an attempt does: `fails` is how often it fails before it works, `hangs` how often it first never ends.

    `skips` are the tasks that it, a branch, decides against; `grows` has widths and scripts of the tasks that it
    goes on as, each after the one before.
    `endless` work never comes to an end, but its worker keeps its time limit; work that hangs is left to hang.
    """

    takes_ms: Millis = 100
    fails: int = 0
    failure: FailureClass = FailureClass.USER
    reschedules: int = 0
    ends: Outcome = Outcome.SUCCESS
    expands: tuple[tuple[str, int], ...] = ()
    loses: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()
    kills: bool = False
    endless: bool = False
    hangs: int = 0
    grows: tuple[tuple[int, bytes], ...] = ()
    # How often it fails after it has looked again.
    fails_late: int = 0


read_script = msgspec.msgpack.Decoder(Script).decode


def write_script(script: Script) -> bytes:
    """A script as the work of a task."""
    return msgspec.msgpack.encode(script)


def lasting_ms(offer: Offer) -> Millis:
    """How long an attempt takes: until it is done or its time is over. What only a kill ends outlives the world."""
    script = read_script(offer.work)
    if offer.attempt <= script.hangs:
        return HANG_MS
    if _is_too_long(script, offer):
        return offer.timeout_ms
    return HANG_MS if script.endless else script.takes_ms


def _is_too_long(script: Script, offer: Offer) -> bool:
    return bool(offer.timeout_ms) and (script.endless or script.takes_ms > offer.timeout_ms)


def conclude(offer: Offer, salt: int, now: Millis) -> AttemptOver:
    """How an attempt ends, by its time limit, its script and its number."""
    script = read_script(offer.work)
    if _is_too_long(script, offer):
        text = f"out of time after {offer.timeout_ms} ms"
        return AttemptOver(offer.fence, Outcome.FAILED, failure=FailureClass.TIMEOUT, error=text, salt=salt)
    if script.loses and offer.attempt == 1:
        return AttemptOver(
            offer.fence, Outcome.FAILED, failure=FailureClass.INPUT_LOST, lost=script.loses, error="gone", salt=salt
        )
    if offer.attempt <= script.fails:
        return AttemptOver(offer.fence, Outcome.FAILED, failure=script.failure, error="as scripted", salt=salt)
    if offer.attempt <= script.fails + script.reschedules:
        return AttemptOver(offer.fence, Outcome.RESCHEDULE, resume_at=now + 500, salt=salt)
    if offer.attempt <= script.fails + script.reschedules + script.fails_late:
        return AttemptOver(offer.fence, Outcome.FAILED, failure=script.failure, error="as scripted", salt=salt)
    if script.grows and not any(given.is_grown for given in offer.inputs):
        return AttemptOver(offer.fence, Outcome.GREW, grows=_grown(offer, script), salt=salt)
    return AttemptOver(offer.fence, script.ends, result=b"done", expands=script.expands, skips=script.skips, salt=salt)


def _grown(offer: Offer, script: Script) -> tuple[TaskSpec, ...]:
    names = [f"{offer.task_id}.part-{number}" for number in range(len(script.grows))]
    above = [(), *((name,) for name in names)]
    return tuple(
        TaskSpec(
            id=TaskId(name),
            width=width,
            work=work,
            upstream=tuple(map(TaskId, ups)),
            inputs=tuple(map(TaskId, ups)),
            retry=RetryPolicy(retries=2, delay_ms=300),
        )
        for name, ups, (width, work) in zip(names, above, script.grows, strict=False)
    )
