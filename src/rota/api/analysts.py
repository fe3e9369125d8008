"""What an analyst's token may ask for: queries that only read, and bring no code along.

Whether a plan brings code is what its fragment says of it. A fragment that says no is run by an engine which refuses to
open any, so nothing is gained by a lie.
"""

import msgspec

from rota.core.commands import SubmitRun
from rota.core.errors import Refused
from rota.wire.queries import QUERY, Published, Written, decode_fragment

_HINT = "Use a token with the role writer."


def check_query(command: SubmitRun) -> None:
    """Refuse a run that is more than a query over tables."""
    graph = command.graph
    if graph is None or graph.kind != QUERY or any(spec.kind != QUERY for spec in graph.tasks):
        raise _refused("runs of queries only")
    if graph.bundle is not None:
        raise _refused("queries whose tables are files, or small")
    for spec in graph.tasks:
        try:
            fragment = decode_fragment(spec.work)
        except msgspec.MsgspecError as error:
            raise Refused("field.value", f"the work of {spec.id!r} is no fragment of a query: {error}") from None
        if fragment.has_code:
            raise _refused("queries without Python functions")
        if isinstance(fragment.output, Written | Published):
            raise _refused("queries that only read")


def _refused(what: str) -> Refused:
    return Refused("auth.role", f"an analyst may submit {what}", _HINT, path="graph")
