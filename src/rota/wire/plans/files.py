"""Files in plans: which ones a plan reads, and within which places they all are.

A place is a folder or a file by its full path, or a URL of one in a bucket.
"""

from collections.abc import Iterator, Sequence
from posixpath import commonpath

from msgspec import Struct

from rota.wire.plans.tree import FILE_SCANS, Node, Unsliceable, exchange_of, read, scan_of, walk

_LOCAL = "file:///"


class PlanFile(Struct, frozen=True):
    """A file that is read, by its path or URL, as it was when the plan was made."""

    name: str
    bytes: int
    modified_ns: int


def files_in(plan: bytes) -> list[PlanFile]:
    """The files that a plan reads; `Unsliceable` if there is a node that is not known."""
    return [file for scan in _scans(plan) for file in _files_of(scan)]


def places_in(plan: bytes) -> tuple[str, ...] | None:
    """For each scan of a plan its file, or the folder that all of them are in; None if not all nodes are known.

    The files of its exchanges come later.
    """
    try:
        scans = [[file.name for file in _files_of(scan)] for scan in _scans(plan) if exchange_of(scan) is None]
    except Unsliceable:
        return None
    return tuple(sorted({_place_of(names) for names in scans if names}))


def _scans(plan: bytes) -> Iterator[Node]:
    return (node for node in walk(read(plan)) if node.kind in FILE_SCANS)


def _files_of(scan: Node) -> Iterator[PlanFile]:
    conf = scan_of(scan)
    # Paths in stores have no slash in front.
    store = "/" if conf.object_store_url == _LOCAL else conf.object_store_url
    for group in conf.file_groups:
        for file in group.files:
            yield PlanFile(f"{store}{file.path}", file.size, file.modified_ns)


def _place_of(names: Sequence[str]) -> str:
    scheme, _, first = names[0].partition("://")
    if not first:
        return commonpath(names)
    return f"{scheme}://{commonpath([name.partition('://')[2] for name in names])}"
