"""Walking trees of directories: what an action needs, what a client asks for, what a result names.

Content is named by its digest, so no directory can contain itself. But a small tree may name the same directory again
and again and be enormous on a disk: what counts is how many paths it has there.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import NamedTuple

from msgspec import Struct

from rota.api.reapi.together import each
from rota.core.errors import Refused
from rota.core.ids import Digest
from rota.ports import Content, ContentLost
from rota.wire.reapi.digests import EMPTY
from rota.wire.reapi.directories import (
    ANYWHERE,
    Listing,
    TreeContent,
    TreeReader,
    list_directory,
    read_directory,
    refuse_climb,
    split_tree,
)
from rota.wire.reapi.limits import (
    DIRECTORY_BYTES_MAX,
    TREE_BYTES_MAX,
    TREE_DEPTH_MAX,
    TREE_DIRECTORIES_MAX,
    TREE_PATHS_MAX,
)
from rota.wire.reapi.memory import Memory

# Directories that are read at once.
READ_TOGETHER = 32
# Digests that are looked up, or names that are walked over, before others have a turn.
SLICE = 5_000


class Inputs(Struct, frozen=True):
    """Everything under one root: each content once, the root first; what of it is not there; its extent on a disk."""

    digests: list[Digest]
    missing: list[Digest]
    paths: int
    size: int


class Trees:
    """Reads trees out of the content, and remembers their directories: most builds ask for the same ones again."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._listings: Memory[Listing] = Memory()
        self._trees: Memory[TreeContent] = Memory()

    async def walk_inputs(self, tenant: str, root: Digest) -> Inputs:
        """All that an input root needs. Everything that is there counts as used now. Refuses what cannot be made.

        Links lead nowhere outside of it. In a root file system they cannot: `/` is its top for whoever reads them.
        """
        return await self.walk_output(tenant, root, ANYWHERE if await self.is_root(tenant, root) else 0)

    async def is_root(self, tenant: str, root: Digest) -> bool:
        """Whether the top of an input tree says that it is a root file system."""
        return any(listing.is_root for _, listing in await self._list_all(tenant, [root]))

    async def walk_output(self, tenant: str, root: Digest, above: int) -> Inputs:
        """All that a directory needs; `above` is how many levels above it its links may reach."""
        listings: dict[Digest, Listing] = {}
        found: dict[Digest, None] = {root: None}
        level, depth, names = [root], 0, 0
        while level:
            if depth > TREE_DEPTH_MAX:
                raise _too_deep(root)
            below: list[Digest] = []
            for digest, listing in await self._list_all(tenant, level):
                # Nothing is nearer to the root than where it is met first.
                if listing.climb > depth + above:
                    raise refuse_climb(listing.climb, f"{digest.hash}, in the tree of {root.hash},")
                listings[digest] = listing
                below += [child for child in dict.fromkeys(listing.directories) if child not in found]
                found.update(dict.fromkeys(listing.directories))
                names += listing.entries
                if names > TREE_PATHS_MAX:
                    raise _too_large(root)
            level = below
            depth += 1
        extent = await self._measure(root, listings)
        taken = 0
        for listing in listings.values():
            found.update(dict.fromkeys(listing.files))
            taken += listing.entries
            if taken > SLICE:
                taken = 0
                await asyncio.sleep(0)
        digests = list(found)
        return Inputs(digests, await find_missing(self._content, tenant, digests), extent.paths, extent.size)

    async def walk(self, tenant: str, root: Digest) -> AsyncIterator[bytes]:
        """The directories under a root as they were stored, each once, the root first; those not there are left out."""
        seen: dict[Digest, None] = {root: None}
        level = [root]
        while level:
            below: list[Digest] = []
            for group in _together(level):
                for digest, content in await self._read_all(tenant, group):
                    listing = list_directory(read_directory(content, digest.hash), digest.hash)
                    yield content
                    below += [child for child in dict.fromkeys(listing.directories) if child not in seen]
                    seen.update(dict.fromkeys(listing.directories))
                    if len(seen) > TREE_DIRECTORIES_MAX:
                        raise _too_large(root)
            level = below

    async def read_tree(self, tenant: str, digest: Digest) -> TreeContent:
        """What a Tree message holds. Raises `ContentLost` if that is not there, and refuses one that is no tree."""
        known = self._trees.get((tenant, digest))
        if known is not None:
            return known
        if digest.size > TREE_BYTES_MAX:
            text = f"the tree {digest.hash} has {digest.size:,} bytes"
            raise Refused("content.tree", text, f"A tree has at most {TREE_BYTES_MAX:,}.")
        pieces = [piece async for piece in self._content.read(tenant, digest)]
        reader = TreeReader()
        names = taken = 0
        for is_root, directory in split_tree(b"".join(pieces)):
            names += 1 + reader.take(directory, is_root=is_root)
            if names > TREE_PATHS_MAX:
                raise _too_large(digest)
            if names - taken > SLICE:
                taken = names
                await asyncio.sleep(0)
        tree = reader.result()
        self._trees.keep((tenant, digest), tree, len(tree.files))
        return tree

    async def _list_all(self, tenant: str, digests: Sequence[Digest]) -> list[tuple[Digest, Listing]]:
        """What is in these directories; those that are not there are left out."""
        found: dict[Digest, Listing] = {}
        unknown: list[Digest] = []
        for digest in digests:
            listing = self._listings.get((tenant, digest))
            if listing is None:
                unknown.append(digest)
            else:
                found[digest] = listing
        for group in _together(unknown):
            for digest, content in await self._read_all(tenant, group):
                listing = list_directory(read_directory(content, digest.hash), digest.hash)
                self._listings.keep((tenant, digest), listing, listing.entries)
                found[digest] = listing
            await asyncio.sleep(0)
        return list(found.items())

    async def _read_all(self, tenant: str, digests: Sequence[Digest]) -> list[tuple[Digest, bytes]]:
        contents = await each(partial(self._read, tenant), digests, READ_TOGETHER)
        return [(digest, content) for digest, content in zip(digests, contents, strict=True) if content is not None]

    async def _read(self, tenant: str, digest: Digest) -> bytes | None:
        if digest == EMPTY:
            return b""
        if digest.size > DIRECTORY_BYTES_MAX:
            text = f"the directory {digest.hash} has {digest.size:,} bytes"
            raise Refused("content.tree", text, f"A directory has at most {DIRECTORY_BYTES_MAX:,}.")
        try:
            return await self._content.get(tenant, digest)
        except ContentLost:
            return None

    async def _measure(self, root: Digest, listings: dict[Digest, Listing]) -> "_Extent":
        """How large a tree is where every directory is laid out as often as it is named."""
        extents: dict[Digest, _Extent] = {}
        # And whether what is below it was measured.
        waiting: list[tuple[Digest, bool]] = [(root, False)]
        above: set[Digest] = set()
        for turn in count(1):
            if not waiting:
                break
            if turn % SLICE == 0:
                await asyncio.sleep(0)
            digest, is_ready = waiting.pop()
            listing = listings.get(digest)
            if listing is None or digest in extents:
                continue
            if not is_ready:
                if digest in above:
                    raise Refused("content.tree", f"the directory {digest.hash} contains itself")
                above.add(digest)
                waiting.append((digest, True))
                waiting.extend((child, False) for child in listing.directories if child not in extents)
                continue
            above.discard(digest)
            extents[digest] = extent = _add_up(listing, extents)
            if extent.paths > TREE_PATHS_MAX:
                raise _too_large(root)
            if extent.levels > TREE_DEPTH_MAX:
                raise _too_deep(root)
        return extents.get(root, _NOTHING)


