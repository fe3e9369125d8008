"""Input trees: read folder by folder, checked, and laid out as what has to be made on disk.

Folders are kept in memory once they were read and checked: of two actions of a build most are the same.
"""

import asyncio
from collections.abc import Iterable

from google.protobuf.message import DecodeError
from msgspec import Struct

from rota.core.ids import Digest
from rota.wire.builds import EMPTY
from rota.wire.reapi import remote_execution_pb2 as rx
from rota.worker.runners.builds.content import Content

DEPTH_MAX = 200
ENTRIES_MAX = 500_000
# So many are laid out before others of the worker have their turn.
SLICE = 5_000
NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 3_000
FOLDER_BYTES_MAX = 64 << 20
# Entries of folders that are kept in memory.
REMEMBERED_MAX = 500_000


class Invalid(Exception):
    """What was asked for cannot be carried out by anybody; the text says why."""


class Folder(Struct, frozen=True):
    """One folder of an input tree, checked."""

    files: tuple[tuple[str, Digest, bool], ...]
    folders: tuple[tuple[str, Digest], ...]
    links: tuple[tuple[str, str], ...]

    @property
    def entries(self) -> int:
        """How much there is in it, and a little for itself."""
        return 1 + len(self.files) + len(self.folders) + len(self.links)


class Layout(Struct, frozen=True):
    """What is to be made on disk: paths below the action's folder, and parents before what is in them."""

    folders: list[str]
    files: list[tuple[str, Digest, bool]]
    links: list[tuple[str, str]]


class Folders:
    """Folders of one worker's actions by tenant and digest; those that were used least recently are forgotten."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Digest], Folder] = {}
        self._entries = 0

    async def lay_out(self, tenant: str, content: Content, root: Digest) -> Layout:
        """Read a tree. Raises Invalid, ContentMissing, ContentAway."""
        layout = Layout([], [], [])
        level: list[tuple[str, Digest]] = [("", root)]
        entries = 0
        for _ in range(DEPTH_MAX):
            known = await self._read(tenant, content, [digest for _, digest in level])
            deeper: list[tuple[str, Digest]] = []
            for path, digest in level:
                folder = known[digest]
                entries += folder.entries
                # A tree may name one folder many times over, and so grow without end from a few bytes.
                if entries > ENTRIES_MAX:
                    raise Invalid(f"its input tree has more than {ENTRIES_MAX:,} entries")
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
                return layout
            level = deeper
        raise Invalid(f"its input tree is deeper than {DEPTH_MAX} folders")

    async def _read(self, tenant: str, content: Content, digests: list[Digest]) -> dict[Digest, Folder]:
        found: dict[Digest, Folder] = {}
        unknown: list[Digest] = []
        for digest in dict.fromkeys(digests):
            folder = self._known.pop((tenant, digest), None)
            if folder is None:
                unknown.append(digest)
            else:
                found[digest] = self._known[(tenant, digest)] = folder
        if not unknown:
            return found
        for digest in unknown:
            if not 0 <= digest.size <= FOLDER_BYTES_MAX:
                raise Invalid(f"a folder of its input tree would be {digest.size:,} bytes large")
        for digest, raw in (await content.read(unknown)).items():
            found[digest] = folder = read_folder(raw, digest)
            self._remember((tenant, digest), folder)
        return found

    def _remember(self, key: tuple[str, Digest], folder: Folder) -> None:
        self._known[key] = folder
        self._entries += folder.entries
        while self._entries > REMEMBERED_MAX and len(self._known) > 1:
            self._entries -= self._known.pop(next(iter(self._known))).entries


def read_folder(raw: bytes, digest: Digest) -> Folder:
    """A folder from its message. Raises Invalid."""
    if digest == EMPTY:
        return Folder((), (), ())
    try:
        message = rx.Directory.FromString(raw)
    except DecodeError:
        raise Invalid(f"the folder {digest.hash} of its input tree cannot be read") from None
    names: dict[str, None] = {}
    folder = Folder(
        tuple((_name(node.name, names), digest_of(node.digest), node.is_executable) for node in message.files),
        tuple((_name(node.name, names), digest_of(node.digest)) for node in message.directories),
        tuple((_name(node.name, names), node.target) for node in message.symlinks),
    )
    if len(names) != folder.entries - 1:
        raise Invalid(f"the folder {digest.hash} of its input tree has two entries of one name")
    return folder


def digest_of(message: rx.Digest) -> Digest:
    """A digest from its message. Raises Invalid if it cannot be one."""
    sha, size = message.hash, message.size_bytes
    if len(sha) != 64 or size < 0 or not _is_hex(sha):
        raise Invalid(f"{sha[:80]!r} with {size} bytes is no digest of SHA-256")
    return Digest(sha, size)


def _is_hex(text: str) -> bool:
    return not text.strip("0123456789abcdef")


def _name(name: str, names: dict[str, None]) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(name.encode()) > NAME_BYTES_MAX:
        raise Invalid(f"{name[:80]!r} in its input tree is no name of a file")
    names[name] = None
    return name


def check_links(links: Iterable[tuple[str, str]]) -> None:
    """Refuse symbolic links that lead out of the action's folder."""
    for path, target in links:
        trouble = why_outside(path, target)
        if trouble:
            raise Invalid(f"the symbolic link {path[:200]!r} in its input tree {trouble}")


def why_outside(path: str, target: str) -> str:
    """What is wrong with a symbolic link at a path below the action's folder; empty if it stays inside."""
    if not target or "\0" in target:
        return "has no target"
    if target.startswith("/"):
        return f"leads to {target[:200]!r}, which is absolute"
    depth = path.count("/")
    for part in target.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return f"leads to {target[:200]!r}, outside of the action's folder"
    return ""
