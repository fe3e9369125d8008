"""Work that a function prepares: it is called first, and what it gives is the command to run or the request to send."""

import time
from typing import Any

from msgspec import structs

from rota.core.commands import Outcome
from rota.core.decide.leases import Offer
from rota.core.model import FailureClass
from rota.wire.values import PLAIN, unpack
from rota.wire.work import PYTHON, PythonWork, Value, decode_value, encode_work
from rota.worker.runners import Runner
from rota.worker.runners.outcomes import failed, timed_out
from rota.worker.sync import AttemptOver


class NothingToDo(Exception):
    """The attempt has ended before there was anything to run: its function failed, was skipped or waits."""

    def __init__(self, over: AttemptOver) -> None:
        super().__init__(over.error)
        self.over = over


async def prepare(calls: Runner, offer: Offer, call: PythonWork) -> tuple[Any, Offer]:
    """What the function gave, which is plain, and the offer with the time that is left of it. Raises NothingToDo."""
    began = time.monotonic()
    over = await calls.run(structs.replace(offer, kind=PYTHON, work=encode_work(call)))
    if over.outcome is not Outcome.SUCCESS:
        raise NothingToDo(over)
    value = None if over.result is None else decode_value(over.result)
    if not isinstance(value, Value) or value.encoding != PLAIN:
        what = "it is too large" if not isinstance(value, Value) else "it is made of more than text, numbers and lists"
        raise NothingToDo(
            failed(offer, FailureClass.FATAL, f"what its function returned cannot be run or sent: {what}")
        )
    if not offer.timeout_ms:
        return unpack(PLAIN, value.content), offer
    left_ms = offer.timeout_ms - round((time.monotonic() - began) * 1_000)
    if left_ms <= 0:
        raise NothingToDo(timed_out(offer, " while it was prepared"))
    return unpack(PLAIN, value.content), structs.replace(offer, timeout_ms=left_ms)
