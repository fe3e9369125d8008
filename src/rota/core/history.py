"""What is read from the store rather than from memory: ended runs, definitions, stories."""

from msgspec import Struct

from rota.core.ids import Millis
from rota.core.questions import Question
from rota.core.records import Audit, Growth, Run, Task
from rota.core.states import RunState


class HistoryQuery(Question, frozen=True, kw_only=True):
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


class Page(Struct, frozen=True):
    """Some ended runs, and where the next page begins; empty if this was the last."""

    runs: tuple[Run, ...]
    next: str = ""


class GetEnded(Question, frozen=True, kw_only=True):
    """One run of history; of several with that id the newest, unless `created_at` says which."""

    run: str
    created_at: Millis = 0


class Ended(Struct, frozen=True):
    """A run in history, with the tasks and growths that moved there with it."""

    run: Run
    tasks: tuple[Task, ...]
    growths: tuple[Growth, ...]


class ListAudits(Question, frozen=True, kw_only=True):
    """Who asked for what, the newest first, from before where an earlier page ended."""

    before: int = 0
    limit: int = 100


class AuditsPage(Struct, frozen=True):
    """Some audits, and before which number to go on; 0 if there are no more."""

    audits: tuple[Audit, ...]
    next: int = 0


class GetGraph(Question, frozen=True, kw_only=True):
    """A definition that is live, or that a run in history was made of."""

    digest: str


class GetStories(Question, frozen=True, kw_only=True):
    """What is told about a run, from part `first` on."""

    run: str
    created_at: Millis
    first: int = 0
