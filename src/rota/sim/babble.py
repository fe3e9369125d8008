"""Babble: what a runner may say that nobody can keep: results too large, text that is none, numbers out of bounds."""

from collections.abc import Callable
from random import Random

import msgspec

from rota.core.bounds import RESULT_BYTES_MAX
from rota.core.commands import Outcome
from rota.core.ids import TaskId
from rota.core.model import FailureClass, TaskSpec
from rota.worker.sync import AttemptOver

HALF_CHARACTER = "\ud800"
BAD_TEXTS = (
    HALF_CHARACTER,
    f"disk {HALF_CHARACTER * 3} full\x00",
    "\x00\x01\x07\x1b[31mred\x1b[0m\x7f\x85\u2028",
    "\x00" * 10,
    "",
)
HUGE_TEXTS = ("x" * 100_000, HALF_CHARACTER * 5_000, "\U0001f600" * 5_000, "\x00" * 5_000)


def babble(over: AttemptOver, chance: Random, note: Callable[[str], None]) -> AttemptOver:
    """The same end of an attempt, in words that are hard to take."""
    replace = msgspec.structs.replace
    if over.outcome is Outcome.RESCHEDULE:
        note("absurd_time")
        return replace(over, resume_at=chance.choice((-1, 0, -(1 << 70))), salt=-over.salt)
    if over.outcome is Outcome.GREW:
        note("absurd_growth")
        foreign = TaskSpec(
            id=TaskId(chance.choice(("plan", "other.part-0", HALF_CHARACTER, ""))),
            upstream=(TaskId("before"),),
        )
        return replace(over, grows=chance.choice(((), (foreign,), over.grows * 2, over.grows[::-1])))
    if over.outcome is Outcome.SUCCESS:
        if over.expands and chance.random() < 0.5:
            note("absurd_width")
            return replace(over, expands=tuple((name, chance.choice((-1, 1 << 40))) for name, _ in over.expands))
        if chance.random() < 0.3:
            note("largest_result")
            return replace(over, result=b"r" * RESULT_BYTES_MAX)
        if chance.random() < 0.3:
            note("unknown_names")
            return replace(over, expands=(*over.expands, (HALF_CHARACTER, 3), ("\x00", 1)))
        note("oversize_result")
        return replace(over, result=b"r" * (RESULT_BYTES_MAX + 1))
    if over.outcome is not Outcome.FAILED:
        note("skipped_with_result")
        return replace(over, result=b"r" * (RESULT_BYTES_MAX + 1), error=HUGE_TEXTS[0])
    if chance.random() < 0.2:
        note("absurd_loss")
        return replace(over, failure=FailureClass.INPUT_LOST, lost=(HALF_CHARACTER, "nobody", "\x00[7]"))
    kind, texts = chance.choice((("bad_text", BAD_TEXTS), ("huge_text", HUGE_TEXTS)))
    note(kind)
    return replace(over, error=chance.choice(texts))
