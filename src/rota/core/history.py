"""What is read from the store rather than from memory: ended runs, definitions, stories."""

from typing import Protocol

from msgspec import Struct

from rota.core.bounds import AUDITS_PER_PAGE_MAX, HISTORY_PAGE_MAX, INTEGER_MAX
from rota.core.errors import Refused
from rota.core.ids import GraphDigest, Millis, RunId
from rota.core.model import Pairs, has_labels
from rota.core.questions import Question
from rota.core.records import Audit, Growth, Run, Task
from rota.core.states import RunState


class Listed(Protocol):
    """As much of an ended run as it is looked for by."""

    @property
    def tenant(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def state(self) -> RunState: ...
    @property
    def ended_at(self) -> Millis: ...
    @property
    def labels(self) -> Pairs: ...


class HistoryQuery(Question, frozen=True, kw_only=True, tag="HistoryQuery"):
    """Which ended runs of a tenant to show, newest first. Empty means any.

    `ended_from` is the first instant that counts, `ended_to` the first that does not.
    """

    name: str = ""
    kind: str = ""
    states: tuple[RunState, ...] = ()
    ended_from: Millis = 0
    ended_to: Millis = 0
    # Where the last page stopped; what `Page.next` said.
    after: str = ""
    limit: int = 100
    # Runs that have all of these.
    labels: Pairs = ()

    @property
    def page_limit(self) -> int:
        """How many runs a page has at most."""
        return max(1, min(self.limit, HISTORY_PAGE_MAX))

    def finds(self, run: "Listed") -> bool:
        """Whether this run is asked for, wherever the last page stopped."""
        return (
            run.tenant == self.tenant
            and self.name in ("", run.name)
            and self.kind in ("", run.kind)
            and (not self.states or run.state in self.states)
            and run.ended_at >= self.ended_from
            and (not self.ended_to or run.ended_at < self.ended_to)
            and has_labels(run.labels, self.labels)
        )


class Page(Struct, frozen=True):
    """Some ended runs, and where the next page begins; empty if this was the last."""

    runs: tuple[Run, ...]
    next: str = ""


# Where a run stands in the history of a store that counts them: when it ended, and the how manyth it was.
Place = tuple[Millis, int]


def write_place(place: Place) -> str:
    """What `Page.next` says of a page that ends there."""
    return f"{place[0]}.{place[1]}"


def read_place(after: str) -> Place | None:
    """Where a page ended; None if it is the first that is asked for."""
    if not after:
        return None
    ended_at, _, number = after.partition(".")
    try:
        place = int(ended_at), int(number)
    except ValueError:
        place = (INTEGER_MAX + 1, 0)
    if not all(-INTEGER_MAX <= each <= INTEGER_MAX for each in place):
        raise Refused("field.value", f"{after!r} is not where a page of history ended", path="after")
    return place


class GetEnded(Question, frozen=True, kw_only=True, tag="GetEnded"):
    """One run of history; of several with that id the newest, unless `created_at` says which."""

    run: RunId
    created_at: Millis = 0


class Ended(Struct, frozen=True):
    """A run in history, with the tasks and growths that moved there with it."""

    run: Run
    tasks: tuple[Task, ...]
    growths: tuple[Growth, ...]


class ListAudits(Question, frozen=True, kw_only=True, tag="ListAudits"):
    """Who asked for what, the newest first, from before where an earlier page ended."""

    before: int = 0
    limit: int = 100

    @property
    def page_limit(self) -> int:
        """How many audits a page has at most."""
        return max(1, min(self.limit, AUDITS_PER_PAGE_MAX))


class AuditsPage(Struct, frozen=True):
    """Some audits, and before which number to go on; 0 if there are no more."""

    audits: tuple[Audit, ...]
    next: int = 0


class GetGraph(Question, frozen=True, kw_only=True, tag="GetGraph"):
    """A definition that is live, or that a run in history was made of."""

    digest: GraphDigest


class GetStories(Question, frozen=True, kw_only=True, tag="GetStories"):
    """What is told about a run, from part `first` on."""

    run: RunId
    created_at: Millis
    first: int = 0
