"""A front end and a build runner with a real supervisor, in a folder of their own."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from msgspec.structs import replace

from rota.core.commands import Outcome
from rota.core.decide.leases import Offer
from rota.core.errors import Refused
from rota.core.ids import Digest
from rota.stores.blobs import open_blobs
from rota.wire.builds import BUILD, NONE, BuildResult, BuildWork, decode_result, encode_build
from rota.wire.names import attempt_name
from rota.wire.places import Place
from rota.wire.reapi import remote_execution_pb2 as rx
from rota.wire.reapi.digests import digest_of
from rota.worker.accounts import Account
from rota.worker.logs.driver import LogShipper
from rota.worker.logs.folder import LogFolder
from rota.worker.runners.builds.runner import CACHE_BYTES_MAX, BuildRunner, Sources
from rota.worker.runners.builds.sandbox import AUTO, find_sandbox
from rota.worker.supervisor.driver import Supervisor
from rota.worker.sync import AttemptOver
from tests.integration.builds.front_end import FrontEnd
from tests.integration.playing import played

PATIENCE_S = 60
TENANT = "acme"

# What is in an input tree: bytes are a file, ("x", bytes) one that can be run, a string a link, a dict a folder.
Node = Any


def _has_sandbox() -> bool:
    try:
        return find_sandbox(AUTO) is not None
    except Refused:
        return False


# On a build server it has to be there.
in_sandbox = pytest.mark.skipif(
    not _has_sandbox() and "CI" not in os.environ, reason="bubblewrap is not here, or does not work here"
)


class Done:
    """An action that came to its end."""

    def __init__(self, over: AttemptOver, front: FrontEnd) -> None:
        assert over.result is not None, over.error
        self.over = over
        self.front = front
        self.said: BuildResult = decode_result(over.result)
        raw = self.said.result if self.said.stored is None else front.blobs[self.said.stored]
        self.result = rx.ActionResult.FromString(raw)
        is_well = not (self.said.exit_code or self.said.status)
        assert (over.outcome is Outcome.SUCCESS) == is_well, "an action that failed is a failed attempt"

    @property
    def out(self) -> bytes:
        return self.result.stdout_raw or self.front.get(self.result.stdout_digest)

    @property
    def err(self) -> bytes:
        return self.result.stderr_raw or self.front.get(self.result.stderr_digest)

    @property
    def files(self) -> dict[str, bytes]:
        return {file.path: self.front.get(file.digest) for file in self.result.output_files}

    def tree(self, path: str) -> rx.Tree:
        [found] = [each for each in self.result.output_directories if each.path == path]
        return rx.Tree.FromString(self.front.get(found.tree_digest))

    def unpacked(self, path: str) -> Node:
        """An output folder as its nodes."""
        tree = self.tree(path)
        known = {digest_of(child.SerializeToString(deterministic=True)): child for child in tree.children}
        return self._nodes(tree.root, known)

    def _nodes(self, folder: rx.Directory, known: Mapping[Digest, rx.Directory]) -> Node:
        nodes: dict[str, Node] = {}
        for file in folder.files:
            content = self.front.get(file.digest)
            nodes[file.name] = ("x", content) if file.is_executable else content
        nodes.update((link.name, link.target) for link in folder.symlinks)
        for child in folder.directories:
            digest = Digest(child.digest.hash, child.digest.size_bytes)
            nodes[child.name] = self._nodes(known[digest], known)
        return nodes


class Stage:
    """Everything it takes to carry out actions."""

    def __init__(
        self, folder: Path, front: FrontEnd, *, sandbox: str, cache_bytes: int, run_as: Account | None
    ) -> None:
        self.folder = folder
        self.front = front
        self.place = folder / "builds"
        self.token = ""
        self.find: Callable[[str], Place] = lambda url: Place(url, url.removeprefix("grpc://"))
        self.blobs = open_blobs(folder / "blobs")
        self.shipper = LogShipper(self.blobs, LogFolder(folder))
        self.supervisor = Supervisor(self.shipper, run_as=run_as)
        self._sandbox = find_sandbox(sandbox)
        self._cache_bytes = cache_bytes
        self.runner = self.new_runner()
        self._fence = 0

    def new_runner(self) -> BuildRunner:
        return BuildRunner(
            self.supervisor,
            self.shipper,
            self.place,
            Sources(self._find, lambda _: self.token),
            lambda: time.time_ns() // 1_000_000,
            worker="worker-7",
            sandbox=self._sandbox,
            cache_bytes_max=self._cache_bytes,
        )

    def _find(self, url: str) -> Place:
        return self.find(url)

    async def restart(self) -> None:
        """Another worker in the same folder; what the last one kept in memory is gone."""
        await self.runner.close()
        self.runner = self.new_runner()

    # What is asked for.

    def tree(self, nodes: Node) -> rx.Digest:
        """Put an input tree into the content."""
        folder = rx.Directory()
        for name, node in nodes.items():
            match node:
                case dict():
                    folder.directories.add(name=name, digest=self.tree(node))
                case str():
                    folder.symlinks.add(name=name, target=node)
                case ("x", bytes(content)):
                    folder.files.add(name=name, digest=self.front.put(content), is_executable=True)
                case _:
                    folder.files.add(name=name, digest=self.front.put(node))
        return self.front.put(folder)

    def action(
        self,
        argv: Sequence[str],
        inputs: Node = None,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 0,
        **command: Any,
    ) -> rx.Action:
        variables = [rx.Command.EnvironmentVariable(name=name, value=value) for name, value in (env or {}).items()]
        return rx.Action(
            command_digest=self.front.put(rx.Command(arguments=argv, environment_variables=variables, **command)),
            input_root_digest=self.tree(inputs or {}),
            timeout=Duration(nanos=round(timeout_s % 1 * 1e9), seconds=int(timeout_s)),
        )

    def offer(self, action: rx.Action | Digest, **changes: Any) -> Offer:
        """An attempt of an action, which goes along if it is given whole."""
        self._fence += 1
        raw = b"" if isinstance(action, Digest) else action.SerializeToString()
        work = BuildWork(
            instance="main",
            action=action if isinstance(action, Digest) else digest_of(raw),
            action_bytes=raw,
            content=self.front.url,
        )
        offer = Offer(
            tenant=TENANT,
            run="run/1",
            task=0,
            task_id="action",
            fence=self._fence,
            attempt=1,
            kind=BUILD,
            work=b"",
            params=encode_build(work),
            timeout_ms=0,
            lease_ms=30_000,
        )
        return replace(offer, **changes)

    async def carry(self, action: rx.Action, **changes: Any) -> AttemptOver:
        return await self.runner.run(self.offer(action, **changes))

    async def run(self, argv: Sequence[str], inputs: Node = None, **more: Any) -> Done:
        return Done(await self.carry(self.action(argv, inputs, **more)), self.front)

    async def sh(self, line: str, inputs: Node = None, **more: Any) -> Done:
        return await self.run(["/bin/sh", "-c", line], inputs, **{"env": {"PATH": "/usr/bin:/bin"}, **more})

    async def fails(self, line: str, inputs: Node = None, **more: Any) -> AttemptOver:
        action = self.action(["/bin/sh", "-c", line], inputs, **{"env": {"PATH": "/usr/bin:/bin"}, **more})
        over = await self.carry(action)
        assert over.outcome is Outcome.FAILED
        return over

    # What is there.

    async def log(self) -> bytes:
        await self.shipper.settled()
        name = attempt_name(TENANT, "run/1", "action", 1, self._fence)
        return b"".join(path.read_bytes() for path in sorted((self.folder / "blobs" / name / "log").glob("*")))

    def rooms(self) -> list[str]:
        return [path.name for path in (self.place / "rooms").iterdir()]

    def cached(self) -> list[Path]:
        return sorted(path for path in (self.place / "cache").rglob("*") if path.is_file())


@asynccontextmanager
async def open_stage(
    folder: Path, *, sandbox: str = NONE, cache_bytes: int = CACHE_BYTES_MAX, run_as: Account | None = None
) -> AsyncIterator[Stage]:
    front = FrontEnd()
    await front.start()
    stage = Stage(folder, front, sandbox=sandbox, cache_bytes=cache_bytes, run_as=run_as)
    try:
        yield stage
        if run_as is None and (stage.place / "rooms").exists():
            assert stage.rooms() == [], "an action's folder is removed with it"
    finally:
        await stage.runner.close()
        await stage.supervisor.close()
        await stage.shipper.close(PATIENCE_S)
        await front.stop()


def staged(**options: Any) -> Callable[[Callable[[Stage], Awaitable[None]]], Callable[[Path], None]]:
    """Run an asynchronous test on a stage of its own."""

    def decorate(test: Callable[[Stage], Awaitable[None]]) -> Callable[[Path], None]:
        async def play(folder: Path) -> None:
            async with asyncio.timeout(PATIENCE_S), open_stage(folder, **options) as stage:
                await test(stage)

        return played(test, play)

    return decorate
