"""How a query was planned, as whoever planned it wrote that down: nothing is planned where pages are made."""

from msgspec import MsgspecError, Struct, ValidationError, convert

from rota.core.changes import RunGrew
from rota.core.graph import LiveGraph
from rota.core.history import GetStories
from rota.core.questions import RunView, TaskView
from rota.core.records import Story
from rota.core.story import read_story
from rota.ui.reading import Reader
from rota.wire.queries import Fragment, Texts, decode_fragment
from rota.wire.views import show_result


class Planned(Struct, frozen=True):
    """The part of the first rows that tells how they were planned."""

    plan: Texts = ()


async def read_grown(reader: Reader, view: RunView) -> LiveGraph:
    """The definition of a run, with what it went on as while it ran."""
    graph = await reader.graph(view.graph)
    if view.total <= graph.total:
        return graph
    key = (view.tenant, view.id, view.created_at, view.total)
    known = reader.memory.grown.get(key)
    if known is not None:
        return known
    parts: list[Story] = await reader.ask(GetStories(tenant=view.tenant, run=view.id, created_at=view.created_at))
    for change in (change for part in parts for change in read_story(part)):
        if isinstance(change, RunGrew):
            graph = graph.grown(change.growth)
    return reader.memory.grown.put(key, graph)


def fragment_of(work: bytes) -> Fragment | None:
    """The work of a stage; None of a task that is none."""
    try:
        return decode_fragment(work)
    except MsgspecError:
        return None


def plan_of(graph: LiveGraph, looked: TaskView | None) -> Texts:
    """The plans of a query, by their names: from its last stage, or from the first rows of one that had none."""
    fragments = [fragment_of(spec.work) for spec in reversed(graph.specs)]
    told = next((fragment.texts for fragment in fragments if fragment is not None and fragment.texts), ())
    if told or looked is None:
        return told
    # A task's result may be anything.
    try:
        return convert(show_result(looked.result), Planned).plan
    except ValidationError:
        return ()
