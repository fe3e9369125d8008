"""What reaches the coordinator's machines, and what they ask for. Both are plain values; neither waits.

Every request to the store carries a ticket. An answer with a ticket that is not the latest belongs to a life that has
ended and is ignored.
"""

from enum import StrEnum

from msgspec import Struct

from rota.core.commands import Command
from rota.core.demand import Demand
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Epoch, Millis, RunId, WorkerId
from rota.core.model import Pairs
from rota.core.prepared_graph import PreparedGraph
from rota.core.questions import Question, Reading
from rota.core.records import Batch, Record, Story
from rota.wire.frames import CoordinatorFrame, WorkerFrame

Token = int
Stream = int


class Asked(Struct, frozen=True):
    """A client's command, or a question that changes nothing. A large graph of a command may have been prepared."""

    token: Token
    command: Command | Question
    prepared: PreparedGraph | None = None


class FrameCame(Struct, frozen=True):
    """A frame on a worker's stream."""

    stream: Stream
    frame: WorkerFrame


class StreamClosed(Struct, frozen=True):
    """A worker's stream is gone."""

    stream: Stream


class Woke(Struct, frozen=True):
    """Time has passed."""


class Vacated(Struct, frozen=True):
    """The lock may have become free."""


class Overtaken(Struct, frozen=True):
    """The store said outside of a commit that another reigns."""

    epoch: Epoch
    error: str


class Elected(Struct, frozen=True):
    """The answer to `Elect`: an epoch, or None when another leads, or an error."""

    ticket: int
    epoch: Epoch | None
    error: str = ""


class HoldsSaid(Struct, frozen=True):
    """The answer to `AskHolds`."""

    ticket: int
    held: bool
    error: str = ""


class Loaded(Struct, frozen=True):
    """The answer to `Load`: all live records, or None with an error; and the cluster id of the store."""

    ticket: int
    records: list[Record] | None
    error: str = ""
    cluster: str = ""


class CommitOutcome(StrEnum):
    """How a commit ended."""

    DONE = "done"
    FENCED = "fenced"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"


class Committed(Struct, frozen=True):
    """The answer to `Commit`; `code` is that of what kept it from being written, if it may be later."""

    ticket: int
    outcome: CommitOutcome
    error: str = ""
    code: str = ""


Event = Asked | FrameCame | StreamClosed | Woke | Vacated | Overtaken | Elected | HoldsSaid | Loaded | Committed


class Elect(Struct, frozen=True):
    """Try to become the writer."""

    ticket: int


class AskHolds(Struct, frozen=True):
    """Ask whether this very hold still stands."""

    ticket: int
    epoch: Epoch


class Release(Struct, frozen=True):
    """Give the lock back."""

    epoch: Epoch


class Load(Struct, frozen=True):
    """Read all live records."""

    ticket: int
    epoch: Epoch


class Commit(Struct, frozen=True):
    """Write a batch."""

    ticket: int
    epoch: Epoch
    batch: Batch


class Answer(Struct, frozen=True):
    """A reply to `Asked`; everything it could have seen is durable."""

    token: Token
    value: object
    detail: object = None


class Send(Struct, frozen=True):
    """A frame to a worker."""

    stream: Stream
    frame: CoordinatorFrame


class CloseStream(Struct, frozen=True):
    """End a worker's stream."""

    stream: Stream


class Publish(Struct, frozen=True):
    """What happened, now that it is durable; for those who watch."""

    stories: list[Story]


class Level(StrEnum):
    """How loud a line in the log is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Tell(Struct, frozen=True):
    """Something an operator should know: a log line and a count."""

    what: str
    about: tuple[tuple[str, str], ...] = ()
    level: Level = Level.INFO


class Escalate(Struct, frozen=True):
    """One cycle of the starvation ladder: ask for a worker, raise an event.

    `is_new`: this tier was not reached before. `why`: the reason, as the task's note has it. `demand`: what a worker
    would have to be, from the tier on at which one is asked for, and while the task still waits.
    """

    tenant: str
    run: RunId
    task: int
    tier: int
    is_new: bool = False
    why: str = ""
    demand: Demand | None = None


class Wake(Struct, frozen=True):
    """Tell a pull worker of a run that waits to be claimed. It is advice: whoever is told first may be too late."""

    tenant: str
    worker: WorkerId
    run: RunId
    labels: Pairs
    at: Millis


Intent = Elect | AskHolds | Release | Load | Commit | Answer | Send | CloseStream | Publish | Tell | Escalate | Wake
Reply = str | Refused | Unavailable | Reading
