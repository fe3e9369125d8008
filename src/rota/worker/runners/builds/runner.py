"""The build runner: actions of the Remote Execution API, with their content asked of the front end that took them."""

import asyncio
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from rota.core.decide.leases import Offer
from rota.core.ids import Millis
from rota.core.model import FailureClass
from rota.wire.builds import INVALID_ACTION, decode_work
from rota.worker.logs.driver import LogShipper
from rota.worker.runners.builds.cache import ContentCache
from rota.worker.runners.builds.folder import BuildFolder
from rota.worker.runners.builds.sandbox import Sandbox
from rota.worker.runners.builds.shelf import Shelf
from rota.worker.runners.outcomes import failed
from rota.worker.supervisor.driver import Supervisor
from rota.worker.sync import AttemptOver

if TYPE_CHECKING:
    from rota.wire.places import Place
    from rota.worker.runners.builds.carrying import Carrier

CACHE_BYTES_MAX = 10 << 30


class Sources(Struct, frozen=True):
    """How front ends are reached: the place of an address, and the token that is presented there, as it is now."""

    find: "Callable[[str], Place]"
    token: Callable[[str], str]


def why_no_builds() -> str:
    """What this installation lacks for builds; empty if it lacks nothing."""
    if all(find_spec(name) is not None for name in ("google", "google.protobuf", "google.rpc")):
        return ""
    return "what builds need is not installed: pip install 'rota[build]'"


class BuildRunner:
    """Runs `build` work."""

    def __init__(
        self,
        supervisor: Supervisor,
        logs: LogShipper,
        place: Path,
        sources: Sources,
        clock: Callable[[], Millis],
        *,
        worker: str,
        sandbox: Sandbox | None = None,
        memory_bytes_max: int = 0,
        cache_bytes_max: int = CACHE_BYTES_MAX,
    ) -> None:
        """`place` is the folder for content and actions, and `worker` the name that results are signed with."""
        self._supervisor = supervisor
        self._logs = logs
        self._place = place
        self._folder = BuildFolder(place, supervisor.run_as)
        self._sources = sources
        self._clock = clock
        self._worker = worker
        self._sandbox = sandbox
        self._memory_bytes_max = memory_bytes_max
        self._cache_bytes_max = cache_bytes_max
        self._opening: asyncio.Task[ContentCache] | None = None
        self._carrier: Carrier | None = None

    def start(self) -> None:
        """Remove what an earlier worker has left, if there was one; nobody waits for that but an action."""
        if self._place.exists():
            self._opening = asyncio.ensure_future(self._open())

    async def run(self, offer: Offer) -> AttemptOver:
        """Carry out one action to its end; cancelling kills it with everything it started."""
        try:
            work = decode_work(offer.params)
        except msgspec.MsgspecError as error:
            return failed(offer, FailureClass.FATAL, f"{INVALID_ACTION} the run's params name no action: {error}")
        try:
            carrier = await self._begin()
        except OSError as error:
            # The next attempt tries again.
            self._opening = None
            return failed(offer, FailureClass.INTERNAL, f"this worker has no folder for actions: {error}")
        return await carrier.carry(offer, work)

    async def close(self) -> None:
        """Every action has ended; hang up, and remove what nobody could find again."""
        if self._carrier is not None:
            await self._carrier.close()
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
            await asyncio.to_thread(self._folder.close)

    async def _open(self) -> ContentCache:
        await asyncio.to_thread(self._folder.open)
        shelf = Shelf(self._folder.cache, self._folder.parts)
        cache = ContentCache(shelf, self._cache_bytes_max)
        cache.open(await asyncio.to_thread(shelf.scan))
        return cache

    async def _begin(self) -> "Carrier":
        if self._carrier is not None:
            return self._carrier
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
        cache = await asyncio.shield(self._opening)
        if self._carrier is None:
            # Only now: it takes as long as all the rest of a worker's start.
            from rota.worker.runners.builds import carrying, content

            means = carrying.Means(
                worker=self._worker,
                supervisor=self._supervisor,
                logs=self._logs,
                folder=self._folder,
                cache=cache,
                client=content.ContentClient(self._sources.find, self._sources.token),
                clock=self._clock,
                sandbox=self._sandbox,
                memory_bytes_max=self._memory_bytes_max,
            )
            self._carrier = carrying.Carrier(means)
        return self._carrier
