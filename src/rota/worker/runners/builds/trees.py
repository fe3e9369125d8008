"""Input trees: read folder by folder, checked, and laid out as what has to be made on disk.

Folders are kept in memory once they were read and checked: of two actions of a build most are the same.
"""

import asyncio

from msgspec import Struct

from rota.core.ids import Digest
from rota.wire.reapi.directories import ABSOLUTE, climb_of, list_directory, read_directory
from rota.wire.reapi.limits import DIRECTORY_BYTES_MAX, PATH_BYTES_MAX, TREE_DEPTH_MAX, TREE_PATHS_MAX
from rota.wire.reapi.memory import Memory
from rota.worker.runners.builds.content import Content

# So many are laid out before others of the worker have their turn.
SLICE = 5_000


class Invalid(Exception):
    """What was asked for cannot be carried out by anybody; the text says why."""


class AbsoluteLink(Invalid):
    """A link has an absolute target, which the front end says it disallows."""


class Folder(Struct, frozen=True):
    """One folder of an input tree, checked."""

    files: tuple[tuple[str, Digest, bool], ...]
    folders: tuple[tuple[str, Digest], ...]
    links: tuple[tuple[str, str], ...]
    is_root: bool = False

    @property
    def entries(self) -> int:
        """How much there is in it, and a little for itself."""
        return 1 + len(self.files) + len(self.folders) + len(self.links)


class Layout(Struct):
    """What is to be made on disk: paths below the action's folder, and parents before what is in them."""

    folders: list[str]
    files: list[tuple[str, Digest, bool]]
    links: list[tuple[str, str]]
    # It is a root file system: the action runs in it, and no link leads out.
    is_root: bool = False


class Folders:
    """Folders of one worker's actions by tenant and digest; those that were used least recently are forgotten."""

    def __init__(self) -> None:
        self._known: Memory[Folder] = Memory()

    async def lay_out(self, tenant: str, content: Content, root: Digest) -> Layout:
        """Read a tree. Raises Invalid, ContentMissing, ContentAway."""
        layout = Layout([], [], [])
        level: list[tuple[str, Digest]] = [("", root)]
        entries = 0
        for _ in range(TREE_DEPTH_MAX):
            known = await self._read(tenant, content, [digest for _, digest in level])
            deeper: list[tuple[str, Digest]] = []
            for path, digest in level:
                folder = known[digest]
                layout.is_root |= not path and folder.is_root
                entries += folder.entries
                # A tree may name one folder many times over, and so grow without end from a few bytes.
                if entries > TREE_PATHS_MAX:
                    raise Invalid(f"its input tree has more than {TREE_PATHS_MAX:,} entries")
                if entries // SLICE > (entries - folder.entries) // SLICE:
                    await asyncio.sleep(0)
                if len(path) * 4 > PATH_BYTES_MAX and len(path.encode()) > PATH_BYTES_MAX:
                    raise Invalid(f"a path in its input tree is longer than {PATH_BYTES_MAX:,} bytes")
                layout.files.extend((f"{path}{name}", file, mode) for name, file, mode in folder.files)
                layout.links.extend((f"{path}{name}", target) for name, target in folder.links)
                for name, below in folder.folders:
                    layout.folders.append(f"{path}{name}")
                    deeper.append((f"{path}{name}/", below))
            if not deeper:
                if not layout.is_root:
                    _check_links(layout)
                return layout
            level = deeper
        raise Invalid(f"its input tree is deeper than {TREE_DEPTH_MAX} folders")

    async def _read(self, tenant: str, content: Content, digests: list[Digest]) -> dict[Digest, Folder]:
        found: dict[Digest, Folder] = {}
        unknown: list[Digest] = []
        for digest in dict.fromkeys(digests):
            folder = self._known.get((tenant, digest))
            if folder is None:
                unknown.append(digest)
            else:
                found[digest] = folder
        if not unknown:
            return found
        for digest in unknown:
            if not digest.size <= DIRECTORY_BYTES_MAX:
                raise Invalid(f"a folder of its input tree would be {digest.size:,} bytes large")
        for digest, raw in (await content.read(unknown)).items():
            found[digest] = folder = read_folder(raw, digest)
            self._known.keep((tenant, digest), folder, folder.entries)
        return found


def read_folder(raw: bytes, digest: Digest) -> Folder:
    """A folder from its message. Refuses what is none."""
    what = f"the directory {digest.hash} of its input tree"
    message = read_directory(raw, what)
    listing = list_directory(message, what)
    return Folder(
        tuple((node.name, file, node.is_executable) for node, file in zip(message.files, listing.files, strict=True)),
        tuple((node.name, folder) for node, folder in zip(message.directories, listing.directories, strict=True)),
        tuple((node.name, node.target) for node in message.symlinks),
        listing.is_root,
    )


def _check_links(layout: Layout) -> None:
    for path, target in layout.links:
        check_link(path, target)


def check_link(path: str, target: str) -> None:
    """Refuse a symbolic link at a path below the action's folder that leads out of it, by its words alone."""
    climb = climb_of(target, f"{path[:200]!r}")
    if climb == ABSOLUTE:
        raise AbsoluteLink(f"the link {path[:200]!r} leads to the absolute path {target[:200]!r}")
    if climb > path.count("/"):
        raise Invalid(f"the link {path[:200]!r} leads to {target[:200]!r}, outside of the action's folder")
