"""Results of actions: kept only if they can be believed, and given out only if everything they name is there."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from rota.api.reapi.calls import parse
from rota.api.reapi.statuses import MissingContent
from rota.api.reapi.trees import Trees, find_missing
from rota.core.errors import Refused
from rota.core.ids import NO_FENCE, Digest, Fence
from rota.ports import ActionResults, Content, ContentLost
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import digest_of, read_digest
from rota.wire.reapi.directories import ANYWHERE, climb_of, refuse_climb
from rota.wire.reapi.limits import BATCH_BYTES_MAX, PATH_BYTES_MAX


class Results:
    """The action cache of each tenant and instance."""

    def __init__(self, content: Content, results: ActionResults, trees: Trees, *, sandbox: str = "") -> None:
        """`sandbox` is how actions are walled off here: results of other ways are not found, nor replaced."""
        self._content = content
        self._sandbox = sandbox
        self._results = results
        self._trees = trees
        # How often there was one, none, or one of which something was missing.
        self.lookups = {"hit": 0, "miss": 0, "incomplete": 0}

    async def find(self, tenant: str, instance: str, action: Digest) -> pb.ActionResult | None:
        """A result of which everything is there, which then counts as used now."""
        kept = await self._results.get(tenant, self._place(instance), action)
        result = await self._whole(tenant, kept) if kept is not None else None
        self.lookups["miss" if kept is None else "incomplete" if result is None else "hit"] += 1
        return result

    async def _whole(self, tenant: str, kept: bytes) -> pb.ActionResult | None:
        try:
            result: pb.ActionResult = parse(pb.ActionResult, kept)
            # Where its links lead was checked when it was kept.
            missing = await self._missing(tenant, result, _Inside(0, is_root=True))
        except Refused:
            # Kept under other rules than today's; it is made again.
            return None
        return None if missing else result

    async def keep(
        self, tenant: str, instance: str, action: Digest, result: pb.ActionResult, fence: Fence = NO_FENCE
    ) -> bool:
        """Keep a result, unless one with a later fence is there: then the answer is no.

        Refuses one that lies about what it holds, leads out of the input root, or names what is not there.
        """
        _check_inline(result)
        content = result.SerializeToString()
        if len(content) > BATCH_BYTES_MAX:
            text = f"the result of {action.hash} has {len(content):,} bytes"
            raise Refused("field.size", text, f"It may have {BATCH_BYTES_MAX:,}; refer to output, do not inline it.")
        outputs = list(_outputs(result))
        # Most results reach nowhere, and then it does not matter.
        may_reach_up = result.output_directories or any(output.reaches_up for output in outputs)
        inside = await self._inside(tenant, action) if may_reach_up else _Inside()
        for output in outputs:
            output.check(inside)
        missing = await self._missing(tenant, result, inside)
        if missing:
            raise MissingContent(f"the result of {action.hash}", missing)
        return await self._results.put(tenant, self._place(instance), action, content, fence)

    def _place(self, instance: str) -> str:
        return f"{instance}\0{self._sandbox}" if self._sandbox else instance

    async def inline(
        self, tenant: str, result: pb.ActionResult, *, stdout: bool, stderr: bool, files: Sequence[str]
    ) -> None:
        """Put into a result what its reader would ask for next, as far as one message has room for it."""
        room = BATCH_BYTES_MAX - result.ByteSize()

        async def fetch(message: pb.Digest) -> bytes:
            nonlocal room
            if not 0 < message.size_bytes <= room:
                return b""
            try:
                content = await self._content.get(tenant, read_digest(message))
            except ContentLost:
                return b""
            room -= len(content)
            return content

        if stdout and not result.stdout_raw:
            result.stdout_raw = await fetch(result.stdout_digest)
        if stderr and not result.stderr_raw:
            result.stderr_raw = await fetch(result.stderr_digest)
        wanted = frozenset(files)
        for file in result.output_files:
            if file.path in wanted and not file.contents:
                file.contents = await fetch(file.digest)

    async def _missing(self, tenant: str, result: pb.ActionResult, inside: "_Inside") -> list[Digest]:
        """What a result names and is not there."""
        missing = await find_missing(self._content, tenant, dict.fromkeys(_named(result)))
        for directory in result.output_directories:
            levels = ANYWHERE if inside.is_root else inside.levels + _depth(directory.path)
            if directory.HasField("tree_digest"):
                missing += await self._missing_of_tree(tenant, read_digest(directory.tree_digest), levels)
            if directory.HasField("root_directory_digest"):
                root = read_digest(directory.root_directory_digest)
                missing += (await self._trees.walk_output(tenant, root, levels)).missing
        return list(dict.fromkeys(missing))

    async def _missing_of_tree(self, tenant: str, digest: Digest, levels: int) -> list[Digest]:
        try:
            tree = await self._trees.read_tree(tenant, digest)
        except ContentLost:
            return [digest]
        if tree.climb > levels:
            raise refuse_climb(tree.climb, f"the tree {digest.hash}")
        return await find_missing(self._content, tenant, tree.files)

    async def _inside(self, tenant: str, action: Digest) -> "_Inside":
        try:
            found = pb.Action.FromString(await self._content.get(tenant, action))
            digest = read_digest(found.command_digest)
            command = pb.Command.FromString(await self._content.get(tenant, digest))
            root = found.input_root_digest
            is_root = bool(root.hash) and await self._trees.is_root(tenant, read_digest(root))
        except (ContentLost, DecodeError, Refused):
            # The action is not known here, and so nothing may reach above it.
            return _Inside()
        return _Inside(max(0, _depth(command.working_directory)), is_root)


class _Inside(NamedTuple):
    """What of the world around an output belongs to its action."""

    # How many levels above the action's working directory are inside its input root.
    levels: int = 0
    # The input root is a root file system, out of which no link leads.
    is_root: bool = False


class _Output(NamedTuple):
    """A path that a result names, and where it leads if it is a link."""

    path: str
    target: str

    @property
    def reaches_up(self) -> bool:
        return ".." in self.path or ".." in self.target or self.target.startswith("/")

    def check(self, inside: _Inside) -> None:
        """Refuse what is not inside the input root."""
        path = self.path
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if path.startswith("/") or "\0" in path or len(path.encode()) > PATH_BYTES_MAX:
            raise Refused("field.value", f"{path[:200]!r} is not a path of an output", path="action_result")
        level = inside.levels
        for part in parts:
            level += -1 if part == ".." else 1
            if level < 0:
                text = f"the output {path[:200]!r} is outside of the input root"
                raise Refused("field.value", text, path="action_result")
        climb = climb_of(self.target, repr(path[:200])) if self.target else 0
        if climb > level - 1 and self.target and not inside.is_root:
            raise refuse_climb(climb, f"the output {path[:200]!r}")


def _outputs(result: pb.ActionResult) -> Iterator[_Output]:
    for output in (*result.output_files, *result.output_directories):
        yield _Output(output.path, "")
    for link in (*result.output_file_symlinks, *result.output_directory_symlinks, *result.output_symlinks):
        if not link.target:
            raise Refused("field.value", f"the link {link.path[:200]!r} leads nowhere", path="action_result")
        yield _Output(link.path, link.target)


def _depth(path: str) -> int:
    """How deep a path leads, by its words alone; below zero if it leads up."""
    level = 0
    for part in path.split("/"):
        if part not in ("", "."):
            level += -1 if part == ".." else 1
    return level


def _named(result: pb.ActionResult) -> Iterator[Digest]:
    """The content that a result names itself."""
    for number, file in enumerate(result.output_files):
        yield read_digest(file.digest, f"output_files[{number}].digest")
    for number, directory in enumerate(result.output_directories):
        if not (directory.HasField("tree_digest") or directory.HasField("root_directory_digest")):
            text = f"the directory {directory.path[:200]!r} has no digest"
            raise Refused("content.digest", text, path=f"output_directories[{number}]")
        if directory.HasField("tree_digest"):
            yield read_digest(directory.tree_digest, f"output_directories[{number}].tree_digest")
    for name in ("stdout_digest", "stderr_digest"):
        message: pb.Digest = getattr(result, name)
        if message.hash:
            yield read_digest(message, name)


def _check_inline(result: pb.ActionResult) -> None:
    """Refuse content that stands beside a digest and is something else."""
    inline = [(file.contents, file.digest, file.path) for file in result.output_files]
    inline.append((result.stdout_raw, result.stdout_digest, "stdout"))
    inline.append((result.stderr_raw, result.stderr_digest, "stderr"))
    for content, digest, what in inline:
        if content and digest.hash and digest_of(content) != Digest(digest.hash, digest.size_bytes):
            raise Refused("content.wrong", f"what is inlined as {what[:200]!r} is not what its digest says")
