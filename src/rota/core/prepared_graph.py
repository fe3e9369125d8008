"""Large graphs are prepared before their command is decided: checked, and laid out for counting.

Both take longer than one turn may. Preparing reads no state, so it is done outside the loop; what remains for `decide`
and `evolve` is what depends on the state.
"""

from msgspec import Struct

from rota.core.bounds import TASKS_PER_SLICE
from rota.core.commands import Command, DeployWorkflow, PutSchedule, ReviveRun, SubmitRun
from rota.core.graph import LiveGraph, check_graph, graph_digest
from rota.core.model import Graph, TaskSpec
from rota.core.question import Question


class PreparedGraph(Struct, frozen=True):
    """A definition that was checked and laid out before its command is decided, which takes long for a large one.

    `needs` are the nodes that ask for something that no node before them does.
    """

    live: LiveGraph
    needs: list[int]


def prepare_graph(tenant: str, graph: Graph) -> PreparedGraph:
    """Check a definition and lay it out. It is for one command and one state: a live graph is changed in use."""
    check_graph(graph)
    return PreparedGraph(LiveGraph(tenant, graph_digest(graph), graph), distinct_needs(graph.tasks))


def distinct_needs(specs: tuple[TaskSpec, ...]) -> list[int]:
    """Positions of tasks, each the first that asks for what it does. Large graphs ask for few different things."""
    seen: dict[object, int] = {}
    for position, spec in enumerate(specs):
        seen.setdefault((spec.queue, spec.kind, spec.requires, spec.pools), position)
    return list(seen.values())


def large_graph_of(request: Command | Question) -> Graph | None:
    """The graph of a command, if it is large enough to be prepared: by its tasks and edges."""
    graph = request.graph if isinstance(request, SubmitRun | DeployWorkflow | PutSchedule | ReviveRun) else None
    if graph is None:
        return None
    if len(graph.tasks) > TASKS_PER_SLICE:
        return graph
    edges = sum(len(spec.upstream) for spec in graph.tasks)
    return graph if len(graph.tasks) + edges > TASKS_PER_SLICE else None
