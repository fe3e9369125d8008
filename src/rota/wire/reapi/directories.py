"""Directories and trees as messages, read with suspicion: what is in them becomes files on somebody's disk."""

from collections.abc import Iterator

from google.protobuf.message import DecodeError
from msgspec import Struct

from rota.core.errors import Refused
from rota.core.ids import Digest
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import digest_of, read_digests
from rota.wire.reapi.limits import NAME_BYTES_MAX, TARGET_BYTES_MAX

# The fields of a Tree; both are messages.
_ROOT_TAG = 1 << 3 | 2
_CHILD_TAG = 2 << 3 | 2
_VARINT_BYTES_MAX = 10
# A root file system is recognised by these folders: clients that send one make them as mount points.
_ROOT_FOLDERS = frozenset(("dev", "proc", "tmp"))
# How far an absolute link climbs: above every tree.
ABSOLUTE = 1 << 30
# How far links may climb that cannot lead out, whatever they say.
ANYWHERE = 1 << 31


class Listing(Struct, frozen=True):
    """What one directory holds, as far as others have to know."""

    files: tuple[Digest, ...]
    directories: tuple[Digest, ...]
    # Names in it, links too.
    entries: int
    # How many levels above this directory its links reach; about `ABSOLUTE` if one of them has an absolute target.
    climb: int
    # It has the folders of a root file system, which it is if it is the top of an input tree.
    is_root: bool


def read_directory(content: bytes, what: str = "a directory") -> pb.Directory:
    """The message, or a refusal."""
    try:
        return pb.Directory.FromString(content)
    except DecodeError:
        raise Refused("content.tree", f"{what} is not a Directory message") from None


def list_directory(directory: pb.Directory, what: str = "a directory") -> Listing:
    """What is in it, or a refusal: names that lead elsewhere or are there twice, links without a target."""
    names: set[str] = set()
    for node in (*directory.files, *directory.directories, *directory.symlinks):
        check_name(node.name, what)
        if node.name in names:
            raise Refused("content.tree", f"{what} has {node.name!r} twice")
        names.add(node.name)
    return Listing(
        _digests([node.digest for node in directory.files], "files", what),
        _digests([node.digest for node in directory.directories], "directories", what),
        len(names),
        max((climb_of(link.target, f"{link.name!r} in {what}") for link in directory.symlinks), default=0),
        _ROOT_FOLDERS.issubset(node.name for node in directory.directories),
    )


def check_name(name: str, what: str) -> None:
    """Refuse what is not the name of one thing in a directory."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise Refused("content.tree", f"{what} has {name[:NAME_BYTES_MAX]!r}, which is no name of a file")
    if len(name.encode()) > NAME_BYTES_MAX:
        text = f"{what} has a name of {len(name.encode()):,} bytes"
        raise Refused("content.tree", text, f"A name has at most {NAME_BYTES_MAX}.")


def climb_of(target: str, what: str) -> int:
    """How many levels above its own directory a link leads, by its words alone; a refusal if it has no target.

    An absolute link leads above every tree (`ABSOLUTE`).
    """
    if not target or "\0" in target or len(target.encode()) > TARGET_BYTES_MAX:
        raise Refused("content.tree", f"the link {what} has no usable target")
    if target.startswith("/"):
        return ABSOLUTE
    level = climb = 0
    for part in target.split("/"):
        if part == "..":
            level -= 1
            climb = max(climb, -level)
        elif part not in ("", "."):
            level += 1
    return climb


def refuse_climb(climb: int, what: str) -> Refused:
    """The refusal of links that climb too far."""
    if climb > TARGET_BYTES_MAX:  # which no relative link can
        hint = "Links are relative to where they stand, except in an input tree that is a root file system."
        return Refused("content.tree", f"a link in {what} has an absolute target", hint)
    return Refused("content.tree", f"a link in {what} leads out of the input root")


def split_tree(content: bytes) -> Iterator[tuple[bool, bytes]]:
    """The directories of a serialized Tree as they were written, and of each whether it is the root."""
    place = 0
    while place < len(content):
        tag, place = _varint(content, place)
        if tag not in (_ROOT_TAG, _CHILD_TAG):
            raise Refused("content.tree", "a tree is not a Tree message")
        size, place = _varint(content, place)
        if size > len(content) - place:
            raise Refused("content.tree", "a tree is cut off")
        yield tag == _ROOT_TAG, content[place : place + size]
        place += size


class TreeContent(Struct, frozen=True):
    """What a tree holds: its files, each once, and how many levels above its root its links reach (`Listing.climb`)."""

    files: tuple[Digest, ...]
    climb: int


class TreeReader:
    """Takes the directories of one Tree, then says what they hold together."""

    def __init__(self) -> None:
        self._root: Digest | None = None
        self._listings: dict[Digest, Listing] = {}

    def take(self, content: bytes, *, is_root: bool) -> int:
        """One of the directories; the answer is how many names are in it."""
        digest = digest_of(content)
        if is_root:
            if self._root is not None:
                raise Refused("content.tree", "a tree has two roots")
            self._root = digest
        listing = list_directory(read_directory(content, "a directory of a tree"), "a directory of a tree")
        self._listings[digest] = listing
        return listing.entries

    def result(self) -> TreeContent:
        """All of it, or a refusal of a tree that has a hole.

        One that leads back into itself has one: no directory can have been written with its own digest in it.
        """
        climb = depth = 0
        level = [] if self._root is None else [self._root]
        seen = dict.fromkeys(level)
        while level:
            climb = max(climb, *(self._listings[digest].climb - depth for digest in level))
            below = dict.fromkeys(child for digest in level for child in self._listings[digest].directories)
            for child in below:
                if child not in self._listings:
                    raise Refused("content.tree", f"a tree does not hold the directory {child.hash} that it names")
            level = [child for child in below if child not in seen]
            seen.update(below)
            depth += 1
        files = dict.fromkeys(file for listing in self._listings.values() for file in listing.files)
        return TreeContent(tuple(files), climb)


def _digests(messages: list[pb.Digest], path: str, what: str) -> tuple[Digest, ...]:
    try:
        return tuple(read_digests(messages, path))
    except Refused as refused:
        raise Refused("content.tree", f"{what}: {refused.reason}", refused.hint, path=refused.path) from None


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """A number and where the next thing begins."""
    value = shift = 0
    for byte in content[place : place + _VARINT_BYTES_MAX]:
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise Refused("content.tree", "a tree is not a Tree message")
