"""Prepares the large graph of a command in a thread, which takes turns with the event loop."""

import asyncio

from rota.core.commands import Command
from rota.core.errors import Refused
from rota.core.prepared_graph import PreparedGraph, large_graph_of, prepare_graph
from rota.core.questions import Question


async def prepare(request: Command | Question) -> PreparedGraph | Refused | None:
    """The prepared graph of a request, or what is wrong with it; None if it has no large graph."""
    graph = large_graph_of(request)
    if graph is None:
        return None
    try:
        return await asyncio.to_thread(prepare_graph, request.tenant, graph)
    except Refused as refused:
        return refused
