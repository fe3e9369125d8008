"""Directories and trees as messages, read with suspicion: what is in them becomes files on somebody's disk."""

from collections.abc import Iterator

from google.protobuf.message import DecodeError
from msgspec import Struct

from rota.core.errors import Refused
from rota.core.ids import Digest
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import digest_of, read_digests
from rota.wire.reapi.limits import NAME_BYTES_MAX, TARGET_BYTES_MAX

# Fields of a Tree, by number; both are messages.
_TREE_FIELDS = (1, 2)
_LENGTH_DELIMITED = 2
_VARINT_BYTES_MAX = 10


class Listing(Struct, frozen=True):
    """What one directory holds, as far as others have to know."""

    files: tuple[Digest, ...]
    directories: tuple[Digest, ...]
    # Names in it, links too.
    entries: int
    # How many levels above this directory its links reach.
    climb: int


def read_directory(content: bytes, what: str = "a directory") -> pb.Directory:
    """The message, or a refusal."""
    try:
        return pb.Directory.FromString(content)
    except DecodeError:
        raise Refused("content.tree", f"{what} is not a Directory message") from None


def list_directory(directory: pb.Directory, what: str = "a directory") -> Listing:
    """What is in it, or a refusal: names that lead elsewhere, twice the same, links out of every tree."""
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
    )


def check_name(name: str, what: str) -> None:
    """Refuse what is not the name of one thing in a directory."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise Refused("content.tree", f"{what} has {name[:NAME_BYTES_MAX]!r}, which is no name of a file")
    if len(name.encode()) > NAME_BYTES_MAX:
        text = f"{what} has a name of {len(name.encode()):,} bytes"
        raise Refused("content.tree", text, f"A name has at most {NAME_BYTES_MAX}.")


def climb_of(target: str, what: str) -> int:
    """How many levels above its own directory a link leads, by its words alone; a refusal if it leads nowhere."""
    if not target or "\0" in target or len(target.encode()) > TARGET_BYTES_MAX:
        raise Refused("content.tree", f"the link {what} has no usable target")
    if target.startswith("/"):
        hint = "Links are relative to where they stand."
        raise Refused("content.tree", f"the link {what} leads to the absolute path {target[:200]!r}", hint)
    level = climb = 0
    for part in target.split("/"):
        if part == "..":
            level -= 1
            climb = max(climb, -level)
        elif part not in ("", "."):
            level += 1
    return climb


def split_tree(content: bytes) -> Iterator[bytes]:
    """The directories of a serialized Tree, the root first or wherever it stands, as they were written."""
    place = 0
    while place < len(content):
        tag, place = _varint(content, place)
        if tag & 7 != _LENGTH_DELIMITED or tag >> 3 not in _TREE_FIELDS:
            raise Refused("content.tree", "a tree is not a Tree message")
        size, place = _varint(content, place)
        if size > len(content) - place:
            raise Refused("content.tree", "a tree is cut off")
        yield content[place : place + size]
        place += size


class TreeReader:
    """Takes the directories of one Tree and says what they hold together, and whether they belong together."""

    def __init__(self) -> None:
        self.files: dict[Digest, None] = {}
        self._named: dict[Digest, None] = {}
        self._there: set[Digest] = set()

    def take(self, content: bytes) -> int:
        """One of the directories; the answer is how many names are in it."""
        listing = list_directory(read_directory(content, "a directory of a tree"), "a directory of a tree")
        self._there.add(digest_of(content))
        self.files.update(dict.fromkeys(listing.files))
        self._named.update(dict.fromkeys(listing.directories))
        return listing.entries

    def check(self) -> None:
        """Refuse a tree with a hole in it. One that leads back into itself has one too: nothing contains its digest."""
        for digest in self._named:
            if digest not in self._there:
                raise Refused("content.tree", f"a tree does not hold the directory {digest.hash} that is named in it")


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