class _Extent(NamedTuple):
    """What a directory has below it on a disk."""

    paths: int
    size: int
    levels: int


_NOTHING = _Extent(0, 0, 0)


def _add_up(listing: Listing, extents: Mapping[Digest, _Extent]) -> _Extent:
    below = [extents.get(child, _NOTHING) for child in listing.directories]
    return _Extent(
        listing.entries + sum(extent.paths for extent in below),
        sum(file.size for file in listing.files) + sum(extent.size for extent in below),
        1 + max((extent.levels for extent in below), default=0),
    )


def _together(digests: Iterable[Digest]) -> Iterator[list[Digest]]:
    """Directories in groups that are read at once."""
    group: list[Digest] = []
    size = 0
    for digest in digests:
        if group and (len(group) >= READ_TOGETHER or size + digest.size > DIRECTORY_BYTES_MAX):
            yield group
            group, size = [], 0
        group.append(digest)
        size += digest.size
    if group:
        yield group


async def find_missing(content: Content, tenant: str, digests: Iterable[Digest]) -> list[Digest]:
    """Which of many are not there, in slices, so that others have their turn."""
    missing: list[Digest] = []
    left = iter(digests)
    while part := list(islice(left, SLICE)):
        missing += content.missing(tenant, part)
        if len(part) == SLICE:
            await asyncio.sleep(0)
    return missing


def _too_deep(root: Digest) -> Refused:
    return Refused("content.tree", f"the tree of {root.hash} is more than {TREE_DEPTH_MAX} levels deep")


def _too_large(root: Digest) -> Refused:
    text = f"the tree of {root.hash} is larger than what is served"
    hint = f"It may have {TREE_PATHS_MAX:,} paths, and {TREE_DIRECTORIES_MAX:,} directories where it is listed."
    return Refused("content.tree", text, hint)
