"""What an analyst's token may ask for: queries that only read, what they may read, and bring no code along.

Whether a plan brings code, and where all the files are that it reads, is what its fragment says of it. A fragment that
says no is run by an engine which refuses to open any, and a worker reads no files but in the places that are named, so
nothing is gained by a lie.
"""

import os
import re
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from rota.core.commands import SubmitRun
from rota.core.errors import Refused
from rota.wire.asking import is_asking
from rota.wire.queries import QUERY, Published, Written, decode_fragment, is_within

_HINT = "Use a token with the role writer."


class Readable(Struct, frozen=True):
    """What analysts may read: files in these places; and the tables of the settings, under their names."""

    places: tuple[str, ...] = ()
    tables: Mapping[str, str] = {}


def readable(tables: Mapping[str, str], folders: Iterable[str]) -> Readable:
    """What settings name."""
    return Readable(_places((*tables.values(), *folders)), tables)


def _places(named: Iterable[str]) -> tuple[str, ...]:
    """Places in full; of a pattern of names, the last folder before it."""
    found: dict[str, None] = {}
    for name in named:
        plain = name.removeprefix("file://")
        if re.search(r"[*?\[]", plain):
            plain = re.split(r"[*?\[]", plain)[0].rpartition("/")[0]
        found[plain.rstrip("/") if "://" in plain else os.path.abspath(plain)] = None  # noqa: PTH100 - a URL is not a path
    return tuple(found)


def check_query(command: SubmitRun, allowed: Readable) -> None:
    """Refuse a run that is more than a query over what may be read."""
    graph = command.graph
    if graph is not None and is_asking(graph, allowed.tables):
        # Its tasks are code, but ours: a statement over the tables of the settings, as pages ask it.
        return
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
        if fragment.places is None:
            raise _refused("queries of which it can be told what they read")
        for place in fragment.places:
            if not is_within(place, allowed.places):
                text = f"an analyst may not read {place}"
                hint = "Have it named in queries.tables or queries.folders of the coordinator's settings."
                raise Refused("auth.role", text, hint, path="graph")


def _refused(what: str) -> Refused:
    return Refused("auth.role", f"an analyst may submit {what}", _HINT, path="graph")
