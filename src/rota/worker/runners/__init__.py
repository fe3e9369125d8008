"""Runners: what carries out an attempt. One for each kind of work; the Sync machine knows none of them."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    # The processes that run user code live in this folder too and start without the core.
    from rota.core.decide.leases import Offer
    from rota.worker.sync import AttemptOver


# Said to who is cancelled because its lease could not be renewed: another worker may have the task in a moment.
AT_ONCE = "at once"


class Runner(Protocol):
    """Carries out attempts of one kind of work."""

    async def run(self, offer: "Offer") -> "AttemptOver":
        """Run one attempt to its end, whatever that end is; a failure is an outcome and not an exception.

        Cancelling this call kills the attempt with everything it started, and returns only when none of it is left.
        Code that listens may be asked to stop first, unless it is cancelled with `AT_ONCE`.
        """
        ...

    async def close(self) -> None:
        """Stop for good: nothing of what was started is left behind."""
        ...
