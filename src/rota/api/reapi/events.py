"""What happens to a backlog, and what it wants to be done about it."""

from msgspec import Struct

from rota.api.reapi.ongoing import Conclusion, Ongoing, Operation
from rota.core.model import Queue
from rota.core.questions import RunView, TaskView
from rota.core.records import Story
from rota.kinds.build.scheduling import Asked
from rota.wire.builds import BuildWork


class Submitting(Struct, frozen=True):
    """An action is on its way to the coordinator, as this run."""

    run: str
    asked: Asked


class Submitted(Struct, frozen=True):
    """The coordinator has it; `taken` is the run that carries it out, which may be one that was there before."""

    run: str
    taken: str


class NotSubmitted(Struct, frozen=True):
    """It was refused, or nobody answered. If it was made all the same, it is found by whoever catches up."""

    run: str


class Caught(Struct, frozen=True):
    """Everything can be heard from now on. What others have submitted, and the queues there are."""

    runs: tuple[tuple[RunView, BuildWork], ...] = ()
    queues: tuple[Queue, ...] = ()


class Adopted(Struct, frozen=True):
    """Somebody asks for a run that is not known here."""

    view: RunView
    work: BuildWork


class Told(Struct, frozen=True):
    """Something became durable."""

    story: Story


class Seen(Struct, frozen=True):
    """How a run stands; without a view nothing is known of it any more."""

    ongoing: Ongoing
    view: RunView | None
    task: TaskView | None = None


class Kept(Struct, frozen=True):
    """The result is in the cache, if it belongs there: now it can be told."""

    ongoing: Ongoing
    end: Conclusion


class Replaced(Struct, frozen=True):
    """Another run carries out the action for the same clients."""

    ongoing: Ongoing
    following: Ongoing


class Cancelled(Struct, frozen=True):
    """A client wants its operation no more."""

    ongoing: Ongoing
    operation: Operation


class Left(Struct, frozen=True):
    """A client listens no more, which is no cancel."""

    ongoing: Ongoing
    operation: Operation


class TurnedAway(Struct, frozen=True):
    """The coordinator does not let this caller in any more, so nothing will be heard of what it began."""

    error: str


class Ticked(Struct, frozen=True):
    """Time has passed."""


Event = (
    Submitting
    | Submitted
    | NotSubmitted
    | Caught
    | Adopted
    | Told
    | Seen
    | Kept
    | Replaced
    | Cancelled
    | Left
    | TurnedAway
    | Ticked
)


class Tell(Struct, frozen=True):
    """There is something new for those who wait for this run."""

    ongoing: Ongoing


class Read(Struct, frozen=True):
    """See how it stands; `Seen` follows."""

    ongoing: Ongoing


class End(Struct, frozen=True):
    """Have it cancelled."""

    ongoing: Ongoing
    reason: str


class Keep(Struct, frozen=True):
    """Put its result into the cache; `Kept` follows."""

    ongoing: Ongoing
    end: Conclusion


class Replace(Struct, frozen=True):
    """Have its action carried out by another run; `Replaced` follows, or `Kept` with the trouble that came instead."""

    ongoing: Ongoing
    asked: Asked


Intent = Tell | Read | End | Keep | Replace
