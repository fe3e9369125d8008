"""Which bundle a stored definition names, read without the rest of it: a graph may have a million tasks."""

import msgspec
from msgspec import Struct

from rota.core.ids import BlobRef


class _Graph(Struct):
    bundle: BlobRef | None = None


class _Row(Struct, array_like=True):
    """As a definition is written field by field."""

    tenant: str
    digest: str
    graph: _Graph


_graph_of = msgspec.json.Decoder(_Graph).decode
_row_of = msgspec.msgpack.Decoder(_Row).decode


def bundle_in_json(text: str) -> str:
    """The name of the bundle of a graph; empty if it has none."""
    return _name(_graph_of(text))


def bundle_in_row(row: bytes) -> str:
    """The same, of a whole record in MessagePack."""
    return _name(_row_of(row).graph)


def _name(graph: _Graph) -> str:
    return "" if graph.bundle is None else graph.bundle.name
